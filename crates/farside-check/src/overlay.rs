//! The content of a version after the journal's changes, without writing anything: a sparse tree of differences over
//! the stored tree. Freezing is a clone of the root (shared until changed); a content root reads only the nodes
//! that changes touch.

use std::cell::OnceCell;
use std::rc::Rc;

use farside_format::fingerprint::{FAN_OUT, FAN_OUT_BITS, Fingerprint, TOP_LEVEL, span};
use farside_format::{ContentRoot, NodeExpectation, Pointer, TreeKind, TreeReference};

use crate::reader::Reader;

/// A node that changes need could not be read; it was noted when the trees were walked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable;

/// What a version holds.
#[derive(Clone)]
pub(crate) struct Content {
    family: u64,
    tree: TreeReference,
    root: Rc<Changes>,
}

/// What changed below one node. Children not named are as in the stored tree.
#[derive(Clone, Default)]
struct Changes {
    /// The stored subtree counts no more: all holes but for the changes.
    cleared: bool,
    /// By child, ascending.
    children: Vec<(u8, Change)>,
    fingerprint: OnceCell<Fingerprint>,
}

#[derive(Clone)]
enum Change {
    /// A data block, or a hole (children of level 1).
    Block(Pointer),
    /// A subtree (children of higher levels).
    Below(Rc<Changes>),
}

/// What the stored tree has at a node.
#[derive(Clone, Copy)]
enum Stored {
    Hole,
    Node(Pointer),
    /// Above the stored root, which is the leftmost below.
    AboveRoot,
}

impl Content {
    /// What the tree holds.
    pub(crate) fn stored(tree: TreeReference, family: u64) -> Content {
        Content { family, tree, root: Rc::default() }
    }

    /// Nothing but holes.
    pub(crate) fn empty(family: u64) -> Content {
        Content::stored(TreeReference::default(), family)
    }

    /// Maps one block; the mapping that came since the point and is replaced, if there is one.
    pub(crate) fn map(&mut self, block: u64, pointer: Pointer) -> Option<Pointer> {
        let mut changes = Rc::make_mut(&mut self.root);
        for level in (2..=TOP_LEVEL).rev() {
            changes.fingerprint.take();
            changes = changes.below(child_of(block, level));
        }
        changes.fingerprint.take();
        changes.set(child_of(block, 1), Change::Block(pointer))
    }

    /// Blocks `start` to `end` (not included) become holes; the mappings that came since the point and are replaced.
    pub(crate) fn unmap(&mut self, start: u64, end: u64) -> Vec<(u64, Pointer)> {
        let mut replaced = Vec::new();
        Rc::make_mut(&mut self.root).unmap(TOP_LEVEL, 0, (start, end), &mut replaced);
        replaced
    }

    /// The content root at this size.
    pub(crate) fn content_root(
        &self,
        reader: &mut Reader<'_>,
        size_bytes: u64,
    ) -> Result<ContentRoot, Unreadable> {
        let top = self.fingerprint(reader, &self.root, TOP_LEVEL, 0, self.stored_root())?;
        Ok(ContentRoot::new(top, size_bytes))
    }

    /// Whether any block from `from` on is no hole.
    pub(crate) fn maps_from(&self, reader: &mut Reader<'_>, from: u64) -> Result<bool, Unreadable> {
        self.any_from(reader, &self.root, TOP_LEVEL, 0, self.stored_root(), from)
    }

    fn stored_root(&self) -> Stored {
        match self.tree.level {
            0 => Stored::Hole,
            TOP_LEVEL => Stored::Node(self.tree.root),
            _ => Stored::AboveRoot,
        }
    }

    /// The stored children (fingerprint, what is there) of a node.
    fn stored_children(
        &self,
        reader: &mut Reader<'_>,
        stored: Stored,
        level: u8,
        position: u64,
    ) -> Result<Vec<(Fingerprint, Stored)>, Unreadable> {
        let mut children = vec![(Fingerprint::HOLE, Stored::Hole); FAN_OUT];
        match stored {
            Stored::Hole => {}
            Stored::AboveRoot => {
                let root = self.tree.root;
                let below = if level - 1 == self.tree.level { Stored::Node(root) } else { Stored::AboveRoot };
                children[0] = (root.fingerprint.raise(self.tree.level, level - 1), below);
            }
            Stored::Node(pointer) => {
                let (pool, family) = (reader.pool(), self.family);
                let expected =
                    NodeExpectation { pool, level, kind: TreeKind::Volume, family, position, pointer };
                let node = reader.load_node(&expected).ok_or(Unreadable)?;
                for (to, child) in children.iter_mut().zip(node.children.iter()).filter(|(_, c)| !c.is_hole())
                {
                    *to = (child.fingerprint, Stored::Node(*child));
                }
            }
        }
        Ok(children)
    }

