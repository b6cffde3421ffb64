//! Freeing what a deleted version alone held, in steps.
//!
//! A deleted version waits while two or more others descend from it, or a reader holds it. Then it is walked by
//! position: what its child has not at the same position with the same place and birth, and no ancestor holds, is
//! freed; the cursor (`reaped_blocks`) moves on. The rules are in `docs/format.md`, "Lineage". Nothing is written: the
//! next consistency point records cursor and free map together, and recovery goes on from there.

use std::collections::HashMap;

use farside_format::fingerprint::{FAN_OUT, span};
use farside_format::node::copies;
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{Place, Pointer};

use crate::delta;
use crate::error::{Result, StoreError};
use crate::nodes::TreeIdentity;
use crate::point::{is_lost, unattributed_below};
use crate::pool::Pool;
use crate::versions::{Ended, Holder, VersionState};

/// Node pairs looked at in one step: some hundred milliseconds cold, and writers wait for none of it.
const NODES_PER_STEP: usize = 1024;

/// What one step found.
struct Found {
    /// Node pairs after which it stops.
    nodes_max: usize,
    data: Vec<Pointer>,
    /// (place, level).
    nodes: Vec<(Place, u8)>,
    visited: usize,
    /// Blocks that stay in use since a damaged node does not tell whose they are, at most.
    unattributed: u64,
    /// Everything below this block has been dealt with.
    cursor: u64,
}

impl Pool {
    /// One step of reaping; true if there is more to do.
    pub fn reap_step(&self) -> Result<bool> {
        self.reap_step_within(NODES_PER_STEP)
    }

