//! What all handles of a store share, and how a container comes into memory and goes.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use farside_platform::Clock;
use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::directory::Directory;
use super::shares::Scarce;
use super::slot::{GaveWay, Slot};
use super::state::State;
use crate::container::{Entry, Sealed};
use crate::fingerprint::FingerprintKey;
use crate::name::{ContainerName, OriginId, RealmId};

/// Whether an error says that a container's file is not what it was; others may pass.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound
    )
}

/// Between two containers that go since somebody else fills the disk.
const GIVE_WAY_EVERY: Duration = Duration::from_secs(1);

/// Of a store.
pub(super) struct Shared {
    pub(super) directory: Directory,
    pub(super) key: FingerprintKey,
    /// Of the containers that are made here.
    pub(super) origin: OriginId,
    pub(super) state: Mutex<State>,
    pub(super) sealed: Cache<(u32, u64), Arc<Sealed>>,
    pub(super) lookups: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) clock: Arc<dyn Clock>,
    /// Held for as long as the store is open.
    pub(super) _lock: File,
}

impl Shared {
    /// The directory and the file of a sealed container; from memory if it was used of late.
    pub(super) fn sealed(
        &self,
        slot: u32,
        generation: u64,
        realm: RealmId,
        name: ContainerName,
    ) -> Option<Arc<Sealed>> {
        if let Some(sealed) = self.sealed.get(&(slot, generation)) {
            return Some(sealed);
        }
        match self.open(slot, generation, realm, name) {
            Ok(None) => None,
            Ok(Some(sealed)) => {
                let sealed = Arc::new(sealed);
                self.sealed.insert((slot, generation), sealed.clone());
                Some(sealed)
            }
            // No descriptor, no memory, no right: it may be read the next time.
            Err(error) if !is_damage(&error) => {
                tracing::warn!(container = ?name, "cannot open a container of the chunk store: {error}");
                None
            }
            Err(error) => {
                self.drop_damaged(slot, generation, &error.to_string());
                None
            }
        }
    }

    /// None if the container has gone meanwhile.
    fn open(
        &self,
        slot: u32,
        generation: u64,
        realm: RealmId,
        name: ContainerName,
    ) -> io::Result<Option<Sealed>> {
        let path = self.directory.path_of(realm, name);
        if let Some(sealed) = Sealed::open(&path, realm, name)? {
            return Ok(Some(sealed));
        }
        // Of a process that was killed; or it has gone, and one with its name grows: that one is left alone.
        let state = self.state.lock();
        let is_it = state.get(slot).is_some_and(|(now, slot)| now == generation && slot.growing.is_none());
        if is_it { Sealed::recover(&path, realm, name).map(Some) } else { Ok(None) }
    }

    /// A container whose file is not what it should be. One that has gone meanwhile is nothing to speak of: its file is empty.
    pub(super) fn drop_damaged(&self, slot: u32, generation: u64, why: &str) {
        let mut state = self.state.lock();
        if let Some((now, found)) = state.get(slot)
            && now == generation
        {
            tracing::warn!(container = ?found.name, "removing a damaged container of the chunk store: {why}");
            self.damaged.fetch_add(1, Ordering::Relaxed);
            self.remove(&mut state, slot);
        }
    }

    /// Makes room.
    pub(super) fn evict(&self, state: &mut State) {
        while let Some(scarce) = state.scarce() {
            if !self.evict_one(state, scarce) {
                break;
            }
        }
    }

    /// Makes room for one more container of `realm`.
    pub(super) fn make_room_for_one(&self, state: &mut State, realm: RealmId) {
        while !state.has_room_for_one() && self.evict_one(state, Scarce::Container(realm)) {}
    }

    /// False if there is none.
    fn evict_one(&self, state: &mut State, scarce: Scarce) -> bool {
        let Some(slot) = state.next_to_go(scarce) else { return false };
        state.evicted += 1;
        self.remove(state, slot)
    }

    /// The disk is full: the container that is next goes. Where the store has filled half of what the last one left, another
    /// may go at once. Otherwise it is somebody else who fills the disk: one goes in a second, so that the store is not
    /// emptied for nothing.
    pub(super) fn give_way(&self) {
        let mut state = self.state.lock();
        let (now, before) = (self.clock.monotonic(), state.bytes());
        if let Some(last) = state.gave_way {
            let is_own = before.saturating_sub(last.bytes) >= last.freed.div_ceil(2);
            if !is_own && now.saturating_sub(last.at) < GIVE_WAY_EVERY {
                return;
            }
        }
        if self.evict_one(&mut state, Scarce::Bytes) {
            let bytes = state.bytes();
            state.gave_way = Some(GaveWay { at: now, freed: before - bytes, bytes });
        }
    }

    /// A container goes: out of the index, of what is known, and off the disk. False if there is none.
    pub(super) fn remove(&self, state: &mut State, slot: u32) -> bool {
        let Some((gone, generation)) = state.take(slot) else { return false };
        let cached = self.sealed.remove(&(slot, generation)).map(|(_, sealed)| sealed);
        if gone.is_loaded {
            let entries = match (&gone.growing, cached) {
                (Some(growing), _) => growing.lock().entries().to_vec(),
                (None, Some(sealed)) => sealed.entries().to_vec(),
                (None, None) => self.entries_of(&gone),
            };
            state.take_out(slot, &entries);
        }
        if let Err(error) = self.directory.remove(gone.realm, gone.name) {
            tracing::warn!(container = ?gone.name, "cannot remove a container of the chunk store: {error}");
        }
        true
    }

    /// What the file of a container says. If it says nothing, its entries stay in the index and lead nowhere, until they are
    /// pushed out.
    fn entries_of(&self, gone: &Slot) -> Vec<Entry> {
        let path = self.directory.path_of(gone.realm, gone.name);
        let opened = match Sealed::open(&path, gone.realm, gone.name) {
            Ok(None) => Sealed::recover(&path, gone.realm, gone.name).map(Some),
            other => other,
        };
        opened.ok().flatten().map(|sealed| sealed.entries().to_vec()).unwrap_or_default()
    }

    /// Enters the next container into the index; false if there is none.
    pub(super) fn load_next(&self) -> bool {
        let Some((slot, generation, realm, name)) = self.state.lock().next_to_load() else { return false };
        let growing = self.state.lock().growing(slot, generation);
        if let Some(growing) = growing {
            let mut state = self.state.lock();
            let entries = growing.lock().entries().to_vec();
            state.loaded(slot, generation, &entries);
            self.evict(&mut state);
        } else if let Some(sealed) = self.sealed(slot, generation, realm, name) {
            let mut state = self.state.lock();
            state.loaded(slot, generation, sealed.entries());
            self.evict(&mut state);
        }
        true
    }
}
