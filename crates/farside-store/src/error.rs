//! Why the store refused or failed.

use farside_format::FormatError;
use farside_platform::DeviceError;

/// What makes room on the file system below a pool's file, in words.
pub const TO_MAKE_ROOM_BELOW: &str = "remove other files from the file system of the pool's file, or make that file system larger. Deleting \
                                      snapshots or volumes helps too, since the pool uses their space again; if that file system is \
                                      completely full, free 5 MiB there first";

/// Whether a device failed so for want of room. ENOSPC: of a file that takes its room as it is written.
pub(crate) fn is_for_room(cause: &str) -> bool {
    cause.contains("(os error 28)")
}

/// What to do about a device that failed so.
fn cure_of(cause: &str) -> &'static str {
    if is_for_room(cause) {
        "The file system below the pool's file is full (df): make room there, then farside pool reopen"
    } else {
        "Check the kernel log, repair the device, then farside pool reopen"
    }
}

/// Errors of the store. What each leaves behind: except for `Device` and `Failed`, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The device failed. If it was a write or a sync, the pool refuses further changes until it is opened anew:
    /// what was flushed before is safe, what was not may be lost.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// An earlier write failed; see [`StoreError::Device`].
    #[error(
        "the pool accepts no changes since a write or sync failed ({cause}). Flushed data is safe and readable. {}",
        cure_of(cause)
    )]
    Failed {
        /// The first failure.
        cause: String,
    },
    /// What lies on the medium is not what was written there.
    #[error(
        "corruption in {what} at pool block {place}: {problem}; nothing was changed by this. Run `farside pool check`"
    )]
    Corrupt {
        /// Which volume, version and block, or which structure.
        what: String,
        /// The block of the pool.
        place: u64,
        /// What is wrong.
        problem: FormatError,
    },
    /// A data block does not match its fingerprint.
    #[error(
        "corruption: block {block} of {version} lies at pool block {place} but does not match its fingerprint; \
         a whole rewrite of the block heals it, the replica or a snapshot may still have it"
    )]
    CorruptBlock {
        /// Volume or snapshot.
        version: String,
        /// Block of the volume.
        block: u64,
        /// Block of the pool.
        place: u64,
    },
    /// The metadata that said where blocks lie is damaged.
    #[error(
        "blocks {block} to {} of {version} are quarantined: the metadata that said where they lie is damaged. Everything else goes on. \
         Whole blocks written there are readable again; a rollback to a snapshot, a resync from the mirror or a backup brings the old content",
        block + count - 1
    )]
    Quarantined {
        /// Volume or snapshot.
        version: String,
        /// First block of the volume.
        block: u64,
        /// How many.
        count: u64,
    },
    /// A pool of another format version.
    #[error(
        "{device} holds a pool of format version {found}; this farside reads and writes version {supported}. Nothing was \
         changed: open it with the farside that wrote it, and mirror its volumes to a pool of version {supported}"
    )]
    OtherVersion {
        /// The device.
        device: String,
        /// The version found there.
        found: u32,
        /// The version this code knows.
        supported: u32,
    },
    /// Neither superblock can be read.
    #[error("{device} holds no readable pool: slot A: {slot_a}; slot B: {slot_b}")]
    NoSuperblock {
        /// The device.
        device: String,
        /// What is wrong with the first.
        slot_a: String,
        /// What is wrong with the second.
        slot_b: String,
    },
    /// The journal is damaged below what was known to be safe.
    #[error(
        "the journal is damaged at batch {sequence}, but later batches prove that it had been written: opening now \
         would lose flushed writes. Nothing was changed; copy the device, then run `farside pool check`"
    )]
    JournalDamaged {
        /// The batch.
        sequence: u64,
    },
    /// Bytes that recovery can read but that make no sense.
    #[error("the journal or catalog contradicts itself: {0}")]
    Inconsistent(String),
    /// The device is too small.
    #[error("a pool needs at least {needed} bytes; {device} has {found}")]
    TooSmall {
        /// The device.
        device: String,
        /// Bytes a pool needs.
        needed: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The device is not blank.
    #[error("{device} holds {}; nothing was changed", .found.join(", "))]
    Occupied {
        /// The device.
        device: String,
        /// What was recognised there.
        found: Vec<String>,
    },
    /// Another daemon has the pool open, on this machine or another.
    #[error(
        "{device} is in use: {by} has this pool open, and wrote to it while it was watched. Nothing was changed. Close it there \
         first"
    )]
    OpenElsewhere {
        /// The device.
        device: String,
        /// By whom.
        by: String,
    },
    /// A copy of a pool has an identity of its own, and still the mirrors of the other.
    #[error(
        "{device} is a copy of a pool that is to become one of its own, and its mirrors could not be ended: {cause}. It is not \
         open; the pool that it was copied from, and its mirrors, are not affected. Mend the cause, then open it again: that \
         goes on from here"
    )]
    CopyNotMade {
        /// The device.
        device: String,
        /// What failed.
        cause: String,
    },
    /// Somebody else has written to the pool while it was open here.
    #[error(
        "somebody else has written to {device} while this daemon had it open: {what}. This daemon has stopped before it wrote \
         over that; what was written here since then may be lost. Find out who has the device (a second host, another path \
         to it), and let one alone have it. Then farside pool check, and farside pool reopen here if this is to be the one"
    )]
    TakenOver {
        /// The device.
        device: String,
        /// What was found.
        what: String,
    },
    /// No such volume or snapshot.
    #[error("{0} does not exist")]
    NotFound(String),
    /// It exists already.
    #[error("{0} already exists")]
    Exists(String),
    /// The state forbids it.
    #[error("{0}")]
    Refused(String),
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// A pool that lacks room for its own metadata, as ones that an earlier version filled can. Nothing is lost: what was written is in
    /// the journal.
    #[error(
        "the pool has no room to write its metadata anew: {missing_pairs} pairs of blocks are missing. All data is safe and readable; \
         hosts cannot write. Delete snapshots or volumes: the pool goes on by itself once there is room"
    )]
    NoRoomForPoint {
        /// Pairs of blocks, one a fixed distance behind the other, that a consistency point needs and that are not there.
        missing_pairs: u64,
    },
    /// No room.
    #[error(
        "the pool is full: {needed_bytes} bytes needed, {available_bytes} available for this; nothing was changed"
    )]
    NoSpace {
        /// Bytes asked for, consequences included.
        needed_bytes: u64,
        /// Bytes that may be used for it.
        available_bytes: u64,
    },
    /// No room for a transfer on the file system below.
    #[error(
        "the file system of {device} has {:.1} MiB left, which transfers leave to others; nothing was changed. To make room: {}",
        *left_bytes as f64 / f64::from(1 << 20), TO_MAKE_ROOM_BELOW
    )]
    NoSpaceBelow {
        /// The pool's file.
        device: String,
        /// What is left there.
        left_bytes: u64,
    },
    /// A quota that is passed already.
    #[error(
        "a quota of {quota_bytes} bytes is less than the {occupied_bytes} that the volume occupies with all its snapshots; nothing \
         was changed. Delete snapshots, or trim in its hosts, first"
    )]
    QuotaTooSmall {
        /// The quota.
        quota_bytes: u64,
        /// What the volume occupies.
        occupied_bytes: u64,
    },
    /// A reservation would not be one.
    #[error(
        "{reserve_bytes} bytes cannot be reserved: the pool has room for {room_bytes} that nobody else was promised; nothing was changed"
    )]
    NoRoomToReserve {
        /// What was to be kept, bytes.
        reserve_bytes: u64,
        /// What could be, bytes.
        room_bytes: u64,
    },
    /// The volume may not take more.
    #[error(
        "the quota of {volume} is reached: it may occupy {quota_bytes} bytes with all its snapshots, it occupies {occupied_bytes}, and \
         {needed_bytes} more are needed; nothing was changed, and other volumes are not affected"
    )]
    OverQuota {
        /// The volume.
        volume: String,
        /// What it may occupy, bytes.
        quota_bytes: u64,
        /// What it occupies, bytes.
        occupied_bytes: u64,
        /// What would come to that, bytes.
        needed_bytes: u64,
    },
}

impl StoreError {
    /// Whether the file system below the pool's file is full.
    pub fn is_full_below(&self) -> bool {
        matches!(self, StoreError::Device(error) if error.is_full())
    }

    /// Whether what was to be read is known to be lost: bytes that are not those that were written, or the medium's own word.
    /// Any other error of a device may pass, so nothing that lasts may follow from it.
    pub(crate) fn is_proof_of_damage(&self) -> bool {
        match self {
            StoreError::Corrupt { .. } => true,
            StoreError::Device(error) => error.is_verdict_of_the_medium(),
            _ => false,
        }
    }
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, StoreError>;
