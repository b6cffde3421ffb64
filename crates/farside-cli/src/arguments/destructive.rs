//! The options of verbs that delete or overwrite something.

use clap::Args;

/// What every destructive verb takes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Destructive {
    /// Print what would happen and what would be lost, and change nothing
    #[arg(long)]
    pub plan: bool,
    /// Do not ask for confirmation
    #[arg(long, short = 'y', conflicts_with = "plan")]
    pub yes: bool,
}
