//! Fingerprints of a version's leaves, the spans of 128 blocks, of which its content root is made: computed from the bytes, and kept in the
//! cluster beside the snapshot, so that the next version computes those anew in which something differs.
//!
//! An object `farside_leaves.IMAGE.SNAPSHOT`, with the snapshot's own identity in the cluster; integers are little-endian:
//!
//! ```text
//! "farside leaves 1" | size of the version, u64 | number of leaves, u64 | each: position u64, fingerprint 16 bytes | content root
//! ```
//!
//! A leaf that the cluster's difference does not name is believed to be as it was: what says that it did not change is the snapshots of its
//! objects, and not the bytes.
//!
//! Leaves that are holes are not in it. It is derived: one that is lost, or does not come to the root that it ends with, is made anew by
//! reading the version. 48 bytes for each MiB of data; past [`OBJECT_BYTES_MAX`] none is kept, and roots are made by reading.

use std::collections::BTreeMap;

use farside_format::fingerprint::{FAN_OUT, TOP_LEVEL};
use farside_format::{ContentRoot, Fingerprint};
use uuid::Uuid;

use crate::BLOCK_BYTES;

const MAGIC: &[u8; 16] = b"farside leaves 1";
/// Of one object, whose writing the cluster bounds at 90 MB: leaves of some 1.3 TiB of data.
pub(super) const OBJECT_BYTES_MAX: usize = 64 << 20;
pub(super) const LEAF_BLOCKS: u64 = FAN_OUT as u64;
pub(super) const LEAF_BYTES: u64 = LEAF_BLOCKS * BLOCK_BYTES;

/// The object beside a snapshot of an image.
pub(super) fn object(image: &str, kept: Uuid) -> String {
    format!("farside_leaves.{image}.{kept}")
}

/// Leaves of one version.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Leaves {
    pub(super) size_bytes: u64,
    /// By position; those that are not here are holes.
    pub(super) leaves: BTreeMap<u64, Fingerprint>,
}

impl Leaves {
    pub(super) fn root(&self) -> ContentRoot {
        let mut below = self.leaves.clone();
        for level in 2..=TOP_LEVEL {
            let mut nodes: BTreeMap<u64, [Fingerprint; FAN_OUT]> = BTreeMap::new();
            for (position, fingerprint) in below {
                let children = nodes.entry(position / LEAF_BLOCKS).or_insert([Fingerprint::HOLE; FAN_OUT]);
                children[(position % LEAF_BLOCKS) as usize] = fingerprint;
            }
            below =
                nodes.into_iter().map(|(p, children)| (p, Fingerprint::of_node(level, &children))).collect();
        }
        ContentRoot::new(below.get(&0).copied().unwrap_or(Fingerprint::HOLE), self.size_bytes)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.size_bytes.to_le_bytes());
        bytes.extend((self.leaves.len() as u64).to_le_bytes());
        for (position, fingerprint) in &self.leaves {
            bytes.extend(position.to_le_bytes());
            bytes.extend(fingerprint.0);
        }
        bytes.extend(self.root().0);
        bytes
    }

    /// None if they are not whole, or of a version of another size.
    pub(super) fn decode(bytes: &[u8], size_bytes: u64) -> Option<Leaves> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if bytes.get(..16)? != MAGIC || number(16)? != size_bytes {
            return None;
        }
        let count = usize::try_from(number(24)?).ok()?;
        let (entries, root) = bytes.get(32..)?.split_at_checked(count.checked_mul(24)?)?;
        let mut leaves = BTreeMap::new();
        for entry in entries.chunks_exact(24) {
            let (position, fingerprint) = entry.split_at(8);
            let position = u64::from_le_bytes(position.try_into().ok()?);
            leaves.insert(position, Fingerprint(fingerprint.try_into().ok()?));
        }
        if leaves.keys().next_back().is_some_and(|last| *last >= size_bytes.div_ceil(LEAF_BYTES)) {
            return None;
        }
        let leaves = Leaves { size_bytes, leaves };
        (leaves.root().0 == root).then_some(leaves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_that_are_not_whole_are_not_believed() {
        let entries = [(0, [1; 16]), (7, [2; 16]), (300, [3; 16])];
        let leaves = entries.map(|(position, bytes)| (position, Fingerprint(bytes))).into_iter().collect();
        let leaves = Leaves { size_bytes: 301 * LEAF_BYTES, leaves };
        let bytes = leaves.encode();
        assert_eq!(Leaves::decode(&bytes, leaves.size_bytes), Some(leaves.clone()));
        assert_eq!(Leaves::decode(&bytes, leaves.size_bytes + BLOCK_BYTES), None, "of another version");
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Leaves::decode(&changed, leaves.size_bytes), None, "byte {at}");
            assert_eq!(Leaves::decode(&bytes[..at], leaves.size_bytes), None, "cut at {at}");
        }
    }
}
