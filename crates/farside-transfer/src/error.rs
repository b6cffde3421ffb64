//! Why a transfer failed.

use farside_engine::{ContentRoot, EngineError, RoomBelow};
use farside_peer::SessionError;
use farside_wire::FrameError;
use uuid::Uuid;

/// The code of a refusal: the resync was asked for while the source's volume began to follow the asker's, and is to be taken back.
pub const CROSSED: &str = "crossed";

/// The code of a refusal: the volume's pool is not open at the source, as while another daemon of its site takes over.
pub const NOT_OPEN: &str = "not-open";

/// The code of a refusal of an update: the source's volume is a replica of the asker's, so neither is an original.
pub const NO_ORIGINAL: &str = "no-original";

/// The code of a refusal: the asker has no right to the volume.
const FORBIDDEN: &str = "forbidden";

/// What can go wrong. Whatever it is, a replica is what it was before: one whole version, or not yet anything.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The session failed, or the peer refused.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The storage of this side failed or refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A frame was refused.
    #[error("data from the source failed its checks: {0}; the replica is unchanged")]
    Frame(#[from] FrameError),
    /// The peer sent what the protocol does not allow here.
    #[error("the peer broke the mirror protocol: {0}; the replica is unchanged")]
    Protocol(String),
    /// The peer does not speak this side's version of the mirror protocol.
    #[error(
        "the source refused version {ours} of the mirror protocol, which this site speaks: {said}. Nothing was \
         changed. Upgrade farside at the site that speaks the older version"
    )]
    VersionsDiffer {
        /// The version spoken here.
        ours: u32,
        /// What the peer said, which names its version.
        said: String,
    },
    /// What a snapshot brings does not fit into the pool here.
    #[error(
        "{snapshot} brings {}, and {}. Nothing of it was transferred and the replica is unchanged. It is tried again when \
         there is room, and now and then in case it has become less. To make room: {}, or, where there \
         are older points or side branches, delete those that nobody needs (farside snapshot delete --plan says what each gives back)",
        mebibytes(*needed_bytes), why_no_room(pool, *room_bytes, *reserve_bytes, *quota_bytes, below.as_ref()),
        what_makes_room(pool, *quota_bytes, below.as_ref())
    )]
    NoRoom {
        /// The snapshot's name at the source.
        snapshot: String,
        /// The pool.
        pool: String,
        /// Bytes of data that it brings.
        needed_bytes: u64,
        /// Bytes that may be staged, what is staged of it included.
        room_bytes: u64,
        /// Bytes that are kept free for hosts.
        reserve_bytes: u64,
        /// The quota of the replica's volume, where that is what leaves no more.
        quota_bytes: Option<u64>,
        /// The file system below the pool, where that is what leaves no more.
        below: Option<RoomBelow>,
    },
    /// The source gave up.
    #[error("the source stopped the transfer: {message}; the replica is unchanged")]
    SourceFailed {
        /// The refusal's code.
        code: String,
        /// What it said.
        message: String,
    },
    /// What was received is not the source's snapshot.
    #[error(
        "snapshot {snapshot} arrived with content root {found} instead of {expected}; it was discarded and the \
         replica is unchanged. Check both pools offline (farside pool check) before the next update"
    )]
    RootMismatch {
        /// The snapshot's name.
        snapshot: String,
        /// The source's root.
        expected: ContentRoot,
        /// What was computed here.
        found: ContentRoot,
    },
    /// Two different contents go by one identity.
    #[error(
        "ALARM: snapshot {uuid} has content root {ours} at the site that reports this and {theirs} at its peer; one \
         of them was altered. Nothing was transferred or deleted. Check both pools offline (farside pool check) and \
         delete the wrong snapshot"
    )]
    IdentityClash {
        /// The snapshot's identity.
        uuid: Uuid,
        /// Its root here.
        ours: ContentRoot,
        /// Its root there.
        theirs: ContentRoot,
    },
    /// The state forbids it.
    #[error("{0}")]
    State(String),
    /// The update of its group was given up; what has arrived is right, and of use to the next one.
    #[error("{0}")]
    GroupGivenUp(String),
    /// A peer asks for more than its budgets allow.
    #[error("over a budget of the source: {0}")]
    OverBudget(String),
    /// A person ended it.
    #[error("aborted; the replica shows the version that was published last")]
    Aborted,
    /// A task of this program ended unexpectedly.
    #[error("internal error: {0}; the replica is unchanged")]
    Internal(String),
}

