//! Trees: nodes, data, and who owns what.
//!
//! # Ownership by descent
//!
//! Versions are walked parents first, and each is compared with its parent at every position. If both have the same
//! place since the same birth, the child shares it, and nothing below is walked again. If not, the child must own
//! what it has: its birth must lie after the parent's freezing, and its place must not have been claimed by anyone
//! before. So each node is read for the version that owns it, the work is in proportion to distinct nodes, and "shared
//! only by descent" (F3) is checked exactly without remembering an owner for each block.
//!
//! A version that is being reaped holds nothing below its cursor. There its child is compared with the next parent up;
//! a node that straddles the cursor is held by both and walked for the child too, since only part of what is below
//! it is shared:
//!
//! ```text
//!              0        cursor           size
//!   parent     ├───────────┼───────────────┤
//!   reaped     │  (gone)   ├───────────────┤     the child's parent for each position:
//!   child      ├───────────┼───────────────┤     left of the cursor `parent`, right of it `reaped`
//! ```

use std::collections::HashMap;
use std::rc::Rc;

use farside_format::fingerprint::{BLOCKS_MAX, FAN_OUT, FAN_OUT_BITS, Fingerprint, is_zero, span};
use farside_format::{
    BLOCK_BYTES, Node, NodeExpectation, Pointer, Superblock, TreeKind, TreeReference, node,
};
use farside_platform::BlockBuffer;

use crate::catalog::VersionTree;
use crate::reader::Reader;
use crate::report::{Location, What};
use crate::usage::{Below, Usage};

const OWNERSHIP_HINT: &str =
    "freeing one version would free blocks of another; do not write to this pool, restore it from its mirror";

const QUARANTINED_HINT: &str = "reads of these blocks fail in every version that shares this map. Whole writes make them readable again in a volume: a resync \
     from the mirror or a restore from a backup; so does a rollback to a snapshot that has them. Nothing heals a snapshot";
/// Ranges of quarantined blocks told of one node at most.
const RUNS_TOLD_MAX: usize = 8;

/// A tree of the pool itself: catalog, free map or owner counts.
pub(crate) struct PoolTree {
    pub(crate) kind: TreeKind,
    pub(crate) reference: TreeReference,
    /// Blocks it may map.
    pub(crate) blocks: u64,
}

/// Reads one data block and compares it with its fingerprint; the error says what was found.
pub(crate) fn read_data(reader: &mut Reader<'_>, pointer: &Pointer) -> Result<BlockBuffer, String> {
    let mut block = BlockBuffer::zeroed(1);
    reader.read(pointer.place.0, &mut block)?;
    let found = Fingerprint::of_block(&block);
    if found != pointer.fingerprint { Err(found.to_string()) } else { Ok(block) }
}

/// Walks a tree of the pool, claims its nodes and data, and calls `visit` for each data pointer, in order.
pub(crate) fn walk_pool_tree<'a>(
    reader: &mut Reader<'a>,
    usage: &mut Usage,
    superblock: &Superblock,
    tree: &PoolTree,
    visit: &mut dyn FnMut(&mut Reader<'a>, u64, &Pointer),
) {
    if tree.reference.level > 0 {
        if tree.reference.root.birth.0 > superblock.birth_epoch {
            reader.error(
                What::Birth,
                pool_location(superblock, tree, &tree.reference.root, tree.reference.level, 0),
                format!("at most {}", superblock.birth_epoch),
                tree.reference.root.birth.0.to_string(),
                "",
            );
        }
        walk_pool_node(
            reader,
            usage,
            superblock,
            tree,
            (tree.reference.root, tree.reference.level, 0),
            visit,
        );
    }
}

fn pool_location(
    superblock: &Superblock,
    tree: &PoolTree,
    pointer: &Pointer,
    level: u8,
    position: u64,
) -> Location {
    Location {
        generation: Some(superblock.generation),
        tree: Some(tree.kind),
        level: Some(level),
        position: Some(position),
        place: Some(pointer.place.0),
        ..Location::default()
    }
}

