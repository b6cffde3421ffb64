//! One version as it is now: the tree of the last consistency point with up to two deltas over it.
//!
//! A [`View`] is a handful of `Arc`s, taken under the pool's lock and walked without it. A [`Spot`] is a position in
//! it: a subtree, with whatever part of base and deltas stands there.

use std::sync::Arc;

use farside_format::fingerprint::{FAN_OUT, TOP_LEVEL, level_for, span};
use farside_format::{Birth, ContentRoot, Fingerprint, Node, Pointer};

use crate::delta::{Delta, Entry};
use crate::error::{Result, StoreError};
use crate::nodes::{NodeReader, TreeIdentity};
use crate::versions::{VersionState, blocks};

/// A version, held still.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) tree: TreeIdentity,
    pub(crate) root: Spot,
    pub(crate) size_bytes: u64,
}

/// A subtree of a view.
#[derive(Clone)]
pub(crate) struct Spot {
    pub(crate) level: u8,
    pub(crate) position: u64,
    base: Pointer,
    /// Level of the node that `base` leads to; below `level` the levels in between are computed.
    base_level: u8,
    /// Older first.
    layers: [Option<Arc<Delta>>; 2],
    /// Level of the layers' nodes, likewise.
    layer_level: u8,
    /// What is lost from this block of the version on were holes, or, in a staged version that is not cut to its size yet, will be.
    end: u64,
}

impl View {
    pub(crate) fn of(version: &VersionState, tree: TreeIdentity) -> View {
        let level = version.level();
        let end = blocks(version.size_bytes);
        let root = Spot {
            level,
            position: 0,
            base: version.tree.root,
            base_level: version.tree.level,
            layers: [version.capturing.clone(), version.delta.clone()],
            layer_level: level,
            end,
        };
        View { tree, root, size_bytes: version.size_bytes }
    }

    /// A version that holds nothing.
    pub(crate) fn empty(tree: TreeIdentity) -> View {
        let root = Spot {
            level: 1,
            position: 0,
            base: Pointer::HOLE,
            base_level: 0,
            layers: [None, None],
            layer_level: 1,
            end: 0,
        };
        View { tree, root, size_bytes: 0 }
    }

    /// The view with its root raised to `level`, so that two views can be walked side by side.
    pub(crate) fn raised_to(mut self, level: u8) -> View {
        self.root.level = self.root.level.max(level);
        self
    }

    /// Where `count` blocks from `block` on lie; appends to `into`, holes included.
    pub(crate) fn lookup(
        &self,
        nodes: &NodeReader,
        block: u64,
        count: u64,
        into: &mut Vec<Pointer>,
    ) -> Result<()> {
        self.visit(nodes, block, count, &mut |pointer, count| {
            into.extend(std::iter::repeat_n(pointer, count as usize));
            true
        })
    }

    /// The same, piece by piece in order: one block, or any number of holes or of lost blocks. Ends early when `each` answers false.
    pub(crate) fn visit(
        &self,
        nodes: &NodeReader,
        block: u64,
        count: u64,
        each: &mut dyn FnMut(Pointer, u64) -> bool,
    ) -> Result<()> {
        let end = block + count;
        let covered = span(self.root.level).max(block).min(end);
        let goes_on = block >= covered || self.root.visit(nodes, self.tree, 0, block, covered, each)?;
        if goes_on && covered < end {
            each(Pointer::HOLE, end - covered);
        }
        Ok(())
    }

    /// Appends the fingerprints of `count` subtrees of `level` from number `first` on, all children of one node.
    pub(crate) fn subtrees(
        &self,
        nodes: &NodeReader,
        level: u8,
        first: u64,
        count: u64,
        into: &mut Vec<Fingerprint>,
    ) -> Result<()> {
        let parent = first / FAN_OUT as u64;
        debug_assert!(count > 0 && (first + count - 1) / FAN_OUT as u64 == parent);
        let index = (first % FAN_OUT as u64) as usize;
        let done = into.len() + count as usize;
        if level < self.root.level {
            if let Some(spot) = self.root.descend(nodes, self.tree, level + 1, parent)? {
                for child in &spot.children(nodes, self.tree)?[index..index + count as usize] {
                    into.push(child.fingerprint(nodes, self.tree)?);
                }
            }
        } else if first == 0 {
            // The whole tree stands at the left edge of this level; what is right of it are holes.
            into.push(self.root.fingerprint(nodes, self.tree)?.raise(self.root.level, level));
        }
        into.resize(done, Fingerprint::HOLE);
        Ok(())
    }

