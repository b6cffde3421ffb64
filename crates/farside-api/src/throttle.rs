//! Limits: what a site, a peer or a mirror may take of the link.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::site::DaemonStatus;

/// A limit as it is set, and as it holds now.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Throttle {
    /// As it is set: `4MB/s,08:00-18:00=1MB/s,zone=Europe/Berlin`, or `unlimited`.
    pub rules: String,
    /// What holds at this moment, bytes per second; null if nothing limits. Of what is sent to a peer: this limit or the
    /// committed rate of its link, whichever is lower.
    pub bytes_per_second: Option<u64>,
}

/// What a mirror's transfers take of the link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MirrorLink {
    /// Its limit as it is set.
    pub throttle: String,
    /// Bytes that may be on their way, unacknowledged; null: as many as the path needs.
    pub window_bytes: Option<u64>,
    /// It gives way to other traffic.
    pub low_priority: bool,
    /// `LOCAL=HOST:PORT`; empty: the peer's.
    pub paths: Vec<String>,
}

/// The same in a request: what is absent stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetMirrorLink {
    /// The limit: `4MB/s`, with times `4MB/s,08:00-18:00=1MB/s`, or `unlimited`.
    #[serde(default)]
    pub throttle: Option<String>,
    /// Bytes that may be on their way, unacknowledged; 0: as many as the path needs.
    #[serde(default)]
    pub window_bytes: Option<u64>,
    /// Whether it gives way to other traffic.
    #[serde(default)]
    pub low_priority: Option<bool>,
    /// `LOCAL=HOST:PORT`; empty: the peer's.
    #[serde(default)]
    pub paths: Option<Vec<String>>,
}

/// `POST /site/set`: what is absent stays as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetSite {
    /// What all peers together may send here.
    #[serde(default)]
    pub throttle_in: Option<String>,
    /// What may be sent to all peers together.
    #[serde(default)]
    pub throttle_out: Option<String>,
    /// How many transfers of mirrors whose replica is here may be under way at once, 1 to 16.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 16))]
    pub transfer_size: Option<u64>,
    /// How far hosts of this site go before transfers: `high`, `fair` or `off`.
    #[serde(default)]
    pub host_precedence: Option<String>,
}

/// Transfers are held back because hosts have become slower.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldBack {
    /// Part of a processor's time that transfers use at most, percent.
    pub share_percent: u64,
    /// What an operation of a host takes without transfers, microseconds.
    pub without_microseconds: u64,
    /// What it takes with them.
    pub with_microseconds: u64,
}

/// `GET /site/status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SiteStatus {
    /// The site's name.
    pub name: String,
    /// Why somebody has to look after it, as `/healthz` says it; empty if all is well.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// What is all right yet and will not be for long, as `/healthz` says it: pools that are nearly full, and alarms that nobody has
    /// acknowledged.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What all peers together may send here.
    pub throttle_in: Throttle,
    /// What may be sent to all peers together.
    pub throttle_out: Throttle,
    /// How many transfers of mirrors whose replica is here may be under way at once.
    pub transfer_size: u64,
    /// How many are. More than `transfer_size` for a while after that was made smaller.
    pub transfers_under_way: u64,
    /// How many wait for their turn; the one that waited longest is next.
    pub transfers_waiting: u64,
    /// How far hosts go before transfers: `high`, `fair` or `off`.
    #[serde(default)]
    pub host_precedence: String,
    /// Why transfers work less than they could; null where they do not.
    #[serde(default)]
    pub held_back: Option<HeldBack>,
    /// When this daemon started; what it counts begins there.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Bytes sent to all peers since this daemon started, TLS included.
    pub sent_bytes: u64,
    /// Bytes received from them, likewise.
    pub received_bytes: u64,
    /// The daemons of the site, if its state is in PostgreSQL; empty where it is in a file: there is one.
    #[serde(default)]
    pub daemons: Vec<DaemonStatus>,
}
