//! Known data: what is asked for, and in whose.

/// Most entries that [`KnownData::adopt`](crate::KnownData::adopt) is given at once: 64 KiB of memory, and 2 GiB of data if all are leaves.
pub const WANTED_MAX: usize = 4096;

/// Content that a staged version shall have, named by a part of its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// 0: one block; 1: a leaf node, 128 blocks.
    pub level: u8,
    /// Where, in spans of that level: the number of the block, or of the leaf.
    pub position: u64,
    /// The fingerprint's first 8 bytes ([`short`](crate::short)).
    pub short: u64,
}

/// Whose data an answer may come from: everything that this peer sent. All replicas of the engine whose record names the
/// peer, and in each what was received from it; never what hosts wrote, here or after a break.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KnownDataScope {
    /// The peer's identity (hash of its key), as in [`ReplicaRecord::peer`](crate::ReplicaRecord::peer).
    pub peer: [u8; 32],
}
