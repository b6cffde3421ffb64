//! Clones of snapshots, and drills: clones of what replicas show.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// `POST /volumes/POOL/VOL/snapshots/SNAP/clone`: makes a writable volume that begins as the snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CloneSnapshot {
    /// The new volume, `POOL/NEW`, in the pool of the snapshot.
    pub name: String,
    /// Also if part of the snapshot is known not to be readable.
    #[serde(default)]
    pub even_if_damaged: bool,
}

/// `POST /mirrors/POOL/VOL/drill`: makes a writable volume of what the replica shows; its mirror goes on.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartDrill {
    /// The new volume, `POOL/NEW`; null: `POOL/VOL-drill-TIME`.
    #[serde(default)]
    pub name: Option<String>,
    /// The snapshot of the replica to begin with; null: the one that it shows now.
    #[serde(default)]
    pub at: Option<String>,
    /// Also if part of the snapshot is known not to be readable.
    #[serde(default)]
    pub even_if_damaged: bool,
    /// The volume goes by itself when `POST /drills/POOL/NEW/renew` has not come for so long, 1 s to an hour: for a client that may be
    /// killed. Null: it stays.
    #[serde(default)]
    pub lease_seconds: Option<f64>,
}

/// Which volume of a drill is renewed (`POST /drills/POOL/NEW/renew`), or deleted at the end of the drill (`…/end`). One that was renamed
/// is found too; another that has its name by then is not touched: the drill is not found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DrillVolume {
    /// Its identity, as the drill's document has it.
    pub uuid: Uuid,
}

/// A recovery drill.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Drill {
    /// The new volume, `POOL/NEW`.
    pub name: String,
    /// Its identity; a rename keeps it.
    pub uuid: Uuid,
    /// The replica, `POOL/VOL`.
    pub replica: String,
    /// The snapshot of the replica that it began as.
    pub snapshot: String,
    /// When the data was so, at the source: the recovery point.
    pub point: Timestamp,
    /// How old that was when the drill began.
    pub age_seconds: f64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Where programs of this machine open it: an NBD URI.
    pub uri: String,
    /// How long the daemon took to make it.
    pub duration_seconds: f64,
    /// What a command made of it; null if none was run.
    #[serde(default, deserialize_with = "crate::object::optional")]
    pub run: Option<DrillRun>,
}

/// A command that was run with a drill's volume, by the client.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DrillRun {
    /// The command.
    pub command: String,
    /// How it ended.
    pub result: DrillResult,
    /// Its exit status, if it had one.
    pub exit_status: Option<i32>,
    /// How long it ran.
    pub duration_seconds: f64,
    /// From the moment of asking for the drill until the command had ended: the recovery time, if it succeeded.
    pub recovery_seconds: f64,
    /// Whether the volume was deleted afterwards: not if it was gone by then, or could not be.
    pub deleted: bool,
}

/// How a drill's command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DrillResult {
    /// With status 0.
    Ok,
    /// With another status, by a signal of somebody else, or it could not be started.
    Failed,
    /// It had not ended in time, and was ended.
    TimedOut,
    /// The client was told to end, and ended it.
    Interrupted,
}
