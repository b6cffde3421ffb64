//! Every noun and verb, and their help. One definition feeds parsing, help, man pages and completions.

#![allow(rustdoc::broken_intra_doc_links, reason = "these are help texts, in which [:PORT] is no link")]

pub mod accelerator;
pub mod access;
pub mod alarm;
pub mod daemon;
pub mod destructive;
pub mod host;
pub mod mirror;
pub mod names;
pub mod peer;
pub mod pool;
pub mod site;
pub mod snapshot;
pub mod volume;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::arguments::names::parse_label;
use crate::client::{Network, Way};
use crate::quantities::parse_duration;

/// Storage volumes mirrored to a far site.
#[derive(Debug, Parser)]
#[command(
    name = "farside",
    version,
    about = "Storage volumes mirrored to a far site",
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = "Exit codes: 0 done, 1 failed (reason on stderr), 2 wrong usage, 3 not found, 4 refused in this \
                  state, 5 daemon unreachable.\n\nExamples:\n  farside pool create p --path /srv/farside/p.pool --size 100G\n  \
                  farside volume create p/db --size 20G\n  farside mirror create siteA:p/db q/db --every 1m\n  \
                  farside mirror status --json"
)]
pub struct Arguments {
    /// How the daemon is found, and what output looks like.
    #[command(flatten)]
    pub connection: Connection,
    /// The noun.
    #[command(subcommand)]
    pub noun: Noun,
}

/// How the daemon is found, and what output looks like.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// The daemon's data directory; its control socket is DIR/farside.sock [default: /var/lib/farside]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Daemon")]
    pub data_dir: Option<PathBuf>,
    /// The daemon's control socket [default: the one that FARSIDE_SOCKET names]
    #[arg(long, value_name = "PATH", global = true, conflicts_with = "data_dir", help_heading = "Daemon")]
    pub socket: Option<PathBuf>,
    /// Another site: a peer that lets this one look (see peer set --role); asked through the daemon, over its session
    #[arg(long, value_name = "PEER", global = true, value_parser = parse_label, help_heading = "Daemon")]
    pub site: Option<String>,
    /// Print one JSON document to stdout and nothing else
    #[arg(long, global = true)]
    pub json: bool,
    /// The daemon's API over HTTPS [default: the one that FARSIDE_API names]
    #[arg(
        long,
        value_name = "https://HOST:PORT",
        global = true,
        conflicts_with_all = ["data_dir", "socket"],
        help_heading = "Daemon"
    )]
    pub api: Option<String>,
    /// With --api: the file with the token [default: the one that FARSIDE_TOKEN_FILE names; else the token in FARSIDE_TOKEN]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Daemon")]
    pub token_file: Option<PathBuf>,
    /// With --api: SHA-256 of the daemon's certificate [default: FARSIDE_API_FINGERPRINT]
    #[arg(long, value_name = "HEX", global = true, conflicts_with = "ca_file", help_heading = "Daemon")]
    pub fingerprint: Option<String>,
    /// With --api: who has signed the daemon's certificate, PEM [default: the file that FARSIDE_API_CA names]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Daemon")]
    pub ca_file: Option<PathBuf>,
}

/// Where the daemon keeps its data unless told otherwise.
pub const DATA_DIR_DEFAULT: &str = "/var/lib/farside";

/// The control socket's name in the data directory.
const SOCKET_NAME: &str = "farside.sock";

impl Connection {
    /// The data directory: of `--data-dir`, else where the control socket lies.
    pub fn data_dir_path(&self) -> PathBuf {
        let beside = || self.socket_path().parent().map(PathBuf::from);
        self.data_dir.clone().or_else(beside).unwrap_or_else(|| PathBuf::from(DATA_DIR_DEFAULT))
    }

    /// How the daemon is reached. A word on the command line beats the environment, and there FARSIDE_API beats FARSIDE_SOCKET.
    pub fn way(&self) -> Way {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let socket_is_named = self.socket.is_some() || self.data_dir.is_some();
        let url = self.api.clone().or_else(|| variable("FARSIDE_API").filter(|_| !socket_is_named));
        let Some(url) = url else { return Way::Socket(self.socket_path()) };
        let named = self.fingerprint.is_some() || self.ca_file.is_some();
        let unless_named = |name: &str| variable(name).filter(|_| !named);
        Way::Network(Network {
            url,
            token_file: self.token_file.clone().or_else(|| variable("FARSIDE_TOKEN_FILE").map(PathBuf::from)),
            fingerprint: self.fingerprint.clone().or_else(|| unless_named("FARSIDE_API_FINGERPRINT")),
            ca_file: self.ca_file.clone().or_else(|| unless_named("FARSIDE_API_CA").map(PathBuf::from)),
        })
    }

    /// The control socket: of `--socket` or `--data-dir`, else `FARSIDE_SOCKET`, else that of the default directory.
    pub fn socket_path(&self) -> PathBuf {
        let given = self.socket.clone().or_else(|| self.data_dir.as_ref().map(|dir| dir.join(SOCKET_NAME)));
        given
            .or_else(|| std::env::var_os("FARSIDE_SOCKET").map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from(DATA_DIR_DEFAULT).join(SOCKET_NAME))
    }
}

