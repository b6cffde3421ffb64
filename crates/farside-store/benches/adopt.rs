//! What a transfer wants and the pool holds: taken over by whole leaves and by single blocks, and questions about what is
//! not held, against 256 MiB of a peer's data; and the index of 64 GiB built by walking metadata. On a disk in memory:
//! what is measured is the way through index, metadata, hashing and the staged write, not a device.
#![allow(missing_docs)] // Criterion's macros.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use farside_format::{FAN_OUT, Fingerprint};
use farside_platform::{SeededRandomness, SimulatedDisk, SystemClock, Timestamp};
use farside_store::{
    NewSnapshot, Pool, PoolOptions, ReplicaStatus, StagedFor, StagedVersion, WANTED_MAX, Wanted,
};
use uuid::Uuid;

const BLOCK: u64 = 4096;
const LEAF: u64 = FAN_OUT as u64;
const PEER: [u8; 32] = [1; 32];
/// 256 MiB.
const BLOCKS: u64 = 1 << 16;

fn open(disk: &SimulatedDisk) -> Arc<Pool> {
    let clock = Arc::new(SystemClock::default());
    let options =
        PoolOptions { background: false, ..PoolOptions::new(clock, Arc::new(SeededRandomness::new(1))) };
    Pool::create(Arc::new(disk.clone()), options).expect("a pool")
}

fn block(stamp: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [1; BLOCK as usize];
    bytes[..8].copy_from_slice(&stamp.to_le_bytes());
    bytes
}

fn stage(pool: &Arc<Pool>, name: &str, blocks: u64) -> StagedVersion {
    let relationship = Uuid::from_u128(1);
    pool.create_volume(name, blocks * BLOCK).expect("a volume");
    let record = ReplicaStatus { relationship, peer: PEER, source: "far/v".into(), broken_off: false };
    pool.set_replica(name, Some(record)).expect("a replica");
    let staged_for = StagedFor { relationship, incremental: Uuid::from_u128(2) };
    pool.stage(name, None, blocks * BLOCK, staged_for).expect("staged")
}

fn publish(staged: &StagedVersion) {
    let (name, uuid) = ("s".to_owned(), Uuid::from_u128(1));
    let new = NewSnapshot { name, uuid, created_at: Timestamp(1), relationship: None, pin_for: None };
    staged.commit(&new).expect("committed");
}

fn want(level: u8, position: u64, fingerprint: Fingerprint) -> Wanted {
    let short = u64::from_be_bytes(fingerprint.0[..8].try_into().expect("8 bytes"));
    Wanted { level, position, short }
}

/// Adopts everything in batches of 1 MiB to 64 MiB; answers how many entries were held.
fn adopt(staged: &StagedVersion, wanted: &[Wanted]) -> usize {
    let batches = wanted.chunks(if wanted[0].level == 0 { WANTED_MAX } else { 128 });
    batches.map(|batch| staged.adopt(&PEER, batch).expect("answered").iter().flatten().count()).sum()
}

fn adoption(criterion: &mut Criterion) {
    let disk = SimulatedDisk::new("bench", 3 << 30).without_history();
    let pool = open(&disk);
    let staged = stage(&pool, "a", BLOCKS);
    let fingerprints: Vec<Fingerprint> =
        (0..BLOCKS).map(|stamp| Fingerprint::of_block(&block(stamp + 1))).collect();
    for first in (0..BLOCKS).step_by(256) {
        let bytes: Vec<u8> = (first..first + 256).flat_map(|stamp| block(stamp + 1)).collect();
        staged.write(first * BLOCK, &bytes).expect("a staged write");
    }
    publish(&staged);
    let blocks: Vec<_> = (0..).zip(&fingerprints).map(|(at, f)| want(0, at, *f)).collect();
    let (leaves, _) = fingerprints.as_chunks::<FAN_OUT>();
    let leaves: Vec<_> =
        (0..).zip(leaves).map(|(at, below)| want(1, at, Fingerprint::of_node(1, below))).collect();
    let unknown: Vec<_> = (0..BLOCKS)
        .map(|at| Wanted { level: 0, position: at, short: (at + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) })
        .collect();
    // Built once, so that its cost is not in what follows.
    let warm = stage(&pool, "w", BLOCKS);
    while pool.known_data().scopes == 0 || pool.known_data().is_learning {
        warm.adopt(&PEER, &[]).expect("answered");
    }
    let mut group = criterion.benchmark_group("adopt_256_mib");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.throughput(Throughput::Bytes(BLOCKS * BLOCK));
    let mut number = 0;
    for (what, wanted) in [("leaves", &leaves), ("blocks", &blocks)] {
        group.bench_function(what, |bencher| {
            bencher.iter_custom(|rounds| {
                let mut taken = Duration::ZERO;
                for _ in 0..rounds {
                    number += 1;
                    let name = format!("v{number}");
                    let staged = stage(&pool, &name, BLOCKS);
                    let begun = Instant::now();
                    assert_eq!(adopt(&staged, wanted), wanted.len());
                    taken += begun.elapsed();
                    // What was adopted goes again, or the disk is full soon.
                    staged.abandon().expect("abandoned");
                    pool.delete_volume(&name).expect("it can go");
                    pool.reap_all().expect("reaped");
                }
                taken
            });
        });
    }
    group.throughput(Throughput::Elements(unknown.len() as u64));
    group.bench_function("unknown_blocks", |bencher| bencher.iter(|| adopt(&warm, &unknown)));
    group.finish();
}

/// Each leaf of 128 blocks maps one block only: a node costs the same however much it maps.
fn building(criterion: &mut Criterion) {
    let leaves = (64 << 30) / (LEAF * BLOCK);
    let disk = SimulatedDisk::new("bench", leaves * 8 * BLOCK).without_history();
    let pool = open(&disk);
    let staged = stage(&pool, "a", leaves * LEAF);
    for leaf in 0..leaves {
        staged.write(leaf * LEAF * BLOCK, &block(leaf + 1)).expect("a staged write");
    }
    publish(&staged);
    pool.close().expect("closed");
    drop(staged);
    drop(pool);
    let mut group = criterion.benchmark_group("index_of_64_gib");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.throughput(Throughput::Elements(leaves));
    group.bench_function("built", |bencher| {
        bencher.iter_batched(
            || {
                let clock = Arc::new(SystemClock::default());
                let options = PoolOptions {
                    background: false,
                    ..PoolOptions::new(clock, Arc::new(SeededRandomness::new(2)))
                };
                let pool = Pool::open(Arc::new(disk.image().without_history()), options).expect("it opens");
                let staged = stage(&pool, "b", LEAF);
                (pool, staged)
            },
            |(pool, staged)| {
                staged.adopt(&PEER, &[]).expect("answered");
                while pool.known_data().is_learning {
                    staged.adopt(&PEER, &[]).expect("answered");
                }
                assert_eq!(pool.known_data().leaves as u64, leaves);
                (pool, staged)
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, adoption, building);
criterion_main!(benches);
