//! Two daemons over two paths, 127.0.0.1 and 127.0.0.2: what travels over which, and what `peer status` shows of it.

use std::time::{Duration, Instant};

use crate::support::{Pair, Site, eventually, seed, status};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;
const VOLUME_BYTES: usize = 4 * MIB;
/// Slow enough that both paths are there long before a transfer is through; one takes about a second.
const RATE: &str = "4MB/s";
/// Beside data: signs of life, handshakes of lanes, questions.
const BESIDE_DATA_MAX: u64 = 128 << 10;
/// What the part of a path is at least, where both carry.
const PART_MIN: u64 = 256 << 10;

/// Overwrites the volume with what cannot be compressed.
fn overwrite(site: &Site, random: &mut StdRng) {
    let mut data = vec![0; VOLUME_BYTES];
    random.fill_bytes(&mut data);
    let mut client = site.nbd("p/v");
    for (number, part) in data.chunks(MIB).enumerate() {
        client.write((number * MIB) as u64, part).unwrap();
    }
    client.flush().unwrap();
}

/// The paths to a peer, in the order in which they are shown.
fn paths(site: &Site, peer: &str) -> Vec<Value> {
    site.json(&format!("peer status {peer}"))["paths"].as_array().unwrap().clone()
}

/// What the first two paths have carried so far.
fn carried(site: &Site, peer: &str, count: &str) -> [u64; 2] {
    let paths = paths(site, peer);
    [0, 1].map(|at| paths.get(at).and_then(|path| path[count].as_u64()).unwrap_or(0))
}

/// Transfers fresh data until it goes over the paths as `expected`. The first time it may not: on a machine that is too busy for
/// seconds a path is taken for silent, and the other carries until it has answered again.
#[track_caller]
fn goes(what: &str, pair: &Pair, random: &mut StdRng, expected: impl Fn([u64; 2]) -> bool) {
    let began = Instant::now();
    loop {
        overwrite(&pair.a, random);
        let before = carried(&pair.b, "a", "received_bytes");
        let is_first = status(&pair.b, "q/v")["state"] == "uninitialized";
        pair.b.ok(&format!("mirror {} q/v", if is_first { "initialize" } else { "update" }));
        let after = carried(&pair.b, "a", "received_bytes");
        assert!(image(&pair.a, "p/v") == image(&pair.b, "q/v"), "{what}: the replica differs");
        let brought = [0, 1].map(|at: usize| after[at].saturating_sub(before[at]));
        println!("{what}: {brought:?}");
        if expected(brought) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: {brought:?}");
    }
}

fn image(site: &Site, volume: &str) -> Vec<u8> {
    site.nbd(volume).read_all()
}

#[test]
fn two_paths_carry_together_or_the_first_alone() {
    let mut random = StdRng::seed_from_u64(seed());
    let pair = Pair::dialled_by_b();
    let (a, b) = (&pair.a, &pair.b);
    let remote = a.published("peer.addr");
    let set =
        b.json(&format!("peer set a --path 127.0.0.1={remote} --path 127.0.0.2={remote} --paths multiplex"));
    assert_eq!(set["link"]["paths"], json!([format!("127.0.0.1={remote}"), format!("127.0.0.2={remote}")]));
    let both_up = || {
        let paths = paths(b, "a");
        let is = |at: usize, local: &str| paths[at]["local"] == local && paths[at]["state"] == "up";
        paths.len() >= 2 && is(0, "127.0.0.1") && is(1, "127.0.0.2")
    };
    eventually("both paths are up", both_up);
    assert_eq!(b.json("peer status a")["protocol"], 2, "without a word in the configuration");

    a.ok(&format!("volume create p/v --size {VOLUME_BYTES}"));
    a.ok("peer allow b p/v");
    b.ok(&format!("mirror create a:p/v q/v --throttle {RATE}"));
    goes("both paths carry", &pair, &mut random, |[first, second]| first >= PART_MIN && second >= PART_MIN);
    let sent = carried(a, "b", "sent_bytes");
    assert!(sent.iter().all(|sent| *sent >= PART_MIN), "at the other side, too: {sent:?}");
    eventually("both paths are up still", both_up);

    // One of the mirror's own that cannot work is told at the mirror.
    let why = || b.json("mirror status q/v")[0]["why"].as_str().unwrap_or_default().to_owned();
    b.ok(&format!("mirror set q/v --path 192.0.2.7={remote}"));
    assert!(why().contains("192.0.2.7 is no address of this machine"), "{}", why());
    b.ok("mirror set q/v --path off");
    assert!(!why().contains("192.0.2.7"), "{}", why());

    b.ok("peer set a --paths failover");
    goes("the first path carries alone", &pair, &mut random, |[first, second]| {
        first > VOLUME_BYTES as u64 && second < BESIDE_DATA_MAX
    });
    eventually("the one that stands by is up", both_up);
}
