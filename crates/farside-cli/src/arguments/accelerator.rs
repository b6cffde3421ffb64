//! Arguments of `farside accel`.

use std::net::SocketAddr;

use clap::Subcommand;

use super::names::parse_label;
use crate::quantities::parse_size;

/// `farside accel`.
#[derive(Debug, Subcommand)]
pub enum Accelerator {
    /// Switch the accelerator on, now and after each restart
    #[command(
        after_help = "What you do not give stays as it was, or as it is under [accelerator] in farside.toml. With --lan and --wan, \
                      connections from hosts behind the LAN interfaces go through the accelerator; this needs CAP_NET_ADMIN. \
                      Without, only explicit forwards do; this needs no privilege.\n\nExamples:\n  farside accel up \
                      --lan eth1 --wan eth0 --dry-run\n  farside accel up --lan eth1 --wan eth0 --store-size 20G\n  \
                      farside accel up --listen 10.1.0.2:7442 --forward-to 10.1.0.5:5432\n  farside accel up --lan off"
    )]
    Up {
        /// Interface towards this site's hosts; repeat for each; off: intercept nothing
        #[arg(long, value_name = "IF", num_args = 1..)]
        lan: Vec<String>,
        /// Interface towards the other sites; off: intercept nothing
        #[arg(long, value_name = "IF")]
        wan: Option<String>,
        /// Refuse unless both are ports of one bridge; where they are, the accelerator is inline anyway
        #[arg(long)]
        bridge: bool,
        /// Largest size of the chunk store
        #[arg(long, value_name = "SIZE", value_parser = parse_size)]
        store_size: Option<u64>,
        /// Address on which other accelerators connect [default: 0.0.0.0:7442]
        #[arg(long, value_name = "ADDR:PORT")]
        listen: Option<String>,
        /// Where explicit forwards of peers may end; repeat for each; off: nowhere
        #[arg(long, value_name = "HOST:PORT", num_args = 1..)]
        forward_to: Vec<String>,
        /// Print the rules that would be installed, and change nothing; needs no privilege
        #[arg(long)]
        dry_run: bool,
    },
    /// Switch the accelerator off, now and after each restart; new connections go their plain way
    #[command(
        after_help = "Connections that the accelerator has at this moment are reset.\n\nExample:\n  farside accel down"
    )]
    Down,
    /// Show whether connections are optimized, the peers, and what it saved
    #[command(after_help = "Example:\n  farside accel status --json")]
    Status,
    /// List optimized connections, and the latest that were not, with the reason
    #[command(
        after_help = "The policies are this site's (configured), the peer's, what both allow (negotiated), and what is done \
                      (applied).\n\nExample:\n  farside accel connections"
    )]
    Connections,
    /// List the policies in the order in which they are asked; the first that fits a connection holds
    #[command(after_help = "Example:\n  farside accel policies")]
    Policies,
    /// Change the policies of new connections; connections that are open keep theirs
    #[command(subcommand)]
    Policy(AcceleratorPolicyVerb),
    /// The chunk store: what has passed, kept so that it need not pass again
    #[command(subcommand)]
    Cache(AcceleratorCache),
    /// Fill a peer's chunk store ahead of time, with a file, a directory or the newest snapshot of a volume
    #[command(
        after_help = "Afterwards the first transfer of the same bytes to that site, by whatever program, passes as references. Files \
                      are read with your own rights; symbolic links below a directory are not followed. It gives way to \
                      connections. Ctrl-C cancels it; the same again sends only what is missing.\n\nExamples:\n  farside accel \
                      preposition /srv/images/install.iso\n  farside accel preposition /srv/export --peer siteB\n  \
                      farside accel preposition pool1/db --peer siteB --json"
    )]
    Preposition {
        /// A file or directory of this host, or a volume of this site
        #[arg(value_name = "PATH_OR_POOL/VOL")]
        target: String,
        /// Whose store is filled; needed if there are several peers
        #[arg(long, value_name = "PEER", value_parser = parse_label)]
        peer: Option<String>,
    },
    /// List what is being prepositioned, or cancel it
    #[command(
        after_help = "Examples:\n  farside accel prepositions\n  farside accel prepositions --cancel 4711-1790000000000"
    )]
    Prepositions {
        /// End this job; what has come to the peer is kept there
        #[arg(long, value_name = "JOB")]
        cancel: Option<String>,
    },
    /// Listen on a port here whose connections end at a peer's side
    #[command(
        after_help = "Needs no privilege and no change of routes. At the peer, --forward-to or forward_to must allow the \
                      destination. The forward is remembered.\n\nExample:\n  farside accel forward 127.0.0.1:5432 10.2.0.5:5432 --peer siteB"
    )]
    Forward {
        /// Where to listen here
        #[arg(value_name = "LISTEN_ADDR:PORT")]
        listen: SocketAddr,
        /// Where the peer's accelerator connects to
        #[arg(value_name = "DESTINATION:PORT")]
        destination: String,
        /// The peer
        #[arg(long, value_name = "PEER", value_parser = parse_label)]
        peer: String,
    },
    /// List explicit forwards
    #[command(after_help = "Example:\n  farside accel forwards --json")]
    Forwards,
    /// End an explicit forward; its connections go on
    #[command(after_help = "Example:\n  farside accel unforward 127.0.0.1:5432")]
    Unforward {
        /// Where it listens
        #[arg(value_name = "LISTEN_ADDR:PORT")]
        listen: SocketAddr,
    },
    /// Reset one optimized connection
    #[command(
        after_help = "Its ends are as farside accel connections shows them.\n\nExample:\n  farside accel reset 10.1.0.7:51000 10.2.0.9:5432"
    )]
    Reset {
        /// The client's end
        #[arg(value_name = "CLIENT_ADDR:PORT")]
        client: SocketAddr,
        /// The server's end
        #[arg(value_name = "SERVER_ADDR:PORT")]
        server: SocketAddr,
    },
}