    /// The mappings of leaf number `position`.
    pub(crate) fn leaf(&self, nodes: &NodeReader, position: u64) -> Result<[Pointer; FAN_OUT]> {
        match self.root.descend(nodes, self.tree, 1, position)? {
            Some(spot) => spot.leaf(nodes, self.tree),
            None => Ok([Pointer::HOLE; FAN_OUT]),
        }
    }

    /// Visits the leaves that map something, from number `from` on, `leaves_max` of them; answers with the number to go on
    /// with, `None` at the end. Reads inner nodes; the leaves themselves are for `each` to read.
    pub(crate) fn visit_leaves(
        &self,
        nodes: &NodeReader,
        from: u64,
        mut leaves_max: usize,
        each: &mut dyn FnMut(u64, &Spot) -> Result<()>,
    ) -> Result<Option<u64>> {
        self.visit_leaves_since(nodes, Birth(0), from, &mut leaves_max, each)
    }

    /// The same for leaves in which something was born after `since`; of subtrees in which nothing was, nothing is read.
    pub(crate) fn visit_leaves_since(
        &self,
        nodes: &NodeReader,
        since: Birth,
        from: u64,
        leaves_max: &mut usize,
        each: &mut dyn FnMut(u64, &Spot) -> Result<()>,
    ) -> Result<Option<u64>> {
        self.root.visit_leaves(nodes, self.tree, (since, from), leaves_max, each)
    }

    /// Ranges of blocks (first, count) of which nobody knows any more where they lie, from block `from` on, in order, at most
    /// `ranges_max`. Reads the root, and nodes that have something lost below; a damaged node that no change has met yet is
    /// not found so.
    pub(crate) fn quarantined(
        &self,
        nodes: &NodeReader,
        from: u64,
        ranges_max: usize,
    ) -> Result<Vec<(u64, u64)>> {
        let mut ranges = LostRanges { from, end: self.blocks(), ranges_max, found: Vec::new() };
        self.root.lost_ranges(nodes, self.tree, &mut ranges)?;
        Ok(ranges.found)
    }

    /// The same below the node at `position` of `level`, which was found damaged.
    pub(crate) fn quarantined_below(
        &self,
        nodes: &NodeReader,
        level: u8,
        position: u64,
        ranges_max: usize,
    ) -> Result<Vec<(u64, u64)>> {
        let mut ranges = LostRanges { from: 0, end: self.blocks(), ranges_max, found: Vec::new() };
        if let Some(spot) = self.root.descend(nodes, self.tree, level, position)? {
            spot.lost_ranges(nodes, self.tree, &mut ranges)?;
        }
        Ok(ranges.found)
    }

    /// The first range that is known not to be readable: what was given up, then what lies below nodes that were found damaged.
    pub(crate) fn known_damage(&self, nodes: &NodeReader) -> Result<Option<(u64, u64)>> {
        if let Some(first) = self.quarantined(nodes, 0, 1)?.first() {
            return Ok(Some(*first));
        }
        for node in nodes.damaged().iter().filter(|node| node.family == self.tree.family) {
            if let Some(first) = self.quarantined_below(nodes, node.level, node.position, 1)?.first() {
                return Ok(Some(*first));
            }
        }
        Ok(None)
    }

    /// The content root: level-6 fingerprint and size. Reads nodes only where deltas lie.
    ///
    /// # Errors
    /// [`StoreError::Quarantined`] if part of the content was given up. A damaged node below which nothing changed keeps its
    /// fingerprint, and so does the root.
    pub(crate) fn content_root(&self, nodes: &NodeReader) -> Result<ContentRoot> {
        let fingerprint = self.root.fingerprint(nodes, self.tree)?;
        if let Some((block, count)) = self.quarantined(nodes, 0, 1)?.first() {
            let version = format!("family {}", self.tree.family);
            return Err(StoreError::Quarantined { version, block: *block, count: *count });
        }
        Ok(ContentRoot::new(fingerprint.raise(self.root.level, TOP_LEVEL), self.size_bytes))
    }

    /// Blocks that the size covers.
    pub(crate) fn blocks(&self) -> u64 {
        blocks(self.size_bytes)
    }
}

/// Lost ranges as they are found.
struct LostRanges {
    /// What lies before is passed over.
    from: u64,
    /// Blocks of the version.
    end: u64,
    ranges_max: usize,
    found: Vec<(u64, u64)>,
}

impl LostRanges {
    fn is_full(&self) -> bool {
        self.found.len() >= self.ranges_max
    }

    fn add(&mut self, block: u64, count: u64) {
        let (first, end) = (block.max(self.from), (block + count).min(self.end));
        let (block, count) = (first, end.saturating_sub(first));
        match self.found.last_mut() {
            _ if count == 0 => {}
            Some((first, before)) if *first + *before == block => *before += count,
            _ => self.found.push((block, count)),
        }
    }
}

