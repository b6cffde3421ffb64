//! Points that were written whole but break a rule of the format: what software, not media, gets wrong.

mod pool_writer;

use std::collections::BTreeMap;

use farside_check::{CheckOptions, Report, What, check};
use farside_format::catalog::{
    Catalog, Change, CloneVolume, MoveMain, MovedHead, Origin, Restage, Stage, StagedFor, VersionKind,
    VolumeLimits,
};
use farside_format::free_map::BlockState;
use farside_format::journal::Record;
use farside_format::{Birth, Place, Pointer, TreeKind, TreeReference};
use pool_writer::*;

fn run(story: &Story) -> Report {
    check(&story.writer.disk, &CheckOptions::default()).expect("a superblock is left")
}

fn assert_found(report: &Report, what: What, expected: &str) {
    let found = report.findings.iter().any(|f| f.what == what && f.expected.contains(expected));
    assert!(found && !report.is_clean(), "no {what} expecting `{expected}` in\n{report}");
}

type CatalogChange = fn(&mut Catalog);

fn purpose() -> StagedFor {
    StagedFor { relationship: vec![1; 16], incremental: vec![2; 16] }
}

fn stage(version: u64, volume: u64) -> Change {
    let staged = Some(purpose());
    Change::Stage(Stage { version, volume, base: MONDAY, size_bytes: 300 * BLOCK, staged })
}

fn move_main(volume: u64, base: u64, epoch: u64) -> Change {
    let moved = vec![MovedHead { volume, base, head: 20, ..Default::default() }];
    Change::MoveMain(MoveMain { moved, epoch })
}

fn origin(volume: u64) -> Origin {
    let (volume_name, snapshot_name) = ("alpha".into(), "monday".into());
    Origin { volume, snapshot: vec![9; 16], volume_name, snapshot_name, created_at: 1 }
}

/// A clone of the snapshot "monday" that says it began as `origin`.
fn clone_of_monday(origin: Origin) -> Change {
    let volume = farside_format::catalog::Volume { origin: Some(origin), ..volume(20, "delta", 2, 21) };
    Change::Clone(CloneVolume { volume: Some(volume), base: MONDAY })
}

#[test]
fn catalog_entries_against_each_other() {
    let rows: [(&str, CatalogChange); 26] = [
        ("volume ids unique", |c| c.volumes[1].id = ALPHA),
        ("names unique among volumes", |c| c.volumes[1].name = "alpha".into()),
        ("volume UUID of 16 bytes", |c| c.volumes[1].uuid.truncate(3)),
        ("a volume id from 1 and below the next id", |c| c.next_id = 4),
        ("the volume's head and no other", |c| c.volumes[0].head = 99),
        ("ids of volumes and versions unique", |c| c.versions[1].id = ALPHA_HEAD),
        ("the version's volume in the catalog", |c| c.versions[1].volume = 77),
        ("the parent in the catalog", |c| c.versions[1].parent = 77),
        ("a snapshot as parent", |c| c.versions[1].parent = ALPHA_HEAD),
        ("parent and child of one family", |c| c.versions[1].parent = MONDAY),
        ("parents that form no circle", |c| c.versions[2].parent = MONDAY),
        ("frozen set for snapshots", |c| c.versions[0].frozen = 1),
        ("frozen in an epoch that is over", |c| c.versions[2].frozen = 4),
        ("a description for snapshots", |c| c.versions[2].snapshot = None),
        ("pins of 16 bytes", |c| c.versions[2].snapshot.as_mut().unwrap().pins = vec![vec![1]]),
        ("a reaping cursor on deleted versions only", |c| c.versions[2].reaped_blocks = 1),
        ("the tree's length", |c| c.versions[1].size_bytes += 1),
        ("a purpose for staged versions", |c| c.versions[0].staged = Some(purpose())),
        ("an incremental of 16 bytes", |c| {
            c.versions[0].staged = Some(StagedFor { incremental: vec![1], ..purpose() })
        }),
        ("births inherited from an epoch that is over", |c| c.versions[0].inherited = 4),
        ("none in a snapshot", |c| c.versions[2].inherited = 1),
        ("a reservation within the quota", |c| {
            c.volumes[0].limits =
                Some(VolumeLimits { quota_bytes: 1, reserve_bytes: 2, ..VolumeLimits::default() });
        }),
        ("a size to grow to and a step", |c| {
            c.volumes[0].limits = Some(VolumeLimits { autogrow_to_bytes: 4096, ..VolumeLimits::default() });
        }),
        ("an origin that is older than its clone", |c| c.volumes[1].origin = Some(origin(BETA))),
        ("an origin's snapshot UUID of 16 bytes", |c| {
            c.volumes[1].origin = Some(Origin { snapshot: vec![1], ..origin(ALPHA) });
        }),
        ("names of an origin", |c| {
            c.volumes[1].origin = Some(Origin { snapshot_name: String::new(), ..origin(ALPHA) });
        }),
    ];
    for (expected, change) in rows {
        assert_found(&run(&story(|_, catalog, _| change(catalog))), What::Catalog, expected);
    }
}

