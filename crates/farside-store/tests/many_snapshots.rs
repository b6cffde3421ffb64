//! What one more snapshot costs beside ten thousand: counts of versions that are looked at, and processor time of the long test.

mod sparse;

use std::sync::Arc;

use farside_platform::SimulatedDisk;
use farside_store::Pool;
use sparse::{BLOCK, content, new_snapshot, options};

const MANY: u32 = 10_000;

fn pool() -> Arc<Pool> {
    let disk = SimulatedDisk::new("many", 2 << 30).without_history();
    let pool = Pool::create(Arc::new(disk), options(1)).expect("a pool");
    pool.create_volume("v", 1 << 30).expect("a volume");
    pool.create_volume("w", 1 << 30).expect("a volume");
    pool
}

fn take(pool: &Pool, volume: &str, number: u32) {
    let name = format!("s{number}");
    let taken = pool.create_snapshots(&[(volume.into(), new_snapshot(&name, number))]).expect("a snapshot");
    assert!(taken[0].on_main_line && taken[0].name == name);
}

#[test]
fn one_more_snapshot_costs_the_same_beside_ten_thousand() {
    let pool = pool();
    let head = pool.open_volume("v").expect("it opens");
    let mut most = 0;
    for number in 0..MANY {
        head.write(u64::from(number % 512) * BLOCK, &content(number.into())).expect("a write");
        let before = pool.versions_looked_at();
        take(&pool, "v", number);
        most = most.max(pool.versions_looked_at() - before);
    }
    assert!(most <= 16, "{most} versions were looked at for one snapshot");
    // Neither do those of another volume.
    let before = pool.versions_looked_at();
    take(&pool, "w", 1);
    assert!(pool.versions_looked_at() - before <= 16);
    let before = pool.versions_looked_at();
    assert_eq!(pool.snapshots("w").expect("listed").len(), 1);
    assert!(pool.versions_looked_at() - before <= 16);
    // What is taken is found all the same.
    for (name, number) in [("s17", MANY), ("other", 4711)] {
        assert!(pool.create_snapshots(&[("v".into(), new_snapshot(name, number))]).is_err(), "{name}");
    }
}

/// What this thread has had of a processor.
fn processor_seconds() -> f64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    spent.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("a number") / 1e9
}

#[test]
#[ignore = "measures seconds"]
fn seconds_of_ten_thousand_snapshots() {
    let pool = pool();
    for from in (0..MANY).step_by(1000) {
        let began = processor_seconds();
        (from..from + 1000).for_each(|number| take(&pool, "v", number));
        println!("beside {from:5}: {:7.1} µs each", (processor_seconds() - began) * 1e3);
    }
}
