//! Deduplication at rest: equal blocks of volumes come to lie at one place of their pool.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whether a volume is deduplicated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DedupState {
    /// It is not. What was shared before stays so.
    Off,
    /// A pass is under way, or an undoing. After a restart it goes on by itself.
    Running,
    /// The last pass has come to its end, and the next one follows by itself; or `why` says what it waits for.
    Idle,
}

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DedupPhase {
    /// The volume waits for others of its pool.
    Waiting,
    /// After a restart: what the volumes of the pool hold is looked up, in their metadata.
    Learning,
    /// Equal blocks are looked for, and shared.
    Sharing,
    /// What it saves is counted.
    Counting,
    /// Each block gets a place of its own again.
    Undoing,
}

/// `GET /volumes/POOL/VOL/dedup`; `GET /dedups`: of each volume that has, or had, deduplication.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Dedup {
    /// The volume, `POOL/VOL`.
    pub volume: String,
    /// Whether it is deduplicated.
    pub state: DedupState,
    /// What sharing saves, the volume's part of it: of a block with n owners 1 − 1/n. As of `counted_at`, and what was shared since.
    pub saved_bytes: u64,
    /// What the pass that runs, or ran last, has looked at.
    pub scanned_bytes: u64,
    /// What is being done; null unless it runs.
    pub phase: Option<DedupPhase>,
    /// What the pass that runs, or ran last, has shared; of an undoing, what it has copied.
    pub shared_bytes: u64,
    /// Of what it has shared, what snapshots still hold: it comes free as they go.
    pub held_by_snapshots_bytes: u64,
    /// Blocks that stay by themselves because the others have 256 owners already.
    pub limited_blocks: u64,
    /// Blocks that it met damaged. They are shared with nobody; a scrub says what they belong to.
    pub damaged_blocks: u64,
    /// What the whole pool saves by blocks with several owners, snapshots included; null while it is not open.
    pub pool_saved_bytes: Option<u64>,
    /// What it may read in a second; null: as much as the device gives.
    pub limit_bytes_per_second: Option<u64>,
    /// What it has read in a second lately; null unless it runs.
    pub rate_bytes_per_second: Option<f64>,
    /// Which part of the volume the pass has behind it, 0 to 1; null where that is not known.
    pub done: Option<f64>,
    /// How long it still takes at that rate; null where that is not known.
    pub eta_seconds: Option<f64>,
    /// When the pass that runs, or ran last, began.
    pub started_at: Option<Timestamp>,
    /// When the last one came to its end.
    pub completed_at: Option<Timestamp>,
    /// When `saved_bytes` was counted.
    pub counted_at: Option<Timestamp>,
    /// When the next pass begins, if anything has changed by then.
    pub next_at: Option<Timestamp>,
    /// Why it does not go on, if it does not.
    pub why: Option<String>,
}

/// `POST /volumes/POOL/VOL/dedup` begins it, or has it look at once at what changed; `POST /volumes/POOL/VOL/dedup/undo` undoes it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartDedup {
    /// What it may read in a second: `64MiB/s`, or `unlimited`; null: as before, 64 MiB/s at first.
    #[serde(default)]
    pub rate: Option<String>,
    /// All of the volume, not only what has changed. Not for an undoing.
    #[serde(default)]
    pub anew: bool,
}
