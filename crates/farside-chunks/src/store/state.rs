//! What is known of containers: which there are, where their chunks are found, in which order they go.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::directory::Found;
use crate::container::{Entry, Growing, held};
use crate::fingerprint::Fingerprint;
use crate::index::{Index, Location, SLOTS_MAX};
use crate::name::{ContainerName, RealmId};
use crate::ranges::Ranges;
use crate::ring::Ring;

/// A container of another site that is still growing here is closed once there are so many newer ones in its realm: what
/// is missing of it is on a stream that has died.
const RECEIVING_MAX: usize = 8;

/// A container.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) realm: RealmId,
    pub(super) name: ContainerName,
    /// None once nothing is appended any more.
    pub(super) growing: Option<Arc<Mutex<Growing>>>,
    /// The places at which there are chunks.
    pub(super) held: Ranges,
    /// It is in the index.
    pub(super) is_loaded: bool,
    bytes: u64,
    /// Asked for since the ring came by.
    is_marked: bool,
}

/// Bytes that a container has on average at least: a peer that begins many and fills none takes no more files.
const CONTAINER_SHARE: u64 = 256 << 10;
/// Names that wait to be told to a peer at most. One that is not told costs a question.
const CHANGES_MAX: usize = 1 << 17;

/// Containers of a realm of which something has changed, for somebody who tells it to a peer.
pub(super) type Changes = Mutex<BTreeSet<ContainerName>>;

pub(super) struct State {
    pub(super) index: Index,
    pub(super) limit: u64,
    pub(super) bytes: u64,
    pub(super) evicted: u64,
    slots: Vec<Option<Slot>>,
    /// How often each slot was given; what somebody remembers of an earlier container does not fit the next.
    generations: Vec<u64>,
    vacant: Vec<u32>,
    by_name: HashMap<(RealmId, ContainerName), u32>,
    ring: Ring,
    /// What is still to be entered into the index, the newest last.
    to_load: VecDeque<(u32, u64)>,
    /// Of each realm, the container that is made here.
    own: HashMap<RealmId, u32>,
    next_number: u64,
    /// Of each realm, those of the peer that are growing here, the oldest first.
    receiving: HashMap<RealmId, VecDeque<u32>>,
    listeners: HashMap<RealmId, Vec<Weak<Changes>>>,
}

impl State {
    pub(super) fn new(index: Index, limit: u64) -> State {
        State {
            index,
            limit,
            bytes: 0,
            evicted: 0,
            slots: Vec::new(),
            generations: Vec::new(),
            vacant: Vec::new(),
            by_name: HashMap::new(),
            ring: Ring::default(),
            to_load: VecDeque::new(),
            own: HashMap::new(),
            next_number: 0,
            receiving: HashMap::new(),
            listeners: HashMap::new(),
        }
    }

    /// A container of an earlier time. False if there are as many as there can be.
    pub(super) fn remember(&mut self, found: &Found) -> bool {
        let Found { realm, name, bytes, .. } = *found;
        let slot = Slot {
            realm,
            name,
            growing: None,
            held: Ranges::default(),
            is_loaded: false,
            bytes,
            is_marked: false,
        };
        let Some(number) = self.add(slot) else { return false };
        self.to_load.push_back((number, self.generations[number as usize]));
        true
    }

