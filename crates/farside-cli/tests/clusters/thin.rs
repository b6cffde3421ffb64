//! A large thin image of which little changed: what changed is found without reading the rest.

use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use crate::cluster::cluster;
use crate::keeper::{Keeper, Kind, MIB, pair};
use crate::support::{Site, seed, status};

const SIZE: u64 = 64 << 30;
/// A percent of it, in pieces that are spread evenly.
const PIECES: u64 = 160;

/// The last transfer that ended.
fn last(site: &Site) -> serde_json::Value {
    site.json("mirror history q/v")[0].clone()
}

#[test]
#[ignore = "half a minute, and 2 GiB of memory"]
fn a_percent_of_a_large_image_is_found_without_reading_the_rest() {
    let Some(conf) = cluster() else { return };
    let mut random = StdRng::seed_from_u64(seed());
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (Site::start(root.path(), "a"), Site::start(root.path(), "b"));
    let p = Keeper::make(&a, Kind::Rbd, "p", &conf);
    b.ok(&format!("pool create q --path {} --size 4G", root.path().join("q.pool").display()));
    pair(root.path(), &a, &b);
    a.ok(&format!("volume create p/v --size {SIZE}"));
    p.write(&a, "v", SIZE, &[(0, &[1; 4096])]);
    a.ok("peer allow b p/v");
    b.ok("mirror create a:p/v q/v");
    let began = Instant::now();
    b.ok("mirror initialize q/v");
    println!("first copy of 64 GiB with one block: {:.2} s", began.elapsed().as_secs_f64());
    let mut piece = vec![0; (4 * MIB) as usize];
    for at in 0..PIECES {
        random.fill_bytes(&mut piece);
        p.write(&a, "v", SIZE, &[(at * (SIZE / PIECES) / MIB * MIB, &piece)]);
    }
    let began = Instant::now();
    b.ok("mirror update q/v --no-wait");
    while status(&b, "q/v")["transfer"]["done_bytes"].as_u64().unwrap_or(0) == 0 {
        assert!(began.elapsed().as_secs() < 120, "nothing has come");
    }
    let first = began.elapsed();
    b.ok("mirror wait q/v");
    let all = began.elapsed();
    let began = Instant::now();
    p.read_whole("v");
    println!(
        "a percent changed, {} MiB: the first of it is there after {:.2} s, all after {:.1} s; to read the image takes {:.1} s",
        PIECES * 4,
        first.as_secs_f64(),
        all.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    // What was read of it is what changed, and not the image.
    let read = last(&b)["source_read_bytes"].as_u64().unwrap();
    assert!(read <= 2 * PIECES * 4 * MIB, "{read} bytes were read");
}
