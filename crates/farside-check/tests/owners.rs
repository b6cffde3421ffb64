//! Blocks with several owners: the table against the owners there are, in both directions; share records; damage.

mod pool_writer;

use std::collections::BTreeMap;

use farside_check::{CheckOptions, Report, Severity, What, check};
use farside_format::catalog::{Catalog, Change, Freeze, FrozenHead, VersionKind};
use farside_format::free_map::BlockState;
use farside_format::journal::Record;
use farside_format::{Birth, Fingerprint, Pointer, TreeKind};
use pool_writer::*;

fn share(version: u64, block: u64, pointer: &Pointer) -> Record {
    let fingerprints = vec![pointer.fingerprint];
    Record::Share { version, birth: pointer.birth, block, place: pointer.place, fingerprints }
}

fn born(birth: u64, pointer: Pointer) -> Pointer {
    Pointer { birth: Birth(birth), ..pointer }
}

/// As of the newest point: block 0 of alpha is beta's block 3 too; block 1 of alpha is its block 50 and beta's block 0
/// too. The journal after it shares block 2 of alpha with beta, in a batch that nothing proves.
struct Shared {
    writer: PoolWriter,
    alpha: Blocks,
    beta: Blocks,
}

type Spoil<'s> = &'s dyn Fn(&mut PoolWriter, &mut Blocks, &mut Blocks, &mut BTreeMap<u64, BlockState>);

/// Writes it; `spoil` changes what the newest point will hold: alpha, beta, and the free map.
fn shared(spoil: Spoil<'_>) -> Shared {
    let mut w = PoolWriter::new();
    let mut alpha: Blocks = (0..40).map(|block| (block, w.data(1, BLOCK as usize))).collect();
    let mut beta = Blocks::from([(3, alpha[&0]), (7, w.data(1, BLOCK as usize))]);
    w.extra_owners.insert(alpha[&0].place.0, 1);
    let mut contents = Contents {
        catalog: Catalog {
            next_id: 7,
            volumes: vec![volume(ALPHA, "alpha", 2, ALPHA_HEAD), volume(BETA, "beta", 5, BETA_HEAD)],
            versions: vec![
                version(ALPHA_HEAD, ALPHA, 0, VersionKind::Head, ALPHA_BYTES),
                version(BETA_HEAD, BETA, 0, VersionKind::Head, BETA_BYTES),
            ],
            unattributed_blocks_max: 0,
        },
        blocks: BTreeMap::from([(ALPHA_HEAD, alpha.clone()), (BETA_HEAD, beta.clone())]),
    };
    w.point(0, 1, 2, &mut contents, |_, _, _| {});

    let again = born(2, alpha[&1]);
    w.batch(0, &[share(ALPHA_HEAD, 50, &again), share(BETA_HEAD, 0, &again)]);
    w.batch(1, &[Record::Point { generation: 2, birth_epoch: Birth(3) }]);
    alpha.insert(50, again);
    beta.insert(0, again);
    w.extra_owners.insert(again.place.0, 2);
    let (whole_alpha, whole_beta) = (alpha.clone(), beta.clone());
    let mut states = BTreeMap::new();
    spoil(&mut w, &mut alpha, &mut beta, &mut states);
    contents.blocks = BTreeMap::from([(ALPHA_HEAD, alpha), (BETA_HEAD, beta)]);
    w.point(1, 2, 3, &mut contents, |_, _, of_point| of_point.extend(states));
    let in_beta = born(3, whole_alpha[&2]);
    w.batch(1, &[share(BETA_HEAD, 9, &in_beta)]);
    let mut beta = whole_beta;
    beta.insert(9, in_beta);
    Shared { writer: w, alpha: whole_alpha, beta }
}

fn run(writer: &PoolWriter) -> Report {
    check(&writer.disk, &CheckOptions::default()).expect("a superblock is left")
}

fn assert_found(report: &Report, what: What, expected: &str, found: &str) {
    let hit = report
        .findings
        .iter()
        .any(|f| f.what == what && f.expected.contains(expected) && f.found.contains(found));
    assert!(hit && !report.is_clean(), "no {what} expecting `{expected}`, found `{found}`, in\n{report}");
}

