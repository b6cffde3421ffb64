//! Arguments of `farside mirror`: on the destination's daemon, but for `destinations` and `release`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use farside_api::SetMirrorLink;

use super::destructive::Destructive;
use super::names::{At, PeerVolumeName, VolumeName, parse_at, parse_label};
use crate::quantities::{parse_duration, parse_size};

/// `farside mirror`.
#[derive(Debug, Subcommand)]
pub enum Mirror {
    /// Create a mirror of a peer's volume, and the volume here if it does not exist
    #[command(
        after_help = "Without --every, --schedule or --rpo, an update begins only when you ask for it.\n\nExamples:\n  farside mirror create \
                      siteA:p/db q/db --every 1m\n  farside mirror create siteA:p/db q/db --schedule '*/15 * * * *'\n  farside mirror \
                      create siteA:p/db q/db --every 1m --throttle 4MB/s,sat+sun=unlimited\n  farside mirror create siteA:p/db q/db --rpo 30s --keep \
                      hourly=24,daily=7,weekly=4"
    )]
    Create {
        /// PEER:POOL/VOL
        source: PeerVolumeName,
        /// POOL/VOL here
        destination: VolumeName,
        /// Interval of the updates, or off
        #[arg(long, value_name = "DURATION", value_parser = parse_every, conflicts_with = "schedule")]
        every: Option<Every>,
        /// Update by a timetable.
        #[command(flatten)]
        timetable: Timetable,
        /// Objective and retention.
        #[command(flatten)]
        policy: Policy,
        /// What it takes of the link.
        #[command(flatten)]
        link: Link,
        /// Do not give the source's site the right to mirror the volume back, even if it allows the way back
        #[arg(long)]
        no_reverse: bool,
        /// Succeed if the mirror is there and is as asked for; what you do not name is not compared
        #[arg(long)]
        if_absent: bool,
        /// Do not ask, also where the peer's volume is a replica of one here: then this is a copy of a copy, beside its original
        #[arg(long, short = 'y')]
        yes: bool,
    },
    /// Make the mirrors of a snapmirror.conf: schedules, throttles, windows, several paths
    #[command(
        after_help = "Each line becomes a mirror of PEER:SOURCE-POOL/VOLUME into POOL/VOLUME, whose updates begin when the line says. What has \
                      no counterpart is named. Nothing is copied yet: farside mirror initialize makes the first copies.\n\nExamples:\n  farside \
                      mirror import snapmirror.conf --source-pool tank --pool vault --plan\n  farside mirror import snapmirror.conf \
                      --source-pool tank --pool vault --destination filer2 --peer filer1=north"
    )]
    Import(Import),
    /// Change a mirror's schedule, objective, retention or use of the link
    #[command(
        after_help = "Examples:\n  farside mirror set q/db --every 10s\n  farside mirror set q/db --every off\n  farside \
                      mirror set q/db --schedule '30 2 * * MON-FRI' --time-zone Europe/Berlin\n  farside mirror set q/db --throttle \
                      4MB/s,08:00-18:00=1MB/s\n  farside mirror set q/db --priority low --window auto\n  farside mirror set q/db --rpo 30s --keep \
                      last=10,hourly=24,daily=7\n  farside mirror set q/db --keep last=3 --plan"
    )]
    Set {
        /// POOL/VOL here
        volume: VolumeName,
        /// Interval of the updates, or off
        #[arg(long, value_name = "DURATION", value_parser = parse_every, conflicts_with = "schedule")]
        every: Option<Every>,
        /// Update by a timetable.
        #[command(flatten)]
        timetable: Timetable,
        /// Objective and retention.
        #[command(flatten)]
        policy: Policy,
        /// What it takes of the link.
        #[command(flatten)]
        link: Link,
        /// Plan and consent: a smaller retention lets points go.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Make the first copy
    #[command(
        after_help = "Examples:\n  farside mirror initialize q/db --plan\n  farside mirror initialize q/db\n  farside mirror initialize \
                      --group shop"
    )]
    #[command(aliases = ["init", "initialise"])]
    Initialize {
        /// POOL/VOL here
        #[arg(required_unless_present = "group", conflicts_with = "group")]
        volume: Option<VolumeName>,
        /// All mirrors of this group that have no copy yet
        #[arg(long, value_name = "NAME", value_parser = parse_label)]
        group: Option<String>,
        /// Return at once; the work goes on in the daemon
        #[arg(long)]
        no_wait: bool,
        /// How long to wait for a lost session to come back
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
        timeout: Duration,
        /// Succeed if the first copy is there
        #[arg(long)]
        if_absent: bool,
        /// Print what would come and the room for it, and change nothing
        #[arg(long, conflicts_with = "if_absent")]
        plan: bool,
    },
    /// Bring the replica up to the source's state of this moment
    #[command(
        after_help = "Examples:\n  farside mirror update q/db\n  farside mirror update q/db --no-wait\n  farside mirror update --group shop"
    )]
    #[command(alias = "sync")]
    Update {
        /// POOL/VOL here; one of a group updates the whole group
        #[arg(required_unless_present = "group", conflicts_with = "group")]
        volume: Option<VolumeName>,
        /// All mirrors of this group, to one moment
        #[arg(long, value_name = "NAME", value_parser = parse_label)]
        group: Option<String>,
        /// Return at once; the work goes on in the daemon
        #[arg(long)]
        no_wait: bool,
        /// How long to wait for a lost session to come back
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
        timeout: Duration,
    },
    /// Wait for what was asked for last, such as an update with --no-wait
    #[command(
        after_help = "Shows its progress and ends as that command would have. If nothing was asked for since the daemon started, it \
                      waits for what goes on by itself; if nothing does, it ends at once, with status 3.\n\nExample:\n  farside mirror update q/db --no-wait && farside mirror wait q/db"
    )]
    Wait {
        /// POOL/VOL here
        volume: VolumeName,
    },
    /// Start no more transfers until resume; a running one finishes
    #[command(after_help = "Example:\n  farside mirror quiesce q/db")]
    #[command(aliases = ["pause", "stop"])]
    Quiesce {
        /// POOL/VOL here
        volume: VolumeName,
    },
    /// Start transfers again
    #[command(after_help = "Example:\n  farside mirror resume q/db")]
    #[command(alias = "start")]
    Resume {
        /// POOL/VOL here
        volume: VolumeName,
    },
    /// Stop the running or waiting transfer; the replica stays as it was. A resync that has not begun is given up; of one that
    /// has, only the transfer ends, and farside mirror break gives it up
    #[command(after_help = "Examples:\n  farside mirror abort q/db\n  farside mirror abort --group shop")]
    Abort {
        /// POOL/VOL here
        #[arg(required_unless_present = "group", conflicts_with = "group")]
        volume: Option<VolumeName>,
        /// Those of all mirrors of this group
        #[arg(long, value_name = "NAME", value_parser = parse_label)]
        group: Option<String>,
    },
    /// Make the replica writable, at its newest point or an earlier one; never asks the peer
    #[command(
        after_help = "With --at, newer content stays as a side branch. It opens over NBD, and snapshot rollback goes back to \
                      it.\n\nExamples:\n  farside mirror break q/db --plan\n  farside mirror break \
                      q/db --yes\n  farside mirror break q/db --at monday\n  farside mirror break --group shop --plan"
    )]
    #[command(aliases = ["promote", "failover", "takeover"])]
    Break {
        /// POOL/VOL here
        #[arg(required_unless_present = "group", conflicts_with = "group")]
        volume: Option<VolumeName>,
        /// All mirrors of this group, as of the newest moment that all of them have
        #[arg(long, value_name = "NAME", value_parser = parse_label)]
        group: Option<String>,
        /// Break at this snapshot of the replica, if the newest point holds the damage
        #[arg(long, value_name = "SNAP", value_parser = parse_at)]
        at: Option<At>,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Try the replica: make a writable clone of what it shows; mirroring goes on
    #[command(
        after_help = "Neither the peer nor the replica notices: no data is copied, and the clone is a volume of its own. Delete it \
                      with volume delete when the drill is over.\n\nWith --run the command gets FARSIDE_DRILL_EXPORT (the NBD URI of \
                      the clone), FARSIDE_DRILL_VOLUME (POOL/NEW) and FARSIDE_DRILL_POINT (when the data was so, RFC 3339). The clone \
                      is deleted when the command has ended, however it did; the exit status is 0 if the command's is.\n\nExamples:\n  \
                      farside mirror drill q/db\n  farside mirror drill q/db db-test --at monday\n  farside mirror drill q/db --run \
                      'nbdcopy \"$FARSIDE_DRILL_EXPORT\" /tmp/db.img && e2fsck -fn /tmp/db.img' --timeout 30m --json\n  farside mirror drill \
                      --group shop --run ./try-shop    # FARSIDE_DRILL_EXPORTS: POOL/VOL=URI, one a line"
    )]
    Drill(DrillArguments),
    /// Make the volume a replica of a peer's volume, from the newest point that both hold
    #[command(
        after_help = "Only differences travel. The volume is read-only from the start and shows its own last state until all \
                      has arrived. Its own writes then stay as the side branch POOL/VOL@rescue-TIME. After a failover, resync at \
                      the former source (with --from) makes it follow the site that took over. Resync at the broken-off replica \
                      (without --from) makes it a replica again. \
                      A replica, or a volume that was one, can follow another source (with --from): the mirror it was in is \
                      over then, and its last base stays as POOL/VOL@base-TIME.\n\nExamples:\n  farside mirror resync p/db --from siteB:q/db --plan\n  farside mirror resync \
                      p/db --from siteB:q/db --every 1m --yes\n  farside mirror resync q/db\n  farside mirror resync --group shop --plan"
    )]
    Resync {
        /// POOL/VOL here
        #[arg(required_unless_present = "group", conflicts_with = "group")]
        volume: Option<VolumeName>,
        /// All volumes of this group that are broken off, each from the one it was broken off from, or that another site has taken over
        /// into this group, each from that; then one update brings them to one moment
        #[arg(long, value_name = "NAME", value_parser = parse_label)]
        group: Option<String>,
        /// Return at once; the work goes on in the daemon
        #[arg(long, conflicts_with = "group")]
        no_wait: bool,
        /// How long to wait for a lost session to come back
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
        timeout: Duration,
        /// The peer's volume [default: the one this volume was broken off from]
        #[arg(long, value_name = "PEER:POOL/VOL", conflicts_with = "group")]
        from: Option<PeerVolumeName>,
        /// If the two have no point in common, compare everything: what is equal does not travel
        #[arg(long)]
        whole: bool,
        /// Interval of the updates from then on, or off [default: as it was]
        #[arg(long, value_name = "DURATION", value_parser = parse_every, conflicts_with = "schedule")]
        every: Option<Every>,
        /// Update by a timetable.
        #[command(flatten)]
        timetable: Timetable,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Change roles with the source; loses nothing, and hosts of both sides never write at the same time
    #[command(
        after_help = "Stop the hosts at the source first: swap is refused while they may write. If anything fails before the \
                      roles change, everything is as it was.\n\nExamples:\n  farside mirror swap q/db --plan\n  farside mirror \
                      swap q/db --yes"
    )]
    Swap {
        /// POOL/VOL here
        #[arg(required_unless_present = "group", conflicts_with = "group")]
        volume: Option<VolumeName>,
        /// All mirrors of this group, one after the other; stop the hosts first
        #[arg(long, value_name = "NAME", value_parser = parse_label)]
        group: Option<String>,
        /// Return at once; the work goes on in the daemon
        #[arg(long, conflicts_with = "group")]
        no_wait: bool,
        /// How long to wait for a lost session to come back
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
        timeout: Duration,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Show mirrors: state, lag, running transfer
    #[command(after_help = "Examples:\n  farside mirror status\n  farside mirror status q/db --json")]
    #[command(aliases = ["ls", "list"])]
    Status {
        /// POOL/VOL here
        volume: Option<VolumeName>,
        /// Directions that sleep, too: a replica that was broken off and is followed by others since
        #[arg(long)]
        all: bool,
    },
    /// Say in one line whether replicas are near enough; the exit status is 1 if one is not
    #[command(
        after_help = "Without --max-lag a replica may be as late as its objective, else three of its intervals (5m at least), else 26h. What is \
                      broken off, quiesced or was never copied is late.\n\nExit status: 0 all are near enough, 1 one is late or otherwise \
                      not as it should be, 2 wrong command line or token file, 3 a name is in no mirror. Where nothing could be told: 4 the daemon refuses the token, or \
                      who asks, 5 it cannot be reached or fails.\n\nExamples:\n  farside mirror check\n  \
                      farside mirror check --max-lag 30m q/db\n  */5 * * * * farside mirror check >/dev/null    # cron mails what is wrong"
    )]
    Check {
        /// POOL/VOL here; all if none is named
        volumes: Vec<VolumeName>,
        /// How late each may be
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        max_lag: Option<Duration>,
    },
    /// Show transfers that have ended, newest first
    #[command(
        after_help = "Examples:\n  farside mirror history q/db\n  farside mirror history q/db --levels"
    )]
    History {
        /// POOL/VOL here
        volume: Option<VolumeName>,
        /// One line for each level (known, repeat, delta, compressed, raw): bytes of the volume, bytes on the wire
        #[arg(long)]
        levels: bool,
    },
    /// Show what happened to mirrors, one event per line, newest last
    #[command(after_help = "Examples:\n  farside mirror log q/db\n  farside mirror log --limit 20 --json")]
    Log {
        /// POOL/VOL here
        volume: Option<VolumeName>,
        /// How many of the newest lines to show
        #[arg(long, value_name = "LINES", default_value = "1000")]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=30_000))]
        limit: u32,
    },
    /// At the source: show which peer holds which base of the volumes here
    #[command(after_help = "Example:\n  farside mirror destinations p/db")]
    Destinations {
        /// POOL/VOL here
        volume: Option<VolumeName>,
    },
    /// At the source: release the base kept for a peer that will not come back, and end that it has overtaken the volume
    #[command(
        after_help = "A peer that mirrors the volume more than once is refused: name one mirror by its id. Name a removed peer \
                      by the beginning of its key, and an unknown mirror by its id. mirror destinations \
                      shows both.\n\nExamples:\n  farside mirror release p/db siteB --plan\n  farside mirror release p/db siteB --yes"
    )]
    Release {
        /// POOL/VOL here
        volume: VolumeName,
        /// The peer, or the id of one mirror
        #[arg(value_parser = parse_label)]
        peer: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// End the mirror and keep the volume
    #[command(after_help = "Example:\n  farside mirror delete q/db --yes")]
    #[command(aliases = ["rm", "remove", "destroy"])]
    Delete {
        /// POOL/VOL here
        volume: VolumeName,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}

/// What `mirror import` takes.
#[derive(Clone, Debug, Args)]
pub struct Import {
    /// The file
    pub file: PathBuf,
    /// The pool of the volumes at their sources
    #[arg(long, value_name = "POOL", value_parser = parse_label)]
    pub source_pool: String,
    /// The pool of the replicas here
    #[arg(long, value_name = "POOL", value_parser = parse_label)]
    pub pool: String,
    /// What a source of the file is called here; repeat it for several [default: as in the file]
    #[arg(long = "peer", value_name = "FILER=PEER", value_parser = parse_renamed)]
    pub peers: Vec<(String, String)>,
    /// Only lines with this destination [default: all]
    #[arg(long, value_name = "FILER")]
    pub destination: Option<String>,
    /// Time zone of the timetables [default: the present zone of the daemon's system]
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<String>,
    /// Said or not: a line whose mirror is there and is as asked for is done
    #[arg(long)]
    pub if_absent: bool,
    /// Show what would be made, and make nothing
    #[arg(long)]
    pub plan: bool,
}

fn parse_renamed(text: &str) -> Result<(String, String), String> {
    let (filer, peer) = text.split_once('=').ok_or("use FILER=PEER, such as filer1=north")?;
    Ok((filer.to_owned(), parse_label(peer)?))
}

/// A timetable and its time zone.
#[derive(Clone, Debug, Args)]
pub struct Timetable {
    /// Timetable of the updates: the five fields of cron (minute, hour, day of the month, month, day of the week)
    #[arg(long, value_name = "CRON")]
    pub schedule: Option<String>,
    /// Time zone of the timetable, stored by name [default: the present zone of the daemon's system]
    #[arg(long, value_name = "ZONE", requires = "schedule", conflicts_with = "every")]
    pub time_zone: Option<String>,
}

/// How old a mirror's data may get, and how long what it brought stays.
#[derive(Clone, Debug, Args)]
pub struct Policy {
    /// How old the replica's data may get: updates begin as late as that allows
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with_all = ["every", "schedule"])]
    pub rpo: Option<Duration>,
    /// Which points stay here: the newest (last), the first of each of the newest hours, days, weeks, months, years
    /// (hourly, daily, weekly, monthly, yearly), and how many newest ones nobody may delete (floor); or none
    #[arg(long, value_name = "WORD=COUNT,…")]
    pub keep: Option<String>,
    /// The group of mirrors that are updated and broken off together (mirror break --group), or none
    #[arg(long, value_name = "NAME", value_parser = parse_label)]
    pub group: Option<String>,
}

