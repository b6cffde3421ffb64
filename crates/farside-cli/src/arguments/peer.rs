//! Arguments of `farside peer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use farside_api::is_code;

use super::destructive::Destructive;
use super::names::{VolumeName, parse_label};
use crate::quantities::parse_duration;

/// See `farside_api::PathsMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PathsMode {
    /// All paths at once
    Multiplex,
    /// The first path that works, and back to it when it works again
    Failover,
}

/// Where sites meet unless somebody says otherwise.
const PEER_PORT: u16 = 7440;

/// An address with its port. An IPv6 address without a port stands alone, or in brackets.
fn parse_address(text: &str) -> Result<String, String> {
    // What is wrong with an argument is said with the argument, and a code is a secret: the command refuses it, without it.
    if is_code(text) {
        return Ok(text.to_owned());
    }
    if text.contains("://") {
        return Err("leave out what stands before the host: HOST:PORT, or HOST alone".into());
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<std::net::Ipv6Addr>() {
        return Ok(format!("[{address}]:{PEER_PORT}"));
    }
    match text.rsplit_once(':') {
        None if text.is_empty() || text.contains(['/', ' ']) => Err("this is no address".into()),
        None => Ok(format!("{text}:{PEER_PORT}")),
        Some((_, port)) if port.parse::<u16>().is_err() => Err(format!("{port:?} is no port")),
        Some(("", _)) => Err("the host is missing".into()),
        Some(_) => Ok(text.to_owned()),
    }
}

/// `farside peer`.
#[derive(Debug, Subcommand)]
pub enum Peer {
    /// Print a code with which one other site can pair with this site
    #[command(
        after_help = "Whoever has the code first can pair. Carry it over a channel you trust.\n\nExample:\n  farside peer \
                      invite --valid 15m\n  farside peer invite --list\n  farside peer invite --cancel 5fa01b22"
    )]
    Invite {
        /// How long the code is valid
        #[arg(long, value_parser = parse_duration, default_value = "15m")]
        valid: Duration,
        /// Show the invitations that can still be used; their codes are shown only once, to whoever made them
        #[arg(long, conflicts_with_all = ["valid", "cancel"])]
        list: bool,
        /// Take back the invitation of this id
        #[arg(long, value_name = "ID", conflicts_with = "valid")]
        cancel: Option<String>,
    },
    /// Pair with a site that has invited this site
    #[command(
        after_help = "Reads the code from a prompt, from stdin or from a file. The code is never an argument, because every \
                      user of the machine can read arguments.\n\nExamples:\n  farside peer join siteA.example:7440\n  farside peer join \
                      siteA.example:7440 --code-file invite.txt --name siteA"
    )]
    #[command(alias = "add")]
    Join {
        /// Address of the other site; the port is 7440 if you name none
        #[arg(value_name = "HOST[:PORT]", value_parser = parse_address)]
        address: String,
        /// Read the code from this file
        #[arg(long, value_name = "FILE")]
        code_file: Option<PathBuf>,
        /// The peer's name at this site [default: its own name]
        #[arg(long, value_name = "LOCAL_NAME", value_parser = parse_label)]
        name: Option<String>,
        /// Succeed, and read no code, if a peer of that name or address is paired already
        #[arg(long)]
        if_absent: bool,
    },
    /// List peers
    #[command(after_help = "Example:\n  farside peer list --json")]
    #[command(alias = "ls")]
    List,
    /// Show one peer and its rights
    #[command(after_help = "Example:\n  farside peer status siteA")]
    Status {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
    },
    /// Change a peer's addresses, its name, or its limits; takes effect at once
    #[command(
        after_help = "Running transfers go on. --path names the pairs of addresses that reach the peer. Name all of them, in \
                      order of preference, at the site that dials.\n\nExamples:\n  \
                      farside peer set siteA --address siteA.example:7440\n  farside peer set siteA --path \
                      10.0.1.1=10.0.1.2:7440 --path 10.0.2.1=10.0.2.2:7440 --paths failover\n  farside peer set siteA --rate \
                      10Mb/s --dscp 10\n  farside peer set siteA --keepalive 5m\n  farside peer set siteA --name north\n  farside peer set siteA \
                      --throttle-in 2MB/s --throttle-out 4MB/s,mon-fri@08:00-18:00=1MB/s"
    )]
    #[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
    Set {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
        /// Address to dial; off: wait to be dialled
        #[arg(long, value_name = "HOST:PORT", group = "change")]
        address: Option<String>,
        /// The peer's name at this site
        #[arg(long, value_name = "LOCAL_NAME", value_parser = parse_label, group = "change")]
        name: Option<String>,
        /// A path: an address of this host and one of the peer; repeat for each path; off: only --address
        #[arg(long = "path", value_name = "LOCAL=HOST:PORT", group = "change")]
        path: Vec<String>,
        /// How to use several paths
        #[arg(long, value_name = "MODE", group = "change")]
        paths: Option<PathsMode>,
        /// DSCP mark of packets to the peer, from 1 to 63; 0: no mark
        #[arg(long, value_name = "N", group = "change")]
        dscp: Option<u8>,
        /// Committed rate (CIR), such as 9.6Mbit/s: all connections and paths to the peer together stay below it; or unlimited
        #[arg(long, value_name = "RATE", group = "change")]
        rate: Option<String>,
        /// How often a quiet session asks for a sign of life, 2s to 10m; the longer of what both sites say counts [default: 2s]
        #[arg(long, value_name = "TIME", value_parser = parse_duration, group = "change")]
        keepalive: Option<Duration>,
        /// Rate at which the peer may send to this site: RATE[,TIME=RATE]…, or unlimited (see site set)
        #[arg(long, value_name = "RATE", group = "change")]
        throttle_in: Option<String>,
        /// Rate at which this site may send to the peer: RATE[,TIME=RATE]…, or unlimited (see site set)
        #[arg(long, value_name = "RATE", group = "change")]
        throttle_out: Option<String>,
        /// What the peer's administrators may do at this site, over the session: none, viewer or operator
        #[arg(long, value_name = "ROLE", group = "change")]
        role: Option<String>,
    },
    /// End the pairing; the peer's sessions and transfers end at once
    #[command(
        after_help = "Examples:\n  farside peer remove siteA --plan\n  farside peer remove siteA --yes"
    )]
    #[command(aliases = ["rm", "delete"])]
    Remove {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Take a newly paired peer for a site that lost its key or changed it: its mirrors go on
    #[command(
        after_help = "Pair with the site anew first, under another name; then say here whose place it takes. Mirrors in both \
                      directions, rights and limits go over to the new key, and nothing is copied again. Be sure that it is \
                      that site: the new key may do what the old one might. Instead of a name, OLD may be the beginning of a \
                      key, as mirror status shows it for a site that is not paired any more.\n\nExamples:\n  farside peer join \
                      siteA.example:7440 --name siteA-new\n  farside peer rekey siteA siteA-new --plan\n  farside peer \
                      rekey siteA siteA-new --yes"
    )]
    Rekey {
        /// The peer whose key is lost
        #[arg(value_name = "OLD", value_parser = parse_label)]
        peer: String,
        /// The peer that takes its place, and its name
        #[arg(value_name = "NEW", value_parser = parse_label)]
        with: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Let a peer mirror volumes of this site
    #[command(
        after_help = "The volumes need not exist yet. --reverse also allows the way back after a failover: the volume here \
                      may become a replica of the peer's. --fence stops host writes to the volume here as soon as this site \
                      is notified that the peer took it over, so that there are not two originals. A flag that you do not give \
                      is taken back.\n\nExample:\n  farside peer allow siteB p/db \
                      --reverse --fence"
    )]
    #[command(alias = "grant")]
    Allow {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
        /// POOL/VOL
        #[arg(required = true)]
        volumes: Vec<VolumeName>,
        /// Also allow the way back
        #[arg(long)]
        reverse: bool,
        /// Refuse host writes here once the peer took the volume over
        #[arg(long)]
        fence: bool,
    },
    /// Take rights back; a running transfer ends at its next step
    #[command(after_help = "Example:\n  farside peer deny siteB p/db")]
    #[command(aliases = ["revoke", "disallow"])]
    Deny {
        /// The peer
        #[arg(value_parser = parse_label)]
        peer: String,
        /// POOL/VOL
        #[arg(required = true)]
        volumes: Vec<VolumeName>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_in_the_place_of_an_address_is_not_repeated_by_the_parser() {
        for code in ["farside1_ab_cd_ef", " farside1_ab_cd_ef\n", "FARSIDE1_ab/cd"] {
            assert_eq!(parse_address(code).as_deref(), Ok(code));
        }
    }

    #[test]
    fn a_site_is_met_at_the_default_port_unless_another_is_named() {
        let read = |text| parse_address(text).unwrap();
        assert_eq!(read("127.0.0.1"), "127.0.0.1:7440");
        assert_eq!(read("north.example"), "north.example:7440");
        assert_eq!(read("north.example:7500"), "north.example:7500");
        assert_eq!(read("fd00::1"), "[fd00::1]:7440");
        assert_eq!(read("[fd00::1]"), "[fd00::1]:7440");
        assert_eq!(read("[fd00::1]:7500"), "[fd00::1]:7500");
        for wrong in ["", "north:", "north:port", ":7440", "a/b", "north:77440"] {
            assert!(parse_address(wrong).is_err(), "{wrong:?}");
        }
    }
}
