//! The words of `farside mirror`: on the destination's daemon, but for `destinations` and `release`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use farside_api::SetMirrorLink;

use super::Destructive;
use super::names::{PeerVolumeName, VolumeName, parse_label};
use crate::quantities::{parse_duration, parse_size};

/// `farside mirror`.
#[derive(Debug, Subcommand)]
pub enum Mirror {
    /// Make a mirror of a peer's volume; makes the volume here if it is not there
    #[command(
        after_help = "Without --every or --schedule, updates begin only when asked for.\n\nExamples:\n  farside mirror create \
                      siteA:p/db q/db --every 1m\n  farside mirror create siteA:p/db q/db --schedule '*/15 * * * *'\n  farside mirror \
                      create siteA:p/db q/db --every 1m --throttle 4MB/s,sat+sun=unlimited"
    )]
    Create {
        /// PEER:POOL/VOL
        source: PeerVolumeName,
        /// POOL/VOL here
        destination: VolumeName,
        /// Update at this interval
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "schedule")]
        every: Option<Duration>,
        /// Update by a timetable.
        #[command(flatten)]
        timetable: Timetable,
        /// What it takes of the link.
        #[command(flatten)]
        link: Link,
        /// Do not give the source's site the right to mirror the volume back, should it allow that way round
        #[arg(long)]
        no_reverse: bool,
    },
    /// Change a mirror, live
    #[command(
        after_help = "Examples:\n  farside mirror set q/db --every 10s\n  farside mirror set q/db --every off\n  farside \
                      mirror set q/db --schedule '30 2 * * MON-FRI' --time-zone Europe/Berlin\n  farside mirror set q/db --throttle \
                      4MB/s,08:00-18:00=1MB/s\n  farside mirror set q/db --priority low --window auto"
    )]
    Set {
        /// POOL/VOL here
        volume: VolumeName,
        /// Update at this interval, or off
        #[arg(long, value_name = "DURATION", value_parser = parse_every, conflicts_with = "schedule")]
        #[arg(required_unless_present_any = ["schedule", "throttle", "window", "priority", "path"])]
        every: Option<Every>,
        /// Update by a timetable.
        #[command(flatten)]
        timetable: Timetable,
        /// What it takes of the link.
        #[command(flatten)]
        link: Link,
    },
    /// Make the first copy
    #[command(after_help = "Example:\n  farside mirror initialize q/db")]
    Initialize(TransferArguments),
    /// Bring the replica up to date with this moment
    #[command(after_help = "Examples:\n  farside mirror update q/db\n  farside mirror update q/db --no-wait")]
    Update(TransferArguments),
    /// Start no more transfers until resume; one under way ends
    #[command(after_help = "Example:\n  farside mirror quiesce q/db")]
    Quiesce {
        /// POOL/VOL here
        volume: VolumeName,
    },
    /// Start transfers again
    #[command(after_help = "Example:\n  farside mirror resume q/db")]
    Resume {
        /// POOL/VOL here
        volume: VolumeName,
    },
    /// End the transfer that runs or waits; the replica is as it was
    #[command(after_help = "Example:\n  farside mirror abort q/db")]
    Abort {
        /// POOL/VOL here
        volume: VolumeName,
    },
    /// Make the replica writable, as of its last replicated point or an earlier one; never asks the peer
    #[command(
        after_help = "With --at, what is newer than that snapshot stays as a side branch, which opens over NBD and can be gone \
                      back to with snapshot rollback.\n\nExamples:\n  farside mirror break q/db --plan\n  farside mirror break \
                      q/db --yes\n  farside mirror break q/db --at monday"
    )]
    Break {
        /// POOL/VOL here
        volume: VolumeName,
        /// At this snapshot of the replica, when the newest point holds the damage
        #[arg(long, value_name = "SNAP", value_parser = parse_label)]
        at: Option<String>,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Make the volume the replica, again or for the first time, of a peer's volume: from the newest point that both hold
    #[command(
        after_help = "Only what differs travels. The volume is read-only from the start, and shows its own last state until all \
                      has arrived; its own writes then stay as a side branch POOL/VOL@rescue-TIME. After a failover: on the \
                      former source, with --from, the sites change roles; on the broken-off replica, without, they return to \
                      the old ones.\n\nExamples:\n  farside mirror resync p/db --from siteB:q/db --plan\n  farside mirror resync \
                      p/db --from siteB:q/db --every 1m --yes\n  farside mirror resync q/db"
    )]
    Resync {
        /// Volume, wait.
        #[command(flatten)]
        transfer: TransferArguments,
        /// The peer's volume [default: the one this volume was broken off from]
        #[arg(long, value_name = "PEER:POOL/VOL")]
        from: Option<PeerVolumeName>,
        /// Update at this interval from then on, or off [default: as it was]
        #[arg(long, value_name = "DURATION", value_parser = parse_every, conflicts_with = "schedule")]
        every: Option<Every>,
        /// Update by a timetable.
        #[command(flatten)]
        timetable: Timetable,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Change roles with the source, as planned: nothing is lost, and at no moment may hosts of both sides write
    #[command(
        after_help = "Stop the hosts at the source first: it refuses while they may write. If anything fails before the roles \
                      have changed, everything is as it was.\n\nExamples:\n  farside mirror swap q/db --plan\n  farside mirror \
                      swap q/db --yes"
    )]
    Swap {
        /// Volume, wait.
        #[command(flatten)]
        transfer: TransferArguments,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Show mirrors: state, lag, the transfer under way
    #[command(after_help = "Examples:\n  farside mirror status\n  farside mirror status q/db --json")]
    Status {
        /// POOL/VOL here
        volume: Option<VolumeName>,
    },
    /// Show transfers that have ended, newest first
    #[command(after_help = "Examples:\n  farside mirror history q/db\n  farside mirror history q/db --rungs")]
    History {
        /// POOL/VOL here
        volume: Option<VolumeName>,
        /// A line for each way that blocks took: bytes of the volume, and bytes they cost on the wire
        #[arg(long)]
        rungs: bool,
    },
    /// Show what happened, a line each: requests, starts, ends with bytes, aborts with reasons, breaks; newest last
    #[command(after_help = "Examples:\n  farside mirror log q/db\n  farside mirror log --limit 20 --json")]
    Log {
        /// POOL/VOL here
        volume: Option<VolumeName>,
        /// The newest so many lines
        #[arg(long, value_name = "LINES", default_value = "1000")]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=30_000))]
        limit: u32,
    },
    /// On the source: show who holds which base of the volumes here
    #[command(after_help = "Example:\n  farside mirror destinations p/db")]
    Destinations {
        /// POOL/VOL here
        volume: Option<VolumeName>,
    },
    /// On the source: let go of the base kept for a peer that will not come back
    #[command(
        after_help = "A peer that was removed is named by the beginning of its key, a mirror that this site does not know by its \
                      id; mirror destinations shows both.\n\nExamples:\n  farside mirror release p/db siteB --plan\n  farside mirror release p/db siteB --yes"
    )]
    Release {
        /// POOL/VOL here
        volume: VolumeName,
        /// The peer, or the id of a mirror that is not known here
        #[arg(value_parser = parse_label)]
        peer: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// End the relationship and keep the volume
    #[command(after_help = "Example:\n  farside mirror delete q/db --yes")]
    Delete {
        /// POOL/VOL here
        volume: VolumeName,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}

/// A timetable and its time zone.
#[derive(Clone, Debug, Args)]
pub struct Timetable {
    /// Update by this timetable: the five fields of cron (minute, hour, day of the month, month, day of the week)
    #[arg(long, value_name = "CRON")]
    pub schedule: Option<String>,
    /// The timetable's time zone [default: the zone of the daemon's system now; it is stored by name]
    #[arg(long, value_name = "ZONE", requires = "schedule", conflicts_with = "every")]
    pub time_zone: Option<String>,
}

/// What a mirror's transfers take of the link.
#[derive(Clone, Debug, Args)]
pub struct Link {
    /// What may come of it, bytes on the wire: RATE[,TIME=RATE]…, or unlimited; the limits of site and peer hold too. A
    /// transfer under way heeds it at once
    #[arg(long, value_name = "RATE", help_heading = "Link")]
    pub throttle: Option<String>,
    /// How much may be on its way, unacknowledged: bytes, or auto [default: auto]; from the next transfer on
    #[arg(long, value_name = "BYTES|auto", value_parser = parse_window, help_heading = "Link")]
    pub window: Option<u64>,
    /// Low gives way to other traffic on the same path [default: normal]; from the next transfer on
    #[arg(long, value_name = "PRIORITY", help_heading = "Link")]
    pub priority: Option<Priority>,
    /// From which address here to which of the peer's, LOCAL=HOST:PORT; several are used together; off: the peer's
    /// [default: the peer's]; from the next transfer on
    #[arg(long, value_name = "LOCAL=REMOTE", help_heading = "Link")]
    pub path: Vec<String>,
}

/// Whether a mirror competes with other traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Priority {
    /// As any connection does.
    Normal,
    /// It gives way.
    Low,
}

