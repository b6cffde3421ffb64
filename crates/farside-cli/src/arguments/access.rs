//! Arguments of `farside token`, `farside account` and `farside audit`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use farside_api::AccessRole;

use super::destructive::Destructive;
use super::names::parse_label;
use crate::quantities::parse_duration;

/// What somebody may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Role {
    /// Sees everything that is no secret, and changes nothing
    Viewer,
    /// Runs mirrors, volumes and snapshots; deletes no data, but for points that a resync it asks for lets go by their retention; lets nobody in
    Operator,
    /// May do everything
    Administrator,
}

impl From<Role> for AccessRole {
    fn from(role: Role) -> AccessRole {
        match role {
            Role::Viewer => AccessRole::Viewer,
            Role::Operator => AccessRole::Operator,
            Role::Administrator => AccessRole::Administrator,
        }
    }
}

/// `farside token`.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Make a token, and print it: this once
    #[command(
        after_help = "A token lets a program use the API over HTTPS (farsided --api-listen). Keep it in a file that its owner alone \
                      may read. The site keeps only its hash.\n\nExamples:\n  (umask 077; farside token create monitoring --role viewer > \
                      monitoring.token)\n  farside token create backup --role operator --valid 30d"
    )]
    #[command(aliases = ["add", "new"])]
    Create {
        /// The token's name, for lists and the audit log
        #[arg(value_parser = parse_label)]
        name: String,
        /// What its owner may do
        #[arg(long)]
        role: Role,
        /// For how long it is good, at most 3650d [default: 90d]
        #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
        valid: Option<Duration>,
        /// Succeed if the token is there and is as asked for, and print none: it was told once
        #[arg(long)]
        if_absent: bool,
    },
    /// List tokens: role, end, last use
    #[command(after_help = "Example:\n  farside token list --json")]
    #[command(aliases = ["ls", "status"])]
    List,
    /// Revoke a token: it is refused from then on
    #[command(
        after_help = "Examples:\n  farside token revoke monitoring --plan\n  farside token revoke monitoring"
    )]
    #[command(aliases = ["rm", "remove", "delete"])]
    Revoke {
        /// The token
        #[arg(value_parser = parse_label)]
        name: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}

/// `farside account`.
#[derive(Debug, Subcommand)]
pub enum Account {
    /// Make an account for a person who logs in with a password
    #[command(
        after_help = "The password has 12 to 256 characters. It is asked for, or read from stdin or a file, never from the \
                      arguments.\n\nExamples:\n  farside account create ann --role administrator\n  farside account create bob --role viewer \
                      --password-file bob.password"
    )]
    #[command(aliases = ["add", "new"])]
    Create {
        /// The account's name
        #[arg(value_parser = parse_label)]
        name: String,
        /// What this person may do
        #[arg(long)]
        role: Role,
        /// File with the password, in its first line
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// List accounts: role, and who is logged in
    #[command(after_help = "Example:\n  farside account list --json")]
    #[command(aliases = ["ls", "status"])]
    List,
    /// Change an account's role or password; this person has to log in again
    #[command(
        after_help = "Examples:\n  farside account set bob --role operator\n  farside account set bob --password    # asks for it"
    )]
    Set {
        /// The account
        #[arg(value_parser = parse_label)]
        name: String,
        /// What to change.
        #[command(flatten)]
        change: SetAccount,
    },
    /// Remove an account; whoever is logged in by it is logged out
    #[command(after_help = "Examples:\n  farside account remove bob --plan\n  farside account remove bob")]
    #[command(aliases = ["rm", "delete"])]
    Remove {
        /// The account
        #[arg(value_parser = parse_label)]
        name: String,
        /// Plan and consent.
        #[command(flatten)]
        destructive: Destructive,
    },
}

/// What `farside account set` changes.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = true)]
pub struct SetAccount {
    /// What this person may do
    #[arg(long)]
    pub role: Option<Role>,
    /// Ask for a new password, or read it from stdin
    #[arg(long, conflicts_with = "password_file")]
    pub password: bool,
    /// File with the new password, in its first line
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

/// `farside delayed`.
#[derive(Debug, Subcommand)]
pub enum Delayed {
    /// List destructive requests that wait, the next one first
    #[command(after_help = "Example:\n  farside delayed list")]
    #[command(aliases = ["ls", "status"])]
    List,
    /// Stop one of them; nothing of it has been done
    #[command(after_help = "Example:\n  farside delayed stop 7c3f5a52-6d0b-4f4e-9f0a-0c1d2e3f4a5b")]
    #[command(aliases = ["cancel", "abort", "rm", "remove", "delete"])]
    Stop {
        /// Its id, as it is listed
        id: farside_api::Uuid,
    },
}

/// `farside audit`.
#[derive(Clone, Debug, Args)]
pub struct Audit {
    /// Only what this somebody asked for: 'token NAME', 'account NAME' or 'uid NUMBER'
    #[arg(long, value_name = "WHO")]
    pub who: Option<String>,
    /// Only the last so long
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub last: Option<Duration>,
    /// So many entries, the newest [default: 100; with --last all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,
}
