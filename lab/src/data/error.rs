//! What can go wrong while a data set is made. Whatever it is, nothing half-made stays in the cache.

use std::path::{Path, PathBuf};

use bytesize::ByteSize;

use crate::testbed::TestBedError;

/// Why a data set could not be had.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// No set has this name.
    #[error("there is no data set `{name}`; there are: {known}")]
    UnknownSet {
        /// As ordered.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// The set does not fit into so few bytes.
    #[error("{} are too few for `{set}`; order at least {}", ByteSize(*size_bytes), ByteSize(*minimum_bytes))]
    TooSmall {
        /// The set.
        set: &'static str,
        /// As ordered.
        size_bytes: u64,
        /// The least that works.
        minimum_bytes: u64,
    },
    /// A program or package is not on this machine.
    #[error("{what} is not there, and making the data needs it; run `scripts/install-lab-tools`, then again")]
    Missing {
        /// What is missing.
        what: String,
    },
    /// The disk has no room.
    #[error(
        "the disk of {} has {} free, and making `{set}` takes about {}; nothing half-made was left. Free some room, or \
         order another --size or another cache",
        path.display(), ByteSize(*available_bytes), ByteSize(*needed_bytes)
    )]
    DiskFull {
        /// The set.
        set: &'static str,
        /// The cache.
        path: PathBuf,
        /// What making it takes at most.
        needed_bytes: u64,
        /// What is there.
        available_bytes: u64,
    },
    /// A program that makes the data failed.
    #[error("{what} failed ({status}); nothing half-made was left. It said: {said}")]
    Program {
        /// The program and what it was for.
        what: String,
        /// Its exit status.
        status: String,
        /// The end of what it wrote.
        said: String,
    },
    /// The test bed failed, or a signal asked the laboratory to stop.
    #[error(transparent)]
    TestBed(#[from] TestBedError),
    /// The system refused something.
    #[error("cannot {what} {}: {source}; nothing half-made was left", path.display())]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl DataError {
    /// For `map_err`: what was tried with which file.
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
