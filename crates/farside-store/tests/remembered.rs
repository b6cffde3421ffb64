//! Reads by way of the system's memory, with a memory that is as bad as can be: it never forgets what it has read, whatever is written
//! over it. Each read is right all the same, and what is in memory is read without the device.

mod sparse;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farside_platform::{BLOCK_BYTES, BlockDevice, DeviceError, SimulatedDisk};
use farside_store::{Pool, PoolOptions, StoreError, VersionHandle};
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, content, options};

const VOLUME_BLOCKS: u64 = 512;

/// A disk, and a memory that keeps for ever what it was read by way of it.
struct Remembering {
    disk: SimulatedDisk,
    pages: Mutex<HashMap<u64, Vec<u8>>>,
    /// Reads of the disk.
    reads: AtomicUsize,
}

impl BlockDevice for Remembering {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.disk.read_at(offset, buffer)
    }
    fn read_many_remembering(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<(), DeviceError>> {
        let read = |(offset, buffer): &mut (u64, &mut [u8])| {
            for (page, at) in buffer.chunks_mut(BLOCK_BYTES).zip((*offset..).step_by(BLOCK_BYTES)) {
                if !self.read_remembered(&mut [(at, &mut *page)])[0] {
                    self.read_at(at, page)?;
                    self.pages.lock().insert(at, page.to_vec());
                }
            }
            Ok(())
        };
        reads.iter_mut().map(read).collect()
    }
    fn read_remembered(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        let pages = self.pages.lock();
        let read = |(offset, buffer): &mut (u64, &mut [u8])| {
            let mut blocks = buffer.chunks_mut(BLOCK_BYTES).zip((*offset..).step_by(BLOCK_BYTES));
            blocks.all(|(block, at)| pages.get(&at).map(|page| block.copy_from_slice(page)).is_some())
        };
        reads.iter_mut().map(read).collect()
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.disk.write_at(offset, bytes)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()
    }
    fn name(&self) -> String {
        self.disk.name()
    }
}

fn pool(pool_bytes: u64, options: PoolOptions) -> (Arc<Remembering>, Arc<Pool>) {
    let disk = SimulatedDisk::new("remembering", pool_bytes);
    let device = Arc::new(Remembering { disk, pages: Mutex::default(), reads: AtomicUsize::new(0) });
    let pool = Pool::create(device.clone(), options).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    (device, pool)
}

/// What is read at once, if it is.
fn at_once(handle: &VersionHandle, offset: u64, length: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0xEE; length];
    handle.read_at_once(&mut [(offset, &mut buffer)])[0].then_some(buffer)
}

fn read(handle: &VersionHandle, offset: u64, length: usize) -> Result<Vec<u8>, StoreError> {
    let mut buffer = vec![0xEE; length];
    handle.read(offset, &mut buffer).map(|()| buffer)
}

