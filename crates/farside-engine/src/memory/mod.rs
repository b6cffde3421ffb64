//! An engine in memory, for tests: it has every capability, or lacks those it is told to lack. It counts what is read, fails on
//! request, and dies at any step of what it is asked to do.
//!
//! Everything but what is written to a staged version is durable at once. Each change is one record: it dies before or after.

mod capabilities;
mod engine;
mod faults;
pub mod fixture;
mod image;
mod known;
mod staged;
mod volume;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use uuid::Uuid;

pub use self::faults::Faults;
use self::faults::Steps;
use self::image::Image;
use self::known::{Known, known_of};
use self::volume::Volume;
use crate::{BLOCK_BYTES, Capability, ChangeKind, EngineError, KnownDataScope, VolumeName};

/// What an engine in memory is like.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// What it has not.
    pub lacks: Vec<Capability>,
    /// Blocks that a difference names together where one of them was written; 1: it is exact.
    pub difference_blocks: u64,
}

impl Default for MemoryOptions {
    /// It has everything, and is exact.
    fn default() -> MemoryOptions {
        MemoryOptions { lacks: Vec::new(), difference_blocks: 1 }
    }
}

/// The engine: one process that has its storage open. Clones are the same process.
#[derive(Clone)]
pub struct MemoryEngine {
    options: Arc<MemoryOptions>,
    medium: Arc<Mutex<Medium>>,
    /// Which of those that opened the storage this is; the newest has it.
    owner: u64,
    /// What it does wrong.
    pub faults: Arc<Mutex<Faults>>,
    steps: Arc<Mutex<Steps>>,
    reads: Arc<AtomicU64>,
    /// Bytes of data written to staged versions, crashes or not.
    staged_writes: Arc<AtomicU64>,
}

/// What is stored.
#[derive(Clone, Default)]
struct Medium {
    owner: u64,
    volumes: HashMap<VolumeName, Volume>,
    /// Volumes and staged versions that were made so far.
    made: u64,
    /// What was last looked up, and in which snapshots.
    known: Option<(Vec<Uuid>, Arc<Known>)>,
}

impl Medium {
    fn volume(&mut self, name: &VolumeName) -> Result<&mut Volume, EngineError> {
        let not_found = || EngineError::NotFound { what: format!("volume {name}") };
        self.volumes.get_mut(name).ok_or_else(not_found)
    }

    fn next_number(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    /// Everything that was published in a replica of the peer.
    fn known(&mut self, scope: &KnownDataScope) -> Arc<Known> {
        let is_theirs = |volume: &&Volume| volume.record.as_ref().is_some_and(|r| r.peer == scope.peer);
        let theirs = || self.volumes.values().filter(is_theirs).flat_map(|volume| &volume.snapshots);
        let mut ids: Vec<Uuid> = theirs().map(|snapshot| snapshot.info.uuid).collect();
        ids.sort();
        if let Some((_, known)) = self.known.as_ref().filter(|(of, _)| *of == ids) {
            return known.clone();
        }
        let known = Arc::new(known_of(theirs().map(|snapshot| &snapshot.image)));
        self.known = Some((ids, known.clone()));
        known
    }
}

impl MemoryEngine {
    /// With empty storage.
    pub fn new(options: MemoryOptions) -> MemoryEngine {
        MemoryEngine::on(Medium::default(), Arc::new(options))
    }

    fn on(medium: Medium, options: Arc<MemoryOptions>) -> MemoryEngine {
        MemoryEngine {
            options,
            owner: medium.owner,
            medium: Arc::new(Mutex::new(medium)),
            faults: Arc::default(),
            steps: Arc::default(),
            reads: Arc::default(),
            staged_writes: Arc::default(),
        }
    }

