//! A node: 128 pointers and enough of its own identity to notice that it is the wrong one.
//!
//! Storing checksum, family, level, position and birth in the node and comparing them with the pointer that led
//! there shows lost, stale and misdirected writes, not only rot (the idea is TigerBeetle's and ZFS's).

use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::FormatError;
use crate::fingerprint::{BLOCK_BYTES, FAN_OUT, Fingerprint, TOP_LEVEL};
use crate::pointer::{Birth, Place, Pointer, RawPointer};

const MAGIC: [u8; 4] = *b"FSN1";

/// Which tree a node belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TreeKind {
    /// A version of a volume.
    Volume = 1,
    /// The catalog.
    Catalog = 2,
    /// The free map.
    FreeMap = 3,
    /// The owner counts.
    OwnerCounts = 4,
}

/// A node in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// 1 (leaf) to 6.
    pub level: u8,
    /// Which tree.
    pub kind: TreeKind,
    /// Which family of volumes; 0 for the pool's own trees.
    pub family: u64,
    /// Index among the nodes of its level.
    pub position: u64,
    /// As in the pointer that leads here.
    pub birth: Birth,
    /// Data blocks mapped below.
    pub mapped_blocks: u64,
    /// Blocks below lost pointers below this node.
    pub lost_blocks: u64,
    /// Where its first copy lies.
    pub place: Place,
    /// The children; 128 of them.
    pub children: Box<[Pointer; FAN_OUT]>,
}

/// What the pointer and the way to a node say it must be.
#[derive(Clone, Copy, Debug)]
pub struct NodeExpectation {
    /// The pool.
    pub pool: Uuid,
    /// Its level.
    pub level: u8,
    /// Which tree.
    pub kind: TreeKind,
    /// Which family.
    pub family: u64,
    /// Index among the nodes of its level.
    pub position: u64,
    /// The pointer that leads there.
    pub pointer: Pointer,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawNode {
    magic: [u8; 4],
    level: u8,
    kind: u8,
    reserved_a: U16,
    family: U64,
    position: U64,
    birth: U64,
    mapped_blocks: U64,
    place: U64,
    pool: [u8; 16],
    lost_blocks: U64,
    reserved_b: [u8; 424],
    checksum: [u8; 16],
    children: [RawPointer; FAN_OUT],
}
const _: () = assert!(size_of::<RawNode>() == BLOCK_BYTES);

impl Node {
    /// The fingerprint of its content, over its children's.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_node(self.level, &self.children.each_ref().map(|c| c.fingerprint))
    }

    /// Encodes into one block.
    pub fn encode(&self, pool: Uuid, block: &mut [u8]) {
        let raw = RawNode::mut_from_bytes(block).expect("a node is encoded into one block");
        *raw = RawNode {
            magic: MAGIC,
            level: self.level,
            kind: self.kind as u8,
            reserved_a: 0.into(),
            family: self.family.into(),
            position: self.position.into(),
            birth: self.birth.0.into(),
            mapped_blocks: self.mapped_blocks.into(),
            place: self.place.0.into(),
            pool: *pool.as_bytes(),
            lost_blocks: self.lost_blocks.into(),
            reserved_b: [0; 424],
            checksum: [0; 16],
            children: self.children.each_ref().map(RawPointer::new),
        };
        raw.checksum = checksum(block_of(raw));
    }

    /// Decodes and checks everything that does not depend on the way here: checksum, ranges, reserved bytes.
    pub fn decode(block: &[u8]) -> Result<(Node, Uuid), FormatError> {
        let raw = RawNode::ref_from_bytes(block).map_err(|_| FormatError::Length { what: "node" })?;
        if raw.magic != MAGIC {
            return Err(FormatError::Magic { what: "node" });
        }
        if raw.checksum != checksum(block_of(raw)) {
            return Err(FormatError::Checksum { what: "node" });
        }
        let kind = match raw.kind {
            1 => TreeKind::Volume,
            2 => TreeKind::Catalog,
            3 => TreeKind::FreeMap,
            4 => TreeKind::OwnerCounts,
            _ => return Err(FormatError::Field { what: "node", field: "kind" }),
        };
        if !(1..=TOP_LEVEL).contains(&raw.level) {
            return Err(FormatError::Field { what: "node", field: "level" });
        }
        if raw.reserved_a.get() != 0 || raw.reserved_b != [0; 424] {
            return Err(FormatError::Field { what: "node", field: "reserved" });
        }
        let mut children = Box::new([Pointer::HOLE; FAN_OUT]);
        for (to, from) in children.iter_mut().zip(&raw.children) {
            *to = from.decode()?;
        }
        let node = Node {
            level: raw.level,
            kind,
            family: raw.family.get(),
            position: raw.position.get(),
            birth: Birth(raw.birth.get()),
            mapped_blocks: raw.mapped_blocks.get(),
            lost_blocks: raw.lost_blocks.get(),
            place: Place(raw.place.get()),
            children,
        };
        // What is lost is counted, and only volumes' trees go on without it.
        let loses = node.children.iter().any(Pointer::is_lost);
        if (loses && node.lost_blocks == 0) || (node.lost_blocks > 0 && kind != TreeKind::Volume) {
            return Err(FormatError::Field { what: "node", field: "lost blocks" });
        }
        // F4: no child is younger than the node that points at it.
        if node.children.iter().any(|c| c.birth > node.birth) {
            return Err(FormatError::Field { what: "node", field: "birth of a child" });
        }
        Ok((node, Uuid::from_bytes(raw.pool)))
    }

    /// Decodes and checks that it is the node that the pointer meant.
    pub fn decode_expected(block: &[u8], expected: &NodeExpectation) -> Result<Node, FormatError> {
        let (node, pool) = Node::decode(block)?;
        let field = if pool != expected.pool {
            "pool"
        } else if node.level != expected.level {
            "level"
        } else if node.kind != expected.kind {
            "kind"
        } else if node.family != expected.family {
            "family"
        } else if node.position != expected.position {
            "position"
        } else if node.birth != expected.pointer.birth {
            "birth"
        } else if node.place != expected.pointer.place {
            "place"
        } else if node.fingerprint() != expected.pointer.fingerprint {
            "fingerprint"
        } else {
            return Ok(node);
        };
        Err(FormatError::NotTheExpectedNode { field })
    }
}

/// Blocks that a data block (level 0) or node takes: inner nodes are stored twice, all else once.
pub fn copies(level: u8) -> u64 {
    if level <= 1 { 1 } else { 2 }
}

fn block_of(raw: &RawNode) -> &[u8] {
    raw.as_bytes()
}

fn checksum(block: &[u8]) -> [u8; 16] {
    let mut hasher = Xxh3::new();
    hasher.update(&block[..496]);
    hasher.update(&block[512..]);
    hasher.digest128().to_le_bytes()
}
