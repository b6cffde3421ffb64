//! What is known of containers: which there are, where their chunks are found, in which order they go.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::directory::Found;
use super::listeners::{Changes, Listeners};
use super::shares::{Scarce, Shares};
use super::similar::Similar;
use super::slot::{GaveWay, Slot};
use crate::container::{Entry, Growing, held};
use crate::fingerprint::Fingerprint;
use crate::index::{Index, Location, SLOTS_MAX};
use crate::name::{ContainerName, RealmId};
use crate::ranges::Ranges;

/// A container of another site that is still growing here is closed once there are so many newer ones in its realm: what
/// is missing of it is on a stream that has died.
const RECEIVING_MAX: usize = 8;

/// Bytes that a container has on average at least: a peer that begins many and fills none takes no more files.
const CONTAINER_SHARE: u64 = 256 << 10;

pub(super) struct State {
    pub(super) index: Index,
    pub(super) similar: Similar,
    pub(super) limit: u64,
    pub(super) evicted: u64,
    /// The last one.
    pub(super) gave_way: Option<GaveWay>,
    slots: Vec<Option<Slot>>,
    /// How often each slot was given; what somebody remembers of an earlier container does not fit the next.
    generations: Vec<u64>,
    vacant: Vec<u32>,
    by_name: HashMap<(RealmId, ContainerName), u32>,
    shares: Shares,
    /// How many have come.
    came: u64,
    /// What is still to be entered into the index, the newest last.
    to_load: VecDeque<(u32, u64)>,
    /// Of each realm, the container that is made here.
    own: HashMap<RealmId, u32>,
    next_number: u64,
    /// Of each realm, those of the peer that are growing here, the oldest first.
    receiving: HashMap<RealmId, VecDeque<u32>>,
    listeners: Listeners,
}

impl State {
    pub(super) fn new(index: Index, limit: u64) -> State {
        State {
            index,
            similar: Similar::with_capacity(0),
            limit,
            evicted: 0,
            gave_way: None,
            slots: Vec::new(),
            generations: Vec::new(),
            vacant: Vec::new(),
            by_name: HashMap::new(),
            shares: Shares::default(),
            came: 0,
            to_load: VecDeque::new(),
            own: HashMap::new(),
            next_number: 0,
            receiving: HashMap::new(),
            listeners: Listeners::default(),
        }
    }

    /// A container of an earlier time. False if there are as many as there can be.
    pub(super) fn remember(&mut self, found: &Found) -> bool {
        let slot = Slot::new(found.realm, found.name, None, found.bytes);
        let Some(number) = self.add(slot) else { return false };
        self.to_load.push_back((number, self.generations[number as usize]));
        true
    }

    fn add(&mut self, mut slot: Slot) -> Option<u32> {
        let number = match self.vacant.pop() {
            Some(number) => number,
            None if self.slots.len() < SLOTS_MAX as usize => {
                self.slots.push(None);
                self.generations.push(0);
                (self.slots.len() - 1) as u32
            }
            None => return None,
        };
        self.came += 1;
        slot.came = self.came;
        self.by_name.insert((slot.realm, slot.name), number);
        self.shares.add(slot.realm, number, slot.bytes);
        self.slots[number as usize] = Some(slot);
        Some(number)
    }

    /// Takes a container out of everything but the index.
    pub(super) fn take(&mut self, number: u32) -> Option<(Slot, u64)> {
        let slot = self.slots.get_mut(number as usize)?.take()?;
        let generation = self.generations[number as usize];
        self.generations[number as usize] += 1;
        self.vacant.push(number);
        self.shares.remove(slot.realm, number, slot.bytes, slot.entered);
        self.by_name.remove(&(slot.realm, slot.name));
        if self.own.get(&slot.realm) == Some(&number) {
            self.own.remove(&slot.realm);
        }
        if let Some(receiving) = self.receiving.get_mut(&slot.realm) {
            receiving.retain(|other| *other != number);
        }
        self.listeners.changed(slot.realm, slot.name);
        Some((slot, generation))
    }

    /// Takes the chunks of a container out of the index.
    pub(super) fn take_out(&mut self, slot: u32, entries: &[Entry]) {
        for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.length > 0) {
            self.index.remove(&entry.fingerprint, Location { slot, place: place as u16 });
        }
    }

    /// What there is too much of.
    pub(super) fn scarce(&self) -> Option<Scarce> {
        if self.shares.bytes() > self.limit {
            Some(Scarce::Bytes)
        } else if self.shares.chunks() > self.index.capacity() {
            // One realm's many small chunks would push those of others out of the index.
            Some(Scarce::Chunks)
        } else {
            None
        }
    }

    pub(super) fn next_to_go(&mut self, scarce: Scarce) -> Option<u32> {
        let slots = &mut self.slots;
        self.shares.next_to_go(scarce, |slot| {
            slots[slot as usize].as_mut().is_some_and(|slot| std::mem::take(&mut slot.is_marked))
        })
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

    /// Of all containers.
    pub(super) fn bytes(&self) -> u64 {
        self.shares.bytes()
    }

    // Loading

    pub(super) fn not_loaded(&self) -> u64 {
        self.to_load.len() as u64
    }

    pub(super) fn load_again(&mut self) {
        self.shares.nothing_entered();
        let mut all = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            (slot.is_loaded, slot.entered) = (false, 0);
            all.push((slot.came, number as u32));
        }
        all.sort_unstable();
        let generations = &self.generations;
        self.to_load = all.into_iter().map(|(_, number)| (number, generations[number as usize])).collect();
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
        slot.entered = slot.held.places() as u64;
        let (realm, name, entered) = (slot.realm, slot.name, slot.entered);
        self.shares.enter(realm, entered);
        for (place, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.length > 0) {
            self.index.insert(&entry.fingerprint, Location { slot: number, place: place as u16 });
        }
        self.listeners.changed(realm, name);
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
        let slot = Slot::new(realm, name, Some(growing), bytes);
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
        self.shares.resize(slot.realm, slot.bytes, bytes);
        slot.bytes = bytes;
        if slot.is_loaded {
            slot.held.insert(place);
            slot.entered += 1;
            self.shares.enter(slot.realm, 1);
            self.index.insert(fingerprint, Location { slot: number, place });
            self.listeners.changed(slot.realm, slot.name);
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
        self.shares.resize(slot.realm, slot.bytes, u64::from(bytes));
        slot.bytes = u64::from(bytes);
    }

    // News

    pub(super) fn listen(&mut self, realm: RealmId) -> Arc<Changes> {
        let loaded = self.slots.iter().flatten().filter(|slot| slot.realm == realm && !slot.held.is_empty());
        self.listeners.add(realm, loaded.map(|slot| slot.name))
    }

    pub(super) fn held(&self, realm: RealmId, name: ContainerName) -> Ranges {
        self.find(realm, name).map(|(_, _, slot)| slot.held.clone()).unwrap_or_default()
    }
}
