//! What all handles of a store share, and how a container comes into memory and goes.

use std::fs::{self, File};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use quick_cache::sync::Cache;

use super::directory::Directory;
use super::state::State;
use crate::container::Sealed;
use crate::fingerprint::FingerprintKey;
use crate::name::{ContainerName, OriginId, RealmId};

/// A store has no more containers than if each had so many bytes: a peer that begins many and fills none takes no more files.
const CONTAINER_SHARE: u64 = 256 << 10;

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
        match Sealed::open(&self.directory.path_of(realm, name), realm, name) {
            Ok(sealed) => {
                let sealed = Arc::new(sealed);
                self.sealed.insert((slot, generation), sealed.clone());
                Some(sealed)
            }
            Err(error) => {
                tracing::warn!(container = ?name, "removing a damaged container of the chunk store: {error}");
                self.drop_damaged(slot, generation);
                None
            }
        }
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
        while state.bytes > state.limit || state.containers() > state.limit / CONTAINER_SHARE {
            let Some(slot) = state.next_to_go() else { break };
            self.remove(state, slot);
            state.evicted += 1;
        }
    }

    /// A container goes: out of the index, of what is known, and off the disk.
    pub(super) fn remove(&self, state: &mut State, slot: u32) {
        let Some((gone, generation)) = state.take(slot) else { return };
        self.sealed.remove(&(slot, generation));
        let path = self.directory.path_of(gone.realm, gone.name);
        if gone.is_loaded {
            let entries = match &gone.growing {
                Some(growing) => growing.lock().entries().to_vec(),
                // If that fails its entries stay in the index and lead nowhere, until they are pushed out.
                None => Sealed::open(&path, gone.realm, gone.name)
                    .map(|sealed| sealed.entries().to_vec())
                    .unwrap_or_default(),
            };
            state.take_out(slot, &entries);
        }
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(path = %path.display(), "cannot remove a container of the chunk store: {error}");
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