impl Spot {
    /// Whether nothing is mapped below, as far as can be told without reading.
    pub(crate) fn is_hole(&self) -> bool {
        self.base.is_hole() && self.layers.iter().all(Option::is_none)
    }

    /// Whether nothing is mapped below, as far as layers and fingerprints at hand tell.
    pub(crate) fn is_known_hole(&self) -> bool {
        if let Some(known) = self.known_fingerprint() {
            return known.is_hole();
        }
        // A trim that nothing was written after: no entry above the cut.
        for layer in self.layers.iter().rev().flatten() {
            if layer.entries().next().is_some() {
                return false;
            }
            if layer.cut {
                return true;
            }
        }
        self.base.is_hole()
    }

    /// The node that all of this is, if that is on the medium and no change lies over it.
    pub(crate) fn stored(&self, nodes: &NodeReader, tree: TreeIdentity) -> Result<Option<Arc<Node>>> {
        let is_stored = !self.base.is_hole() && self.base_level == self.level && self.level > 0;
        if !is_stored || self.layers.iter().any(Option::is_some) {
            return Ok(None);
        }
        nodes.read_or_lost(tree, self.level, self.position, &self.base).map(Some)
    }

    /// Whether all of it is lost, as far as can be told without reading.
    pub(crate) fn is_lost(&self) -> bool {
        self.base.is_lost() && self.base_level == self.level && self.layers.iter().all(Option::is_none)
    }

    /// Whether the same was lost in both.
    pub(crate) fn is_lost_like(&self, other: &Spot) -> bool {
        self.is_lost() && other.is_lost() && self.base.fingerprint == other.base.fingerprint
    }

    fn is_virtual(&self) -> bool {
        // Above both base and layers only the first child is no hole.
        self.level > self.layer_level
    }

    /// Whether both are the same without looking.
    pub(crate) fn is_same(&self, other: &Spot) -> bool {
        let same_layer = |a: &Option<Arc<Delta>>, b: &Option<Arc<Delta>>| match (a, b) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        self.level == other.level
            && self.base == other.base
            && self.base_level == other.base_level
            && same_layer(&self.layers[0], &other.layers[0])
            && same_layer(&self.layers[1], &other.layers[1])
    }

    /// The children of an inner spot, or of a leaf its data blocks as spots of level 0.
    pub(crate) fn children(&self, nodes: &NodeReader, tree: TreeIdentity) -> Result<Vec<Spot>> {
        let level = self.level - 1;
        let mut children: Vec<Spot> = (0..FAN_OUT as u64)
            .map(|i| Spot {
                level,
                position: self.position * FAN_OUT as u64 + i,
                base: Pointer::HOLE,
                base_level: level,
                layers: [None, None],
                layer_level: level,
                end: self.end,
            })
            .collect();
        if self.is_virtual() {
            children[0] = Spot { level, ..self.clone() };
            return Ok(children);
        }
        if !self.base.is_hole() && !self.is_cut() {
            if self.base_level < self.level {
                children[0].base = self.base;
                children[0].base_level = self.base_level;
            } else {
                let node = nodes.read_or_lost(tree, self.level, self.position, &self.base)?;
                for (child, pointer) in children.iter_mut().zip(node.children.iter()) {
                    child.base = *pointer;
                    child.cut_past_the_end();
                }
            }
        }
        for (which, layer) in self.layers.iter().enumerate() {
            let Some(delta) = layer else { continue };
            if delta.cut {
                for child in &mut children {
                    child.base = Pointer::HOLE;
                    child.layers[0] = None;
                }
            }
            for (index, entry) in delta.entries() {
                let child = &mut children[index];
                match entry {
                    Entry::Block(pointer) => child.base = *pointer,
                    Entry::Child(below) => {
                        if below.cut {
                            child.base = Pointer::HOLE;
                            child.base_level = level;
                            child.layers[0] = None;
                        }
                        child.layers[which] = Some(below.clone());
                    }
                }
            }
        }
        Ok(children)
    }