/// Returns the data blocks below; none if part is unknown. Recursion is as deep as the tree: six levels.
fn walk_pool_node<'a>(
    reader: &mut Reader<'a>,
    usage: &mut Usage,
    superblock: &Superblock,
    tree: &PoolTree,
    (pointer, level, position): (Pointer, u8, u64),
    visit: &mut dyn FnMut(&mut Reader<'a>, u64, &Pointer),
) -> Option<u64> {
    let at = pool_location(superblock, tree, &pointer, level, position);
    if !usage.claim(reader, superblock, &at, node::copies(level)) {
        usage.unreadable += 1;
        return None;
    }
    let expected =
        NodeExpectation { pool: reader.pool(), level, kind: tree.kind, family: 0, position, pointer };
    let Some(node) = reader.check_node(&expected, at.clone()) else {
        usage.unreadable += 1;
        return None;
    };
    let mut mapped = Some(0);
    // The format refuses lost pointers in the pool's own trees.
    for (child, index) in node.children.iter().zip(position << FAN_OUT_BITS..) {
        if child.is_hole() {
            continue;
        }
        let first_block = index << (FAN_OUT_BITS * u32::from(level - 1));
        let child_at = pool_location(superblock, tree, child, level - 1, index);
        if first_block >= tree.blocks {
            reader.error(
                What::PastSize,
                child_at,
                format!("nothing from block {} on", tree.blocks),
                "a mapping",
                "",
            );
            continue;
        }
        let below = if level > 1 {
            walk_pool_node(reader, usage, superblock, tree, (*child, level - 1, index), visit)
        } else {
            usage.claim(reader, superblock, &child_at, 1);
            visit(reader, index, child);
            Some(1)
        };
        mapped = mapped.zip(below).map(|(a, b)| a + b);
    }
    check_count(reader, &at, &node, mapped);
    mapped
}

fn check_count(reader: &mut Reader<'_>, at: &Location, node: &Node, mapped: Option<u64>) {
    if let Some(mapped) = mapped
        && mapped != node.mapped_blocks
    {
        reader.error(What::MappedBlocks, at.clone(), mapped.to_string(), node.mapped_blocks.to_string(), "");
    }
}

/// Walks every version. `verified` are the versions of a point that was walked before, with its data.
pub(crate) fn check(
    reader: &mut Reader<'_>,
    superblock: &Superblock,
    usage: &mut Usage,
    versions: &mut [VersionTree],
    verified: Option<&[VersionTree]>,
) {
    let twins: HashMap<u64, usize> = verified
        .unwrap_or_default()
        .iter()
        .enumerate()
        .filter(|(_, v)| v.reaped == 0)
        .map(|(i, v)| (v.id, i))
        .collect();
    for index in 0..versions.len() {
        let version = &versions[index];
        let (tree, frozen) = (version.tree, version.frozen);
        if tree.level == 0 {
            versions[index].mapped_blocks = versions[index].readable.then_some(0);
            continue;
        }
        let limit = if frozen > 0 { frozen } else { superblock.birth_epoch.saturating_sub(1) };
        if tree.root.birth.0 > limit {
            reader.error(
                What::Birth,
                Location {
                    level: Some(tree.level),
                    position: Some(0),
                    place: Some(tree.root.place.0),
                    ..version.location(superblock.generation)
                },
                format!(
                    "no birth above {limit}, the epoch that {} closed",
                    if frozen > 0 { "the snapshot" } else { "the point" }
                ),
                tree.root.birth.0.to_string(),
                OWNERSHIP_HINT,
            );
        }
        let twin = twins.get(&version.id).and_then(|&i| verified.map(|v| &v[i]));
        let twin = twin.filter(|t| t.tree.level == tree.level && t.family == version.family);
        let unreadable_before = usage.unreadable;
        let mut walker = Walker { reader, superblock, usage, versions, version: index };
        let twin = twin.map_or(Twin::None, |t| Twin::At(t.tree.root));
        let below = walker.node(tree.root, tree.level, 0, twin);
        let mapped = below.mapped;
        let unreadable = usage.unreadable > unreadable_before;
        let parent_readable = versions[index].parent.is_none_or(|p| versions[p].readable);
        let version = &mut versions[index];
        version.mapped_blocks = mapped;
        version.lost_blocks = below.lost.unwrap_or(0);
        // What is shared with the parent is as readable as the parent.
        version.readable &= !unreadable && (parent_readable || mapped.is_some());
    }
}

