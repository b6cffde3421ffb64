//! What `farside support-bundle` asks the daemon beside its listings. Nothing here is a secret.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Versions, configuration and the newest log lines of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Support {
    /// Versions of everything that has one.
    pub versions: Versions,
    /// When the daemon started.
    pub started_at: Timestamp,
    /// What its clock shows.
    pub now: Timestamp,
    /// What it runs with.
    pub configuration: Configuration,
    /// What makes this host's connections slower than they need to be, each with what to do about it.
    #[serde(default)]
    pub network_advice: Vec<String>,
    /// The newest log lines, oldest first.
    pub log: Vec<String>,
    /// How many older ones are not kept.
    pub log_dropped: u64,
}

/// Versions of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Versions {
    /// farside's.
    pub farside: String,
    /// The format of pools that it writes and reads.
    pub format: u32,
    /// The oldest and newest protocol of sessions that it speaks.
    pub session_protocol: [u16; 2],
    /// The oldest and newest protocol of mirrors that it serves.
    pub mirror_protocol: [u32; 2],
    /// The schema of its state database.
    pub schema: i64,
}

/// What a daemon runs with: words, file and defaults, merged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Configuration {
    /// The site's name.
    pub name: String,
    /// The data directory.
    pub data_dir: String,
    /// Where peers are met, or `off`.
    pub peer_listen: String,
    /// Where `/metrics` and `/healthz` are, or `off`.
    pub http: String,
    /// The log filter.
    pub log: String,
    /// `text` or `json`.
    pub log_format: String,
}
