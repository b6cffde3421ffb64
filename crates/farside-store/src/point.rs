//! A consistency point: everything that changed is written to free places, then one superblock is flipped.
//!
//! Order, and what a crash after each step leaves:
//! 1. *Capture* (under the locks, in memory): a point record ends a journal batch; deltas and free map are set aside.
//! 2. Trees, owner counts, catalog, free map go to free places. A crash here: the old points and the whole journal are intact.
//! 3. Sync.
//! 4. The superblock of the slot that does not hold the newest point. A crash here: either slot opens the pool.
//! 5. Sync.
//! 6. *Install* (in memory): versions stand on their new trees, what waited two points is free.
//!
//! Hosts write on throughout; only capture and install take the state lock, for no longer than memory needs.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_format::catalog::CATALOG_BYTES_MAX;
use farside_format::fingerprint::{FAN_OUT, level_for, span};
use farside_format::free_map::BLOCKS_PER_CHUNK;
use farside_format::journal::Record;
use farside_format::node::copies;
use farside_format::owner_counts::table_blocks;
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::superblock::SUPERBLOCK_PLACES;
use farside_format::{
    BLOCK_BYTES, Birth, Fingerprint, Node, Place, Pointer, Superblock, TreeKind, TreeReference,
};
use farside_platform::BlockBuffer;

use crate::allocator::FreeMapCapture;
use crate::delta::{Delta, Entry};
use crate::error::{Result, StoreError};
use crate::nodes::TreeIdentity;
use crate::pool::{PanicLatch, Pool, SystemTrees};
use crate::usage::Usage;
use crate::versions::{Ended, Holder, blocks};

/// Nodes and blocks gathered before they are written in order of place, neighbours joined.
const GATHER_BYTES: usize = 4 << 20;
/// Longest single write of joined neighbours: more than about half a MiB in flight makes a flush wait.
const JOINED_BYTES_MAX: usize = 512 << 10;

pub(crate) const CATALOG_TREE: TreeIdentity = TreeIdentity { kind: TreeKind::Catalog, family: 0 };
pub(crate) const FREE_MAP_TREE: TreeIdentity = TreeIdentity { kind: TreeKind::FreeMap, family: 0 };
pub(crate) const OWNER_COUNTS_TREE: TreeIdentity = TreeIdentity { kind: TreeKind::OwnerCounts, family: 0 };

/// A version as the point found it.
struct CapturedVersion {
    id: u64,
    tree: TreeIdentity,
    before: TreeReference,
    level: u8,
    size_bytes: u64,
    /// What is lost from this block on were holes, or, in a staged version that is not cut to its size yet, will be.
    end: u64,
    delta: Option<Arc<Delta>>,
    holder: Holder,
    age: u64,
}

/// What distinguishes one thing to build from another: the base it stands on and the delta over it.
type BuildKey = (u64, *const Delta);

impl Pool {
    /// Makes a consistency point now. Durable when it returns: whatever was answered before it was called.
    pub fn consistency_point(&self) -> Result<()> {
        let mut system = self.maintenance.lock();
        self.point(&mut system)
    }

    pub(crate) fn point(&self, system: &mut SystemTrees) -> Result<()> {
        self.check_usable()?;
        // If the device refuses data now, there is no point, and nothing is in doubt.
        self.write_out()?;
        self.find_room_for_point(system)?;
        let mut has_begun = false;
        let made = self.try_point(system, &mut has_begun).map_err(|error| match error {
            // S1 is broken. Nobody may take this for a pool that is merely full.
            StoreError::NoSpace { .. } => {
                StoreError::Inconsistent(format!("a consistency point found no room: {error}"))
            }
            error => error,
        });
        if made.is_ok() {
            self.note_point_written();
        }
        if has_begun { self.latch(made) } else { made }
    }

