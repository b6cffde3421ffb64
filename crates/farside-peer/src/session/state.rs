//! What the tasks of a session share, and how it ends.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use farside_link::limits::KEEPALIVE_MAX;
use farside_link::{PathSpec, SocketOptions, SocketStats, WireCounters};
use farside_platform::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::clocks::Measured;
use super::context::{SessionContext, SessionInfo};
use super::entry::BundleEntry;
use super::lane_table::Lanes;
use super::preopened::PreopenedConnections;
use crate::error::SessionError;
use crate::limits::{CALLS_OUTSTANDING_MAX, PING_EVERY, STREAMS_OPEN_MAX, STREAMS_SERVED_MAX};
use crate::service::PeerLink;

/// A call that waits for its answer. Its slot among the outstanding calls is free when the answer is there, not
/// when the caller has given up: the peer is still working on it.
pub(super) struct Waiting {
    pub(super) answer: oneshot::Sender<(Result<Bytes, SessionError>, u64)>,
    pub(super) _slot: OwnedSemaphorePermit,
}

/// One live session. It is lost once `lost` is cancelled.
pub(crate) struct Session {
    pub(crate) info: SessionInfo,
    pub(super) context: SessionContext,
    pub(super) me: Weak<Session>,
    /// The same as services see it.
    pub(super) link: Weak<dyn PeerLink>,
    pub(super) wire: Arc<WireCounters>,
    pub(super) lanes: Lanes,
    pub(super) preopened: PreopenedConnections,
    /// For options that change while they live.
    pub(super) sockets: Mutex<Vec<Weak<dyn SocketStats>>>,
    pub(super) calls: mpsc::Sender<Bytes>,
    pub(super) urgent: mpsc::Sender<Bytes>,
    pub(super) next_call: AtomicU64,
    pub(super) waiting: Mutex<HashMap<u64, Waiting>>,
    pub(super) slots: Arc<Semaphore>,
    pub(super) streams_open: Arc<Semaphore>,
    pub(super) streams_served: Arc<Semaphore>,
    pub(super) pings: Mutex<Option<(u64, Instant)>>,
    /// Whoever wants to know whether the peer is there.
    pub(super) question: Mutex<Option<(u64, oneshot::Sender<()>)>>,
    pub(super) measured: watch::Sender<Option<Measured>>,
    /// When the newest frame came on the control stream; at the beginning the hello.
    heard_at: Mutex<Timestamp>,
    /// Since when nothing at all has come of a peer that is asked; `None`: it need not say anything now.
    pub(super) silent_since: Mutex<Option<Instant>>,
    pub(super) suspected: Notify,
    /// How often the other side wants a quiet session to be asked for a sign of life.
    pub(super) their_keepalive: Mutex<Duration>,
    /// Wakes who asks: it may have become more often.
    pub(super) keepalive_changed: Notify,
    pub(super) lost: CancellationToken,
    pub(super) lost_because: OnceLock<String>,
    /// Where another daemon of the peer's site was found when this one was silent.
    pub(super) answers_elsewhere: OnceLock<PathSpec>,
}

impl Session {
    /// Before its tasks run; `calls` and `urgent` are what its control stream writes.
    pub(super) fn new(
        info: SessionInfo,
        context: SessionContext,
        lanes: Lanes,
        calls: mpsc::Sender<Bytes>,
        urgent: mpsc::Sender<Bytes>,
        me: Weak<Session>,
        link: Weak<dyn PeerLink>,
    ) -> Session {
        Session {
            info,
            heard_at: Mutex::new(context.clock.now()),
            context,
            me,
            link,
            wire: Arc::default(),
            lanes,
            preopened: PreopenedConnections::default(),
            sockets: Mutex::default(),
            calls,
            urgent,
            next_call: AtomicU64::new(1),
            waiting: Mutex::default(),
            slots: Arc::new(Semaphore::new(CALLS_OUTSTANDING_MAX)),
            streams_open: Arc::new(Semaphore::new(STREAMS_OPEN_MAX)),
            streams_served: Arc::new(Semaphore::new(STREAMS_SERVED_MAX)),
            pings: Mutex::default(),
            question: Mutex::default(),
            measured: watch::Sender::new(None),
            silent_since: Mutex::default(),
            suspected: Notify::new(),
            their_keepalive: Mutex::default(),
            keepalive_changed: Notify::new(),
            lost: CancellationToken::new(),
            lost_because: OnceLock::new(),
            answers_elsewhere: OnceLock::new(),
        }
    }