/// What the version walked before, of the same id, has at the same position.
#[derive(Clone, Copy)]
enum Twin {
    /// Nothing known: data must be read.
    None,
    /// This pointer.
    At(Pointer),
    /// The same subtree, whose data was read: it need not be read again.
    Same,
}

/// The parent's node at a position.
enum ParentNode {
    /// No parent there, so everything is the version's own.
    NoParent,
    /// It cannot be read (noted when the parent was walked), so nothing can be said.
    Unknown,
    /// The parent that counts there, and its pointers.
    Known { children: ParentChildren },
}

enum ParentChildren {
    Holes,
    /// The level above the parent's root: its first child is the root.
    AboveRoot(Pointer),
    Node(Rc<Node>),
}

impl ParentChildren {
    fn pointer(&self, index: usize) -> Pointer {
        match self {
            ParentChildren::Holes => Pointer::HOLE,
            ParentChildren::AboveRoot(root) => {
                if index == 0 {
                    *root
                } else {
                    Pointer::HOLE
                }
            }
            ParentChildren::Node(node) => node.children[index],
        }
    }
}

struct Walker<'w, 'a> {
    reader: &'w mut Reader<'a>,
    superblock: &'w Superblock,
    usage: &'w mut Usage,
    versions: &'w [VersionTree],
    version: usize,
}

impl Walker<'_, '_> {
    fn this(&self) -> &VersionTree {
        &self.versions[self.version]
    }

    fn at(&self, pointer: &Pointer, level: u8, position: u64) -> Location {
        Location {
            level: Some(level),
            position: Some(position),
            place: Some(pointer.place.0),
            ..self.this().location(self.superblock.generation)
        }
    }

    fn expectation(&self, family: u64, pointer: Pointer, level: u8, position: u64) -> NodeExpectation {
        NodeExpectation { pool: self.reader.pool(), level, kind: TreeKind::Volume, family, position, pointer }
    }

    /// The nearest ancestor that still holds something before block `end`.
    fn parent_before(&self, end: u64) -> Option<usize> {
        let mut parent = self.this().parent;
        while let Some(index) = parent {
            if end > self.versions[index].reaped {
                return Some(index);
            }
            parent = self.versions[index].parent;
        }
        None
    }

    /// As whose an ownership of this birth counts: the version's, or an ancestor's, wherever that one's reaping has got to.
    fn counted_as(&self, birth: u64) -> usize {
        let mut version = self.version;
        while let Some(parent) = self.versions[version].parent.filter(|p| birth <= self.versions[*p].frozen) {
            version = parent;
        }
        version
    }

    /// The node of `parent` at (level, position), found from its root.
    fn parent_node(&mut self, parent: usize, level: u8, position: u64) -> ParentNode {
        let (tree, family) = (self.versions[parent].tree, self.versions[parent].family);
        let known = |children| ParentNode::Known { children };
        if !self.versions[parent].readable && tree.level == 0 {
            return ParentNode::Unknown;
        }
        if level > tree.level {
            let above = level == tree.level + 1 && position == 0 && tree.level > 0;
            return known(if above { ParentChildren::AboveRoot(tree.root) } else { ParentChildren::Holes });
        }
        if position >> (FAN_OUT_BITS * u32::from(tree.level - level)) != 0 {
            return known(ParentChildren::Holes);
        }
        let mut pointer = tree.root;
        for at in (level..=tree.level).rev() {
            if pointer.is_hole() {
                return known(ParentChildren::Holes);
            }
            if pointer.is_lost() {
                return ParentNode::Unknown;
            }
            let position_at = position >> (FAN_OUT_BITS * u32::from(at - level));
            let Some(node) = self.reader.load_node(&self.expectation(family, pointer, at, position_at))
            else {
                return ParentNode::Unknown;
            };
            if at == level {
                return known(ParentChildren::Node(node));
            }
            let child = position >> (FAN_OUT_BITS * u32::from(at - 1 - level));
            pointer = node.children[child as usize % FAN_OUT];
        }
        ParentNode::Unknown
    }

