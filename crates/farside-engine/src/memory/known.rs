//! What is known by its content.

use std::collections::HashMap;

use super::image::{Block, Image, NODE_BLOCKS};
use crate::{Fingerprint, short};

/// By level and front of the fingerprint, the whole of it and its blocks.
pub(super) type Known = HashMap<(u8, u64), (Fingerprint, Vec<Option<Block>>)>;

/// Of the blocks and leaf nodes of these.
pub(super) fn known_of<'a>(images: impl Iterator<Item = &'a Image>) -> Known {
    let mut known = Known::new();
    for image in images {
        for block in image.blocks.values() {
            let fingerprint = Fingerprint::of_block(block);
            known.insert((0, short(fingerprint)), (fingerprint, vec![Some(block.clone())]));
        }
        for (node, fingerprint) in image.nodes() {
            let positions = node * NODE_BLOCKS..(node + 1) * NODE_BLOCKS;
            let blocks = positions.map(|p| image.blocks.get(&p).cloned()).collect();
            known.insert((1, short(fingerprint)), (fingerprint, blocks));
        }
    }
    known
}
