//! Walking the tree of one version, as the newest point has it: its nodes are verified, its blocks go into the batch.

use std::collections::HashMap;

use farside_format::fingerprint::{FAN_OUT, span};
use farside_format::node::copies;
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{Birth, Node, Place, Pointer};
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use super::look_again::Found;
use super::{Block, Scrub, run};
use crate::error::Result;
use crate::nodes::TreeIdentity;

/// Nodes looked at before the blocks gathered so far are read.
const NODES_PER_STEP: usize = 4096;
/// Steps in a row that find the map changed under them, before one is taken that nobody can change it under.
const RESTARTS_MAX: u32 = 4;

/// Why a walk ends before its end.
enum Stop {
    /// The tree has changed under it: from the cursor once more.
    Changed,
    Failed(crate::StoreError),
}

impl From<crate::StoreError> for Stop {
    fn from(error: crate::StoreError) -> Stop {
        Stop::Failed(error)
    }
}

type Walked<T> = std::result::Result<T, Stop>;

/// One walk of one version.
struct Walk<'a> {
    scrub: &'a mut Scrub,
    pace: &'a mut dyn FnMut(u64),
    version: u64,
    tree: TreeIdentity,
    /// Births up to this are an ancestor's, which is done.
    bound: Birth,
    /// Blocks before this one are done.
    from: u64,
    nodes_left: usize,
    stopped_at: Option<u64>,
    gathered: Vec<Block>,
    /// Nodes that were marked on the way.
    marked: Vec<u64>,
}

impl Scrub {
    /// Fills the batch with what comes next; false if everything has been read.
    pub(super) fn gather(&mut self, pace: &mut dyn FnMut(u64)) -> Result<bool> {
        let current = match self.current {
            Some(current) if current.next.is_some() => current,
            ended => {
                self.finished.extend(ended.map(|ended| ended.version));
                self.leave();
                let Some(next) = self.next_version() else { return Ok(false) };
                next
            }
        };
        let from = current.next.unwrap_or(0);
        let found = {
            let state = self.pool.locked();
            let version = state.versions.versions.get(&current.version).filter(|v| !v.deleted);
            version.map(|v| (v.tree, state.view(v).tree, self.bound(&state, v)))
        };
        // Deleted meanwhile: what others have of it is found there, since it does not count as done.
        let Some((tree, identity, bound)) = found else {
            self.current = Some(current);
            self.leave();
            return Ok(true);
        };
        // Nobody can change places then. It may hold up hosts for as long as some reads take, so only if there is no other way.
        let pool = std::sync::Arc::clone(&self.pool);
        let still = (self.restarts > RESTARTS_MAX).then(|| pool.maintenance.lock());
        self.is_still = still.is_some();
        let mut walk = Walk {
            scrub: self,
            pace,
            version: current.version,
            tree: identity,
            bound,
            from,
            nodes_left: NODES_PER_STEP,
            stopped_at: None,
            gathered: Vec::new(),
            marked: Vec::new(),
        };
        let outcome = if tree.root.is_hole() { Ok(true) } else { walk.descend(tree.level, 0, &tree.root) };
        let (stopped_at, mut gathered, marked) = (walk.stopped_at, walk.gathered, walk.marked);
        let was_still = std::mem::take(&mut self.is_still);
        drop(still);
        match std::mem::take(&mut self.untold_bytes) {
            0 => {}
            untold => pace(untold),
        }
        match outcome {
            Ok(_) => self.restarts = 0,
            Err(Stop::Changed) if !was_still => {
                // What was gathered is gathered once more, so nothing of it counts as read.
                let gathered = gathered.iter().map(|block| block.place);
                marked.into_iter().chain(gathered).for_each(|place| self.seen.remove(place));
                self.batch_shared.clear();
                self.current = Some(current);
                self.restarts += 1;
                return Ok(true);
            }
            Err(Stop::Changed) => {
                return Err(crate::StoreError::Inconsistent(
                    "a tree changes while nothing may change".into(),
                ));
            }
            Err(Stop::Failed(error)) => return Err(error),
        }
        gathered.sort_unstable_by_key(|block| block.place);
        self.batch = gathered;
        self.current = Some(super::Current { batch_from: from, next: stopped_at, ..current });
        Ok(true)
    }
}

