//! What one version has that another has not: two trees walked side by side, descending where fingerprints differ.
//!
//! Never touches data (requirement A2). The cost is the nodes on changed paths: at worst, with change scattered over
//! every leaf, the metadata (0.8 % of the data). Blocks rewritten with equal content are not reported. It goes in
//! bounded steps; a step holds up a consistency point's last moment, and no write.

use farside_format::Fingerprint;
use farside_format::fingerprint::span;

use crate::error::Result;
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
    /// Data or hole.
    pub kind: DifferenceKind,
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
    let mut walk = Walk { nodes, a: &a, b: &b, from, found: Vec::new(), visited: 0, stopped_at: None };
    walk.descend(&a.root, &b.root, 0)?;
    Ok((walk.found, walk.stopped_at))
}

struct Walk<'a> {
    nodes: &'a NodeReader,
    a: &'a View,
    b: &'a View,
    from: u64,
    found: Vec<DifferingBlocks>,
    visited: usize,
    stopped_at: Option<u64>,
}

impl Walk<'_> {
    fn descend(&mut self, a: &Spot, b: &Spot, start: u64) -> Result<()> {
        if self.stopped_at.is_some() || start + span(a.level) <= self.from || a.is_same(b) {
            return Ok(());
        }
        // Where it is not known it is not computed: below lie changes since the last consistency point, up to all that
        // memory holds of them, and a step must end soon.
        if let (Some(a), Some(b)) = (a.known_fingerprint(), b.known_fingerprint())
            && a == b
        {
            return Ok(());
        }
        // Stop between nodes only, so that the next step begins where this one ended.
        if self.found.len() >= EXTENTS_PER_STEP || self.visited >= NODES_PER_STEP {
            self.stopped_at = Some(start.max(self.from));
            return Ok(());
        }
        self.visited += 1;
        if a.level == 1 {
            let (left, right) = (a.leaf(self.nodes, self.a.tree)?, b.leaf(self.nodes, self.b.tree)?);
            for (index, (old, new)) in left.iter().zip(&right).enumerate() {
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

    fn block(&mut self, old: Fingerprint, new: Fingerprint, block: u64) {
        if old == new || block < self.from {
            return;
        }
        let kind = if new.is_hole() { DifferenceKind::Hole } else { DifferenceKind::Data };
        match self.found.last_mut() {
            Some(last) if last.kind == kind && last.block + last.count == block => last.count += 1,
            _ => self.found.push(DifferingBlocks { block, count: 1, kind }),
        }
    }
}