    fn add(&mut self, slot: Slot) -> Option<u32> {
        let number = match self.vacant.pop() {
            Some(number) => number,
            None if self.slots.len() < SLOTS_MAX as usize => {
                self.slots.push(None);
                self.generations.push(0);
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        self.bytes += slot.bytes;
        self.by_name.insert((slot.realm, slot.name), number);
        self.slots[number as usize] = Some(slot);
        self.ring.push(number);
        Some(number)
    }

    /// Takes a container out of everything but the index.
    pub(super) fn take(&mut self, number: u32) -> Option<(Slot, u64)> {
        self.ring.remove(number);
        self.take_popped(number)
    }

    /// The same for one that [`State::next_to_go`] has named: it is out of the ring.
    pub(super) fn take_popped(&mut self, number: u32) -> Option<(Slot, u64)> {
        let slot = self.slots.get_mut(number as usize)?.take()?;
        let generation = self.generations[number as usize];
        self.generations[number as usize] += 1;
        self.vacant.push(number);
        self.bytes -= slot.bytes;
        self.by_name.remove(&(slot.realm, slot.name));
        if self.own.get(&slot.realm) == Some(&number) {
            self.own.remove(&slot.realm);
        }
        if let Some(receiving) = self.receiving.get_mut(&slot.realm) {
            receiving.retain(|other| *other != number);
        }
        self.changed(slot.realm, slot.name);
        Some((slot, generation))
    }

    /// Takes the chunks of a container out of the index.
    pub(super) fn take_out(&mut self, slot: u32, entries: &[Entry]) {
        for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.length > 0) {
            self.index.remove(&entry.fingerprint, Location { slot, place: place as u16 });
        }
    }

    pub(super) fn next_to_go(&mut self) -> Option<u32> {
        let slots = &mut self.slots;
        self.ring.next_to_go(|slot| {
            slots[slot as usize].as_mut().is_some_and(|slot| std::mem::take(&mut slot.is_marked))
        })
    }

    /// The container of a realm that came first.
    pub(super) fn oldest_of(&self, realm: RealmId) -> Option<u32> {
        let is_of = |slot: &u32| self.get(*slot).is_some_and(|(_, slot)| slot.realm == realm);
        self.ring.iter().find(is_of)
    }

    /// Whether another container can begin; a store has no more than if each had [`CONTAINER_SHARE`] bytes.
    pub(super) fn has_room_for_one(&self) -> bool {
        self.containers() < (self.limit / CONTAINER_SHARE).min(u64::from(SLOTS_MAX))
    }

    /// The slot of a container, and which generation of it.
    pub(super) fn find(&self, realm: RealmId, name: ContainerName) -> Option<(u32, u64, &Slot)> {
        let number = *self.by_name.get(&(realm, name))?;
        Some((number, self.generations[number as usize], self.slots[number as usize].as_ref()?))
    }

    pub(super) fn get(&self, number: u32) -> Option<(u64, &Slot)> {
        let slot = self.slots.get(number as usize)?.as_ref()?;
        Some((self.generations[number as usize], slot))
    }

    pub(super) fn is_current(&self, number: u32, generation: u64) -> bool {
        self.get(number).is_some_and(|(now, _)| now == generation)
    }

    pub(super) fn mark(&mut self, number: u32, generation: u64) {
        if self.generations.get(number as usize) == Some(&generation)
            && let Some(slot) = &mut self.slots[number as usize]
        {
            slot.is_marked = true;
        }
    }

    pub(super) fn slots_of(&self, realm: Option<RealmId>) -> Vec<(u32, u64)> {
        let is_of = |slot: &Slot| realm.is_none_or(|realm| slot.realm == realm);
        let numbered = self.slots.iter().enumerate();
        let those = numbered.filter(|(_, slot)| slot.as_ref().is_some_and(is_of));
        those.map(|(n, _)| (n as u32, self.generations[n])).collect()
    }

    pub(super) fn containers(&self) -> u64 {
        self.by_name.len() as u64
    }

    // Loading

    pub(super) fn not_loaded(&self) -> u64 {
        self.to_load.len() as u64
    }

    pub(super) fn load_again(&mut self) {
        self.to_load = self.ring.iter().map(|slot| (slot, self.generations[slot as usize])).collect();
        for slot in self.slots.iter_mut().flatten() {
            slot.is_loaded = false;
        }
    }

    pub(super) fn next_to_load(&mut self) -> Option<(u32, u64, RealmId, ContainerName)> {
        while let Some((number, generation)) = self.to_load.pop_back() {
            if let Some((now, slot)) = self.get(number)
                && now == generation
                && !slot.is_loaded
            {
                return Some((number, generation, slot.realm, slot.name));
            }
        }
        None
    }

    pub(super) fn growing(&self, number: u32, generation: u64) -> Option<Arc<Mutex<Growing>>> {
        let (now, slot) = self.get(number)?;
        if now == generation { slot.growing.clone() } else { None }
    }

    pub(super) fn loaded(&mut self, number: u32, generation: u64, entries: &[Entry]) {
        if !self.is_current(number, generation) {
            return;
        }
        let Some(slot) = &mut self.slots[number as usize] else { return };
        if std::mem::replace(&mut slot.is_loaded, true) {
            return;
        }
        slot.held = held(entries);
        let (realm, name) = (slot.realm, slot.name);
        for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.length > 0) {
            self.index.insert(&entry.fingerprint, Location { slot: number, place: place as u16 });
        }
        self.changed(realm, name);
    }

