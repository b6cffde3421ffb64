//! Pools: files or raw devices that hold volumes.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Whether a pool serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolState {
    /// Open.
    Open,
    /// Could not be opened, or has failed since; `error` says why. The daemon goes on with the others.
    Failed,
}

/// A pool as it is listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its identity; null while it is not open.
    pub uuid: Option<Uuid>,
    /// The file or device.
    pub path: String,
    /// Whether it serves.
    pub state: PoolState,
    /// Why not.
    pub error: Option<String>,
    /// Its size in bytes. This and what follows is null while it is not open.
    pub size_bytes: Option<u64>,
    /// Bytes in use, metadata included.
    pub used_bytes: Option<u64>,
    /// Bytes that hosts can still write.
    pub free_bytes: Option<u64>,
    /// How many volumes it holds.
    pub volumes: Option<u64>,
}

/// `POST /pools`: makes a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Its name.
    pub name: String,
    /// A file that does not exist yet, or a raw device; absolute.
    pub path: String,
    /// Size of the file in bytes; a device has its own.
    #[serde(default)]
    pub size_bytes: Option<u64>,
}

/// `POST /pools/import`: takes a pool that exists, by its file or device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// The name it shall have here.
    pub name: String,
    /// The file or device; absolute.
    pub path: String,
}