    /// One step of reaping that looks at about `nodes_max` nodes; true if there is more to do.
    pub fn reap_step_within(&self, nodes_max: usize) -> Result<bool> {
        self.check_usable()?;
        // No consistency point meanwhile: trees stand still.
        let mut system = self.maintenance.lock();
        // A trim that only memory knows is first written over this version's tree, which holds what is below until it is
        // reaped: the point walks none of it, and the reaper does so in steps. Later the point would walk it at once.
        if self.next_to_reap().is_some_and(|(version, child, ..)| {
            version.reaped_blocks == 0 && child.is_some_and(|child| child.delta.is_some_and(|d| d.has_cut()))
        }) {
            match self.point(&mut system) {
                // What is reaped may be what the point lacks room for.
                Ok(()) | Err(StoreError::NoRoomForPoint { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let reading = self.readers.read();
        let Some((version, child, holder, tree)) = self.next_to_reap() else { return Ok(false) };
        let from = version.reaped_blocks;
        let level = version.tree.level.max(child.as_ref().map_or(0, |c| c.tree.level));
        let child_root = child.as_ref().map_or(Pointer::HOLE, |c| c.tree.root);
        let child_level = child.as_ref().map_or(0, |c| c.tree.level);
        // Without room for a point there is one step only.
        let nodes_max = if self.locked().owed_pairs > 0 { usize::MAX } else { nodes_max };
        let mut found = Found {
            nodes_max,
            data: Vec::new(),
            nodes: Vec::new(),
            visited: 0,
            unattributed: 0,
            cursor: span(6),
        };
        let walked = self.walk(
            tree,
            level,
            0,
            (version.tree.root, version.tree.level),
            (child_root, child_level),
            &holder,
            from,
            &mut found,
        );
        match walked {
            // One map that cannot be read must not keep all others from being reaped. What it holds stays in use.
            Err(error @ (StoreError::Corrupt { .. } | StoreError::Device(_))) => {
                tracing::error!(pool = %self.id, version = version.id, "the space of a deleted version does not come \
                     back until the pool is opened anew, because its metadata cannot be read: {error}. No other version \
                     is affected; farside pool check lists the damage");
                self.locked().versions.version_mut(version.id)?.stuck = true;
                return Ok(true);
            }
            other => other?,
        }
        let finished = found.cursor == span(6);
        if !finished && version.delta.is_some() {
            // A cursor speaks of trees on the medium only: first let a point write this version's changes.
            drop(reading);
            self.point(&mut system)?;
            return Ok(true);
        }
        let mut state = self.locked();
        state.full_since = None;
        // Hosts went on meanwhile. A freeze may have put a snapshot between this version and the head that was its
        // child, on the same tree; and the child may have replaced what it had inherited of changes that no point
        // has written yet, which freed nothing, since this version still had them.
        let child = state.versions.children_of(version.id).next();
        if let Some(own) = &version.delta {
            let inherited = child.and_then(|c| c.delta.as_ref().map(|delta| (delta, c.level())));
            let mut alone = Vec::new();
            delta::collect_unshared((own, version.level()), inherited, 0, &mut alone);
            let freed = alone.iter().filter(|(block, pointer)| pointer.birth > holder.at_block(*block));
            found.data.extend(freed.map(|(_, pointer)| *pointer));
        }
        let has_changes = child.is_some_and(|c| c.delta.is_some() || c.capturing.is_some());
        let child = child.map(|c| c.id);
        if found.unattributed > 0 {
            let blocks = found.unattributed;
            tracing::error!(
                pool = %self.id, version = version.id,
                "up to {blocks} blocks of a deleted version stay allocated for good: the damaged metadata does not \
                 say who owned them. No data is affected by that; farside pool check lists the damage"
            );
            let total = &mut state.versions.unattributed_blocks_max;
            *total = total.saturating_add(found.unattributed);
        }
        let mut ended = Ended::default();
        for pointer in found.data {
            state.allocator.release(pointer.place);
            ended.add(holder.owner(pointer.birth));
        }
        ended.iter().for_each(|(owner, blocks)| state.versions.owns_no_more(owner, blocks));
        for (place, level) in found.nodes {
            state.allocator.free(place, 1);
            if copies(level) == 2 {
                state.allocator.free(Place(place.0 + TWIN_DISTANCE), 1);
            }
        }
        if finished {
            // On the medium the child has yet what its changes replaced: that is the child's now, and ends with the next point.
            if has_changes {
                let unsettled = state.versions.usage_of(version.volume).unsettled();
                let left = state.versions.owned_blocks(version.id).min(unsettled);
                let (blocks, since) = state.left_for_point.unwrap_or((0, self.options.clock.monotonic()));
                state.left_for_point = Some((blocks.saturating_add(left), since));
            }
            state.versions.remove_reaped(version.id, child)?;
            tracing::debug!(pool = %self.id, version = version.id, "reaped");
        } else {
            state.versions.version_mut(version.id)?.reaped_blocks = found.cursor;
        }
        Ok(true)
    }

    /// Reaps until nothing is left to do.
    pub fn reap_all(&self) -> Result<()> {
        while self.reap_step()? {}
        Ok(())
    }

    fn next_to_reap(&self) -> Option<(VersionState, Option<VersionState>, Holder, TreeIdentity)> {
        let state = self.locked();
        let mut children: HashMap<u64, usize> = HashMap::new();
        if !state.versions.versions.values().any(|v| v.deleted) {
            return None;
        }
        for version in state.versions.versions.values() {
            *children.entry(version.parent).or_default() += 1;
        }
        // One at a time, and the one begun first is ended first: its neighbours rely on its cursor.
        let mut candidates: Vec<_> = state
            .versions
            .versions
            .values()
            .filter(|v| {
                v.deleted && !v.is_in_use() && !v.stuck && children.get(&v.id).copied().unwrap_or(0) <= 1
            })
            .collect();
        candidates.sort_by_key(|v| (v.reaped_blocks == 0, v.age(), v.id));
        let version = candidates.first()?;
        let child = state.versions.children_of(version.id).next().cloned();
        let holder = state.versions.holder_of(version);
        let tree = state.view(version).tree;
        Some(((*version).clone(), child, holder, tree))
    }

    /// Walks the trees of the last point side by side. A tree lower than `level` stands at its left edge.
    #[allow(clippy::too_many_arguments)]
    fn walk(
        &self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        own: (Pointer, u8),
        child: (Pointer, u8),
        holder: &Holder,
        from: u64,
        found: &mut Found,
    ) -> Result<()> {
        let (start, end) = (position * span(level), (position + 1) * span(level));
        let (pointer, own_level) = own;
        if found.cursor < span(6) || end <= from || pointer.is_hole() || pointer.is_lost() {
            return Ok(());
        }
        // The child has the same subtree, or an ancestor holds it: nothing below is this version's alone.
        let shared = pointer.same_ownership(&child.0) && own_level == child.1;
        if shared || pointer.birth <= holder.everywhere() {
            return Ok(());
        }
        // The child may have what its damaged map does not tell, and may tell it again one day: nothing is freed.
        if child.0.is_lost() {
            found.unattributed = found.unattributed.saturating_add(unattributed_below(own_level));
            return Ok(());
        }
        if level == 0 {
            if pointer.birth > holder.at_block(position) {
                found.data.push(pointer);
            }
            return Ok(());
        }
        if found.visited >= found.nodes_max && start > from {
            found.cursor = start;
            return Ok(());
        }
        found.visited += 1;
        let Some(child_children) = self.pointers(tree, level, position, child)? else {
            found.unattributed = found.unattributed.saturating_add(unattributed_below(own_level));
            return Ok(());
        };
        let own_children = match self.pointers(tree, level, position, own)? {
            Some(children) => children,
            None => {
                found.unattributed = found.unattributed.saturating_add(unattributed_below(level));
                if pointer.birth > holder.at_node(end) {
                    found.nodes.push((pointer.place, level));
                }
                return Ok(());
            }
        };
        if level > 1 {
            let at = |index| position * FAN_OUT as u64 + index as u64;
            let visited =
                (0..FAN_OUT).filter(|index| (at(*index) + 1) * span(level - 1) > from).filter_map(|index| {
                    let ((own, own_level), (other, other_level)) =
                        (own_children(index), child_children(index));
                    let is_shared = own.same_ownership(&other) && own_level == other_level;
                    let is_visited = own_level == level - 1 && !is_shared && own.birth > holder.everywhere();
                    is_visited.then_some((at(index), own))
                });
            self.nodes.read_ahead(tree, level - 1, visited);
        }
        for index in 0..FAN_OUT {
            let position = position * FAN_OUT as u64 + index as u64;
            self.walk(
                tree,
                level - 1,
                position,
                own_children(index),
                child_children(index),
                holder,
                from,
                found,
            )?;
        }
        let complete = found.cursor >= end;
        if own_level == level && complete && pointer.birth > holder.at_node(end) {
            found.nodes.push((pointer.place, level));
        }
        Ok(())
    }

    /// The children of a subtree, each with the level of the node it leads to; `None` if its node is damaged.
    fn pointers(
        &self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        (pointer, own_level): (Pointer, u8),
    ) -> Result<Option<impl Fn(usize) -> (Pointer, u8)>> {
        let node = if pointer.is_hole() || own_level < level {
            None
        } else {
            Some(self.nodes.read_or_lost(tree, level, position, &pointer)?)
        };
        if node.as_ref().is_some_and(|node| is_lost(node)) {
            return Ok(None);
        }
        Ok(Some(move |index: usize| match &node {
            Some(node) => (node.children[index], level - 1),
            None if index == 0 && !pointer.is_hole() => (pointer, own_level),
            None => (Pointer::HOLE, level - 1),
        }))
    }
}
