//! A scrub: everything that is alive is read once and compared with what points at it, while hosts read and write.
//!
//! **What is read.** All that was there when it began (births up to [`ScrubPosition::until`]): data blocks and nodes of every volume,
//! snapshot and staged version, both copies of what has two; catalog, free map and owner counts; both superblocks. What is written
//! meanwhile is left to the next scrub. The journal is not read: what it holds is in the trees after the point with which a scrub begins.
//!
//! **Once.** Versions come oldest first, and of each only what its nearest ancestor that is done has not: births tell. Snapshots that
//! are deleted on the way would let their descendants begin anew; so a bit for each place says what was read (`seen.rs`).
//!
//! **In the order of the medium.** Up to 131,072 blocks (512 MiB) of a version are looked up, sorted by place, and read in runs.
//!
//! **No lock is held while the device is read.** A place can be freed and used again meanwhile. So what fails is looked at again
//! under the current map, with a lock that keeps places from being used again, for one block at a time (`look_again.rs`). Only what
//! some version still has there, and what is still wrong, is damaged.
//!
//! **Memory**, whatever the pool's size: 64 MiB of bits (2 TiB of what is in use; beyond, only births tell), 12 MiB of blocks in order, 1 MiB
//! of data, 40 bytes for each version, and what is told of damage ([`SCRUB_DAMAGE_MAX`]).

mod findings;
mod look_again;
mod pool_wide;
mod seen;
mod walk;

use std::collections::HashSet;
use std::sync::Arc;

use farside_format::{Birth, Fingerprint};
use farside_platform::{BLOCK_BYTES, BlockBuffer};

pub use findings::{DamageKind, SCRUB_DAMAGE_MAX, ScrubDamage, ScrubFindings, SecondCopies};
use seen::Seen;

use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};
use crate::versions::VersionState;

/// Blocks looked up before they are read in the order of the medium.
const BATCH_BLOCKS: usize = 131_072;
/// Blocks of one read of the device at most: a host waits for one of these, not for more.
const READ_BLOCKS_MAX: u64 = 256;
/// Blocks between two that are read along rather than passed over, as in `scattered.rs`.
const GAP_BLOCKS: u64 = 8;
/// How often a place is read before it counts as damaged.
const READ_TRIES: usize = 3;

/// How far a scrub is: enough to go on after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ScrubPosition {
    /// The birth epoch up to which things are read.
    pub until: u64,
    /// Whether the pool's own structures have been read.
    pub pool_wide_done: bool,
    /// The version under way, 0 for none; those that come before it in order are done.
    pub version: u64,
    /// Its place in the order: snapshots that were there at the beginning, what is written, snapshots made since.
    pub class: u8,
    /// When it was frozen; the highest number for what is written.
    pub age: u64,
    /// Everything of it that lies before this block has been read.
    pub block: u64,
}

/// A scrub under way. It does nothing by itself: [`Scrub::step`] goes on.
pub struct Scrub {
    pool: Arc<Pool>,
    until: Birth,
    stage: Stage,
    finished: HashSet<u64>,
    current: Option<Current>,
    /// The one before it.
    last: Option<Current>,
    /// Whether the step under way holds the maintenance lock, so that no point changes trees.
    is_still: bool,
    /// Bytes read meanwhile, of which nobody was told.
    untold_bytes: u64,
    /// Versions made after everything that could hold what is not read yet: they need not be looked at.
    limit: Option<u64>,
    seen: Seen,
    batch: Vec<Block>,
    batch_blocks: usize,
    /// How many of the batch have been read.
    batch_read: usize,
    /// Places in the batch that have several owners.
    batch_shared: HashSet<u64>,
    /// Damaged places, as far as they are remembered.
    damaged: HashSet<u64>,
    /// Steps that found the map changed under them, one after the other.
    restarts: u32,
    read_bytes: u64,
    findings: ScrubFindings,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    PoolWide,
    Volumes,
    Done,
}

/// The version under way.
#[derive(Clone, Copy, Debug)]
struct Current {
    version: u64,
    class: u8,
    age: u64,
    /// Where the batch begins.
    batch_from: u64,
    /// Where the next one does; none at the end.
    next: Option<u64>,
}

