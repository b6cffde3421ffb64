//! The words of `farside pool`.

use std::path::PathBuf;

use clap::Subcommand;

use super::Destructive;
use super::names::parse_label;
use crate::quantities::parse_size;

/// `farside pool`.
#[derive(Debug, Subcommand)]
pub enum Pool {
    /// Make a pool in a new file or on a raw device
    #[command(
        after_help = "Examples:\n  farside pool create p --path /srv/farside/p.pool --size 100G\n  farside pool create p --path /dev/vdb"
    )]
    Create {
        /// Its name
        #[arg(value_parser = parse_label)]
        name: String,
        /// A file that does not exist yet, or a raw device
        #[arg(long, value_name = "FILE_OR_DEVICE")]
        path: PathBuf,
        /// Size of the file; a device has its own
        #[arg(long, value_parser = parse_size)]
        size: Option<u64>,
    },
    /// Take over a pool that exists, by its file or device
    #[command(
        after_help = "Use it when a disk was carried here, or when the state database was lost: volumes, snapshots and \
                      replicas are in the pool itself.\n\nExample:\n  farside pool import p --path /srv/farside/p.pool"
    )]
    Import {
        /// The name it shall have here
        #[arg(value_parser = parse_label)]
        name: String,
        /// The file or device
        #[arg(long, value_name = "FILE_OR_DEVICE")]
        path: PathBuf,
    },
    /// List pools
    #[command(after_help = "Example:\n  farside pool list --json")]
    List,
    /// Show one pool, or all
    #[command(after_help = "Example:\n  farside pool status p")]
    Status {
        /// The pool
        #[arg(value_parser = parse_label)]
        name: Option<String>,
    },
    /// Verify a pool offline: every node, every block, every count
    #[command(
        after_help = "Reads the file or device itself, without the daemon, and changes nothing. The daemon must not have the \
                      pool open.\n\nExamples:\n  farside pool check /srv/farside/p.pool\n  farside pool check p"
    )]
    Check {
        /// The pool's file or device, or the name of a pool of the daemon
        #[arg(value_name = "FILE_OR_NAME")]
        pool: String,
        /// Read metadata only, about 1 % of the pool: damaged data blocks are not found
        #[arg(long)]
        quick: bool,
    },
    /// Delete a pool and everything in it
    #[command(after_help = "Examples:\n  farside pool delete p --plan\n  farside pool delete p --yes")]
    Delete {
        /// The pool
        #[arg(value_parser = parse_label)]
        name: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}
