//! What the update after a trim costs at both sites, and what the opening after a kill costs: counts of nodes read, journal
//! bytes, and steps replayed. The long test measures seconds, on a file, over a volume of a terabyte.

mod sparse;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use farside_platform::{DeviceError, FileDevice, OsRandomness, SimulatedDisk, SystemClock};
use farside_store::{
    DifferenceKind, DifferingBlocks, JOURNAL_STEPS_MAX, Pool, PoolOptions, StagedVersion,
    UNPROVEN_RECORDS_MAX, Version, VersionHandle,
};
use sparse::{BLOCK, content, new_snapshot, options, staged_for};
use uuid::Uuid;

/// 1 TiB.
const VOLUME_BLOCKS: u64 = 1 << 28;

/// `count` blocks that lie anywhere in the volume, ascending.
fn scattered(count: u64) -> Vec<u64> {
    let anywhere = |n: u64| (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 36;
    let mut blocks: Vec<u64> = (0..count).map(anywhere).collect();
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

fn uuid_of(pool: &Pool, volume: &str, name: &str) -> Uuid {
    pool.snapshot_named(volume, name).expect("it is there").uuid
}

/// Two pools whose volumes hold the same scattered blocks, each with the snapshot "base" of them.
struct Sites {
    source: Arc<Pool>,
    destination: Arc<Pool>,
}

impl Sites {
    fn fill(source: Arc<Pool>, destination: Arc<Pool>, blocks: &[u64]) -> Sites {
        source.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
        destination.create_volume("r", VOLUME_BLOCKS * BLOCK).expect("a volume");
        let head = source.open_volume("v").expect("it opens");
        let staged = destination.stage("r", None, VOLUME_BLOCKS * BLOCK, staged_for(1)).expect("staged");
        for &block in blocks {
            head.write(block * BLOCK, &content(block)).expect("a write");
            staged.write(block * BLOCK, &content(block)).expect("a write");
        }
        source.create_snapshots(&[("v".into(), new_snapshot("base", 1))]).expect("a snapshot");
        staged.commit(&new_snapshot("base", 1)).expect("published");
        Sites { source, destination }
    }

    fn head(&self) -> VersionHandle {
        self.source.open_volume("v").expect("it opens")
    }

    /// The source's snapshot `name` of now, and how it differs from "base".
    fn difference(&self, name: &str) -> Vec<DifferingBlocks> {
        self.source.create_snapshots(&[("v".into(), new_snapshot(name, 2))]).expect("a snapshot");
        let [base, now] = ["base", name].map(|name| Version::Snapshot(uuid_of(&self.source, "v", name)));
        let walk = self.source.difference("v", Some(base), now).expect("a walk begins");
        walk.map(|range| range.expect("a range")).collect()
    }

    /// Stages holes as a transfer does, and publishes them once the content roots agree.
    fn deallocate(&self, ranges: &[DifferingBlocks], name: &str) {
        let staged = self.stage();
        for range in ranges {
            assert_eq!(range.kind, DifferenceKind::Hole);
            staged.discard(range.block * BLOCK, range.count * BLOCK).expect("holes");
        }
        staged.checkpoint().expect("durable");
        let root = self.source.open_snapshot("v", name).expect("it opens").content_root().expect("a root");
        assert_eq!(staged.content_root().expect("a root"), root);
        staged.commit(&new_snapshot(name, 2)).expect("published");
    }

    fn stage(&self) -> StagedVersion {
        let base = uuid_of(&self.destination, "r", "base");
        self.destination.stage("r", Some(base), VOLUME_BLOCKS * BLOCK, staged_for(2)).expect("staged")
    }
}

fn reopened(disk: &SimulatedDisk) -> Arc<Pool> {
    Pool::open(Arc::new(disk.image().without_history()), options(9)).expect("it opens")
}

#[test]
fn an_update_after_a_trim_costs_what_changed_and_not_what_was_there() {
    let disks = ["s", "d"].map(|name| SimulatedDisk::new(name, 512 << 20).without_history());
    let [source, destination] =
        disks.each_ref().map(|disk| Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool"));
    let blocks = scattered(10_000);
    let sites = Sites::fill(source, destination, &blocks);
    sites.source.consistency_point().expect("a point");
    sites.destination.consistency_point().expect("a point");
    drop(sites);
    // Opened anew, so that no node is cached.
    let disks_now = disks.each_ref().map(|disk| disk.image().without_history());
    let [source, destination] =
        disks_now.each_ref().map(|disk| Pool::open(Arc::new(disk.clone()), options(9)).expect("it opens"));
    let sites = Sites { source, destination };
    sites.head().trim(0, VOLUME_BLOCKS * BLOCK).expect("a trim");
    let read = || (sites.source.nodes_read(), sites.destination.nodes_read());
    let used = || sites.destination.status().journal_used_bytes;
    let (before, bytes) = (read(), used());
    let ranges = sites.difference("now");
    assert_eq!(ranges.len(), 1, "one trim is one range");
    assert_eq!(ranges[0].changed, blocks.len() as u64);
    sites.deallocate(&ranges, "now");
    let after = read();
    // Some 10,000 leaves hold a block each.
    assert!(after.0 - before.0 <= 8, "{} nodes read at the source", after.0 - before.0);
    assert!(after.1 - before.1 <= 8, "{} nodes read at the destination", after.1 - before.1);
    assert!(used() - bytes <= 64 << 10, "{} bytes of journal at the destination", used() - bytes);
    // Nor does the point walk what the base still holds, also when the base is deleted before it comes. A step of the reaper
    // reads what it is told to, and a node's children on top.
    for (pool, volume) in [(&sites.source, "v"), (&sites.destination, "r")] {
        pool.delete_snapshot(volume, uuid_of(pool, volume, "base")).expect("deleted");
        let before = pool.nodes_read();
        assert!(pool.reap_step_within(10).expect("a step"), "there is more to reap");
        pool.consistency_point().expect("a point");
        assert!(pool.nodes_read() - before <= 300, "{} nodes", pool.nodes_read() - before);
    }
    sites.source.reap_all().expect("reaped");
    sites.source.consistency_point().expect("a point");
    sites.source.consistency_point().expect("a point");
    let report =
        farside_check::check(&disks_now[0], &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
    assert!(report.blocks_in_use < 10_000, "{} blocks in use", report.blocks_in_use);
}

#[test]
fn scattered_trims_of_what_is_thin_become_one_range() {
    let disks = ["s", "d"].map(|name| SimulatedDisk::new(name, 512 << 20).without_history());
    let [source, destination] =
        disks.each_ref().map(|disk| Pool::create(Arc::new(disk.clone()), options(1)).expect("a pool"));
    let blocks = scattered(1000);
    let sites = Sites::fill(source, destination, &blocks);
    let head = sites.head();
    for block in &blocks {
        head.trim(block * BLOCK, BLOCK).expect("a trim");
    }
    let ranges = sites.difference("now");
    assert!(ranges.len() <= 2, "{} ranges", ranges.len());
    assert_eq!(ranges.iter().map(|range| range.changed).sum::<u64>(), blocks.len() as u64);
    sites.deallocate(&ranges, "now");
}

#[test]
fn an_opening_replays_and_reads_no_node_below_the_changes() {
    let disk = SimulatedDisk::new("kill", 512 << 20).without_history();
    let plenty = PoolOptions { overlay_bytes: 64 << 20, ..options(1) };
    let pool = Pool::create(Arc::new(disk.clone()), plenty.clone()).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    let head = pool.open_volume("v").expect("it opens");
    let blocks = scattered(5000);
    for generation in [0, 1] {
        for &block in &blocks {
            head.write((block + generation) * BLOCK, &content(block)).expect("a write");
        }
        if generation == 0 {
            pool.consistency_point().expect("a point");
        }
    }
    pool.flush().expect("a flush");
    // Killed again and again: each opening goes on with the journal of the lives before it, and pays for it once.
    let mut disk = disk;
    let root = head.content_root().expect("a root");
    for life in 1..4u64 {
        disk = disk.image().without_history();
        let pool = Pool::open(Arc::new(disk.clone()), plenty.clone()).expect("it opens");
        assert_eq!(pool.counters.points.load(Ordering::Relaxed), 0, "no point was due");
        assert!(pool.nodes_read() <= 16, "{} nodes read to open it", pool.nodes_read());
        let records = pool.counters.replayed_records.load(Ordering::Relaxed);
        assert_eq!(records, 5000 + life - 1, "life {life}");
        let head = pool.open_volume("v").expect("it opens");
        if life == 1 {
            assert_eq!(head.content_root().expect("a root"), root);
        }
        assert_eq!(pool.status().open_epoch, 1 + life);
        head.write(life * BLOCK, &content(life)).expect("a write");
        head.flush().expect("a flush");
    }
    let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
    // And the point that comes at last has room for all of it.
    let pool = Pool::open(Arc::new(disk.clone()), plenty).expect("it opens");
    pool.consistency_point().expect("a point");
    let report = farside_check::check(&disk, &farside_check::CheckOptions::default()).expect("it runs");
    assert!(report.is_clean(), "{report}");
}

#[test]
fn a_journal_holds_no_more_than_an_opening_may_replay() {
    // A journal of 128 MiB: the records below fill a third of it.
    let disk = SimulatedDisk::new("steps", 8 << 30).without_history();
    let plenty = PoolOptions { overlay_bytes: 64 << 20, ..options(1) };
    let pool = Pool::create(Arc::new(disk.clone()), plenty.clone()).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    let head = pool.open_volume("v").expect("it opens");
    let points = || pool.counters.points.load(Ordering::Relaxed);
    let (before, trims) = (points(), JOURNAL_STEPS_MAX / 2 + 10_000);
    // Always the same block: next to no memory, and 40 bytes of journal each.
    for at in 1..=trims {
        head.trim(0, BLOCK).expect("a trim");
        if at % 5000 == 0 {
            head.flush().expect("a flush");
        }
    }
    assert!(pool.status().journal_used_bytes < pool.status().journal_bytes / 2, "it is not the bytes");
    assert_eq!(points() - before, 1, "a point was due by steps");
    let opened = reopened(&disk);
    assert!(opened.counters.replayed_steps.load(Ordering::Relaxed) <= 10_000);
}

#[test]
fn a_host_that_never_flushes_leaves_little_to_read_again() {
    let disk = SimulatedDisk::new("flushless", 512 << 20).without_history();
    let plenty = PoolOptions { overlay_bytes: 64 << 20, ..options(1) };
    let pool = Pool::create(Arc::new(disk.clone()), plenty).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    let head = pool.open_volume("v").expect("it opens");
    let blocks = scattered(20_000);
    for &block in &blocks {
        head.write(block * BLOCK, &content(block)).expect("a write");
    }
    let opened = reopened(&disk);
    let verified = opened.counters.verified_blocks.load(Ordering::Relaxed);
    assert!(verified > 0, "the last of it no sync vouches for");
    assert!(verified <= 2 * UNPROVEN_RECORDS_MAX, "{verified} blocks read again");
}

fn timed<T>(what: &str, run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = run();
    println!("{:9.3} s  {what}", begun.elapsed().as_secs_f64());
    done
}

/// What this thread has had of a processor.
fn processor_seconds() -> f64 {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    spent.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).expect("a number") / 1e9
}

/// Of scattered writes, of rewrites of few blocks, and of long writes; the disk is in memory.
#[test]
#[ignore = "measures seconds, in 2 GB of memory"]
fn seconds_of_a_replay() {
    for (what, writes, blocks_each, among) in [
        ("nothing", 0, 1, 1),
        ("scattered", 240_000, 1, 1 << 28),
        ("the same few", 240_000, 1, 1000),
        ("long", 1800, 256, 1 << 20),
    ] {
        let disk = SimulatedDisk::new("replay", 16 << 30).without_history();
        let plenty = PoolOptions { overlay_bytes: 1 << 30, ..options(1) };
        let pool = Pool::create(Arc::new(disk.clone()), plenty.clone()).expect("a pool");
        pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
        let head = pool.open_volume("v").expect("it opens");
        let bytes: Vec<u8> = (0..blocks_each).flat_map(content).collect();
        for n in 1..=writes {
            let at: u64 = (n * 0x9E37_79B9 % among) / blocks_each * blocks_each;
            head.write(at * BLOCK, &bytes).expect("a write");
            if n % 1000 == 0 {
                head.flush().expect("a flush");
            }
        }
        drop((head, pool));
        // Of the processor: the machine may have other work.
        let begun = processor_seconds();
        let opened = Pool::open(Arc::new(disk), plenty).expect("it opens");
        let seconds = processor_seconds() - begun;
        let steps = opened.counters.replayed_steps.load(Ordering::Relaxed);
        println!("{what}: {steps} steps in {seconds:.3} s: {:.0} in a second", steps as f64 / seconds);
    }
}

/// 200,000 blocks (`FARSIDE_BLOCKS`), each site on a sparse file with direct I/O.
#[test]
#[ignore = "measures seconds, for some minutes"]
fn seconds_of_a_trimmed_terabyte() {
    let count = std::env::var("FARSIDE_BLOCKS").ok().and_then(|s| s.parse().ok()).unwrap_or(200_000);
    let directory = tempfile::tempdir().expect("a directory");
    let paths = ["source", "destination"].map(|name| directory.path().join(name));
    let options = || PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness));
    // The pool's own thread may still be at the end of its turn, and have the device open.
    let device = |path: &Path| {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            match FileDevice::open(path) {
                Err(DeviceError::Locked { .. }) if Instant::now() < until => {
                    thread::sleep(Duration::from_millis(20));
                }
                opened => break Arc::new(opened.expect("it opens")),
            }
        }
    };
    let open = |path: &Path| Pool::open(device(path), options()).expect("it opens");
    let [source, destination] = paths.each_ref().map(|path| {
        Pool::create(Arc::new(FileDevice::create(path, 16 << 30).expect("a file")), options())
            .expect("a pool")
    });
    let blocks = scattered(count);
    let sites = timed("filled", || Sites::fill(source, destination, &blocks));
    drop(sites);
    let opened = |what: &str| {
        let [source, destination] = paths.each_ref().map(|path| {
            let pool = timed(what, || open(path));
            let figure = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
            println!(
                "             {} records, {} steps, {} blocks verified",
                figure(&pool.counters.replayed_records),
                figure(&pool.counters.replayed_steps),
                figure(&pool.counters.verified_blocks)
            );
            pool
        });
        Sites { source, destination }
    };
    let sites = opened("opened, killed after the writes");
    timed("points", || {
        sites.source.consistency_point().expect("a point");
        sites.destination.consistency_point().expect("a point");
    });
    drop(sites);
    let sites = opened("opened, killed after a point");
    sites.head().trim(0, VOLUME_BLOCKS * BLOCK).expect("a trim");
    timed("update", || {
        let ranges = timed("  difference", || sites.difference("now"));
        timed("  deallocation, root, publishing", || sites.deallocate(&ranges, "now"));
    });
    drop(sites);
    let sites = opened("opened, killed after the update");
    for (pool, volume) in [(&sites.source, "v"), (&sites.destination, "r")] {
        let base = uuid_of(pool, volume, "base");
        pool.delete_snapshot(volume, base).expect("deleted");
        timed("reaped", || pool.reap_all().expect("reaped"));
        timed("two points", || (0..2).for_each(|_| pool.consistency_point().expect("a point")));
    }
}
