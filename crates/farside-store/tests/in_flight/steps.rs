//! What can happen next.

use crate::Sabotage;
use crate::medium::{Content, PLACES, Record, Superblock, Tree, Write};
use crate::world::{Bounds, Flush, Point, PointPhase, State, Work, World};

impl World {
    /// The worlds after one more step.
    pub(crate) fn steps(&self, bounds: Bounds) -> Vec<(String, World)> {
        let mut next = Vec::new();
        if self.is_latched {
            return next;
        }
        if self.opening.is_some() {
            self.steps_of_opening(&mut next);
            return next;
        }
        self.steps_of_host(bounds, &mut next);
        self.steps_of_flush(bounds, &mut next);
        self.steps_of_point(bounds, &mut next);
        next
    }

    pub(crate) fn steps_of_host(&self, bounds: Bounds, next: &mut Vec<(String, World)>) {
        if let Some((place, has_arrived)) = self.long {
            let mut world = self.clone();
            if has_arrived {
                world.long = None;
                world.map(place);
                next.push(("a long write is mapped".into(), world));
            } else {
                world.arrived(Write::Place(place, Content::Data(self.written + 1)));
                world.long = Some((place, true));
                next.push(("a long write arrives".into(), world));
            }
        } else if self.written < bounds.writes {
            let mut world = self.clone();
            if let Some(place) = world.take_place(1, State::InUse) {
                world.map(place);
                world.waiting.insert(place, world.written);
                next.push((format!("write {} waits", world.written), world));
            }
            let mut world = self.clone();
            if let Some(place) = world.take_place(1, State::Promised) {
                world.long = Some((place, false));
                next.push((format!("a long write {}", world.written + 1), world));
            }
        }
    }

    pub(crate) fn steps_of_flush(&self, bounds: Bounds, next: &mut Vec<(String, World)>) {
        let sabotage = bounds.sabotage;
        let Some(flush) = &self.flush else {
            if self.ring_is_held() || self.is_writing_out() || self.durable >= self.written {
                return;
            }
            for spills in [false, true] {
                if (spills && self.pending.is_empty()) || !self.ring_has_room(2) {
                    continue;
                }
                let mut world = self.clone();
                let records = std::mem::take(&mut world.pending);
                let batch = (!records.is_empty()).then(|| world.seal(records, sabotage));
                let mut writes = world.out(sabotage);
                let spills = if spills { batch.clone() } else { None };
                if spills.is_none() {
                    writes.extend(batch);
                }
                let (covers, sequence) = (world.written, world.sequence - 1);
                if sabotage == Sabotage::AnswersBeforeSync {
                    world.acknowledged = covers;
                }
                let name = if spills.is_some() { "a spill begins" } else { "a flush begins" };
                world.flush = Some(Flush { covers, sequence, work: Work::Writes(writes), spills });
                next.push((name.into(), world));
            }
            return;
        };
        match &flush.work {
            Work::Writes(writes) if writes.is_empty() => {
                let mut world = self.clone();
                let own = world.flush.as_mut().expect("it is there");
                match own.spills.take() {
                    Some(batch) => {
                        // Without a sync: it is on the ring, and what it says is vouched for by a later one.
                        own.work = Work::Writes(vec![batch]);
                        own.sequence = 0;
                        next.push(("the batch of a spill".into(), world));
                    }
                    None if own.sequence == 0 => {
                        world.flush = None;
                        next.push(("a spill ends".into(), world));
                    }
                    None if !self.is_syncing() => {
                        let writes = world.out(sabotage);
                        world.flush.as_mut().expect("it is there").work = Work::WritesBeforeSync(writes);
                        next.push(("a flush is about to sync".into(), world));
                    }
                    None => {}
                }
            }
            Work::WritesBeforeSync(writes) if writes.is_empty() => {
                let mut world = self.clone();
                let work = world.cover();
                world.flush.as_mut().expect("it is there").work = work;
                next.push(("a flush syncs".into(), world));
            }
            Work::Writes(writes) | Work::WritesBeforeSync(writes) => {
                for (at, write) in writes.iter().enumerate() {
                    let mut world = self.clone();
                    let mut own = world.flush.take().expect("it is there");
                    world.arrive(&mut own.work, at);
                    world.flush = Some(own);
                    next.push((format!("{write:?} arrives"), world));
                }
                let is_data = |write: &Write| matches!(write, Write::Place(..));
                if writes.iter().all(is_data) && flush.spills.is_none() && flush.sequence > 0 {
                    // The device refuses the data: the flush fails, its batch is on the ring, and nothing is in doubt.
                    let mut world = self.clone();
                    world.flush = None;
                    next.push(("the data is refused".into(), world));
                    if sabotage == Sabotage::SyncsBeforeData && matches!(flush.work, Work::Writes(_)) {
                        let mut world = self.clone();
                        for write in writes {
                            if let Write::Place(place, Content::Data(stamp)) = write {
                                world.waiting.insert(*place, *stamp);
                            }
                        }
                        let work = world.cover();
                        world.flush.as_mut().expect("it is there").work = work;
                        next.push(("a flush syncs before its data".into(), world));
                    }
                }
            }
            Work::Syncs => {
                let mut world = self.clone();
                world.synced();
                let own = world.flush.take().expect("it is there");
                world.proven = world.proven.max(own.sequence);
                world.durable = world.durable.max(own.covers);
                world.acknowledged = world.acknowledged.max(own.covers);
                next.push(("a flush is answered".into(), world));
                self.sync_fails(sabotage, next);
            }
        }
    }

