//! The words and flags of `farside-lab`. What they do is in [`crate::commands`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use clap::{Args, Parser, Subcommand};
use farside_lab::link::units;
use farside_lab::testbed::MAX_PATHS;

/// Every claim about links and bytes is measured here: emulated wide-area links, data of real programs, peers, one
/// command.
#[derive(Debug, Parser)]
#[command(name = "farside-lab", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where on this machine the laboratory keeps things.
#[derive(Args, Clone, Debug)]
pub(crate) struct Place {
    /// Data sets are kept in DIR/data; what runs need while they run is in DIR/work and goes with them
    #[arg(
        long,
        value_name = "DIR",
        global = true,
        env = "FARSIDE_LAB_CACHE",
        default_value = "/var/cache/farside-lab",
        value_parser = absolute
    )]
    pub(crate) cache: PathBuf,
}

/// Scripts run in directories of their own: what is relative here would be elsewhere there.
fn absolute(text: &str) -> Result<PathBuf, std::io::Error> {
    std::path::absolute(text)
}

impl Place {
    /// Where data sets stay between runs.
    pub(crate) fn data(&self) -> PathBuf {
        self.cache.join("data")
    }

    /// Where each run has a directory of its own while it runs.
    pub(crate) fn work(&self) -> PathBuf {
        self.cache.join("work")
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run an experiment, or what is left of it (needs root)
    Run(RunArguments),
    /// Write the report anew from an experiment's result
    Report(ReportArguments),
    /// Write the report of measurements of the codec (scripts/bench-codec)
    Codec(CodecArguments),
    /// Lay an emulated wide-area link and run a command at one end of it (needs root)
    Wan(Box<WanArguments>),
    /// List the data sets, or make one (making needs root)
    Data(DataArguments),
    /// Remove what killed runs left behind (needs root)
    Clean(CleanArguments),
    /// Write into TARGET, a copy of OLD, the 4 KiB blocks in which NEW differs; contenders' scripts use it
    #[command(hide = true)]
    CopyChanged(CopyChangedArguments),
    /// Write the 4 KiB blocks in which NEW differs from OLD to stdout, as `rbd import-diff` reads them; contenders' scripts use it
    #[command(hide = true)]
    RbdDiff(RbdDiffArguments),
    /// Answer one connection's small requests until it ends; contenders' scripts use it
    #[command(hide = true)]
    Answer(AnswerArguments),
    /// Ask again and again and tell how long answers took; contenders' scripts use it
    #[command(hide = true)]
    Ask(AskArguments),
    /// Make connection after connection, a web request each, and tell how long they took; contenders' scripts use it
    #[command(hide = true)]
    Visit(VisitArguments),
}

#[derive(Args, Debug)]
pub(crate) struct RunArguments {
    /// The experiment's file
    pub(crate) file: PathBuf,
    /// Only cells whose name (link/data/contender/congestion) matches, as in 't3/*/rsync*'; may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) filter: Vec<String>,
    /// Where journal, result and report go [default: lab-results/NAME]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Make the selected runs anew; records of earlier ones are kept beside the journal
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Only list the runs that are left and how long they would take (needs no root)
    #[arg(long)]
    pub(crate) estimate: bool,
    /// Repetitions of every cell, instead of the file's
    #[arg(long, value_name = "N")]
    pub(crate) repetitions: Option<u32>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArguments {
    /// The directory that `run` wrote
    pub(crate) out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct CodecArguments {
    /// The directory with the measurements, result.jsonl; the report goes beside them
    pub(crate) out: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct DataArguments {
    /// Which set to make; without it, the sets are listed
    pub(crate) set: Option<String>,
    /// About how large (`10G`), instead of the set's usual size
    #[arg(long, requires = "set")]
    pub(crate) size: Option<ByteSize>,
    /// Another seed makes other data of the same kind
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the list or the manifest as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct CleanArguments {
    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WanArguments {
    /// Equal links side by side, each with a pair of addresses
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=MAX_PATHS as i64))]
    pub(crate) paths: u8,
    /// The line, t1, dsl, t3, 10mb, oc3… (lab/src/link/profile.rs) [default: t3, unless --rate is given]
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Bits a second (`10Mb`), both directions, instead of the profile's
    #[arg(long, value_parser = units::parse_rate)]
    pub(crate) rate: Option<u64>,
    /// Bits a second from b to a
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub(crate) rate_back: Option<u64>,
    /// Delay of both directions together (`50ms`)
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub(crate) rtt: Option<Duration>,
    /// Each packet is late by up to this much more, each direction
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub(crate) jitter: Option<Duration>,
    /// Packets lost (`0.1%`), each direction
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    pub(crate) loss: Option<f64>,
    /// Packets lost from b to a
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    pub(crate) loss_back: Option<f64>,
    /// Mean number of packets lost in a row
    #[arg(long, value_name = "PACKETS")]
    pub(crate) burst: Option<f64>,
    /// Packets that later ones overtake (`1%`)
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share)]
    pub(crate) reorder: Option<f64>,
    /// What may wait for the line (`64KB`), each direction [default: the larger of rate × RTT and 100 packets]
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    pub(crate) queue: Option<u64>,
    /// Largest IP packet, bytes [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// Lay a server behind a and a client behind b, with a and b as their routers
    #[arg(long)]
    pub(crate) hosts: bool,
    /// Seed of loss, jitter and reordering
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Congestion control of all hosts
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    pub(crate) congestion: String,
    /// Largest receive buffer of TCP (`256MiB`), instead of the machine's
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    pub(crate) tcp_rmem_max: Option<u64>,
    /// Largest send buffer of TCP, instead of the machine's
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes)]
    pub(crate) tcp_wmem_max: Option<u64>,
    /// Where the command runs: a or b [default: a]
    #[arg(long, value_name = "SITE")]
    pub(crate) at: Option<String>,
    /// Print the counters as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// What to run, with A_ADDR, B_ADDR (…) in its environment; without it, the link stays until Ctrl-C
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CopyChangedArguments {
    /// What TARGET is
    pub(crate) old: PathBuf,
    /// What it is to become
    pub(crate) new: PathBuf,
    /// Changed in place
    pub(crate) target: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct RbdDiffArguments {
    /// What the image is
    pub(crate) old: PathBuf,
    /// What it is to become
    pub(crate) new: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct AnswerArguments {
    /// Where to listen
    pub(crate) address: SocketAddr,
    /// Bytes of an answer
    #[arg(long)]
    pub(crate) bytes: usize,
}

#[derive(Args, Debug)]
pub(crate) struct VisitArguments {
    /// A web server
    pub(crate) address: SocketAddr,
    /// What is asked for
    #[arg(long, default_value = "/")]
    pub(crate) path: String,
    /// From one connection to the next
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub(crate) every: Duration,
    /// How long to go on
    #[arg(long = "for", value_name = "TIME", value_parser = units::parse_time)]
    pub(crate) time: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct AskArguments {
    /// Who answers
    pub(crate) address: SocketAddr,
    /// Bytes of an answer
    #[arg(long)]
    pub(crate) bytes: usize,
    /// From one request to the next
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub(crate) every: Duration,
    /// How long to ask
    #[arg(long = "for", value_name = "TIME", value_parser = units::parse_time)]
    pub(crate) time: Duration,
}
