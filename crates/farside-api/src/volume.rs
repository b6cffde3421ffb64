//! Volumes.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::host::VolumeHost;
use crate::pool::{PoolRoom, QuarantinedRange};

/// A volume as it is listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Volume {
    /// `POOL/VOL`; also the name of its NBD export.
    pub name: String,
    /// Its identity; a rename keeps it.
    pub uuid: Uuid,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Bytes of data its current version refers to.
    pub referenced_bytes: Option<u64>,
    /// How many snapshots it has.
    pub snapshots: u64,
    /// How many of these are on side branches: versions that were overtaken.
    #[serde(default)]
    pub side_branches: u64,
    /// Whether it is the replica of a mirror, hence read-only to hosts.
    pub replica: bool,
    /// Whether hosts may write to it now.
    #[serde(default)]
    pub writable: bool,
    /// Why they may not; null if they may.
    #[serde(default)]
    pub why: Option<String>,
    /// NBD connections to the volume that may write.
    #[serde(default)]
    pub writers: u64,
    /// NBD connections to the volume or its snapshots that only read.
    #[serde(default)]
    pub readers: u64,
    /// Peers that may mirror it, by name.
    #[serde(default)]
    pub rights_of: Vec<String>,
    /// Hosts that may open it over the network, by name.
    #[serde(default)]
    pub hosts: Vec<VolumeHost>,
    /// Ranges of it and its snapshots that cannot be read because their metadata is damaged; with one volume only, null in
    /// lists.
    #[serde(default)]
    pub quarantined: Option<Vec<QuarantinedRange>>,
    /// Bytes of the pool that it occupies with all its snapshots, data without metadata. What was overwritten or deleted since the
    /// last consistency point may still be in it.
    #[serde(default)]
    pub occupied_bytes: Option<u64>,
    /// What it may occupy, bytes; null: as much as there is.
    #[serde(default)]
    pub quota_bytes: Option<u64>,
    /// How much of that is left; null without a quota.
    #[serde(default)]
    pub room: Option<PoolRoom>,
    /// What that means, and what to do; null while there is enough.
    #[serde(default)]
    pub warning: Option<String>,
    /// What is kept for it and its snapshots, bytes; null: nothing.
    #[serde(default)]
    pub reserve_bytes: Option<u64>,
    /// How far it grows by itself; null: it does not.
    #[serde(default)]
    pub autogrow: Option<Autogrow>,
    /// The snapshot that it began as, `POOL/VOL@SNAP`; null if it is no clone. A name that is no more is the one of then.
    #[serde(default)]
    pub origin: Option<String>,
    /// When the data of that snapshot was so, at its own origin.
    #[serde(default)]
    pub origin_created_at: Option<Timestamp>,
    /// Whether that snapshot is still there; the clone does not need it.
    #[serde(default)]
    pub origin_exists: Option<bool>,
}

/// How a volume grows by itself: by a step whenever 90 % of it are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Autogrow {
    /// Up to this size, bytes.
    pub to_bytes: u64,
    /// By so much at once, bytes; if it is left out, a tenth of the volume's size.
    #[serde(default)]
    pub step_bytes: Option<u64>,
}

/// What is said of a volume's room; what is null stays as it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetVolume {
    /// What it may occupy with all its snapshots, bytes; 0: as much as there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// What is kept for it and its snapshots, bytes; 0: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_bytes: Option<u64>,
    /// How far it grows by itself; to 0 bytes: not at all.
    #[serde(default, deserialize_with = "crate::object::optional", skip_serializing_if = "Option::is_none")]
    pub autogrow: Option<Autogrow>,
}

/// `POST /volumes`: makes a thin volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// `POOL/VOL`.
    pub name: String,
    /// Its size in bytes, a multiple of 4096.
    pub size_bytes: u64,
    /// What is said of its room.
    #[serde(default, deserialize_with = "crate::object::object")]
    pub limits: SetVolume,
    /// If one of this name is there that is like this, answer with it; without, it is refused in any case.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_absent: bool,
}

/// `POST /volumes/POOL/VOL/resize`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// The new size in bytes, a multiple of 4096.
    pub size_bytes: u64,
}
