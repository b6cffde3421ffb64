//! Differences of two versions of 1 GiB and 64 GiB with 1 % changed, in runs of 1 MiB and scattered; nodes in memory,
//! cold and warm.
//!
//! Each leaf of 128 blocks maps one block only: a node costs the same however much it maps, and so a tree of 64 GiB is
//! built in seconds. 1 % of all blocks, scattered, touches 72 % of the leaves (1 - 0.99^128).
#![allow(missing_docs)] // Criterion's macros.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use farside_platform::{SeededRandomness, SimulatedDisk, SystemClock, Timestamp};
use farside_store::{NewSnapshot, Pool, PoolOptions, VersionHandle};
use uuid::Uuid;

const BLOCK: u64 = 4096;
const LEAF: u64 = 128 * BLOCK;

fn options(node_cache_bytes: u64) -> PoolOptions {
    let clock = Arc::new(SystemClock::default());
    PoolOptions {
        background: false,
        node_cache_bytes,
        ..PoolOptions::new(clock, Arc::new(SeededRandomness::new(1)))
    }
}

fn block(stamp: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [1; BLOCK as usize];
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes
}

/// A disk with volume `v` of `bytes` and a snapshot `s` of it from before the leaves in `changed` were.
fn built(bytes: u64, changed: impl Iterator<Item = u64>) -> SimulatedDisk {
    let leaves = bytes / LEAF;
    // Data and nodes, twice over for points, and the nodes changed since.
    let disk = SimulatedDisk::new("bench", (leaves * 8 * BLOCK).max(64 << 20)).without_history();
    let pool = Pool::create(Arc::new(disk.clone()), options(64 << 20)).expect("a pool");
    pool.create_volume("v", bytes).expect("a volume");
    let handle = pool.open_volume("v").expect("it opens");
    for leaf in 0..leaves {
        handle.write(leaf * LEAF, &block(leaf + 1)).expect("a write");
    }
    let (name, uuid) = ("s".to_owned(), Uuid::from_u128(1));
    let new = NewSnapshot { name, uuid, created_at: Timestamp(1), relationship: None, pin_for: None };
    pool.create_snapshots(&[("v".into(), new)]).expect("a snapshot");
    for leaf in changed {
        handle.write(leaf * LEAF, &block(u64::MAX - leaf)).expect("a write");
    }
    pool.close().expect("closed");
    disk
}

fn count(head: &Arc<VersionHandle>, base: &Arc<VersionHandle>) -> u64 {
    head.clone().difference_from(Some(base.clone())).map(|r| r.expect("a difference").count).sum()
}

fn difference(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("difference_1_percent");
    group.sample_size(10).measurement_time(std::time::Duration::from_secs(2));
    for gib in [1u64, 64] {
        let leaves = (gib << 30) / LEAF;
        // A run of 1 MiB is two leaves; 1 % of all MiB.
        let runs: Vec<u64> = (0..leaves / 200).flat_map(|run| [run * 200, run * 200 + 1]).collect();
        let scattered: Vec<u64> =
            (0..leaves).filter(|leaf| leaf.wrapping_mul(0x9E37_79B9) % 100 < 72).collect();
        for (pattern, changed) in [("runs_of_1_mib", runs), ("scattered", scattered)] {
            let disk = built(gib << 30, changed.iter().copied());
            let open = |cache: u64| {
                let pool =
                    Pool::open(Arc::new(disk.image().without_history()), options(cache)).expect("it opens");
                let head = Arc::new(pool.open_volume("v").expect("it opens"));
                let base = Arc::new(pool.open_snapshot("v", "s").expect("it opens"));
                assert_eq!(count(&head, &base), changed.len() as u64);
                (head, base)
            };
            // The smallest cache holds 64 nodes; the largest all of them.
            for (state, cache) in [("cold", 0), ("warm", 2 << 30)] {
                let (head, base) = open(cache);
                group.bench_function(BenchmarkId::new(format!("{gib}_gib_{pattern}"), state), |bencher| {
                    bencher.iter(|| count(&head, &base));
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, difference);
criterion_main!(benches);