    /// The root has no parent node: it is compared with whatever the parent stores at the root's level.
    fn parent_pointer(&mut self, parent: usize, level: u8, position: u64) -> Option<Pointer> {
        let tree = self.versions[parent].tree;
        if level == tree.level && position == 0 {
            return Some(tree.root);
        }
        if level >= farside_format::fingerprint::TOP_LEVEL {
            return Some(Pointer::HOLE);
        }
        match self.parent_node(parent, level + 1, position >> FAN_OUT_BITS) {
            ParentNode::Known { children, .. } => Some(children.pointer(position as usize % FAN_OUT)),
            ParentNode::Unknown | ParentNode::NoParent => None,
        }
    }

    /// Walks one node. Returns what the tree maps below it.
    fn node(&mut self, pointer: Pointer, level: u8, position: u64, twin: Twin) -> Below {
        let (start, end) = (position * span(level), (position + 1) * span(level));
        if end <= self.this().reaped {
            return Below::default();
        }
        if pointer.is_lost() {
            // Told with its neighbours, by the node above.
            return Below { mapped: Some(0), lost: Some(span(level)) };
        }
        let at = self.at(&pointer, level, position);
        if start >= self.this().end_blocks() {
            let expected = format!("nothing from block {} on", self.this().end_blocks());
            self.reader.error(What::PastSize, at, expected, "a subtree", "");
            return Below::default();
        }
        let mut shared = false;
        if let Some(parent) = self.parent_before(end) {
            match self.parent_pointer(parent, level, position) {
                Some(theirs) if theirs == pointer => {
                    if self.versions[parent].reaped <= start {
                        return self.usage.mapped_below.get(&pointer.place.0).copied().unwrap_or_default();
                    }
                    shared = true;
                }
                Some(theirs) if !theirs.is_lost() => self.check_own(parent, &pointer, &at),
                // What damage took from the parent it may have had from its own, and the child from there.
                _ if pointer.birth.0 <= self.versions[parent].frozen
                    && self.usage.used.contains(pointer.place.0) =>
                {
                    let below = self.usage.mapped_below.get(&pointer.place.0);
                    return below.copied().unwrap_or_default();
                }
                _ => {}
            }
        }
        if !shared && !self.usage.claim(self.reader, self.superblock, &at, node::copies(level)) {
            self.usage.unreadable += 1;
            return Below::default();
        }
        let expected = self.expectation(self.this().family, pointer, level, position);
        let Some(node) = self.reader.check_node(&expected, at.clone()) else {
            self.usage.unreadable += 1;
            return Below::default();
        };
        let twin = self.descend_twin(twin, &pointer, level, position);
        let below = if level == 1 {
            self.leaf(&node, position, &twin)
        } else {
            self.inner(&node, level, position, &twin)
        };
        if below.mapped.is_some() {
            self.usage.mapped_below.insert(pointer.place.0, below);
        }
        check_count(self.reader, &at, &node, below.mapped);
        if let Some(lost) = below.lost
            && lost != node.lost_blocks
        {
            let (expected, found) = (format!("{lost} lost"), format!("{} lost", node.lost_blocks));
            self.reader.error(What::MappedBlocks, at, expected, found, "");
        }
        below
    }