#[test]
fn whatever_memory_has_each_read_is_right() {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    println!("seed {seed}");
    let mut rng = SmallRng::seed_from_u64(seed);
    // So small that places are used again and again.
    let (device, pool) = pool(16 << 20, options(1));
    let handle = pool.open_volume("v").expect("it opens").remembering();
    let mut model = vec![0; (VOLUME_BLOCKS * BLOCK) as usize];
    let (mut done_at_once, mut asked) = (0, 0);
    for round in 0..3000 {
        let at = rng.random_range(0..VOLUME_BLOCKS - 8) as usize * BLOCK_BYTES;
        match rng.random_range(0..10) {
            0..3 => {
                let bytes: Vec<u8> =
                    (0..rng.random_range(1..8)).flat_map(|_| content(rng.random::<u64>())).collect();
                handle.write(at as u64, &bytes).expect("there is room");
                model[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            // Parts of blocks are merged with what is there.
            3 => {
                let from = at + rng.random_range(1..4000);
                let bytes = vec![round as u8; rng.random_range(1..6000)];
                handle.write(from as u64, &bytes).expect("there is room");
                model[from..from + bytes.len()].copy_from_slice(&bytes);
            }
            4 if round % 7 == 0 => pool.consistency_point().expect("a point"),
            4 => handle.flush().expect("a flush"),
            _ => {
                let (from, length) = (at + rng.random_range(0..5000), rng.random_range(1..20_000));
                let expected = &model[from..from + length];
                asked += 1;
                if let Some(bytes) = at_once(&handle, from as u64, length) {
                    assert!(bytes == expected, "round {round}, at once");
                    done_at_once += 1;
                }
                assert!(read(&handle, from as u64, length).expect("a read") == expected, "round {round}");
            }
        }
    }
    assert_eq!(pool.status().corrupt_blocks, 0, "old memory is no damage");
    assert!(done_at_once > asked / 20 && done_at_once < asked, "{done_at_once} of {asked}");
    assert!(!device.pages.lock().is_empty());
}

#[test]
fn what_was_read_is_read_at_once_and_nothing_else_is() {
    let (device, pool) = pool(64 << 20, options(1));
    let handle = pool.open_volume("v").expect("it opens").remembering();
    for block in 0..64 {
        handle.write(block * BLOCK, &content(block)).expect("a write");
    }
    // What waits to be written, and holes, are in memory anyway.
    assert_eq!(at_once(&handle, 5 * BLOCK, BLOCK_BYTES), Some(content(5)));
    assert_eq!(at_once(&handle, 300 * BLOCK, 10_000), Some(vec![0; 10_000]));
    pool.consistency_point().expect("a point");
    assert_eq!(at_once(&handle, 5 * BLOCK, BLOCK_BYTES), None, "it is on the device by now");
    assert_eq!(read(&handle, 5 * BLOCK, BLOCK_BYTES).expect("a read"), content(5));
    let before = device.reads.load(Ordering::SeqCst);
    assert_eq!(at_once(&handle, 5 * BLOCK + 7, 100), Some(content(5)[7..107].to_vec()));
    assert_eq!(at_once(&handle, 5 * BLOCK, 2 * BLOCK_BYTES), None, "half of it");
    assert_eq!(device.reads.load(Ordering::SeqCst), before, "nobody waited for the device");
    let mut buffers = [vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]];
    let [a, b] = &mut buffers;
    assert_eq!(handle.read_at_once(&mut [(6 * BLOCK, a), (5 * BLOCK, b)]), [false, true]);
    assert_eq!(buffers[1], content(5));
    // A transfer's reads are no host's: they neither fill the memory nor ask it.
    let other = pool.open_volume("v").expect("it opens");
    assert_eq!(at_once(&other, 5 * BLOCK, BLOCK_BYTES), None);
    assert_eq!(read(&other, 9 * BLOCK, BLOCK_BYTES).expect("a read"), content(9));
    assert_eq!(at_once(&handle, 9 * BLOCK, BLOCK_BYTES), None);
}

#[test]
fn a_map_that_is_not_in_memory_is_not_waited_for() {
    // The least cache there is: 64 nodes.
    let (device, pool) = pool(512 << 20, PoolOptions { node_cache_bytes: 0, ..options(1) });
    pool.create_volume("wide", 4 << 30).expect("a volume");
    let handle = pool.open_volume("wide").expect("it opens").remembering();
    // 2000 leaves.
    let blocks: Vec<u64> = (0..2000).map(|i| i * 128 + 5).collect();
    for block in &blocks {
        handle.write(block * BLOCK, &content(*block)).expect("a write");
    }
    pool.consistency_point().expect("a point");
    for block in &blocks {
        assert_eq!(read(&handle, block * BLOCK, BLOCK_BYTES).expect("a read"), content(*block));
    }
    let before = device.reads.load(Ordering::SeqCst);
    let found =
        blocks.iter().filter(|block| at_once(&handle, **block * BLOCK, BLOCK_BYTES).is_some()).count();
    assert_eq!(device.reads.load(Ordering::SeqCst), before, "the data is all in memory, the map is not");
    assert!(found < 500, "{found}");
}

#[test]
fn only_the_medium_is_called_damaged() {
    let (device, pool) = pool(64 << 20, options(1));
    let handle = pool.open_volume("v").expect("it opens").remembering();
    handle.write(0, &content(1)).expect("a write");
    pool.consistency_point().expect("a point");
    read(&handle, 0, BLOCK_BYTES).expect("a read");
    let place = *device.pages.lock().keys().next().expect("one was read");
    device.pages.lock().insert(place, vec![0xAB; BLOCK_BYTES]);
    assert_eq!(at_once(&handle, 0, BLOCK_BYTES), None);
    assert_eq!(read(&handle, 0, BLOCK_BYTES).expect("the medium has it"), content(1));
    assert_eq!(pool.status().corrupt_blocks, 0);
    device.disk.write_at(place, &[0xCD; BLOCK_BYTES]).expect("a write");
    assert!(matches!(read(&handle, 0, BLOCK_BYTES), Err(StoreError::CorruptBlock { block: 0, .. })));
    assert_eq!(pool.status().corrupt_blocks, 1);
    // A medium that has rotted under what memory still has: the host goes on, and a scrub finds it.
    device.pages.lock().insert(place, content(1));
    assert_eq!(at_once(&handle, 0, BLOCK_BYTES), Some(content(1)));
}
