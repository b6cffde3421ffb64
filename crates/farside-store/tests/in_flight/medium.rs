//! What lies on the medium, and what an opening makes of it.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::Sabotage;
use crate::world::State;

pub(crate) const BLOCKS: usize = 2;
pub(crate) const PLACES: usize = 7;
pub(crate) const RING: u8 = 6;

/// Write number 1, 2, 3 ...; 0 for none. The content of a block is the number of its write.
pub(crate) type Stamp = u8;
pub(crate) type Place = u8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub(crate) enum Record {
    Map { block: u8, place: Place, stamp: Stamp },
    Point,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Batch {
    pub(crate) sequence: u8,
    pub(crate) proven: u8,
    pub(crate) previous: u64,
    pub(crate) records: Vec<Record>,
}

impl Batch {
    pub(crate) fn checksum(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

pub(crate) type Head = [Option<(Place, Stamp)>; BLOCKS];

/// What a point writes, to one place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Tree {
    pub(crate) head: Head,
    pub(crate) written: Stamp,
    /// Places that wait for the next point, as bits.
    pub(crate) waiting: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Superblock {
    pub(crate) generation: u8,
    pub(crate) tree: Option<Place>,
    pub(crate) sequence: u8,
    pub(crate) chain: u64,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Content {
    Nothing,
    Torn,
    Data(Stamp),
    Tree(Tree),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Write {
    Place(Place, Content),
    Batch(u8, Batch),
    Superblock(u8, Superblock),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Medium {
    pub(crate) places: Vec<Content>,
    pub(crate) ring: Vec<Option<Batch>>,
    pub(crate) superblocks: [Option<Superblock>; 2],
}

impl Medium {
    pub(crate) fn keep(&mut self, write: &Write) {
        match write {
            Write::Place(place, content) => self.places[*place as usize] = content.clone(),
            Write::Batch(slot, batch) => self.ring[*slot as usize] = Some(batch.clone()),
            Write::Superblock(slot, superblock) => self.superblocks[*slot as usize] = Some(*superblock),
        }
    }

    pub(crate) fn tear(&mut self, write: &Write) {
        match write {
            Write::Place(place, _) => self.places[*place as usize] = Content::Torn,
            Write::Batch(slot, _) => self.ring[*slot as usize] = None,
            Write::Superblock(slot, _) => self.superblocks[*slot as usize] = None,
        }
    }
}

/// What an opening finds.
pub(crate) struct Found {
    pub(crate) superblock: Superblock,
    pub(crate) slot: u8,
    pub(crate) has_other: bool,
    pub(crate) head: Head,
    pub(crate) states: [State; PLACES],
    pub(crate) written: Stamp,
    pub(crate) end: (u8, u64),
    pub(crate) has_open_end: bool,
    pub(crate) tail: u8,
}

pub(crate) fn recover(medium: &Medium, sabotage: Sabotage) -> Result<Found, String> {
    let slots = medium.superblocks;
    let slot = match slots {
        [None, None] => return Err("no superblock".into()),
        [Some(_), None] => 0,
        [None, Some(_)] => 1,
        [Some(a), Some(b)] => u8::from(b.generation > a.generation),
    };
    let (superblock, other) = (slots[slot as usize].expect("it is there"), slots[1 - slot as usize]);
    let mut head = Head::default();
    let mut states = [State::Free; PLACES];
    let mut written = 0;
    if let Some(place) = superblock.tree {
        let Content::Tree(tree) = &medium.places[place as usize] else {
            return Err(format!("the tree at {place} is {:?}", medium.places[place as usize]));
        };
        (head, written) = (tree.head, tree.written);
        for (at, state) in states.iter_mut().enumerate() {
            if tree.waiting & 1 << at != 0 {
                *state = State::Waiting;
            }
        }
        for at in head.iter().flatten().map(|(at, _)| *at).chain([place]) {
            states[at as usize] = State::InUse;
        }
    }
    let mut batches = Vec::new();
    let mut end = (superblock.sequence, superblock.chain);
    while let Some(batch) = &medium.ring[(end.0 % RING) as usize] {
        if batch.sequence != end.0 || batch.previous != end.1 || end.0 - superblock.sequence >= RING {
            break;
        }
        end = (end.0 + 1, batch.checksum());
        batches.push(batch.clone());
    }
    let beyond = medium.ring.iter().flatten().filter(|batch| batch.sequence > end.0);
    let beyond = beyond.map(|batch| batch.proven).max().unwrap_or(0);
    if beyond >= end.0 {
        return Err(format!("the journal ends at {}, and {beyond} was proven", end.0));
    }
    let proven_by = |batches: &[Batch]| batches.iter().map(|b| b.proven).max().unwrap_or(0).max(beyond);
    let proven = proven_by(&batches);
    if batches.last().is_some_and(|last| last.records == [Record::Point] && last.sequence > proven) {
        batches.pop();
    }
    let vouched = proven_by(&batches);
    // Whether a batch stands torn where the next is looked for cannot be told from none here: always closed if unsure.
    let has_open_end =
        medium.ring[(end.0 % RING) as usize].is_none() || batches.iter().any(|b| b.sequence > vouched);
    let mut end = (superblock.sequence, superblock.chain);
    for batch in batches {
        let is_there = |record: &Record| match record {
            Record::Map { place, stamp, .. } => medium.places[*place as usize] == Content::Data(*stamp),
            Record::Point => true,
        };
        if batch.sequence > proven
            && sabotage != Sabotage::BelievesUnproven
            && !batch.records.iter().all(is_there)
        {
            break;
        }
        for record in &batch.records {
            let Record::Map { block, place, stamp } = record else { continue };
            if states[*place as usize] != State::Free {
                return Err(format!("place {place} is mapped while something else uses it"));
            }
            states[*place as usize] = State::InUse;
            if let Some((old, _)) = head[*block as usize].replace((*place, *stamp)) {
                states[old as usize] = State::Freed;
            }
            written = *stamp;
        }
        end = (batch.sequence + 1, batch.checksum());
    }
    let tail = other.map_or(superblock.sequence, |other| other.sequence);
    Ok(Found { superblock, slot, has_other: other.is_some(), head, states, written, end, has_open_end, tail })
}
