//! What all handles of a store share, and how a container comes into memory and goes.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::directory::Directory;
use super::state::{Slot, State};
use crate::container::Sealed;
use crate::fingerprint::FingerprintKey;
use crate::name::{ContainerName, OriginId, RealmId};

/// Whether an error says that a container's file is not what it was; others may pass.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof | io::ErrorKind::NotFound
    )
}

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
    /// When a container last went since the disk was full.
    pub(super) gave_way: Mutex<Option<Instant>>,
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
                tracing::warn!(container = ?name, "removing a damaged container of the chunk store: {error}");
                self.drop_damaged(slot, generation);
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

    /// A container whose file is not what it should be.
    pub(super) fn drop_damaged(&self, slot: u32, generation: u64) {
        let mut state = self.state.lock();
        if state.is_current(slot, generation) {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            self.remove(&mut state, slot);
        }
    }

    /// Makes room.
    pub(super) fn evict(&self, state: &mut State) {
        while state.bytes > state.limit {
            let Some(slot) = state.next_to_go() else { break };
            let taken = state.take_popped(slot);
            self.forget(state, slot, taken);
            state.evicted += 1;
        }
    }

    /// The disk is full: the container that is next goes, one in a second, so that whoever fills the disk does not empty the store.
    pub(super) fn give_way(&self) {
        let mut last = self.gave_way.lock();
        if last.is_some_and(|last| last.elapsed() < Duration::from_secs(1)) {
            return;
        }
        *last = Some(Instant::now());
        drop(last);
        let mut state = self.state.lock();
        if let Some(slot) = state.next_to_go() {
            let taken = state.take_popped(slot);
            self.forget(&mut state, slot, taken);
        }
    }

    /// Makes room for one more container of `realm`: another of the same goes, so that nobody pushes out what is another's by
    /// beginning many.
    pub(super) fn make_room_for_one(&self, state: &mut State, realm: RealmId) {
        while !state.has_room_for_one() {
            match state.oldest_of(realm) {
                Some(slot) => self.remove(state, slot),
                None => {
                    let Some(slot) = state.next_to_go() else { break };
                    let taken = state.take_popped(slot);
                    self.forget(state, slot, taken);
                }
            }
            state.evicted += 1;
        }
    }

    /// A container goes: out of the index, of what is known, and off the disk.
    pub(super) fn remove(&self, state: &mut State, slot: u32) {
        let taken = state.take(slot);
        self.forget(state, slot, taken);
    }

    fn forget(&self, state: &mut State, slot: u32, taken: Option<(Slot, u64)>) {
        let Some((gone, generation)) = taken else { return };
        self.sealed.remove(&(slot, generation));
        if gone.is_loaded {
            let entries = match &gone.growing {
                Some(growing) => growing.lock().entries().to_vec(),
                // If that fails its entries stay in the index and lead nowhere, until they are pushed out.
                None => Sealed::open(&self.directory.path_of(gone.realm, gone.name), gone.realm, gone.name)
                    .ok()
                    .flatten()
                    .map(|sealed| sealed.entries().to_vec())
                    .unwrap_or_default(),
            };
            state.take_out(slot, &entries);
        }
        if let Err(error) = self.directory.remove(gone.realm, gone.name) {
            tracing::warn!(container = ?gone.name, "cannot remove a container of the chunk store: {error}");
        }
    }

    /// Enters the next container into the index; false if there is none.
    pub(super) fn load_next(&self) -> bool {
        let Some((slot, generation, realm, name)) = self.state.lock().next_to_load() else { return false };
        let growing = self.state.lock().growing(slot, generation);
        if let Some(growing) = growing {
            let mut state = self.state.lock();
            let entries = growing.lock().entries().to_vec();
            state.loaded(slot, generation, &entries);
        } else if let Some(sealed) = self.sealed(slot, generation, realm, name) {
            self.state.lock().loaded(slot, generation, sealed.entries());
        }
        true
    }
}