    fn fingerprint(
        &self,
        reader: &mut Reader<'_>,
        changes: &Changes,
        level: u8,
        position: u64,
        stored: Stored,
    ) -> Result<Fingerprint, Unreadable> {
        if let Some(known) = changes.fingerprint.get() {
            return Ok(*known);
        }
        let stored = if changes.cleared { Stored::Hole } else { stored };
        let fingerprint = if changes.children.is_empty() {
            match stored {
                Stored::Hole => Fingerprint::HOLE,
                Stored::Node(pointer) => pointer.fingerprint,
                Stored::AboveRoot => self.tree.root.fingerprint.raise(self.tree.level, level),
            }
        } else {
            let children = self.stored_children(reader, stored, level, position)?;
            let mut fingerprints = [Fingerprint::HOLE; FAN_OUT];
            for (to, (fingerprint, _)) in fingerprints.iter_mut().zip(&children) {
                *to = *fingerprint;
            }
            for (index, change) in &changes.children {
                let index = usize::from(*index);
                fingerprints[index] = match change {
                    Change::Block(pointer) => pointer.fingerprint,
                    Change::Below(below) => {
                        let position = position << FAN_OUT_BITS | index as u64;
                        self.fingerprint(reader, below, level - 1, position, children[index].1)?
                    }
                };
            }
            Fingerprint::of_node(level, &fingerprints)
        };
        // Set once: the cell is emptied whenever something below changes.
        let _ = changes.fingerprint.set(fingerprint);
        Ok(fingerprint)
    }

