//! Data of small writes on its way to the device.
//!
//! A volume promises nothing of what is not flushed, and each block has a place of its own that nobody else writes. So small writes are
//! answered once they are in memory, and go to the device together: by the next flush, in one call with the journal's batch; by
//! the pool's own thread, once there are many; by a writer that finds too many. A hundred scattered writes lie side by side on
//! the device, and are a few long ones by then.
//!
//! Who reads finds them here. Whatever makes something durable writes them out first (`Pool::sync_device`), and if that
//! fails they stay, and are written again by the next: a flush that is answered later has all of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_format::Place;
use farside_platform::{BLOCK_BYTES, BlockBuffer, BlockDevice, DeviceError};
use parking_lot::Mutex;

/// Bytes of neighbouring blocks that do not wait: they are a good write by themselves, and copying them would cost more than it saves.
pub(crate) const WAITS_BELOW_BYTES: usize = 64 << 10;
/// Bytes of one write to the device.
const RUN_BYTES_MAX: usize = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

type DeviceResult = std::result::Result<(), DeviceError>;
/// Writes for [`BlockDevice::write_many`].
type Writes<'a> = Vec<(u64, Vec<&'a [u8]>)>;

/// Which way data comes from the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Past the system's memory: what is read once, and must not push out what hosts read again.
    Direct,
    /// By way of the system's memory, which keeps it while there is room.
    Remembering,
}

pub(crate) struct WriteBehind {
    device: Arc<dyn BlockDevice>,
    /// What waits: first place, bytes. None overlaps another, for a place is not given out again before two points, and each
    /// of them writes all of it out.
    waiting: Mutex<BTreeMap<u64, Arc<BlockBuffer>>>,
    /// Bytes that wait, or have been promised room.
    bytes: AtomicU64,
    /// Held by the one who writes out.
    turn: Mutex<()>,
}

/// Room for what is about to wait.
pub(crate) struct Promised<'a> {
    behind: &'a WriteBehind,
    bytes: u64,
}

