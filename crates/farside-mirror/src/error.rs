//! Why a mirror could not do what it was asked.

use std::time::Duration;

use farside_engine::{EngineError, VolumeName};
use farside_peer::SessionError;
use farside_transfer::TransferError;

/// What can go wrong. Whatever it is, a replica is what it was before: one whole version, or not yet anything.
#[derive(Debug, thiserror::Error)]
pub enum MirrorError {
    /// A transfer failed, or a part of one: the session, the storage, the peer.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// There is no session with the peer.
    #[error("no session with the peer: {0}; the replica is unchanged. See farside peer list")]
    NoSession(String),
    /// There is a session with the peer, and no answer.
    #[error(
        "{site} keeps the session and does not answer: nothing came for {} s. Nothing was made or changed here, and the name stays \
         free. Look at the log of farsided there, and try again when it answers",
        waited.as_secs()
    )]
    NoAnswer {
        /// The site.
        site: String,
        /// For so long.
        waited: Duration,
    },
    /// The database of relationships failed.
    #[error("the state database failed: {0}")]
    Store(String),
    /// The source does not say at which moment all volumes of a group can be had.
    #[error("the source names no moment of all volumes of group {group}: {error}. Nothing was changed")]
    NotTogether {
        /// The group.
        group: String,
        /// Why not.
        error: Box<TransferError>,
    },
    /// The state forbids it.
    #[error("{0}")]
    State(String),
    /// Somebody has to say that this is what he wants. Nothing was changed.
    #[error("{0}")]
    Unconfirmed(String),
    /// No such mirror.
    #[error("no mirror has {0} as its destination; see farside mirror status")]
    NotFound(VolumeName),
    /// There is one already.
    #[error("{0} is already the destination of a mirror; see farside mirror status")]
    Exists(VolumeName),
    /// One is being made.
    #[error(
        "{0} is being made the destination of a mirror by another request. Try again when that has ended, at most a minute later"
    )]
    BeingMade(VolumeName),
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
}

impl MirrorError {
    /// Why a link could not be had. A session that was tried before says where it could not reach, and need not say so
    /// twice.
    pub(crate) fn no_session(error: SessionError) -> MirrorError {
        match error {
            SessionError::Unreachable { address, reason }
                if reason.starts_with(&format!("cannot reach {address}")) =>
            {
                MirrorError::NoSession(reason)
            }
            other => MirrorError::NoSession(other.to_string()),
        }
    }

    /// Whether the session went away under it: the same again may well succeed on the next one.
    pub(crate) fn is_lost_session(&self) -> bool {
        matches!(self, MirrorError::Transfer(error) if error.is_lost_session())
    }

    /// Whether the source refused it because this site has no right to it.
    pub(crate) fn is_forbidden(&self) -> bool {
        match self {
            MirrorError::Transfer(error) => error.is_forbidden(),
            MirrorError::NotTogether { error, .. } => error.is_forbidden(),
            _ => false,
        }
    }

    /// Whether the engine has no such volume or snapshot.
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, MirrorError::Transfer(TransferError::Engine(EngineError::NotFound { .. })))
    }

    /// Whether the storage of this side failed.
    pub(crate) fn is_io(&self) -> bool {
        matches!(self, MirrorError::Transfer(TransferError::Engine(EngineError::Io(_))))
    }

    pub(crate) fn aborted() -> MirrorError {
        TransferError::Aborted.into()
    }

    pub(crate) fn protocol(said: impl Into<String>) -> MirrorError {
        TransferError::Protocol(said.into()).into()
    }

    pub(crate) fn internal(said: impl Into<String>) -> MirrorError {
        TransferError::Internal(said.into()).into()
    }
}

impl From<EngineError> for MirrorError {
    fn from(error: EngineError) -> Self {
        TransferError::from(error).into()
    }
}

impl From<SessionError> for MirrorError {
    fn from(error: SessionError) -> Self {
        TransferError::from(error).into()
    }
}

impl From<tokio::task::JoinError> for MirrorError {
    fn from(error: tokio::task::JoinError) -> Self {
        TransferError::from(error).into()
    }
}

/// Runs engine calls on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, MirrorError>
where
    MirrorError: From<E>,
{
    let span = tracing::Span::current();
    Ok(tokio::task::spawn_blocking(move || span.in_scope(work)).await??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_it_could_not_reach_is_said_once() {
        let unreachable =
            |reason: &str| SessionError::Unreachable { address: "x:1".into(), reason: reason.into() };
        for reason in ["refused", "cannot reach x:1: refused"] {
            let said = MirrorError::no_session(unreachable(reason)).to_string();
            assert_eq!(said.matches("cannot reach x:1").count(), 1, "{said}");
            assert!(said.contains("refused"), "{said}");
        }
    }
}
