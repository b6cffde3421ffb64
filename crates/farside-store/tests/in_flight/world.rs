//! Who does what to the medium: a host, flushes, spills, points, openings.

use std::collections::BTreeMap;

use crate::Sabotage;
use crate::medium::{
    BLOCKS, Batch, Content, Found, Head, Medium, PLACES, Place, RING, Record, Stamp, Superblock, Tree, Write,
    recover,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum State {
    Free,
    /// A long write is on its way there; for a point it is free.
    Promised,
    InUse,
    /// Since the last capture.
    Freed,
    /// Before the capture of the point under way, or by it.
    Captured,
    /// Freed in the last point.
    Waiting,
}

/// What somebody does to the device, step by step.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Work {
    /// These are on their way, in any order. What is data of `waiting` goes from there when all have arrived.
    Writes(Vec<Write>),
    /// What waits by now goes out before the sync.
    WritesBeforeSync(Vec<Write>),
    /// A sync, of what had arrived when it began.
    Syncs,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Flush {
    /// Writes that it answers for.
    pub(crate) covers: Stamp,
    pub(crate) sequence: u8,
    pub(crate) work: Work,
    /// None of it is synced: records had piled up. Its batch goes out when the data is there.
    pub(crate) spills: Option<Write>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum PointPhase {
    /// What waits goes out.
    Before,
    /// The batch that ends with the point's record.
    Captured,
    Tree,
    Synced,
    Superblock,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Point {
    pub(crate) phase: PointPhase,
    pub(crate) work: Work,
    pub(crate) covers: Stamp,
    pub(crate) tree: Option<Tree>,
    pub(crate) place: Place,
    pub(crate) superblock: Option<Superblock>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct World {
    pub(crate) medium: Medium,
    /// Arrived, and not synced. In order, since no two of them are of one place, so that worlds that differ by the order of
    /// arrivals alone are one.
    pub(crate) cache: Vec<Write>,
    /// The same of what the sync under way covers.
    pub(crate) covered: Vec<Write>,
    pub(crate) lives: u8,
    // Host.
    pub(crate) written: Stamp,
    pub(crate) acknowledged: Stamp,
    pub(crate) long: Option<(Place, bool)>,
    // Memory.
    pub(crate) head: Head,
    pub(crate) states: [State; PLACES],
    pub(crate) tree: Option<Place>,
    pub(crate) pending: Vec<Record>,
    pub(crate) waiting: BTreeMap<Place, Stamp>,
    /// Records of these are on no batch, or on one that was not synced.
    pub(crate) durable: Stamp,
    // Ring.
    pub(crate) sequence: u8,
    pub(crate) chain: u64,
    pub(crate) proven: u8,
    pub(crate) tail: u8,
    // Points.
    pub(crate) generation: u8,
    pub(crate) newest: u8,
    /// Where the journal of the newest begins.
    pub(crate) journal: u8,
    pub(crate) points: u8,
    pub(crate) flush: Option<Flush>,
    pub(crate) point: Option<Point>,
    /// An opening that is not at its end: a slot to be written anew, a batch that ends the journal.
    pub(crate) opening: Option<(Vec<Write>, Work, bool)>,
    pub(crate) is_latched: bool,
}

/// How much may happen.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) writes: Stamp,
    pub(crate) points: u8,
    pub(crate) lives: u8,
    pub(crate) sabotage: Sabotage,
}

pub(crate) fn shows(written: Stamp) -> [Stamp; BLOCKS] {
    let mut blocks = [0; BLOCKS];
    (1..=written).for_each(|stamp| blocks[block_of(stamp)] = stamp);
    blocks
}

pub(crate) fn block_of(stamp: Stamp) -> usize {
    (stamp as usize - 1) % BLOCKS
}

impl World {
    pub(crate) fn new() -> World {
        let first = Superblock { generation: 0, tree: None, sequence: 1, chain: 0 };
        World {
            medium: Medium {
                places: vec![Content::Nothing; PLACES],
                ring: vec![None; RING as usize],
                superblocks: [Some(first); 2],
            },
            cache: Vec::new(),
            covered: Vec::new(),
            lives: 1,
            written: 0,
            acknowledged: 0,
            long: None,
            head: Head::default(),
            states: [State::Free; PLACES],
            tree: None,
            pending: Vec::new(),
            waiting: BTreeMap::new(),
            durable: 0,
            sequence: 1,
            chain: 0,
            proven: 0,
            tail: 1,
            generation: 0,
            newest: 0,
            journal: 1,
            points: 0,
            flush: None,
            point: None,
            opening: None,
            is_latched: false,
        }
    }

    /// A free place; one more stays for the tree of a point.
    pub(crate) fn take_place(&mut self, kept: usize, state: State) -> Option<Place> {
        let mut free = (0..PLACES).filter(|at| self.states[*at] == State::Free);
        let place = free.next()?;
        if free.count() < kept {
            return None;
        }
        self.states[place] = state;
        Some(place as Place)
    }

    pub(crate) fn map(&mut self, place: Place) {
        self.written += 1;
        let (stamp, block) = (self.written, block_of(self.written));
        self.states[place as usize] = State::InUse;
        if let Some((old, _)) = self.head[block].replace((place, stamp)) {
            self.states[old as usize] = State::Freed;
        }
        self.pending.push(Record::Map { block: block as u8, place, stamp });
    }

    /// All that waits, as writes.
    pub(crate) fn out(&mut self, sabotage: Sabotage) -> Vec<Write> {
        let writes =
            self.waiting.iter().map(|(at, stamp)| Write::Place(*at, Content::Data(*stamp))).collect();
        if sabotage == Sabotage::ForgetsTooEarly {
            self.waiting.clear();
        }
        writes
    }

    pub(crate) fn ring_has_room(&self, batches: u8) -> bool {
        self.sequence - self.tail + batches <= RING
    }

    pub(crate) fn seal(&mut self, records: Vec<Record>, sabotage: Sabotage) -> Write {
        let proven = match sabotage {
            Sabotage::ProvesTooMuch => self.sequence - 1,
            _ => self.proven,
        };
        let batch = Batch { sequence: self.sequence, proven, previous: self.chain, records };
        self.chain = batch.checksum();
        self.sequence += 1;
        Write::Batch((self.sequence - 1) % RING, batch)
    }

    /// Whether somebody writes out what waits, whose turn it is.
    pub(crate) fn is_writing_out(&self) -> bool {
        let writes = |work: &Work| matches!(work, Work::Writes(_) | Work::WritesBeforeSync(_));
        self.flush.as_ref().is_some_and(|f| writes(&f.work))
            || self.point.as_ref().is_some_and(|p| {
                matches!(p.work, Work::WritesBeforeSync(_))
                    || p.phase == PointPhase::Before && writes(&p.work)
            })
    }

    /// Whether somebody syncs, or is about to: one at a time.
    pub(crate) fn is_syncing(&self) -> bool {
        let syncs = |work: &Work| matches!(work, Work::Syncs | Work::WritesBeforeSync(_));
        self.flush.as_ref().is_some_and(|f| syncs(&f.work))
            || self.point.as_ref().is_some_and(|p| syncs(&p.work))
    }

    /// Whether a point holds the ring's lock.
    pub(crate) fn ring_is_held(&self) -> bool {
        self.flush.is_some() || self.point.as_ref().is_some_and(|p| p.phase == PointPhase::Captured)
    }

    /// Every write on its way to the device.
    pub(crate) fn under_way(&self) -> Vec<&Write> {
        let of = |work: &Work| match work {
            Work::Writes(_) | Work::WritesBeforeSync(_) => true,
            Work::Syncs => false,
        };
        let works = self.flush.iter().map(|f| &f.work).chain(self.point.iter().map(|p| &p.work));
        let works = works.chain(self.opening.iter().map(|(_, work, _)| work));
        works
            .filter(|work| of(work))
            .flat_map(|work| match work {
                Work::Writes(writes) | Work::WritesBeforeSync(writes) => writes.iter(),
                Work::Syncs => [].iter(),
            })
            .collect()
    }

    /// One write has arrived. What waits and is there waits no more, once all of its turn are.
    pub(crate) fn arrive(&mut self, work: &mut Work, at: usize) {
        let (Work::Writes(writes) | Work::WritesBeforeSync(writes)) = work else { return };
        let write = writes.remove(at);
        if let Write::Place(place, Content::Data(_)) = &write {
            self.waiting.remove(place);
        }
        self.arrived(write);
    }

    pub(crate) fn arrived(&mut self, write: Write) {
        let at = self.cache.partition_point(|other| *other < write);
        self.cache.insert(at, write);
    }

    /// A sync begins.
    pub(crate) fn cover(&mut self) -> Work {
        self.covered = std::mem::take(&mut self.cache);
        Work::Syncs
    }

    pub(crate) fn synced(&mut self) {
        for write in std::mem::take(&mut self.covered) {
            self.medium.keep(&write);
        }
    }

    /// A new life on what a power failure left.
    pub(crate) fn reborn(&self, medium: Medium, found: &Found) -> World {
        let mut world = World::new();
        world.medium = medium;
        world.lives = self.lives + 1;
        world.points = self.points;
        (world.written, world.durable, world.acknowledged) =
            (found.written, found.written, self.acknowledged);
        (world.head, world.states, world.tree) = (found.head, found.states, found.superblock.tree);
        (world.sequence, world.chain) = found.end;
        (world.proven, world.tail) = (found.end.0 - 1, found.tail);
        (world.generation, world.newest) = (found.superblock.generation, found.slot);
        world.journal = found.superblock.sequence;
        let mut writes = Vec::new();
        if !found.has_other {
            writes.push(Write::Superblock(1 - found.slot, found.superblock));
        }
        let heals = !found.has_other;
        if found.has_open_end && world.ring_has_room(1) {
            let batch = world.seal(Vec::new(), Sabotage::None);
            writes.push(batch);
        }
        world.opening = match writes.split_first() {
            Some((first, rest)) => Some((rest.to_vec(), Work::Writes(vec![first.clone()]), heals)),
            None => {
                world.acknowledged = world.written;
                None
            }
        };
        world
    }

    /// What no sync has vouched for.
    pub(crate) fn unsynced(&self) -> Vec<Write> {
        let mut unsynced = self.covered.clone();
        unsynced.extend(self.cache.iter().cloned());
        unsynced.extend(self.under_way().into_iter().cloned());
        if let Some((place, false)) = self.long {
            unsynced.push(Write::Place(place, Content::Data(self.written + 1)));
        }
        unsynced
    }

    /// Everything that a power failure now can leave.
    pub(crate) fn crashes(&self, unsynced: &[Write]) -> Vec<Medium> {
        let mut left = vec![self.medium.clone()];
        for write in unsynced {
            let before = left.len();
            for at in 0..before {
                let (mut kept, mut torn) = (left[at].clone(), left[at].clone());
                kept.keep(write);
                torn.tear(write);
                left.push(kept);
                left.push(torn);
            }
        }
        left
    }

    /// Whether an opening finds what it must.
    pub(crate) fn check(&self, medium: &Medium, sabotage: Sabotage) -> Result<Found, String> {
        let found = recover(medium, sabotage)?;
        let mut media = vec![(medium.clone(), "")];
        if found.has_other {
            for slot in 0..2 {
                let mut one = medium.clone();
                one.superblocks[slot] = None;
                media.push((one, ", one superblock lost"));
            }
        }
        for (medium, how) in &media {
            let found = recover(medium, sabotage).map_err(|e| format!("{e}{how}"))?;
            if !(self.acknowledged..=self.written).contains(&found.written) {
                return Err(format!("{} shown, {} acknowledged{how}", found.written, self.acknowledged));
            }
            for (block, stamp) in shows(found.written).into_iter().enumerate() {
                let reads = match found.head[block] {
                    None => 0,
                    Some((place, _)) => match &medium.places[place as usize] {
                        Content::Data(stamp) => *stamp,
                        other => return Err(format!("block {block} reads {other:?}{how}")),
                    },
                };
                if reads != stamp {
                    return Err(format!("block {block} reads {reads} instead of {stamp}{how}"));
                }
            }
        }
        Ok(found)
    }
}
