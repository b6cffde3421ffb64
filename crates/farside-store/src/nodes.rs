//! Reading nodes: through a bounded cache, checked against the pointer that led there, from the second copy if the
//! first is damaged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_format::fingerprint::{FAN_OUT, FAN_OUT_BITS, span};
use farside_format::pointer::TWIN_DISTANCE;
use farside_format::{BLOCK_BYTES, FormatError, Node, NodeExpectation, Place, Pointer, Superblock, TreeKind};
use farside_platform::{BlockBuffer, BlockDevice, DeviceError};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use uuid::Uuid;

use crate::error::{Result, StoreError};

/// Memory of one cached node: 128 pointers of 32 bytes, header, allocator and cache overhead.
const CACHED_NODE_BYTES: u64 = 4400;

/// Blocks between two nodes that are read along rather than passed over: 32 KiB at 1 GB/s take half of the 60 µs of one
/// more read.
const GAP_BLOCKS: u64 = 8;
/// Blocks of one read at most.
const READ_BLOCKS_MAX: u64 = 256;
/// How often one copy of a node is read before it counts as unreadable. No wait in between: hosts may wait for this.
const READ_TRIES: usize = 3;

/// Which tree a walk is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TreeIdentity {
    pub(crate) kind: TreeKind,
    pub(crate) family: u64,
}

/// Reads nodes of one pool.
#[derive(Clone)]
pub(crate) struct NodeReader {
    shared: Arc<Shared>,
    /// It waits for nothing: what is not in memory is an error.
    in_memory_only: bool,
}

struct Shared {
    device: Arc<dyn BlockDevice>,
    pool: Uuid,
    /// It only grows.
    pool_blocks: AtomicU64,
    cache: Cache<u64, Arc<Node>>,
    /// Nodes read from the device, second copies included.
    reads: AtomicU64,
    /// Damaged nodes of volumes met since the pool was opened.
    met: Mutex<BTreeMap<DamagedNode, u64>>,
}

/// Where a damaged node stands in the trees of a family; several versions may have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct DamagedNode {
    pub(crate) family: u64,
    pub(crate) level: u8,
    pub(crate) position: u64,
}

/// Damaged nodes remembered for the status, each told once in the log.
const MET_MAX: usize = 1024;