    /// Until it has begun nothing is in doubt.
    fn try_point(&self, system: &mut SystemTrees, has_begun: &mut bool) -> Result<()> {
        // 1. Capture.
        let mut ring = self.ring.lock();
        let _latch = PanicLatch(self);
        let mut state = self.state.lock();
        self.take_room_for_point(&mut state)?;
        *has_begun = true;
        let generation = system.generation + 1;
        state.epoch.0 += 1;
        let epoch = state.epoch;
        state.append(&Record::Point { generation, birth_epoch: epoch });
        let payloads = state.pending.take();
        let appended = state.appended;
        let mut captured = Vec::new();
        let ids: Vec<u64> = state.versions.versions.keys().copied().collect();
        for id in ids {
            let family = {
                let volume = state.versions.version(id)?.volume;
                state.versions.volumes.get(&volume).map_or(0, |v| v.family)
            };
            let holder = state.versions.holder_of(state.versions.version(id)?);
            let version = state.versions.version_mut(id)?;
            debug_assert!(version.capturing.is_none());
            version.capturing = version.delta.take();
            captured.push(CapturedVersion {
                id,
                tree: TreeIdentity { kind: TreeKind::Volume, family },
                before: version.tree,
                level: version.level(),
                size_bytes: version.size_bytes,
                end: blocks(version.size_bytes),
                delta: version.capturing.clone(),
                holder,
                age: version.age(),
            });
        }
        captured.sort_by_key(|v| v.age);
        let catalog_at_capture = state.versions.encode(|_| TreeReference::default());
        let free_map = state.allocator.capture();
        let pairs = std::mem::take(&mut state.dirty_pairs);
        state.capturing_leaves = std::mem::take(&mut state.dirty_leaves);
        state.load.captured();
        state.capturing_overlay_bytes += std::mem::take(&mut state.overlay_bytes);
        state.counting_blocks += std::mem::take(&mut state.written_blocks);
        state.left_for_point = None;
        state.versions.usage_mut().for_each(Usage::captured);
        state.changed_at_point = state.changed;
        let growth = state.catalog_growth;
        drop(state);
        ring.write(payloads)?;
        let (position, sequence, chain) = (ring.position, ring.sequence, ring.chain);
        drop(ring);

        // 2. Trees, owner counts, catalog, free map.
        let mut writer = PointWriter {
            pool: self,
            free_map,
            pairs,
            built: HashMap::new(),
            gathered: BTreeMap::new(),
            gathered_bytes: 0,
            birth: epoch,
            unattributed: 0,
            ended: Ended::default(),
        };
        let mut trees: HashMap<u64, TreeReference> = HashMap::new();
        for version in &captured {
            trees.insert(version.id, writer.version(version)?);
        }
        let owner_counts = writer.owner_counts(&system.owner_counts)?;
        let mut catalog = catalog_at_capture;
        for version in &mut catalog.versions {
            version.set_tree(&trees[&version.id]);
        }
        for (owner, blocks) in writer.ended.iter() {
            if let Ok(at) = catalog.versions.binary_search_by_key(&owner, |v| v.id) {
                let owned = &mut catalog.versions[at].owned_blocks;
                debug_assert!(*owned >= blocks, "version {owner} owned {owned} blocks");
                *owned = owned.saturating_sub(blocks);
            }
        }
        let unattributed = catalog.unattributed_blocks_max.saturating_add(writer.unattributed);
        catalog.unattributed_blocks_max = unattributed;
        let bytes = prost::Message::encode_to_vec(&catalog);
        if bytes.len() as u64 > CATALOG_BYTES_MAX {
            return Err(StoreError::Refused("the catalog is larger than 256 MiB: delete snapshots".into()));
        }
        writer.free_tree(CATALOG_TREE, &system.catalog)?;
        let catalog_tree = writer.blob(CATALOG_TREE, &bytes)?;
        let (free_map_tree, chunk_pointers) = writer.free_map(&system.free_map, &system.chunk_pointers)?;
        writer.write_gathered()?;
        let PointWriter { free_map, pairs: unused_pairs, built, ended, .. } = writer;

        // 3. Sync: the journal up to the capture and everything above.
        self.sync_device()?;
        self.durable.fetch_max(appended, Ordering::AcqRel);
        self.durable_to.fetch_max(position, Ordering::AcqRel);

        // 4. and 5. The superblock.
        let superblock = Superblock {
            pool: self.id,
            copy: self.copy_mark(),
            pool_blocks: self.pool_blocks(),
            journal_blocks: self.journal_blocks,
            generation,
            open_epoch: self.open_epoch,
            birth_epoch: epoch.0,
            journal_position: position,
            journal_sequence: sequence,
            journal_chain: chain,
            catalog: catalog_tree,
            free_map: free_map_tree,
            owner_counts,
        };
        let slot = 1 - system.newest_slot;
        self.check_usable()?;
        self.check_alone(system, generation)?;
        self.device.write_at(
            SUPERBLOCK_PLACES[slot] * BLOCK_BYTES as u64,
            &BlockBuffer::copy_of(&*superblock.encode()),
        )?;
        self.sync_device()?;

        // 6. Install: after the last reader has gone who can have seen what becomes free now.
        self.readers.wait_for_earlier();
        let mut ring = self.ring.lock();
        let mut state = self.state.lock();
        for version in state.versions.versions.values_mut() {
            let Some(delta) = version.capturing.take() else { continue };
            let (pointer, level) = built[&(version.tree.root.place.0, Arc::as_ptr(&delta))].reference();
            version.tree = TreeReference { root: pointer, level, length_bytes: 0 };
        }
        state.allocator.installed(free_map);
        if self.is_scarce_below() {
            state.allocator.rewind();
        }
        for (owner, blocks) in ended.iter() {
            state.versions.owned_no_more_at(owner, epoch, blocks);
        }
        state.versions.unattributed_blocks_max = unattributed;
        state.capturing_leaves = 0;
        state.capturing_overlay_bytes = 0;
        state.counting_blocks = 0;
        state.versions.usage_mut().for_each(Usage::installed);
        state.load.installed();
        state.catalog_bytes = bytes.len() as u64;
        state.catalog_growth -= growth;
        for place in std::mem::take(&mut state.chosen_leaves) {
            state.allocator.give_back(place, 1);
        }
        for pair in unused_pairs {
            state.allocator.give_back_pair(pair);
        }
        ring.proven = ring.proven.max(sequence - 1);
        ring.tail = system.journal_position;
        state.ring_used = ring.used();
        system.generation = generation;
        state.generation = generation;
        system.newest_slot = slot;
        system.published = superblock;
        system.journal_position = position;
        system.catalog = catalog_tree;
        system.free_map = free_map_tree;
        system.owner_counts = owner_counts;
        system.chunk_pointers = chunk_pointers;
        state.system_blocks = writer_blocks(bytes.len(), state.allocator.chunks());
        self.readers.turn();
        drop(state);
        drop(ring);
        self.counters.points.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(generation, epoch = epoch.0, "consistency point");
        Ok(())
    }
}

