//! What has changed in a tree since the last consistency point: a sparse, persistent radix tree.
//!
//! A delta has the shape of the tree it lies over, but holds only the entries that changed: about 150 bytes for a
//! random 4 KiB write, where the 4 KiB nodes on its path would take 20 KiB. It is persistent: a freeze clones the
//! root `Arc`, later changes copy only the nodes on their path ([`Arc::make_mut`]), so snapshots cost nothing until
//! something changes and share what did not.
//!
//! A node may be *cut*: what lies below it in the base is gone, only its own entries count. So a trim of a
//! terabyte is one node.

use std::sync::{Arc, OnceLock};

use farside_format::fingerprint::{FAN_OUT, FAN_OUT_BITS, span};
use farside_format::{Birth, Fingerprint, Pointer};

/// A changed child.
#[derive(Clone)]
pub(crate) enum Entry {
    /// Of a leaf: a data block, or a hole where one may have been.
    Block(Pointer),
    /// Of an inner node.
    Child(Arc<Delta>),
}

/// A node of the delta.
#[derive(Default)]
pub(crate) struct Delta {
    /// Epoch of the last change at or below this node: the birth of the node it will become.
    pub(crate) birth: Birth,
    /// The base below counts no more.
    pub(crate) cut: bool,
    /// Changed children, ascending by index.
    entries: Vec<(u8, Entry)>,
    /// Fingerprint of the merged subtree, once somebody asked.
    pub(crate) fingerprint: OnceLock<Fingerprint>,
}

impl Clone for Delta {
    /// A clone is about to change, so it does not inherit the fingerprint.
    fn clone(&self) -> Self {
        Delta {
            birth: self.birth,
            cut: self.cut,
            entries: self.entries.clone(),
            fingerprint: OnceLock::new(),
        }
    }
}

/// What a change did besides changing: the caller accounts for it.
#[derive(Default)]
pub(crate) struct ChangeEffects {
    /// Mappings of this delta that were replaced: (block, pointer). Whether the place is free now depends on
    /// births.
    pub(crate) replaced: Vec<(u64, Pointer)>,
    /// New leaves, each of which the next point must write.
    pub(crate) new_leaves: u64,
    /// New inner nodes, likewise, each twice.
    pub(crate) new_inner: u64,
    /// Bytes of memory gained, roughly.
    pub(crate) bytes: u64,
}

/// Memory of one delta node without entries: the Arc's counts, the struct, allocator overhead.
const NODE_BYTES: u64 = 96;
/// Memory of one entry.
const ENTRY_BYTES: u64 = size_of::<(u8, Entry)>() as u64;
// What the module's head says of a scattered write: a leaf of its own with one entry.
const _: () = assert!(NODE_BYTES + ENTRY_BYTES <= 150);

impl Delta {
    /// The changed child at `index`.
    pub(crate) fn entry(&self, index: usize) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&(index as u8), |e| e.0).ok()?;
        Some(&self.entries[at].1)
    }

    /// Changed children, ascending.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (usize, &Entry)> {
        self.entries.iter().map(|(i, e)| (*i as usize, e))
    }

    /// Whether a subtree of the base was cut off, here or below.
    pub(crate) fn has_cut(&self) -> bool {
        self.cut
            || self.entries.iter().any(|(_, entry)| match entry {
                Entry::Child(child) => child.has_cut(),
                Entry::Block(_) => false,
            })
    }

    /// A root one level higher whose first child is this one; the new node comes into being now.
    pub(crate) fn raised(self: Arc<Self>, birth: Birth) -> Arc<Delta> {
        Arc::new(Delta {
            birth,
            cut: false,
            entries: vec![(0, Entry::Child(self))],
            fingerprint: OnceLock::new(),
        })
    }

    fn new(level: u8, effects: &mut ChangeEffects) -> Arc<Delta> {
        count_new(level, 0, effects);
        Arc::new(Delta::default())
    }
}

fn count_new(level: u8, entries: usize, effects: &mut ChangeEffects) {
    if level == 1 {
        effects.new_leaves += 1;
    } else {
        effects.new_inner += 1;
    }
    effects.bytes += NODE_BYTES + entries as u64 * ENTRY_BYTES;
}

