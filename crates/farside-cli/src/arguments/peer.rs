//! The words of `farside peer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};

use super::Destructive;
use super::names::{VolumeName, parse_label};
use crate::quantities::parse_duration;

/// See `farside_api::PathsMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PathsMode {
    /// All at once
    Multiplex,
    /// The first that works, and back to it when it works again
    Failover,
}

/// `farside peer`.
#[derive(Debug, Subcommand)]
pub enum Peer {
    /// Print a code with which one other site can pair with this one
    #[command(
        after_help = "The code is worth a pairing to whoever has it: carry it over a channel you trust.\n\nExample:\n  farside peer \
                      invite --valid 15m"
    )]
    Invite {
        /// How long the code can be used
        #[arg(long, value_parser = parse_duration, default_value = "15m")]
        valid: Duration,
    },
    /// Pair with a site that has invited this one
    #[command(
        after_help = "The code is read from a prompt, from stdin or from a file; it is never an argument, where every user of \
                      the machine could read it.\n\nExamples:\n  farside peer join siteA.example:7440\n  farside peer join \
                      siteA.example:7440 --code-file invite.txt --name siteA"
    )]
    Join {
        /// HOST:PORT of the other site
        #[arg(value_name = "HOST:PORT")]
        address: String,
        /// Read the code from this file
        #[arg(long, value_name = "FILE")]
        code_file: Option<PathBuf>,
        /// What the peer shall be called here [default: its own name]
        #[arg(long, value_name = "LOCAL_NAME", value_parser = parse_label)]
        name: Option<String>,
    },
    /// List peers
    #[command(after_help = "Example:\n  farside peer list --json")]
    List,
    /// Show one peer and its rights
    #[command(after_help = "Example:\n  farside peer status siteA")]
    Status {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
    },
    /// Change how a peer is reached, what it is called here, or what may be sent either way
    #[command(
        after_help = "All of it holds at once; transfers under way go on. --path names the pairs of addresses over which the peer is \
                      reached, all of them, in the order of preference; it has effect at the site that dials.\n\nExamples:\n  \
                      farside peer set siteA --address siteA.example:7440\n  farside peer set siteA --path \
                      10.0.1.1=10.0.1.2:7440 --path 10.0.2.1=10.0.2.2:7440 --paths failover\n  farside peer set siteA --rate \
                      10Mb/s --dscp 10\n  farside peer set siteA --name north\n  farside peer set siteA \
                      --throttle-in 2MB/s --throttle-out 4MB/s,mon-fri@08:00-18:00=1MB/s"
    )]
    #[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
    Set {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
        /// Where it is dialled; off: it dials us
        #[arg(long, value_name = "HOST:PORT", group = "change")]
        address: Option<String>,
        /// What it shall be called here
        #[arg(long, value_name = "LOCAL_NAME", value_parser = parse_label, group = "change")]
        name: Option<String>,
        /// A path to it: from which address here to which there; once for each path; off: the address alone
        #[arg(long = "path", value_name = "LOCAL=HOST:PORT", group = "change")]
        path: Vec<String>,
        /// How several paths are used: all at once, or the first that works
        #[arg(long, value_name = "MODE", group = "change")]
        paths: Option<PathsMode>,
        /// Mark its packets for quality of service: a DSCP from 1 to 63; 0: no mark
        #[arg(long, value_name = "N", group = "change")]
        dscp: Option<u8>,
        /// The rate that was contracted, such as 10Mb/s: what is sent to it over all connections and paths keeps below; unlimited: none
        #[arg(long, value_name = "RATE", group = "change")]
        rate: Option<String>,
        /// What it may send here, bytes on the wire: RATE[,TIME=RATE]…, or unlimited
        #[arg(long, value_name = "RATE", group = "change")]
        throttle_in: Option<String>,
        /// What may be sent to it: RATE[,TIME=RATE]…, or unlimited
        #[arg(long, value_name = "RATE", group = "change")]
        throttle_out: Option<String>,
    },
    /// End the pairing: the peer is unknown from now on
    #[command(
        after_help = "Examples:\n  farside peer remove siteA --plan\n  farside peer remove siteA --yes"
    )]
    Remove {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Let a peer mirror volumes of this site
    #[command(
        after_help = "The volumes need not exist yet. --reverse also lets the peer's volume become a replica of ours: the way \
                      back after a failover. With --fence, should the peer ever take the volume over, hosts here \
                      cannot write to it any more as soon as this site hears of it, so that there are no two \
                      originals. What is not given is taken back.\n\nExample:\n  farside peer allow siteB p/db \
                      --reverse --fence"
    )]
    Allow {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
        /// POOL/VOL
        #[arg(required = true)]
        volumes: Vec<VolumeName>,
        /// Also the way back
        #[arg(long)]
        reverse: bool,
        /// Refuse host writes here once the peer has overtaken the volume
        #[arg(long)]
        fence: bool,
    },
    /// Take rights away; a transfer under way ends at its next step
    #[command(after_help = "Example:\n  farside peer deny siteB p/db")]
    Deny {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
        /// POOL/VOL
        #[arg(required = true)]
        volumes: Vec<VolumeName>,
    },
}
