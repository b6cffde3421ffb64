//! A pool with many volumes of the largest size and ten thousand snapshots, on a file: what it holds in memory, and how long it takes
//! to open after a crash with a journal as full as it gets. Figures of the long test; nothing here depends on the machine but those.

mod sparse;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use farside_platform::{DeviceError, FileDevice, OsRandomness, SystemClock};
use farside_store::{Pool, PoolOptions};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, new_snapshot};

const VOLUMES: u32 = 256;
const SNAPSHOTS: u32 = 10_000;
/// 64 TiB: the largest.
const SIZE: u64 = 64 << 40;
/// Blocks of each volume that hosts write to, all over it.
const WRITTEN: u64 = 500;

fn options() -> PoolOptions {
    PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness))
}

/// What this process holds in memory, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// What this thread has had of a processor: what an opening takes on a machine that has nothing else to do, but for the device.
fn processor_seconds() -> f64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    spent.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("a number") / 1e9
}

/// The thread of a pool that was dropped lets it go once the consistency point under way is over: minutes on a busy machine.
fn wait_until_free(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(600);
    while let Err(DeviceError::Locked { .. }) = FileDevice::open(path) {
        assert!(Instant::now() < deadline, "somebody has it open");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn open(path: &Path) -> Arc<Pool> {
    Pool::open(Arc::new(FileDevice::open(path).expect("it opens")), options()).expect("a pool")
}

#[test]
#[ignore = "two minutes"]
fn many_volumes_of_64_tib_and_ten_thousand_snapshots() {
    println!("seed 1");
    let mut rng = SmallRng::seed_from_u64(1);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let empty = resident();
    let pool = Pool::create(Arc::new(FileDevice::create(&path, 32 << 30).expect("a file")), options())
        .expect("a pool");
    let names: Vec<String> = (0..VOLUMES).map(|number| format!("v{number}")).collect();
    let mut written = Vec::new();
    for name in &names {
        pool.create_volume(name, SIZE).expect("a volume");
        let head = pool.open_volume(name).expect("it opens");
        for stamp in 0..WRITTEN {
            let block = rng.random_range(0..SIZE / BLOCK);
            head.write(block * BLOCK, &content(stamp)).expect("a write");
            written.push((name.as_str(), block, stamp));
        }
        pool.flush().expect("flushed");
    }
    let head = pool.open_volume("v0").expect("it opens");
    for number in 0..SNAPSHOTS {
        let block = rng.random_range(0..SIZE / BLOCK);
        head.write(block * BLOCK, &content(number.into())).expect("a write");
        pool.create_snapshots(&[("v0".into(), new_snapshot(&format!("s{number}"), number))])
            .expect("a snapshot");
    }
    println!(
        "{VOLUMES} volumes of 64 TiB, {SNAPSHOTS} snapshots: {} MiB more in memory",
        (resident() - empty) >> 20
    );
    pool.consistency_point().expect("a point");
    // As much journal as there can be: a point comes when it is half full.
    let mut most = 0;
    for round in 0..400_000_u64 {
        let name = &names[rng.random_range(0..names.len())];
        let block = rng.random_range(0..SIZE / BLOCK);
        pool.open_volume(name).expect("it opens").write(block * BLOCK, &content(round)).expect("a write");
        if round % 64 == 0 {
            pool.flush().expect("flushed");
            let used = pool.status().journal_used_bytes;
            if used < most && most > 0 {
                break;
            }
            most = used;
        }
    }
    println!("journal {} MiB, {} MiB more in memory", most >> 20, (resident() - empty) >> 20);
    let until = most;
    let mut used = pool.status().journal_used_bytes;
    while used < until - until / 16 {
        let name = &names[rng.random_range(0..names.len())];
        for _ in 0..64 {
            let block = rng.random_range(0..SIZE / BLOCK);
            pool.open_volume(name).expect("it opens").write(block * BLOCK, &content(used)).expect("a write");
        }
        pool.flush().expect("flushed");
        used = pool.status().journal_used_bytes;
    }
    // A crash: dropped without being closed.
    drop((head, pool));
    wait_until_free(&path);
    let before = resident();
    let (began, spent) = (Instant::now(), processor_seconds());
    let pool = open(&path);
    println!(
        "opened after a crash with {} MiB of journal in {:.2} s, {:.2} s of a processor, {} records replayed; {} MiB in memory before, \
         {} after",
        used >> 20,
        began.elapsed().as_secs_f64(),
        processor_seconds() - spent,
        pool.counters.replayed_records.load(Ordering::Relaxed),
        before >> 20,
        resident() >> 20
    );
    for (name, block, stamp) in written.iter().step_by(97) {
        let mut found = vec![0; BLOCK as usize];
        pool.open_volume(name).expect("it opens").read(block * BLOCK, &mut found).expect("read");
        assert!(found == content(*stamp), "{name} block {block}");
    }
    assert_eq!(pool.snapshots("v0").expect("listed").len(), SNAPSHOTS as usize);
    let began = Instant::now();
    pool.close().expect("closed");
    drop(pool);
    wait_until_free(&path);
    println!("closed in {:.2} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let pool = open(&path);
    println!(
        "opened in {:.2} s after it was closed, {} MiB in memory",
        began.elapsed().as_secs_f64(),
        resident() >> 20
    );
    drop(pool);
}
