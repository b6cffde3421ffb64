//! Arguments of `farside site`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use super::names::parse_label;
use crate::quantities::parse_duration;

/// `farside site`.
#[derive(Debug, Subcommand)]
pub enum Site {
    /// Show the limits of this site (as set, and as they hold now), its queue of transfers, the bytes sent and received, and its daemons
    #[command(after_help = "Example:\n  farside site status --json")]
    Status,
    /// List this site, and those that it is paired with: version, health, when they were seen last
    #[command(
        after_help = "A site is asked over the session that both have. It has to let this one look: farside peer set PEER --role viewer \
                      there.\n\nExamples:\n  farside site list\n  farside --site siteB mirror status    # asks there"
    )]
    #[command(alias = "ls")]
    List,
    /// Change the limits of this site; they take effect at once and survive a restart
    #[command(
        after_help = "A limit is a rate of bytes on the wire, TLS included: 4MB/s, 512KiB/s, or in bits 10Mbit/s. Times and \
                      days may have rates of their own. If several match, the last one holds. Without zone= the daemon's own \
                      time zone is stored with the limit.\n\nExamples:\n  farside site set --throttle-out \
                      4MB/s\n  farside site set --throttle-in 8MB/s,mon-fri@08:00-18:00=1MB/s\n  farside site set \
                      --throttle-out 4MB/s,sat+sun=unlimited,zone=Europe/Berlin\n  farside site set --throttle-out unlimited\n  farside site set \
                      --transfer-size 3\n  farside site set --host-precedence fair"
    )]
    #[command(group = clap::ArgGroup::new("change").required(true).multiple(true))]
    Set {
        /// Rate at which all peers together may send to this site: RATE[,TIME=RATE]…, or unlimited
        #[arg(long, value_name = "RATE", group = "change")]
        throttle_in: Option<String>,
        /// Rate at which this site may send to all peers together: RATE[,TIME=RATE]…, or unlimited
        #[arg(long, value_name = "RATE", group = "change")]
        throttle_out: Option<String>,
        /// How many transfers to replicas of this site may run at once: 1 to 16. The others wait and take turns. Running
        /// transfers finish even if you make it smaller
        #[arg(long, value_name = "N", group = "change")]
        transfer_size: Option<u64>,
        /// How far hosts of this site go before transfers: high, fair or off. Transfers give way as soon as hosts become slower
        /// for them. With high they keep an eighth of a processor's time, with fair half of it, with off they do what they can
        #[arg(long, value_name = "HOW", group = "change")]
        host_precedence: Option<String>,
    },
    /// Invite a further daemon to be one of this site: prints a code that is good once
    #[command(
        after_help = "Several daemons of a site share its state, which is in PostgreSQL, and its volumes, which are in clusters. One of them \
                      leads and does the work; if it dies, another one leads within 15 s. The new daemon runs first with a database of \
                      its own; then, there: farside site join\n\nExamples:\n  farside site invite\n  farside site invite --valid 15m\n  farside site invite --list\n  farside site invite \
                      --cancel 5fa01b22"
    )]
    Invite {
        /// How long the code is valid
        #[arg(long, value_parser = parse_duration, default_value = "1h")]
        valid: Duration,
        /// Show the invitations that can still be used; their codes are shown only once, to whoever made them
        #[arg(long, conflicts_with_all = ["valid", "cancel"])]
        list: bool,
        /// Take back the invitation of this id
        #[arg(long, value_name = "ID", conflicts_with = "valid")]
        cancel: Option<String>,
    },
    /// Make this daemon, which has no pools and peers yet, one of a site that has invited it
    #[command(
        after_help = "Reads the code from a prompt, from stdin or from a file. The code is never an argument, because every user of the machine \
                      can read arguments. Then name the database in farside.toml and restart the daemon.\n\nExamples:\n  farside site join \
                      postgres://farside@db.example/site_a?sslmode=verify-full --database-password-file /etc/farside/db.password --code-file \
                      invite.txt"
    )]
    Join {
        /// The site's database: postgres://USER@HOST[:PORT]/DB
        #[arg(value_name = "URL")]
        database: String,
        /// File with the password there; without it the daemon asks the file that its PGPASSFILE names
        #[arg(long, value_name = "FILE")]
        database_password_file: Option<PathBuf>,
        /// Read the code from this file
        #[arg(long, value_name = "FILE")]
        code_file: Option<PathBuf>,
    },
    /// Have a daemon of this site hand its work over and not lead any more, before an upgrade of its machine, say
    #[command(after_help = "Example:\n  farside site drain alpha")]
    Drain {
        /// The daemon, as farside site status names it
        #[arg(value_name = "NODE", value_parser = parse_label)]
        node: String,
    },
    /// Have a daemon that was drained be one that may lead again
    #[command(after_help = "Example:\n  farside site undrain alpha")]
    Undrain {
        /// The daemon
        #[arg(value_name = "NODE", value_parser = parse_label)]
        node: String,
    },
    /// Take a daemon off this site that is gone, or drained
    #[command(
        after_help = "It still has the site's key in its data directory: empty that. If somebody else may have it, see the page A site with \
                      another key.\n\nExample:\n  farside site remove alpha"
    )]
    Remove {
        /// The daemon
        #[arg(value_name = "NODE", value_parser = parse_label)]
        node: String,
    },
    /// Move the state (pairings, rights, mirrors, history) to another database, which must be empty; then change farside.toml and
    /// restart the daemon
    #[command(
        after_help = "All is copied in one transaction while writes wait; if that fails, nothing has changed. Afterwards the daemon \
                      keeps nothing in the old database any more, and refuses what it would have to keep until it is restarted with the \
                      new address. Volumes are served all the time.\n\nExamples:\n  farside site move-state \
                      postgres://farside@db.example/site_a?sslmode=verify-full --database-password-file /etc/farside/db.password\n  \
                      farside site move-state sqlite:    # back to farside.db in the data directory"
    )]
    MoveState {
        /// postgres://USER@HOST[:PORT]/DB, or sqlite: for farside.db in the data directory
        #[arg(value_name = "URL")]
        to: String,
        /// File with the password there; without it the daemon asks the file that its PGPASSFILE names
        #[arg(long, value_name = "FILE")]
        database_password_file: Option<PathBuf>,
    },
}
