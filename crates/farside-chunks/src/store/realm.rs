//! What one realm holds: finding, naming, keeping and reading its chunks.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::body::{Body, Cursor};
use super::news::News;
use super::shared::{Shared, is_damage};
use super::state::State;
use crate::container::{CHUNKS_PER_CONTAINER, Entry, Growing};
use crate::cut::CHUNK_MAX;
use crate::error::ChunkError;
use crate::fingerprint::{Fingerprint, FingerprintKey};
use crate::index::Location;
use crate::name::{ChunkName, ContainerName, OriginId, RealmId};
use crate::sketch::SKETCH;

/// The chunks of one realm in a store.
#[derive(Clone)]
pub struct Realm {
    shared: Arc<Shared>,
    id: RealmId,
    key: FingerprintKey,
    salt: u64,
}

/// A container that chunks are appended to.
struct Open {
    slot: (u32, u64),
    name: ContainerName,
    growing: Arc<Mutex<Growing>>,
}

impl Realm {
    pub(super) fn of(shared: Arc<Shared>, id: RealmId) -> Realm {
        let key = shared.key.of_realm(id);
        let salt = key.fingerprint(b"sketches").word();
        Realm { shared, id, key, salt }
    }

    /// Who makes the containers of this site.
    pub fn origin(&self) -> OriginId {
        self.shared.origin
    }

    /// What a chunk is found by in this realm, at this site.
    pub fn fingerprint(&self, chunk: &[u8]) -> Fingerprint {
        self.key.fingerprint(chunk)
    }

    /// The chunk with that fingerprint; of several such the first that `is_wanted`, or else any.
    pub fn find(&self, fingerprint: &Fingerprint, is_wanted: impl Fn(ChunkName) -> bool) -> Option<Cursor> {
        self.shared.lookups.fetch_add(1, Ordering::Relaxed);
        let mut candidates = Vec::new();
        {
            let state = self.shared.state.lock();
            state.index.find(fingerprint, |location| {
                if let Some((generation, slot)) = state.get(location.slot)
                    && slot.realm == self.id
                {
                    candidates.push((location, generation, slot.name, slot.growing.clone()));
                }
                None::<()>
            });
        }
        let mut found = None;
        for (location, generation, container, growing) in candidates {
            let Some(body) = self.body(location.slot, generation, container, growing) else { continue };
            let is_it = |entry: &Entry| entry.fingerprint == *fingerprint;
            if !body.entry(location.place).as_ref().is_some_and(is_it) {
                continue;
            }
            let name = ChunkName { container, place: location.place };
            let is_wanted = is_wanted(name);
            if is_wanted || found.is_none() {
                found = Some((Cursor::on(name, &body), location.slot, generation));
            }
            if is_wanted {
                break;
            }
        }
        let (cursor, slot, generation) = found?;
        self.shared.hits.fetch_add(1, Ordering::Relaxed);
        self.shared.state.lock().mark(slot, generation);
        Some(cursor)
    }

    /// Enters a chunk that is kept by that name among those that others may resemble.
    pub fn resembles(&self, sketch: &[u64; SKETCH], name: ChunkName) {
        let mut state = self.shared.state.lock();
        let slot = state.find(self.id, name.container).map(|(slot, ..)| slot);
        if let Some(slot) = slot {
            state.similar.insert(&self.own(sketch), Location { slot, place: name.place });
        }
    }

