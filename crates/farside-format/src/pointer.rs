//! Where a block or subtree lies, what it holds, and since when this tree has it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::FormatError;
use crate::fingerprint::{Fingerprint, TOP_LEVEL};

/// A block number of the pool. Place 0 is a superblock, so it also serves as "nowhere".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Place(pub u64);

/// A birth epoch: the pool-wide moment in which a tree gained a mapping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Birth(pub u64);

/// Places and births are stored in six bytes.
pub const U48_MAX: u64 = (1 << 48) - 1;

/// Distance from a twice-stored node to its second copy, blocks (1 MiB): a scratch or a lost erase block of the
/// medium seldom takes both.
pub const TWIN_DISTANCE: u64 = 256;

/// One child of a node, or the root of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pointer {
    /// What is there.
    pub fingerprint: Fingerprint,
    /// Where it lies.
    pub place: Place,
    /// Since when this tree has it.
    pub birth: Birth,
}

impl Pointer {
    /// Zeros: nothing stored.
    pub const HOLE: Pointer = Pointer { fingerprint: Fingerprint::HOLE, place: Place(0), birth: Birth(0) };

    /// Whether nothing is stored.
    pub fn is_hole(&self) -> bool {
        self.fingerprint.is_hole()
    }

    /// What a tree holds where the node that named it is damaged: nobody knows any more where it lies. `node` is the
    /// pointer that led to that node, `index` the child. Whoever loses the same node gets the same fingerprint; it is
    /// no content's.
    pub fn lost_child(node: &Pointer, index: usize) -> Pointer {
        Pointer {
            fingerprint: Fingerprint::of_lost_child(&node.fingerprint, index as u8),
            place: Place(0),
            birth: node.birth,
        }
    }

    /// The same for the node itself.
    pub fn lost(node: &Pointer) -> Pointer {
        Pointer { place: Place(0), ..*node }
    }

    /// Whether something was stored, and nobody knows where.
    pub fn is_lost(&self) -> bool {
        self.place.0 == 0 && !self.fingerprint.is_hole()
    }

    /// Whether both name the same ownership: one place since one birth.
    pub fn same_ownership(&self, other: &Pointer) -> bool {
        self.place == other.place && self.birth == other.birth
    }
}

/// A [`Pointer`] at rest, 28 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawPointer {
    fingerprint: [u8; 16],
    place: [u8; 6],
    birth: [u8; 6],
}
const _: () = assert!(size_of::<RawPointer>() == 28);

impl RawPointer {
    /// Encodes. Places and births never reach 2^48 (a pool of 2^60 bytes; a freeze every microsecond for 8 years).
    pub fn new(pointer: &Pointer) -> RawPointer {
        assert!(pointer.place.0 <= U48_MAX && pointer.birth.0 <= U48_MAX, "place or birth beyond 48 bits");
        let six = |n: u64| {
            let mut bytes = [0; 6];
            bytes.copy_from_slice(&n.to_le_bytes()[..6]);
            bytes
        };
        RawPointer {
            fingerprint: pointer.fingerprint.0,
            place: six(pointer.place.0),
            birth: six(pointer.birth.0),
        }
    }

    /// Decodes; a hole with a place or birth is corruption. A fingerprint without a place is a lost pointer.
    pub fn decode(&self) -> Result<Pointer, FormatError> {
        let wide = |six: &[u8; 6]| {
            let mut bytes = [0; 8];
            bytes[..6].copy_from_slice(six);
            u64::from_le_bytes(bytes)
        };
        let pointer = Pointer {
            fingerprint: Fingerprint(self.fingerprint),
            place: Place(wide(&self.place)),
            birth: Birth(wide(&self.birth)),
        };
        if pointer.is_hole() && (pointer.place.0 != 0 || pointer.birth.0 != 0) {
            return Err(FormatError::Field { what: "pointer", field: "place" });
        }
        Ok(pointer)
    }
}

/// The root of a tree: pointer, level of the node it leads to, and the length of what the tree holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TreeReference {
    /// The root node; a hole for an empty tree.
    pub root: Pointer,
    /// Level of the root node, 1 to 6; 0 for an empty tree.
    pub level: u8,
    /// Bytes the tree holds (catalog, free map, owner counts), or the version's size.
    pub length_bytes: u64,
}

/// A [`TreeReference`] at rest, 48 bytes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawTreeReference {
    root: RawPointer,
    level: u8,
    reserved: [u8; 11],
    length_bytes: zerocopy::little_endian::U64,
}
const _: () = assert!(size_of::<RawTreeReference>() == 48);

impl RawTreeReference {
    /// Encodes.
    pub fn new(tree: &TreeReference) -> RawTreeReference {
        RawTreeReference {
            root: RawPointer::new(&tree.root),
            level: tree.level,
            reserved: [0; 11],
            length_bytes: tree.length_bytes.into(),
        }
    }

    /// Decodes; a level out of range or not matching the pointer is corruption.
    pub fn decode(&self) -> Result<TreeReference, FormatError> {
        let root = self.root.decode()?;
        let is_wrong = self.level > TOP_LEVEL || root.is_hole() != (self.level == 0) || root.is_lost();
        if is_wrong || self.reserved != [0; 11] {
            return Err(FormatError::Field { what: "tree reference", field: "level" });
        }
        Ok(TreeReference { root, level: self.level, length_bytes: self.length_bytes.get() })
    }
}