/// Makes sure that `delta` exists and belongs to this version alone, and stamps it.
fn own<'a>(
    delta: &'a mut Option<Arc<Delta>>,
    level: u8,
    birth: Birth,
    effects: &mut ChangeEffects,
) -> &'a mut Delta {
    let arc = delta.get_or_insert_with(|| Delta::new(level, effects));
    // A cut without entries is a hole and costs no node; its first entry makes it one.
    let becomes_a_node = arc.cut && arc.entries.is_empty();
    if becomes_a_node || Arc::strong_count(arc) > 1 {
        count_new(level, arc.entries.len(), effects);
    }
    let node = Arc::make_mut(arc);
    node.birth = birth;
    node.fingerprint = OnceLock::new();
    node
}

/// Maps consecutive blocks from `block` on to `pointers` (holes allowed: they become holes) in the tree of `level`.
pub(crate) fn map(
    root: &mut Option<Arc<Delta>>,
    level: u8,
    block: u64,
    pointers: &[Pointer],
    birth: Birth,
    effects: &mut ChangeEffects,
) {
    map_in(root, level, 0, block, pointers, birth, effects);
}

fn map_in(
    delta: &mut Option<Arc<Delta>>,
    level: u8,
    start: u64,
    block: u64,
    pointers: &[Pointer],
    birth: Birth,
    effects: &mut ChangeEffects,
) {
    let node = own(delta, level, birth, effects);
    if level == 1 {
        for (i, pointer) in pointers.iter().enumerate() {
            let at = block + i as u64;
            set_entry(node, (at - start) as u8, Entry::Block(*pointer), at, effects);
        }
        return;
    }
    let child_span = span(level - 1);
    let mut done = 0;
    while done < pointers.len() {
        let at = block + done as u64;
        let index = (at - start) >> (FAN_OUT_BITS * u32::from(level - 1));
        let child_start = start + index * child_span;
        let take = ((child_start + child_span - at) as usize).min(pointers.len() - done);
        with_child(node, index as u8, effects, |child, effects| {
            map_in(child, level - 1, child_start, at, &pointers[done..done + take], birth, effects);
        });
        done += take;
    }
}

/// Makes `count` blocks from `block` on holes.
pub(crate) fn unmap(
    root: &mut Option<Arc<Delta>>,
    level: u8,
    block: u64,
    count: u64,
    birth: Birth,
    effects: &mut ChangeEffects,
) {
    if count > 0 {
        unmap_in(root, level, 0, block, block + count, birth, effects);
    }
}

fn unmap_in(
    delta: &mut Option<Arc<Delta>>,
    level: u8,
    start: u64,
    from: u64,
    to: u64,
    birth: Birth,
    effects: &mut ChangeEffects,
) {
    if from <= start && to >= start + span(level) {
        // The whole subtree: forget what is here, cut off what lies below.
        if let Some(old) = delta.take() {
            collect(&old, level, start, &mut effects.replaced);
        }
        effects.bytes += NODE_BYTES;
        let cut = Delta { birth, cut: true, entries: Vec::new(), fingerprint: OnceLock::new() };
        *delta = Some(Arc::new(cut));
        return;
    }
    let node = own(delta, level, birth, effects);
    let child_span = span(level - 1);
    let (first, last) = (from.max(start), to.min(start + span(level)));
    let (mut index, end) = ((first - start) / child_span, (last - 1 - start) / child_span);
    while index <= end {
        let child_start = start + index * child_span;
        if level == 1 {
            set_entry(node, index as u8, Entry::Block(Pointer::HOLE), child_start, effects);
        } else {
            with_child(node, index as u8, effects, |child, effects| {
                unmap_in(child, level - 1, child_start, first, last, birth, effects);
            });
        }
        index += 1;
    }
}

fn set_entry(node: &mut Delta, index: u8, entry: Entry, block: u64, effects: &mut ChangeEffects) {
    match node.entries.binary_search_by_key(&index, |e| e.0) {
        Ok(at) => {
            if let Entry::Block(old) = &node.entries[at].1
                && !old.is_hole()
            {
                effects.replaced.push((block, *old));
            }
            node.entries[at].1 = entry;
        }
        Err(at) => {
            effects.bytes += ENTRY_BYTES;
            insert(node, at, index, entry);
        }
    }
}