    /// A chunk that resembles one of that sketch, of those that are wanted the one that shares most with it. It may be another
    /// one by now.
    pub fn similar(
        &self,
        sketch: &[u64; SKETCH],
        is_wanted: impl Fn(ChunkName) -> bool,
    ) -> Option<ChunkName> {
        let mut found: Vec<(ChunkName, u32)> = Vec::new();
        {
            let state = self.shared.state.lock();
            for location in state.similar.find(&self.own(sketch)) {
                if let Some((_, slot)) = state.get(location.slot)
                    && slot.realm == self.id
                {
                    let name = ChunkName { container: slot.name, place: location.place };
                    match found.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, shared)) => *shared += 1,
                        None => found.push((name, 1)),
                    }
                }
            }
        }
        found.sort_by_key(|(_, shared)| std::cmp::Reverse(*shared));
        found.into_iter().map(|(name, _)| name).find(|name| is_wanted(*name))
    }

    /// A realm's own hashes: what is in one takes no chosen place of another's.
    fn own(&self, sketch: &[u64; SKETCH]) -> [u64; SKETCH] {
        sketch.map(|hash| if hash == 0 { 0 } else { hash ^ self.salt })
    }

    /// Whether the chunk after `cursor` has that fingerprint; if so the cursor moves on to it. Asks no index.
    pub fn follows(&self, cursor: &mut Cursor, fingerprint: &Fingerprint) -> bool {
        let next = cursor.name.next();
        let entry = match &cursor.sealed {
            Some(sealed) => sealed.entries().get(usize::from(next.place)).copied(),
            None => self.at(next.container).and_then(|(_, _, body)| body.entry(next.place)),
        };
        let is_it = entry.is_some_and(|entry| entry.length > 0 && entry.fingerprint == *fingerprint);
        if is_it {
            cursor.name = next;
        }
        is_it
    }

    /// Keeps a chunk that this site is about to send, and names it.
    ///
    /// # Errors
    ///
    /// [`ChunkError::NotKept`]: it cannot be named.
    pub fn keep(&self, fingerprint: &Fingerprint, chunk: &[u8]) -> Result<ChunkName, ChunkError> {
        // Another thread may fill a container first; it does so with thousands of chunks.
        loop {
            let Open { slot, name: container, growing } = self.own_container()?;
            let mut container_file = growing.lock();
            let place = container_file.next_place();
            let is_kept = container_file.append(place, *fingerprint, chunk);
            let is_full = container_file.is_full();
            drop(container_file);
            let is_kept = is_kept.map_err(|error| self.not_kept(error))?;
            if is_kept {
                self.note(slot, place, fingerprint, &growing);
            }
            if is_full {
                self.close(slot);
            }
            if is_kept {
                return Ok(ChunkName { container, place });
            }
            if !is_full {
                return Err(ChunkError::NotKept(io::ErrorKind::InvalidInput.into()));
            }
        }
    }

    /// Keeps a chunk that the peer has sent as `name`. False if it is not kept: the container is closed here, or is one of
    /// this site's own.
    ///
    /// # Errors
    ///
    /// [`ChunkError::NotKept`].
    pub fn keep_as(&self, name: ChunkName, chunk: &[u8]) -> Result<bool, ChunkError> {
        let can_be = name.place < CHUNKS_PER_CONTAINER && (1..=CHUNK_MAX).contains(&chunk.len());
        if name.container.origin == self.shared.origin || !can_be {
            return Ok(false);
        }
        let fingerprint = self.fingerprint(chunk);
        let Some(Open { slot, growing, .. }) = self.received_container(name.container)? else {
            return Ok(false);
        };
        let mut container_file = growing.lock();
        let is_kept = container_file.append(name.place, fingerprint, chunk);
        drop(container_file);
        // It is not closed here when it is full: what is missing of it may be on another stream.
        let is_kept = is_kept.map_err(|error| self.not_kept(error))?;
        if is_kept {
            self.note(slot, name.place, &fingerprint, &growing);
        }
        Ok(is_kept)
    }

    /// Brings a chunk, verified against its fingerprint.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Missing`].
    pub fn read(&self, name: ChunkName, chunk: &mut Vec<u8>) -> Result<(), ChunkError> {
        let (slot, generation, body) = self.at(name.container).ok_or(ChunkError::Missing)?;
        let entry = body.entry(name.place).ok_or(ChunkError::Missing)?;
        let is_read = body.read(&entry, chunk);
        if is_read.is_ok() && self.fingerprint(chunk) == entry.fingerprint {
            self.shared.state.lock().mark(slot, generation);
            return Ok(());
        }
        chunk.clear();
        match is_read {
            // It may pass.
            Err(error) if !is_damage(&error) => {
                tracing::warn!(chunk = ?name, "cannot read from the chunk store: {error}");
            }
            Err(error) => self.shared.drop_damaged(slot, generation, &error.to_string()),
            Ok(()) => self.shared.drop_damaged(slot, generation, "a chunk is not what it was"),
        }
        Err(ChunkError::Missing)
    }

    /// What this container has is not what the peer has under its name: it goes.
    pub fn distrust(&self, container: ContainerName) {
        let mut state = self.shared.state.lock();
        if let Some(slot) = state.find(self.id, container).map(|(slot, ..)| slot) {
            tracing::warn!(
                ?container,
                "removing a container of the chunk store that is another one at the peer"
            );
            self.shared.remove(&mut state, slot);
        }
    }

    /// What is kept from here on is in another container. For the beginning of a session: the peer may have closed the present
    /// one, and then takes nothing more for it.
    pub fn begin_anew(&self) {
        let own = self.shared.state.lock().own(self.id).map(|(slot, generation, _)| (slot, generation));
        if let Some(slot) = own {
            self.close(slot);
        }
    }

    /// Whether chunks are still appended to it here.
    pub fn is_growing(&self, container: ContainerName) -> bool {
        let state = self.shared.state.lock();
        state.find(self.id, container).is_some_and(|(.., slot)| slot.growing.is_some())
    }

    /// From now on, what comes and goes here; at first everything that is here.
    pub fn listen(&self) -> News {
        News::of(self.shared.clone(), self.id)
    }

    fn body(
        &self,
        slot: u32,
        generation: u64,
        container: ContainerName,
        growing: Option<Arc<Mutex<Growing>>>,
    ) -> Option<Body> {
        match growing {
            Some(growing) => Some(Body::Growing(growing)),
            None => self.shared.sealed(slot, generation, self.id, container).map(Body::Sealed),
        }
    }

    fn at(&self, container: ContainerName) -> Option<(u32, u64, Body)> {
        let (slot, generation, growing) = {
            let state = self.shared.state.lock();
            let (number, generation, slot) = state.find(self.id, container)?;
            (number, generation, slot.growing.clone())
        };
        Some((slot, generation, self.body(slot, generation, container, growing)?))
    }

    /// On a full disk an older container makes room for what comes next.
    fn not_kept(&self, error: io::Error) -> ChunkError {
        if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            self.shared.give_way();
        }
        ChunkError::NotKept(error)
    }

    fn note(&self, slot: (u32, u64), place: u16, fingerprint: &Fingerprint, growing: &Mutex<Growing>) {
        let mut state = self.shared.state.lock();
        state.appended(slot, place, fingerprint, &growing.lock());
        self.shared.evict(&mut state);
    }

    /// Under the state's lock: nobody opens the file before its directory is there.
    fn close(&self, slot: (u32, u64)) {
        let mut state = self.shared.state.lock();
        let Some(growing) = state.close(slot) else { return };
        let closed = growing.lock().close();
        match closed {
            Ok(bytes) => state.sealed(slot, bytes),
            // It is read as one of a process that was killed.
            Err(error) => tracing::warn!("cannot close a container of the chunk store: {error}"),
        }
    }

    fn own_container(&self) -> Result<Open, ChunkError> {
        loop {
            let mut state = self.shared.state.lock();
            if let Some((number, generation, slot)) = state.own(self.id)
                && let Some(growing) = slot.growing.clone()
            {
                return Ok(Open { slot: (number, generation), name: slot.name, growing });
            }
            let name = ContainerName { origin: self.shared.origin, number: state.take_number() };
            if let Err(error) = self.begin(&mut state, name, true) {
                drop(state);
                return Err(self.not_kept(error));
            }
        }
    }

    fn received_container(&self, name: ContainerName) -> Result<Option<Open>, ChunkError> {
        let mut state = self.shared.state.lock();
        if state.find(self.id, name).is_none()
            && let Err(error) = self.begin(&mut state, name, false)
        {
            drop(state);
            return Err(self.not_kept(error));
        }
        let found = state.find(self.id, name);
        let found = found.and_then(|(number, generation, slot)| {
            slot.growing.clone().map(|growing| Open { slot: (number, generation), name, growing })
        });
        let overdue = state.overdue(self.id);
        drop(state);
        if let Some(overdue) = overdue {
            self.close(overdue);
        }
        Ok(found)
    }

    /// One that is not known here.
    fn begin(&self, state: &mut State, name: ContainerName, is_own: bool) -> io::Result<()> {
        self.shared.make_room_for_one(state, self.id);
        let path = self.shared.directory.make_for(self.id, name)?;
        let growing = match Growing::create(&path, self.id, name) {
            // Left behind by what could not be finished.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(&path)?;
                Growing::create(&path, self.id, name)
            }
            other => other,
        }?;
        if state.begin(self.id, name, growing, is_own) {
            return Ok(());
        }
        self.shared.directory.remove(self.id, name)?;
        Err(io::ErrorKind::QuotaExceeded.into())
    }
}

impl std::fmt::Debug for Realm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Realm").field(&self.id).finish()
    }
}
