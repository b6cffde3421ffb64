//! Arguments of `farside volume`.

use clap::{Args, Subcommand};
use farside_api::Autogrow;

use super::destructive::Destructive;
use super::names::{VolumeName, parse_label};
use crate::quantities::parse_size;

/// How much of its pool a volume may take, and how far it grows.
#[derive(Debug, Default, Args)]
pub struct Limits {
    /// What it may occupy with all its snapshots: a size, or none
    #[arg(long, value_name = "SIZE|none", value_parser = parse_limit)]
    pub quota: Option<u64>,
    /// What is kept for it and its snapshots, whoever else fills the pool: a size, or none
    #[arg(long, value_name = "SIZE|none", value_parser = parse_limit)]
    pub reserve: Option<u64>,
    /// Grow by itself up to this size, by a step (a tenth of it otherwise) whenever 90 % are written; or off
    #[arg(long, value_name = "SIZE[,step=SIZE]|off", value_parser = parse_autogrow)]
    pub autogrow: Option<Autogrow>,
}

/// 0 for none.
fn parse_limit(text: &str) -> Result<u64, String> {
    match text {
        "none" => Ok(0),
        size => {
            let bytes = parse_size(size).map_err(|error| format!("{error}; or none"))?;
            // As with the sizes of volumes and pools: who writes 10 does not mean ten bytes.
            let has_unit = !size.bytes().all(|byte| byte.is_ascii_digit());
            if !has_unit && !bytes.is_multiple_of(4096) {
                return Err(format!(
                    "{bytes} bytes are not a multiple of 4096; a size without a unit is in bytes: {size}G is gibibytes"
                ));
            }
            Ok(bytes)
        }
    }
}

fn parse_autogrow(text: &str) -> Result<Autogrow, String> {
    if text == "off" {
        return Ok(Autogrow { to_bytes: 0, step_bytes: None });
    }
    let (to, step) = match text.split_once(',') {
        None => (text, None),
        Some((to, rest)) => match rest.strip_prefix("step=") {
            Some(step) => (to, Some(step)),
            None => return Err(String::from("use for example 2T, 2T,step=10G or off")),
        },
    };
    Ok(Autogrow { to_bytes: parse_size(to)?, step_bytes: step.map(parse_size).transpose()? })
}

/// `farside volume`.
#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Create a thin volume
    #[command(
        after_help = "Examples:\n  farside volume create p/db --size 10G\n  farside volume create p/db --size 10G --quota 15G \
                      --reserve 5G\n  farside volume create p/db --size 10G --autogrow 2T,step=10G"
    )]
    Create {
        /// POOL/VOL
        name: VolumeName,
        /// Size of the volume, a multiple of 4096 bytes
        #[arg(long, value_parser = parse_size)]
        size: u64,
        /// What it may take of its pool.
        #[command(flatten)]
        limits: Limits,
        /// Succeed if the volume is there and is as asked for; what you do not name is not compared
        #[arg(long)]
        if_absent: bool,
    },
    /// Change how much of its pool a volume may take, and how far it grows
    #[command(
        after_help = "It takes effect at once; hosts notice nothing.\n\nExamples:\n  farside volume set p/db --quota 50G\n  farside \
                      volume set p/db --reserve none\n  farside volume set p/db --autogrow 2T,step=10G"
    )]
    Set {
        /// POOL/VOL
        name: VolumeName,
        /// What it may take of its pool.
        #[command(flatten)]
        limits: Limits,
        /// Who tries this is told of `resize`, which can take data away
        #[arg(long, value_name = "SIZE", value_parser = parse_size, hide = true)]
        size: Option<u64>,
    },
    /// List volumes
    #[command(after_help = "Example:\n  farside volume list --json")]
    #[command(alias = "ls")]
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
    #[command(
        after_help = "A volume that a mirror knows by its name, here or at the other site, is refused: end that mirror first, \
                            rename at both sites, then farside mirror resync POOL/NEW --from PEER:POOL/NEW --whole.\n\nExample:\n  \
                            farside volume rename p/db p/db-old"
    )]
    Rename {
        /// POOL/VOL
        name: VolumeName,
        /// POOL/NEW, in the same pool
        new: VolumeName,
    },
    /// Store equal blocks of volumes once
    #[command(subcommand)]
    Dedup(Dedup),
    /// Delete a volume and its snapshots
    #[command(
        after_help = "Examples:\n  farside volume delete p/db --plan\n  farside volume delete p/db --yes"
    )]
    #[command(aliases = ["rm", "remove", "destroy"])]
    Delete {
        /// POOL/VOL
        name: VolumeName,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}

/// `farside volume dedup`.
#[derive(Debug, Subcommand)]
pub enum Dedup {
    /// Deduplicate a volume, now and from now on
    #[command(
        after_help = "Blocks of 4 KiB with equal content come to lie at one place of the pool, in the background and behind hosts: within \
                      the volume, and between all volumes of the pool that have deduplication. Snapshots stay as they are, so what \
                      they hold comes free as they go. After the first pass it looks once an hour at what has changed; start looks \
                      at once. After a restart it goes on where it was.\n\nIt waits until the pass has ended; Ctrl-C leaves it \
                      running.\n\nExamples:\n  farside volume dedup start p/db\n  farside volume dedup start p/db --rate 200MB/s \
                      --no-wait"
    )]
    Start {
        /// POOL/VOL
        name: VolumeName,
        /// What it may read in a second, or `unlimited` [default: 64MiB/s]; changes the one that runs
        #[arg(long)]
        rate: Option<String>,
        /// Look at all of the volume, not only at what has changed
        #[arg(long)]
        anew: bool,
        /// Return at once; it goes on in the background
        #[arg(long)]
        no_wait: bool,
    },
    /// Deduplicate a volume no longer
    #[command(
        after_help = "What is shared stays so, until hosts overwrite it or dedup undo copies it. A later start goes on from \
                      there.\n\nExample:\n  farside volume dedup stop p/db"
    )]
    Stop {
        /// POOL/VOL
        name: VolumeName,
    },
    /// Show what it does and what it saves
    #[command(
        after_help = "Examples:\n  farside volume dedup status p/db\n  farside volume dedup status --json"
    )]
    Status {
        /// POOL/VOL; without, all that have deduplication
        name: Option<VolumeName>,
    },
    /// Give each block of a volume a place of its own again
    #[command(
        after_help = "It ends deduplication of the volume, and needs as much room as its shared blocks have, which is looked at \
                      beforehand. Snapshots keep what they share. After a restart it goes on.\n\nExamples:\n  farside volume dedup \
                      undo p/db --plan\n  farside volume dedup undo p/db --yes"
    )]
    Undo {
        /// POOL/VOL
        name: VolumeName,
        /// What it may read and write in a second, or `unlimited` [default: 64MiB/s]
        #[arg(long)]
        rate: Option<String>,
        /// Return at once; it goes on in the background
        #[arg(long)]
        no_wait: bool,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_without_a_unit_is_one_that_somebody_can_mean() {
        assert_eq!(parse_limit("none"), Ok(0));
        assert_eq!(parse_limit("8192"), Ok(8192));
        assert_eq!(parse_limit("10G"), Ok(10 << 30));
        let refused = parse_limit("10").err().unwrap();
        assert!(refused.contains("10G is gibibytes"), "{refused}");
    }
}