    /// What an earlier damage took, which the pool has dealt with: reads of it fail until it is written. Told once for each
    /// node that names it, `runs` being (first block, count).
    fn lost(&mut self, level: u8, position: u64, runs: &[(u64, u64)]) {
        // Past the end there were holes.
        let end = self.this().size_blocks();
        let clipped = runs.iter().map(|(first, count)| (*first, (*count).min(end.saturating_sub(*first))));
        let runs: Vec<(u64, u64)> = clipped.filter(|(_, count)| *count > 0).collect();
        if runs.is_empty() {
            return;
        }
        let at = Location { place: None, ..self.at(&Pointer::HOLE, level, position) };
        let total: u64 = runs.iter().map(|(_, count)| count).sum();
        let told = runs.iter().take(RUNS_TOLD_MAX).map(|(first, count)| match count {
            1 => first.to_string(),
            _ => format!("{first} to {}", first + count - 1),
        });
        let mut found = format!("{total} quarantined blocks: {}", told.collect::<Vec<_>>().join(", "));
        if runs.len() > RUNS_TOLD_MAX {
            found += &format!(" and {} more ranges", runs.len() - RUNS_TOLD_MAX);
        }
        let expected = "a map that says where the blocks lie";
        self.reader.error(What::Quarantined, at, expected, found, QUARANTINED_HINT);
    }

    /// What the child does not share with its parent must have come into being after the parent.
    fn check_own(&mut self, parent: usize, pointer: &Pointer, at: &Location) {
        let parent = &self.versions[parent];
        if pointer.birth.0 <= parent.frozen {
            let expected =
                format!("shared with version {} (frozen {}), or born after it", parent.id, parent.frozen);
            let found = format!("birth {}, and the parent has something else here", pointer.birth.0);
            self.reader.error(What::Ownership, at.clone(), expected, found, OWNERSHIP_HINT);
        }
    }

    fn descend_twin(&mut self, twin: Twin, pointer: &Pointer, level: u8, position: u64) -> TwinChildren {
        match twin {
            Twin::Same => TwinChildren::Same,
            Twin::At(theirs) if theirs == *pointer => TwinChildren::Same,
            Twin::At(theirs) if !theirs.is_hole() => {
                let expected = self.expectation(self.this().family, theirs, level, position);
                self.reader.load_node(&expected).map_or(TwinChildren::None, TwinChildren::Node)
            }
            Twin::At(_) | Twin::None => TwinChildren::None,
        }
    }

    fn inner(&mut self, node: &Node, level: u8, position: u64, twin: &TwinChildren) -> Below {
        let mut total = Below::nothing();
        let mut runs = Vec::new();
        let reaped = self.this().reaped;
        for (i, child) in node.children.iter().enumerate() {
            let at = position << FAN_OUT_BITS | i as u64;
            if child.is_lost() && (at + 1) * span(level - 1) > reaped {
                add_run(&mut runs, at * span(level - 1), span(level - 1));
            }
            if !child.is_hole() {
                let below = self.node(*child, level - 1, position << FAN_OUT_BITS | i as u64, twin.child(i));
                total.add(below);
            }
        }
        self.lost(level, position, &runs);
        total
    }

    fn leaf(&mut self, node: &Node, position: u64, twin: &TwinChildren) -> Below {
        let (reaped, end_blocks) = (self.this().reaped, self.this().end_blocks());
        let mut mapped = Some(0);
        let mut lost = Some(0);
        let mut to_read: Vec<(u64, Pointer)> = Vec::new();
        let mut parent_node: Option<(Option<usize>, ParentNode)> = None;
        let mut runs = Vec::new();
        for (i, child) in node.children.iter().enumerate() {
            let block = position << FAN_OUT_BITS | i as u64;
            if child.is_hole() {
                continue;
            }
            if block < reaped {
                (mapped, lost) = (None, None);
                continue;
            }
            if child.is_lost() {
                add_run(&mut runs, block, 1);
                lost = lost.map(|l| l + 1);
                continue;
            }
            mapped = mapped.map(|m| m + 1);
            let at = self.at(child, 0, block);
            if block >= end_blocks {
                self.reader.error(
                    What::PastSize,
                    at,
                    format!("nothing from block {end_blocks} on"),
                    "a mapping",
                    "",
                );
                continue;
            }
            let parent = self.parent_before(block + 1);
            if parent_node.as_ref().is_none_or(|(of, _)| *of != parent) {
                let found = match parent {
                    Some(parent) => self.parent_node(parent, 1, position),
                    None => ParentNode::NoParent,
                };
                parent_node = Some((parent, found));
            }
            let theirs = match &parent_node {
                Some((_, ParentNode::Known { children, .. })) => Some(children.pointer(i)),
                _ => None,
            };
            match (theirs.filter(|theirs| !theirs.is_lost()), parent) {
                (Some(theirs), _) if theirs == *child => continue,
                (Some(_), Some(parent)) => self.check_own(parent, child, &at),
                // As with nodes: it may have come by descent, past what damage took.
                (None, Some(parent)) if child.birth.0 <= self.versions[parent].frozen => {
                    self.usage.used.insert(child.place.0);
                    self.usage.by_damaged_descent.insert(child.place.0);
                    continue;
                }
                _ => {}
            }
            self.usage.claim_data(self.reader, self.superblock, &at, child);
            *self.usage.owned.entry(self.counted_as(child.birth.0)).or_default() += 1;
            if self.reader.options.read_data && !twin.has(i, child) {
                to_read.push((block, *child));
            }
        }
        self.lost(1, position, &runs);
        self.read_blocks(&to_read);
        Below { mapped, lost }
    }

