//! Mirrors: a destination volume that follows a peer's volume.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// State of a relationship.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MirrorState {
    /// Nothing has been transferred yet.
    Uninitialized,
    /// The first copy is under way.
    Initializing,
    /// Holds a whole version.
    Mirrored,
    /// An update is under way.
    Transferring,
    /// A transfer waits for its turn.
    Queued,
    /// No transfers until `mirror resume`.
    Quiesced,
    /// The destination is writable; no transfers.
    BrokenOff,
}

/// Which side of a relationship this daemon is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It holds the replica, and owns the relationship.
    Destination,
    /// It holds the original.
    Source,
}

/// What a transfer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferKind {
    /// The first copy.
    Initialize,
    /// What changed since the base.
    Update,
    /// After a break.
    Resync,
}

/// How far a transfer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferPhase {
    /// For its turn, or for a session.
    Waiting,
    /// The source takes a snapshot.
    Snapshot,
    /// The source compares metadata.
    Difference,
    /// Bytes travel.
    Transfer,
    /// The destination compares content roots.
    Verify,
    /// The destination publishes.
    Commit,
}

/// A transfer under way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// What for.
    pub kind: TransferKind,
    /// How far.
    pub phase: TransferPhase,
    /// Bytes that differ, as found so far; null before the difference.
    pub changed_bytes: Option<u64>,
    /// Of these, bytes that are staged at the destination.
    pub done_bytes: u64,
    /// Bytes on the wire so far, both ways.
    pub wire_bytes: u64,
    /// Rate of `done_bytes` of late.
    pub rate_bytes_per_second: Option<f64>,
    /// Time that remains at this rate.
    pub eta_seconds: Option<f64>,
}

/// A relationship as `mirror status` lists it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Mirror {
    /// The relationship's id, the same on both sides.
    pub id: Uuid,
    /// This side's volume, `POOL/VOL`.
    pub name: String,
    /// Which side this daemon is.
    pub role: Role,
    /// The original: `PEER:POOL/VOL` at the destination, `POOL/VOL` at the source.
    pub source: String,
    /// The replica: `POOL/VOL` at the destination, `PEER:POOL/VOL` at the source.
    pub destination: String,
    /// Its state.
    pub state: MirrorState,
    /// Why it is not doing what it should, or what stands in its way; null if nothing.
    pub why: Option<String>,
    /// Age of the replica's data; null while there is none, or where unknown (source).
    pub lag_seconds: Option<f64>,
    /// The recovery point objective.
    pub objective_seconds: Option<f64>,
    /// Name of the newest replicated snapshot.
    pub current_snapshot: Option<String>,
    /// Its content root.
    pub content_root: Option<String>,
    /// Name of the snapshot the next update starts from.
    pub base_snapshot: Option<String>,
    /// When this replica was last re-read and compared as a whole.
    pub last_proven_at: Option<Timestamp>,
    /// `every 10s`; null if updates are only asked for.
    pub schedule: Option<String>,
    /// Bytes per second, the limit of this mirror.
    pub throttle: Option<u64>,
    /// The transfer under way, if any.
    pub transfer: Option<Transfer>,
}

/// How a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransferResult {
    /// Published.
    Ok,
    /// Not; the replica is as it was.
    Failed,
    /// Ended by a person; the replica is as it was.
    Aborted,
}

/// A transfer that has ended, as `mirror history` lists it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TransferRecord {
    /// The transfer's id, the same on both sides.
    pub id: Uuid,
    /// What for.
    pub kind: TransferKind,
    /// How it ended.
    pub result: TransferResult,
    /// Why, if not well.
    pub reason: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How long it took.
    pub duration_seconds: f64,
    /// Name of the snapshot it started from; null for a first copy.
    pub base: Option<String>,
    /// Name of the snapshot it brought.
    pub incremental: Option<String>,
    /// That snapshot's content root, as computed here.
    pub content_root: Option<String>,
    /// Whether it went on with what an earlier one had staged.
    pub resumed: bool,
    /// How many snapshots it brought.
    pub snapshots: u64,
    /// Bytes that the metadata difference found.
    pub changed_bytes: u64,
    /// Bytes that became holes.
    pub deallocated_bytes: u64,
    /// Bytes of data the source read.
    pub source_read_bytes: Option<u64>,
    /// Bytes of the base the source read, to code against.
    #[serde(default)]
    pub base_read_bytes: Option<u64>,
    /// Bytes that travelled as references to what this side had.
    pub referenced_bytes: Option<u64>,
    /// Bytes that travelled coded against similar content.
    pub delta_bytes: Option<u64>,
    /// Bytes that travelled as they are, compressed.
    pub literal_bytes: Option<u64>,
    /// Wire bytes destination to source: frames, control messages, TLS.
    pub wire_bytes_sent: u64,
    /// Wire bytes source to destination.
    pub wire_bytes_received: u64,
    /// Time the source spent comparing metadata.
    pub scan_seconds: Option<f64>,
}

/// A relationship as its source knows it, as `mirror destinations` lists it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MirrorDestination {
    /// The relationship's id, the same on both sides.
    pub id: Uuid,
    /// The original here, `POOL/VOL`.
    pub volume: String,
    /// The peer that mirrors it.
    pub peer: String,
    /// The replica there, `POOL/VOL`.
    pub destination: String,
    /// Name of the snapshot that both sides hold, kept here for the next update.
    pub base_snapshot: Option<String>,
    /// Its content root.
    pub content_root: Option<String>,
    /// Since when that is the base.
    pub since: Option<Timestamp>,
    /// What keeping it costs, bytes.
    pub pinned_bytes: Option<u64>,
    /// Whether a transfer is being served.
    pub transferring: bool,
}

/// `POST /mirrors`: makes a relationship, and the destination volume if it is not there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateMirror {
    /// `PEER:POOL/VOL`.
    pub source: String,
    /// `POOL/VOL` here.
    pub destination: String,
    /// Update interval in seconds; none without.
    #[serde(default)]
    pub every_seconds: Option<f64>,
}

/// `POST /mirrors/POOL/VOL/set`: what is absent stays as it is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetMirror {
    /// The new update interval in seconds; 0 for none.
    #[serde(default)]
    pub every_seconds: Option<f64>,
}

/// `POST /mirrors/POOL/VOL/initialize` and `/update`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartTransfer {
    /// How long to wait for a lost session, seconds; the daemon's default if absent.
    #[serde(default)]
    pub timeout_seconds: Option<f64>,
}
