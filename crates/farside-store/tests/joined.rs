//! Reads and writes that go together, on a real file: what each of them gets, and what happens where there is no room for all.

mod sparse;

use std::sync::Arc;

use farside_platform::FileDevice;
use farside_store::{JOINED_BYTES_MAX, Pool, StoreError};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use sparse::{BLOCK, content, options};

const VOLUME_BYTES: usize = 8 << 20;

fn pool(bytes: u64) -> (tempfile::TempDir, Arc<Pool>) {
    let directory = tempfile::tempdir().expect("a directory");
    let device = FileDevice::create(&directory.path().join("p"), bytes).expect("a file");
    let pool = Pool::create(Arc::new(device), options(1)).expect("a pool");
    pool.create_volume("v", VOLUME_BYTES as u64).expect("a volume");
    (directory, pool)
}

#[test]
fn each_read_and_write_of_many_is_as_if_it_were_alone() {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    let (_directory, pool) = pool(64 << 20);
    let handle = pool.open_volume("v").expect("it opens");
    let mut model = vec![0; VOLUME_BYTES];
    for round in 0..150 {
        // Scattered, so that a read has many runs; some of them parts of blocks, which go alone.
        let odd = round % 5 == 0;
        let writes: Vec<(usize, Vec<u8>)> = (0..rng.random_range(1..20))
            .map(|_| {
                let mut bytes = vec![0; rng.random_range(1..=3) * 4096 - if odd { 7 } else { 0 }];
                if rng.random_ratio(4, 5) {
                    rng.fill_bytes(&mut bytes);
                }
                let block = rng.random_range(0..VOLUME_BYTES / 4096 - 4);
                (block * 4096 + if odd { rng.random_range(0..4096) } else { 0 }, bytes)
            })
            .collect();
        let all: Vec<(u64, &[u8])> = writes.iter().map(|(at, bytes)| (*at as u64, &bytes[..])).collect();
        assert!(handle.write_many(&all).into_iter().all(|outcome| outcome.is_ok()));
        for (at, bytes) in &writes {
            model[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        let mut buffers: Vec<(usize, Vec<u8>)> = (0..rng.random_range(1..16))
            .map(|_| {
                let (at, length) = (rng.random_range(0..VOLUME_BYTES), rng.random_range(1..60_000));
                let at = if rng.random_bool(0.5) { at / 4096 * 4096 } else { at };
                (at, vec![0xEE; length.min(VOLUME_BYTES - at)])
            })
            .collect();
        let mut reads: Vec<(u64, &mut [u8])> =
            buffers.iter_mut().map(|(at, buffer)| (*at as u64, &mut buffer[..])).collect();
        assert!(handle.read_many(&mut reads).into_iter().all(|outcome| outcome.is_ok()));
        for (at, buffer) in &buffers {
            assert!(model[*at..at + buffer.len()] == buffer[..], "round {round}, {} at {at}", buffer.len());
        }
    }
    let mut whole = vec![0; VOLUME_BYTES];
    handle.read(0, &mut whole).expect("a read");
    assert!(whole == model);
}

#[test]
fn what_cannot_be_joined_is_refused_or_done_one_by_one() {
    let (_directory, pool) = pool(64 << 20);
    let handle = pool.open_volume("v").expect("it opens");
    let block = content(1);
    let end = VOLUME_BYTES as u64;
    assert!(matches!(handle.write_joined(&[(0, &block), (5, &[])]), Err(StoreError::Invalid(_))));
    let long = vec![1; JOINED_BYTES_MAX];
    assert!(matches!(handle.write_joined(&[(0, &long), (0, &block)]), Err(StoreError::Invalid(_))));
    assert!(handle.write_many(&[(0, &long), (0, &block)]).into_iter().all(|outcome| outcome.is_ok()));
    // One past the end does not keep the others from being done.
    let outcomes = handle.write_many(&[(BLOCK, &block), (end, &block), (2 * BLOCK, &block)]);
    assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let mut buffer = [0; 3 * BLOCK as usize];
    handle.read(0, &mut buffer).expect("a read");
    assert!(buffer == [&block[..], &block[..], &block[..]].concat()[..]);
    let (one, two) = buffer.split_at_mut(4096);
    let outcomes = handle.read_many(&mut [(0, one), (end - 4096, two)]);
    assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
    pool.create_snapshots(&[("v".into(), sparse::new_snapshot("s", 1))]).expect("a snapshot");
    let snapshot = pool.open_snapshot("v", "s").expect("it opens");
    let outcomes = snapshot.write_many(&[(0, &block), (BLOCK, &block)]);
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(StoreError::Refused(_)))));
}

#[test]
fn a_pool_takes_joined_writes_up_to_its_last_room() {
    let (_directory, pool) = pool(32 << 20);
    // More than the pool has room for.
    pool.create_volume("big", 64 << 20).expect("a volume");
    let handle = pool.open_volume("big").expect("it opens");
    let blocks: Vec<Vec<u8>> = (1..17).map(content).collect();
    let (mut written, mut refused) = (Vec::new(), 0);
    for group in 0..16_384 / 16u64 {
        // Far apart.
        let at = |number: u64| (number * 1024 + group) * BLOCK;
        let writes: Vec<(u64, &[u8])> = (0..16).zip(&blocks).map(|(n, block)| (at(n), &block[..])).collect();
        for (number, outcome) in (0..).zip(handle.write_many(&writes)) {
            match outcome {
                Ok(()) => written.push((at(number), number)),
                Err(StoreError::NoSpace { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        if refused > 100 {
            break;
        }
    }
    let share = written.len() as u64 * BLOCK * 100 / (32 << 20);
    assert!(refused > 0 && share > 60, "{share} % of the pool were written, {refused} refused");
    pool.flush().expect("a flush");
    for (at, number) in written {
        let mut block = [0; 4096];
        handle.read(at, &mut block).expect("a read");
        assert_eq!(block[..], content(number + 1));
    }
}