impl Drop for Promised<'_> {
    fn drop(&mut self) {
        self.behind.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// What came of writing out together with the journal.
pub(crate) struct WrittenOut {
    pub(crate) journal: DeviceResult,
    pub(crate) data: DeviceResult,
}

impl WriteBehind {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> WriteBehind {
        WriteBehind { device, waiting: Mutex::default(), bytes: AtomicU64::new(0), turn: Mutex::new(()) }
    }

    /// Bytes that wait, or soon will.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// Room for so many bytes, and how many waited before.
    pub(crate) fn promise(&self, bytes: u64) -> (Promised<'_>, u64) {
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        (Promised { behind: self, bytes }, before)
    }

    /// The same if no more than `limit` wait then.
    pub(crate) fn promise_within(&self, bytes: u64, limit: u64) -> Option<Promised<'_>> {
        let add = |waiting: u64| waiting.checked_add(bytes).filter(|sum| *sum <= limit);
        self.bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(Promised { behind: self, bytes })
    }

    /// Has runs wait from now on. To be called before anybody can learn of their places.
    pub(crate) fn insert(&self, mut promised: Promised<'_>, runs: Vec<(Place, BlockBuffer)>) {
        let mut waiting = self.waiting.lock();
        for (place, bytes) in runs {
            debug_assert!(
                overlapping(&waiting, place.0, bytes.blocks() as u64).next().is_none(),
                "a place is written once"
            );
            promised.bytes =
                promised.bytes.checked_sub(bytes.len() as u64).expect("no more than was promised");
            waiting.insert(place.0, Arc::new(bytes));
        }
    }

    /// As [`BlockDevice::read_many`], of whole blocks; the other `way`, as [`BlockDevice::read_many_remembering`].
    pub(crate) fn read_many(&self, reads: &mut [(u64, &mut [u8])], way: Way) -> Vec<DeviceResult> {
        self.read_with(
            reads,
            || Ok(()),
            |others| match way {
                Way::Direct => self.device.read_many(others),
                Way::Remembering => self.device.read_many_remembering(others),
            },
        )
    }

    /// As [`BlockDevice::read_remembered`], of whole blocks.
    pub(crate) fn read_remembered(&self, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        self.read_with(reads, || true, |others| self.device.read_remembered(others))
    }

    /// Fills from what waits what it has, and has the device asked for the rest; `here` is the answer for what waits.
    fn read_with<T>(
        &self,
        reads: &mut [(u64, &mut [u8])],
        here: impl Fn() -> T,
        device: impl FnOnce(&mut [(u64, &mut [u8])]) -> Vec<T>,
    ) -> Vec<T> {
        // What is not here any more is on the device: it goes from here after it got there.
        if self.bytes() == 0 {
            return device(reads);
        }
        let found: Vec<Vec<(u64, Arc<BlockBuffer>)>> = {
            let waiting = self.waiting.lock();
            let found = reads.iter().map(|(offset, buffer)| {
                let found = overlapping(&waiting, offset / BLOCK, buffer.len().div_ceil(BLOCK_BYTES) as u64);
                found.map(|(first, bytes)| (first, Arc::clone(bytes))).collect()
            });
            found.collect()
        };
        let (numbers, mut others): (Vec<usize>, Vec<(u64, &mut [u8])>) = reads
            .iter_mut()
            .enumerate()
            .filter(|(number, (offset, buffer))| !covers(&found[*number], *offset, buffer.len()))
            .map(|(number, (offset, buffer))| (number, (*offset, &mut **buffer)))
            .unzip();
        let answers = if others.is_empty() { Vec::new() } else { device(&mut others) };
        let mut answers = numbers.into_iter().zip(answers).peekable();
        let outcomes = (0..reads.len())
            .map(|number| answers.next_if(|(of, _)| *of == number).map_or_else(&here, |(_, answer)| answer));
        let outcomes = outcomes.collect();
        for ((offset, buffer), found) in reads.iter_mut().zip(&found) {
            for (first, bytes) in found {
                let run_offset = first * BLOCK;
                let (from, to) = (
                    run_offset.max(*offset),
                    (run_offset + bytes.len() as u64).min(*offset + buffer.len() as u64),
                );
                let source = &bytes[(from - run_offset) as usize..(to - run_offset) as usize];
                buffer[(from - *offset) as usize..(to - *offset) as usize].copy_from_slice(source);
            }
        }
        outcomes
    }

    /// As [`BlockDevice::read_at`], of whole blocks.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.read_many(&mut [(offset, buffer)], Way::Direct).pop().expect("one for one")
    }

    /// Writes all that waits, and `journal` at the same time. What fails stays.
    pub(crate) fn write_out(&self, journal: Writes<'_>) -> WrittenOut {
        let _turn = self.turn.lock();
        let runs: Vec<(u64, Arc<BlockBuffer>)> =
            self.waiting.lock().iter().map(|(first, bytes)| (*first, Arc::clone(bytes))).collect();
        let journal_writes = journal.len();
        let mut writes = journal;
        let mut counts = Vec::new();
        for (first, bytes) in &runs {
            let offset = first * BLOCK;
            match writes[journal_writes..].last_mut().zip(counts.last_mut()) {
                Some(((from, pieces), count))
                    if *from + length(pieces) as u64 == offset
                        && length(pieces) + bytes.len() <= RUN_BYTES_MAX =>
                {
                    pieces.push(&bytes[..]);
                    *count += 1;
                }
                _ => {
                    writes.push((offset, vec![&bytes[..]]));
                    counts.push(1);
                }
            }
        }
        let mut outcomes = self.device.write_many(&writes).into_iter();
        let journal = outcomes.by_ref().take(journal_writes).fold(Ok(()), DeviceResult::and);
        let mut data = Ok(());
        let mut waiting = self.waiting.lock();
        let mut runs = runs.iter();
        for (outcome, count) in outcomes.zip(counts) {
            for (first, bytes) in runs.by_ref().take(count) {
                if outcome.is_ok() && waiting.remove(first).is_some() {
                    self.bytes.fetch_sub(bytes.len() as u64, Ordering::AcqRel);
                }
            }
            data = data.and(outcome);
        }
        WrittenOut { journal, data }
    }
}

fn length(pieces: &[&[u8]]) -> usize {
    pieces.iter().map(|piece| piece.len()).sum()
}

/// The runs that have some of so many places, from the last to the first.
fn overlapping(
    waiting: &BTreeMap<u64, Arc<BlockBuffer>>,
    first: u64,
    count: u64,
) -> impl Iterator<Item = (u64, &Arc<BlockBuffer>)> {
    let before = waiting.range(..first + count).rev();
    before.map(|(at, bytes)| (*at, bytes)).take_while(move |(at, bytes)| at + bytes.blocks() as u64 > first)
}

/// Whether runs, none of which overlaps another, have all of these bytes.
fn covers(found: &[(u64, Arc<BlockBuffer>)], offset: u64, length: usize) -> bool {
    let end = offset + length as u64;
    let inside = found.iter().map(|(first, bytes)| {
        let from = first * BLOCK;
        (from + bytes.len() as u64).min(end) - from.max(offset)
    });
    inside.sum::<u64>() == length as u64
}