#[test]
fn blocks_owned_too_many_and_too_few() {
    for (version, change) in [(0, 1), (1, -1), (2, -1), (2, 5)] {
        let found = run(&story(|_, catalog, _| {
            let owned = &mut catalog.versions[version].owned_blocks;
            *owned = owned.checked_add_signed(change).expect("it owns some");
        }));
        assert_found(&found, What::OwnedBlocks, "blocks owned, as the catalog says");
        // Damage may have left some unattributed, and these count as owned for ever; never fewer than there are.
        let allowed = run(&story(|_, catalog, _| {
            catalog.unattributed_blocks_max = 1;
            let owned = &mut catalog.versions[version].owned_blocks;
            *owned = owned.checked_add_signed(change).expect("it owns some");
        }));
        let is_found = allowed.findings.iter().any(|f| f.what == What::OwnedBlocks);
        assert_eq!(is_found, change != 1, "{allowed}");
    }
}

fn head_tree(catalog: &Catalog, version: usize) -> TreeReference {
    catalog.versions[version].decode_tree().expect("the writer stored one")
}

/// Gives version `version` a tree of the same blocks with one changed, written anew.
fn replace(w: &mut PoolWriter, catalog: &mut Catalog, version: usize, blocks: Blocks) {
    let of = catalog.versions[version].clone();
    let family =
        catalog.volumes.iter().find(|v| v.id == of.volume).expect("each version has a volume").family;
    let tree = w.tree(TreeKind::Volume, family, &blocks, of.size_bytes);
    catalog.versions[version].set_tree(&tree);
}

fn blocks_of(w: &PoolWriter, tree: &TreeReference) -> Blocks {
    let mut blocks = Blocks::new();
    let mut pending = vec![(tree.root, tree.level, 0u64)];
    while let Some((pointer, level, position)) = pending.pop() {
        for (i, child) in w.node_at(pointer.place.0).children.iter().enumerate().filter(|(_, c)| !c.is_hole())
        {
            let index = position << 7 | i as u64;
            if level == 1 {
                blocks.insert(index, *child);
            } else {
                pending.push((*child, level - 1, index));
            }
        }
    }
    blocks
}

type BlocksChange = fn(&mut PoolWriter, &mut Blocks, &Blocks);

#[test]
fn ownership_births_and_sizes() {
    // Version 0 is the head of alpha, 2 its parent `monday` (frozen 2), 1 the head of beta.
    let rows: [(What, &str, usize, BlocksChange); 6] = [
        // The same place under another birth: freed twice one day.
        (What::Ownership, "one owner", 0, |_, head, _| head.get_mut(&11).unwrap().birth = Birth(3)),
        // The same place at another position.
        (What::Ownership, "one owner", 0, |_, head, monday| {
            head.insert(500, Pointer { birth: Birth(3), ..monday[&12] });
        }),
        // Another volume's block.
        (What::Ownership, "one owner", 1, |_, beta, monday| {
            beta.insert(500, Pointer { birth: Birth(3), ..monday[&13] });
        }),
        // A block of its own, born before the parent was frozen.
        (What::Ownership, "or born after it", 0, |w, head, _| {
            head.insert(501, w.data(2, 4096));
        }),
        // From an epoch that has not begun.
        (What::Birth, "no birth above 3", 0, |w, head, _| {
            head.insert(502, w.data(4, 4096));
        }),
        (What::PastSize, "nothing from block 1000 on", 0, |w, head, _| {
            head.insert(1000, w.data(3, 4096));
        }),
    ];
    for (what, expected, version, change) in rows {
        let story = story(|w, catalog, _| {
            let mut blocks = blocks_of(w, &head_tree(catalog, version));
            let monday = blocks_of(w, &head_tree(catalog, 2));
            change(w, &mut blocks, &monday);
            replace(w, catalog, version, blocks);
        });
        assert_found(&run(&story), what, expected);
    }
}