    fn lost_ranges(&self, nodes: &NodeReader, tree: TreeIdentity, ranges: &mut LostRanges) -> Result<()> {
        let start = self.position * span(self.level);
        let is_outside = start >= ranges.end || start + span(self.level) <= ranges.from;
        if ranges.is_full() || is_outside || self.base.is_hole() || self.is_cut() {
            return Ok(());
        }
        if self.is_lost() {
            // One more than asked for would join with the last.
            ranges.add(start, span(self.level));
            return Ok(());
        }
        if self.level == 0 {
            return Ok(());
        }
        if self.is_virtual() || self.base_level < self.level {
            return self.child(0, nodes, tree)?.lost_ranges(nodes, tree, ranges);
        }
        if self.level == 1 {
            for (pointer, block) in self.leaf(nodes, tree)?.iter().zip(start..) {
                if pointer.is_lost() && !ranges.is_full() {
                    ranges.add(block, 1);
                }
            }
            return Ok(());
        }
        if nodes.read_or_lost(tree, self.level, self.position, &self.base)?.lost_blocks > 0 {
            for child in self.children(nodes, tree)? {
                child.lost_ranges(nodes, tree, ranges)?;
            }
        }
        Ok(())
    }

    /// What is lost past the version's end was a hole.
    fn cut_past_the_end(&mut self) {
        if self.base.is_lost() && self.position * span(self.level) >= self.end {
            self.base = Pointer::HOLE;
        }
    }

    fn is_cut(&self) -> bool {
        self.layers.iter().flatten().any(|d| d.cut)
    }

    /// Whether one layer names every child: what lies below does not count.
    fn is_overwritten(&self) -> bool {
        self.layers.iter().flatten().any(|delta| delta.entries().len() == FAN_OUT)
    }

    fn quarantined(&self, tree: TreeIdentity) -> StoreError {
        let version = format!("family {}", tree.family);
        StoreError::Quarantined { version, block: self.position * span(self.level), count: span(self.level) }
    }

    /// The mappings of a leaf, without a spot for each.
    pub(crate) fn leaf(&self, nodes: &NodeReader, tree: TreeIdentity) -> Result<[Pointer; FAN_OUT]> {
        debug_assert_eq!(self.level, 1);
        let mut pointers = [Pointer::HOLE; FAN_OUT];
        // No tree is lower than a leaf: base and layers stand at this level.
        if !self.base.is_hole() && !self.is_cut() && !self.is_overwritten() {
            pointers = *nodes.read_or_lost(tree, 1, self.position, &self.base)?.children;
        }
        for (pointer, block) in pointers.iter_mut().zip(self.position * FAN_OUT as u64..) {
            if pointer.is_lost() && block >= self.end {
                *pointer = Pointer::HOLE;
            }
        }
        for delta in self.layers.iter().flatten() {
            if delta.cut {
                pointers = [Pointer::HOLE; FAN_OUT];
            }
            for (index, entry) in delta.entries() {
                if let Entry::Block(pointer) = entry {
                    pointers[index] = *pointer;
                }
            }
        }
        Ok(pointers)
    }

    /// The subtree of `level` at `position` below this root; `None` if nothing is mapped there, or it lies outside.
    fn descend(
        &self,
        nodes: &NodeReader,
        tree: TreeIdentity,
        level: u8,
        position: u64,
    ) -> Result<Option<Spot>> {
        let above = |to: u8| position / span(to - level);
        if self.level < level || above(self.level) != self.position {
            return Ok(None);
        }
        let mut spot = self.clone();
        while spot.level > level {
            if spot.is_hole() {
                return Ok(None);
            }
            spot = spot.child((above(spot.level - 1) % FAN_OUT as u64) as usize, nodes, tree)?;
        }
        Ok(Some(spot))
    }

    fn visit_leaves(
        &self,
        nodes: &NodeReader,
        tree: TreeIdentity,
        (since, from): (Birth, u64),
        left: &mut usize,
        each: &mut dyn FnMut(u64, &Spot) -> Result<()>,
    ) -> Result<Option<u64>> {
        let end = (self.position + 1) * span(self.level - 1);
        // No birth is above that of the nodes over it (F4).
        let is_old =
            self.base.birth <= since && self.layers.iter().flatten().all(|delta| delta.birth <= since);
        if end <= from || self.is_hole() || self.is_lost() || (since > Birth(0) && is_old) {
            return Ok(None);
        }
        if self.level == 1 {
            if *left == 0 {
                return Ok(Some(self.position));
            }
            *left -= 1;
            each(self.position, self)?;
            return Ok(None);
        }
        for child in self.children(nodes, tree)? {
            let stopped_at = child.visit_leaves(nodes, tree, (since, from), left, each)?;
            if stopped_at.is_some() {
                return Ok(stopped_at);
            }
        }
        Ok(None)
    }

