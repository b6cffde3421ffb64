//! Arguments of `farside snapshot`.

use std::time::Duration;

use clap::Subcommand;

use super::destructive::Destructive;
use super::mirror::Timetable;
use super::names::{SnapshotName, VolumeName, parse_label};
use crate::quantities::parse_duration;

/// `farside snapshot`.
#[derive(Debug, Subcommand)]
pub enum Snapshot {
    /// Take snapshots, all at the same instant
    #[command(after_help = "Example:\n  farside snapshot create p/db@monday p/log@monday")]
    Create {
        /// POOL/VOL@SNAP, all of one pool
        #[arg(required = true)]
        names: Vec<SnapshotName>,
    },
    /// List the snapshots of one volume, or of all
    #[command(
        after_help = "UNIQUE is the data that a snapshot has and the versions next to it do not have. It is not what a deletion frees: clones, \
                      deduplication and versions further away may still use it, and equal data that was written again has a place of \
                      its own. farside snapshot delete --plan says about how much comes back.\n\nTo fetch one file as it was at a point: the page \
                      Get one file back of the manual (guides/one-file).\n\nExample:\n  farside snapshot list p/db --json"
    )]
    #[command(alias = "ls")]
    List {
        /// POOL/VOL
        volume: Option<VolumeName>,
    },
    /// Rename a snapshot
    #[command(after_help = "Example:\n  farside snapshot rename p/db@monday before-upgrade")]
    Rename {
        /// POOL/VOL@SNAP
        name: SnapshotName,
        /// The new name of the snapshot
        #[arg(value_parser = parse_label)]
        new: String,
    },
    /// Delete a snapshot
    #[command(
        after_help = "Examples:\n  farside snapshot delete p/db@monday --plan\n  farside snapshot delete p/db@monday --yes"
    )]
    #[command(aliases = ["rm", "remove", "destroy"])]
    Delete {
        /// POOL/VOL@SNAP
        name: SnapshotName,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Keep a snapshot from being deleted, until unhold
    #[command(after_help = "Example:\n  farside snapshot hold p/db@monday")]
    Hold {
        /// POOL/VOL@SNAP
        name: SnapshotName,
    },
    /// Allow a held snapshot to be deleted again
    #[command(after_help = "Example:\n  farside snapshot unhold p/db@monday")]
    #[command(alias = "release")]
    Unhold {
        /// POOL/VOL@SNAP
        name: SnapshotName,
    },
    /// Go back to a snapshot; the volume's present content stays as a side branch
    #[command(
        after_help = "Nothing is lost. Writes since the last snapshot stay as POOL/VOL@rescue-TIME, which opens read-only \
                      over NBD like any snapshot. You can go back to it, or to any snapshot of a side branch (see snapshot \
                      list), in the same way.\n\nExamples:\n  farside snapshot rollback \
                      p/db@monday --plan\n  farside snapshot rollback p/db@monday --yes\n  farside snapshot rollback --group shop --at monday"
    )]
    #[command(alias = "restore")]
    Rollback {
        /// POOL/VOL@SNAP
        #[arg(required_unless_present = "group", conflicts_with = "group")]
        name: Option<SnapshotName>,
        /// All volumes of this group, whose mirrors are broken off; with --at
        #[arg(long, value_name = "NAME", value_parser = parse_label, requires = "at")]
        group: Option<String>,
        /// A snapshot of one of them: all go back to its moment
        #[arg(long, value_name = "SNAP", value_parser = parse_label, requires = "group")]
        at: Option<String>,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Take snapshots by a timetable and let old ones go; without options, show what is set
    #[command(
        after_help = "Of each of the newest hours, days, weeks, months and years the first snapshot stays. A hook is a table \
                      of farside.toml, [hooks.NAME], with the commands freeze and thaw; what it froze is named app-TIME, everything \
                      else auto-TIME. --keep is of this site alone: replicas keep each of them, unless the mirror has a retention \
                      of its own.\n\nExamples:\n  farside snapshot schedule p/db --every 1h --keep hourly=24,daily=7\n  farside snapshot \
                      schedule p/db --schedule '0 3 * * *' --keep daily=14,monthly=12 --hook postgres\n  farside snapshot schedule\n  farside \
                      snapshot schedule p/db --off\n  farside snapshot schedule p/db p/log --every 1m --keep last=10,hourly=24"
    )]
    Schedule {
        /// POOL/VOL [default: show all]; several of one pool are taken in the same instant
        volumes: Vec<VolumeName>,
        /// Interval
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "schedule", requires = "volumes")]
        every: Option<Duration>,
        /// Timetable.
        #[command(flatten)]
        timetable: Timetable,
        /// Which snapshots stay: WORD=COUNT,… of last, hourly, daily, weekly, monthly, yearly
        #[arg(long, value_name = "WORD=COUNT,…", requires = "volumes")]
        keep: Option<String>,
        /// The hook that freezes and thaws an application, or none
        #[arg(long, value_name = "NAME", requires = "volumes")]
        hook: Option<String>,
        /// End it; what it has taken stays until you delete it
        #[arg(long, requires = "volumes", conflicts_with_all = ["every", "schedule", "keep", "hook", "plan"])]
        off: bool,
        /// Plan and consent: a smaller retention lets snapshots go.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Show where two snapshots of a volume differ
    #[command(after_help = "Example:\n  farside snapshot diff p/db@monday p/db@tuesday --json")]
    Diff {
        /// POOL/VOL@A
        from: SnapshotName,
        /// POOL/VOL@B
        to: SnapshotName,
    },
}