/// A data block to be read.
#[derive(Clone, Copy, Debug)]
struct Block {
    place: u64,
    fingerprint: Fingerprint,
    family: u64,
    block: u64,
}

impl Pool {
    /// Begins a scrub. A consistency point comes first, so that what is there is in the trees.
    ///
    /// # Errors
    /// [`StoreError::Failed`] of a pool that accepts no changes, and those of the device.
    pub fn begin_scrub(self: &Arc<Self>) -> Result<Scrub> {
        match self.consistency_point() {
            // What is in the newest point is read all the same.
            Ok(()) | Err(StoreError::NoRoomForPoint { .. }) => {}
            Err(error) => return Err(error),
        }
        let until = self.locked().epoch.0 - 1;
        self.resume_scrub(ScrubPosition { until, ..ScrubPosition::default() }, ScrubFindings::default())
    }

    /// Goes on with a scrub that ended before its end: with what it had found, from where it was.
    ///
    /// # Errors
    /// As [`Pool::begin_scrub`].
    pub fn resume_scrub(self: &Arc<Self>, position: ScrubPosition, findings: ScrubFindings) -> Result<Scrub> {
        self.check_usable()?;
        let mut scrub = Scrub {
            pool: Arc::clone(self),
            until: Birth(position.until),
            stage: if position.pool_wide_done { Stage::Volumes } else { Stage::PoolWide },
            finished: HashSet::new(),
            current: None,
            last: None,
            is_still: false,
            untold_bytes: 0,
            limit: None,
            seen: Seen::default(),
            batch: Vec::new(),
            batch_blocks: BATCH_BLOCKS,
            batch_read: 0,
            batch_shared: HashSet::new(),
            damaged: HashSet::new(),
            restarts: 0,
            read_bytes: 0,
            findings,
        };
        if position.version == 0 {
            return Ok(scrub);
        }
        let at = (position.class, position.age, position.version);
        let state = self.locked();
        for version in state.versions.versions.values() {
            // Of snapshots made since nobody knows whether they were done.
            let (class, age, id) = scrub.order(version);
            if class < 2 && (class, age, id) < at {
                scrub.finished.insert(id);
            }
        }
        if let Some(version) = state.versions.versions.get(&position.version).filter(|v| !v.deleted) {
            let (class, age, version) = scrub.order(version);
            let (batch_from, next) = (position.block, Some(position.block));
            scrub.current = Some(Current { version, class, age, batch_from, next });
        }
        drop(state);
        Ok(scrub)
    }

    /// What a scrub will read, about: what is in use.
    pub fn scrub_bytes(&self) -> u64 {
        let status = self.status();
        let fixed = farside_format::superblock::JOURNAL_START + self.journal_blocks;
        let other = status.free_bytes + status.waiting_bytes + status.withheld_bytes + status.reserved_bytes;
        status.size_bytes.saturating_sub(other + fixed * BLOCK_BYTES as u64)
    }
}

impl Scrub {
    /// Goes on by at most a MiB of data, or some nodes; false once everything has been read. `pace` is told of every read, by its bytes,
    /// with no lock held: it may wait.
    ///
    /// # Errors
    /// The pool accepts no changes any more, or contradicts itself. What cannot be read is no error, but a finding.
    pub fn step(&mut self, pace: &mut dyn FnMut(u64)) -> Result<bool> {
        self.pool.check_usable()?;
        match self.stage {
            Stage::PoolWide => {
                self.pool_wide(pace)?;
                self.stage = Stage::Volumes;
            }
            Stage::Volumes if self.batch_read < self.batch.len() => self.read_run(pace)?,
            Stage::Volumes => {
                self.batch = Vec::new();
                self.batch_read = 0;
                self.batch_shared.clear();
                if !self.gather(pace)? {
                    self.stage = Stage::Done;
                }
            }
            Stage::Done => return Ok(false),
        }
        Ok(self.stage != Stage::Done)
    }