/// What a mirror's transfers take of the link.
#[derive(Clone, Debug, Args)]
pub struct Link {
    /// Rate of this mirror, besides the limits of site and peer: RATE[,TIME=RATE]…, or unlimited (see site set). Takes
    /// effect at once
    #[arg(long, value_name = "RATE", help_heading = "Link")]
    pub throttle: Option<String>,
    /// Unacknowledged bytes that may be on the way, or auto [default: auto]; from the next transfer on
    #[arg(long, value_name = "BYTES|auto", value_parser = parse_window, help_heading = "Link")]
    pub window: Option<u64>,
    /// Whether to give way to other traffic on the path [default: normal]; from the next transfer on
    #[arg(long, value_name = "PRIORITY", help_heading = "Link")]
    pub priority: Option<Priority>,
    /// A path of this mirror, LOCAL=HOST:PORT; repeat it to use several together; off: the peer's paths [default: the
    /// peer's paths]; from the next transfer on
    #[arg(long, value_name = "LOCAL=REMOTE", help_heading = "Link")]
    pub path: Vec<String>,
}

/// Whether a mirror competes with other traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Priority {
    /// Competes as any connection does
    Normal,
    /// Gives way
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
    /// Return at once; the work goes on in the daemon
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait for a lost session to come back
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s")]
    pub timeout: Duration,
}

