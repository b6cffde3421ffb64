//! Deduplication at rest: blocks of equal content in one pool come to lie at one place, while hosts read and write.
//!
//! **Among whom.** The heads of the volumes named, against each other and within themselves. Snapshots stay as they are: a place that
//! one of them has comes free when that snapshot goes. Replicas that hosts cannot write are left out, since the next update replaces
//! their heads.
//!
//! **Found by metadata.** Fingerprints are in the leaves, so no data is read to look for equal blocks. What was seen is remembered in a
//! table of fixed size (`index.rs`), a hint and no more. Above its size it keeps a sample, and a hit leads on to the neighbours on both
//! sides (`candidates.rs`), so that long runs are found whatever the size of the pool.
//!
//! **Believed by hash (S7).** What is kept is read and hashed. Then it is shared by the journal's share record, if under the state lock
//! both blocks are mapped as they were (`sharing.rs`): what a host wrote meanwhile stays. A block that does not match its fingerprint is
//! shared with nobody.
//!
//! **Which one is kept.** That which is shared most already, then the one that a snapshot has too, then the older one (`choice.rs`).
//!
//! **Cheap when repeated.** A pass looks at what was born since the last one; subtrees without such births are not read. The first
//! pass of a table that is new (after a restart) walks the metadata of all volumes named, 0.7 % of their data.
//!
//! **Memory**: the table, by default 128 MiB once it is full, and some 2 MiB for the leaves at hand, whatever the pool's size.
//!
//! What is saved is counted by `count.rs`; `undo.rs` gives blocks a place of their own again.

mod candidates;
mod choice;
mod count;
mod index;
mod member;
mod sharing;
#[cfg(test)]
mod tests;
mod undo;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_format::Birth;
use farside_format::fingerprint::FAN_OUT;
use farside_platform::BLOCK_BYTES;
use uuid::Uuid;

pub use count::{DedupCount, DedupSavings};
pub use index::{DEDUP_INDEX_BYTES, DedupIndex};
pub use undo::{DedupUndo, DedupUndone};

use self::member::{At, LEAVES_PER_STEP, Leaf, Member, check_member, head_view};
use crate::error::{Result, StoreError};
use crate::fingerprint_index::LeafAt;
use crate::pool::{Pool, State};

/// Where a pass is: enough to go on after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DedupPosition {
    /// The version that hosts saw when it began. Another one (after a rollback, a resync) is looked at from the beginning.
    pub head: u64,
    /// What was born up to this was looked at by an earlier pass. 0: nothing was.
    pub since: u64,
    /// What was born later is left to the next pass.
    pub until: u64,
    /// Leaves of the volume before this one are done.
    pub leaf: u64,
}

/// What a pass has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DedupFigures {
    /// Blocks whose fingerprints were looked up.
    pub scanned_blocks: u64,
    /// Blocks that share a place since, and gave up one.
    pub shared_blocks: u64,
    /// Of the places given up, those that snapshots have: they come free with these.
    pub held_blocks: u64,
    /// Blocks that stayed where they are because the other one has as many owners as it may have.
    pub limited_blocks: u64,
    /// Blocks that would have been kept, and are damaged.
    pub damaged_blocks: u64,
}

/// A pass over one volume. It does nothing by itself: [`Dedup::step`] goes on.
pub struct Dedup {
    pool: Arc<Pool>,
    volume: Uuid,
    /// Those that may share, that one among them.
    among: Vec<Uuid>,
    index: DedupIndex,
    position: DedupPosition,
    /// Volumes that the table does not know yet.
    to_learn: Vec<Learn>,
    /// Where the last match led: content that was copied in one piece goes on there.
    follow: Vec<LeafAt>,
    figures: DedupFigures,
    is_done: bool,
}

/// A volume to be walked before the pass.
#[derive(Clone, Copy, Debug)]
struct Learn {
    member: Member,
    since: Birth,
    until: Birth,
    leaf: u64,
}

