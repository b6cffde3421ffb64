//! Dense anchors of the segments that were looked at lately.

use super::gear::mix;
use crate::run::Origin;

/// Segments held: what was read of 256 MiB, of the base and of other volumes together, and as many that the stream carried last.
pub(super) const SEGMENTS_MAX: usize = 256;
/// Entries in a bucket.
const WAYS: usize = 4;
/// Buckets: 2^17 times 4 entries of 8 bytes, 4 MiB, room for the anchors of two times 256 segments.
const BUCKETS_LOG: u32 = 17;

/// Where an anchor was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) slot: usize,
    /// Block within the segment.
    pub(super) block: u64,
}

/// A segment that is or was held.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    segment: Option<(Origin, u64)>,
    /// How often the slot was given away: entries of earlier ones do not count.
    generation: u64,
}

/// Which blocks of which segments have which dense anchors. Bounded; where there is no room a random entry goes.
#[derive(Debug)]
pub(super) struct Dense {
    /// Low half of the hash, generation (15 bits), slot (9), block (8).
    buckets: Vec<[u64; WAYS]>,
    /// First those of the base and of other volumes, then those of the incremental.
    slots: Vec<Slot>,
    /// Next slot to give away, by share.
    next: [usize; 2],
    random: u64,
}

const GENERATIONS: u64 = 1 << 15;

/// Which half of the slots an origin has a share in.
fn share(origin: Origin) -> usize {
    match origin {
        Origin::Base | Origin::Other(_) => 0,
        Origin::Incremental => 1,
    }
}

impl Dense {
    pub(super) fn new() -> Self {
        Dense {
            buckets: vec![[0; WAYS]; 1 << BUCKETS_LOG],
            slots: vec![Slot::default(); 2 * SEGMENTS_MAX],
            next: [0; 2],
            random: 0,
        }
    }

    /// The slot of a segment, if it is held.
    pub(super) fn slot(&self, origin: Origin, number: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.segment == Some((origin, number)))
    }

    /// What a slot holds.
    pub(super) fn segment(&self, slot: usize) -> Option<(Origin, u64)> {
        self.slots.get(slot)?.segment
    }

    /// A slot for a segment, instead of the one of its share that was there longest.
    pub(super) fn take_slot(&mut self, origin: Origin, number: u64) -> usize {
        let share = share(origin);
        let next = &mut self.next[share];
        let slot = share * SEGMENTS_MAX + *next;
        *next = (*next + 1) % SEGMENTS_MAX;
        // Generation 0 is never current: an empty entry is of it.
        let generation = self.slots[slot].generation % (GENERATIONS - 1) + 1;
        self.slots[slot] = Slot { segment: Some((origin, number)), generation };
        slot
    }

    pub(super) fn insert(&mut self, hash: u64, place: Place) {
        let generation = self.slots[place.slot].generation;
        let entry = hash << 32 | generation << 17 | (place.slot as u64) << 8 | place.block;
        let slots = &self.slots;
        let bucket = &mut self.buckets[(hash >> (64 - BUCKETS_LOG)) as usize];
        let free = bucket.iter().position(|e| !is_current(slots, *e));
        let way = free.unwrap_or_else(|| {
            self.random = mix(self.random.wrapping_add(0x9e37_79b9_7f4a_7c15));
            self.random as usize % WAYS
        });
        bucket[way] = entry;
    }

    /// Where an anchor was seen.
    pub(super) fn places(&self, hash: u64) -> impl Iterator<Item = Place> {
        let bucket = &self.buckets[(hash >> (64 - BUCKETS_LOG)) as usize];
        let matching =
            move |entry: &&u64| **entry >> 32 == hash & 0xffff_ffff && is_current(&self.slots, **entry);
        bucket.iter().filter(matching).map(|entry| place(*entry))
    }
}

fn place(entry: u64) -> Place {
    Place { slot: (entry >> 8) as usize % (2 * SEGMENTS_MAX), block: entry & 0xff }
}

fn is_current(slots: &[Slot], entry: u64) -> bool {
    slots[place(entry).slot].generation == entry >> 17 & (GENERATIONS - 1)
        && entry >> 17 & (GENERATIONS - 1) != 0
}
