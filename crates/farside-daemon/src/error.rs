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
    #[error("another farsided runs on {}; stop it first, or give this one a --data-dir of its own", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
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
    /// The exit code of the process: 2 wrong usage, 4 refused in this state, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            DaemonError::Config(_) => 2,
            DaemonError::Locked { .. }
            | DaemonError::State(StateError::InUse { .. } | StateError::NotOfSite { .. }) => 4,
            _ => 1,
        }
    }
}