#[test]
fn bytes_past_the_last_byte_of_a_volume() {
    let story = story(|w, catalog, _| {
        let mut blocks = blocks_of(w, &head_tree(catalog, 0));
        blocks.insert(999, w.data(3, 4096));
        replace(w, catalog, 0, blocks);
    });
    assert_found(&run(&story), What::PastSize, "zeros past the volume's last byte");
}

#[test]
fn counts_places_and_snapshots() {
    let wrong_count = story(|w, catalog, _| {
        let mut node = w.node_at(head_tree(catalog, 0).root.place.0);
        node.mapped_blocks += 1;
        w.put(&node);
    });
    assert_found(&run(&wrong_count), What::MappedBlocks, "200");

    let out_of_range = story(|w, catalog, _| {
        let mut blocks = blocks_of(w, &head_tree(catalog, 0));
        let mut pointer = w.data(3, 4096);
        pointer.place = Place(600);
        blocks.insert(503, pointer);
        replace(w, catalog, 0, blocks);
    });
    assert_found(&run(&out_of_range), What::PlaceOutOfRange, "a place from 1536");
}

#[test]
fn a_snapshot_is_the_same_in_both_points() {
    let (mut w, mut contents) = reaping(0);
    w.point(0, 1, 5, &mut contents, |_, _, _| {});
    let changed = w.data(1, 4096);
    contents.blocks.get_mut(&7).unwrap().insert(250, changed);
    w.point(1, 2, 6, &mut contents, |_, _, _| {});
    let report = check(&w.disk, &CheckOptions::default()).unwrap();
    assert_found(&report, What::SnapshotChanged, "content root");
}

#[test]
fn the_free_map_says_exactly_what_is_used() {
    type States = fn(&mut BTreeMap<u64, BlockState>);
    let rows: [(&str, States); 4] = [
        ("nothing refers to these blocks", |s| {
            s.insert(5000, BlockState::InUse);
        }),
        ("nothing refers to these blocks", |s| {
            s.insert(POOL_BLOCKS, BlockState::InUse);
        }),
        ("something refers to these blocks", |s| {
            s.insert(1536, BlockState::Free);
        }),
        ("past the end of the pool", |s| {
            s.insert(POOL_BLOCKS + 1, BlockState::Waiting);
        }),
    ];
    for (expected, change) in rows {
        assert_found(&run(&story(|_, _, states| change(states))), What::FreeMap, expected);
    }
    // A place that only the older point needs, given free.
    let story = story(|w, _, states| {
        let older = w.superblock.as_ref().unwrap().catalog.root.place.0;
        states.insert(older, BlockState::Free);
    });
    assert_found(&run(&story), What::OlderPoint, "generation 1");
}