    pub(crate) fn sync_fails(&self, sabotage: Sabotage, next: &mut Vec<(String, World)>) {
        let mut world = self.clone();
        if sabotage == Sabotage::SyncsAgain {
            // The kernel takes for clean what it could not write.
            world.covered.clear();
            next.push(("a sync fails and is tried again".into(), world));
        } else {
            world.is_latched = true;
            next.push(("a sync fails".into(), world));
        }
    }

    pub(crate) fn steps_of_point(&self, bounds: Bounds, next: &mut Vec<(String, World)>) {
        let sabotage = bounds.sabotage;
        let Some(point) = &self.point else {
            if self.points < bounds.points && !self.is_writing_out() {
                let mut world = self.clone();
                world.points += 1;
                let writes = world.out(sabotage);
                world.point = Some(Point {
                    phase: PointPhase::Before,
                    work: Work::Writes(writes),
                    covers: 0,
                    tree: None,
                    place: 0,
                    superblock: None,
                });
                next.push(("a point begins".into(), world));
            }
            return;
        };
        let writes = match &point.work {
            Work::Syncs => {
                let mut world = self.clone();
                world.synced();
                world.point_synced(sabotage);
                next.push((format!("the point's sync of {:?} ends", point.phase), world));
                self.sync_fails(sabotage, next);
                return;
            }
            Work::Writes(writes) | Work::WritesBeforeSync(writes) => writes,
        };
        for (at, write) in writes.iter().enumerate() {
            let mut world = self.clone();
            let mut own = world.point.take().expect("it is there");
            world.arrive(&mut own.work, at);
            world.point = Some(own);
            next.push((format!("{write:?} of a point arrives"), world));
        }
        if !writes.is_empty() {
            return;
        }
        let mut world = self.clone();
        let mut own = world.point.take().expect("it is there");
        if matches!(own.work, Work::WritesBeforeSync(_)) {
            own.work = world.cover();
            world.point = Some(own);
            next.push(("a point syncs".into(), world));
            return;
        }
        match own.phase {
            PointPhase::Before => {
                if self.ring_is_held() || !self.ring_has_room(1) {
                    return;
                }
                let Some(place) = world.take_place(0, State::Promised) else { return };
                let mut records = std::mem::take(&mut world.pending);
                records.push(Record::Point);
                let batch = world.seal(records, sabotage);
                for state in world.states.iter_mut().filter(|state| **state == State::Freed) {
                    *state = State::Captured;
                }
                if let Some(old) = world.tree.replace(place) {
                    world.states[old as usize] = State::Captured;
                }
                let waits = |at: &usize| world.states[*at] == State::Captured;
                let waiting = (0..PLACES).filter(waits).fold(0, |bits, at| bits | 1 << at);
                own.tree = Some(Tree { head: world.head, written: world.written, waiting });
                (own.covers, own.place, own.phase) = (world.written, place, PointPhase::Captured);
                own.superblock = Some(Superblock {
                    generation: world.generation + 1,
                    tree: Some(place),
                    sequence: world.sequence,
                    chain: world.chain,
                });
                own.work = Work::Writes(vec![batch]);
            }
            PointPhase::Captured => {
                let tree = own.tree.expect("captured");
                own.work = Work::Writes(vec![Write::Place(own.place, Content::Tree(tree))]);
                own.phase = PointPhase::Tree;
            }
            PointPhase::Tree if sabotage == Sabotage::FlipsUnsynced => own.phase = PointPhase::Synced,
            PointPhase::Tree | PointPhase::Superblock => {
                if self.is_syncing() || self.is_writing_out() {
                    return;
                }
                own.work = Work::WritesBeforeSync(world.out(sabotage));
            }
            PointPhase::Synced => {
                let superblock = own.superblock.expect("captured");
                own.work = Work::Writes(vec![Write::Superblock(1 - world.newest, superblock)]);
                own.phase = PointPhase::Superblock;
            }
        }
        world.point = Some(own);
        next.push((format!("a point goes on from {:?}", point.phase), world));
    }