/// `farside accel policy`.
#[derive(Debug, Subcommand)]
pub enum AcceleratorPolicyVerb {
    /// Set a policy, now and after each restart; it comes before those of farside.toml and those that are shipped
    #[command(
        after_help = "What you do not give fits all. One that was set under the same name is replaced.\n\nExamples:\n  farside accel \
                      policy set payroll --action transport --ports 7000-7009 --servers 10.2.0.0/24\n  farside accel policy \
                      set guests --action pass-through --clients 10.1.9.0/24 --first"
    )]
    Set {
        /// What the application is called in tables and figures
        #[arg(value_name = "APPLICATION")]
        application: String,
        /// What is done
        #[arg(long, value_name = "ACTION")]
        action: ActionWord,
        /// Ports of the server, each one or a range
        #[arg(long, value_name = "PORTS", num_args = 1..)]
        ports: Vec<String>,
        /// Subnets or addresses; client or server is in one of them
        #[arg(long, value_name = "SUBNET", num_args = 1..)]
        addresses: Vec<String>,
        /// Subnets or addresses; the client is in one of them
        #[arg(long, value_name = "SUBNET", num_args = 1..)]
        clients: Vec<String>,
        /// Subnets or addresses; the server is in one of them
        #[arg(long, value_name = "SUBNET", num_args = 1..)]
        servers: Vec<String>,
        /// Ask it before all others
        #[arg(long)]
        first: bool,
    },
    /// Take a policy back that was set
    #[command(after_help = "Example:\n  farside accel policy remove payroll")]
    Remove {
        /// Its application
        #[arg(value_name = "APPLICATION")]
        application: String,
    },
    /// Read the policies of farside.toml again
    #[command(
        after_help = "Only [[accelerator.policies]] and otherwise; the rest of the file holds from the next start of farsided on.\n\n\
                      Example:\n  farside accel policy reload"
    )]
    Reload,
}

/// What is done for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ActionWord {
    /// References to what has passed before, compression, transport
    Full,
    /// References and transport
    Dre,
    /// Compression and transport
    Lz,
    /// Full windows and quick recovery of losses
    Transport,
    /// Nothing
    PassThrough,
}

/// `farside accel cache`.
#[derive(Debug, Subcommand)]
pub enum AcceleratorCache {
    /// Show its size, and how often it had what it was asked for
    #[command(after_help = "Example:\n  farside accel cache status")]
    Status,
    /// Remove what it keeps; connections go on, and what is missing passes once more
    #[command(
        after_help = "Examples:\n  farside accel cache clear\n  farside accel cache clear --peer siteB"
    )]
    Clear {
        /// Only what has passed between this site and this peer
        #[arg(long, value_name = "PEER", value_parser = parse_label)]
        peer: Option<String>,
    },
}
