//! What looked damaged is looked at again under the current map, where nobody can use its place for something else. Then it is named, or
//! rewritten from its second copy.

use farside_format::catalog::VersionKind;
use farside_format::fingerprint::{FAN_OUT, span};
use farside_format::node::copies;
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{Fingerprint, Node, NodeExpectation, Pointer, TreeReference};
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use super::{Block, DamageKind, READ_TRIES, Scrub, ScrubDamage};
use crate::error::Result;
use crate::nodes::TreeIdentity;
use crate::pool::Pool;

/// What became of a node.
pub(super) enum Found {
    /// It is sound, or has been rewritten.
    Sound(Box<Node>),
    /// No copy is left; it is among the findings.
    Damaged,
    /// It does not stand there any more.
    Gone,
}

/// A node's copies, as they are now.
struct Copies {
    /// First and, if there is to be one, second.
    nodes: Vec<Option<Node>>,
    error: String,
}

impl Scrub {
    /// A data block that did not match, or could not be read.
    pub(super) fn look_at_block_again(&mut self, block: &Block) -> Result<()> {
        let pool = std::sync::Arc::clone(&self.pool);
        let mut sharers = Vec::new();
        for version in pool.versions_of_family(block.family) {
            // No place is used again meanwhile. A host waits for this at most as long as for a read of its own.
            let _reading = pool.readers.read();
            let view = {
                let state = pool.locked();
                let found = state.versions.versions.get(&version).filter(|v| !v.deleted);
                found.map(|found| state.view(found))
            };
            let Some(view) = view.filter(|view| block.block < view.blocks()) else { continue };
            let mut found = Vec::with_capacity(1);
            // Where its map is damaged as well, that is told of instead.
            if view.lookup(&pool.nodes, block.block, 1, &mut found).is_err() {
                continue;
            }
            let has_it =
                found.first().is_some_and(|p| p.place.0 == block.place && p.fingerprint == block.fingerprint);
            if !has_it {
                continue;
            }
            if sharers.is_empty() && pool.block_is_sound(block) {
                return Ok(());
            }
            sharers.push(version);
        }
        // Overwritten or deleted meanwhile by all who had it.
        if sharers.is_empty() {
            return Ok(());
        }
        if !self.damaged.contains(&block.place) {
            self.findings.damaged_places += 1;
            if self.damaged.len() < super::SCRUB_DAMAGE_MAX {
                self.damaged.insert(block.place);
            }
        }
        for damage in pool.named(&sharers, DamageKind::Data, block.block, 1) {
            tracing::error!(
                pool = %pool.id(), volume = damage.volume, block = block.block, place = block.place,
                "the scrub found a damaged data block. Reads of it fail; a write of the whole block heals the volume, and snapshots keep it"
            );
            self.findings.add(damage);
        }
        Ok(())
    }

    /// A node of which a copy did not match, or could not be read.
    pub(super) fn look_at_node_again(
        &mut self,
        version: u64,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
    ) -> Result<Found> {
        let pool = std::sync::Arc::clone(&self.pool);
        {
            // No point, no reaping: what is referred to stays where it is.
            let _still = (!self.is_still).then(|| pool.maintenance.lock());
            let now = {
                let state = pool.locked();
                state.versions.versions.get(&version).filter(|v| !v.deleted).map(|v| v.tree)
            };
            let stands = |reference| pool.pointer_at(reference, tree, level, position);
            if now.and_then(stands).is_none_or(|found| !found.same_ownership(pointer)) {
                return Ok(Found::Gone);
            }
            let expected = pool.nodes.expectation(tree, level, position, pointer);
            if let Some(node) = self.sound_or_rewritten(&pool, &expected, "the map of a volume")? {
                return Ok(Found::Sound(Box::new(node)));
            }
        }
        self.findings.damaged_places += 1;
        let mut sharers = Vec::new();
        for version in pool.versions_of_family(tree.family) {
            let _reading = pool.readers.read();
            let reference = {
                let state = pool.locked();
                state.versions.versions.get(&version).filter(|v| !v.deleted).map(|v| v.tree)
            };
            let found = reference.and_then(|reference| pool.pointer_at(reference, tree, level, position));
            if found.is_some_and(|found| found.same_ownership(pointer)) {
                sharers.push(version);
            }
        }
        for damage in pool.named(&sharers, DamageKind::Map, position * span(level), span(level)) {
            tracing::error!(
                pool = %pool.id(), volume = damage.volume, place = pointer.place.0,
                "the scrub found damaged metadata of a volume: blocks {} to {} cannot be read, everything else goes on",
                damage.block, damage.block + damage.count - 1
            );
            self.findings.add(damage);
        }
        Ok(Found::Damaged)
    }

