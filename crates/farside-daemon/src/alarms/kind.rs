//! What an alarm can be about. Pure.

use farside_api::AlarmSeverity;

/// What an alarm is about. Its subject, a mirror, a pool, a peer or a daemon, is beside it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// A replica is further behind than it may be.
    ObjectiveBroken,
    /// It will be, if nothing changes.
    ObjectiveAtRisk,
    /// A transfer runs and nothing of it comes.
    NoProgress,
    /// What is to be brought does not fit into the pool here.
    NoRoom,
    /// Several transfers in a row have failed.
    TransfersFailing,
    /// A peer does not answer.
    PeerGone,
    /// A peer's clock is another than this site's.
    ClockWrong,
    /// A twentieth of a pool or less is left for hosts.
    PoolNearlyFull,
    /// Hosts are told that there is no space.
    PoolFull,
    /// A pool does not serve, or something is wrong with it.
    PoolFailed,
    /// The updates of a mirror look as if somebody encrypts its source.
    Ransomware,
    /// A request that takes data away waits, and can be stopped.
    DestructiveDelayed,
    /// A replica was broken off, and hosts may write to it and to its source.
    TwoOriginals,
    /// A timetable's snapshot was not taken, or not as it should be: its hook has failed, or an application may still be frozen.
    SnapshotsFailing,
    /// A token or a certificate ends soon, or has ended.
    EndsSoon,
    /// One of several daemons of this site does not live.
    DaemonGone,
    /// A part of a group is used here, and the other at another site.
    GroupSplit,
    /// A pool is an older copy of itself.
    PoolSetBack,
    /// An update found its source in an earlier state, and what the replica showed is kept beside it.
    SourceWentBack,
    /// A person tries the ways on which alarms go out. Never in the book.
    Test,
}

impl Kind {
    /// Every kind that is raised by itself.
    pub(crate) const ALL: [Kind; 19] = [
        Kind::ObjectiveBroken,
        Kind::ObjectiveAtRisk,
        Kind::NoProgress,
        Kind::NoRoom,
        Kind::TransfersFailing,
        Kind::PeerGone,
        Kind::ClockWrong,
        Kind::PoolNearlyFull,
        Kind::PoolFull,
        Kind::PoolFailed,
        Kind::Ransomware,
        Kind::DestructiveDelayed,
        Kind::TwoOriginals,
        Kind::SnapshotsFailing,
        Kind::EndsSoon,
        Kind::DaemonGone,
        Kind::GroupSplit,
        Kind::PoolSetBack,
        Kind::SourceWentBack,
    ];

    /// Its name in JSON, log, metrics and manual.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::ObjectiveBroken => "objective-broken",
            Kind::ObjectiveAtRisk => "objective-at-risk",
            Kind::NoProgress => "no-progress",
            Kind::NoRoom => "no-room",
            Kind::TransfersFailing => "transfers-failing",
            Kind::PeerGone => "peer-gone",
            Kind::ClockWrong => "clock-wrong",
            Kind::PoolNearlyFull => "pool-nearly-full",
            Kind::PoolFull => "pool-full",
            Kind::PoolFailed => "pool-failed",
            Kind::Ransomware => "ransomware",
            Kind::DestructiveDelayed => "destructive-delayed",
            Kind::TwoOriginals => "two-originals",
            Kind::SnapshotsFailing => "snapshots-failing",
            Kind::EndsSoon => "ends-soon",
            Kind::DaemonGone => "daemon-gone",
            Kind::GroupSplit => "group-split",
            Kind::PoolSetBack => "pool-set-back",
            Kind::SourceWentBack => "source-went-back",
            Kind::Test => "test",
        }
    }

    /// The kind of this name, among those that are raised by themselves.
    pub(crate) fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// How grave it is.
    pub(crate) fn severity(self) -> AlarmSeverity {
        match self {
            Kind::ObjectiveBroken
            | Kind::PoolFull
            | Kind::PoolFailed
            | Kind::Ransomware
            | Kind::TwoOriginals
            | Kind::GroupSplit
            | Kind::PoolSetBack
            | Kind::SourceWentBack => AlarmSeverity::Critical,
            Kind::ObjectiveAtRisk
            | Kind::NoProgress
            | Kind::NoRoom
            | Kind::TransfersFailing
            | Kind::PeerGone
            | Kind::ClockWrong
            | Kind::PoolNearlyFull
            | Kind::DestructiveDelayed
            | Kind::SnapshotsFailing
            | Kind::EndsSoon
            | Kind::DaemonGone
            | Kind::Test => AlarmSeverity::Warning,
        }
    }

    /// Whether [`health`](crate::http) says the same by itself already.
    pub(crate) fn is_said_by_health(self) -> bool {
        matches!(self, Kind::PoolNearlyFull | Kind::PoolFull | Kind::PoolFailed | Kind::DaemonGone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(Kind::named(kind.name()), Some(kind));
        }
        assert_eq!(Kind::named("test"), None, "it is never raised by itself");
    }
}
