//! The embedded no-overwrite store: a pool of thin volumes with snapshots.
//!
//! Nothing is ever overwritten but superblocks and the journal ring; a snapshot is a root that is kept; every read is
//! checked against the pointer that led to it; a flush that was answered survives (invariants F1 to F9 of
//! `docs/format.md`). One Merkle tree per version serves integrity, differences and proofs alike.
//!
//! The store knows nothing of mirrors, peers or NBD. Calls block; they may come from any thread.
//!
//! Where things are, in the order a write meets them:
//! * [`VersionHandle`] (`handle.rs`): what is open;
//! * `io.rs`: the life of a write; `merging.rs`: of parts of blocks; `write_behind.rs`, `write_out.rs`: small ones on their way to the device; `reading.rs`: the life of a read;
//! * `pool.rs`: locks and durability; `space.rs`: admission; `allocator.rs`: free places;
//! * `owner_counts.rs`: blocks with several owners; `sharing.rs`: how they come to be;
//! * `delta.rs`: changes since the last consistency point; `view.rs`: a version as it is now;
//! * `ring.rs`: the journal; `journal_load.rs`: what it may hold; `point.rs`: consistency points; `recovery.rs`: opening; `claim.rs`: who else has it open; `copies.rs`: a copy becomes a pool of its own;
//! * `versions.rs`: volumes, versions and their lineage (pure); `volumes.rs`, `staged.rs`, `main_line.rs`, `clones.rs`: their changes;
//! * `limits.rs`: how much of the pool a volume may take; `usage.rs`: what it takes; `quota.rs`: that it takes no more; `reserved.rs`: that
//!   it finds what is kept for it;
//! * `adopt.rs`: what a transfer wants and the pool holds already; `known_data.rs`, `learning.rs`, `fingerprint_index.rs`, `near.rs`: where to
//!   look for it;
//! * `difference.rs`: what changed; `reaper.rs`: freeing what was deleted;
//! * `dedup/`: equal blocks of volumes come to lie at one place;
//! * `scrub/`: reading everything once, to find what the medium has lost.

mod adopt;
mod allocator;
mod allowance;
mod alone;
mod background;
mod capacity;
mod claim;
mod clones;
mod copies;
mod dedup;
mod delta;
mod difference;
mod error;
mod fingerprint_index;
mod grow;
mod handle;
mod in_line;
mod io;
mod journal_load;
mod known_data;
mod learning;
mod limits;
mod main_line;
mod merging;
mod near;
mod nodes;
mod origin;
mod owner_counts;
mod point;
mod pool;
mod quota;
mod readers;
mod reading;
mod reaper;
mod recovery;
mod reserved;
mod ring;
mod room_below;
mod scarce;
mod scattered;
mod scrub;
mod sharing;
mod snapshot_index;
mod space;
mod staged;
mod staged_content;
mod staging_below;
mod status;
mod usage;
mod versions;
mod view;
mod volumes;
mod wake;
mod write_behind;
mod write_out;

pub use adopt::{WANTED_MAX, Wanted};
pub use capacity::{Room, WRITE_NEEDS_BYTES};
pub use claim::ClaimOptions;
pub use clones::{CloneOf, NewClone};
pub use dedup::{
    DEDUP_INDEX_BYTES, Dedup, DedupCount, DedupFigures, DedupIndex, DedupPosition, DedupSavings, DedupUndo,
    DedupUndone,
};
pub use difference::{DifferenceKind, DifferingBlocks};
pub use error::TO_MAKE_ROOM_BELOW;
pub use error::{Result, StoreError};
pub use handle::{
    ChangedBlocks, Comparison, Difference, FINGERPRINTS_MAX, JOINED_BYTES_MAX, SnapshotReader, Version,
    VersionHandle,
};
pub use in_line::InLine;
pub use journal_load::{STEPS_MAX as JOURNAL_STEPS_MAX, UNPROVEN_RECORDS as UNPROVEN_RECORDS_MAX};
pub use known_data::KnownDataStatus;
pub use limits::{Autogrow, VolumeFill, VolumeLimits};
pub use origin::Origin;
pub use pool::{Counters, Pool, PoolOptions};
pub use recovery::{identity, occupants};
pub use room_below::LacksRoomBelow;
pub use scrub::{
    DamageKind, SCRUB_DAMAGE_MAX, Scrub, ScrubDamage, ScrubFindings, ScrubPosition, SecondCopies,
};
pub use staged::{StagedFor, StagedStatus, StagedVersion};
pub use staged_content::StagedContent;
pub use staging_below::StagingBelow;
pub use status::{PoolStatus, QuarantinedRange};
pub use versions::VOLUME_BYTES_MAX;
pub use volumes::{NewSnapshot, ReplicaStatus, SnapshotStatus, VolumeStatus};
