//! What differs between two versions.

use crate::error::EngineError;

/// Bytes of one block, the unit of every extent.
pub const BLOCK_BYTES: u64 = 4096;

/// What a difference says of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// Holds other data than in the base.
    Data,
    /// Was data in the base, is a hole now: reads as zeros.
    Hole,
}

/// One range that differs between two versions. Bytes, whole blocks; ranges come in ascending order, never
/// overlap, and neighbours of one kind are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChangedExtent {
    /// Byte offset in the volume.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Data or hole. All of an extent of holes reads as zeros now; it may reach over blocks that were holes before, so that a
    /// trim of a thin volume is a few extents.
    pub kind: ChangeKind,
    /// Bytes of the extent that differ from the base: all of it if it is data, those that were data if it is a hole.
    pub changed: u64,
}

/// The iterator type of a difference; each step may read metadata.
pub type ChangedExtents = Box<dyn Iterator<Item = Result<ChangedExtent, EngineError>> + Send>;

/// How a volume differs from a snapshot, in bytes: whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChangedBytes {
    /// Hold other data than in the snapshot.
    pub data_bytes: u64,
    /// Were data in the snapshot; are holes now, or lie past the volume's end.
    pub hole_bytes: u64,
}
