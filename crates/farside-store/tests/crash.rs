//! Random histories on a simulated disk, reopened as of every sync point, against a plain model.
//!
//! Which faults must be survived: power failure at any event, with unsynced writes dropped, kept, reordered or torn;
//! and after it, the loss of either superblock. What must hold: the pool opens, each volume and snapshot reads as
//! the model did after some operation that was not older than the last answered flush, and the offline checker
//! finds nothing.

mod model;

use std::sync::Arc;

use farside_platform::{BlockDevice, CrashFate, SimulatedDisk};
use farside_store::{Pool, StoreError};
use model::{History, Run, options};

const SLOTS: [u64; 2] = [0, 256 * 4096];

/// Opens an image and tells which of the model's states it shows.
fn reopen(disk: &SimulatedDisk, history: &History, (lower, upper): (usize, usize), journal: u64, what: &str) {
    let report = farside_check::check(disk, &farside_check::CheckOptions::default())
        .unwrap_or_else(|e| panic!("{what}: the checker failed: {e}"));
    assert!(report.is_clean(), "{what}: before opening: {report}");
    let pool = Pool::open(Arc::new(disk.clone()), options(1)).unwrap_or_else(|e| panic!("{what}: {e}"));
    // A pool that ends before that is called an older copy of itself.
    let opened_at = pool.status().journal_opened_at;
    assert!(
        opened_at >= journal,
        "{what}: its journal ends at {opened_at}, and was on the medium up to {journal}"
    );
    let seen = model::observe(&pool);
    let matching = (lower..=upper).rev().find(|i| history.states[*i] == seen);
    assert!(
        matching.is_some(),
        "{what}: shows none of the states {lower}..={upper}; seen {seen:?}, last {:?}; before opening: {report}; it was {:?}",
        history.states[upper],
        history.states.iter().position(|s| *s == seen),
    );
    // It must also work: reap, one more point, and be clean again.
    pool.reap_all().unwrap_or_else(|e| panic!("{what}: reaping: {e}"));
    pool.consistency_point().unwrap_or_else(|e| panic!("{what}: a point: {e}"));
    assert_eq!(model::observe(&pool), seen, "{what}: reaping changed what is there");
    drop(pool);
    let report =
        farside_check::check(disk, &farside_check::CheckOptions::default()).expect("the checker runs");
    assert!(report.is_clean(), "{what}: after opening: {report}");
}

/// Answers how much was shared, see [`Run::shared`].
fn crash_everywhere(seed: u64, operations: usize) -> [u64; 2] {
    crash_everywhere_in(Run::new(seed, 24 << 20), seed, operations, |_, _| {})
}

/// The same of a run that does something else now and then.
fn crash_everywhere_in(
    mut run: Run,
    seed: u64,
    operations: usize,
    mut also: impl FnMut(&mut Run, usize),
) -> [u64; 2] {
    println!("seed {seed}");
    for operation in 1..=operations {
        run.step();
        also(&mut run, operation);
        if operation % 25 == 0 {
            run.restart();
        }
    }
    let (disk, shared) = (run.disk.clone(), run.shared);
    let history = run.finish();
    let mut points = disk.sync_points();
    points.retain(|p| *p >= history.first_event);
    points.push(disk.events());
    points.dedup();
    for (n, point) in points.iter().enumerate() {
        // As of this sync and, for what came after it, just before the next one.
        let next = points.get(n + 1).map_or(*point, |next| next - 1);
        let (lower, _) = history.bounds(*point);
        let (_, upper) = history.bounds(next);
        let fates =
            [CrashFate::DropUnsynced, CrashFate::KeepUnsynced, CrashFate::Random(seed ^ (n as u64) << 8)];
        let fate = fates[(n + seed as usize) % 3];
        reopen(
            &disk.crash_at(next, fate),
            &history,
            (lower, upper),
            history.journal_at_least(*point),
            &format!("seed {seed}, event {next}, {fate:?}"),
        );
        let damaged = disk.crash_at(next, fate);
        let slot = (n / 3) % 2;
        // A superblock torn by this very crash is one loss already.
        let other_is_whole = farside_format::Superblock::decode(&damaged.peek(SLOTS[1 - slot], 4096)).is_ok();
        if !other_is_whole {
            continue;
        }
        damaged.damage(SLOTS[slot], &[0xA5; 4096]);
        let what = format!("seed {seed}, event {next}, {fate:?}, slot {slot} destroyed");
        reopen_without_slot(&damaged, &history, lower, upper, &what);
    }
    println!("seed {seed}: {} blocks shared, {} places with several owners at once", shared[0], shared[1]);
    shared
}

