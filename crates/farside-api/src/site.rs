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