/// What a command is about.
#[derive(Debug, Subcommand)]
pub enum Noun {
    /// Pools: files or raw devices that hold volumes
    #[command(subcommand, arg_required_else_help = true)]
    Pool(pool::Pool),
    /// Volumes: thin, served over NBD
    #[command(subcommand, arg_required_else_help = true)]
    Volume(volume::Volume),
    /// Snapshots of volumes
    #[command(subcommand, arg_required_else_help = true)]
    Snapshot(snapshot::Snapshot),
    /// Make a writable volume that begins as a snapshot, of a replica too
    #[command(
        after_help = "No data is copied: it takes as long whatever the size, and room only for what is written afterwards. The \
                      clone is a volume like any other. Neither needs the other from then on: the snapshot, or the whole volume it \
                      is of, can be deleted.\n\nExamples:\n  farside clone p/db@monday p/db-test\n  farside clone q/db@monday q/db-test \
                      --json    # q/db is a replica: its mirror goes on\n  farside volume delete p/db-test"
    )]
    Clone {
        /// POOL/VOL@SNAP
        snapshot: names::SnapshotName,
        /// POOL/NEW, in the same pool
        new: names::VolumeName,
        /// Also if part of the snapshot is known not to be readable
        #[arg(long)]
        even_if_damaged: bool,
    },
    /// Hosts: machines that open volumes over the network
    #[command(subcommand, arg_required_else_help = true)]
    Host(host::Host),
    /// Peers: other sites this one is paired with
    #[command(subcommand, arg_required_else_help = true)]
    Peer(peer::Peer),
    /// This site: its limits and its queue of transfers
    #[command(subcommand, arg_required_else_help = true)]
    Site(site::Site),
    /// Mirrors: volumes here that follow a peer's volume
    #[command(subcommand, arg_required_else_help = true)]
    Mirror(mirror::Mirror),
    /// Alarms: what is wrong, since when, and what to do
    #[command(subcommand, arg_required_else_help = true)]
    Alarm(alarm::Alarm),
    /// Tokens: what programs use the API over HTTPS with
    #[command(subcommand, arg_required_else_help = true)]
    Token(access::Token),
    /// Accounts: people who log in to the API over HTTPS with a password
    #[command(subcommand, arg_required_else_help = true)]
    Account(access::Account),
    /// Destructive requests that came over HTTPS and wait, so that somebody may stop them
    #[command(subcommand, arg_required_else_help = true)]
    Delayed(access::Delayed),
    /// Who changed what, from where, and what came of it: newest first
    #[command(
        after_help = "Every change through the API is written down before it begins, whoever asks for it. The daemon keeps entries \
                      for 400 days, and 500,000 at most.\n\nExamples:\n  farside audit --last 24h\n  farside audit --who 'token backup' --json"
    )]
    Audit(access::Audit),
    /// The accelerator: TCP connections between hosts of two sites
    #[command(subcommand, arg_required_else_help = true)]
    Accel(accelerator::Accelerator),
    /// One page about this site: its peers, pools and mirrors, and what is wrong
    #[command(after_help = "Example:\n  farside status")]
    Status,
    /// The same page again and again, until Ctrl-C: the mirrors whose data is nearest to being too old come first
    #[command(after_help = "Examples:\n  farside top\n  farside top --every 10s")]
    Top {
        /// How often
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "2s")]
        every: Duration,
    },
    /// The daemon's configuration
    #[command(subcommand, arg_required_else_help = true)]
    Config(Config),
    /// Pack what someone needs to help you into one file, without secrets
    #[command(
        after_help = "Contains versions, configuration, log lines, listings, history and metrics. Contains no keys, pairing \
                      codes or data. If the daemon does not answer, it packs what lies in the data directory: name it with \
                      --data-dir.\n\nExamples:\n  farside support-bundle\n  farside support-bundle --output \
                      /tmp/siteA.tar.gz"
    )]
    SupportBundle {
        /// The file to write; it must not exist yet [default: farside-support-SITE-TIME.tar.gz in this directory]
        #[arg(long, value_name = "FILE.tar.gz")]
        output: Option<PathBuf>,
    },
    /// Print shell completions
    #[command(after_help = "Example:\n  farside completions bash > /etc/bash_completion.d/farside")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write all of them to a directory
    #[command(
        after_help = "Examples:\n  farside man | man -l -\n  farside man --to /usr/local/share/man/man1"
    )]
    Man {
        /// Write one page per command into this directory
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
}

/// `farside config`.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show the daemon's configuration and its addresses
    #[command(after_help = "Example:\n  farside config show --json")]
    Show,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
        daemon::DaemonArguments::command().debug_assert();
    }

    #[test]
    fn the_words_that_people_try_are_there() {
        for (tried, meant) in [
            ("token ls", "token list"),
            ("token rm t", "token revoke t"),
            ("token delete t", "token revoke t"),
            ("token add t --role viewer", "token create t --role viewer"),
            ("account ls", "account list"),
            ("account rm a", "account remove a"),
            ("account add a --role viewer", "account create a --role viewer"),
            ("delayed ls", "delayed list"),
            ("host ls", "host list"),
            ("host create h", "host add h"),
            ("host rm h", "host remove h"),
            ("host delete h", "host remove h"),
            ("host revoke h p/v", "host deny h p/v"),
            ("host grant h p/v", "host allow h p/v"),
            ("peer revoke s p/v", "peer deny s p/v"),
            ("peer add h:7440", "peer join h:7440"),
            ("alarm ls", "alarm list"),
            ("alarm acknowledge 1", "alarm ack 1"),
            ("site ls", "site list"),
        ] {
            let read = |text: &str| {
                let words = std::iter::once("farside").chain(text.split(' '));
                let read = Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{text}: {error}"));
                format!("{:?}", read.noun)
            };
            assert_eq!(read(tried), read(meant), "{tried}");
        }
    }

    #[test]
    fn every_verb_has_an_example() {
        fn walk(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            if command.get_subcommands().next().is_none() {
                let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(after.contains("Example"), "{path} has no example");
            }
            command.get_subcommands().for_each(|inner| walk(inner, &path));
        }
        walk(&Arguments::command(), "");
    }
}
