//! The store: a ring of containers of a configured size, and the realms that share it.
//!
//! Everything may be called from many threads. One lock guards what is known of containers (`state.rs`). It is not held
//! while chunks or directories are read and written for a stream. It is while a container begins, closes or goes, and while
//! the records of one that a killed process left behind are read. Lock order: state, then a growing container.
//!
//! Realms share the store equally (`shares.rs`). A disk that is full before the store has its size is the same as a smaller store.

mod body;
mod directory;
mod listeners;
mod news;
mod realm;
mod shared;
mod shares;
mod similar;
mod slot;
mod state;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_platform::{Clock, SystemClock};
use parking_lot::Mutex;
use quick_cache::sync::Cache;

use crate::container::CONTAINER_BYTES;
use crate::cut::CHUNK_AVERAGE;
use crate::error::ChunkError;
use crate::index::{Index, SLOTS_MAX};
use crate::name::{OriginId, RealmId};
use directory::Directory;
use shared::Shared;
use similar::Similar;
use state::State;

pub use body::Cursor;
pub use news::News;
pub use realm::Realm;

/// The smallest size of a store, bytes: four containers.
pub const STORE_MIN: u64 = 64 << 20;
/// The largest: as many whole containers as locations can tell apart.
pub const STORE_MAX: u64 = SLOTS_MAX as u64 * CONTAINER_BYTES as u64;
/// Directories that are kept in memory, 100 KB each at most: what is being named and read.
const DIRECTORIES: usize = 256;

/// What a store may use.
#[derive(Clone, Copy, Debug)]
pub struct StoreSettings {
    /// Of all containers together, bytes; at least [`STORE_MIN`].
    pub bytes: u64,
}

/// What a store has and has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Of all containers, bytes.
    pub bytes: u64,
    /// What they may be.
    pub limit_bytes: u64,
    /// How many.
    pub containers: u64,
    /// Of which so many are not in the index yet.
    pub not_loaded: u64,
    /// Chunks that can be found.
    pub chunks: u64,
    /// Of the index, bytes.
    pub index_bytes: u64,
    /// Chunks that the index had no room for.
    pub forgotten: u64,
    /// Questions to the index.
    pub lookups: u64,
    /// Of which so many found a chunk.
    pub hits: u64,
    /// Containers that went to make room, in the store or on a full disk.
    pub evicted: u64,
    /// Containers that were removed because they were damaged.
    pub damaged: u64,
}

/// A chunk store in a directory of its own.
pub struct ChunkStore {
    shared: Arc<Shared>,
}

impl ChunkStore {
    /// Opens the store in `path`, which is made if it is not there. What it holds is known at once by name, and found
    /// by content as [`ChunkStore::load_next`] goes on.
    ///
    /// # Errors
    ///
    /// [`ChunkError::InUse`] and [`ChunkError::Directory`].
    pub fn open(path: &Path, settings: StoreSettings) -> Result<ChunkStore, ChunkError> {
        ChunkStore::open_with_clock(path, settings, Arc::new(SystemClock::default()))
    }

    /// The same by a clock of the caller's. It only says how often a container goes on a full disk.
    ///
    /// # Errors
    ///
    /// As [`ChunkStore::open`].
    pub fn open_with_clock(
        path: &Path,
        settings: StoreSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<ChunkStore, ChunkError> {
        ChunkStore::open_as(path, settings, clock, OriginId(directory::random_id(path)?))
    }

    /// The same with an origin that is not random: for golden images and the fuzzer, whose names have to be the same each time.
    pub(crate) fn open_as(
        path: &Path,
        settings: StoreSettings,
        clock: Arc<dyn Clock>,
        origin: OriginId,
    ) -> Result<ChunkStore, ChunkError> {
        let (directory, lock) = Directory::open(path)?;
        let key = directory.key()?;
        let mut found = directory.containers()?;
        // The oldest goes first.
        found.sort_by_key(|found| found.modified);
        let limit = settings.bytes.clamp(STORE_MIN, STORE_MAX);
        let mut state = State::new(index_for(limit), limit);
        state.similar = Similar::with_capacity(limit / CHUNK_AVERAGE as u64);
        for found in found {
            if !state.remember(&found)
                && let Err(error) = directory.remove(found.realm, found.name)
            {
                tracing::warn!(container = ?found.name, "cannot remove a container of the chunk store: {error}");
            }
        }
        let shared = Shared {
            directory,
            key,
            origin,
            state: Mutex::new(state),
            sealed: Cache::new(DIRECTORIES),
            lookups: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            clock,
            _lock: lock,
        };
        let store = ChunkStore { shared: Arc::new(shared) };
        store.shared.evict(&mut store.shared.state.lock());
        Ok(store)
    }

    /// Enters the next container of an earlier time into the index: one read. False once there is none. For a thread in
    /// the background; the newest come first.
    pub fn load_next(&self) -> bool {
        self.shared.load_next()
    }

    /// What `realm` holds here.
    pub fn realm(&self, realm: RealmId) -> Realm {
        Realm::of(self.shared.clone(), realm)
    }

    /// Makes the store larger or smaller while it is used. [`ChunkStore::load_next`] has to be called again.
    pub fn resize(&self, bytes: u64) {
        let limit = bytes.clamp(STORE_MIN, STORE_MAX);
        if limit == self.shared.state.lock().limit {
            return;
        }
        let index = index_for(limit);
        // A container at a time: streams go on meanwhile.
        loop {
            let mut state = self.shared.state.lock();
            state.limit = limit.max(state.bytes().saturating_sub(u64::from(CONTAINER_BYTES)));
            self.shared.evict(&mut state);
            if state.limit == limit {
                break;
            }
        }
        let mut state = self.shared.state.lock();
        state.index = index;
        state.similar = Similar::with_capacity(limit / CHUNK_AVERAGE as u64);
        state.load_again();
    }

    /// Removes everything of `realm`, or everything.
    pub fn clear(&self, realm: Option<RealmId>) {
        let slots = self.shared.state.lock().slots_of(realm);
        // One at a time: streams go on meanwhile.
        for (slot, generation) in slots {
            let mut state = self.shared.state.lock();
            if state.is_current(slot, generation) {
                self.shared.remove(&mut state, slot);
            }
        }
    }

    /// What it has.
    pub fn stats(&self) -> StoreStats {
        let state = self.shared.state.lock();
        StoreStats {
            bytes: state.bytes(),
            limit_bytes: state.limit,
            containers: state.containers(),
            not_loaded: state.not_loaded(),
            chunks: state.index.entries(),
            index_bytes: state.index.memory_bytes() + state.similar.memory_bytes(),
            forgotten: state.index.forgotten(),
            lookups: self.shared.lookups.load(Ordering::Relaxed),
            hits: self.shared.hits.load(Ordering::Relaxed),
            evicted: state.evicted,
            damaged: self.shared.damaged.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for ChunkStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// An index for all chunks of a store of so many bytes, if they are a little smaller than they should be on average.
fn index_for(bytes: u64) -> Index {
    Index::with_capacity(bytes / (CHUNK_AVERAGE as u64 * 7 / 8))
}