    /// The node, from a copy that is sound; the other one is rewritten from it. To be called with the maintenance lock held, of a node that
    /// is seen to be referred to.
    pub(super) fn sound_or_rewritten(
        &mut self,
        pool: &Pool,
        expected: &NodeExpectation,
        what: &str,
    ) -> Result<Option<Node>> {
        let found = pool.copies_of(expected);
        // What is in memory was verified, or made here: as good as a copy on the medium.
        let in_memory = pool.nodes.remembered(expected);
        let Some(sound) = found.nodes.iter().flatten().next().or(in_memory.as_deref()) else {
            return Ok(None);
        };
        for (copy, place) in
            found.nodes.iter().zip((0..).map(|copy| expected.pointer.place.0 + copy * TWIN_DISTANCE))
        {
            if copy.is_some() {
                continue;
            }
            if pool.rewrite_copy(sound, place, expected)? {
                tracing::error!(
                    pool = %pool.id(), place,
                    "a copy of {what} was damaged ({}) and has been rewritten from the other one. Nothing is lost, but the medium loses data",
                    found.error
                );
                self.findings.add_rewritten(format!("{what} (pool block {place})"));
            } else {
                self.findings.add_structure(format!(
                    "one of two copies of {what} (pool block {place}) is damaged and cannot be rewritten; the other one is sound"
                ));
            }
        }
        Ok(Some(sound.clone()))
    }
}

impl Pool {
    fn versions_of_family(&self, family: u64) -> Vec<u64> {
        let state = self.locked();
        let versions = state.versions.versions.values().filter(|v| !v.deleted);
        let is_of = |volume| state.versions.volumes.get(volume).is_some_and(|v| v.family == family);
        versions.filter(|v| is_of(&v.volume)).map(|v| v.id).collect()
    }

    fn block_is_sound(&self, block: &Block) -> bool {
        let mut bytes = BlockBuffer::zeroed(1);
        (0..READ_TRIES).any(|_| {
            self.behind.read_at(block.place * BLOCK_BYTES as u64, &mut bytes).is_ok()
                && Fingerprint::of_block(&bytes) == block.fingerprint
        })
    }

    /// The pointer to the node that stands there in a tree of the newest point; none if there is none, or the way is damaged.
    fn pointer_at(
        &self,
        reference: TreeReference,
        tree: TreeIdentity,
        level: u8,
        position: u64,
    ) -> Option<Pointer> {
        let (mut at, mut pointer) = (reference.level, reference.root);
        if at < level || position / span(at - level) != 0 {
            return None;
        }
        while at > level {
            if pointer.is_hole() {
                return None;
            }
            let node = self.nodes.read(tree, at, position / span(at - level), &pointer).ok()?;
            at -= 1;
            pointer = node.children[(position / span(at - level) % FAN_OUT as u64) as usize];
        }
        (!pointer.is_hole()).then_some(pointer)
    }

    fn copies_of(&self, expected: &NodeExpectation) -> Copies {
        let mut error = String::new();
        let mut copy = |place: u64| {
            let mut block = BlockBuffer::zeroed(1);
            for _ in 0..READ_TRIES {
                let read = self.device.read_at(place * BLOCK_BYTES as u64, &mut block);
                let read = read.map_err(|e| e.to_string());
                match read.and_then(|()| self.nodes.decode(&block, expected).map_err(|e| e.to_string())) {
                    Ok(node) => return Some(node),
                    Err(problem) => error = problem,
                }
            }
            None
        };
        let places = (0..copies(expected.level)).map(|n| expected.pointer.place.0 + n * TWIN_DISTANCE);
        let nodes = places.map(&mut copy).collect();
        Copies { nodes, error }
    }

    /// Writes a node over a damaged copy of itself, durably, and reads it back; whether it is there. With the maintenance lock held, so that
    /// the place is still this node's: repair may overwrite what is referred to (F1), since the other copy stays as it is.
    ///
    /// # Errors
    /// Those of a sync that failed: the pool accepts no changes then.
    fn rewrite_copy(&self, node: &Node, place: u64, expected: &NodeExpectation) -> Result<bool> {
        let mut block = BlockBuffer::zeroed(1);
        node.encode(self.id, &mut block);
        if self.device.write_at(place * BLOCK_BYTES as u64, &block).is_err() {
            return Ok(false);
        }
        self.sync_device()?;
        let read = self.device.read_at(place * BLOCK_BYTES as u64, &mut block);
        Ok(read.is_ok() && self.nodes.decode(&block, expected).is_ok())
    }

    /// Blocks of these versions by the names that people know, a record for each volume.
    fn named(&self, sharers: &[u64], kind: DamageKind, block: u64, count: u64) -> Vec<ScrubDamage> {
        let state = self.locked();
        let mut named: Vec<ScrubDamage> = Vec::new();
        for version in sharers.iter().filter_map(|id| state.versions.versions.get(id)) {
            let Some(volume) = state.versions.volumes.get(&version.volume) else { continue };
            let end = (block + count).min(crate::versions::blocks(version.size_bytes));
            let count = end.saturating_sub(block);
            if count == 0 {
                continue;
            }
            let at = named.iter().position(|damage| damage.volume == volume.name).unwrap_or_else(|| {
                named.push(ScrubDamage {
                    kind,
                    volume: volume.name.clone(),
                    block,
                    count: 0,
                    in_volume: false,
                    in_staged: false,
                    snapshots: Vec::new(),
                    more_snapshots: 0,
                });
                named.len() - 1
            });
            let damage = &mut named[at];
            damage.count = damage.count.max(count);
            match (version.kind, &version.snapshot) {
                (_, Some(snapshot)) => damage.snapshots.push(snapshot.name.clone()),
                (VersionKind::Staged, None) => damage.in_staged = true,
                _ => damage.in_volume = true,
            }
        }
        named
    }
}