    /// Reads data blocks, those that lie side by side in one request, and compares each with its fingerprint.
    fn read_blocks(&mut self, blocks: &[(u64, Pointer)]) {
        let side_by_side = |a: &(u64, Pointer), b: &(u64, Pointer)| a.1.place.0 + 1 == b.1.place.0;
        for run in blocks.chunk_by(side_by_side) {
            let mut buffer = BlockBuffer::zeroed(run.len());
            if self.reader.read(run[0].1.place.0, &mut buffer).is_ok() {
                for ((block, pointer), bytes) in run.iter().zip(buffer.chunks_exact(BLOCK_BYTES)) {
                    self.compare_block(*block, pointer, Ok(bytes));
                }
                continue;
            }
            // One of them refuses: find out which.
            for (block, pointer) in run {
                let mut buffer = BlockBuffer::zeroed(1);
                let read = self.reader.read(pointer.place.0, &mut buffer);
                self.compare_block(*block, pointer, read.map(|()| &buffer[..]));
            }
        }
    }

    fn compare_block(&mut self, block: u64, pointer: &Pointer, bytes: Result<&[u8], String>) {
        let found = match bytes {
            Ok(bytes) => {
                let tail = (self.this().size_bytes % BLOCK_BYTES as u64) as usize;
                if tail > 0 && block + 1 == self.this().size_blocks() && !is_zero(&bytes[tail..]) {
                    let at = self.at(pointer, 0, block);
                    self.reader.error(
                        What::PastSize,
                        at,
                        "zeros past the volume's last byte",
                        "other bytes",
                        "the content root counts them; a resize could make them visible",
                    );
                }
                let found = Fingerprint::of_block(bytes);
                if found == pointer.fingerprint {
                    return;
                }
                found.to_string()
            }
            Err(why) => why,
        };
        let at = self.at(pointer, 0, block);
        self.reader.error(
            What::DataBlock,
            at,
            pointer.fingerprint.to_string(),
            found,
            "reads of this block fail in every version that shares it; writing the whole block heals a head, a mirror \
             can repair the rest. Other owners of its place are named by themselves",
        );
    }
}

/// One more run of blocks, as one with the last if they touch.
fn add_run(runs: &mut Vec<(u64, u64)>, first: u64, count: u64) {
    match runs.last_mut() {
        Some((before, so_far)) if *before + *so_far == first => *so_far += count,
        _ => runs.push((first, count)),
    }
}

enum TwinChildren {
    None,
    Same,
    Node(Rc<Node>),
}

impl TwinChildren {
    fn child(&self, index: usize) -> Twin {
        match self {
            TwinChildren::None => Twin::None,
            TwinChildren::Same => Twin::Same,
            TwinChildren::Node(node) => Twin::At(node.children[index]),
        }
    }

    fn has(&self, index: usize, pointer: &Pointer) -> bool {
        match self {
            TwinChildren::None => false,
            TwinChildren::Same => true,
            TwinChildren::Node(node) => node.children[index] == *pointer,
        }
    }
}

const _: () = assert!(BLOCKS_MAX == span(6), "six levels cover the largest volume");
