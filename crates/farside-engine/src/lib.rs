//! What a mirror needs of a volume.
//!
//! A mirror sees storage only through [`Engine`] and [`StagedVersion`]; it knows no engine by name. Calls block:
//! whoever lives on an async runtime calls them from a blocking thread. Offsets and lengths are bytes, whole
//! blocks of 4096 unless said. Implementations are internally synchronised.
//!
//! What every engine has is in these traits. What only some have is a [capability](capabilities) that a mirror asks for and can do
//! without.
//!
//! Each engine is one folder:
//!
//! * [`embedded`]: the embedded store (`farside-store`), which has everything natively.
//! * [`rbd`]: images of Ceph RBD (feature `rbd`, which is on: Ceph is looked for when a pool of it is added).
//! * `memory`: in memory, for tests (feature `conformance`), with every capability or without; fails on request.
//!
//! [`Engines`] has those of a site. `conformance` is the suite that each of them passes (`tests/conformance.rs`).

mod capabilities;
mod capability;
#[cfg(feature = "conformance")]
pub mod conformance;
mod difference;
pub mod embedded;
mod engine;
mod engines;
mod error;
mod fingerprints;
mod known;
#[cfg(feature = "conformance")]
pub mod memory;
mod names;
#[cfg(feature = "rbd")]
pub mod rbd;
mod snapshot;
mod staged;
mod volume;

pub use capabilities::{Branches, KnownData, Subtrees, Together, check_subtrees, subtrees_of_blocks};
pub use capability::Capability;
pub use difference::{BLOCK_BYTES, ChangeKind, ChangedBytes, ChangedExtent, ChangedExtents};
pub use engine::Engine;
pub use engines::Engines;
pub use error::EngineError;
pub use farside_format::{ContentRoot, Fingerprint};
pub use farside_store::TO_MAKE_ROOM_BELOW;
pub use fingerprints::{FINGERPRINTS_MAX, SAMPLE_BITS, is_sampled, short};
pub use known::{KnownDataScope, WANTED_MAX, Wanted};
pub use names::{VolumeName, is_label};
pub use snapshot::{OpenSnapshot, SnapshotInfo, SnapshotOwner, SnapshotSpec};
pub use staged::{ReadyVersion, StagedFor, StagedInfo, StagedVersion, StagedVersions};
pub use volume::{Capacity, ReplicaRecord, RoomBelow, StagingRoom, VolumeInfo};
