//! This daemon.

use serde::{Deserialize, Serialize};

/// The daemon that answers, and where it is met.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Site {
    /// The site's name, `--name`.
    pub name: String,
    /// Its identity: SHA-256 of its key, 64 hexadecimal digits.
    pub id: String,
    /// The version of farside.
    pub version: String,
    /// The data directory.
    pub data_dir: String,
    /// Where peers are met; null when `--peer-listen off`.
    pub peer_address: Option<String>,
    /// Where `/metrics` and `/healthz` are; null when `--http off`.
    pub http_address: Option<String>,
    /// Where this API is served over HTTPS; null when that is off.
    #[serde(default)]
    pub api_address: Option<String>,
    /// SHA-256 of the certificate that is shown there, 64 hexadecimal digits: what a client that is to trust it names.
    #[serde(default)]
    pub api_fingerprint: Option<String>,
    /// Where hosts are served over TCP; null when that is off.
    #[serde(default)]
    pub nbd_address: Option<String>,
    /// The NBD socket.
    pub nbd_socket: String,
}

/// `POST /site/move-state`: carries the state into another database.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MoveState {
    /// `postgres://USER@HOST[:PORT]/DB`, or `sqlite:` for `farside.db` in the data directory. It must be empty, or what the state
    /// was moved away from.
    pub to: String,
    /// The password there; without one the daemon asks the file that its `PGPASSFILE` names.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(format = Password, write_only))]
    pub password: Option<String>,
}

/// That the state was moved. The daemon is to be restarted with the new address: until then it refuses what it would have to keep.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StateMoved {
    /// Where it is now: what `database` in `farside.toml` is to be.
    pub to: String,
    /// What was carried.
    pub tables: Vec<MovedTable>,
}

/// A table that was carried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MovedTable {
    /// Its name.
    pub name: String,
    /// Its rows.
    pub rows: i64,
}
