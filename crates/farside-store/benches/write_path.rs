//! The write path on a file: 4 KiB random, 64 KiB sequential, the latency of a flush, and group commit by 1, 8 and 32
//! threads. Consistency points run beside it, as in a daemon.
#![allow(missing_docs)] // Criterion's macros.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use farside_platform::{FileDevice, OsRandomness, SystemClock};
use farside_store::{Pool, PoolOptions};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

const VOLUME: u64 = 1 << 30;

fn pool(directory: &tempfile::TempDir) -> Arc<Pool> {
    // The file must be on a real disk: a tempdir in memory would answer every sync at once.
    let device = FileDevice::create(&directory.path().join("pool"), 4 << 30).expect("a file");
    let options = PoolOptions::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness));
    let pool = Pool::create(Arc::new(device), options).expect("a pool");
    pool.create_volume("v", VOLUME).expect("a volume");
    pool
}

fn write_path(criterion: &mut Criterion) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let pool = pool(&directory);
    let handle = pool.open_volume("v").expect("it opens");
    let mut rng = SmallRng::seed_from_u64(1);
    let mut bytes = vec![0; 64 << 10];
    rng.fill_bytes(&mut bytes);
    let stamp = AtomicU64::new(0);
    // Never the same block twice, and never random bytes in the measured part.
    let fresh = |bytes: &mut [u8]| {
        for block in bytes.chunks_mut(4096) {
            block[..8].copy_from_slice(&stamp.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        }
    };

    let mut group = criterion.benchmark_group("write");
    group.sample_size(20).measurement_time(Duration::from_secs(4));
    group.throughput(Throughput::Bytes(4096));
    group.bench_function("4_kib_random", |bencher| {
        bencher.iter(|| {
            fresh(&mut bytes[..4096]);
            handle.write(rng.random_range(0..VOLUME / 4096) * 4096, &bytes[..4096]).expect("a write");
        });
    });
    group.throughput(Throughput::Bytes(64 << 10));
    let mut at = 0;
    group.bench_function("64_kib_sequential", |bencher| {
        bencher.iter(|| {
            fresh(&mut bytes);
            handle.write(at, &bytes).expect("a write");
            at = (at + (64 << 10)) % VOLUME;
        });
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function("4_kib_and_flush", |bencher| {
        bencher.iter(|| {
            fresh(&mut bytes[..4096]);
            handle.write(rng.random_range(0..VOLUME / 4096) * 4096, &bytes[..4096]).expect("a write");
            handle.flush().expect("a flush");
        });
    });
    group.finish();

    // Writes of 4 KiB, each flushed, by several threads: one sync serves many.
    let mut group = criterion.benchmark_group("group_commit");
    group.sample_size(10).measurement_time(Duration::from_secs(3)).throughput(Throughput::Elements(1));
    for threads in [1u64, 8, 32] {
        group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
            bencher.iter_custom(|writes| {
                let begin = Instant::now();
                std::thread::scope(|scope| {
                    for thread in 0..threads {
                        let (handle, fresh) = (&handle, &fresh);
                        let share = writes / threads + u64::from(thread < writes % threads);
                        scope.spawn(move || {
                            let mut rng = SmallRng::seed_from_u64(thread);
                            let mut bytes = vec![1; 4096];
                            for _ in 0..share {
                                fresh(&mut bytes);
                                let at = rng.random_range(0..VOLUME / 4096) * 4096;
                                handle.write(at, &bytes).expect("a write");
                                handle.flush().expect("a flush");
                            }
                        });
                    }
                });
                begin.elapsed()
            });
        });
    }
    group.finish();
    drop(handle);
    pool.close().expect("closed");
}

criterion_group!(benches, write_path);
criterion_main!(benches);
