//! What a pool holds in memory while it is opened with a long journal.

mod sparse;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_platform::{BlockDevice, DeviceError, SimulatedDisk};
use farside_store::{Pool, PoolOptions};
use peak_alloc::PeakAlloc;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use sparse::{BLOCK, options};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;
const VOLUME_BLOCKS: u64 = 1 << 20;

/// A disk that does not keep data, so that it is no memory of the test. What no sync vouches for is not found again.
struct Shallow {
    disk: SimulatedDisk,
    data: [u8; BLOCK as usize],
}

impl Shallow {
    fn new(bytes: u64) -> Shallow {
        Shallow { disk: SimulatedDisk::new("shallow", bytes).without_history(), data: [0x77; BLOCK as usize] }
    }
}

impl BlockDevice for Shallow {
    fn bytes(&self) -> u64 {
        self.disk.bytes()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.disk.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        for (at, block) in (offset..).step_by(BLOCK as usize).zip(bytes.chunks(BLOCK as usize)) {
            if block != self.data {
                self.disk.write_at(at, block)?;
            }
        }
        Ok(())
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.disk.sync()
    }
    fn name(&self) -> String {
        self.disk.name()
    }
}

fn pool(overlay_bytes: u64) -> (Arc<Shallow>, Arc<Pool>, PoolOptions) {
    let device = Arc::new(Shallow::new(8 << 30));
    let options = PoolOptions { overlay_bytes, node_cache_bytes: 1 << 20, ..options(1) };
    let pool = Pool::create(device.clone(), options.clone()).expect("a pool");
    pool.create_volume("v", VOLUME_BLOCKS * BLOCK).expect("a volume");
    (device, pool, options)
}

/// Writes of a few blocks over and over, flushed by 64: a long journal that leaves few changes.
fn overwrite(pool: &Arc<Pool>, device: &Shallow, writes: u64) {
    let handle = pool.open_volume("v").expect("it opens");
    let mut rng = SmallRng::seed_from_u64(1);
    println!("seed 1");
    for number in 0..writes {
        handle.write(rng.random_range(0..64) * BLOCK, &device.data).expect("a write");
        if number % 64 == 63 {
            pool.flush().expect("a flush");
        }
    }
}

#[test]
fn an_opening_holds_no_more_of_the_journal_than_was_not_synced() {
    let (device, pool, options) = pool(1 << 30);
    overwrite(&pool, &device, 120_000);
    drop(pool);
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let pool = Pool::open(device, options).expect("it opens");
    let (peak, after) = (ALLOCATOR.peak_usage() - before, ALLOCATOR.current_usage() - before);
    println!("{} MiB at most while it was opened, {} MiB after", peak / MIB, after / MIB);
    assert!(pool.counters.replayed_records.load(Ordering::Relaxed) > 100_000);
    // One read of the ring ahead, and some batches. All of them would be 11 MiB.
    assert!(peak < after + 4 * MIB, "{peak} at most, {after} in the end");
    drop(pool);
}