    /// Bytes of data read from snapshots so far.
    pub fn read_bytes(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// Bytes of data written to staged versions so far: what arrived, again or for the first time.
    pub fn staged_write_bytes(&self) -> u64 {
        self.staged_writes.load(Ordering::SeqCst)
    }

    /// A host writes whole blocks.
    pub fn write_as_host(&self, volume: &VolumeName, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.as_host(volume, |image| {
            image.check(offset, bytes.len() as u64)?;
            image.write(offset, bytes);
            Ok(())
        })
    }

    /// A host trims whole blocks.
    pub fn trim_as_host(&self, volume: &VolumeName, offset: u64, length: u64) -> Result<(), EngineError> {
        self.as_host(volume, |image| {
            image.check(offset, length)?;
            image.discard(offset, length);
            Ok(())
        })
    }

    fn as_host(
        &self,
        volume: &VolumeName,
        work: impl FnOnce(&mut Image) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.with(volume, |volume| {
            if volume.record.as_ref().is_some_and(|record| !record.broken_off) {
                return Err(EngineError::Refused("it is a replica: read-only to hosts".into()));
            }
            work(&mut volume.live)?;
            volume.is_written = true;
            Ok(())
        })
    }

    /// What hosts see.
    pub fn read_as_host(
        &self,
        volume: &VolumeName,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        self.with(volume, |volume| {
            volume.live.read(offset, buffer);
            Ok(())
        })
    }

    /// A person gives the volume another size.
    pub fn resize_volume(&self, volume: &VolumeName, size_bytes: u64) -> Result<(), EngineError> {
        self.with(volume, |volume| {
            volume.live.resize(size_bytes);
            Ok(())
        })
    }

    /// Whether anything is staged of a volume.
    pub fn has_staged(&self, volume: &VolumeName) -> bool {
        self.with(volume, |volume| Ok(volume.staged.is_some())).unwrap_or(false)
    }

    /// The process dies, if it has not yet, and another opens what it left. A staged version is as it was last made durable, or, as
    /// `fate` has it, as it was last.
    pub fn crash(&self, fate: u64) -> MemoryEngine {
        self.faults.lock().is_dead = true;
        let mut medium = self.medium.lock().clone();
        medium.known = None;
        for staged in medium.volumes.values_mut().filter_map(|volume| volume.staged.as_mut()) {
            if !fate.is_multiple_of(4) {
                staged.image = staged.saved.clone();
            }
        }
        MemoryEngine {
            staged_writes: self.staged_writes.clone(),
            ..MemoryEngine::on(medium, self.options.clone())
        }
    }

    /// Another process takes the storage, while this one lives: from then on this one is refused everything.
    pub fn taken_over(&self) -> MemoryEngine {
        let mut medium = self.medium.lock();
        medium.owner += 1;
        MemoryEngine {
            owner: medium.owner,
            medium: self.medium.clone(),
            ..MemoryEngine::on(Medium::default(), self.options.clone())
        }
    }

    /// The process dies at this step of those that come: 0 is the next.
    pub fn dies_at(&self, step: usize) {
        *self.steps.lock() = Steps::until(step);
    }

    /// The step at which it died.
    pub fn died_at(&self) -> Option<String> {
        self.steps.lock().died_at.clone()
    }

    /// Writes to what is staged, as no transfer would.
    ///
    /// # Panics
    /// If nothing is staged.
    pub fn spoil_staged(&self, volume: &VolumeName) {
        self.always(volume, |volume| {
            let staged = volume.staged.as_mut().expect("something is staged");
            let position = *staged.image.blocks.keys().next_back().expect("it holds something");
            staged.image.write(position * BLOCK_BYTES, &[0xdd; BLOCK_BYTES as usize]);
            staged.saved = staged.image.clone();
        });
    }

    /// Damages a snapshot where no read will see it: an altered identity.
    ///
    /// # Panics
    /// If there is no such snapshot.
    pub fn alter_snapshot(&self, volume: &VolumeName, snapshot: Uuid) {
        self.always(volume, |volume| {
            let found = volume.snapshots.iter_mut().find(|s| s.info.uuid == snapshot);
            found.expect("it is there").image.write(0, &[0xee; BLOCK_BYTES as usize]);
        });
    }

    fn always(&self, name: &VolumeName, work: impl FnOnce(&mut Volume)) {
        work(self.medium.lock().volume(name).expect("it is there"));
    }

    fn has(&self, capability: Capability) -> bool {
        !self.options.lacks.contains(&capability)
    }

    /// What is stored, as long as this process lives and has it.
    fn with_all<T>(
        &self,
        work: impl FnOnce(&mut Medium) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.check_alive()?;
        let mut medium = self.medium.lock();
        if medium.owner != self.owner {
            return Err(EngineError::Io("another process has taken this storage".into()));
        }
        work(&mut medium)
    }

    fn with<T>(
        &self,
        name: &VolumeName,
        work: impl FnOnce(&mut Volume) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.with_all(|medium| work(medium.volume(name)?))
    }

    /// Makes one durable change; it may be its last.
    fn change_all<T>(
        &self,
        what: &str,
        work: impl FnOnce(&mut Medium) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.step(what, "before it is recorded")?;
        let done = self.with_all(work)?;
        self.step(what, "after it was recorded")?;
        Ok(done)
    }

    fn change<T>(
        &self,
        what: &str,
        name: &VolumeName,
        work: impl FnOnce(&mut Volume) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.change_all(what, |medium| work(medium.volume(name)?))
    }

    fn step(&self, what: &str, moment: &str) -> Result<(), EngineError> {
        if self.steps.lock().pass(what, moment) {
            self.faults.lock().is_dead = true;
        }
        self.check_alive()
    }

    /// Bytes of data that are staged now, beside what the bases hold.
    fn staged_bytes(&self) -> u64 {
        let medium = self.medium.lock();
        let of = |volume: &Volume| {
            let staged = volume.staged.as_ref()?;
            let changes = Image::changes(&volume.base_image(staged.base).ok()?, &staged.image, 1);
            Some(changes.iter().filter(|c| c.kind == ChangeKind::Data).map(|c| c.length).sum::<u64>())
        };
        medium.volumes.values().filter_map(of).sum()
    }

    /// Counts a read of a snapshot, and lets happen to it what shall.
    fn spoil_read(&self, snapshot: Uuid, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.reads.fetch_add(buffer.len() as u64, Ordering::SeqCst);
        let faults = self.faults.lock();
        if faults.flip_reads_of == Some(snapshot) {
            buffer[0] ^= 1;
        }
        if faults.fail_reads_of == Some(snapshot) {
            return Err(EngineError::Corrupt(format!(
                "block {} does not match its fingerprint",
                offset / BLOCK_BYTES
            )));
        }
        Ok(())
    }

    fn check_alive(&self) -> Result<(), EngineError> {
        if self.faults.lock().is_dead { Err(EngineError::Io("the machine is off".into())) } else { Ok(()) }
    }
}
