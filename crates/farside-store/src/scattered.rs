//! Reading many blocks that lie apart, as the pages are that a database has changed: what lies near each other on the device
//! in one read, the others several at a time. One after the other they cost the device's latency each: 60 µs on an SSD, so that
//! 1 MiB of single blocks took 15 to 25 ms, and several milliseconds each on disks that turn, which like them sorted.

use std::sync::atomic::Ordering;

use farside_format::{Fingerprint, Pointer};
use farside_platform::{BLOCK_BYTES, BlockBuffer};
use parking_lot::Mutex;

use crate::error::{Result, StoreError};
use crate::pool::Pool;

/// Blocks between two that are read along rather than passed over: 32 KiB at 1 GB/s take half of the 60 µs of
/// one more read.
const GAP_BLOCKS: u64 = 8;
/// Blocks of one read of the device at most.
const READ_BLOCKS_MAX: u64 = 256;
/// Reads of the device that go on at the same time.
const READS_AT_ONCE: usize = 8;
/// A thread for fewer reads than this costs more than it saves.
const READS_PER_THREAD_MIN: usize = 4;
/// Blocks that are looked up and read in one go, so that many do not hold up a consistency point. Of more, several such parts are read
/// at the same time: eight segments of a MiB that lie anywhere took 20 to 35 ms one after the other.
const BLOCKS_AT_ONCE: usize = 256;

/// A block that is to be read.
struct Wanted<'a> {
    pointer: Pointer,
    /// Of the version.
    block: u64,
    target: &'a mut [u8],
}

impl Pool {
    /// Reads `ranges` of a version, (first block, blocks) each, one behind the other into `buffer`, which has just their size;
    /// verified. Blocks past the version's end are zeros.
    pub(crate) fn read_ranges(&self, version: u64, ranges: &[(u64, u64)], buffer: &mut [u8]) -> Result<()> {
        self.counters.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let blocks = ranges.iter().flat_map(|(first, count)| *first..first + count);
        let mut targets = blocks.zip(buffer.chunks_exact_mut(BLOCK_BYTES)).peekable();
        let mut parts = Vec::new();
        while targets.peek().is_some() {
            parts.push(targets.by_ref().take(BLOCKS_AT_ONCE).collect());
        }
        let at_once = parts.len().clamp(1, READS_AT_ONCE);
        share(parts, at_once, |part| self.read_some(version, part, READS_AT_ONCE / at_once))
    }

    /// With so many reads of the device at the same time at most.
    fn read_some(&self, version: u64, targets: Vec<(u64, &mut [u8])>, at_once: usize) -> Result<()> {
        let _reading = self.readers.read();
        let view = {
            let state = self.locked();
            state.view(state.versions.version(version)?)
        };
        let mut pointers = Vec::with_capacity(targets.len());
        for run in targets.chunk_by(|a, b| a.0 + 1 == b.0) {
            let (first, end) = (run[0].0, run[0].0 + run.len() as u64);
            let inside = view.blocks().clamp(first, end);
            view.lookup(&self.nodes, first, inside - first, &mut pointers)?;
            pointers.resize(pointers.len() + (end - inside) as usize, Pointer::HOLE);
        }
        let mut wanted = Vec::with_capacity(targets.len());
        for (pointer, (block, target)) in pointers.into_iter().zip(targets) {
            if pointer.is_hole() {
                target.fill(0);
            } else if pointer.is_lost() {
                return Err(self.quarantined_error(version, block, 1));
            } else {
                wanted.push(Wanted { pointer, block, target });
            }
        }
        wanted.sort_unstable_by_key(|w| w.pointer.place.0);
        let reads = into_reads(&mut wanted);
        let threads = (reads.len() / READS_PER_THREAD_MIN).min(at_once);
        share(reads, threads, |read| self.read_one(version, read))
    }