impl Pool {
    /// Begins a pass over a volume: over what was born since `last` was its position at the end, or over everything. `index` is what
    /// the pass before left, of whatever volume of this pool. A consistency point comes first, so that what is there is in the trees.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if there is no such volume, [`StoreError::Refused`] if it is a replica that hosts cannot write,
    /// [`StoreError::Failed`] of a pool that accepts no changes, and those of the device.
    pub fn begin_dedup(
        self: &Arc<Self>,
        volume: Uuid,
        among: &[Uuid],
        last: Option<DedupPosition>,
        index: DedupIndex,
    ) -> Result<Dedup> {
        self.check_usable()?;
        let head = check_member(&self.locked(), volume)?.head;
        self.point_for_dedup()?;
        let since = last.filter(|last| last.head == head).map_or(0, |last| last.until);
        let position = DedupPosition { head, since, until: self.locked().epoch.0 - 1, leaf: 0 };
        self.resume_dedup(volume, among, position, DedupFigures::default(), index)
    }

    /// Goes on with a pass that ended before its end.
    ///
    /// # Errors
    /// As [`Pool::begin_dedup`].
    pub fn resume_dedup(
        self: &Arc<Self>,
        volume: Uuid,
        among: &[Uuid],
        position: DedupPosition,
        figures: DedupFigures,
        index: DedupIndex,
    ) -> Result<Dedup> {
        self.check_usable()?;
        let mut among = among.to_vec();
        if !among.contains(&volume) {
            among.push(volume);
        }
        let state = self.locked();
        let own = check_member(&state, volume)?;
        let until = Birth(state.epoch.0 - 1);
        let mut index = index.of_pool(self.id());
        index.keep_only(&members_of(&state, &among));
        let mut to_learn = Vec::new();
        for member in members_of(&state, &among) {
            // A pass over everything learns as it goes.
            let is_walked_anyway =
                member == own && (position.since, position.leaf) == (0, 0) && position.head == own.head;
            let since = index.known_up_to(member.volume, member.head);
            if !is_walked_anyway && since < until {
                to_learn.push(Learn { member, since, until, leaf: 0 });
            }
        }
        drop(state);
        Ok(Dedup {
            pool: Arc::clone(self),
            volume,
            among,
            index,
            position,
            to_learn,
            follow: Vec::new(),
            figures,
            is_done: false,
        })
    }

