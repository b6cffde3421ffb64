//! What `farside support-bundle` asks the daemon beside its listings. Nothing here is a secret.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::accelerator::Acceleration;

/// Versions, configuration and the newest log lines of a daemon.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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

/// What a daemon runs with: arguments, file and defaults, merged.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Configuration {
    /// The site's name.
    pub name: String,
    /// The data directory.
    pub data_dir: String,
    /// Where peers are met, or `off`.
    pub peer_listen: String,
    /// Where `/metrics` and `/healthz` are, or `off`.
    pub http: String,
    /// How this API is served over HTTPS; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiConfiguration>,
    /// How hosts are served over TCP; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbd: Option<NbdConfiguration>,
    /// The daemon whose configuration this is, the one that leads; absent at a site of one daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<String>,
    /// The log filter.
    pub log: String,
    /// `text` or `json`.
    pub log_format: String,
    /// Where the state is, without a password; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// How volumes travel; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireConfiguration>,
    /// What each peer may cost this site as a source; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budgets: Option<BudgetConfiguration>,
    /// What mirrors may take of this site as a destination; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicaConfiguration>,
    /// What the file says of the accelerator; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<AcceleratorConfiguration>,
    /// How alarms are told, and from when on something is one; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarms: Option<AlarmConfiguration>,
}

/// The table `[alarms]`, with its defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AlarmConfiguration {
    /// Scheme and host of the webhook; its path may be a secret.
    pub webhook: Option<String>,
    /// Whether what is posted there is signed.
    pub webhook_signed: bool,
    /// The program that is run; its arguments may be secrets.
    pub command: Option<String>,
    /// A peer that has not answered for so long is gone, seconds.
    pub peer_gone_after_seconds: u64,
    /// A daemon of this site that was not seen for so long is gone, seconds; None from a daemon that does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_gone_after_seconds: Option<u64>,
    /// A transfer that has not got on for so long is told, seconds.
    pub no_progress_after_seconds: u64,
    /// Transfers that have to fail in a row.
    pub failing_transfers: u32,
    /// An alarm ends when its reason has been gone for so long, seconds.
    pub clear_after_seconds: u64,
}

/// The table `[wire]`, with its defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WireConfiguration {
    /// What is spent on every frame, or `auto`.
    pub effort: String,
    /// Memory of all frames that are being encoded, bytes.
    pub encoder_memory_bytes: u64,
    /// Memory for the indexes of similar content, for each TiB of a volume; 0 keeps none.
    pub similarity_bytes_per_tib: u64,
}

/// The table `[budgets]`, with its defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BudgetConfiguration {
    /// Transfers and comparisons of a peer in a minute.
    pub snapshots_per_minute: u32,
    /// Calls and data streams of a peer in a minute.
    pub calls_per_minute: u32,
    /// Transfers that are served for a peer at the same time.
    pub transfers: u64,
    /// Mirrors that a peer may have of volumes here.
    pub mirrors: u64,
    /// Snapshots that are kept for a peer.
    pub pins: u64,
    /// Bytes that are kept for a peer and that hosts have replaced; None: as much as the pool has above its reserve.
    pub pinned_bytes: Option<u64>,
    /// Age of what is kept for a mirror that does not update, days; 0: any.
    pub pin_age_days: u64,
    /// Part of a pool, in percent, that is held free for hosts.
    pub reserve_percent: u8,
}

/// The table `[replicas]`, with its defaults.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ReplicaConfiguration {
    /// Part of a pool, in percent, that transfers leave free for hosts.
    pub reserve_percent: u8,
    /// Snapshots of persons that a replica has at most.
    pub snapshots: u64,
    /// Newest rescues of a volume that stay; 0: all.
    pub rescues: u64,
}

/// The table `[accelerator]`. What was set by `accel up` counts more and is in its status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AcceleratorConfiguration {
    /// Interfaces towards this site's hosts.
    pub lan: Vec<String>,
    /// The interface towards the other sites.
    pub wan: Option<String>,
    /// Where other accelerators are met.
    pub listen: String,
    /// What the chunk store may have at most.
    pub store_size_bytes: u64,
    /// Where explicit forwards of peers may end.
    pub forward_to: Vec<String>,
    /// How many policies it has of its own.
    pub policies: u64,
    /// What is done where no policy fits.
    pub otherwise: Acceleration,
    /// Peers whose accelerators it says something of.
    pub peers: Vec<String>,
}

/// How the API is served over HTTPS.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApiConfiguration {
    /// The address, or `off`.
    pub listen: String,
    /// Names by which clients may call it, besides addresses and the machine's own name.
    pub names: Vec<String>,
    /// The certificate comes from elsewhere.
    pub own_certificate: bool,
    /// How long a request that takes data away waits, seconds; null: it does not.
    #[serde(default)]
    pub delay_seconds: Option<f64>,
}

/// How hosts are served over TCP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NbdConfiguration {
    /// The address, or `off`.
    pub listen: String,
    /// Whether hosts must prove who they are.
    pub tls: bool,
    /// Names and addresses put into the server's certificate besides those that are known.
    pub names: Vec<String>,
    /// Certificates come from elsewhere.
    pub own_certificates: bool,
}
