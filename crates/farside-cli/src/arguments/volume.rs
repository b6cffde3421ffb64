//! Arguments of `farside volume`.

use clap::Subcommand;

use super::destructive::Destructive;
use super::names::{VolumeName, parse_label};
use crate::quantities::parse_size;

/// `farside volume`.
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Create a thin volume
    #[command(after_help = "Example:\n  farside volume create p/db --size 10G")]
    Create {
        /// POOL/VOL
        name: VolumeName,
        /// Size of the volume, a multiple of 4096 bytes
        #[arg(long, value_parser = parse_size)]
        size: u64,
    },
    /// List volumes
    #[command(after_help = "Example:\n  farside volume list --json")]
    List {
        /// Only volumes of this pool
        #[arg(value_parser = parse_label)]
        pool: Option<String>,
    },
    /// Show one volume
    #[command(after_help = "Example:\n  farside volume status p/db")]
    Status {
        /// POOL/VOL
        name: VolumeName,
    },
    /// Change a volume's size
    #[command(
        after_help = "Shrinking discards everything beyond the new end.\n\nExamples:\n  farside volume resize p/db --size 20G\n  \
                      farside volume resize p/db --size 5G --plan"
    )]
    Resize {
        /// POOL/VOL
        name: VolumeName,
        /// The new size, a multiple of 4096 bytes
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Rename a volume within its pool
    #[command(after_help = "Example:\n  farside volume rename p/db p/db-old")]
    Rename {
        /// POOL/VOL
        name: VolumeName,
        /// POOL/NEW, in the same pool
        new: VolumeName,
    },
    /// Delete a volume and its snapshots
    #[command(
        after_help = "Examples:\n  farside volume delete p/db --plan\n  farside volume delete p/db --yes"
    )]
    Delete {
        /// POOL/VOL
        name: VolumeName,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}