impl Walk<'_> {
    /// Whether all of it is done, not only what came before the walk stopped.
    fn descend(&mut self, level: u8, position: u64, pointer: &Pointer) -> Walked<bool> {
        let (start, end) = (position * span(level), (position + 1) * span(level));
        if end <= self.from || self.is_done(pointer) {
            return Ok(true);
        }
        let is_full = self.gathered.len() >= self.scrub.batch_blocks || self.nodes_left == 0;
        if self.stopped_at.is_some() || (is_full && start > self.from) {
            self.stopped_at.get_or_insert(start.max(self.from));
            return Ok(false);
        }
        let Some(node) = self.node(level, position, pointer)? else { return Ok(true) };
        let mut is_complete = true;
        match level {
            1 => self.blocks(&node)?,
            2 => self.leaves(&node)?,
            _ => {
                for (index, child) in node.children.iter().enumerate() {
                    is_complete &=
                        self.descend(level - 1, position * FAN_OUT as u64 + index as u64, child)?;
                }
            }
        }
        if is_complete {
            self.mark(pointer);
        }
        Ok(is_complete)
    }

    /// Whether there is nothing to be read: nothing there, or lost before; an ancestor's; or read before. A place that was freed and used
    /// again bears a younger birth, so nothing younger counts as read.
    fn is_done(&self, pointer: &Pointer) -> bool {
        pointer.is_hole()
            || pointer.is_lost()
            || pointer.birth <= self.bound
            || (pointer.birth <= self.scrub.until && self.scrub.seen.contains(pointer.place.0))
    }

    fn mark(&mut self, pointer: &Pointer) {
        if pointer.birth <= self.scrub.until {
            self.scrub.seen.insert(pointer.place.0);
            self.marked.push(pointer.place.0);
        }
    }

    /// The node there, every copy of it verified; none if it is damaged.
    fn node(&mut self, level: u8, position: u64, pointer: &Pointer) -> Walked<Option<Node>> {
        self.nodes_left = self.nodes_left.saturating_sub(1);
        let expected = self.scrub.pool.nodes.expectation(self.tree, level, position, pointer);
        let mut node = None;
        let mut is_sound = true;
        for copy in 0..copies(level) {
            let place = pointer.place.0 + copy * TWIN_DISTANCE;
            let mut block = BlockBuffer::zeroed(1);
            let read = self.scrub.pool.device.read_at(place * BLOCK_BYTES as u64, &mut block);
            self.told(BLOCK_BYTES);
            match read.ok().and_then(|()| self.scrub.pool.nodes.decode(&block, &expected).ok()) {
                Some(found) => node = Some(found),
                None => is_sound = false,
            }
        }
        if is_sound { Ok(node) } else { self.look_again(level, position, pointer) }
    }

    fn look_again(&mut self, level: u8, position: u64, pointer: &Pointer) -> Walked<Option<Node>> {
        match self.scrub.look_at_node_again(self.version, self.tree, level, position, pointer)? {
            Found::Sound(node) => Ok(Some(*node)),
            Found::Damaged => Ok(None),
            Found::Gone => Err(Stop::Changed),
        }
    }

    /// The leaves of a node of level 2, in the order of the medium; then what they map, in order.
    fn leaves(&mut self, node: &Node) -> Walked<()> {
        let position = |index: usize| node.position * FAN_OUT as u64 + index as u64;
        let mut wanted: Vec<(usize, Pointer)> = Vec::new();
        for (index, pointer) in node.children.iter().enumerate() {
            if (position(index) + 1) * span(1) <= self.from || self.is_done(pointer) {
                continue;
            }
            wanted.push((index, *pointer));
        }
        self.nodes_left = self.nodes_left.saturating_sub(wanted.len());
        wanted.sort_unstable_by_key(|(_, pointer)| pointer.place);
        let mut found: HashMap<usize, Node> = HashMap::new();
        let mut left = wanted.as_slice();
        while !left.is_empty() {
            let (near, rest) = left.split_at(run(left.iter().map(|(_, p)| p.place.0)));
            left = rest;
            let first = near[0].1.place.0;
            let mut data = BlockBuffer::zeroed((near[near.len() - 1].1.place.0 - first + 1) as usize);
            let read = self.scrub.pool.device.read_at(first * BLOCK_BYTES as u64, &mut data);
            self.told(data.len());
            for (index, pointer) in near {
                let at = (pointer.place.0 - first) as usize * BLOCK_BYTES;
                let nodes = &self.scrub.pool.nodes;
                let expected = nodes.expectation(self.tree, 1, position(*index), pointer);
                let leaf = read.is_ok().then(|| nodes.decode(&data[at..at + BLOCK_BYTES], &expected).ok());
                let leaf = match leaf.flatten() {
                    Some(leaf) => Some(leaf),
                    None => self.look_again(1, position(*index), pointer)?,
                };
                found.extend(leaf.map(|leaf| (*index, leaf)));
            }
        }
        wanted.sort_unstable_by_key(|(index, _)| *index);
        for (index, pointer) in wanted {
            if let Some(leaf) = found.get(&index) {
                self.blocks(leaf)?;
            }
            self.mark(&pointer);
        }
        Ok(())
    }

    /// What a leaf maps goes into the batch, as far as it is not read yet.
    fn blocks(&mut self, leaf: &Node) -> Walked<()> {
        let first = leaf.position * FAN_OUT as u64;
        let shared = self.shared_places(leaf);
        for (pointer, block) in leaf.children.iter().zip(first..) {
            let is_old = pointer.birth > self.bound && pointer.birth <= self.scrub.until;
            if pointer.is_hole() || pointer.is_lost() || block < self.from || !is_old {
                continue;
            }
            let place = pointer.place.0;
            let (fingerprint, family) = (pointer.fingerprint, self.tree.family);
            let wanted = Block { place, fingerprint, family, block };
            let is_shared = shared.contains(&place);
            if self.scrub.seen.contains(place) {
                // Another owner of what is damaged, or of what may turn out to be.
                if is_shared && self.scrub.damaged.contains(&place) {
                    self.scrub.look_at_block_again(&wanted)?;
                } else if is_shared && self.scrub.batch_shared.contains(&place) {
                    self.gathered.push(wanted);
                }
                continue;
            }
            if is_shared {
                self.scrub.batch_shared.insert(place);
            }
            self.scrub.seen.insert(place);
            self.gathered.push(wanted);
        }
        Ok(())
    }

    /// Those of a leaf's places that have several owners.
    fn shared_places(&self, leaf: &Node) -> Vec<u64> {
        let state = self.scrub.pool.locked();
        let owners = &state.allocator.owners;
        if owners.shared_places() == 0 {
            return Vec::new();
        }
        let places = leaf.children.iter().map(|p| p.place).filter(|place| *place != Place(0));
        places.filter(|place| owners.extra(*place) > 0).map(|place| place.0).collect()
    }

    fn told(&mut self, bytes: usize) {
        self.scrub.read_bytes += bytes as u64;
        // With a lock held nobody is made to wait for it.
        if self.scrub.is_still {
            self.scrub.untold_bytes += bytes as u64;
        } else {
            (self.pace)(bytes as u64);
        }
    }
}