#[test]
fn a_pool_with_several_owners_is_clean_from_either_superblock() {
    for slot in [None, Some(0), Some(256)] {
        let pool = shared(&|_, _, _, _| {});
        if let Some(slot) = slot {
            pool.writer.disk.damage(slot * BLOCK + 60, &[0xee]);
        }
        let report = run(&pool.writer);
        assert!(report.is_clean() && report.findings.iter().all(|f| f.what == What::Superblock), "{report}");
        assert_eq!(report.shared_blocks, if slot == Some(256) { 1 } else { 2 }, "{report}");
        let versions = report.versions_after_replay.as_ref().expect("replayed");
        let root = |id: u64| versions.iter().find(|v| v.id == id).and_then(|v| v.content_root);
        assert_eq!(root(ALPHA_HEAD), Some(root_of(&pool.alpha, ALPHA_BYTES)));
        assert_eq!(root(BETA_HEAD), Some(root_of(&pool.beta, BETA_BYTES)));
    }
}

#[test]
fn counts_too_low_and_too_high() {
    let rows: [(What, &str, &str, Spoil<'_>); 6] = [
        // Too high: the block would never be freed.
        (What::OwnerCounts, "3 owners", "2", &|_, _, beta, _| {
            beta.remove(&0);
        }),
        (What::OwnerCounts, "2 owners", "1", &|_, alpha, _, _| {
            alpha.remove(&0);
        }),
        // Too low: it would be freed under somebody.
        (What::OwnerCounts, "2 owners", "3", &|w, alpha, _, _| {
            w.extra_owners.insert(alpha[&1].place.0, 1);
        }),
        // One that the table does not know at all.
        (What::Ownership, "one owner", "another owner", &|_, alpha, beta, _| {
            beta.insert(8, born(2, alpha[&9]));
        }),
        // A place that nothing refers to.
        (What::OwnerCounts, "2 owners", "0", &|w, _, _, _| {
            w.extra_owners.insert(5000, 1);
        }),
        // Past the end of the pool.
        (What::PastSize, "nothing from block 8 on", "a mapping", &|w, _, _, _| {
            w.extra_owners.insert(POOL_BLOCKS, 4);
        }),
    ];
    for (what, expected, found, spoil) in rows {
        assert_found(&run(&shared(spoil).writer), what, expected, found);
    }
}

#[test]
fn only_data_blocks_of_volumes_have_several_owners() {
    // A node of alpha, counted twice and used as beta's data.
    let pool = shared(&|w, alpha, beta, _| {
        let pointer = w.tree(TreeKind::Volume, 2, alpha, ALPHA_BYTES).root;
        w.extra_owners.insert(pointer.place.0, 1);
        let bytes = w.disk.peek(pointer.place.0 * BLOCK, BLOCK as usize);
        beta.insert(8, Pointer { fingerprint: Fingerprint::of_block(&bytes), ..pointer });
    });
    assert_found(&run(&pool.writer), What::Ownership, "one owner", "another owner");
}

#[test]
fn owners_of_one_place_agree_on_its_content() {
    let pool = shared(&|_, _, beta, _| beta.get_mut(&0).unwrap().fingerprint = Fingerprint([7; 16]));
    let options = CheckOptions { read_data: false, ..CheckOptions::default() };
    let report = check(&pool.writer.disk, &options).expect("a superblock is left");
    assert_found(&report, What::Ownership, "as the place's other owners have", &"07".repeat(16));
}

#[test]
fn a_damaged_block_is_reported_for_each_owner() {
    let pool = shared(&|_, _, _, _| {});
    pool.writer.disk.damage(pool.alpha[&1].place.0 * BLOCK + 77, &[0xee; 3]);
    let report = run(&pool.writer);
    let mut seen: Vec<_> = report
        .findings
        .iter()
        .filter(|f| f.what == What::DataBlock)
        .map(|f| (f.location.volume.clone().expect("named"), f.location.position.expect("named")))
        .collect();
    seen.sort();
    let expected = [("alpha", 1), ("alpha", 50), ("beta", 0)].map(|(v, block)| (v.to_string(), block));
    assert_eq!(seen, expected, "{report}");
}

#[test]
fn a_damaged_table_is_named_and_no_owner_is_accused() {
    let pool = shared(&|_, _, _, _| {});
    let superblock = pool.writer.superblock.clone().expect("written");
    let mut pointer = superblock.owner_counts.root;
    for _ in 0..superblock.owner_counts.level {
        pointer =
            *pool.writer.node_at(pointer.place.0).children.iter().find(|c| !c.is_hole()).expect("a child");
    }
    for (place, what) in
        [(pointer.place.0, What::DataBlock), (superblock.owner_counts.root.place.0, What::Node)]
    {
        let pool = shared(&|_, _, _, _| {});
        pool.writer.disk.damage(place * BLOCK + 600, &[0xee; 3]);
        let report = run(&pool.writer);
        let hit = report.findings.iter().any(|f| f.what == what && f.location.place == Some(place));
        assert!(hit, "no {what} in\n{report}");
        assert!(report.to_string().contains("owner counts"), "{report}");
        let accused = report.findings.iter().any(|f| matches!(f.what, What::Ownership | What::OwnerCounts));
        assert!(!accused, "{report}");
    }
}

#[test]
fn share_records_name_what_is_in_use() {
    type Tail = fn(&mut Shared) -> Record;
    let rows: [(&str, Tail); 5] = [
        ("places that are in use", |p| {
            let nowhere = p.writer.data(3, 4096);
            share(BETA_HEAD, 10, &nowhere)
        }),
        ("places that are in use", |p| {
            share(BETA_HEAD, 10, &Pointer { place: farside_format::Place(3), ..born(3, p.alpha[&5]) })
        }),
        ("birth 3, the epoch", |p| share(BETA_HEAD, 10, &born(2, p.alpha[&5]))),
        ("a version that exists", |p| share(99, 10, &born(3, p.alpha[&5]))),
        ("blocks below the version's size", |p| share(ALPHA_HEAD, 1000, &born(3, p.alpha[&5]))),
    ];
    for (expected, tail) in rows {
        let mut pool = shared(&|_, _, _, _| {});
        let record = tail(&mut pool);
        pool.writer.batch(3, &[record]);
        assert_found(&run(&pool.writer), What::JournalRecord, expected, "");
    }
    // What an earlier record mapped may be shared; the same place more than once, too.
    let mut pool = shared(&|_, _, _, _| {});
    let fresh = pool.writer.data(3, 4096);
    pool.writer.batch(
        3,
        &[map(ALPHA_HEAD, 60, &fresh), share(BETA_HEAD, 10, &fresh), share(ALPHA_HEAD, 61, &fresh)],
    );
    let report = run(&pool.writer);
    assert_eq!(report.findings, [], "{report}");
}

fn unmap(version: u64, birth: u64, block: u64) -> Record {
    Record::Unmap { version, birth: Birth(birth), block, count: 1 }
}

/// As an opening sees it: what came since the point ends with the record that replaces it, and a place that nobody has any
/// more gets no further owner.
#[test]
fn no_share_record_names_a_place_whose_last_owner_has_gone() {
    type Tail = fn(&Pointer) -> Vec<Record>;
    let lost: [Tail; 5] = [
        |p| vec![map(ALPHA_HEAD, 60, p), unmap(ALPHA_HEAD, 3, 60), share(BETA_HEAD, 10, p)],
        // A version that moves its own blocks by one: what the first record replaces is what the second one names.
        |p| {
            let next = Pointer { place: farside_format::Place(p.place.0 + 1), ..*p };
            let both = [map(ALPHA_HEAD, 60, p), map(ALPHA_HEAD, 61, &next)];
            let moved = [share(ALPHA_HEAD, 61, p), share(ALPHA_HEAD, 62, &next)];
            [both, moved].concat()
        },
        // The last of several.
        |p| {
            let three = [map(ALPHA_HEAD, 60, p), share(BETA_HEAD, 10, p), share(BETA_HEAD, 11, p)];
            let gone = [unmap(BETA_HEAD, 3, 10), unmap(ALPHA_HEAD, 3, 60), unmap(BETA_HEAD, 3, 11)];
            [&three[..], &gone, &[share(BETA_HEAD, 12, p)]].concat()
        },
        // All of it at once.
        |p| {
            let all = Record::Unmap { version: ALPHA_HEAD, birth: Birth(3), block: 0, count: 128 * 128 };
            vec![map(ALPHA_HEAD, 60, p), all, share(BETA_HEAD, 10, p)]
        },
        // Of a head that was frozen: what it gained afterwards is its own.
        |p| {
            let p = born(4, *p);
            vec![freeze_alpha(), map(ALPHA_HEAD, 60, &p), unmap(ALPHA_HEAD, 4, 60), share(BETA_HEAD, 10, &p)]
        },
    ];
    let kept: [Tail; 4] = [
        |p| {
            let two = [map(ALPHA_HEAD, 60, p), share(BETA_HEAD, 10, p), unmap(ALPHA_HEAD, 3, 60)];
            [&two[..], &[share(ALPHA_HEAD, 61, p), unmap(BETA_HEAD, 3, 10), share(BETA_HEAD, 11, p)]].concat()
        },
        // One record that moves a block onto the one it lies beside.
        |p| vec![map(ALPHA_HEAD, 60, p), share(ALPHA_HEAD, 60, p), share(ALPHA_HEAD, 61, p)],
        // The snapshot has it.
        |p| {
            let later = born(4, *p);
            vec![
                map(ALPHA_HEAD, 60, p),
                freeze_alpha(),
                unmap(ALPHA_HEAD, 4, 60),
                share(BETA_HEAD, 10, &later),
            ]
        },
        // An ownership of the point ends with the next point only.
        |_| vec![],
    ];
    for (tails, is_sound) in [(&lost[..], false), (&kept, true)] {
        for (number, tail) in tails.iter().enumerate() {
            let mut pool = shared(&|_, _, _, _| {});
            let fresh = pool.writer.data(3, 4096);
            // The one beside it has the same bytes.
            let bytes = pool.writer.disk.peek(fresh.place.0 * BLOCK, BLOCK as usize);
            let beside = pool.writer.data(3, 4096);
            assert_eq!(beside.place.0, fresh.place.0 + 1);
            pool.writer.disk.damage(beside.place.0 * BLOCK, &bytes);
            let mut records = tail(&fresh);
            if records.is_empty() {
                let of_point = born(3, pool.alpha[&5]);
                records = vec![unmap(ALPHA_HEAD, 3, 5), share(BETA_HEAD, 10, &of_point)];
            }
            pool.writer.batch(3, &records);
            let report = run(&pool.writer);
            if is_sound {
                assert_eq!(report.findings, [], "{number}: {report}");
            } else {
                assert_found(&report, What::JournalRecord, "places that are in use", "which nothing uses");
            }
        }
    }
}

fn freeze_alpha() -> Record {
    let frozen = FrozenHead { head: ALPHA_HEAD, version: 20, snapshot: Some(description("monday")) };
    change(Change::Freeze(Freeze { frozen: vec![frozen], epoch: 3 }))
}

/// An answered flush may be in a batch that nothing proves. A shared block that rots must not end the journal before it.
#[test]
fn rot_under_a_share_record_ends_no_journal() {
    let pool = shared(&|_, _, _, _| {});
    let before = run(&pool.writer);
    pool.writer.disk.damage(pool.alpha[&2].place.0 * BLOCK + 9, &[0xee; 3]);
    let report = run(&pool.writer);
    assert_eq!(report.journal, before.journal, "{report}");
    let told: Vec<_> = report.findings.iter().map(|f| (f.severity, f.what, f.location.position)).collect();
    let expected =
        [(Severity::Error, What::DataBlock, Some(2)), (Severity::Error, What::JournalData, Some(9))];
    assert_eq!(told, expected, "{report}");
    assert_eq!(report.versions_after_replay, before.versions_after_replay);
}
