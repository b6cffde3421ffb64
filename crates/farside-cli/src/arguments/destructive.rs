//! The options of verbs that delete or overwrite something.

use clap::Args;

/// What every destructive verb takes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Destructive {
    /// Print what would happen and what would be lost, and change nothing
    #[arg(long)]
    pub plan: bool,
    /// Do not ask. Without a terminal nobody is asked: what destroys data is refused then, all else goes ahead
    #[arg(long, short = 'y', conflicts_with = "plan")]
    pub yes: bool,
}