    // Growing

    /// The container that is made here for a realm, if it has room.
    pub(super) fn own(&self, realm: RealmId) -> Option<(u32, u64, &Slot)> {
        let number = *self.own.get(&realm)?;
        let (generation, slot) = self.get(number)?;
        Some((number, generation, slot))
    }

    pub(super) fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// A new container, which chunks are appended to. False if there can be no more.
    pub(super) fn begin(
        &mut self,
        realm: RealmId,
        name: ContainerName,
        growing: Growing,
        is_own: bool,
    ) -> bool {
        let bytes = u64::from(growing.bytes());
        let growing = Some(Arc::new(Mutex::new(growing)));
        let slot =
            Slot { realm, name, growing, held: Ranges::default(), is_loaded: true, bytes, is_marked: false };
        let Some(number) = self.add(slot) else { return false };
        if is_own {
            self.own.insert(realm, number);
        } else {
            self.receiving.entry(realm).or_default().push_back(number);
        }
        true
    }

    /// A chunk was appended.
    pub(super) fn appended(
        &mut self,
        (number, generation): (u32, u64),
        place: u16,
        fingerprint: &Fingerprint,
        growing: &Growing,
    ) {
        if !self.is_current(number, generation) {
            return;
        }
        let Some(slot) = &mut self.slots[number as usize] else { return };
        let bytes = u64::from(growing.bytes());
        self.bytes = self.bytes + bytes - slot.bytes;
        slot.bytes = bytes;
        let (realm, name, is_loaded) = (slot.realm, slot.name, slot.is_loaded);
        if is_loaded {
            slot.held.insert(place);
            self.index.insert(fingerprint, Location { slot: number, place });
            self.changed(realm, name);
        }
    }

    /// Nothing more is appended to it.
    pub(super) fn close(&mut self, (number, generation): (u32, u64)) -> Option<Arc<Mutex<Growing>>> {
        if !self.is_current(number, generation) {
            return None;
        }
        let slot = self.slots.get_mut(number as usize)?.as_mut()?;
        let growing = slot.growing.take()?;
        let realm = slot.realm;
        if self.own.get(&realm) == Some(&number) {
            self.own.remove(&realm);
        }
        if let Some(receiving) = self.receiving.get_mut(&realm) {
            receiving.retain(|other| *other != number);
        }
        Some(growing)
    }

    /// Which container of a peer is to be closed since there are too many.
    pub(super) fn overdue(&self, realm: RealmId) -> Option<(u32, u64)> {
        let receiving = self.receiving.get(&realm).filter(|receiving| receiving.len() > RECEIVING_MAX)?;
        let number = *receiving.front()?;
        Some((number, self.generations[number as usize]))
    }

    pub(super) fn sealed(&mut self, (number, generation): (u32, u64), bytes: u32) {
        if !self.is_current(number, generation) {
            return;
        }
        let Some(slot) = &mut self.slots[number as usize] else { return };
        self.bytes = self.bytes + u64::from(bytes) - slot.bytes;
        slot.bytes = u64::from(bytes);
    }

    // News

    pub(super) fn listen(&mut self, realm: RealmId) -> Arc<Changes> {
        let loaded = self.slots.iter().flatten().filter(|slot| slot.realm == realm && !slot.held.is_empty());
        let changes: Arc<Changes> = Arc::new(Mutex::new(loaded.map(|slot| slot.name).collect()));
        self.listeners.entry(realm).or_default().push(Arc::downgrade(&changes));
        changes
    }

    fn changed(&mut self, realm: RealmId, name: ContainerName) {
        if let Some(listeners) = self.listeners.get_mut(&realm) {
            listeners.retain(|listener| match listener.upgrade() {
                Some(changes) => {
                    let mut changes = changes.lock();
                    if changes.len() < CHANGES_MAX {
                        changes.insert(name);
                    }
                    true
                }
                None => false,
            });
        }
    }

    pub(super) fn held(&self, realm: RealmId, name: ContainerName) -> Ranges {
        self.find(realm, name).map(|(_, _, slot)| slot.held.clone()).unwrap_or_default()
    }
}
