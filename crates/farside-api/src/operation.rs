//! Long work: it is started, goes on whether or not anybody watches, and is asked after by its id.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::ErrorBody;
use crate::mirror::{Transfer, TransferRecord};

/// What long work is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// The first copy.
    Initialize,
    /// What changed since the base.
    Update,
    /// A volume becomes a replica again.
    Resync,
    /// A planned role change.
    Swap,
}

/// How far a role change is. At no moment may hosts of both sides write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SwapPhase {
    /// A first update, while hosts go on at the source.
    Update,
    /// The source refuses host writes from here on, and takes its last snapshot.
    Fence,
    /// The update to exactly that snapshot.
    LastUpdate,
    /// The replica becomes the original: the point of no return.
    Takeover,
    /// The former source is told that it is the replica now.
    Notify,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OperationState {
    /// Under way.
    Running,
    /// Ended well.
    Done,
    /// Ended otherwise; `error` says why.
    Failed,
}

/// One piece of long work. The daemon remembers the last 256 that ended.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Operation {
    /// Its id.
    pub id: Uuid,
    /// What it does.
    pub kind: OperationKind,
    /// How far a role change is; null for other kinds.
    #[serde(default)]
    pub phase: Option<SwapPhase>,
    /// The volume here, `POOL/VOL`.
    pub volume: String,
    /// How far.
    pub state: OperationState,
    /// When it was asked for.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The transfer as it stands, while one is under way.
    pub transfer: Option<Transfer>,
    /// Since how long the session with the peer has been missing; null while there is one.
    pub session_lost_seconds: Option<f64>,
    /// It has changed nothing yet: it waits for a session, and *abort* gives it up.
    #[serde(default)]
    pub waits_to_begin: bool,
    /// The history entry it ended with.
    pub record: Option<TransferRecord>,
    /// Why it failed.
    pub error: Option<ErrorBody>,
}
