//! Arguments of `farside alarm`.

use clap::Subcommand;

/// `farside alarm`.
#[derive(Debug, Subcommand)]
pub enum Alarm {
    /// List alarms that are raised: what is wrong, since when, and what to do
    #[command(
        after_help = "An alarm is told once when it is raised and once when it is cleared: in the log, and by the webhook and \
                      command of [alarms] in farside.toml.\n\nExamples:\n  farside alarm list\n  farside alarm list --all --json"
    )]
    #[command(aliases = ["ls", "status"])]
    List {
        /// Those that were cleared in the last 30 days, too
        #[arg(long)]
        all: bool,
    },
    /// Say that an alarm is known: it stays raised until its reason is gone, but is no warning any more
    #[command(
        after_help = "An alarm of the kind ransomware ends with this: what was suspected counts as usual from then on.\n\nExample:\n  \
                      farside alarm ack 12"
    )]
    #[command(alias = "acknowledge")]
    Ack {
        /// Its number, as farside alarm list shows it
        id: String,
    },
    /// Send a test alarm on every way that farside.toml names, and say what came of each
    #[command(
        after_help = "Ends with 1 if it did not arrive on one of them. It is tried once on each; real alarms are posted again until \
                      they arrive.\n\nExample:\n  farside alarm test"
    )]
    Test,
}
