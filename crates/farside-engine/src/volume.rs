//! What an engine says of a volume and of the pool it lies in.

use uuid::Uuid;

use crate::names::VolumeName;

/// A volume as an engine lists it.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Its name.
    pub name: VolumeName,
    /// Its identity in this pool; a rename keeps it.
    pub uuid: Uuid,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes of data that it has with all its snapshots, at most; none if the engine does not count.
    pub occupied_bytes: Option<u64>,
    /// Whether it is the replica of a mirror, hence read-only to hosts.
    pub is_replica: bool,
}

/// What the pool remembers of a replica, so that it can be listed and broken with every database lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRecord {
    /// The relationship's id, the same on both sides.
    pub relationship: Uuid,
    /// The peer's identity (hash of its key).
    pub peer: [u8; 32],
    /// The peer's volume, `POOL/VOL`.
    pub source: String,
    /// Broken off: hosts may write; the record stays for resync.
    pub broken_off: bool,
}

/// What a pool has and what of it is free, bytes; what the next points of consistency free counts as free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// All of it.
    pub capacity_bytes: u64,
    /// For hosts to fill.
    pub free_bytes: u64,
}

/// What transfers may still bring into a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagingRoom {
    /// Bytes that may still be staged.
    pub room_bytes: u64,
    /// Bytes beside them that are kept free for hosts.
    pub reserve_bytes: u64,
    /// The quota of the volume, bytes, where that is what leaves no more.
    pub quota_bytes: Option<u64>,
    /// The file system below the pool's file, where that is what leaves no more.
    pub below: Option<RoomBelow>,
}

/// A file system that has less left than the pool that lies on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoomBelow {
    /// The pool's file.
    pub path: String,
    /// Bytes that the file system has left, those included that transfers leave to others.
    pub left_bytes: u64,
}
