//! Scrubs: a pool is read as a whole while it serves, and what is damaged is named.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How far a scrub is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ScrubState {
    /// It reads. After a restart it goes on by itself.
    Running,
    /// It goes on as soon as its pool is open.
    Waiting,
    /// It was stopped; the next one goes on from there.
    Stopped,
    /// It could not go on; `error` says why. The next one goes on from there.
    Failed,
    /// Everything has been read.
    Done,
}

/// The scrub of a pool that runs, or that ran last. `GET /pools/POOL/scrub` answers null where there was none.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Scrub {
    /// The pool.
    pub pool: String,
    /// How far it is.
    pub state: ScrubState,
    /// When it began. What was written since is not read.
    pub started_at: Timestamp,
    /// When it ended, or was stopped; null while it runs.
    pub ended_at: Option<Timestamp>,
    /// What is to be read, about: what was in use when it began.
    pub total_bytes: u64,
    /// Bytes that have been read.
    pub read_bytes: u64,
    /// What it may read in a second; null: as much as the device gives.
    pub limit_bytes_per_second: Option<u64>,
    /// What it has read in a second lately; null unless it runs.
    pub rate_bytes_per_second: Option<f64>,
    /// How long it still takes at that rate; null unless it runs.
    pub eta_seconds: Option<f64>,
    /// Blocks of the pool that are damaged: data, and metadata of which no copy is left.
    pub damaged_blocks: u64,
    /// Where these belong, at most 1024 ranges.
    pub damage: Vec<ScrubDamage>,
    /// Damage to the pool's own structures, in words.
    pub structures: Vec<String>,
    /// Copies that were damaged and have been rewritten from the other one.
    pub rewritten_copies: u64,
    /// Which, in words; at most 256.
    pub rewritten: Vec<String>,
    /// Why it could not go on.
    pub error: Option<String>,
    /// When a scrub of this pool last came to its end; null if none has.
    pub completed_at: Option<Timestamp>,
}

/// What is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ScrubDamageKind {
    /// Data.
    Data,
    /// Metadata that says where data lies.
    Map,
}

/// A range of a volume that cannot be read, and who shares it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ScrubDamage {
    /// Data or metadata.
    pub kind: ScrubDamageKind,
    /// The volume's name in its pool.
    pub volume: String,
    /// Where it begins in the volume, bytes.
    pub offset_bytes: u64,
    /// How long it is, bytes.
    pub length_bytes: u64,
    /// Whether the volume itself has it, as hosts see it; else only what is named below.
    pub in_volume: bool,
    /// Whether what a transfer has staged for the volume has it.
    pub in_staged: bool,
    /// The volume's snapshots that have it, 64 at most.
    pub snapshots: Vec<String>,
    /// How many more have it.
    pub more_snapshots: u64,
}

/// `POST /pools/POOL/scrub`: begins a scrub, goes on with one that was stopped, or changes the rate of the one that runs.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartScrub {
    /// What it may read in a second: `64MiB/s`, or `unlimited`; null: as before, 64 MiB/s at first.
    #[serde(default)]
    pub rate: Option<String>,
    /// From the beginning, though one was stopped.
    #[serde(default)]
    pub anew: bool,
}