    /// With so many blocks at most in the order of the medium, and what one more node of the map has: less memory, and less to read once
    /// more after a crash.
    #[must_use]
    pub fn in_batches_of(self, blocks: usize) -> Scrub {
        Scrub { batch_blocks: blocks, ..self }
    }

    /// Blocks that are held to be read in the order of the medium: at most those of a batch, and 16,384 more.
    pub fn held_blocks(&self) -> usize {
        self.batch.len()
    }

    /// Where to go on after a crash: nothing that lies before has to be read again.
    pub fn position(&self) -> ScrubPosition {
        let mut position = ScrubPosition {
            until: self.until.0,
            pool_wide_done: self.stage != Stage::PoolWide,
            ..ScrubPosition::default()
        };
        if let Some(at) = self.current.or(self.last) {
            position.version = at.version;
            position.class = at.class;
            position.age = at.age;
            let is_unread = self.batch_read < self.batch.len();
            position.block = if is_unread { at.batch_from } else { at.next.unwrap_or(u64::MAX) };
        }
        position
    }

    /// The version under way is no more, or is done.
    fn leave(&mut self) {
        let left = self.current.take().map(|left| Current { next: None, ..left });
        self.last = left.or(self.last);
    }

    /// Bytes read since it began, or went on.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// What was found so far.
    pub fn findings(&self) -> &ScrubFindings {
        &self.findings
    }

    /// Where a version comes in the order: ancestors first.
    fn order(&self, version: &VersionState) -> (u8, u64, u64) {
        let is_frozen = version.frozen != Birth(0);
        let class = match is_frozen {
            true if version.frozen <= self.until => 0,
            true => 2,
            false => 1,
        };
        (class, version.age(), version.id)
    }

    /// The next version to be walked.
    fn next_version(&mut self) -> Option<Current> {
        let state = self.pool.locked();
        let left = state.versions.versions.values().filter(|v| {
            !v.deleted && !self.finished.contains(&v.id) && self.limit.is_none_or(|limit| v.id < limit)
        });
        let (class, age, version) = left.map(|v| self.order(v)).min()?;
        // Whoever is made from now on has what the volumes have, and these are done.
        if class == 2 && self.limit.is_none() {
            self.limit = Some(state.versions.next_id);
        }
        Some(Current { version, class, age, batch_from: 0, next: Some(0) })
    }

    /// Up to which birth an ancestor that is done has what `version` inherited.
    fn bound(&self, state: &State, version: &VersionState) -> Birth {
        let mut ancestor = state.versions.versions.get(&version.parent);
        while let Some(found) = ancestor {
            if self.finished.contains(&found.id) {
                return found.frozen;
            }
            ancestor = state.versions.versions.get(&found.parent);
        }
        Birth(0)
    }

    /// Reads the next blocks of the batch that lie near each other.
    fn read_run(&mut self, pace: &mut dyn FnMut(u64)) -> Result<()> {
        let left = &self.batch[self.batch_read..];
        let count = run(left.iter().map(|b| b.place));
        let run: Vec<Block> = left[..count].to_vec();
        self.batch_read += count;
        let first = run[0].place;
        let mut data = BlockBuffer::zeroed((run[count - 1].place - first + 1) as usize);
        let read = self.pool.behind.read_at(first * BLOCK_BYTES as u64, &mut data);
        self.read_bytes += data.len() as u64;
        pace(data.len() as u64);
        for block in run {
            let at = (block.place - first) as usize * BLOCK_BYTES;
            let is_sound =
                read.is_ok() && Fingerprint::of_block(&data[at..at + BLOCK_BYTES]) == block.fingerprint;
            if !is_sound {
                self.look_at_block_again(&block)?;
            }
        }
        Ok(())
    }
}

/// How many of these places, in ascending order, are read together.
fn run(places: impl Iterator<Item = u64> + Clone) -> usize {
    let Some(first) = places.clone().next() else { return 0 };
    let mut last = first;
    let near = places.take_while(|place| {
        let fits = *place <= last + GAP_BLOCKS + 1 && place - first < READ_BLOCKS_MAX;
        last = *place;
        fits
    });
    near.count()
}
