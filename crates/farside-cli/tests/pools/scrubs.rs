//! A pool is scrubbed while hosts use it: what is damaged behind its back is named, what is not is never called so, and neither a
//! restart nor a kill ends it.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Site, eventually};
use farside_format::{Node, TreeKind};
use serde_json::{Value, json};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

fn block(number: u64, seed: u64) -> Vec<u8> {
    let mut word = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed;
    let mut bytes = Vec::with_capacity(BLOCK);
    while bytes.len() < BLOCK {
        word = word.rotate_left(7).wrapping_mul(0x2545_F491_4F6C_DD1D) | 1;
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn fill(site: &Site, export: &str, first: u64, count: u64, seed: u64) {
    let mut host = site.nbd(export);
    for number in first..first + count {
        host.write(number * BLOCK as u64, &block(number, seed)).unwrap();
    }
    host.flush().unwrap();
}

fn flip(pool: &Path, is_it: impl Fn(&[u8], u64) -> bool) -> u64 {
    let image = std::fs::read(pool).unwrap();
    let places = (0_u64..).zip(image.chunks_exact(BLOCK));
    let found: Vec<u64> =
        places.filter(|(place, bytes)| is_it(bytes, *place)).map(|(place, _)| place).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    let file = std::fs::OpenOptions::new().write(true).open(pool).unwrap();
    let at = found[0] as usize * BLOCK;
    file.write_all_at(&[image[at + 700] ^ 0x10], at as u64 + 700).unwrap();
    file.sync_all().unwrap();
    found[0]
}

fn site(root: &Path, size: &str) -> Site {
    let site = Site::start(root, "a");
    let pool = root.join("p.pool");
    site.ok(&format!("pool create p --path {} --size {size}", pool.display()));
    site.ok("volume create p/v --size 64M");
    site
}

#[test]
fn damage_is_named_by_who_shares_it_and_kept_and_gone_once_it_is_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let mut site = site(root.path(), "128M");
    let pool = root.path().join("p.pool");
    assert_eq!(site.json("pool scrub p --status"), Value::Null);
    assert!(site.ok("pool scrub p --status").contains("has not been scrubbed"));
    fill(&site, "p/v", 0, 1000, 1);
    site.ok("snapshot create p/v@old");
    fill(&site, "p/v", 200, 1, 2);
    let sound = site.json("pool scrub p --rate unlimited");
    assert_eq!((&sound["state"], &sound["damaged_blocks"]), (&json!("done"), &json!(0)), "{sound}");
    assert!(sound["read_bytes"].as_u64().unwrap() >= 1000 * BLOCK as u64, "{sound}");
    assert_eq!(site.stop(), Some(0));

    flip(&pool, |bytes, _| bytes == block(100, 1));
    flip(&pool, |bytes, _| bytes == block(200, 1));
    flip(&pool, |bytes, _| bytes == block(200, 2));
    // The first copy of the newest inner node of the volume: the other one has all of it.
    let nodes = |bytes: &[u8], place: u64| {
        let node = Node::decode(bytes).ok().map(|(node, _)| node);
        node.filter(|n| n.kind == TreeKind::Volume && n.level == 2 && n.place.0 == place)
    };
    let image = std::fs::read(&pool).unwrap();
    let places = (0_u64..).zip(image.chunks_exact(BLOCK));
    let newest = places.filter_map(|(place, bytes)| nodes(bytes, place)).max_by_key(|n| n.birth).unwrap();
    let inner = flip(&pool, |_, place| place == newest.place.0);
    site.restart();

    let said = site.fails(1, "pool scrub p");
    assert!(said.contains("pool p has 3 damaged blocks"), "{said}");
    let found = site.json("pool scrub p --status");
    let mut damage: Vec<(u64, bool, Value)> = found["damage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| {
            assert_eq!(
                (&d["kind"], &d["volume"], &d["length_bytes"]),
                (&json!("data"), &json!("v"), &json!(4096))
            );
            (d["offset_bytes"].as_u64().unwrap(), d["in_volume"].as_bool().unwrap(), d["snapshots"].clone())
        })
        .collect();
    damage.sort_by_key(|d| (d.0, d.1));
    let at = |number: u64| number * BLOCK as u64;
    assert_eq!(
        damage,
        [(at(100), true, json!(["old"])), (at(200), false, json!(["old"])), (at(200), true, json!([]))],
        "{found}"
    );
    assert_eq!(found["rewritten"], json!([format!("the map of a volume (pool block {inner})")]));
    let told = site.ok("pool status p");
    assert!(
        told.contains("3 damaged blocks")
            && told.contains("p/v  data, 4.0 KiB from byte 409600, in the volume, @old"),
        "{told}"
    );
    assert!(site.http("/metrics").contains("farside_pool_scrub_damaged_blocks{pool=\"p\"} 3"));
    site.has_logged("the scrub has found damage");

    // Kept over a restart; healed by whole writes, but for what the snapshot keeps.
    assert_eq!(site.stop(), Some(0));
    site.restart();
    assert_eq!(site.json("pool scrub p --status")["damaged_blocks"], 3);
    fill(&site, "p/v", 100, 1, 3);
    fill(&site, "p/v", 200, 1, 3);
    site.fails(1, "pool scrub p");
    let found = site.json("pool scrub p --status");
    assert_eq!((&found["damaged_blocks"], &found["rewritten_copies"]), (&json!(2), &json!(0)), "{found}");
    site.ok("snapshot delete p/v@old --yes");
    assert_eq!(site.json("pool scrub p")["damaged_blocks"], 0);
    assert!(site.ok("pool status p").contains("nothing damaged"));
}