/// Blocks that catalog and free map of a pool take, nodes included, at most.
pub(crate) fn writer_blocks(catalog_bytes: usize, chunks: u64) -> u64 {
    let tree = |blocks: u64| {
        blocks + blocks.div_ceil(FAN_OUT as u64) + 2 * (blocks / (FAN_OUT * FAN_OUT) as u64 + 6)
    };
    tree(catalog_bytes.div_ceil(BLOCK_BYTES) as u64 + 1) + tree(chunks)
}

/// What building one delta gave.
#[derive(Clone, Copy)]
struct Built {
    pointer: Pointer,
    level: u8,
    below: Below,
}

/// What lies below a node, blocks.
#[derive(Clone, Copy, Default)]
struct Below {
    mapped: u64,
    lost: u64,
}

impl Below {
    fn replace(&mut self, old: Below, new: Below) {
        self.mapped = self.mapped + new.mapped - old.mapped;
        self.lost = self.lost + new.lost - old.lost;
    }
}

/// Blocks that the loss of a node of `level` can leave in use, or with an owner too many, at most: itself, and all below.
pub(crate) fn unattributed_below(level: u8) -> u64 {
    (0..=level).map(|below| copies(below) * span(level - below)).sum()
}

impl Built {
    fn reference(&self) -> (Pointer, u8) {
        (self.pointer, if self.pointer.is_hole() { 0 } else { self.level })
    }
}

struct PointWriter<'a> {
    pool: &'a Pool,
    free_map: FreeMapCapture,
    /// Pairs set aside for inner nodes.
    pairs: Vec<Place>,
    built: HashMap<BuildKey, Built>,
    gathered: BTreeMap<u64, BlockBuffer>,
    gathered_bytes: usize,
    birth: Birth,
    /// Blocks that stay in use since a damaged node does not tell any more whose they are, at most.
    unattributed: u64,
    /// What versions own no more.
    ended: Ended,
}