    fn any_from(
        &self,
        reader: &mut Reader<'_>,
        changes: &Changes,
        level: u8,
        position: u64,
        stored: Stored,
        from: u64,
    ) -> Result<bool, Unreadable> {
        if (position + 1) * span(level) <= from {
            return Ok(false);
        }
        if position * span(level) >= from {
            return Ok(!self.fingerprint(reader, changes, level, position, stored)?.is_hole());
        }
        let stored = if changes.cleared { Stored::Hole } else { stored };
        let children = self.stored_children(reader, stored, level, position)?;
        let unchanged = Changes::default();
        for (index, (fingerprint, stored)) in children.into_iter().enumerate() {
            let position = position << FAN_OUT_BITS | index as u64;
            let change = changes.get(index as u8);
            let found = match (level, change) {
                (1, Some(Change::Block(block))) => position >= from && !block.is_hole(),
                (1, _) => position >= from && !fingerprint.is_hole(),
                (_, Some(Change::Below(below))) => {
                    self.any_from(reader, below, level - 1, position, stored, from)?
                }
                (_, None) if fingerprint.is_hole() => false,
                (_, _) => self.any_from(reader, &unchanged.clone(), level - 1, position, stored, from)?,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn child_of(block: u64, level: u8) -> u8 {
    ((block >> (FAN_OUT_BITS * u32::from(level - 1))) % FAN_OUT as u64) as u8
}

impl Changes {
    fn get(&self, child: u8) -> Option<&Change> {
        self.children.binary_search_by_key(&child, |(c, _)| *c).ok().map(|i| &self.children[i].1)
    }

    /// Answers with the block that was mapped there, if it was.
    fn set(&mut self, child: u8, change: Change) -> Option<Pointer> {
        match self.children.binary_search_by_key(&child, |(c, _)| *c) {
            Ok(i) => match std::mem::replace(&mut self.children[i].1, change) {
                Change::Block(pointer) if !pointer.is_hole() => Some(pointer),
                _ => None,
            },
            Err(i) => {
                self.children.insert(i, (child, change));
                None
            }
        }
    }

    /// All blocks mapped here.
    fn collect(&self, position: u64, into: &mut Vec<(u64, Pointer)>) {
        for (child, change) in &self.children {
            let position = position << FAN_OUT_BITS | u64::from(*child);
            match change {
                Change::Block(pointer) if !pointer.is_hole() => into.push((position, *pointer)),
                Change::Block(_) => {}
                Change::Below(below) => below.collect(position, into),
            }
        }
    }

    /// The changes below a child, begun if there are none.
    fn below(&mut self, child: u8) -> &mut Changes {
        let i = match self.children.binary_search_by_key(&child, |(c, _)| *c) {
            Ok(i) => i,
            Err(i) => {
                self.children.insert(i, (child, Change::Below(Rc::default())));
                i
            }
        };
        let change = &mut self.children[i].1;
        if let Change::Block(_) = change {
            *change = Change::Below(Rc::default());
        }
        match change {
            Change::Below(below) => Rc::make_mut(below),
            Change::Block(_) => unreachable!("replaced just above"),
        }
    }

    fn unmap(
        &mut self,
        level: u8,
        position: u64,
        (start, end): (u64, u64),
        replaced: &mut Vec<(u64, Pointer)>,
    ) {
        self.fingerprint.take();
        let (first, last) = (position * span(level), (position + 1) * span(level));
        if start <= first && last <= end {
            self.collect(position, replaced);
            self.cleared = true;
            self.children.clear();
            return;
        }
        let child_span = span(level) / FAN_OUT as u64;
        let from = (start.max(first) - first) / child_span;
        let to = (end.min(last) - first).div_ceil(child_span);
        for child in from..to {
            if level == 1 {
                let old = self.set(child as u8, Change::Block(Pointer::HOLE));
                replaced.extend(old.map(|old| (first + child, old)));
            } else {
                let position = position << FAN_OUT_BITS | child;
                self.below(child as u8).unmap(level - 1, position, (start, end), replaced);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_format::{Birth, Place};
    use farside_platform::SimulatedDisk;

    use super::*;
    use crate::CheckOptions;

    fn root_of(blocks: &[(u64, Fingerprint)]) -> Fingerprint {
        // The straight way: fold level by level.
        let mut level_below: std::collections::BTreeMap<u64, Fingerprint> = blocks.iter().copied().collect();
        for level in 1..=TOP_LEVEL {
            let mut nodes: std::collections::BTreeMap<u64, [Fingerprint; FAN_OUT]> = Default::default();
            for (position, fingerprint) in level_below {
                let node = nodes.entry(position >> FAN_OUT_BITS).or_insert([Fingerprint::HOLE; FAN_OUT]);
                node[(position % FAN_OUT as u64) as usize] = fingerprint;
            }
            level_below = nodes.into_iter().map(|(p, n)| (p, Fingerprint::of_node(level, &n))).collect();
        }
        level_below.get(&0).copied().unwrap_or(Fingerprint::HOLE)
    }

    #[test]
    fn content_follows_maps_and_unmaps_and_clones_stay() {
        let disk = SimulatedDisk::new("d", 4096);
        let options = CheckOptions::default();
        let reader = &mut Reader::new(&disk, &options);
        let f = |n: u8| Fingerprint([n; 16]);
        let p = |n: u8| Pointer { fingerprint: f(n), place: Place(n.into()), birth: Birth(1) };
        let mut content = Content::empty(1);
        for (block, n) in [(3, 3), (130, 9), (span(5) + 7, 5)] {
            assert_eq!(content.map(block, p(n)), None);
        }
        assert_eq!(content.map(130, p(4)), Some(p(9)));
        let expected = root_of(&[(3, f(3)), (130, f(4)), (span(5) + 7, f(5))]);
        assert_eq!(content.content_root(reader, 9), Ok(ContentRoot::new(expected, 9)));
        let before = content.clone();
        assert_eq!(content.unmap(100, span(5) + 8), [(130, p(4)), (span(5) + 7, p(5))]);
        assert_eq!(content.content_root(reader, 9), Ok(ContentRoot::new(root_of(&[(3, f(3))]), 9)));
        assert_eq!(before.content_root(reader, 9), Ok(ContentRoot::new(expected, 9)));
        assert_eq!(content.maps_from(reader, 3), Ok(true));
        assert_eq!(content.maps_from(reader, 4), Ok(false));
        assert_eq!(before.maps_from(reader, 131), Ok(true));
        assert_eq!(content.map(130, p(6)), None, "a hole has no owner");
        assert_eq!(
            content.content_root(reader, 9),
            Ok(ContentRoot::new(root_of(&[(3, f(3)), (130, f(6))]), 9))
        );
        assert_eq!(content.unmap(0, span(6)), [(3, p(3)), (130, p(6))]);
        assert_eq!(content.content_root(reader, 9), Ok(ContentRoot::new(Fingerprint::HOLE, 9)));
    }
}
