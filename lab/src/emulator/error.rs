//! What can go wrong with an emulated link.

use std::path::PathBuf;

use thiserror::Error;

use crate::link::{Direction, LimitError};

/// Why a link does not come up, or no longer carries packets.
#[derive(Debug, Error)]
pub enum EmulatorError {
    /// A namespace cannot be entered.
    #[error("cannot enter the network namespace {}: {source}", path.display())]
    Namespace {
        /// Its file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A TUN device cannot be made or read about.
    #[error("TUN device {name}: cannot {doing}: {source}")]
    Device {
        /// Its name.
        name: String,
        /// What was tried.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The link is outside its limits.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The system gives no thread, or nothing to wake it with.
    #[error("cannot start a thread for the link: {0}")]
    Thread(std::io::Error),
    /// A way failed while it ran.
    #[error("the link's {direction:?} direction has stopped: {why}; what ran over it since does not count")]
    Ended {
        /// Which.
        direction: Direction,
        /// Why.
        why: String,
    },
}