#[test]
fn records_that_cannot_follow() {
    type Tail = fn(&mut Story) -> Record;
    let rows: [(&str, Tail); 23] = [
        ("a version that exists", |s| map(99, 0, &s.writer.data(4, 4096))),
        ("a head or staged version", |s| map(MONDAY, 0, &s.writer.data(4, 4096))),
        ("birth 4, the epoch", |s| map(ALPHA_HEAD, 0, &s.writer.data(3, 4096))),
        ("blocks below the version's size", |s| map(ALPHA_HEAD, 1000, &s.writer.data(4, 4096))),
        ("places that are free at the point", |s| {
            let used = s.contents.blocks[&MONDAY][&0];
            map(ALPHA_HEAD, 0, &Pointer { birth: Birth(4), ..used })
        }),
        ("places mapped once", |s| {
            let tail = s.replayed[&BETA_HEAD].0[&6];
            map(ALPHA_HEAD, 0, &tail)
        }),
        ("an id never used before", |_| change(stage(7, ALPHA))),
        ("the family of the base", |_| change(stage(20, BETA))),
        ("an origin that is what the clone began as", |_| change(clone_of_monday(origin(BETA)))),
        ("names of an origin", |_| {
            change(clone_of_monday(Origin { volume_name: String::new(), ..origin(ALPHA) }))
        }),
        ("what a staged version is built for", |_| {
            let (size_bytes, staged) = (4096, None);
            change(Change::Stage(Stage { version: 20, volume: ALPHA, base: MONDAY, size_bytes, staged }))
        }),
        ("a Staged", |_| {
            let staged = Some(purpose());
            change(Change::Restage(Restage { version: ALPHA_HEAD, size_bytes: 4096, staged }))
        }),
        ("epoch 4 to be closed", |_| change(move_main(ALPHA, MONDAY, 3))),
        ("a snapshot of the volume itself", |_| change(move_main(BETA, MONDAY, 4))),
        ("a Snapshot", |_| change(move_main(BETA, BETA_HEAD, 4))),
        ("a version that exists", |_| change(move_main(ALPHA, 99, 4))),
        ("at least one volume to move", |_| change(Change::MoveMain(MoveMain { moved: vec![], epoch: 4 }))),
        ("epoch 4 to be closed", |_| {
            change(Change::Freeze(farside_format::catalog::Freeze { frozen: vec![], epoch: 3 }))
        }),
        ("birth epoch 5", |_| Record::Point { generation: 3, birth_epoch: Birth(4) }),
        ("birth epoch 5", |_| Record::Point { generation: 3, birth_epoch: Birth(6) }),
        // Its tree has two levels.
        ("blocks below the end of the version's tree", |_| Record::Unmap {
            version: ALPHA_HEAD,
            birth: Birth(4),
            block: 128 * 128,
            count: 1,
        }),
        ("a point after generation 2", |_| Record::Point { generation: 2, birth_epoch: Birth(5) }),
        ("blocks past the new size unmapped", |_| {
            change(Change::ResizeHead(farside_format::catalog::ResizeHead {
                version: ALPHA_HEAD,
                size_bytes: 100 * BLOCK,
            }))
        }),
    ];
    for (expected, tail) in rows {
        let mut story = story(|_, _, _| {});
        let record = tail(&mut story);
        story.writer.batch(6, &[record]);
        assert_found(&run(&story), What::JournalRecord, expected);
    }
    // Smaller, but not cut before.
    let mut story = self::story(|_, _, _| {});
    let smaller = Restage { version: 20, size_bytes: 4096, staged: Some(purpose()) };
    story.writer.batch(6, &[change(stage(20, ALPHA)), change(Change::Restage(smaller))]);
    assert_found(&run(&story), What::JournalRecord, "blocks past the new size unmapped");
    // A batch that claims to prove itself.
    let mut story = self::story(|_, _, _| {});
    story.writer.batch(7, &[]);
    assert_found(&run(&story), What::Journal, "proves less than its own sequence");
}

/// alpha: `monday` (frozen 2) ← `tuesday` (frozen 3, deleted, reaped up to `cursor`) ← head.
fn reaping(cursor: u64) -> (PoolWriter, Contents) {
    let mut w = PoolWriter::new();
    let mut blocks = Blocks::new();
    for block in 0..300 {
        blocks.insert(block, w.data(1, 4096));
    }
    let monday = blocks.clone();
    for block in [3, 60, 70, 200, 290] {
        blocks.insert(block, w.data(3, 4096));
    }
    let tuesday = blocks.clone();
    // The head replaced some of what came into being in `tuesday`, and kept the rest.
    for block in [3, 70, 290] {
        blocks.insert(block, w.data(4, 4096));
    }
    let snapshot = |id, parent, frozen, name: &str| {
        let mut v = version(id, ALPHA, parent, VersionKind::Snapshot, 300 * BLOCK);
        (v.frozen, v.snapshot) = (frozen, Some(description(name)));
        v
    };
    let mut deleted = snapshot(8, 7, 3, "tuesday");
    (deleted.deleted, deleted.reaped_blocks) = (true, cursor);
    let contents = Contents {
        catalog: Catalog {
            next_id: 9,
            volumes: vec![volume(ALPHA, "alpha", 2, ALPHA_HEAD)],
            versions: vec![
                version(ALPHA_HEAD, ALPHA, 8, VersionKind::Head, 300 * BLOCK),
                snapshot(7, 0, 2, "monday"),
                deleted,
            ],
            unattributed_blocks_max: 0,
        },
        blocks: BTreeMap::from([(ALPHA_HEAD, blocks), (7, monday), (8, tuesday)]),
    };
    (w, contents)
}

