//! The words of `farside site`.

use clap::Subcommand;

/// `farside site`.
#[derive(Debug, Subcommand)]
pub enum Site {
    /// Show the limits of this site, as set and as they hold now, its queue of transfers, and what it has sent and received
    #[command(after_help = "Example:\n  farside site status --json")]
    Status,
    /// Change the limits of this site, live: they hold at once for transfers under way, and after a restart
    #[command(
        after_help = "A limit is a rate of bytes on the wire, TLS included: 4MB/s, 512KiB/s, or in bits 10Mbit/s. Times and \
                      days may have their own: of those that are true the last one holds. Without a zone they are in the \
                      zone of the daemon's system, which is stored with them.\n\nExamples:\n  farside site set --throttle-out \
                      4MB/s\n  farside site set --throttle-in 8MB/s,mon-fri@08:00-18:00=1MB/s\n  farside site set \
                      --throttle-out 4MB/s,sat+sun=unlimited,zone=Europe/Berlin\n  farside site set --throttle-out unlimited\n  farside site set \
                      --transfer-size 3"
    )]
    #[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
    Set {
        /// What all peers together may send here: RATE[,TIME=RATE]…, or unlimited
        #[arg(long, value_name = "RATE", group = "change")]
        throttle_in: Option<String>,
        /// What may be sent to all peers together: RATE[,TIME=RATE]…, or unlimited
        #[arg(long, value_name = "RATE", group = "change")]
        throttle_out: Option<String>,
        /// How many transfers may be under way at once, of mirrors whose replica is at this site: 1 to 16; the others wait, and
        /// take turns. Those under way go on when it is made smaller
        #[arg(long, value_name = "N", group = "change")]
        transfer_size: Option<u64>,
    },
}
