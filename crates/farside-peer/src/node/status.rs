//! How it stands with a peer. Plain data.

use std::time::Duration;

use farside_platform::Timestamp;

use crate::registry::PeerRecord;
use crate::session::apart;

/// Why there is no session at a site that shall meet nobody.
pub(super) const ISOLATED: &str = "this site runs isolated (farsided --isolated) and meets no peer";

/// The session with one peer, for status.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PeerState {
    /// Whether a session is live.
    pub connected: bool,
    /// Since when it is, or is not: then from when the peer was last heard, however long its silence was waited for. `None`: never
    /// connected since the node started.
    pub since: Option<Timestamp>,
    /// When it was last heard; `None`: not since the node started.
    pub heard_at: Option<Timestamp>,
    /// Why there is none, or why the one before ended.
    pub last_error: Option<String>,
    /// Round-trip time as last measured, seconds.
    pub rtt_seconds: Option<f64>,
    /// By how much the peer's clock is ahead of this site's, as last measured, seconds; negative if it is behind. It outlives the
    /// session.
    pub clock_ahead_seconds: Option<f64>,
    /// The protocol version of the session.
    pub version: Option<u16>,
    /// Whether this side dialled it.
    pub dialled_by_us: bool,
}

impl PeerState {
    /// By how much the peer's clock is ahead of this site's, if that is more than the way there and back explains.
    pub fn clocks_apart(&self) -> Option<f64> {
        apart(self.clock_ahead_seconds, self.rtt_seconds)
    }
}

/// A peer, its session, and what its sockets have carried since the node started (TLS included), bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct PeerStatus {
    /// As pinned.
    pub record: PeerRecord,
    /// As of now.
    pub state: PeerState,
    /// Why a peer with a session does not answer: all connections of its control stream have ended. It is dialled again, by
    /// whichever side does that, and the session goes on if that succeeds before it is given up.
    pub trouble: Option<String>,
    /// For how long nothing has come of a peer with a session that owes an answer. The session is given up after
    /// [`SILENCE_MAX`](crate::limits::SILENCE_MAX) of it. `None`: it answers.
    pub silent_for: Option<Duration>,
    /// What keeps a peer that answers from being reached as it could be: full packets do not pass on a path.
    pub hindrance: Option<String>,
    /// That another living site has its key, and what to do.
    pub other_site: Option<String>,
    /// How often such a one was refused here, or this site was refused there because another has its key.
    pub key_conflicts: u64,
    /// To it.
    pub sent_bytes: u64,
    /// From it.
    pub received_bytes: u64,
}
