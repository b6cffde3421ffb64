//! What can go wrong with the test bed, in words that say what is safe and what to do next.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::emulator::EmulatorError;

/// Why the test bed could not be entered, laid or used. Nothing outside the laboratory's own namespaces and directory has
/// been changed when one of these comes; what was made inside goes with the run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TestBedError {
    /// Not root.
    #[error(
        "needs root: it makes network namespaces, TUN devices and mounts of its own. The machine's network, mounts and \
         processes stay untouched; files are written below {work} only and go at the end. Try: sudo {command}"
    )]
    NotRoot {
        /// Where the laboratory works.
        work: PathBuf,
        /// The command as it was given.
        command: String,
    },
    /// Something that the test bed is made of is missing on this machine.
    #[error("this machine lacks what the laboratory stands on:\n{}", .0.join("\n"))]
    Missing(Vec<String>),
    /// A system call or a file operation failed.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A program that the test bed needs answered with an error.
    #[error("{program} failed: {message}")]
    Program {
        /// Which one.
        program: String,
        /// What it said, or its status.
        message: String,
    },
    /// Another laboratory holds the lock of the place.
    #[error(
        "another farside-lab has been cleaning {place} for {waited:?}; wait for it, or name another place with --cache"
    )]
    Busy {
        /// Whose lock it is.
        place: PathBuf,
        /// For how long this one waited.
        waited: Duration,
    },
    /// Hosts cannot have what was asked for.
    #[error("{0}")]
    Hosts(String),
    /// A site by a name that the topology has not.
    #[error("there is no site {name}; there are {known}")]
    NoSite {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The emulator.
    #[error("link {link}: {source}")]
    Emulator {
        /// Name of the link.
        link: String,
        /// What it said.
        source: EmulatorError,
    },
    /// A script ended with an error, or was ended.
    #[error("{script} at {site} ended with {status}{tail}")]
    Failed {
        /// First line of the script.
        script: String,
        /// Where it ran.
        site: String,
        /// How it ended.
        status: String,
        /// The end of what it printed, on lines of its own.
        tail: String,
    },
    /// A script took longer than it may.
    #[error("{script} at {site} was not done after {limit:?} and has been stopped{tail}")]
    TooLong {
        /// First line of the script.
        script: String,
        /// Where it ran.
        site: String,
        /// How long it was given.
        limit: Duration,
        /// The end of what it printed, on lines of its own.
        tail: String,
    },
    /// Processor time cannot be told.
    #[error("processor time of sites is not known here: {0}")]
    NoProcessorTime(String),
    /// A signal asked the laboratory to stop.
    #[error("stopped by a signal; what was running has been stopped in order")]
    Interrupted,
}

impl TestBedError {
    /// For a command that needs root and has not got it.
    pub fn not_root(work: &Path) -> Self {
        let command: Vec<String> = env::args().collect();
        Self::NotRoot { work: work.to_owned(), command: command.join(" ") }
    }

    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    pub(crate) fn errno(what: impl Into<String>) -> impl FnOnce(nix::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source: source.into() }
    }
}