fn insert(node: &mut Delta, at: usize, index: u8, entry: Entry) {
    if node.entries.is_empty() {
        // Scattered writes leave one entry to a leaf; a Vec would begin with room for four.
        node.entries.reserve_exact(1);
    }
    node.entries.insert(at, (index, entry));
}

/// Lends the child at `index` to `change`, which may make or replace it.
fn with_child(
    node: &mut Delta,
    index: u8,
    effects: &mut ChangeEffects,
    change: impl FnOnce(&mut Option<Arc<Delta>>, &mut ChangeEffects),
) {
    match node.entries.binary_search_by_key(&index, |e| e.0) {
        Ok(at) => {
            // Moved out, not cloned, so that a child that is ours alone stays so.
            let slot = &mut node.entries[at].1;
            let mut child = match std::mem::replace(slot, Entry::Block(Pointer::HOLE)) {
                Entry::Child(child) => Some(child),
                Entry::Block(_) => None,
            };
            change(&mut child, effects);
            *slot = Entry::Child(child.expect("a change leaves a child behind"));
        }
        Err(at) => {
            let mut child = None;
            change(&mut child, effects);
            effects.bytes += ENTRY_BYTES;
            insert(node, at, index, Entry::Child(child.expect("a change leaves a child behind")));
        }
    }
}

/// Whether a delta says what a block is, mapped or a hole; else the base does.
pub(crate) fn covers(root: &Delta, level: u8, block: u64) -> bool {
    let (mut node, mut start, mut is_cut) = (root, 0, false);
    for level in (1..=level).rev() {
        is_cut |= node.cut;
        let child_span = span(level - 1);
        let Some(index) = block.checked_sub(start).map(|at| at / child_span).filter(|i| *i < FAN_OUT as u64)
        else {
            return is_cut;
        };
        match node.entry(index as usize) {
            Some(Entry::Block(_)) => return true,
            Some(Entry::Child(child)) => node = child,
            None => return is_cut,
        }
        start += index * child_span;
    }
    is_cut
}

/// Mapped blocks of `own` that `other` has not, ascending. Of two deltas that stand over the same base, one of which
/// began as a copy of the other: what they share since then are the same `Arc`s, or the same mappings.
pub(crate) fn collect_unshared(
    (own, level): (&Arc<Delta>, u8),
    other: Option<(&Arc<Delta>, u8)>,
    start: u64,
    into: &mut Vec<(u64, Pointer)>,
) {
    let Some((mut other, mut other_level)) = other.filter(|o| o.1 >= level) else {
        return collect(own, level, start, into);
    };
    // The copy was raised since: this delta is its left edge.
    while other_level > level {
        let Some(Entry::Child(first)) = other.entry(0) else { return collect(own, level, start, into) };
        (other, other_level) = (first, other_level - 1);
    }
    if Arc::ptr_eq(own, other) {
        return;
    }
    for (index, entry) in own.entries() {
        match (entry, other.entry(index)) {
            (Entry::Block(pointer), _) if pointer.is_hole() => {}
            (Entry::Block(pointer), Some(Entry::Block(same))) if pointer.same_ownership(same) => {}
            (Entry::Block(pointer), _) => into.push((start + index as u64, *pointer)),
            (Entry::Child(child), beside) => {
                let beside = match beside {
                    Some(Entry::Child(beside)) => Some((beside, level - 1)),
                    _ => None,
                };
                let child_start = start + index as u64 * span(level - 1);
                collect_unshared((child, level - 1), beside, child_start, into);
            }
        }
    }
}

/// All mapped blocks of a delta, ascending.
pub(crate) fn collect(delta: &Delta, level: u8, start: u64, into: &mut Vec<(u64, Pointer)>) {
    for (index, entry) in delta.entries() {
        match entry {
            Entry::Block(pointer) if !pointer.is_hole() => into.push((start + index as u64, *pointer)),
            Entry::Block(_) => {}
            Entry::Child(child) => collect(child, level - 1, start + index as u64 * span(level - 1), into),
        }
    }
}