impl PointWriter<'_> {
    fn version(&mut self, version: &CapturedVersion) -> Result<TreeReference> {
        let length_bytes = version.size_bytes;
        let Some(delta) = &version.delta else {
            return Ok(TreeReference { length_bytes, ..version.before });
        };
        let built =
            self.build(version, version.level, 0, version.before.root, version.before.level, delta)?;
        let (root, level) = built.reference();
        Ok(TreeReference { root, level, length_bytes })
    }

    /// The subtree of `level` at `position` that `delta` over `base` makes, written if it is new.
    fn build(
        &mut self,
        version: &CapturedVersion,
        level: u8,
        position: u64,
        base: Pointer,
        base_level: u8,
        delta: &Arc<Delta>,
    ) -> Result<Built> {
        let key = (base.place.0, Arc::as_ptr(delta));
        // Snapshots and heads share what did not change between them: built once, freed once, for the oldest.
        if let Some(built) = self.built.get(&key) {
            return Ok(*built);
        }
        let tree = version.tree;
        let mut children = [Pointer::HOLE; FAN_OUT];
        let mut total = Below::default();
        let mut has_base_node = false;
        let mut raised_base = None;
        if !base.is_hole() {
            if delta.cut {
                self.free_subtree(tree, base_level, position, &base, &version.holder)?;
            } else if base_level == level {
                let node = self.pool.nodes.read_or_lost(tree, level, position, &base)?;
                children.copy_from_slice(&node.children[..]);
                total = Below { mapped: node.mapped_blocks, lost: node.lost_blocks };
                if is_lost(&node) {
                    if !base.is_lost() {
                        self.lose(level, position, &base);
                    }
                    total.lost -= self.cut_past_the_end(level, position, version.end, &mut children);
                }
                has_base_node = !base.is_lost();
            } else {
                let (base, below) = self.known_or_lost(tree, base_level, 0, base)?;
                total = below;
                raised_base = Some(base);
            }
        }
        if level > 1 {
            // Of a subtree that is cut only what it maps counts, and that is in its node too.
            let below = delta.entries().filter(|(_, entry)| matches!(entry, Entry::Child(_)));
            let bases = below.map(|(index, _)| (position * FAN_OUT as u64 + index as u64, children[index]));
            self.pool.nodes.read_ahead(tree, level - 1, bases);
        }
        let mut replaced_first = false;
        // Of a damaged child nobody knows how much of the node's count was its.
        let mut counts_again = false;
        // New nodes may not be on the medium yet, so their counts are kept.
        let mut new_below = [None; FAN_OUT];
        for (index, entry) in delta.entries() {
            let child_position = position * FAN_OUT as u64 + index as u64;
            match entry {
                Entry::Block(new) => {
                    let old = std::mem::replace(&mut children[index], *new);
                    total.replace(block_below(&old), block_below(new));
                    if !old.is_hole()
                        && !old.is_lost()
                        && !old.same_ownership(new)
                        && old.birth > version.holder.at_block(child_position)
                    {
                        self.release(old.place);
                        self.ended.add(version.holder.owner(old.birth));
                    }
                }
                Entry::Child(below) => {
                    let (old, old_level) = match raised_base {
                        Some(base) if index == 0 => {
                            replaced_first = true;
                            (base, base_level)
                        }
                        _ => (children[index], level - 1),
                    };
                    let old_position = if old_level == level - 1 { child_position } else { 0 };
                    let old_below = self.below(tree, old_level, old_position, &old)?;
                    let built = self.build(version, level - 1, child_position, old, old_level, below)?;
                    children[index] = built.pointer;
                    new_below[index] = Some(built.below);
                    match old_below {
                        Some(old_below) => total.replace(old_below, built.below),
                        None => counts_again = true,
                    }
                }
            }
        }
        if let Some(base) = raised_base
            && !replaced_first
        {
            children[0] = self.raise(tree, base, base_level, level - 1, delta.birth)?;
        }
        if counts_again {
            total = Below::default();
            for ((child, new_below), at) in
                children.iter_mut().zip(new_below).zip(position * FAN_OUT as u64..)
            {
                let (known, below) = match new_below {
                    Some(below) => (*child, below),
                    None => self.known_or_lost(tree, level - 1, at, *child)?,
                };
                *child = known;
                total.replace(Below::default(), below);
            }
        }
        // Even children equal to the base's make a new node: an older version may have replaced, and freed, that one.
        if has_base_node && base.birth > version.holder.at_node((position + 1) * span(level)) {
            self.free_node(base.place, level);
        }
        let pointer = self.node(tree, level, position, delta.birth, total, children)?;
        let built = Built { pointer, level, below: total };
        // Nobody else asks for what only one node above has. Of a million scattered writes that is nearly all: 100 MB and more. The
        // captured versions keep what counts here from changing, and the root of each is theirs and the pool's.
        if Arc::strong_count(delta) > 1 {
            self.built.insert(key, built);
        }
        Ok(built)
    }

    /// Children of a lost node that lie wholly past the version's end were holes; the blocks of which that is known.
    fn cut_past_the_end(&self, level: u8, position: u64, end: u64, children: &mut [Pointer; FAN_OUT]) -> u64 {
        let end = end.div_ceil(span(level - 1));
        let known = (position * FAN_OUT as u64..).zip(children).filter(|(at, _)| *at >= end);
        known.map(|(_, child)| *child = Pointer::HOLE).count() as u64 * span(level - 1)
    }

    /// A damaged node is given up: its version goes on without it. What it alone told of stays in use for ever.
    fn lose(&mut self, level: u8, position: u64, pointer: &Pointer) {
        let blocks = unattributed_below(level);
        self.unattributed = self.unattributed.saturating_add(blocks);
        tracing::error!(
            pool = %self.pool.id, level, position, place = pointer.place.0,
            "up to {blocks} blocks stay allocated for good: the damaged metadata does not say who owned them. No \
             data is affected by that; farside pool check lists the damage"
        );
    }

    /// What lies below a pointer; `None` if the node it leads to is damaged.
    fn below(
        &self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
    ) -> Result<Option<Below>> {
        if level == 0 || pointer.is_hole() {
            return Ok(Some(block_below(pointer)));
        }
        let node = self.pool.nodes.read_or_lost(tree, level, position, pointer)?;
        let is_damaged = is_lost(&node) && !pointer.is_lost();
        Ok((!is_damaged).then_some(Below { mapped: node.mapped_blocks, lost: node.lost_blocks }))
    }

    /// The same, with a lost pointer in place of one to a damaged node.
    fn known_or_lost(
        &mut self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: Pointer,
    ) -> Result<(Pointer, Below)> {
        if let Some(below) = self.below(tree, level, position, &pointer)? {
            return Ok((pointer, below));
        }
        self.lose(level, position, &pointer);
        Ok((Pointer::lost(&pointer), Below { mapped: 0, lost: span(level) }))
    }

    /// Stores the levels that were only computed so far.
    fn raise(
        &mut self,
        tree: TreeIdentity,
        base: Pointer,
        from: u8,
        to: u8,
        birth: Birth,
    ) -> Result<Pointer> {
        let (mut pointer, below) = self.known_or_lost(tree, from, 0, base)?;
        for level in from + 1..=to {
            let mut children = [Pointer::HOLE; FAN_OUT];
            children[0] = pointer;
            pointer = self.node(tree, level, 0, birth, below, children)?;
        }
        Ok(pointer)
    }

    /// One owner of a data block has gone (S8). The point's own counts say so, and at once those of the running pool too: what is
    /// shared or freed meanwhile counts on from there. A place whose last owner goes here nobody shares meanwhile: no
    /// version shows it any more.
    fn release(&mut self, place: Place) {
        if self.free_map.owners.lower(place) {
            let lowered = self.pool.state.lock().allocator.owners.lower_with_the_point(place);
            debug_assert!(lowered, "the running pool knows fewer owners of {} than the point", place.0);
        } else {
            debug_assert_eq!(
                self.pool.state.lock().allocator.owners.extra(place),
                0,
                "{} is shared",
                place.0
            );
            self.free_map.free(place);
        }
    }

    fn free_node(&mut self, place: Place, level: u8) {
        self.free_map.free(place);
        if copies(level) == 2 {
            self.free_map.free(Place(place.0 + TWIN_DISTANCE));
        }
    }

    /// Frees a subtree of the last point, except what an ancestor holds.
    fn free_subtree(
        &mut self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
        holder: &Holder,
    ) -> Result<()> {
        if pointer.is_hole() || pointer.is_lost() || pointer.birth <= holder.everywhere() {
            return Ok(());
        }
        if level == 0 {
            if pointer.birth > holder.at_block(position) {
                self.release(pointer.place);
                self.ended.add(holder.owner(pointer.birth));
            }
            return Ok(());
        }
        let node = self.pool.nodes.read_or_lost(tree, level, position, pointer)?;
        if is_lost(&node) {
            self.lose(level, position, pointer);
        }
        if level > 1 && !is_lost(&node) {
            let numbered = (position * FAN_OUT as u64..).zip(node.children.iter().copied());
            let visited = numbered.filter(|(_, child)| child.birth > holder.everywhere());
            self.pool.nodes.read_ahead(tree, level - 1, visited);
        }
        for (index, child) in node.children.iter().enumerate() {
            self.free_subtree(tree, level - 1, position * FAN_OUT as u64 + index as u64, child, holder)?;
        }
        if pointer.birth > holder.at_node((position + 1) * span(level)) {
            self.free_node(pointer.place, level);
        }
        Ok(())
    }

    fn free_tree(&mut self, tree: TreeIdentity, reference: &TreeReference) -> Result<()> {
        let nobody = Holder::default();
        self.free_subtree(tree, reference.level, 0, &reference.root, &nobody)
    }

    /// A place for a node of `level`: its own and, for inner nodes, its twin.
    fn place_for(&mut self, level: u8) -> Result<Place> {
        let full = || StoreError::NoSpace { needed_bytes: BLOCK_BYTES as u64, available_bytes: 0 };
        if copies(level) == 1 {
            let mut state = self.pool.state.lock();
            let chosen = state.chosen_leaves.pop();
            let place = chosen.or_else(|| state.allocator.allocate_leaf()).ok_or_else(full)?;
            state.allocator.settle_in_point(place);
            drop(state);
            self.free_map.add(place);
            return Ok(place);
        }
        let mut state = self.pool.state.lock();
        let place = match self.pairs.pop().or_else(|| state.allocator.allocate_pair()) {
            Some(place) => place,
            None => state.spare_pairs.pop().ok_or_else(full)?,
        };
        let twin = Place(place.0 + TWIN_DISTANCE);
        state.allocator.settle_in_point(place);
        state.allocator.settle_in_point(twin);
        drop(state);
        self.free_map.add(place);
        self.free_map.add(twin);
        Ok(place)
    }

    fn node(
        &mut self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        birth: Birth,
        below: Below,
        children: [Pointer; FAN_OUT],
    ) -> Result<Pointer> {
        if children.iter().all(Pointer::is_hole) {
            return Ok(Pointer::HOLE);
        }
        let place = self.place_for(level)?;
        self.node_at(tree, level, position, birth, below, children, place)
    }

    #[allow(clippy::too_many_arguments)] // The fields of a node, written once, here.
    fn node_at(
        &mut self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        birth: Birth,
        below: Below,
        children: [Pointer; FAN_OUT],
        place: Place,
    ) -> Result<Pointer> {
        // F4: never younger than what it holds.
        assert!(children.iter().all(|c| c.birth <= birth), "a child is younger than its node");
        let node = Node {
            level,
            kind: tree.kind,
            family: tree.family,
            position,
            birth,
            mapped_blocks: below.mapped,
            lost_blocks: below.lost,
            place,
            children: Box::new(children),
        };
        let pointer = Pointer { fingerprint: node.fingerprint(), place, birth };
        let mut block = BlockBuffer::zeroed(1);
        node.encode(self.pool.id, &mut block);
        if copies(level) == 2 {
            self.gather(place.0 + TWIN_DISTANCE, block.clone())?;
        }
        self.gather(place.0, block)?;
        self.pool.nodes.remember(Arc::new(node));
        Ok(pointer)
    }

    fn gather(&mut self, place: u64, block: BlockBuffer) -> Result<()> {
        self.gathered_bytes += block.len();
        self.gathered.insert(place, block);
        if self.gathered_bytes >= GATHER_BYTES {
            self.write_gathered()?;
        }
        Ok(())
    }

    fn write_gathered(&mut self) -> Result<()> {
        self.gathered_bytes = 0;
        let mut blocks = std::mem::take(&mut self.gathered).into_iter().peekable();
        while let Some((place, first)) = blocks.next() {
            let mut joined = vec![first];
            while joined.len() < JOINED_BYTES_MAX / BLOCK_BYTES
                && let Some((_, block)) = blocks.next_if(|(p, _)| *p == place + joined.len() as u64)
            {
                joined.push(block);
            }
            let offset = place * BLOCK_BYTES as u64;
            if let [only] = joined.as_slice() {
                self.pool.device.write_at(offset, only)?;
                continue;
            }
            let mut run = BlockBuffer::zeroed(joined.len());
            for (to, from) in run.chunks_exact_mut(BLOCK_BYTES).zip(&joined) {
                to.copy_from_slice(from);
            }
            self.pool.device.write_at(offset, &run)?;
        }
        Ok(())
    }

    /// Writes bytes as a tree of their own.
    fn blob(&mut self, tree: TreeIdentity, bytes: &[u8]) -> Result<TreeReference> {
        let mut children: Vec<(Pointer, u64)> = Vec::new();
        for block in bytes.chunks(BLOCK_BYTES) {
            let block = BlockBuffer::copy_of(block);
            let fingerprint = Fingerprint::of_block(&block);
            if fingerprint.is_hole() {
                children.push((Pointer::HOLE, 0));
                continue;
            }
            let place = self.place_for(0)?;
            children.push((Pointer { fingerprint, place, birth: self.birth }, 1));
            self.gather(place.0, block)?;
        }
        let mut level = 0;
        while children.len() > 1 || level == 0 {
            level += 1;
            let mut parents = Vec::new();
            for (position, below) in children.chunks(FAN_OUT).enumerate() {
                let (array, mapped) = node_children(below);
                parents.push((
                    self.node(tree, level, position as u64, self.birth, mapped_only(mapped), array)?,
                    mapped,
                ));
            }
            children = parents;
        }
        let root = children[0].0;
        let level = if root.is_hole() { 0 } else { level };
        Ok(TreeReference { root, level, length_bytes: bytes.len() as u64 })
    }

    /// The owner counts, after all that frees data: the blocks of the table that changed, and the nodes above them.
    fn owner_counts(&mut self, before: &TreeReference) -> Result<TreeReference> {
        let changed = self.free_map.owners.changed_blocks();
        let blocks = table_blocks(self.pool.pool_blocks());
        let length_bytes = blocks * BLOCK_BYTES as u64;
        if changed.is_empty() && (before.root.is_hole() || before.length_bytes == length_bytes) {
            return Ok(*before);
        }
        let level = level_for(blocks);
        // Of a pool that has just grown the table may be higher than before; what is new of it is zeros.
        let level_before = if before.root.is_hole() { level } else { before.level };
        let (mut root, mut mapped) = if changed.is_empty() {
            let node = self.pool.nodes.read(OWNER_COUNTS_TREE, before.level, 0, &before.root)?;
            (before.root, node.mapped_blocks)
        } else {
            self.counts_below(level_before, 0, before.root, &changed)?
        };
        for level in level_before + 1..=level {
            let mut children = [Pointer::HOLE; FAN_OUT];
            children[0] = std::mem::replace(&mut root, Pointer::HOLE);
            root = self.node(OWNER_COUNTS_TREE, level, 0, self.birth, mapped_only(mapped), children)?;
            mapped = if root.is_hole() { 0 } else { mapped };
        }
        if root.is_hole() {
            return Ok(TreeReference::default());
        }
        Ok(TreeReference { root, level, length_bytes })
    }

    /// The subtree in which the blocks `changed` of the table lie, all of them below it; and how many are no holes.
    fn counts_below(
        &mut self,
        level: u8,
        position: u64,
        old: Pointer,
        changed: &[u64],
    ) -> Result<(Pointer, u64)> {
        if level == 0 {
            if !old.is_hole() {
                self.free_map.free(old.place);
            }
            let mut block = BlockBuffer::zeroed(1);
            self.free_map.owners.encode_block(position, &mut block);
            let fingerprint = Fingerprint::of_block(&block);
            if fingerprint.is_hole() {
                return Ok((Pointer::HOLE, 0));
            }
            let place = self.place_for(0)?;
            self.gather(place.0, block)?;
            return Ok((Pointer { fingerprint, place, birth: self.birth }, 1));
        }
        let (mut children, mut mapped) = ([Pointer::HOLE; FAN_OUT], 0);
        if !old.is_hole() {
            let node = self.pool.nodes.read(OWNER_COUNTS_TREE, level, position, &old)?;
            children.copy_from_slice(&node.children[..]);
            mapped = node.mapped_blocks;
            self.free_node(old.place, level);
        }
        let width = span(level - 1);
        for below in changed.chunk_by(|a, b| a / width == b / width) {
            let at = below[0] / width;
            let child = &mut children[at as usize % FAN_OUT];
            let had = match level {
                _ if child.is_hole() => 0,
                1 => 1,
                _ => self.pool.nodes.read(OWNER_COUNTS_TREE, level - 1, at, child)?.mapped_blocks,
            };
            let (new, has) = self.counts_below(level - 1, at, *child, below)?;
            *child = new;
            mapped = mapped + has - had;
        }
        let below = mapped_only(mapped);
        Ok((self.node(OWNER_COUNTS_TREE, level, position, self.birth, below, children)?, mapped))
    }

    /// The free map describes itself too: places for what it will write are taken first, until nothing changes any
    /// more, then it is encoded.
    fn free_map(&mut self, before: &TreeReference, old: &[Pointer]) -> Result<(TreeReference, Vec<Pointer>)> {
        let chunks = self.pool.pool_blocks().div_ceil(BLOCKS_PER_CHUNK);
        // Old nodes go, all of them; new ones get their places now. (128 leaves per TiB of pool.)
        self.free_nodes_only(FREE_MAP_TREE, before.level, 0, &before.root)?;
        let mut levels = 0;
        let mut count = chunks;
        while count > 1 || levels == 0 {
            levels += 1;
            count = count.div_ceil(FAN_OUT as u64);
        }
        let mut pointers = old.to_vec();
        pointers.resize(chunks as usize, Pointer::HOLE);
        let mut assigned: BTreeMap<u64, Place> = BTreeMap::new();
        // Per level, from leaves up: position to place. A node is needed where a chunk is not all free.
        let mut places: Vec<BTreeMap<u64, Place>> = vec![BTreeMap::new(); levels];
        loop {
            let mut progress = false;
            let unassigned: Vec<u64> =
                self.free_map.dirty_chunks.iter().filter(|c| !assigned.contains_key(c)).collect();
            for chunk in unassigned {
                let old = std::mem::replace(&mut pointers[chunk as usize], Pointer::HOLE);
                if !old.is_hole() {
                    self.free_map.free(old.place);
                    progress = true;
                }
                if !self.free_map.is_all_free(chunk, self.pool.pool_blocks()) {
                    assigned.insert(chunk, self.place_for(0)?);
                    progress = true;
                }
            }
            let kept =
                pointers.iter().enumerate().filter(|(_, p)| !p.is_hole()).map(|(chunk, _)| chunk as u64);
            let mut needed: BTreeSet<u64> = kept.chain(assigned.keys().copied()).collect();
            for (below, level_places) in places.iter_mut().enumerate() {
                needed = needed.iter().map(|p| p / FAN_OUT as u64).collect();
                for position in &needed {
                    if !level_places.contains_key(position) {
                        level_places.insert(*position, self.place_for(below as u8 + 1)?);
                        progress = true;
                    }
                }
            }
            if !progress {
                break;
            }
        }
        for (chunk, place) in assigned {
            let mut block = BlockBuffer::zeroed(1);
            self.free_map.encode_chunk(chunk, self.pool.pool_blocks(), &mut block);
            let fingerprint = Fingerprint::of_block(&block);
            pointers[chunk as usize] = Pointer { fingerprint, place, birth: self.birth };
            self.gather(place.0, block)?;
        }
        let mut children: Vec<(Pointer, u64)> =
            pointers.iter().map(|p| (*p, u64::from(!p.is_hole()))).collect();
        for (below, level_places) in places.into_iter().enumerate() {
            let level = below as u8 + 1;
            let mut parents = Vec::new();
            for (position, below) in children.chunks(FAN_OUT).enumerate() {
                let (array, mapped) = node_children(below);
                let position = position as u64;
                parents.push(match level_places.get(&position) {
                    Some(place) => (
                        self.node_at(
                            FREE_MAP_TREE,
                            level,
                            position,
                            self.birth,
                            mapped_only(mapped),
                            array,
                            *place,
                        )?,
                        mapped,
                    ),
                    None => (Pointer::HOLE, 0),
                });
            }
            children = parents;
        }
        let root = children[0].0;
        let reference =
            TreeReference { root, level: levels as u8, length_bytes: chunks * BLOCK_BYTES as u64 };
        Ok((reference, pointers))
    }

    fn free_nodes_only(
        &mut self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
    ) -> Result<()> {
        if pointer.is_hole() {
            return Ok(());
        }
        if level > 1 {
            let node = self.pool.nodes.read(tree, level, position, pointer)?;
            for (index, child) in node.children.iter().enumerate() {
                self.free_nodes_only(tree, level - 1, position * FAN_OUT as u64 + index as u64, child)?;
            }
        }
        self.free_node(pointer.place, level);
        Ok(())
    }
}

/// Below a node of the pool's own trees nothing is ever lost.
fn mapped_only(mapped: u64) -> Below {
    Below { mapped, lost: 0 }
}

/// What a block's pointer counts for.
fn block_below(pointer: &Pointer) -> Below {
    let lost = pointer.is_lost();
    Below { mapped: u64::from(!pointer.is_hole() && !lost), lost: u64::from(lost) }
}

/// Whether a node only stands for one that cannot be read.
pub(crate) fn is_lost(node: &Node) -> bool {
    node.place == Place(0)
}

/// Up to 128 children as a node holds them, and the data blocks mapped below.
fn node_children(below: &[(Pointer, u64)]) -> ([Pointer; FAN_OUT], u64) {
    let mut array = [Pointer::HOLE; FAN_OUT];
    for (to, (pointer, _)) in array.iter_mut().zip(below) {
        *to = *pointer;
    }
    (array, below.iter().map(|(_, mapped)| mapped).sum())
}
