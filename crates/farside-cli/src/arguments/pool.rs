//! Arguments of `farside pool`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::destructive::Destructive;
use super::names::parse_label;
use crate::quantities::parse_size;

/// What keeps the volumes of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, ValueEnum)]
pub enum Engine {
    /// farside's own store, in a file or on a raw device
    #[default]
    Embedded,
    /// A pool of Ceph RBD, with the images that are in it
    Rbd,
}

/// `farside pool`.
#[derive(Debug, Subcommand)]
pub enum Pool {
    /// Create a pool in a new file or on a raw device
    #[command(
        after_help = "Examples:\n  farside pool create p --path /srv/farside/p.pool --size 100G\n  farside pool create c --engine rbd --rbd-pool volumes\n  farside pool create p --path /dev/vdb --plan\n  farside pool create p --path /dev/vdb\n\nA device that is not blank is refused, and what is recognised on it is named: file systems, LVM, md, LUKS, partition tables, swap, other pools. --overwrite destroys that, and asks first."
    )]
    Create {
        /// The pool's name
        #[arg(value_parser = parse_label)]
        name: String,
        /// What keeps its volumes: farside's own store, or Ceph
        #[arg(long, value_enum, default_value_t)]
        engine: Engine,
        /// A file that does not exist yet, or a raw device
        #[arg(long, value_name = "FILE_OR_DEVICE", required_unless_present = "rbd_pool")]
        path: Option<PathBuf>,
        /// The pool of Ceph whose images are its volumes
        #[arg(long, value_name = "POOL", required_if_eq("engine", "rbd"), conflicts_with_all = ["path", "size", "overwrite"])]
        rbd_pool: Option<String>,
        /// A namespace in that pool
        #[arg(long, value_name = "NAMESPACE", requires = "rbd_pool")]
        rbd_namespace: Option<String>,
        /// The cluster's configuration file, on the daemon's machine; it names the keyring [default: /etc/ceph/ceph.conf]
        #[arg(long, value_name = "FILE", requires = "rbd_pool")]
        conf: Option<PathBuf>,
        /// The user of the cluster, without client. [default: farside]
        #[arg(long, requires = "rbd_pool")]
        user: Option<String>,
        /// Size of the file (not for a device)
        #[arg(long, value_parser = parse_size)]
        size: Option<u64>,
        /// Destroy what is on the device
        #[arg(long)]
        overwrite: bool,
        /// Succeed if the pool is there and is as asked for; what you do not name is not compared
        #[arg(long)]
        if_absent: bool,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Take over an existing pool
    #[command(
        after_help = "Use it when a disk was carried here or the state database was lost. Volumes, snapshots and replicas \
                      are in the pool itself.\n\nA copy of a pool that is open here is refused: its volumes and mirrors would be \
                      taken for those of the other. --as-copy gives it an identity of its own and ends its mirrors, for \
                      good; the other pool and its mirrors go on.\n\nExamples:\n  farside pool import p --path \
                      /srv/farside/p.pool\n  farside pool import practice --path /srv/farside/copy.pool --as-copy"
    )]
    Import {
        /// The pool's name here
        #[arg(value_parser = parse_label)]
        name: String,
        /// The pool's file or device
        #[arg(long, value_name = "FILE_OR_DEVICE")]
        path: PathBuf,
        /// Take a pool on a raw device from whoever has it open on another machine: only if that machine is known to be off
        #[arg(long)]
        force: bool,
        /// Make a copy of another pool a pool of its own, without its mirrors
        #[arg(long)]
        as_copy: bool,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Open a pool again that accepts no changes, or could not be opened
    #[command(
        after_help = "After a failed write or sync a pool is read-only until it is opened again; so is one whose device was \
                      written to by somebody else. Repair the cause first. Connections of hosts to its volumes are closed, \
                      and they connect again; other pools go on. What was flushed is there.\n\nExample:\n  farside pool \
                      reopen p"
    )]
    Reopen {
        /// The pool
        #[arg(value_parser = parse_label)]
        name: String,
        /// Take a pool on a raw device from whoever has it open on another machine: only if that machine is known to be off
        #[arg(long)]
        force: bool,
    },
    /// Make a pool larger while hosts use it
    #[command(
        after_help = "A pool never shrinks. A file takes room as it is written, whatever its size; a raw device has to be larger \
                      before (for example lvextend). Without --size the pool takes all that its device has.\n\nExamples:\n  \
                      farside pool grow p --size 200G\n  lvextend -L 200G /dev/vg/p && farside pool grow p"
    )]
    Grow {
        /// The pool
        #[arg(value_parser = parse_label)]
        name: String,
        /// Size that it has then, not below its present one; without: all that its device or file has
        #[arg(long, value_parser = parse_size)]
        size: Option<u64>,
    },
    /// List pools
    #[command(after_help = "Example:\n  farside pool list --json")]
    #[command(alias = "ls")]
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
        after_help = "Reads the file or device directly and changes nothing. Stop the daemon first if it has the pool open.\n\nExamples:\n  farside pool check /srv/farside/p.pool\n  farside pool check p"
    )]
    Check {
        /// The pool's file or device, or its name
        #[arg(value_name = "FILE_OR_NAME")]
        pool: String,
        /// Read only metadata, about 1 % of the pool; does not find damaged data blocks
        #[arg(long)]
        quick: bool,
    },
    /// Read everything in a pool while it serves, and name what is damaged
    #[command(
        after_help = "Reads each block and each node of all volumes and snapshots once, in the background and behind \
                      hosts, and compares it with what points at it. A damaged copy of metadata that is stored twice \
                      is rewritten from the other one. Damaged data is named by volume, offset and the snapshots that \
                      share it. The result is kept until the next scrub. After a restart, or a stop, it goes on where \
                      it was.\n\nWith damage the exit code is 1. Without NAME all open pools are scrubbed, one after \
                      the other; Ctrl-C leaves the one that runs.\n\nExamples:\n  farside pool scrub p\n  farside pool \
                      scrub p --rate 200MB/s --no-wait\n  farside pool scrub p --status\n  farside pool scrub p --stop"
    )]
    Scrub {
        /// The pool; without, all that are open
        #[arg(value_parser = parse_label)]
        name: Option<String>,
        /// What it may read in a second, or `unlimited` [default: 64MiB/s]; changes the one that runs
        #[arg(long)]
        rate: Option<String>,
        /// From the beginning, though one was stopped
        #[arg(long)]
        anew: bool,
        /// Return at once; it goes on in the background
        #[arg(long)]
        no_wait: bool,
        /// Show the scrub that runs, or ran last
        #[arg(long, conflicts_with_all = ["rate", "anew", "no_wait", "stop"])]
        status: bool,
        /// Stop the scrub that runs; another goes on from there
        #[arg(long, conflicts_with_all = ["rate", "anew", "no_wait"])]
        stop: bool,
    },
    /// Discard what interrupted transfers left in a pool
    #[command(
        after_help = "An interrupted transfer leaves what it has brought, and the next one continues from there. farside pool \
                      status shows how much that is. After a drop the next transfer starts from the beginning. Volumes and their \
                      snapshots stay as they are. Refused while a transfer runs.\n\nExamples:\n  farside pool drop-staged q \
                      --plan\n  farside pool drop-staged q db --yes"
    )]
    DropStaged {
        /// The pool
        #[arg(value_parser = parse_label)]
        name: String,
        /// Only of this volume of the pool
        #[arg(value_parser = parse_label)]
        volume: Option<String>,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
    /// Delete a pool and everything in it
    #[command(after_help = "Examples:\n  farside pool delete p --plan\n  farside pool delete p --yes")]
    #[command(aliases = ["rm", "remove", "destroy"])]
    Delete {
        /// The pool
        #[arg(value_parser = parse_label)]
        name: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}
