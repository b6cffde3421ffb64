//! A selection of what goes wrong between two real daemons: a full pool, a source that is resized, a base that goes.
//! What each leaves behind is stated here; the whole table, with every step of a transfer, is in farside-mirror's tests.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::model::{BLOCK, Model};
use crate::support::{POOL_BYTES, Pair, Site, eventually, seed, status, text};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::json;

const MIB: u64 = 1 << 20;
const BLOCKS_PER_MIB: u64 = MIB / BLOCK;

#[track_caller]
fn same(pair: &Pair) {
    assert!(pair.a.nbd("p/v").read_all() == pair.b.nbd("q/v").read_all(), "q/v is not what p/v is");
}

/// A volume of its own at this site, and a host that writes to it until it is asked to stop; no write may fail.
fn with_a_host<T>(site: &Site, volume: &str, seed: u64, meanwhile: impl FnOnce() -> T) -> T {
    site.ok(&format!("volume create {volume} --size {MIB}"));
    let mut host = site.nbd(volume);
    let (ready, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (is_ready, stopped) = (Arc::clone(&ready), Arc::clone(&stop));
    let writer = std::thread::spawn(move || {
        let mut model = Model::new(BLOCKS_PER_MIB);
        let written = model.write_on(&mut host, &mut StdRng::seed_from_u64(seed), &is_ready, &stopped);
        written.expect("a host of the pool was refused");
        model.check(&host.read_all());
    });
    eventually("the host writes", || ready.load(Ordering::SeqCst));
    let result = meanwhile();
    stop.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    result
}

#[test]
fn a_destination_that_is_full_serves_its_hosts_and_goes_on_when_there_is_room() {
    let seed = seed();
    let pair = Pair::with_pools(POOL_BYTES, 96 * MIB);
    pair.mirror(64 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    let mut model = Model::new(64 * BLOCKS_PER_MIB);
    model.fill(&mut a.nbd("p/v"), 0, 4 * BLOCKS_PER_MIB).unwrap();
    b.ok("mirror initialize q/v");
    let before = b.nbd("q/v").read_all();
    // Something else takes the room that the next update will want.
    b.ok("volume create q/archive --size 32M");
    Model::new(32 * BLOCKS_PER_MIB).fill(&mut b.nbd("q/archive"), 0, 32 * BLOCKS_PER_MIB).unwrap();
    model.fill(&mut a.nbd("p/v"), 0, 60 * BLOCKS_PER_MIB).unwrap();
    let said = with_a_host(b, "q/host", seed, || b.fails(1, "mirror update q/v"));
    assert!(said.contains("room for"), "{said}");
    let record = &b.json("mirror history q/v")[0];
    assert_eq!(record["result"], "failed");
    assert!(record["reason"].as_str().unwrap().contains("room for"), "{record}");
    assert!(b.nbd("q/v").read_all() == before, "the replica is as it was");
    // Whoever is asked for help finds the reason too.
    let bundle = pair.root.path().join("bundle.tar.gz");
    b.ok(&format!("support-bundle --output {}", bundle.display()));
    for file in ["farside-support/history.json", "farside-support/log.json"] {
        let unpacked = Command::new("tar").arg("-xzOf").args([&bundle, Path::new(file)]).output().unwrap();
        assert!(text(&unpacked.stdout).contains("room for"), "{file}: {}", text(&unpacked.stdout));
    }
    b.ok("volume delete q/archive --yes");
    b.ok("mirror update q/v");
    same(&pair);
}

#[test]
fn a_source_may_be_resized_between_updates_and_in_the_middle_of_one() {
    let (pair, relay) = Pair::through_relay();
    pair.mirror(8 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    let mut model = Model::new(16 * BLOCKS_PER_MIB);
    model.fill(&mut a.nbd("p/v"), 0, 8 * BLOCKS_PER_MIB).unwrap();
    b.ok("mirror initialize q/v");
    let resize = |size: u64| a.ok(&format!("volume resize p/v --size {size} --yes"));

    resize(16 * MIB);
    model.fill(&mut a.nbd("p/v"), 7 * BLOCKS_PER_MIB, 8 * BLOCKS_PER_MIB).unwrap();
    b.ok("mirror update q/v");
    same(&pair);
    // Not at a boundary of anything but a block.
    resize(5 * MIB + BLOCK);
    b.ok("mirror update q/v");
    same(&pair);

    for size in [12 * MIB, 3 * MIB] {
        let blocks = a.nbd("p/v").size_bytes / BLOCK;
        model.fill(&mut a.nbd("p/v"), 0, blocks).unwrap();
        let before = b.nbd("q/v").read_all();
        relay.limit(Some(MIB));
        let passed = relay.passed();
        b.ok("mirror update q/v --no-wait");
        assert!(relay.wait_for(passed + MIB, Duration::from_secs(20)), "the update does not run");
        relay.cut();
        eventually("the loss is seen", || status(b, "q/v")["state"] == "queued");
        resize(size);
        assert!(b.nbd("q/v").read_all() == before, "the replica is as it was");
        relay.limit(None);
        relay.heal();
        b.ok("peer set a --address off");
        b.ok(&format!("peer set a --address {}", relay.address));
        b.ok("mirror update q/v");
        same(&pair);
    }
}

#[test]
fn what_a_cut_transfer_has_brought_shows_in_the_pool_and_can_be_dropped() {
    let (pair, relay) = Pair::through_relay();
    pair.mirror(16 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    let mut model = Model::new(16 * BLOCKS_PER_MIB);
    model.fill(&mut a.nbd("p/v"), 0, BLOCKS_PER_MIB).unwrap();
    b.ok("mirror initialize q/v");
    let before = b.nbd("q/v").read_all();
    let staged = || b.json("pool status q");
    assert_eq!((&staged()["staged"], &staged()["staged_bytes"]), (&json!([]), &json!(0)));

    model.fill(&mut a.nbd("p/v"), 0, 16 * BLOCKS_PER_MIB).unwrap();
    relay.limit(Some(MIB));
    b.ok("mirror update q/v --no-wait");
    // What is durable every two seconds is what a cut leaves.
    eventually("something is staged", || {
        staged()["staged_bytes"].as_u64().is_some_and(|bytes| bytes >= 2 * MIB)
    });
    assert_eq!(staged()["staged"][0]["transferring"], true);
    let said = b.fails(4, "pool drop-staged q v --yes");
    assert!(said.contains("q/v runs now"), "{said}");

    relay.cut();
    eventually("the loss is seen", || status(b, "q/v")["state"] == "queued");
    let left = staged()["staged_bytes"].as_u64().unwrap();
    assert!(left >= MIB, "{left}");
    assert!(b.ok("pool status q").contains("farside pool drop-staged q v"));
    let plan = b.json("pool drop-staged q v --plan");
    assert_eq!((&plan["lost_bytes"], &plan["refused"]), (&json!(left), &json!(null)));
    assert_eq!(staged()["staged_bytes"], json!(left), "a plan changes nothing");
    let dropped = b.json("pool drop-staged q --yes");
    assert_eq!(dropped, json!([{"volume": "v", "bytes": left, "transferring": false}]));
    assert_eq!(staged()["staged_bytes"], json!(0));
    assert!(b.nbd("q/v").read_all() == before, "the replica is as it was");
    b.fails(3, "pool drop-staged q w --yes");

    relay.limit(None);
    relay.heal();
    b.ok("peer set a --address off");
    b.ok(&format!("peer set a --address {}", relay.address));
    b.ok("mirror update q/v");
    same(&pair);
}

#[test]
fn a_base_is_not_deleted_and_one_that_was_released_is_replaced_by_the_newest_that_both_hold() {
    let pair = Pair::start();
    pair.mirror(8 * MIB);
    let (a, b) = (&pair.a, &pair.b);
    let mut model = Model::new(8 * BLOCKS_PER_MIB);
    model.fill(&mut a.nbd("p/v"), 0, 8 * BLOCKS_PER_MIB).unwrap();
    a.ok("snapshot create p/v@monday");
    b.ok("mirror initialize q/v");
    model.fill(&mut a.nbd("p/v"), 0, 8).unwrap();
    b.ok("mirror update q/v");
    let base = a.json("mirror destinations p/v")[0]["base_snapshot"].as_str().unwrap().to_owned();
    let said = a.fails(4, &format!("snapshot delete p/v@{base} --yes"));
    assert!(said.contains(&base), "{said}");

    // Released by the source's administrator: monday is what both still hold.
    a.ok("mirror release p/v b --yes");
    let listed = a.json("snapshot list p/v");
    assert!(listed.as_array().unwrap().iter().all(|s| s["name"] == "monday"), "{listed}");
    model.fill(&mut a.nbd("p/v"), 100, 8).unwrap();
    b.ok("mirror update q/v");
    same(&pair);
    let record = &b.json("mirror history q/v")[0];
    assert_eq!((&record["base"], &record["result"]), (&json!("monday"), &json!("ok")));
    assert!(record["changed_bytes"].as_u64().unwrap() <= 16 * BLOCK, "{record}");
}
