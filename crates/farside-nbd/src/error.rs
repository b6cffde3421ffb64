//! What an export may answer besides success, and how a client is told.

use std::fmt;

/// Why a command, or the opening of an export, did not succeed. Decides the number that the client sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// There is no export of that name. In transmission: EINVAL.
    UnknownExport,
    /// The export takes no changes, or the client may not have it: EPERM.
    NotPermitted,
    /// The data or metadata could not be read, verified or written: EIO.
    Io,
    /// The request makes no sense, or lies outside the export: EINVAL.
    Invalid,
    /// The pool has no room for the change: ENOSPC. Nothing was changed.
    NoSpace,
    /// The operation is not offered, or (fast zero) would not be fast: ENOTSUP. Nothing was changed.
    NotSupported,
    /// The export is going away; the command was not carried out: ESHUTDOWN.
    ShuttingDown,
}

impl ErrorKind {
    /// The error number of the NBD protocol (they are Linux's).
    pub(crate) fn number(self) -> u32 {
        match self {
            ErrorKind::NotPermitted => 1,
            ErrorKind::Io => 5,
            ErrorKind::Invalid | ErrorKind::UnknownExport => 22,
            ErrorKind::NoSpace => 28,
            ErrorKind::NotSupported => 95,
            ErrorKind::ShuttingDown => 108,
        }
    }
}

/// An error with a text for people. Clients that negotiated structured replies receive the text too; the others
/// only the number.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct NbdError {
    /// What kind it is.
    pub kind: ErrorKind,
    /// What happened and what can be done about it.
    pub message: String,
}

impl NbdError {
    /// An error of `kind` that tells `message`.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        NbdError { kind, message: message.to_string() }
    }

    pub(crate) fn invalid(message: impl fmt::Display) -> Self {
        NbdError::new(ErrorKind::Invalid, message)
    }
}