impl Link {
    /// As a request has it; none if nothing was said.
    pub fn request(self) -> Option<SetMirrorLink> {
        let is_off = self.path == ["off"];
        let link = SetMirrorLink {
            throttle: self.throttle,
            window_bytes: self.window,
            low_priority: self.priority.map(|priority| priority == Priority::Low),
            paths: (!self.path.is_empty()).then(|| if is_off { Vec::new() } else { self.path }),
        };
        (link != SetMirrorLink::default()).then_some(link)
    }
}

/// A window in bytes; 0 is auto.
fn parse_window(text: &str) -> Result<u64, String> {
    match text {
        "auto" => Ok(0),
        _ => match parse_size(text) {
            Ok(0) => Err(String::from("a window has at least 64K; auto finds the right one")),
            other => other.map_err(|_| String::from("use bytes, such as 72K or 1M, or auto")),
        },
    }
}

/// What a verb takes that transfers.
#[derive(Clone, Debug, Args)]
pub struct TransferArguments {
    /// POOL/VOL here
    pub volume: VolumeName,
    /// Return at once; the daemon goes on
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait for a lost session to come back
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
    pub timeout: Duration,
}

/// An update interval, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Every {
    /// Only when asked.
    Off,
    /// At this interval.
    At(Duration),
}

impl Every {
    /// As a request has it: 0 for none.
    pub fn seconds(self) -> f64 {
        match self {
            Every::Off => 0.0,
            Every::At(interval) => interval.as_secs_f64(),
        }
    }
}

fn parse_every(text: &str) -> Result<Every, String> {
    if text == "off" { Ok(Every::Off) } else { parse_duration(text).map(Every::At) }
}
