//! Arguments of `farside host`.

use std::path::PathBuf;

use clap::Subcommand;

use super::destructive::Destructive;
use super::names::{VolumeName, parse_label};

/// `farside host`.
#[derive(Debug, Subcommand)]
pub enum Host {
    /// Add a host, and write its certificate and key to a directory
    #[command(
        after_help = "Writes ca-cert.pem, client-cert.pem and client-key.pem, as QEMU, libnbd and nbd-client take them. Carry \
                      them to the host over a channel you trust, then delete them here: whoever has the key is that host. \
                      The site keeps no copy. Certificates are good for 10 years. Where farside.toml names certificates of \
                      your own, nothing is written: the host's name is the common name in its certificate.\n\nExamples:\n  farside host add web1\n  \
                      farside host add web1 --directory /root/web1"
    )]
    #[command(aliases = ["create", "new"])]
    Add {
        /// The host's name
        #[arg(value_parser = parse_label)]
        name: String,
        /// Directory for the three files; made if it is not there, in one that is [default: NAME, here]
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Succeed if the host is there, and write nothing: its key was told once
        #[arg(long)]
        if_absent: bool,
    },
    /// List hosts
    #[command(after_help = "Example:\n  farside host list --json")]
    #[command(alias = "ls")]
    List,
    /// Show one host, what it may open and what it has open
    #[command(after_help = "Example:\n  farside host status web1")]
    Status {
        /// The host
        #[arg(value_parser = parse_label)]
        name: String,
    },
    /// Remove a host; its connections are cut at once, and its certificate is refused from then on
    #[command(after_help = "Examples:\n  farside host remove web1 --plan\n  farside host remove web1 --yes")]
    #[command(aliases = ["rm", "delete"])]
    Remove {
        /// The host
        #[arg(value_parser = parse_label)]
        name: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Let a host open volumes, and read their snapshots
    #[command(
        after_help = "The right belongs to the volume: it follows a rename and ends with the volume. A right that is there is \
                      replaced; with --read-only, connections that may write are cut.\n\nExamples:\n  farside host allow web1 p/web\n  \
                      farside host allow backup p/web p/db --read-only"
    )]
    #[command(alias = "grant")]
    Allow {
        /// The host
        #[arg(value_parser = parse_label)]
        name: String,
        /// POOL/VOL
        #[arg(required = true)]
        volumes: Vec<VolumeName>,
        /// Without the right to write
        #[arg(long)]
        read_only: bool,
    },
    /// Take rights back; what the host has open of these volumes is cut at once
    #[command(after_help = "Example:\n  farside host deny web1 p/web")]
    #[command(aliases = ["revoke", "disallow"])]
    Deny {
        /// The host
        #[arg(value_parser = parse_label)]
        name: String,
        /// POOL/VOL
        #[arg(required = true)]
        volumes: Vec<VolumeName>,
    },
}
