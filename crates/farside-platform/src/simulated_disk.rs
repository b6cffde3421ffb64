//! A disk in memory that forgets, tears and reorders what was not synced.
//!
//! It keeps the whole history of writes and syncs, so that a test can ask for the medium as a power failure
//! would have left it at *any* moment of a run. Rules, those of [`crate::device`]: a write that finished before a
//! returned sync began is on the medium; any other may be there, missing, or torn at 512-byte sectors, each
//! independently of the others, so that a later write can be kept while an earlier one is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::block::BLOCK_BYTES;
use crate::device::{BlockDevice, DeviceError};
use crate::simulated_failures::{Failing, Failure, Requests};

/// The unit below which this disk never tears a write.
const SECTOR_BYTES: usize = 512;

/// What a power failure does to writes that no sync vouched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashFate {
    /// All of them are lost.
    DropUnsynced,
    /// All of them are kept.
    KeepUnsynced,
    /// Each is kept, lost or torn at sectors by chance, from this seed; two that overlap may land in either order.
    Random(u64),
}

#[derive(Clone)]
enum Event {
    Write {
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Damage {
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Sync,
    /// A sync failed, and this is all that is left.
    Forgot(Contents),
}

#[derive(Default)]
struct Counters {
    reads: u64,
    read_bytes: u64,
    failures: u64,
    syncs_begun: u64,
    syncs_since_one_failed: Option<u64>,
}

/// Block number to contents; absent blocks are zeros. Cheap to clone: contents are shared until written.
type Contents = BTreeMap<u64, Arc<[u8; BLOCK_BYTES]>>;

struct Inner {
    /// What a read sees.
    live: Contents,
    /// What was there when the history began, on the medium.
    initial: Contents,
    history: Vec<Event>,
    record: bool,
    failing: Option<Failing>,
    /// Blocks whose reads fail: how often yet, and with which error of the kernel.
    refusing: BTreeMap<u64, (u64, i32)>,
    counters: Counters,
}

impl Inner {
    fn empty() -> Inner {
        Inner {
            live: Contents::new(),
            initial: Contents::new(),
            history: Vec::new(),
            record: true,
            failing: None,
            refusing: BTreeMap::new(),
            counters: Counters::default(),
        }
    }
}

/// The simulated disk. Cheap to clone: clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    bytes: Arc<AtomicU64>,
    name: Arc<str>,
    inner: Arc<Mutex<Inner>>,
}

impl SimulatedDisk {
    /// A disk of zeros that records its history.
    pub fn new(name: &str, bytes: u64) -> Self {
        assert_eq!(bytes % BLOCK_BYTES as u64, 0, "a disk is made of whole blocks");
        SimulatedDisk {
            bytes: Arc::new(bytes.into()),
            name: name.into(),
            inner: Arc::new(Mutex::new(Inner::empty())),
        }
    }

    /// Stops recording: for long runs that crash only by [`SimulatedDisk::image`] of the present.
    pub fn without_history(self) -> Self {
        self.inner.lock().record = false;
        self
    }

    /// Events (writes and syncs) so far; the argument of [`SimulatedDisk::crash_at`] goes up to it.
    pub fn events(&self) -> usize {
        self.inner.lock().history.len()
    }

    /// The event numbers right after each sync.
    pub fn sync_points(&self) -> Vec<usize> {
        let inner = self.inner.lock();
        inner
            .history
            .iter()
            .enumerate()
            .filter(|(_, e)| matches!(e, Event::Sync))
            .map(|(i, _)| i + 1)
            .collect()
    }

    /// Event numbers of the writes that touched byte `at`: where a surprising byte came from.
    pub fn writes_touching(&self, at: u64) -> Vec<usize> {
        let touches = |e: &Event| matches!(e, Event::Write { offset, bytes } if (*offset..offset + bytes.len() as u64).contains(&at));
        self.inner.lock().history.iter().enumerate().filter(|(_, e)| touches(e)).map(|(i, _)| i).collect()
    }

