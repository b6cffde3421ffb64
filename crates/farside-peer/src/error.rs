//! Why a session or a call on it failed, and who is to blame.

/// A refusal that the service sends back instead of an answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// A stable word: `forbidden`, `not-found`, `not-open`, `no-original`, `state`, `version`, `no-space`, `corrupt`, `budget`, `failed`;
    /// from the session itself: `busy` (too many calls under way; try again).
    pub code: String,
    /// A sentence for the operator.
    pub message: String,
}

/// What to do where two sites live with one key.
pub(crate) const SITES_WITH_ONE_KEY: &str = "One of the two is a copy: stop it, or start it with farsided --isolated (the page \
                                             Copies of a site of the manual, guides/copies)";

/// What can go wrong between two sites.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The link is gone; dial again. Nothing is known about a call that was under way.
    #[error("the session with the peer was lost: {0}")]
    Lost(String),
    /// The peer answered with a refusal.
    #[error("the peer refused: {0}")]
    Refused(#[from] Refusal),
    /// The peer could not be reached.
    #[error("cannot reach {address}: {reason}")]
    Unreachable {
        /// Where we dialled.
        address: String,
        /// What the kernel or TLS said.
        reason: String,
    },
    /// The peer is not who it should be, or does not know us.
    #[error("{0}")]
    NotAuthenticated(String),
    /// The two sides speak no common protocol.
    #[error("protocol versions differ: this site speaks {ours}, the peer {theirs}; upgrade the older one")]
    Version {
        /// Ours.
        ours: u32,
        /// Theirs.
        theirs: u32,
    },
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// A request is larger than the protocol allows.
    #[error("a message of {bytes} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// What it had.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The peer keeps a session that it dialled itself; nothing to do but to use that one.
    #[error("a session with this peer already exists")]
    AlreadyConnected,
    /// Two living sites have one key: this side's, and it is refused; or the peer's.
    #[error("{0}")]
    KeyInUse(String),
    /// This side cannot do it (files, keys).
    #[error("{0}")]
    Local(String),
}