    /// Visits blocks `from` to `to` of the subtree that starts at block `start`; false if `each` ended it.
    fn visit(
        &self,
        nodes: &NodeReader,
        tree: TreeIdentity,
        start: u64,
        from: u64,
        to: u64,
        each: &mut dyn FnMut(Pointer, u64) -> bool,
    ) -> Result<bool> {
        if self.is_hole() {
            return Ok(each(Pointer::HOLE, to - from));
        }
        if self.is_lost() {
            return Ok(each(self.base, to - from));
        }
        if self.level == 0 {
            return Ok(each(self.base, 1));
        }
        let child_span = span(self.level - 1);
        let (first, last) = ((from - start) / child_span, (to - 1 - start) / child_span);
        for index in first..=last {
            let child_start = start + index * child_span;
            let child = self.child(index as usize, nodes, tree)?;
            let (from, to) = (from.max(child_start), to.min(child_start + child_span));
            if !child.visit(nodes, tree, child_start, from, to, each)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One child: as [`Spot::children`], without the others.
    fn child(&self, index: usize, nodes: &NodeReader, tree: TreeIdentity) -> Result<Spot> {
        let level = self.level - 1;
        let position = self.position * FAN_OUT as u64 + index as u64;
        let mut child = Spot {
            level,
            position,
            base: Pointer::HOLE,
            base_level: level,
            layers: [None, None],
            layer_level: level,
            end: self.end,
        };
        if self.is_virtual() {
            return Ok(if index == 0 { Spot { level, ..self.clone() } } else { child });
        }
        let mut base_counts = true;
        for (which, layer) in self.layers.iter().enumerate() {
            let Some(delta) = layer else { continue };
            if delta.cut {
                base_counts = false;
                child.base = Pointer::HOLE;
                child.layers[0] = None;
            }
            match delta.entry(index) {
                Some(Entry::Block(pointer)) => {
                    base_counts = false;
                    child.base = *pointer;
                }
                Some(Entry::Child(below)) => {
                    if below.cut {
                        base_counts = false;
                        child.layers[0] = None;
                    }
                    child.layers[which] = Some(below.clone());
                }
                None => {}
            }
        }
        if base_counts && !self.base.is_hole() {
            if self.base_level < self.level {
                if index == 0 {
                    child.base = self.base;
                    child.base_level = self.base_level;
                }
            } else {
                child.base = nodes.read_or_lost(tree, self.level, self.position, &self.base)?.children[index];
                child.cut_past_the_end();
            }
        }
        Ok(child)
    }

    /// Fingerprint of the subtree, if it is known without computing.
    pub(crate) fn known_fingerprint(&self) -> Option<Fingerprint> {
        let top = match (&self.layers[1], &self.layers[0]) {
            (Some(top), _) | (None, Some(top)) => top,
            (None, None) if self.base.is_lost() => return None,
            (None, None) => return Some(self.base.fingerprint.raise(self.base_level, self.level)),
        };
        let level = if self.is_virtual() { self.layer_level } else { self.level };
        top.fingerprint.get().map(|known| known.raise(level, self.level))
    }

    /// Fingerprint of the subtree. Computed from deltas once and remembered there; elsewhere it is in the pointer.
    pub(crate) fn fingerprint(&self, nodes: &NodeReader, tree: TreeIdentity) -> Result<Fingerprint> {
        let top = match (&self.layers[1], &self.layers[0]) {
            (Some(top), _) | (None, Some(top)) => top,
            (None, None) if self.base.is_lost() => return Err(self.quarantined(tree)),
            (None, None) => return Ok(self.base.fingerprint.raise(self.base_level, self.level)),
        };
        if self.is_virtual() {
            let below = Spot { level: self.layer_level, ..self.clone() };
            return Ok(below.fingerprint(nodes, tree)?.raise(self.layer_level, self.level));
        }
        if let Some(known) = top.fingerprint.get() {
            return Ok(*known);
        }
        if self.level == 1 {
            let pointers = self.leaf(nodes, tree)?;
            if pointers.iter().any(Pointer::is_lost) {
                return Err(self.quarantined(tree));
            }
            let fingerprints = pointers.map(|p| p.fingerprint);
            return Ok(*top.fingerprint.get_or_init(|| Fingerprint::of_node(1, &fingerprints)));
        }
        let mut fingerprints = [Fingerprint::HOLE; FAN_OUT];
        for (to, child) in fingerprints.iter_mut().zip(self.children(nodes, tree)?) {
            *to = child.fingerprint(nodes, tree)?;
        }
        let fingerprint = Fingerprint::of_node(self.level, &fingerprints);
        Ok(*top.fingerprint.get_or_init(|| fingerprint))
    }
}

/// Level to which two views must be raised to be walked side by side.
pub(crate) fn common_level(a: &View, b: &View) -> u8 {
    a.root.level.max(b.root.level).max(level_for(1))
}