fn reopen_without_slot(disk: &SimulatedDisk, history: &History, lower: usize, upper: usize, what: &str) {
    let pool = match Pool::open(Arc::new(disk.clone()), options(1)) {
        Ok(pool) => pool,
        Err(StoreError::NoSuperblock { .. }) => panic!("{what}: one slot must do"),
        Err(e) => panic!("{what}: {e}"),
    };
    let seen = model::observe(&pool);
    assert!(
        (lower..=upper).rev().any(|i| history.states[i] == seen),
        "{what}: shows none of the states {lower}..={upper}; seen {seen:?}, last {:?}",
        history.states[upper]
    );
    drop(pool);
    let report =
        farside_check::check(disk, &farside_check::CheckOptions::default()).expect("the checker runs");
    assert!(report.is_clean(), "{what}: after opening: {report}");
}

#[test]
fn every_sync_point_of_random_histories() {
    let seeds = std::env::var("FARSIDE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    let first = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let shared: Vec<_> = (first..first + seeds).map(|seed| crash_everywhere(seed, 90)).collect();
    let histories = shared.iter().filter(|[blocks, places]| *blocks > 20 && *places > 10).count() as u64;
    assert!(histories * 3 >= seeds, "only {histories} of {seeds} histories shared enough to mean anything");
}

/// Equal blocks come and go, come to lie at one place and get places of their own again, between and during everything else.
#[test]
fn deduplication_survives_a_crash_at_every_sync() {
    let seeds = std::env::var("FARSIDE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    let first = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut shared = 0;
    for seed in first..first + seeds {
        let dedup = |run: &mut Run, operation: usize| match operation % 5 {
            0 | 2 => run.copy(),
            1 | 3 => run.dedup(),
            _ if operation % 20 == 4 => run.undo_dedup(),
            _ => {}
        };
        shared += crash_everywhere_in(Run::new(seed, 24 << 20), seed, 70, dedup)[0];
    }
    assert!(shared > 20 * seeds, "only {shared} blocks were shared: too little to mean anything");
}

/// Twice within its first 64 MiB, which one block of the free map tells of; past them; and past 512 MiB, where the table of the
/// owner counts becomes higher.
#[test]
fn a_pool_that_grows_survives_a_crash_at_every_sync() {
    let seeds = std::env::var("FARSIDE_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    let first = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let mut shared = 0;
    for seed in first..first + seeds {
        let grow = |run: &mut Run, operation: usize| match operation {
            12 | 28 => run.grow(8 << 8),
            44 => run.grow(100 << 8),
            58 => run.grow(700 << 8),
            _ => {}
        };
        let [blocks, _] = crash_everywhere_in(Run::new(seed, 13 << 20), seed, 72, grow);
        shared += blocks;
    }
    assert!(shared > 0, "the table of the owner counts was empty throughout");
}

#[test]
fn a_failed_sync_is_never_forgotten() {
    let seed = 77;
    println!("seed {seed}");
    let mut run = Run::new(seed, 24 << 20);
    for _ in 0..10 {
        run.step();
    }
    let handle = run.pool.open_volume("a").expect("a is there");
    handle.write(0, &[1; 4096]).expect("a write");
    run.disk.fail_after(Some(0));
    assert!(handle.flush().is_err());
    run.disk.fail_after(None);
    let refused = handle.write(0, &[2; 4096]).expect_err("no write after a failed sync");
    assert!(matches!(refused, StoreError::Failed { .. }), "{refused}");
    let mut block = [0; 4096];
    handle.read(0, &mut block).expect("reads go on");
    assert_eq!(run.disk.bytes(), 24 << 20);
}