    /// A new disk holding what a power failure after the first `events` events would have left, given `fate`.
    /// The disk starts a history of its own.
    pub fn crash_at(&self, events: usize, fate: CrashFate) -> SimulatedDisk {
        let inner = self.inner.lock();
        let history = &inner.history[..events];
        let disk = SimulatedDisk::new(&self.name, self.bytes());
        {
            let mut after = disk.inner.lock();
            after.live = left_by(&inner.initial, history, fate);
            after.initial = after.live.clone();
        }
        disk
    }

    /// A power failure now.
    pub fn crash(&self, fate: CrashFate) -> SimulatedDisk {
        self.crash_at(self.events(), fate)
    }

    /// A copy of what reads see now, with a history of its own.
    pub fn image(&self) -> SimulatedDisk {
        let disk = SimulatedDisk::new(&self.name, self.bytes());
        let live = self.inner.lock().live.clone();
        *disk.inner.lock() = Inner { initial: live.clone(), live, ..Inner::empty() };
        disk
    }

    /// Overwrites bytes behind the pool's back: damage.
    pub fn damage(&self, offset: u64, bytes: &[u8]) {
        let mut inner = self.inner.lock();
        store(&mut inner.live, offset, bytes);
        // It is on the medium, synced or not: a later crash does not heal it.
        if inner.record {
            inner.history.push(Event::Damage { offset, bytes: bytes.into() });
        }
    }

    /// Reads behind the pool's back.
    pub fn peek(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        load(&self.inner.lock().live, offset, &mut bytes);
        bytes
    }

    /// Every request after the next `requests` fails, until called with `None`.
    pub fn fail_after(&self, requests: Option<u64>) {
        self.fail(requests.map(|after| Failing {
            requests: Requests::All,
            after,
            times: u64::MAX,
            failure: Failure::Io,
        }));
    }

    /// From now on requests fail by this plan, or none does; what was left of the last one.
    pub fn fail(&self, plan: Option<Failing>) -> Option<Failing> {
        std::mem::replace(&mut self.inner.lock().failing, plan)
    }

    /// Requests that a plan has let fail so far.
    pub fn failures(&self) -> u64 {
        self.inner.lock().counters.failures
    }

    /// Syncs that were asked for so far, those that failed included.
    pub fn syncs_begun(&self) -> u64 {
        self.inner.lock().counters.syncs_begun
    }

    /// Syncs that were asked for after the last one that failed; none if none failed.
    pub fn syncs_since_one_failed(&self) -> Option<u64> {
        self.inner.lock().counters.syncs_since_one_failed
    }

    /// The next `times` reads that touch the block at `offset` fail with the error number `errno` of the kernel. Images and
    /// what crashes leave do not inherit this.
    pub fn refuse_reads(&self, offset: u64, times: u64, errno: i32) {
        self.inner.lock().refusing.insert(offset / BLOCK_BYTES as u64, (times, errno));
    }

    /// How many of those failures are still to come, over all blocks.
    pub fn refusals_left(&self) -> u64 {
        self.inner.lock().refusing.values().map(|(times, _)| times).sum()
    }

    /// Read requests and bytes so far: tests assert what an operation cost.
    pub fn reads(&self) -> (u64, u64) {
        let inner = self.inner.lock();
        (inner.counters.reads, inner.counters.read_bytes)
    }

    fn check(&self, offset: u64, length: usize) -> Result<(), DeviceError> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(DeviceError::OutOfRange {
                offset,
                length,
                device: self.name(),
                device_bytes: self.bytes(),
            }),
        }
    }

    fn io_error(
        &self,
        operation: &'static str,
        offset: u64,
        length: usize,
        source: std::io::Error,
    ) -> DeviceError {
        DeviceError::Io { operation, offset, length, device: self.name(), source }
    }
}

impl Inner {
    /// Whether the next request of this kind fails, and how.
    fn next_failure(&mut self, kind: Requests) -> Option<Failure> {
        let failure = self.failing.as_mut()?.next(kind)?;
        self.counters.failures += 1;
        Some(failure)
    }
}

/// What a request does of which only a part is done.
fn first_half(length: usize) -> usize {
    length / 2 / SECTOR_BYTES * SECTOR_BYTES
}

