//! Hosts: machines that open volumes over the network.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A host as it is listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Host {
    /// What it is called.
    pub name: String,
    /// SHA-256 of its certificate, 64 hexadecimal digits; null where certificates come from elsewhere: then the name in them
    /// counts.
    pub fingerprint: Option<String>,
    /// When it was added.
    pub added_at: Timestamp,
    /// When its certificate ends; null where certificates come from elsewhere.
    pub expires_at: Option<Timestamp>,
    /// How many connections it has now.
    pub connections: u64,
    /// What it may open.
    pub rights: Vec<HostRight>,
}

/// What a host may open: a volume, and to read its snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HostRight {
    /// `POOL/VOL`, as it is called now.
    pub volume: String,
    /// It may not write.
    pub read_only: bool,
}

/// A host, and what it has open.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HostStatus {
    /// As it is listed.
    #[serde(flatten)]
    pub host: Host,
    /// What each of its connections has open.
    pub opened: Vec<HostExport>,
    /// What a person must know of the change that was just made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// An export that a host has open.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HostExport {
    /// `POOL/VOL` or `POOL/VOL@SNAP`.
    pub export: String,
    /// Opened without the right to write.
    pub read_only: bool,
}

/// `POST /hosts`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AddHost {
    /// What it will be called.
    pub name: String,
}

/// A host that was added.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AddedHost {
    /// As it is listed.
    #[serde(flatten)]
    pub host: Host,
    /// What it proves itself with, told this once; null where certificates come from elsewhere.
    pub files: Option<HostFiles>,
}

/// What a host proves itself with, PEM. Never printed by `Debug`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HostFiles {
    /// Of the authority by which the host knows the site.
    pub ca_certificate: String,
    /// The host's.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl fmt::Debug for HostFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostFiles").finish_non_exhaustive()
    }
}

/// `POST /hosts/HOST/allow` and `…/deny`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HostRights {
    /// `POOL/VOL` each.
    pub volumes: Vec<String>,
    /// Without the right to write; with `allow` only.
    #[serde(default)]
    pub read_only: bool,
}

/// A host that may open a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct VolumeHost {
    /// What it is called.
    pub host: String,
    /// It may not write.
    pub read_only: bool,
}
