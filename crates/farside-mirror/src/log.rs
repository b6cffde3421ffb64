//! The log of a mirror: one line for whatever happened to it, kept at the destination.
//!
//! Where [`TransferReport`](farside_transfer::TransferReport) has every figure of a transfer, this tells the story around it: who asked, when
//! it began, how it ended, when the mirror was broken off, resynced, swapped.

use std::fmt;

use farside_engine::VolumeName;
use farside_platform::Timestamp;
use uuid::Uuid;

use farside_transfer::TransferKind;

/// A line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogEntry {
    /// When.
    pub at: Timestamp,
    /// Of which relationship.
    pub relationship: Uuid,
    /// Its replica.
    pub volume: VolumeName,
    /// What happened.
    pub event: LogEvent,
    /// What kind of transfer it is about, if about one.
    pub kind: Option<TransferKind>,
    /// The transfer, once it has an id: the same at both sites.
    pub transfer: Option<Uuid>,
}

/// What happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogEvent {
    /// A transfer was asked for.
    Request {
        /// By whom.
        by: RequestedBy,
    },
    /// A transfer began.
    Start,
    /// A transfer ended well.
    End {
        /// Bytes that it brought over the link.
        bytes: u64,
    },
    /// A transfer ended, or its wait did, without having brought everything.
    Abort {
        /// Why.
        reason: String,
    },
    /// Broken off: hosts may write to the volume.
    Break,
    /// To be a replica again: hosts may no longer write.
    Resync,
    /// The two sites have changed roles.
    Swap,
    /// No new transfers until resumed.
    Quiesce,
    /// Transfers again.
    Resume,
    /// What the volume showed until then became a side branch.
    Rescue {
        /// Its name.
        snapshot: String,
    },
    /// An old side branch was deleted, because the volume has newer ones.
    RescueDeleted {
        /// Its name.
        snapshot: String,
    },
    /// The relationship is over; the volume stays.
    Delete,
    /// A clone of the replica was tried.
    Drill {
        /// What came of it: result, recovery point and time.
        outcome: String,
    },
}

/// Who asked for a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestedBy {
    /// A person, or a program that stands for one.
    Person,
    /// The mirror's schedule.
    Schedule,
    /// The mirror itself, after it has lost the session under a transfer.
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

impl fmt::Display for RequestedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RequestedBy::Person => "person",
            RequestedBy::Schedule => "schedule",
            RequestedBy::Retry => "retry",
            RequestedBy::CatchUp => "catch-up",
            RequestedBy::GaveWay => "gave-way",
            RequestedBy::Group => "group",
            RequestedBy::Swap => "swap",
        })
    }
}

impl std::str::FromStr for RequestedBy {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "person" => RequestedBy::Person,
            "schedule" => RequestedBy::Schedule,
            "retry" => RequestedBy::Retry,
            "catch-up" => RequestedBy::CatchUp,
            "gave-way" => RequestedBy::GaveWay,
            "group" => RequestedBy::Group,
            "swap" => RequestedBy::Swap,
            _ => return Err(()),
        })
    }
}

impl LogEvent {
    /// What there is to say beside the name: who asked, how many bytes, why.
    pub fn detail(&self) -> Option<String> {
        match self {
            LogEvent::Request { by } => Some(by.to_string()),
            LogEvent::End { bytes } => Some(bytes.to_string()),
            LogEvent::Abort { reason } => Some(reason.clone()),
            LogEvent::Rescue { snapshot } | LogEvent::RescueDeleted { snapshot } => Some(snapshot.clone()),
            LogEvent::Drill { outcome } => Some(outcome.clone()),
            _ => None,
        }
    }

    /// The event that [`LogEvent::name`] and [`LogEvent::detail`] tell of, if they are any's.
    pub fn parse(name: &str, detail: Option<&str>) -> Option<LogEvent> {
        Some(match (name, detail) {
            ("request", Some(by)) => LogEvent::Request { by: by.parse().ok()? },
            ("start", _) => LogEvent::Start,
            ("end", Some(bytes)) => LogEvent::End { bytes: bytes.parse().ok()? },
            ("abort", reason) => LogEvent::Abort { reason: reason.unwrap_or_default().into() },
            ("rescue", Some(snapshot)) => LogEvent::Rescue { snapshot: snapshot.into() },
            ("rescue-deleted", Some(snapshot)) => LogEvent::RescueDeleted { snapshot: snapshot.into() },
            ("break", _) => LogEvent::Break,
            ("resync", _) => LogEvent::Resync,
            ("swap", _) => LogEvent::Swap,
            ("quiesce", _) => LogEvent::Quiesce,
            ("resume", _) => LogEvent::Resume,
            ("delete", _) => LogEvent::Delete,
            ("drill", Some(outcome)) => LogEvent::Drill { outcome: outcome.into() },
            _ => return None,
        })
    }

    /// The event by its name, as it is stored and shown.
    pub fn name(&self) -> &'static str {
        match self {
            LogEvent::Request { .. } => "request",
            LogEvent::Start => "start",
            LogEvent::End { .. } => "end",
            LogEvent::Abort { .. } => "abort",
            LogEvent::Rescue { .. } => "rescue",
            LogEvent::RescueDeleted { .. } => "rescue-deleted",
            LogEvent::Break => "break",
            LogEvent::Resync => "resync",
            LogEvent::Swap => "swap",
            LogEvent::Quiesce => "quiesce",
            LogEvent::Resume => "resume",
            LogEvent::Delete => "delete",
            LogEvent::Drill { .. } => "drill",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_the_event() {
        let all = [
            LogEvent::Request { by: RequestedBy::Person },
            LogEvent::Request { by: RequestedBy::Schedule },
            LogEvent::Request { by: RequestedBy::Retry },
            LogEvent::Request { by: RequestedBy::CatchUp },
            LogEvent::Request { by: RequestedBy::GaveWay },
            LogEvent::Request { by: RequestedBy::Swap },
            LogEvent::Start,
            LogEvent::End { bytes: 77 },
            LogEvent::Abort { reason: "the link went away".into() },
            LogEvent::Rescue { snapshot: "rescue-now".into() },
            LogEvent::RescueDeleted { snapshot: "rescue-then".into() },
            LogEvent::Break,
            LogEvent::Resync,
            LogEvent::Swap,
            LogEvent::Quiesce,
            LogEvent::Resume,
            LogEvent::Delete,
            LogEvent::Drill { outcome: "the command succeeded".into() },
        ];
        for event in all {
            assert_eq!(LogEvent::parse(event.name(), event.detail().as_deref()), Some(event));
        }
        assert_eq!(LogEvent::parse("end", Some("many")), None);
        assert_eq!(LogEvent::parse("dance", None), None);
    }
}