    pub(crate) fn point_synced(&mut self, sabotage: Sabotage) {
        let mut own = self.point.take().expect("it is there");
        let superblock = own.superblock.expect("captured");
        if own.phase == PointPhase::Tree {
            self.durable = self.durable.max(own.covers);
            self.acknowledged = self.acknowledged.max(own.covers);
            own.phase = PointPhase::Synced;
            own.work = Work::Writes(Vec::new());
            self.point = Some(own);
            return;
        }
        for state in &mut self.states {
            *state = match *state {
                State::Waiting => State::Free,
                State::Captured if sabotage == Sabotage::ReusesAfterOnePoint => State::Free,
                State::Captured => State::Waiting,
                other => other,
            };
        }
        self.states[own.place as usize] = State::InUse;
        self.proven = self.proven.max(superblock.sequence - 1);
        self.tail = self.journal;
        self.journal = superblock.sequence;
        self.generation = superblock.generation;
        self.newest = 1 - self.newest;
    }

    pub(crate) fn steps_of_opening(&self, next: &mut Vec<(String, World)>) {
        let (rest, work, heals) = self.opening.as_ref().expect("it is under way");
        let mut world = self.clone();
        match work {
            Work::Writes(writes) | Work::WritesBeforeSync(writes) => {
                if writes.is_empty() {
                    let work = world.cover();
                    world.opening = Some((rest.clone(), work, *heals));
                } else {
                    let mut work = work.clone();
                    world.arrive(&mut work, 0);
                    world.opening = Some((rest.clone(), work, *heals));
                }
            }
            Work::Syncs => {
                world.synced();
                if *heals {
                    for state in world.states.iter_mut().filter(|state| **state == State::Waiting) {
                        *state = State::Free;
                    }
                    world.tail = world.journal;
                }
                world.opening = match rest.split_first() {
                    Some((first, rest)) => Some((rest.to_vec(), Work::Writes(vec![first.clone()]), false)),
                    None => {
                        world.acknowledged = world.written;
                        None
                    }
                };
            }
        }
        next.push(("the opening goes on".into(), world));
    }
}