#[test]
fn a_version_half_reaped_holds_what_is_above_its_cursor() {
    for cursor in [0, 1, 3, 4, 64, 65, 128, 200, 201, 256, 290, 291, 300] {
        let (mut w, mut contents) = reaping(cursor);
        w.point(0, 1, 5, &mut contents, |_, _, _| {});
        let report = check(&w.disk, &CheckOptions::default()).unwrap();
        let errors: Vec<_> = report.findings.iter().filter(|f| f.what != What::Superblock).collect();
        assert!(errors.is_empty() && report.is_clean(), "cursor {cursor}\n{report}");
    }
    // What the cursor passed must be given back: blocks 3 and 70 of `tuesday` alone.
    let (mut w, mut contents) = reaping(100);
    let kept = contents.blocks[&8][&70].place.0;
    w.point(0, 1, 5, &mut contents, |_, _, states| {
        states.insert(kept, BlockState::InUse);
    });
    let report = check(&w.disk, &CheckOptions::default()).unwrap();
    assert_found(&report, What::FreeMap, "nothing refers to these blocks");
    // And what it has not reached must be held.
    let (mut w, mut contents) = reaping(70);
    let held = contents.blocks[&8][&70].place.0;
    w.point(0, 1, 5, &mut contents, |_, _, states| {
        states.insert(held, BlockState::Free);
    });
    let report = check(&w.disk, &CheckOptions::default()).unwrap();
    assert_found(&report, What::FreeMap, "something refers to these blocks");
}

#[test]
fn what_the_parent_replaced_cannot_come_back_from_further_up() {
    // The head has a block of `monday` again that `tuesday`, between them, replaced: it would be freed with `monday`.
    let (mut w, mut contents) = reaping(0);
    let of_monday = contents.blocks[&7][&200];
    contents.blocks.get_mut(&ALPHA_HEAD).unwrap().insert(200, of_monday);
    w.point(0, 1, 5, &mut contents, |_, _, _| {});
    let report = check(&w.disk, &CheckOptions::default()).unwrap();
    assert_found(&report, What::Ownership, "shared with version 8 (frozen 3), or born after it");
    // The same with a whole leaf.
    let (mut w, mut contents) = reaping(0);
    let leaf: Vec<_> = contents.blocks[&7].range(128..256).map(|(b, p)| (*b, *p)).collect();
    contents.blocks.get_mut(&ALPHA_HEAD).unwrap().extend(leaf);
    w.point(0, 1, 5, &mut contents, |_, _, _| {});
    let report = check(&w.disk, &CheckOptions::default()).unwrap();
    let of_leaf = report.findings.iter().any(|f| f.what == What::Ownership && f.location.level == Some(1));
    assert!(of_leaf, "{report}");
}

#[test]
fn a_thousand_snapshots_are_read_once() {
    let mut w = PoolWriter::new();
    let mut blocks = Blocks::new();
    for block in 0..256 {
        blocks.insert(block, w.data(1, 4096));
    }
    let mut contents = Contents::default();
    contents.catalog.volumes.push(volume(ALPHA, "alpha", 2, ALPHA_HEAD));
    let mut parent = 0;
    for i in 0..1000 {
        let id = 10 + i;
        let mut snapshot = version(id, ALPHA, parent, VersionKind::Snapshot, 256 * BLOCK);
        (snapshot.frozen, snapshot.snapshot) = (2 + i, Some(description(&format!("s{i}"))));
        contents.catalog.versions.push(snapshot);
        contents.blocks.insert(id, blocks.clone());
        parent = id;
        if i % 50 == 0 {
            blocks.insert(i % 256, w.data(3 + i, 4096));
        }
    }
    contents.catalog.versions.push(version(ALPHA_HEAD, ALPHA, parent, VersionKind::Head, 256 * BLOCK));
    contents.blocks.insert(ALPHA_HEAD, blocks);
    contents.catalog.next_id = 2000;
    w.point(0, 1, 2000, &mut contents, |_, _, _| {});
    let report = check(&w.disk, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.snapshots().count(), 1000);
    // Each node and block once, parents of changed nodes perhaps again; the ring and reserved areas beside.
    let distinct = w.pieces.len() as u64;
    let fixed = 512 + JOURNAL_BLOCKS + 10;
    assert!(
        report.bytes_read < (2 * distinct + fixed) * BLOCK,
        "{} for {distinct} pieces",
        report.bytes_read
    );
}
