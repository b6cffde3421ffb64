//! What the bytes of a version are named by: computed from the bytes alone, as slowly as it is plain.

use farside_format::fingerprint::{FAN_OUT, TOP_LEVEL, is_zero};

use crate::{BLOCK_BYTES, ContentRoot, Fingerprint};

/// Fingerprints of the blocks of `bytes`.
pub(super) fn fingerprints(bytes: &[u8]) -> Vec<Fingerprint> {
    let of = |block: &[u8]| if is_zero(block) { Fingerprint::HOLE } else { Fingerprint::of_block(block) };
    bytes.chunks(BLOCK_BYTES as usize).map(of).collect()
}

/// Fingerprints of the subtrees of a level.
pub(super) fn subtrees(bytes: &[u8], level: u8) -> Vec<Fingerprint> {
    let mut below = fingerprints(bytes);
    for level in 1..=level {
        below.resize(below.len().next_multiple_of(FAN_OUT).max(FAN_OUT), Fingerprint::HOLE);
        let (nodes, _) = below.as_chunks::<FAN_OUT>();
        below = nodes.iter().map(|children| Fingerprint::of_node(level, children)).collect();
    }
    below
}

/// The content root of a version that holds `bytes`.
pub(super) fn root(bytes: &[u8]) -> ContentRoot {
    ContentRoot::new(subtrees(bytes, TOP_LEVEL)[0], bytes.len() as u64)
}
