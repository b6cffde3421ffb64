//! Volumes are deduplicated while hosts use them: begun, stopped and undone by the command line; neither a restart nor a kill ends it;
//! and a mirror of what was deduplicated has next to nothing to send.

use std::path::Path;

use crate::support::{Pair, Site, check_pool, eventually, status};
use serde_json::{Value, json};

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

fn block(number: u64, seed: u64) -> Vec<u8> {
    let mut word =
        (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed.wrapping_mul(0x2545_F491_4F6C_DD1D);
    let mut bytes = Vec::with_capacity(BLOCK as usize);
    while bytes.len() < BLOCK as usize {
        word = word.rotate_left(7).wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Writes blocks `from..from + count` of a content to `first` on.
fn fill(site: &Site, export: &str, first: u64, from: u64, count: u64, seed: u64) {
    let mut host = site.nbd(export);
    for number in 0..count {
        host.write((first + number) * BLOCK, &block(from + number, seed)).unwrap();
    }
    host.flush().unwrap();
}

fn site(root: &Path, size: &str) -> Site {
    let site = Site::start(root, "a");
    site.ok(&format!("pool create p --path {} --size {size}", root.join("p.pool").display()));
    for volume in ["v", "w"] {
        site.ok(&format!("volume create p/{volume} --size 64M"));
    }
    site
}

fn dedup(site: &Site, volume: &str) -> Value {
    site.json(&format!("volume dedup status {volume}"))
}

#[test]
fn two_volumes_share_what_both_have_until_it_is_undone() {
    let root = tempfile::tempdir().unwrap();
    let mut site = site(root.path(), "128M");
    let off = dedup(&site, "p/v");
    assert_eq!(
        (&off["state"], &off["saved_bytes"], &off["scanned_bytes"]),
        (&json!("off"), &json!(0), &json!(0))
    );
    site.fails(3, "volume dedup status p/nobody");
    assert!(site.fails(4, "volume dedup stop p/v").contains("is off"));
    assert!(site.ok("volume dedup status").contains("no volume has deduplication"));
    fill(&site, "p/v", 0, 0, 2000, 1);
    fill(&site, "p/w", 77, 0, 2000, 1);
    site.ok("snapshot create p/w@old");
    let alone = site.json("volume dedup start p/v");
    assert_eq!((&alone["state"], &alone["shared_bytes"]), (&json!("idle"), &json!(0)), "{alone}");
    assert_eq!(alone["scanned_bytes"], 2000 * BLOCK);
    // The other one joins; its snapshot keeps what it has.
    let both = site.json("volume dedup start p/w --rate unlimited");
    assert_eq!(
        (&both["state"], &both["shared_bytes"], &both["held_by_snapshots_bytes"]),
        (&json!("idle"), &json!(2000 * BLOCK), &json!(0)),
        "the older ones are v's, but a snapshot has w's: {both}"
    );
    assert_eq!(both["saved_bytes"], 1000 * BLOCK);
    assert_eq!(both["pool_saved_bytes"], 2000 * BLOCK);
    assert!(both["next_at"].is_string() && both["limit_bytes_per_second"].is_null(), "{both}");
    let told = site.ok("volume dedup status p/w");
    assert!(told.contains("deduplication") && told.contains("idle"), "{told}");
    assert!(site.http("/metrics").contains("farside_volume_dedup_saved_bytes{volume=\"p/w\"} 4096000"));
    // It looks at once at what changed, and at nothing else.
    fill(&site, "p/v", 8000, 500, 64, 1);
    let again = site.json("volume dedup start p/v");
    assert_eq!(again["shared_bytes"], 64 * BLOCK, "{again}");
    assert!(again["scanned_bytes"].as_u64().unwrap() <= 2064 * BLOCK, "{again}");
    let read = site.nbd("p/w@old").bytes(77 * BLOCK, BLOCK as usize).unwrap();
    assert_eq!(read, block(0, 1));

    // A rename changes nothing; a stop leaves what is shared.
    site.ok("volume rename p/w p/x");
    assert_eq!(dedup(&site, "p/x")["state"], "idle");
    let stopped = site.json("volume dedup stop p/x");
    assert_eq!((&stopped["state"], &stopped["saved_bytes"]), (&json!("off"), &both["saved_bytes"]));
    assert_eq!(site.stop(), Some(0));
    check_pool(&root.path().join("p.pool"));
    site.restart();
    assert_eq!(
        (&dedup(&site, "p/x")["state"], &dedup(&site, "p/v")["state"]),
        (&json!("off"), &json!("idle"))
    );

    // What it needs is said before, and there is no half of it for want of room.
    let plan = site.json("volume dedup undo p/v --plan");
    assert!(plan["would"][0].as_str().unwrap().starts_with("2064 blocks"), "{plan}");
    assert_eq!((&plan["refused"], &plan["lost_bytes"]), (&Value::Null, &json!(0)));
    site.ok("volume create p/full --size 128M");
    let room = site.json("pool status p")["free_bytes"].as_u64().unwrap() / BLOCK;
    fill(&site, "p/full", 0, 0, room - 1500, 9);
    eventually("the pool knows how full it is", || {
        !site.json("volume dedup undo p/v --plan")["refused"].is_null()
    });
    let refused = site.fails(1, "volume dedup undo p/v --yes");
    assert!(refused.contains("Nothing was changed") && refused.contains("make room for"), "{refused}");
    assert_eq!(dedup(&site, "p/v")["state"], "idle");
    site.ok("volume delete p/full --yes");
    eventually("its room is back", || site.json("volume dedup undo p/v --plan")["refused"].is_null());
    let undone = site.json("volume dedup undo p/v --yes");
    assert_eq!(
        (&undone["state"], &undone["saved_bytes"], &undone["shared_bytes"]),
        (&json!("off"), &json!(0), &json!(2064 * BLOCK)),
        "{undone}"
    );
    // What was given up counts until the next consistency point.
    eventually("nobody shares anything any more", || dedup(&site, "p/v")["pool_saved_bytes"] == 0);
    for (volume, at) in [("p/v", 0), ("p/x", 77)] {
        let mut host = site.nbd(volume);
        for number in 0..2000 {
            let read = host.bytes((at + number) * BLOCK, BLOCK as usize).unwrap();
            assert!(read == block(number, 1), "{volume}: block {number}");
        }
    }
    // A volume that goes takes it along.
    site.ok("volume dedup start p/x --no-wait");
    site.ok("volume delete p/x --yes");
    let left = site.json("volume dedup status");
    assert!(left.as_array().unwrap().iter().all(|d| d["volume"] != "p/x"), "{left}");
    assert_eq!(site.stop(), Some(0));
    check_pool(&root.path().join("p.pool"));
}

#[test]
fn it_goes_on_after_a_restart_and_a_kill() {
    let root = tempfile::tempdir().unwrap();
    let mut site = site(root.path(), "128M");
    fill(&site, "p/v", 0, 0, 5000, 1);
    fill(&site, "p/w", 0, 0, 5000, 1);
    site.ok("volume dedup start p/v");
    // At this rate it takes twenty seconds.
    let begun = site.json("volume dedup start p/w --no-wait --rate 1MB/s");
    assert_eq!((&begun["state"], &begun["limit_bytes_per_second"]), (&json!("running"), &json!(1_000_000)));
    let shared = |site: &Site| dedup(site, "p/w")["shared_bytes"].as_u64().unwrap();
    eventually("something is shared", || shared(&site) > 0);
    let started = dedup(&site, "p/w")["started_at"].clone();
    assert_eq!(site.stop(), Some(0));
    site.restart();
    eventually("it goes on after a restart", || dedup(&site, "p/w")["state"] == "running");
    assert_eq!(dedup(&site, "p/w")["started_at"], started, "the same pass");
    let before = shared(&site);
    eventually("more is shared", || shared(&site) > before);
    site.kill();
    site.restart();
    eventually("it goes on after a kill", || dedup(&site, "p/w")["state"] == "running");
    // Another rate counts at once.
    let done = site.json("volume dedup start p/w --rate unlimited");
    assert_eq!((&done["state"], &done["why"]), (&json!("idle"), &Value::Null), "{done}");
    assert_eq!(done["pool_saved_bytes"], 5000 * BLOCK, "{done}");
    assert!(!done["completed_at"].is_null());
    // The same of an undoing.
    site.json("volume dedup undo p/w --yes --no-wait --rate 1MB/s");
    eventually("something is copied", || shared(&site) > 0);
    site.kill();
    site.restart();
    eventually("it goes on", || dedup(&site, "p/w")["state"] == "running");
    let undone = site.json("volume dedup undo p/w --yes --rate unlimited");
    assert_eq!((&undone["state"], &undone["why"]), (&json!("off"), &Value::Null), "{undone}");
    eventually("nothing is shared", || dedup(&site, "p/w")["pool_saved_bytes"] == 0);
    // A pool that goes takes it along, also while it runs.
    site.json("volume dedup start p/w --no-wait --rate 50kB/s");
    assert_eq!(site.stop(), Some(0));
    check_pool(&root.path().join("p.pool"));
    site.restart();
    site.ok("volume delete p/w --yes");
    site.ok("volume delete p/v --yes");
    site.ok("pool delete p --yes");
    assert_eq!(site.json("volume dedup status"), json!([]));
}

/// Row B11: two copies of 32 MiB in two volumes, both mirrored. After deduplication the updates have nothing to send; the first copy
/// of a third one sends its metadata. The gate is bytes.
#[test]
fn a_mirror_after_deduplication_sends_next_to_nothing() {
    let pair = Pair::start();
    let (a, b) = (&pair.a, &pair.b);
    let wire = |record: &Value| {
        record["wire_bytes_sent"].as_u64().unwrap() + record["wire_bytes_received"].as_u64().unwrap()
    };
    let used =
        |site: &Site, pool: &str| site.json(&format!("pool status {pool}"))["used_bytes"].as_u64().unwrap();
    for volume in ["v", "w"] {
        a.ok(&format!("volume create p/{volume} --size 64M"));
        a.ok(&format!("peer allow b p/{volume}"));
        b.ok(&format!("mirror create a:p/{volume} q/{volume}"));
        fill(a, &format!("p/{volume}"), if volume == "v" { 0 } else { 333 }, 0, 32 * MIB / BLOCK, 1);
    }
    b.ok("mirror initialize q/v");
    b.ok("mirror initialize q/w");
    let before = used(a, "p");
    a.ok("volume dedup start p/v");
    let told = a.json("volume dedup start p/w");
    assert_eq!(told["shared_bytes"], 32 * MIB, "{told}");
    // The bases of the mirrors hold what was given up, until the next updates.
    assert_eq!(told["held_by_snapshots_bytes"], 32 * MIB, "{told}");
    for volume in ["q/v", "q/w"] {
        let record = b.json(&format!("mirror update {volume}"))["record"].clone();
        println!("{volume}: {} bytes changed, {} on the wire", record["changed_bytes"], wire(&record));
        assert_eq!(
            (&record["changed_bytes"], &record["source_read_bytes"]),
            (&json!(0), &json!(0)),
            "{record}"
        );
        assert!(wire(&record) < 64 << 10, "{record}");
    }
    assert_eq!(a.nbd("p/w").read_all(), b.nbd("q/w").read_all());
    assert_eq!(status(b, "q/w")["content_root"], status(b, "q/w")["content_root"]);
    eventually("the bases have gone, and half of the room is back", || used(a, "p") < before - 30 * MIB);
    // A third copy, moved: its first copy names what the far site has.
    a.ok("volume create p/x --size 64M");
    a.ok("peer allow b p/x");
    fill(a, "p/x", 1001, 0, 32 * MIB / BLOCK, 1);
    a.ok("volume dedup start p/x");
    b.ok("mirror create a:p/x q/x");
    let far = used(b, "q");
    let record = b.json("mirror initialize q/x")["record"].clone();
    println!("first copy of another 32 MiB: {} on the wire", wire(&record));
    assert!(wire(&record) < 2 * MIB, "{record}");
    assert!(used(b, "q") < far + 4 * MIB, "it shares there, too");
    assert_eq!(a.nbd("p/x").read_all(), b.nbd("q/x").read_all());
    // A replica is its source's to deduplicate.
    let refused = b.fails(4, "volume dedup start q/v");
    assert!(refused.contains("replica") && refused.contains("deduplicate the source"), "{refused}");
}