    /// Where there is no room for one, what the last one has is looked at all the same.
    fn point_for_dedup(&self) -> Result<()> {
        match self.consistency_point() {
            Ok(()) | Err(StoreError::NoRoomForPoint { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether a volume holds anything that a pass with this last position has not seen. Reads nothing.
    pub fn dedup_has_work(&self, volume: Uuid, last: &DedupPosition) -> bool {
        let state = self.locked();
        let Ok(member) = check_member(&state, volume) else { return false };
        let head = state.versions.versions.get(&member.head);
        member.head != last.head || head.is_some_and(|head| head.changed_since(Birth(last.until)))
    }
}

impl Dedup {
    /// Goes on by 4 MiB of the volume, or less; false once it is at its end. `pace` is told of every read, by its bytes, with no lock
    /// held: it may wait.
    ///
    /// # Errors
    /// The pool accepts no changes, or has no room for the consequences ([`StoreError::NoSpace`]); the volume was deleted, or became a
    /// replica. The next step tries the same again.
    pub fn step(&mut self, pace: &mut dyn FnMut(u64)) -> Result<bool> {
        self.pool.check_usable()?;
        if self.is_done {
            return Ok(false);
        }
        let member = check_member(&self.pool.locked(), self.volume)?;
        if let Some(learn) = self.to_learn.last().copied() {
            self.learn(learn, pace)?;
            return Ok(true);
        }
        if member.head != self.position.head {
            // What hosts see was replaced: all of it may be new here.
            self.position = DedupPosition { head: member.head, since: 0, leaf: 0, ..self.position };
        }
        let since = Birth(self.position.since);
        let Some((leaves, next)) = self.leaves(member, since, self.position.leaf, pace)? else {
            return Err(StoreError::NotFound("the volume was deleted meanwhile".into()));
        };
        self.share_leaves(member, &leaves, since, pace)?;
        for leaf in &leaves {
            self.index.enter(LeafAt { volume: member.volume, leaf: leaf.leaf }, leaf);
        }
        match next {
            Some(next) => self.position.leaf = next,
            None => {
                self.is_done = true;
                self.index.knows(member.volume, member.head, Birth(self.position.until));
            }
        }
        Ok(!self.is_done)
    }

    /// Where to go on after a crash; at the end, what the next pass begins with.
    pub fn position(&self) -> DedupPosition {
        self.position
    }

    /// What was done so far.
    pub fn figures(&self) -> DedupFigures {
        self.figures
    }

    /// Which part of it is done, 0 to 1, by how far it has come in the volume; none while it learns what others hold.
    pub fn done_part(&self) -> Option<f64> {
        if !self.to_learn.is_empty() {
            return None;
        }
        let state = self.pool.locked();
        let head = state.versions.versions.get(&self.position.head)?;
        let leaves = crate::versions::blocks(head.size_bytes).div_ceil(FAN_OUT as u64).max(1);
        let done = if self.is_done { leaves } else { self.position.leaf.min(leaves) };
        Some(done as f64 / leaves as f64)
    }

    /// The table, for the next pass.
    pub fn into_index(self) -> DedupIndex {
        self.index
    }

    /// One step through a volume that the table does not know.
    fn learn(&mut self, mut learn: Learn, pace: &mut dyn FnMut(u64)) -> Result<()> {
        let Learn { member, since, until, leaf } = learn;
        // One that was deleted meanwhile, or whose head was replaced, is known by what was seen.
        let found = self.leaves(member, since, leaf, pace)?;
        let next = found.as_ref().and_then(|(_, next)| *next);
        for leaf in found.iter().flat_map(|(leaves, _)| leaves) {
            self.index.enter(LeafAt { volume: member.volume, leaf: leaf.leaf }, leaf);
        }
        self.to_learn.pop();
        match next {
            Some(next) => {
                learn.leaf = next;
                self.to_learn.push(learn);
            }
            None if found.is_some() => self.index.knows(member.volume, member.head, until),
            None => {}
        }
        Ok(())
    }

    /// The next leaves of a head in which something was born after `since`, and where to go on; none if there is no such head any more.
    fn leaves(
        &self,
        member: Member,
        since: Birth,
        from: u64,
        pace: &mut dyn FnMut(u64),
    ) -> Result<Option<(Vec<Leaf>, Option<u64>)>> {
        let nodes = &self.pool.nodes;
        let reads = nodes.reads();
        let found = {
            let _reading = self.pool.readers.read();
            let Some(view) = head_view(&self.pool, member) else { return Ok(None) };
            let mut leaves = Vec::with_capacity(LEAVES_PER_STEP);
            let mut left = LEAVES_PER_STEP;
            let next = view.visit_leaves_since(nodes, since, from, &mut left, &mut |leaf, spot| {
                let own = spot.known_fingerprint();
                let pointers = Box::new(spot.leaf(nodes, view.tree)?);
                leaves.push(Leaf { leaf, own, pointers });
                Ok(())
            })?;
            (leaves, next)
        };
        pace(nodes.reads().saturating_sub(reads) * BLOCK_BYTES as u64);
        Ok(Some(found))
    }

    /// Shares what of these leaves lies elsewhere too.
    fn share_leaves(
        &mut self,
        member: Member,
        leaves: &[Leaf],
        since: Birth,
        pace: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut own = Vec::with_capacity(leaves.len() * FAN_OUT);
        for leaf in leaves {
            for (pointer, block) in leaf.pointers.iter().zip(leaf.leaf * FAN_OUT as u64..) {
                if !pointer.is_hole() && !pointer.is_lost() && pointer.birth > since {
                    own.push(At { volume: member.volume, head: member.head, block, pointer: *pointer });
                }
            }
        }
        self.figures.scanned_blocks += own.len() as u64;
        let members = self.members();
        let candidates = self.candidates(&members, leaves, &own, pace)?;
        let moves = self.choose(&own, candidates);
        self.follow = moves.follow(leaves.last().map_or(0, |leaf| leaf.leaf));
        self.carry_out(moves, pace)
    }

    /// Those that take part, as of now.
    fn members(&self) -> Vec<Member> {
        members_of(&self.pool.locked(), &self.among)
    }

    fn count_read(&self, bytes: u64) {
        self.pool.counters.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Those of the volumes named that are there and may be written.
fn members_of(state: &State, among: &[Uuid]) -> Vec<Member> {
    among.iter().filter_map(|uuid| check_member(state, *uuid).ok()).collect()
}