impl BlockDevice for SimulatedDisk {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    /// It has always been as long as it is: no history of that is kept.
    fn grow(&self, bytes: u64) -> Result<(), DeviceError> {
        if let Some(failure) = self.inner.lock().next_failure(Requests::Writes) {
            return Err(self.io_error("grow", bytes, 0, failure.error(Requests::Writes)));
        }
        self.bytes.fetch_max(bytes, Ordering::AcqRel);
        Ok(())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, buffer.len())?;
        let mut inner = self.inner.lock();
        if let Some(failure) = inner.next_failure(Requests::Reads) {
            if failure == Failure::Short {
                let half = first_half(buffer.len());
                load(&inner.live, offset, &mut buffer[..half]);
            }
            return Err(self.io_error("read", offset, buffer.len(), failure.error(Requests::Reads)));
        }
        let end = (offset + buffer.len() as u64).div_ceil(BLOCK_BYTES as u64);
        let mut touched = inner.refusing.range_mut(offset / BLOCK_BYTES as u64..end);
        if let Some((_, (times, errno))) = touched.find(|(_, (times, _))| *times > 0) {
            *times = times.saturating_sub(u64::from(*times != u64::MAX));
            let source = std::io::Error::from_raw_os_error(*errno);
            return Err(self.io_error("read", offset, buffer.len(), source));
        }
        inner.counters.reads += 1;
        inner.counters.read_bytes += buffer.len() as u64;
        load(&inner.live, offset, buffer);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, bytes.len())?;
        let mut inner = self.inner.lock();
        let failure = inner.next_failure(Requests::Writes);
        let done = match failure {
            None => bytes,
            Some(Failure::Short) => &bytes[..first_half(bytes.len())],
            Some(_) => &[],
        };
        if !done.is_empty() {
            store(&mut inner.live, offset, done);
            if inner.record {
                inner.history.push(Event::Write { offset, bytes: done.into() });
            }
        }
        match failure {
            None => Ok(()),
            Some(failure) => {
                Err(self.io_error("write", offset, bytes.len(), failure.error(Requests::Writes)))
            }
        }
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut inner = self.inner.lock();
        inner.counters.syncs_begun += 1;
        inner.counters.syncs_since_one_failed = inner.counters.syncs_since_one_failed.map(|syncs| syncs + 1);
        if let Some(failure) = inner.next_failure(Requests::Syncs) {
            inner.counters.syncs_since_one_failed = Some(0);
            if let (Failure::Forgets(seed), true) = (failure, inner.record) {
                let left = left_by(&inner.initial, &inner.history, CrashFate::Random(seed));
                inner.live = left.clone();
                inner.history.push(Event::Forgot(left));
            }
            return Err(self.io_error("sync", 0, 0, failure.error(Requests::Syncs)));
        }
        if inner.record {
            inner.history.push(Event::Sync);
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}

/// What a history over `initial` leaves on the medium.
fn left_by(initial: &Contents, history: &[Event], fate: CrashFate) -> Contents {
    let vouched_for = |event: &Event| matches!(event, Event::Sync | Event::Forgot(_));
    let synced = history.iter().rposition(vouched_for).map_or(0, |i| i + 1);
    let mut left = initial.clone();
    for event in &history[..synced] {
        match event {
            Event::Write { offset, bytes } | Event::Damage { offset, bytes } => {
                store(&mut left, *offset, bytes)
            }
            Event::Forgot(rest) => left = rest.clone(),
            Event::Sync => {}
        }
    }
    let (damage, mut unsynced): (Vec<&Event>, Vec<&Event>) =
        history[synced..].iter().partition(|e| matches!(e, Event::Damage { .. }));
    match fate {
        CrashFate::DropUnsynced => {}
        CrashFate::KeepUnsynced => {
            for event in unsynced {
                if let Event::Write { offset, bytes } = event {
                    store(&mut left, *offset, bytes);
                }
            }
        }
        CrashFate::Random(seed) => {
            let mut rng = SmallRng::seed_from_u64(seed);
            for i in (1..unsynced.len()).rev() {
                unsynced.swap(i, rng.random_range(0..=i));
            }
            for event in unsynced {
                let Event::Write { offset, bytes } = event else { continue };
                match rng.random_range(0..4) {
                    0 => {}
                    1 | 2 => store(&mut left, *offset, bytes),
                    _ => {
                        for (i, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                            if rng.random_bool(0.5) {
                                store(&mut left, offset + (i * SECTOR_BYTES) as u64, sector);
                            }
                        }
                    }
                }
            }
        }
    }
    for event in damage {
        if let Event::Damage { offset, bytes } = event {
            store(&mut left, *offset, bytes);
        }
    }
    left
}

