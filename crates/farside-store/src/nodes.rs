//! Reading nodes: through a bounded cache, checked against the pointer that led there, from the second copy if the
//! first is damaged.

use std::sync::Arc;

use farside_format::fingerprint::FAN_OUT_BITS;
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{BLOCK_BYTES, FormatError, Node, NodeExpectation, Pointer, Superblock, TreeKind};
use farside_platform::{BlockBuffer, BlockDevice};
use quick_cache::sync::Cache;
use uuid::Uuid;

use crate::error::{Result, StoreError};

/// Memory of one cached node: 128 pointers of 32 bytes, header, allocator and cache overhead.
const CACHED_NODE_BYTES: u64 = 4400;

/// Which tree a walk is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TreeIdentity {
    pub(crate) kind: TreeKind,
    pub(crate) family: u64,
}

/// Reads nodes of one pool.
pub(crate) struct NodeReader {
    device: Arc<dyn BlockDevice>,
    pool: Uuid,
    pool_blocks: u64,
    cache: Cache<u64, Arc<Node>>,
}

impl NodeReader {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, superblock: &Superblock, cache_bytes: u64) -> NodeReader {
        NodeReader {
            device,
            pool: superblock.pool,
            pool_blocks: superblock.pool_blocks,
            cache: Cache::new((cache_bytes / CACHED_NODE_BYTES).max(64) as usize),
        }
    }

    /// The node that `pointer` leads to, standing at `position` of `level`.
    pub(crate) fn read(
        &self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
    ) -> Result<Arc<Node>> {
        if let Some(node) = self.cache.get(&pointer.place.0)
            && node.birth == pointer.birth
            && node.level == level
            && node.position == position
            && node.family == tree.family
        {
            return Ok(node);
        }
        let expected = NodeExpectation {
            pool: self.pool,
            level,
            kind: tree.kind,
            family: tree.family,
            position,
            pointer: *pointer,
        };
        let node = match self.read_copy(pointer.place.0, &expected) {
            Ok(node) => node,
            Err(first) if level > 1 => {
                let twin = pointer.place.0 + TWIN_DISTANCE;
                tracing::error!(
                    place = pointer.place.0,
                    twin,
                    "a node is damaged, its second copy is read instead: {first}. Nothing is lost, but the medium loses data: check the \
                     pool offline (farside pool check)"
                );
                self.read_copy(twin, &expected).map_err(|_| first)?
            }
            Err(first) => return Err(first),
        };
        let node = Arc::new(node);
        self.cache.insert(pointer.place.0, node.clone());
        Ok(node)
    }

    fn read_copy(&self, place: u64, expected: &NodeExpectation) -> Result<Node> {
        let mut block = BlockBuffer::zeroed(1);
        self.device.read_at(place * BLOCK_BYTES as u64, &mut block)?;
        let decoded = Node::decode_expected(&block, expected).and_then(|node| {
            // A place past the end could be freed before it is ever read.
            let inside = node.children.iter().all(|c| c.place.0 < self.pool_blocks);
            inside.then_some(node).ok_or(FormatError::Field { what: "node", field: "place of a child" })
        });
        decoded.map_err(|problem| StoreError::Corrupt {
            what: format!(
                "the map of family {} (level {}, blocks from {})",
                expected.family,
                expected.level,
                expected.position << (FAN_OUT_BITS * u32::from(expected.level)),
            ),
            place,
            problem,
        })
    }

    /// A node that was just written.
    pub(crate) fn remember(&self, node: Arc<Node>) {
        self.cache.insert(node.place.0, node);
    }
}