impl TransferError {
    /// Whether the session went away under it: the same again may well succeed on the next one. A peer that cannot be
    /// reached for a data stream is one whose loss the control stream has not noticed yet.
    pub fn is_lost_session(&self) -> bool {
        matches!(self, TransferError::Session(SessionError::Lost(_) | SessionError::Unreachable { .. }))
    }

    /// Whether the source refused it because its volume follows this one.
    pub fn is_crossed(&self) -> bool {
        matches!(self, TransferError::Session(SessionError::Refused(refusal)) if refusal.code == CROSSED)
    }

    /// Whether the source refused it because this site has no right to it (any more).
    pub fn is_forbidden(&self) -> bool {
        match self {
            TransferError::Session(SessionError::Refused(refusal)) => refusal.code == FORBIDDEN,
            TransferError::SourceFailed { code, .. } => code == FORBIDDEN,
            _ => false,
        }
    }

    /// Whether the source refused an update because its volume follows this one.
    pub fn has_no_original(&self) -> bool {
        matches!(self, TransferError::Session(SessionError::Refused(refusal)) if refusal.code == NO_ORIGINAL)
    }

    /// Whether the source has the volume's pool not open now: the same again may well succeed in a moment.
    pub fn is_not_open(&self) -> bool {
        matches!(self, TransferError::Session(SessionError::Refused(refusal)) if refusal.code == NOT_OPEN)
    }

    /// Whether the pool here ran full under it.
    pub(crate) fn is_no_space(&self) -> bool {
        matches!(
            self,
            TransferError::Engine(
                EngineError::NoSpace { .. } | EngineError::NoSpaceBelow { .. } | EngineError::OverQuota(_)
            )
        )
    }

    /// Whether there was no room for it here, known before or found out.
    pub(crate) fn is_about_room(&self) -> bool {
        self.is_no_space() || matches!(self, TransferError::NoRoom { .. })
    }

    /// Whether the same step, sent again without using the base as prefix, may well arrive.
    pub(crate) fn is_about_prefix(&self) -> bool {
        matches!(self, TransferError::Frame(e) if e.is_about_prefix())
    }
}

fn why_no_room(
    pool: &str,
    room_bytes: u64,
    reserve_bytes: u64,
    quota_bytes: Option<u64>,
    below: Option<&RoomBelow>,
) -> String {
    let room = mebibytes(room_bytes);
    match (quota_bytes, below) {
        (Some(quota), _) => {
            format!("the quota of the replica ({}) leaves room for {room} of it", mebibytes(quota))
        }
        (None, Some(RoomBelow { path, left_bytes })) => format!(
            "the file system of {path} has {} left, which is room for {room} of it: less than pool {pool} itself has, and some is left \
             to others there",
            mebibytes(*left_bytes)
        ),
        (None, None) => format!(
            "pool {pool} has room for {room} of it, beside {} that are kept free for hosts (replicas.reserve_percent)",
            mebibytes(reserve_bytes)
        ),
    }
}

fn what_makes_room(pool: &str, quota_bytes: Option<u64>, below: Option<&RoomBelow>) -> String {
    match (quota_bytes, below) {
        (Some(_), _) => "farside volume set --quota".into(),
        (None, Some(RoomBelow { path, .. })) => {
            format!("remove other files from the file system of {path} or make that larger")
        }
        (None, None) => format!("farside pool grow {pool} --size …"),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

impl From<tokio::task::JoinError> for TransferError {
    fn from(error: tokio::task::JoinError) -> Self {
        TransferError::Internal(error.to_string())
    }
}

/// Does a piece of a transfer's work on a thread that gives way to hosts ([`crate::precedence`]).
pub(crate) async fn piece<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, TransferError>
where
    TransferError: From<E>,
{
    let span = tracing::Span::current();
    Ok(crate::precedence::move_data(move || span.in_scope(work)).await??)
}

/// Runs engine calls on a blocking thread.
pub(crate) async fn blocking<T: Send + 'static, E: Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, TransferError>
where
    TransferError: From<E>,
{
    let span = tracing::Span::current();
    Ok(tokio::task::spawn_blocking(move || span.in_scope(work)).await??)
}