fn load(live: &Contents, offset: u64, buffer: &mut [u8]) {
    each_piece(offset, buffer.len(), |block, within, range| match live.get(&block) {
        Some(contents) => buffer[range.clone()].copy_from_slice(&contents[within..within + range.len()]),
        None => buffer[range].fill(0),
    });
}

fn store(live: &mut Contents, offset: u64, bytes: &[u8]) {
    each_piece(offset, bytes.len(), |block, within, range| {
        let contents = live.entry(block).or_insert_with(|| Arc::new([0; BLOCK_BYTES]));
        Arc::make_mut(contents)[within..within + range.len()].copy_from_slice(&bytes[range]);
    });
}

/// Cuts `length` bytes at `offset` at block boundaries: (block, offset within it, range of the request).
fn each_piece(offset: u64, length: usize, mut f: impl FnMut(u64, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        let within = (at % BLOCK_BYTES as u64) as usize;
        let take = (BLOCK_BYTES - within).min(length - done);
        f(at / BLOCK_BYTES as u64, within, done..done + take);
        done += take;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsynced_writes_may_vanish_and_synced_ones_never() {
        let disk = SimulatedDisk::new("d", 16 * 4096);
        disk.write_at(0, &[1; 4096]).unwrap();
        disk.sync().unwrap();
        disk.write_at(0, &[2; 4096]).unwrap();
        disk.write_at(4096, &[3; 4096]).unwrap();
        let dropped = disk.crash(CrashFate::DropUnsynced);
        assert_eq!(dropped.peek(0, 1), [1]);
        assert_eq!(dropped.peek(4096, 1), [0]);
        let kept = disk.crash(CrashFate::KeepUnsynced);
        assert_eq!((kept.peek(0, 1), kept.peek(4096, 1)), (vec![2], vec![3]));
        let mut overtaken = false;
        for seed in 0..64 {
            let torn = disk.crash(CrashFate::Random(seed));
            overtaken |= torn.peek(0, 1) == [1] && torn.peek(4096, 1) == [3];
            for sector in torn.peek(0, 4096).chunks(512) {
                assert!(sector.iter().all(|&b| b == sector[0]), "torn inside a sector, seed {seed}");
            }
        }
        assert!(overtaken, "a later write must be able to survive an earlier one");
    }

    #[test]
    fn a_crash_of_a_crash_starts_from_what_the_first_left() {
        let disk = SimulatedDisk::new("d", 4 * 4096);
        disk.write_at(0, &[1; 4096]).unwrap();
        disk.sync().unwrap();
        let once = disk.crash(CrashFate::DropUnsynced);
        once.write_at(4096, &[2; 4096]).unwrap();
        once.damage(8192, &[3; 512]);
        let twice = once.crash(CrashFate::DropUnsynced);
        assert_eq!((twice.peek(0, 1), twice.peek(4096, 1), twice.peek(8192, 1)), (vec![1], vec![0], vec![3]));
    }

    #[test]
    fn crash_at_every_sync_sees_its_prefix() {
        let disk = SimulatedDisk::new("d", 4096);
        for i in 1..=3 {
            disk.write_at(0, &[i; 4096]).unwrap();
            disk.sync().unwrap();
        }
        let seen: Vec<_> = disk
            .sync_points()
            .iter()
            .map(|&p| disk.crash_at(p, CrashFate::DropUnsynced).peek(7, 1)[0])
            .collect();
        assert_eq!(seen, [1, 2, 3]);
    }
}
