//! Why the daemon does not start, or stopped.

use std::io;
use std::path::PathBuf;

use crate::state::StateError;

/// What ends the daemon.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The arguments or the file are wrong.
    #[error("{0}")]
    Config(String),
    /// The data directory cannot be used.
    #[error("cannot use the data directory {}: {source}", path.display())]
    DataDir {
        /// The directory, or the file in it.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another daemon runs on the data directory.
    #[error(
        "another farsided{} runs on {}; stop it first, or give this one a --data-dir of its own",
        pid.map(|pid| format!(" (process {pid})")).unwrap_or_default(), path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// Its process, if it has left its number.
        pid: Option<u32>,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({what}): {source}; choose another address with {option}")]
    Listen {
        /// `peers`, `http`, …
        what: &'static str,
        /// The word that changes it.
        option: &'static str,
        /// The address or path.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The state database cannot be opened.
    #[error(transparent)]
    State(#[from] StateError),
    /// The site's identity, or its meeting place for peers.
    #[error("{0}")]
    Session(#[from] farside_peer::SessionError),
    /// A Unix socket of the data directory cannot be listened on.
    #[error(transparent)]
    Socket(#[from] farside_nbd::BindError),
    /// The mirrors cannot be read.
    #[error("cannot start the mirrors: {0}")]
    Mirror(#[from] farside_mirror::MirrorError),
    /// The process itself: runtime, signals.
    #[error("cannot start: {0}")]
    Start(io::Error),
}

impl DaemonError {
    /// The exit code of the process: 2 wrong usage, 4 somebody else has the data directory or the state database, 6 this daemon is none
    /// of the site's, else 1. What ends with 4 may start once the other has ended. What ends with 6 never will without a person: the
    /// shipped unit does not start it again.
    pub fn exit_code(&self) -> u8 {
        match self {
            DaemonError::Config(_) => 2,
            DaemonError::Locked { .. } | DaemonError::State(StateError::InUse { .. }) => 4,
            DaemonError::State(StateError::NotOfSite { .. }) => NOT_OF_SITE,
            _ => 1,
        }
    }
}

/// What a daemon ends with that is none of its site's, or not any more.
const NOT_OF_SITE: u8 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_unit_starts_everything_again_but_a_daemon_that_was_removed() {
        let unit = include_str!("../../../packaging/farsided.service");
        let prevented = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
        let removed = StateError::NotOfSite { address: "db".into(), leader: "alpha".into() };
        let code = DaemonError::State(removed).exit_code();
        assert_eq!(prevented, Some(code.to_string().as_str()));
        // Somebody else may end, or let the database go.
        let held = StateError::InUse { address: "db".into(), of: String::new() };
        for passes in [DaemonError::Locked { path: "/d".into(), pid: None }, DaemonError::State(held)] {
            assert_ne!(passes.exit_code(), code, "{passes}");
        }
    }
}
