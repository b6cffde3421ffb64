//! The log of mirrors: one line for whatever happened.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::mirror::TransferKind;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LogEvent {
    /// A transfer was asked for.
    Request,
    /// A transfer began.
    Start,
    /// A transfer ended well.
    End,
    /// A transfer ended, or its wait did, without having brought everything.
    Abort,
    /// What the volume showed until then became a side branch, which `reason` names.
    Rescue,
    /// An old side branch was deleted, because the volume has newer ones; `reason` names it.
    RescueDeleted,
    /// Broken off: hosts may write to the volume.
    Break,
    /// To be a replica again: hosts may no longer write.
    Resync,
    /// The two sites changed roles.
    Swap,
    /// No new transfers until resumed.
    Quiesce,
    /// Transfers again.
    Resume,
    /// The relationship is over; the volume stays.
    Delete,
    /// A clone of the replica was tried; `reason` says what came of it.
    Drill,
}

/// Who asked for a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RequestedBy {
    /// A person, or a program that stands for one.
    Person,
    /// The mirror's schedule.
    Schedule,
    /// The mirror itself, after it lost the session under a transfer.
    Retry,
    /// The mirror itself: more snapshots waited than one transfer carries.
    CatchUp,
    /// The mirror itself, after it gave its place to another.
    GaveWay,
    /// Another mirror of its group.
    Group,
    /// A person who has asked for a change of roles: it comes before that.
    Swap,
}

/// A line, as `mirror log` lists it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LogLine {
    /// When.
    pub at: Timestamp,
    /// The replica, `POOL/VOL` here.
    pub mirror: String,
    /// Of which relationship.
    pub relationship: Uuid,
    /// What happened.
    pub event: LogEvent,
    /// What kind of transfer it is about, if about one.
    pub kind: Option<TransferKind>,
    /// The transfer, once it has an id: the same at both sites and in `mirror history`.
    pub transfer: Option<Uuid>,
    /// Of `request`: who asked.
    pub requested_by: Option<RequestedBy>,
    /// Of `end`: bytes that it brought over the link.
    pub bytes: Option<u64>,
    /// Of `abort`: why. Of `rescue`: the side branch. Of `drill`: result, recovery point and time.
    pub reason: Option<String>,
}