    /// Ends the session. The first reason counts; the peer is told it if the link still works.
    pub(crate) fn close(&self, reason: &str) {
        if self.lost_because.set(reason.to_owned()).is_ok() {
            self.lost.cancel();
            // Dropping the waiting ends wakes their callers; they read the reason.
            self.waiting.lock().clear();
            self.lanes.close_data(reason);
        }
    }

    /// Where the peer is to be dialled first, now that this session is lost.
    pub(crate) fn answers_elsewhere(&self) -> Option<PathSpec> {
        self.answers_elsewhere.get().cloned()
    }

    /// The peer behaves as if this session were gone: find out soon.
    pub(crate) fn suspect(&self) {
        self.suspected.notify_one();
    }

    /// A frame of the peer has come.
    pub(super) fn note_heard(&self) {
        *self.heard_at.lock() = self.context.clock.now();
    }

    /// When the peer was last heard. It lived then: a session that is given up for its silence ends later.
    pub(crate) fn heard_at(&self) -> Timestamp {
        *self.heard_at.lock()
    }

    /// How often this side wants a quiet session to be asked for a sign of life.
    pub(super) fn our_keepalive(&self) -> Duration {
        self.context.reach.borrow().link.keepalive.unwrap_or(PING_EVERY)
    }

    /// How often it is: whoever pays for the line says so, at either side.
    pub(crate) fn keepalive(&self) -> Duration {
        self.our_keepalive().max(*self.their_keepalive.lock()).min(KEEPALIVE_MAX)
    }

    /// The other side has said how often.
    pub(super) fn note_keepalive(&self, theirs: Duration) {
        let before = std::mem::replace(&mut *self.their_keepalive.lock(), theirs);
        if before != theirs {
            self.follow_keepalive();
        }
    }

    /// What is asked of this session's connections now.
    pub(super) fn socket_options(&self) -> SocketOptions {
        let options = self.context.reach.borrow().socket(&self.info.first);
        SocketOptions { keepalive: Some(self.keepalive()), ..options }
    }

    /// Has all connections be as they should be now, and whoever pings look again.
    pub(super) fn follow_keepalive(&self) {
        let options = self.socket_options();
        for socket in self.sockets.lock().iter().filter_map(Weak::upgrade) {
            socket.apply(&options);
        }
        self.keepalive_changed.notify_one();
    }

    /// Something is under way, so that whoever is silent is gone: streams are open, calls wait, or bytes are unacknowledged.
    pub(super) fn is_busy(&self) -> bool {
        let is_busy = |entry: &Arc<BundleEntry>| !entry.is_control() || entry.bundle.has_data_on_its_way();
        !self.waiting.lock().is_empty() || self.lanes.bundles().iter().any(is_busy)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lost.is_cancelled()
    }

    /// Why it ended.
    pub(crate) fn reason(&self) -> String {
        self.lost_because.get().cloned().unwrap_or_else(|| "closed".to_owned())
    }

    pub(crate) fn measured(&self) -> watch::Receiver<Option<Measured>> {
        self.measured.subscribe()
    }

    pub(super) fn loss(&self) -> SessionError {
        SessionError::Lost(self.reason())
    }

    /// Names the peer in every line that a service logs while it works for it.
    pub(super) fn in_log(&self) -> tracing::Span {
        tracing::info_span!("peer", name = %self.info.peer_name)
    }

    pub(crate) fn lost_token(&self) -> &CancellationToken {
        &self.lost
    }

    /// Whether lanes may join: those of a session that the peer dialled.
    pub(crate) fn takes_lanes(&self) -> bool {
        !self.is_closed() && self.info.dialled.is_none()
    }

    /// A slot for one more lane that the peer dials.
    pub(crate) fn lane_slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.lanes.slots).try_acquire_owned().ok()
    }
}