    fn read_one(&self, version: u64, read: &mut [Wanted<'_>]) -> Result<()> {
        let has_gaps = read.windows(2).any(|w| w[1].pointer.place.0 > w[0].pointer.place.0 + 1);
        match self.read_span(version, read) {
            // It may have been a block that nobody asked for.
            Err(StoreError::Device(_)) if has_gaps => {
                read.chunks_mut(1).try_for_each(|one| self.read_span(version, one))
            }
            result => result,
        }
    }

    /// In one read of the device, with what lies between.
    fn read_span(&self, version: u64, read: &mut [Wanted<'_>]) -> Result<()> {
        let first = read[0].pointer.place.0;
        let count = read[read.len() - 1].pointer.place.0 - first + 1;
        let mut data = BlockBuffer::zeroed(count as usize);
        self.behind.read_at(first * BLOCK_BYTES as u64, &mut data)?;
        for Wanted { pointer, block, target } in read {
            let at = (pointer.place.0 - first) as usize * BLOCK_BYTES;
            let bytes = &data[at..at + BLOCK_BYTES];
            self.verify(version, *block, pointer, bytes)?;
            target.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Whether `bytes` of the device are what `pointer` says that the block of a version is.
    pub(crate) fn verify(&self, version: u64, block: u64, pointer: &Pointer, bytes: &[u8]) -> Result<()> {
        if Fingerprint::of_block(bytes) == pointer.fingerprint {
            return Ok(());
        }
        self.counters.corrupt_blocks.fetch_add(1, Ordering::Relaxed);
        let error = StoreError::CorruptBlock {
            version: self.describe_version(version),
            block,
            place: pointer.place.0,
        };
        tracing::error!(pool = %self.id, "{error}");
        Err(error)
    }
}

/// Does `work` with each of `items`, on so many threads. Those that have begun when one fails come to their end; the first failure of a
/// thread ends what it does.
fn share<T: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) -> Result<()> + Sync) -> Result<()> {
    let items = Mutex::new(items.into_iter());
    let work = || {
        loop {
            let next = items.lock().next();
            let Some(item) = next else { return Ok(()) };
            work(item)?;
        }
    };
    std::thread::scope(|scope| {
        // This one works too, and does all of it where the system has no threads to spare.
        let spawn = |_| std::thread::Builder::new().name("read".into()).spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let own = work();
        let joined = others.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.fold(own, Result::and)
    })
}

/// Cuts blocks in order of place into reads: what is at most [`GAP_BLOCKS`] apart goes together, up to [`READ_BLOCKS_MAX`].
fn into_reads<'w, 'a>(mut wanted: &'w mut [Wanted<'a>]) -> Vec<&'w mut [Wanted<'a>]> {
    let mut reads = Vec::new();
    while let Some(first) = wanted.first().map(|w| w.pointer.place.0) {
        let mut last = first;
        let joined = wanted.iter().take_while(|w| {
            let place = w.pointer.place.0;
            let fits = place - last <= GAP_BLOCKS + 1 && place - first < READ_BLOCKS_MAX;
            last = place;
            fits
        });
        let (read, rest) = wanted.split_at_mut(joined.count());
        reads.push(read);
        wanted = rest;
    }
    reads
}

#[cfg(test)]
mod tests {
    use farside_format::Place;

    use super::*;

    fn reads_of(places: &[u64]) -> Vec<(u64, usize)> {
        let mut wanted: Vec<Wanted<'_>> = places
            .iter()
            .map(|place| Wanted {
                pointer: Pointer { place: Place(*place), ..Pointer::HOLE },
                block: 0,
                target: &mut [],
            })
            .collect();
        into_reads(&mut wanted).iter().map(|read| (read[0].pointer.place.0, read.len())).collect()
    }

    #[test]
    fn what_lies_near_is_read_together_and_no_read_is_too_long() {
        assert_eq!(reads_of(&[]), []);
        // A block that several share is there twice.
        assert_eq!(reads_of(&[5, 5, 6, 6 + GAP_BLOCKS + 1, 100]), [(5, 4), (100, 1)]);
        assert_eq!(reads_of(&[5, 5 + GAP_BLOCKS + 2]), [(5, 1), (5 + GAP_BLOCKS + 2, 1)]);
        let all: Vec<u64> = (7..7 + 2 * READ_BLOCKS_MAX + 1).collect();
        let most = READ_BLOCKS_MAX as usize;
        assert_eq!(reads_of(&all), [(7, most), (7 + READ_BLOCKS_MAX, most), (7 + 2 * READ_BLOCKS_MAX, 1)]);
    }
}