impl NodeReader {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, superblock: &Superblock, cache_bytes: u64) -> NodeReader {
        let shared = Shared {
            device,
            pool: superblock.pool,
            pool_blocks: superblock.pool_blocks.into(),
            cache: Cache::new((cache_bytes / CACHED_NODE_BYTES).max(64) as usize),
            reads: AtomicU64::new(0),
            met: Mutex::default(),
        };
        NodeReader { shared: Arc::new(shared), in_memory_only: false }
    }

    /// The same with nodes that are in memory alone: asked for another it fails at once, and nothing is noted.
    pub(crate) fn in_memory_only(&self) -> NodeReader {
        NodeReader { in_memory_only: true, ..self.clone() }
    }

    /// The pool has become larger.
    pub(crate) fn set_pool_blocks(&self, blocks: u64) {
        self.shared.pool_blocks.store(blocks, Ordering::Release);
    }

    /// As [`NodeReader::read`], but a lost or damaged node of a volume is answered as one whose children are all lost, and
    /// which lies at place 0. So what is known of its neighbours, and of what was written over it, stays usable.
    ///
    /// Only what is proved to be damaged counts as that, on every copy: consistency points and the reaper make it last. A
    /// device that refuses for the moment is an error.
    pub(crate) fn read_or_lost(
        &self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
    ) -> Result<Arc<Node>> {
        if !pointer.is_lost() {
            match self.read(tree, level, position, pointer) {
                Err(error) if tree.kind == TreeKind::Volume && error.is_proof_of_damage() => {
                    self.note(DamagedNode { family: tree.family, level, position }, pointer, &error);
                }
                result => return result,
            }
        }
        Ok(Arc::new(Node {
            level,
            kind: tree.kind,
            family: tree.family,
            position,
            birth: pointer.birth,
            mapped_blocks: 0,
            lost_blocks: span(level),
            place: Place(0),
            children: Box::new(std::array::from_fn::<_, FAN_OUT, _>(|i| Pointer::lost_child(pointer, i))),
        }))
    }

    fn note(&self, node: DamagedNode, pointer: &Pointer, error: &StoreError) {
        let mut met = self.shared.met.lock();
        if met.get(&node) == Some(&pointer.place.0) || (met.len() >= MET_MAX && !met.contains_key(&node)) {
            return;
        }
        met.insert(node, pointer.place.0);
        let first = node.position << (FAN_OUT_BITS * u32::from(node.level));
        tracing::error!(
            family = node.family,
            place = pointer.place.0,
            "blocks {first} to {} of a volume are quarantined: {error}. Everything else goes on, and whole \
             blocks written there are readable again",
            first + span(node.level) - 1
        );
    }

    /// The damaged nodes met since the pool was opened, some perhaps replaced since.
    pub(crate) fn damaged(&self) -> Vec<DamagedNode> {
        self.shared.met.lock().keys().copied().collect()
    }

    /// The node that `pointer` leads to, standing at `position` of `level`.
    pub(crate) fn read(
        &self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
    ) -> Result<Arc<Node>> {
        if let Some(node) = self.shared.cache.get(&pointer.place.0)
            && node.birth == pointer.birth
            && node.level == level
            && node.position == position
            && node.family == tree.family
        {
            return Ok(node);
        }
        if pointer.is_lost() {
            return Err(StoreError::Quarantined {
                version: format!("family {}", tree.family),
                block: position << (FAN_OUT_BITS * u32::from(level)),
                count: span(level),
            });
        }
        if self.in_memory_only {
            return Err(StoreError::Device(DeviceError::Io {
                operation: "read",
                offset: pointer.place.0 * BLOCK_BYTES as u64,
                length: BLOCK_BYTES,
                device: self.shared.device.name(),
                source: std::io::ErrorKind::WouldBlock.into(),
            }));
        }
        let expected = self.expectation(tree, level, position, pointer);
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
                // Damage is proved only by both.
                let worse = |second: StoreError| if second.is_proof_of_damage() { first } else { second };
                self.read_copy(twin, &expected).map_err(worse)?
            }
            Err(first) => return Err(first),
        };
        let node = Arc::new(node);
        self.shared.cache.insert(pointer.place.0, node.clone());
        Ok(node)
    }

    /// What a node that `pointer` leads to must be.
    pub(crate) fn expectation(
        &self,
        tree: TreeIdentity,
        level: u8,
        position: u64,
        pointer: &Pointer,
    ) -> NodeExpectation {
        NodeExpectation {
            pool: self.shared.pool,
            level,
            kind: tree.kind,
            family: tree.family,
            position,
            pointer: *pointer,
        }
    }

    /// Reads nodes of `level`, (position, pointer) each, that will be asked for next: those that lie near each other, as the
    /// leaves do that one point wrote, in one read of the device. One by one they cost its latency each. At most the
    /// children of one node. What cannot be read is left to [`NodeReader::read`], which says so.
    pub(crate) fn read_ahead(
        &self,
        tree: TreeIdentity,
        level: u8,
        wanted: impl Iterator<Item = (u64, Pointer)>,
    ) {
        let is_missing =
            |(_, p): &(u64, Pointer)| p.place.0 != 0 && self.shared.cache.peek(&p.place.0).is_none();
        let mut wanted: Vec<(u64, Pointer)> = wanted.filter(is_missing).collect();
        debug_assert!(level > 0 && wanted.len() <= FAN_OUT);
        if self.in_memory_only {
            return;
        }
        wanted.sort_unstable_by_key(|(_, pointer)| pointer.place);
        let mut left = wanted.as_slice();
        while let Some((_, Pointer { place: first, .. })) = left.first() {
            let near = left.iter().zip(left.iter().skip(1)).take_while(|((_, a), (_, b))| {
                b.place.0 - a.place.0 <= GAP_BLOCKS && b.place.0 - first.0 < READ_BLOCKS_MAX
            });
            let (run, rest) = left.split_at(1 + near.count());
            left = rest;
            // A single one is read when it is asked for.
            let Some((_, last)) = run.last().filter(|_| run.len() > 1) else { continue };
            let mut blocks = BlockBuffer::zeroed((last.place.0 - first.0 + 1) as usize);
            if self.shared.device.read_at(first.0 * BLOCK_BYTES as u64, &mut blocks).is_err() {
                continue;
            }
            for (position, pointer) in run {
                let at = (pointer.place.0 - first.0) as usize * BLOCK_BYTES;
                let expected = self.expectation(tree, level, *position, pointer);
                if let Ok(node) = self.decode(&blocks[at..at + BLOCK_BYTES], &expected) {
                    self.shared.reads.fetch_add(1, Ordering::Relaxed);
                    self.shared.cache.insert(pointer.place.0, Arc::new(node));
                }
            }
        }
    }

    /// How many nodes were read from the device so far.
    pub(crate) fn reads(&self) -> u64 {
        self.shared.reads.load(Ordering::Relaxed)
    }

    /// Reads one copy, more than once if need be: what a cable, a path or a server refuses or spoils often works at once
    /// when it is asked for again.
    fn read_copy(&self, place: u64, expected: &NodeExpectation) -> Result<Node> {
        for _ in 1..READ_TRIES {
            if let Ok(node) = self.try_copy(place, expected) {
                return Ok(node);
            }
        }
        self.try_copy(place, expected)
    }

    fn try_copy(&self, place: u64, expected: &NodeExpectation) -> Result<Node> {
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        let mut block = BlockBuffer::zeroed(1);
        self.shared.device.read_at(place * BLOCK_BYTES as u64, &mut block)?;
        self.decode(&block, expected).map_err(|problem| StoreError::Corrupt {
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

    /// The node in `block`, if it is the one expected.
    pub(crate) fn decode(
        &self,
        block: &[u8],
        expected: &NodeExpectation,
    ) -> std::result::Result<Node, FormatError> {
        let node = Node::decode_expected(block, expected)?;
        // A place past the end could be freed before it is ever read.
        let pool_blocks = self.shared.pool_blocks.load(Ordering::Acquire);
        let inside = node.children.iter().all(|c| c.place.0 < pool_blocks);
        inside.then_some(node).ok_or(FormatError::Field { what: "node", field: "place of a child" })
    }

    /// The node that is expected, if it is in memory: it was verified when it was read, or made here.
    pub(crate) fn remembered(&self, expected: &NodeExpectation) -> Option<Arc<Node>> {
        let NodeExpectation { pointer, level, kind, family, position, .. } = *expected;
        self.shared.cache.peek(&pointer.place.0).filter(|node| {
            (node.level, node.kind, node.family, node.position) == (level, kind, family, position)
                && (node.place, node.birth) == (pointer.place, pointer.birth)
                && node.fingerprint() == pointer.fingerprint
        })
    }

    /// A node that was just written.
    pub(crate) fn remember(&self, node: Arc<Node>) {
        self.shared.cache.insert(node.place.0, node);
    }
}
