//! A line that is down while hosts overwrite everything: the source's pool does not fill, and one difference brings the replica up.

use std::time::Duration;

use crate::support::{Pair, Site, check_pool, eventually, seed};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// With a base of this size beside it the volume needs nearly all of the pool.
const VOLUME: u64 = 112 * MIB;
/// What differs in the end.
const DIFFERENT: u64 = 8 * MIB;

/// Hosts write these bytes of the volume, 32 MB a second: what looks after the pool looks every two.
fn write(site: &Site, from: u64, to: u64, seed: u64) {
    let mut host = site.nbd("p/v");
    let mut piece = vec![0; 4 * MIB as usize];
    for at in (from..to).step_by(piece.len()) {
        StdRng::seed_from_u64(seed ^ at).fill_bytes(&mut piece);
        host.write(at, &piece).expect("the pool does not fill");
        std::thread::sleep(Duration::from_millis(125));
    }
    host.flush().unwrap();
}

#[test]
fn a_long_outage_fills_no_pool_and_ends_with_one_difference() {
    let seed = seed();
    let (mut pair, relay) = Pair::through_relay();
    pair.a.stop();
    std::fs::write(pair.a.dir.join("farside.toml"), "[budgets]\nreserve_percent = 20\n").unwrap();
    pair.a.restart();
    let (a, b) = (&pair.a, &pair.b);
    let began = std::time::Instant::now();
    eventually("they meet", || b.json("peer status a")["state"] == "connected");
    println!("after {:?}; {}", began.elapsed(), b.log());
    pair.mirror(VOLUME);
    write(a, 0, VOLUME, seed);
    b.ok("mirror initialize q/v");
    let first = b.json("mirror history q/v")[0]["wire_bytes_received"].as_u64().unwrap();
    assert!(first > VOLUME, "it does not compress: {first}");

    relay.cut();
    // Everything is overwritten, and most of it is then what it was.
    write(a, 0, VOLUME, seed + 1);
    // What looks after the pool looks every two seconds, and a busy machine is not punctual.
    eventually("the base goes, as it has to", || !a.json("mirror destinations p/v")[0]["released"].is_null());
    write(a, 0, DIFFERENT, seed + 2);
    write(a, DIFFERENT, VOLUME, seed);
    let pool = a.json("pool status p");
    let room = |key: &str| pool[key].as_u64().unwrap();
    assert!(room("free_bytes") > room("size_bytes") / 5, "{pool}");
    // Hosts of the replica have what they had.
    assert_eq!(b.json("mirror status q/v")[0]["state"], "mirrored");

    relay.heal();
    eventually("they meet again", || b.json("peer status a")["state"] == "connected");
    b.ok("mirror update q/v");
    let newest = b.json("mirror history q/v")[0].clone();
    assert_eq!((&newest["result"], &newest["base"]), (&"ok".into(), &Value::Null), "{newest}");
    let travelled = newest["wire_bytes_received"].as_u64().unwrap();
    println!(
        "{VOLUME} bytes overwritten twice, {DIFFERENT} different in the end: {travelled} bytes came over the line"
    );
    assert!(travelled < DIFFERENT + MIB, "{newest}");
    assert!(a.nbd("p/v").read_all() == b.nbd("q/v").read_all());
    // And from there as ever.
    write(a, 0, 4 * MIB, seed + 3);
    b.ok("mirror update q/v");
    assert!(!b.json("mirror history q/v")[0]["base"].is_null());
    pair.a.stop();
    pair.b.stop();
    check_pool(&pair.root.path().join("p.pool"));
    check_pool(&pair.root.path().join("q.pool"));
}