/// What a drill takes.
#[derive(Clone, Debug, Args)]
pub struct DrillArguments {
    /// POOL/VOL here
    #[arg(required_unless_present = "group", conflicts_with = "group")]
    pub volume: Option<VolumeName>,
    /// A clone of each replica of this group, all as of one moment
    #[arg(long, value_name = "NAME", value_parser = parse_label)]
    pub group: Option<String>,
    /// Name of the clone, NEW or POOL/NEW in the same pool [default: VOL-drill-TIME]
    #[arg(value_name = "NEW", value_parser = parse_new_volume)]
    pub new: Option<String>,
    /// Begin with this snapshot of the replica [default: the one that it shows]
    #[arg(long, value_name = "SNAP", value_parser = parse_at)]
    pub at: Option<At>,
    /// Also if part of the snapshot is known not to be readable
    #[arg(long)]
    pub even_if_damaged: bool,
    /// Run this command (by sh -c) with the clone, then delete the clone
    #[arg(long, value_name = "CMD")]
    pub run: Option<String>,
    /// How long the command may take
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "10m", requires = "run")]
    pub timeout: Duration,
    /// How long the clone stays after this program was killed
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "60s", requires = "run")]
    pub lease: Duration,
}

/// A volume to be made in a pool that is known: its name, with or without the pool.
fn parse_new_volume(text: &str) -> Result<String, String> {
    match text.contains('/') {
        true => text.parse::<VolumeName>().map(|name| name.to_string()),
        false => parse_label(text),
    }
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
    if matches!(text, "off" | "none" | "never") {
        Ok(Every::Off)
    } else {
        parse_duration(text).map(Every::At)
    }
}
