//! A transfer that is being served.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock, PoisonError};

use farside_engine::VolumeName;
use farside_peer::PeerId;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::protocol::convert::TransferPlan;

/// A transfer that is being served.
pub(crate) struct Serving {
    pub(crate) transfer: Uuid,
    pub(crate) relationship: Uuid,
    pub(crate) peer: PeerId,
    pub(crate) volume: VolumeName,
    /// Set once the plan is made.
    pub(crate) plan: OnceLock<TransferPlan>,
    /// The base as this site calls it; differs from the plan's, which is the destination's.
    pub(crate) local_base: OnceLock<Option<Uuid>>,
    /// The snapshot of a transfer that was cut, with which this one goes on.
    pub(crate) taken_up: OnceLock<Option<Uuid>>,
    pub(crate) cancel: CancellationToken,
    /// Ended, but the destination may have it if it asks again: its stream breaks off, and nothing says that it has failed.
    pub(crate) is_to_begin_again: AtomicBool,
    /// Bytes that its steps have brought: data, and holes.
    pub(crate) brought: AtomicU64,
    /// Of so many of its steps, from the first, something was sent.
    pub(crate) steps_begun: AtomicUsize,
    /// So many of them may have arrived whole.
    pub(crate) steps_sent: AtomicUsize,
    /// Ends the data stream that was opened last.
    stream: Mutex<CancellationToken>,
    /// Held by the stream that is being served: however many are opened, what one costs in memory is there once.
    pub(crate) stream_lock: tokio::sync::Mutex<()>,
}

impl Serving {
    pub(crate) fn new(transfer: Uuid, relationship: Uuid, peer: PeerId, volume: VolumeName) -> Serving {
        Serving {
            transfer,
            relationship,
            peer,
            volume,
            plan: OnceLock::new(),
            local_base: OnceLock::new(),
            taken_up: OnceLock::new(),
            cancel: CancellationToken::new(),
            is_to_begin_again: AtomicBool::new(false),
            brought: AtomicU64::new(0),
            steps_begun: AtomicUsize::new(0),
            steps_sent: AtomicUsize::new(0),
            stream: Mutex::default(),
            stream_lock: tokio::sync::Mutex::default(),
        }
    }

    /// A new data stream of the transfer, and what ends it: the one before makes way, since its destination has given it up.
    pub(crate) fn next_stream(&self) -> CancellationToken {
        let next = self.cancel.child_token();
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *stream, next.clone()).cancel();
        next
    }
}