#[test]
fn it_is_stopped_goes_on_where_it_was_and_survives_a_restart_and_a_kill() {
    let root = tempfile::tempdir().unwrap();
    let mut site = site(root.path(), "128M");
    fill(&site, "p/v", 0, 2000, 1);
    // At this rate it would take minutes.
    let begun = site.json("pool scrub p --no-wait --rate 50kB/s");
    assert_eq!((&begun["state"], &begun["limit_bytes_per_second"]), (&json!("running"), &json!(50_000)));
    assert!(begun["total_bytes"].as_u64().unwrap() >= 2000 * BLOCK as u64, "{begun}");
    assert!(site.fails(4, "pool scrub p --anew --no-wait").contains("is running"));
    let stopped = site.json("pool scrub p --stop");
    assert_eq!(stopped["state"], "stopped");
    site.fails(4, "pool scrub p --stop");
    assert_eq!(site.stop(), Some(0));
    site.restart();
    assert_eq!(site.json("pool scrub p --status")["state"], "stopped", "what was stopped stays so");

    let again = site.json("pool scrub p --no-wait");
    assert_eq!(again["started_at"], begun["started_at"], "it goes on");
    assert_eq!(again["limit_bytes_per_second"], 50_000);
    assert_eq!(site.stop(), Some(0));
    site.restart();
    eventually("it goes on after a restart", || site.json("pool scrub p --status")["state"] == "running");
    site.kill();
    site.restart();
    eventually("it goes on after a kill", || site.json("pool scrub p --status")["state"] == "running");
    // Another rate counts at once.
    let done = site.json("pool scrub p --rate unlimited");
    assert_eq!((&done["state"], &done["started_at"]), (&json!("done"), &begun["started_at"]));
    assert_eq!(done["damaged_blocks"], 0);
    assert!(!done["completed_at"].is_null());
    // The next one is another.
    let next = site.json("pool scrub p");
    assert_ne!(next["started_at"], begun["started_at"]);
    let all = site.json("pool scrub --status");
    assert_eq!(all.as_array().unwrap().len(), 1);
    site.fails(3, "pool scrub nobody");
    // A pool that goes takes it along, also while it runs.
    site.json("pool scrub p --no-wait --rate 50kB/s");
    site.ok("volume delete p/v --yes");
    site.ok("pool delete p --yes");
    site.fails(3, "pool scrub p --status");
}

#[test]
fn while_hosts_write_and_snapshots_come_and_go_nothing_is_called_damaged() {
    let root = tempfile::tempdir().unwrap();
    let site = site(root.path(), "256M");
    fill(&site, "p/v", 0, 4000, 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut host = site.nbd("p/v");
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let at = number * 7919 % 4000;
                host.write(at * BLOCK as u64, &block(at, number)).unwrap();
                if number % 64 == 0 {
                    host.flush().unwrap();
                }
            }
        });
        scope.spawn(|| {
            for number in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                site.ok(&format!("snapshot create p/v@s{number}"));
                site.ok(&format!("snapshot delete p/v@s{number} --yes"));
            }
        });
        let ended = std::panic::catch_unwind(|| {
            for _ in 0..5 {
                let found = site.json("pool scrub p --rate unlimited");
                assert_eq!(
                    (&found["state"], &found["damaged_blocks"]),
                    (&json!("done"), &json!(0)),
                    "{found}"
                );
                assert_eq!(
                    (&found["damage"], &found["rewritten_copies"]),
                    (&json!([]), &json!(0)),
                    "{found}"
                );
            }
        });
        stop.store(true, Ordering::Relaxed);
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert!(site.json("pool status p")["used_bytes"].as_u64().unwrap() > MIB);
}
