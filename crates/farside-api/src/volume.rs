//! Volumes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::host::VolumeHost;
use crate::pool::QuarantinedRange;

/// A volume as it is listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
}

/// `POST /volumes`: makes a thin volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// `POOL/VOL`.
    pub name: String,
    /// Its size in bytes, a multiple of 4096.
    pub size_bytes: u64,
}

/// `POST /volumes/POOL/VOL/resize`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// The new size in bytes, a multiple of 4096.
    pub size_bytes: u64,
}
