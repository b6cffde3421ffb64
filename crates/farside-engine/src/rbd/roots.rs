//! Content roots and fingerprints of versions: from the bytes, or from leaves that are kept and what differs since.

use std::collections::{BTreeMap, BTreeSet};

use farside_format::Fingerprint;
use farside_format::fingerprint::{FAN_OUT, is_zero};

use super::comparison::{WINDOW_BYTES, ranges};
use super::document::{Document, Kept};
use super::leaves::{LEAF_BLOCKS, LEAF_BYTES, Leaves, OBJECT_BYTES_MAX, object};
use super::version::Version;
use super::volume::Volume;
use crate::{BLOCK_BYTES, EngineError, FINGERPRINTS_MAX};

/// Leaves that are read at once: 16 MiB.
const READ_LEAVES: u64 = 32;
/// Snapshots whose leaves are looked for, nearest first.
const LOOKED_FOR: usize = 4;

impl Leaves {
    /// Of a version, from its bytes; with a base whose leaves are known, from those that may differ.
    pub(super) fn of(
        volume: &Volume,
        base: Option<(&Version, Leaves)>,
        now: &Version,
    ) -> Result<Leaves, EngineError> {
        let (base, mut leaves) =
            base.map_or((None, BTreeMap::new()), |(version, known)| (Some(version), known.leaves));
        let mut touched: BTreeSet<u64> = BTreeSet::new();
        if let Some(base) = base.filter(|base| base.size_bytes != now.size_bytes) {
            leaves.split_off(&now.size_bytes.div_ceil(LEAF_BYTES));
            // Of the leaf in which the smaller of them ends a part may have gone.
            touched.insert(base.size_bytes.min(now.size_bytes) / LEAF_BYTES);
        }
        for offset in (0..now.size_bytes).step_by(WINDOW_BYTES as usize) {
            for range in ranges(volume, base, now, offset, WINDOW_BYTES)? {
                touched.extend(range.first / LEAF_BLOCKS..range.end.div_ceil(LEAF_BLOCKS));
            }
        }
        touched.split_off(&now.size_bytes.div_ceil(LEAF_BYTES));
        let mut buffer = Vec::new();
        while let Some(first) = touched.pop_first() {
            let mut end = first + 1;
            while end - first < READ_LEAVES && touched.remove(&end) {
                end += 1;
            }
            buffer.resize(((end - first) * LEAF_BYTES) as usize, 0);
            now.read(volume, first * LEAF_BYTES, &mut buffer)?;
            for (leaf, content) in (first..end).zip(buffer.chunks(LEAF_BYTES as usize)) {
                match of_leaf(content) {
                    fingerprint if fingerprint.is_hole() => leaves.remove(&leaf),
                    fingerprint => leaves.insert(leaf, fingerprint),
                };
            }
        }
        Ok(Leaves { size_bytes: now.size_bytes, leaves })
    }

    /// Keeps them beside a snapshot that holds just this. What fails costs reading.
    pub(super) fn keep(&self, volume: &Volume, kept: &Kept) {
        let bytes = self.encode();
        if bytes.len() <= OBJECT_BYTES_MAX && volume.inner.steps.take("keep leaves").is_ok() {
            _ = volume.pool.ceph.write_object(&object(&volume.id, kept.uuid), &bytes);
        }
    }

    /// Those that are kept beside a snapshot, if they are whole.
    fn kept(volume: &Volume, kept: &Kept) -> Option<Leaves> {
        let bytes = volume.pool.ceph.read_object(&object(&volume.id, kept.uuid)).ok()?;
        Leaves::decode(&bytes, kept.size_bytes)
    }
}

/// Of a snapshot: kept ones, or else made from the nearest snapshot whose leaves are kept, and kept then.
pub(super) fn of_snapshot(volume: &Volume, document: &Document, kept: &Kept) -> Result<Leaves, EngineError> {
    if let Some(found) = Leaves::kept(volume, kept) {
        return Ok(found);
    }
    let now = Version::of(volume, kept)?;
    let made = made_from_nearest(volume, document, &now, kept.id)?;
    made.keep(volume, kept);
    Ok(made)
}

/// Of a version, made from the nearest snapshot whose leaves are kept. `id` is the cluster's number of it; of the head the highest there is.
pub(super) fn made_from_nearest(
    volume: &Volume,
    document: &Document,
    now: &Version,
    id: u64,
) -> Result<Leaves, EngineError> {
    let mut nearest: Vec<Kept> = document.snapshots.iter().map(|entry| entry.at).collect();
    nearest.retain(|kept| kept.id != id);
    nearest.sort_by_key(|kept| kept.id.abs_diff(id));
    let known = nearest.iter().take(LOOKED_FOR).find_map(|kept| Some((kept, Leaves::kept(volume, kept)?)));
    match known {
        Some((kept, leaves)) => Leaves::of(volume, Some((&Version::of(volume, kept)?, leaves)), now),
        None => Leaves::of(volume, None, now),
    }
}

/// Of a leaf's bytes; what is missing of it are holes.
fn of_leaf(content: &[u8]) -> Fingerprint {
    if is_zero(content) {
        return Fingerprint::HOLE;
    }
    let mut children = [Fingerprint::HOLE; FAN_OUT];
    for (child, block) in children.iter_mut().zip(content.chunks(BLOCK_BYTES as usize)) {
        *child = Fingerprint::of_block(block);
    }
    Fingerprint::of_node(1, &children)
}

/// Fingerprints of `count` blocks from `first` on, by reading them; past the end: holes.
pub(super) fn of_blocks(
    volume: &Volume,
    version: &Version,
    first: u64,
    count: u64,
) -> Result<Vec<Fingerprint>, EngineError> {
    if count > FINGERPRINTS_MAX {
        return Err(EngineError::Invalid(format!(
            "fingerprints of {count} blocks: at most {FINGERPRINTS_MAX} at once"
        )));
    }
    let mut found = Vec::with_capacity(count as usize);
    let mut buffer = Vec::new();
    let (mut at, end) = (first, first.saturating_add(count));
    while at < end {
        let blocks = (end - at).min(READ_LEAVES * LEAF_BLOCKS);
        buffer.resize((blocks * BLOCK_BYTES) as usize, 0);
        version.read(volume, at.saturating_mul(BLOCK_BYTES), &mut buffer)?;
        found.extend(buffer.chunks(BLOCK_BYTES as usize).map(Fingerprint::of_block));
        at += blocks;
    }
    Ok(found)
}
