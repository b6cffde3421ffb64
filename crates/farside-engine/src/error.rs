//! Why an engine refused or failed.

use farside_store::TO_MAKE_ROOM_BELOW;

use crate::capability::Capability;

/// Why an engine refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No such pool, volume or snapshot.
    #[error("{what} does not exist")]
    NotFound {
        /// `volume p/v`, `snapshot p/v@s` …
        what: String,
    },
    /// It is there already.
    #[error("{what} already exists")]
    Exists {
        /// What.
        what: String,
    },
    /// A name that cannot be one.
    #[error("{name:?} is not a name; use POOL/VOL with 1 to 128 of A-Z a-z 0-9 . _ : + -")]
    BadName {
        /// What was given.
        name: String,
    },
    /// The state forbids it.
    #[error("{0}")]
    Refused(String),
    /// The engine of this pool has not what that takes.
    #[error("the engine of pool {pool} does not {capability}, so {what}. Nothing was changed")]
    Lacks {
        /// The pool.
        pool: String,
        /// What it has not.
        capability: Capability,
        /// What is not done for want of it, and what to do instead.
        what: String,
    },
    /// The request itself is wrong (unaligned, out of range).
    #[error("{0}")]
    Invalid(String),
    /// The pool has no room.
    #[error(
        "pool {pool} is full: the next piece of what comes needs {:.1} MiB, and {:.1} MiB are available for this; more may \
         follow (farside mirror initialize --plan says how much a first copy brings). What hosts see is unchanged, and what has come \
         stays for the next try. To make room: farside pool grow {pool} --size …, or delete snapshots that nobody needs",
        *needed_bytes as f64 / f64::from(1 << 20), *available_bytes as f64 / f64::from(1 << 20)
    )]
    NoSpace {
        /// The pool.
        pool: String,
        /// Bytes the request needs.
        needed_bytes: u64,
        /// Bytes it may have.
        available_bytes: u64,
    },
    /// The file system below the pool has no room.
    #[error(
        "the file system of {path} has {:.1} MiB left, which transfers leave to others, whatever room pool {pool} says it has. What \
         hosts see is unchanged, and what has come stays for the next try. To make room: {}",
        *left_bytes as f64 / f64::from(1 << 20), TO_MAKE_ROOM_BELOW
    )]
    NoSpaceBelow {
        /// The pool.
        pool: String,
        /// Its file.
        path: String,
        /// What is left there.
        left_bytes: u64,
    },
    /// The volume may not take more of its pool.
    #[error("{0}")]
    OverQuota(String),
    /// What was read is not what was written.
    #[error("{0}")]
    Corrupt(String),
    /// The device failed; the pool accepts no more writes until it is opened anew.
    #[error("{0}")]
    Io(String),
}
