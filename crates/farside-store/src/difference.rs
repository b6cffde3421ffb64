//! What one version has that another has not: two trees walked side by side, descending where fingerprints differ.
//!
//! Never touches data (requirement A2). The cost is the nodes on changed paths: at worst, with change scattered over
//! every leaf, the metadata (0.8 % of the data). Blocks rewritten with equal content are not reported. It goes in
//! bounded steps; a step holds up the consistency point after the next, and no host.
//!
//! A subtree that is a hole now costs one node of the base, whatever its size: the node says how many blocks were mapped
//! below it. So a trim of a terabyte of scattered blocks is one range, not a walk over all of its leaves.

use farside_format::fingerprint::span;
use farside_format::{Fingerprint, Node, Pointer};

use crate::error::{Result, StoreError};
use crate::nodes::NodeReader;
use crate::view::{Spot, View, common_level};

/// What a difference says of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DifferenceKind {
    /// Holds other data than in the base.
    Data,
    /// Was data in the base, is a hole now.
    Hole,
}

/// A range of blocks that differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DifferingBlocks {
    /// First block.
    pub block: u64,
    /// How many.
    pub count: u64,
    /// Data or hole. All of a range of holes are holes now; those that were data in the base are its `changed` ones.
    pub kind: DifferenceKind,
    /// Blocks of the range that differ from the base: all of a range of data, at least one of a range of holes.
    pub changed: u64,
}

/// Extents after which one step of a difference stops, so that a walk never holds views for long.
const EXTENTS_PER_STEP: usize = 4096;
/// Pairs of nodes after which it stops as well.
const NODES_PER_STEP: usize = 2048;

/// One step of a walk: what differs from `from` on, and where to go on (`None` at the end).
pub(crate) fn step(
    nodes: &NodeReader,
    base: &View,
    incremental: &View,
    from: u64,
) -> Result<(Vec<DifferingBlocks>, Option<u64>)> {
    let level = common_level(base, incremental);
    let (a, b) = (base.clone().raised_to(level), incremental.clone().raised_to(level));
    let mut walk = Walk {
        nodes,
        a: &a,
        b: &b,
        from,
        found: Vec::new(),
        joins_hole: false,
        visited: 0,
        stopped_at: None,
    };
    walk.descend(&a.root, &b.root, 0)?;
    Ok((walk.found, walk.stopped_at))
}

struct Walk<'a> {
    nodes: &'a NodeReader,
    a: &'a View,
    b: &'a View,
    from: u64,
    found: Vec<DifferingBlocks>,
    /// Whether everything since the last range found, which is one of holes, is a hole now: the next one goes on with it.
    joins_hole: bool,
    visited: usize,
    stopped_at: Option<u64>,
}

impl Walk<'_> {
    fn descend(&mut self, a: &Spot, b: &Spot, start: u64) -> Result<()> {
        if self.stopped_at.is_some() || start + span(a.level) <= self.from {
            return Ok(());
        }
        let is_hole = b.is_known_hole();
        if a.is_same(b) {
            self.joins_hole &= is_hole;
            return Ok(());
        }
        if b.is_lost() {
            if a.is_lost_like(b) {
                // No range of holes goes on across it.
                self.joins_hole = false;
                return Ok(());
            }
            return Err(self.quarantined(start, span(b.level)));
        }
        // Where it is not known it is not computed: below lie changes since the last consistency point, up to all that
        // memory holds of them, and a step must end soon.
        if let (Some(a), Some(b)) = (a.known_fingerprint(), b.known_fingerprint())
            && a == b
        {
            self.joins_hole &= is_hole;
            return Ok(());
        }
        // Stop between nodes only, so that the next step begins where this one ended.
        if self.found.len() >= EXTENTS_PER_STEP || self.visited >= NODES_PER_STEP {
            self.stopped_at = Some(start.max(self.from));
            return Ok(());
        }
        self.visited += 1;
        if is_hole
            && start >= self.from
            && let Some(base) = a.stored(self.nodes, self.a.tree)?
        {
            self.hole(&base, start);
            return Ok(());
        }
        if a.level == 1 {
            let (left, right) = (a.leaf(self.nodes, self.a.tree)?, b.leaf(self.nodes, self.b.tree)?);
            for (index, (old, new)) in left.iter().zip(&right).enumerate() {
                if new.is_lost() && old.fingerprint != new.fingerprint {
                    return Err(self.quarantined(start + index as u64, 1));
                }
                self.block(old.fingerprint, new.fingerprint, start + index as u64);
            }
            return Ok(());
        }
        let left = a.children(self.nodes, self.a.tree)?;
        let right = b.children(self.nodes, self.b.tree)?;
        for (index, (a, b)) in left.iter().zip(&right).enumerate() {
            self.descend(a, b, start + index as u64 * span(a.level))?;
        }
        Ok(())
    }

    /// What the incremental has there nobody knows, so it cannot be told whether it differs.
    fn quarantined(&self, block: u64, count: u64) -> StoreError {
        StoreError::Quarantined { version: format!("family {}", self.b.tree.family), block, count }
    }

    fn block(&mut self, old: Fingerprint, new: Fingerprint, block: u64) {
        if block < self.from {
            return;
        }
        self.joins_hole &= new.is_hole();
        if old != new {
            let kind = if new.is_hole() { DifferenceKind::Hole } else { DifferenceKind::Data };
            self.push(DifferingBlocks { block, count: 1, kind, changed: 1 });
        }
    }

    /// All that the base has below this node, and the version has no more: from its first child that is no hole to the last.
    fn hole(&mut self, base: &Node, start: u64) {
        let width = span(base.level - 1);
        let used = |child: &Pointer| !child.is_hole();
        let (Some(first), Some(last)) =
            (base.children.iter().position(used), base.children.iter().rposition(used))
        else {
            return;
        };
        let (block, end) = (start + first as u64 * width, start + (last as u64 + 1) * width);
        let count = end.min(self.a.blocks()).saturating_sub(block);
        let changed = base.mapped_blocks.saturating_add(base.lost_blocks).min(count);
        self.push(DifferingBlocks { block, count, kind: DifferenceKind::Hole, changed });
    }

    fn push(&mut self, next: DifferingBlocks) {
        let is_hole = next.kind == DifferenceKind::Hole;
        match self.found.last_mut() {
            Some(last)
                if last.kind == next.kind
                    && (last.block + last.count == next.block || (is_hole && self.joins_hole)) =>
            {
                last.count = next.block + next.count - last.block;
                last.changed += next.changed;
            }
            _ => self.found.push(next),
        }
        self.joins_hole = is_hole;
    }
}
