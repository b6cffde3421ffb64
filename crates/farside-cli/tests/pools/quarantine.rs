//! A damaged map of one volume, seen from outside: it is named, everything else goes on, nothing wrong is ever published, and
//! it heals.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::{Pair, Site, status, text};
use farside_format::{Node, TreeKind};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// What one leaf maps.
const LEAF_BYTES: u64 = 128 * BLOCK as u64;

/// Overwrites every leaf with `position` of the volume that is larger than a leaf can map alone: all versions of it.
fn damage_leaves(pool: &Path, position: u64, is_of: impl Fn(&Node) -> bool) {
    let image = std::fs::read(pool).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(pool).unwrap();
    let mut damaged = 0;
    for (place, bytes) in image.chunks_exact(BLOCK).enumerate() {
        let Ok((node, _)) = Node::decode(bytes) else { continue };
        let is_leaf = node.kind == TreeKind::Volume && node.level == 1 && node.place.0 == place as u64;
        if is_leaf && node.position == position && is_of(&node) {
            file.write_all_at(&[0xA5; BLOCK], place as u64 * BLOCK as u64).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no leaf {position} in {}", pool.display());
    file.sync_all().unwrap();
}

fn fill(site: &Site, export: &str, offset: u64, length: u64, seed: u8) {
    let mut host = site.nbd(export);
    for (index, chunk) in (offset..offset + length).step_by(BLOCK).enumerate() {
        let block: Vec<u8> =
            (0..BLOCK).map(|i| (i as u8).wrapping_mul(seed) ^ (index as u8).wrapping_add(seed)).collect();
        host.write(chunk, &block).unwrap();
    }
    host.flush().unwrap();
}

fn pool_file(pair: &Pair, name: &str) -> PathBuf {
    pair.root.path().join(name)
}

fn names(snapshots: &Value) -> Vec<String> {
    snapshots.as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
}

/// The ranges that `pool status` names of `volume` itself.
fn quarantined(site: &Site, pool: &str, volume: &str) -> Vec<(u64, u64)> {
    let status = site.json(&format!("pool status {pool}"));
    let ranges = status["quarantined"].as_array().unwrap().iter();
    ranges
        .filter(|r| r["volume"] == volume && r["snapshot"].is_null())
        .map(|r| (r["offset_bytes"].as_u64().unwrap(), r["length_bytes"].as_u64().unwrap()))
        .collect()
}

#[test]
fn a_damaged_map_at_the_source_is_named_stops_nothing_else_and_heals() {
    let mut pair = Pair::start();
    pair.mirror(4 * MIB);
    fill(&pair.a, "p/v", 0, 2 * MIB, 3);
    pair.b.ok("mirror initialize q/v");
    pair.a.ok("volume create p/sound --size 4M");
    pair.a.ok("peer allow b p/sound");
    fill(&pair.a, "p/sound", 0, MIB, 7);
    pair.b.ok("mirror create a:p/sound q/sound");
    pair.b.ok("mirror initialize q/sound");
    let before = pair.b.nbd("q/v").read_all();
    let mut wanted = pair.a.nbd("p/v").read_all();
    let sound = text(&pair.a.farside("volume status p/sound --json").stdout);
    assert!(sound.contains("\"quarantined\": []") || sound.contains("\"quarantined\":[]"), "{sound}");
    assert_eq!(pair.a.stop(), Some(0));

    // The leaf of the second 512 KiB of `v`, which has another family than `sound`: only `v` has a third leaf.
    let pool = pool_file(&pair, "p.pool");
    let image = std::fs::read(&pool).unwrap();
    let nodes = image.chunks_exact(BLOCK).filter_map(|bytes| Node::decode(bytes).ok());
    let family = nodes.map(|(n, _)| n).find(|n| n.level == 1 && n.position == 3).unwrap().family;
    damage_leaves(&pool, 1, |node| node.family == family);
    pair.a.restart();

    // One block below the damaged leaf changes, and the next point meets it. The pool stays writable.
    let mut host = pair.a.nbd("p/v");
    assert!(host.read(LEAF_BYTES, &mut [0; BLOCK]).is_err(), "damage is an error, never other data");
    let changed = LEAF_BYTES + 5 * BLOCK as u64;
    host.write(changed, &[9; BLOCK]).unwrap();
    host.flush().unwrap();
    wanted[changed as usize..][..BLOCK].fill(9);
    let said = pair.b.fails(1, "mirror update q/v");
    assert!(said.contains("cannot be read") && said.contains("volume status p/v"), "{said}");
    assert_eq!(pair.b.nbd("q/v").read_all(), before, "the replica is as it was");

    // Named, in the pool and in the volume; all listings work.
    let ranges = quarantined(&pair.a, "p", "v");
    let length: u64 = ranges.iter().map(|r| r.1).sum();
    assert_eq!(length, LEAF_BYTES - BLOCK as u64, "{ranges:?}");
    assert!(ranges.iter().all(|r| (LEAF_BYTES..2 * LEAF_BYTES).contains(&r.0)), "{ranges:?}");
    assert!(!pair.a.json("volume status p/v")["quarantined"].as_array().unwrap().is_empty());
    assert_eq!(pair.a.json("volume status p/sound")["quarantined"], json!([]));
    let told = pair.a.ok("pool status p");
    assert!(told.contains("  p/v  ") && told.contains("a write of a whole block"), "{told}");
    let base = names(&pair.a.json("snapshot list p/v"));
    assert_eq!(base.len(), 1, "what the failed update took does not stay: {base:?}");
    assert_eq!(pair.a.json("pool status p")["state"], "open");

    // Everything else goes on: other volumes, their mirrors, snapshots of this one, and an opening.
    fill(&pair.a, "p/sound", MIB, MIB, 11);
    pair.b.ok("mirror update q/sound");
    assert_eq!(pair.a.nbd("p/sound").read_all(), pair.b.nbd("q/sound").read_all());
    pair.a.ok("snapshot create p/v@damaged");
    let listed = pair.a.json("snapshot list");
    let root =
        |name: &str| &listed.as_array().unwrap().iter().find(|s| s["name"] == name).unwrap()["content_root"];
    assert!(root("damaged").is_null(), "{listed}");
    drop(host);
    assert_eq!(pair.a.stop(), Some(0));
    pair.a.restart();
    assert_eq!(quarantined(&pair.a, "p", "v"), ranges);

    // Whole writes heal it, and the next update arrives, whatever the damaged snapshot beside it is.
    let mut host = pair.a.nbd("p/v");
    for (offset, length) in ranges {
        for at in (offset..offset + length).step_by(BLOCK) {
            host.write(at, &[6; BLOCK]).unwrap();
            wanted[at as usize..][..BLOCK].fill(6);
        }
    }
    host.flush().unwrap();
    assert_eq!(quarantined(&pair.a, "p", "v"), []);
    pair.b.ok("mirror update q/v");
    assert!(pair.b.nbd("q/v").read_all() == wanted);
    assert_eq!(status(&pair.b, "q/v")["state"], "mirrored");
}

#[test]
fn a_damaged_map_at_the_destination_is_healed_by_an_update() {
    let mut pair = Pair::start();
    pair.mirror(4 * MIB);
    fill(&pair.a, "p/v", 0, 2 * MIB, 5);
    pair.b.ok("mirror initialize q/v");
    assert_eq!(pair.b.stop(), Some(0));
    damage_leaves(&pool_file(&pair, "q.pool"), 1, |_| true);
    pair.b.restart();

    // The update touches the damaged leaf. It may fail once, with the damage named; the next compares the whole volume.
    fill(&pair.a, "p/v", LEAF_BYTES, 2 * BLOCK as u64, 9);
    let mut updates = 0;
    while !pair.b.farside("mirror update q/v").status.success() {
        updates += 1;
        assert!(updates < 3, "{}", pair.b.json("mirror history q/v"));
    }
    assert!(pair.a.nbd("p/v").read_all() == pair.b.nbd("q/v").read_all());
    assert_eq!(quarantined(&pair.b, "q", "v"), []);
    let last = &pair.b.json("mirror history q/v")[0];
    assert!(last["wire_bytes_received"].as_u64().unwrap() < 2 * MIB, "what is sound does not travel: {last}");

    // And it goes on by differences.
    fill(&pair.a, "p/v", 0, BLOCK as u64, 13);
    pair.b.ok("mirror update q/v");
    assert_eq!(pair.b.json("mirror history q/v")[0]["changed_bytes"], json!(BLOCK));
    assert!(pair.a.nbd("p/v").read_all() == pair.b.nbd("q/v").read_all());
}

#[test]
fn what_versions_hold_is_counted() {
    let root = tempfile::tempdir().unwrap();
    let site = Site::start(root.path(), "a");
    site.ok(&format!("pool create p --path {} --size 64M", root.path().join("p.pool").display()));
    site.ok("volume create p/v --size 4M");
    assert_eq!(site.json("volume list")[0]["referenced_bytes"], json!(0));
    fill(&site, "p/v", 0, 16 * BLOCK as u64, 3);
    site.ok("snapshot create p/v@one");
    fill(&site, "p/v", 0, 4 * BLOCK as u64, 5);
    site.nbd("p/v").trim(15 * BLOCK as u64, BLOCK as u32).unwrap();
    let block = BLOCK as u64;
    assert_eq!(site.json("volume status p/v")["referenced_bytes"], json!(15 * block));
    let one = &site.json("snapshot list p/v")[0];
    assert_eq!((&one["referenced_bytes"], &one["unique_bytes"]), (&json!(16 * block), &json!(5 * block)));
    let shown = site.ok("snapshot list p/v");
    assert!(shown.contains("64.0 KiB") && shown.contains("20.0 KiB"), "{shown}");
}
