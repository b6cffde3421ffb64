//! What a bundle and its other tasks have of a lane: orders for its task, and when something last came on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use super::options::{LaneId, LaneOptions};
use super::sender::Segment;
use crate::wire::ByteStream;

/// An ack is due.
pub(super) const SEND_ACK: u8 = 1;
/// A ping is to be sent.
pub(super) const PING: u8 = 2;
/// The bundle has ended in order.
pub(super) const LEAVE: u8 = 4;
/// The bundle is lost.
pub(super) const CLOSE: u8 = 8;

/// What the bundle and its other tasks have of a lane.
pub(super) struct Handle {
    pub(super) id: LaneId,
    pub(super) options: LaneOptions,
    pub(super) orders: AtomicU8,
    pub(super) task: Mutex<Option<Waker>>,
    /// When something last arrived on it, milliseconds of the bundle's life.
    pub(super) last_received: AtomicU64,
    /// Something that is answered was written since then.
    pub(super) owed: AtomicBool,
    /// It has a segment that is not all in its connection's buffers.
    pub(super) has_segment: AtomicBool,
    /// Carried by its connection before this bundle, sent and received.
    pub(super) wire_before: (u64, u64),
}

impl Handle {
    pub(super) fn new(id: LaneId, options: LaneOptions, now: Duration) -> Arc<Handle> {
        let wire_before = (options.wire.sent(), options.wire.received());
        Arc::new(Handle {
            id,
            options,
            orders: AtomicU8::new(SEND_ACK | PING),
            task: Mutex::new(None),
            last_received: AtomicU64::new(now.as_millis() as u64),
            owed: AtomicBool::new(false),
            has_segment: AtomicBool::new(false),
            wire_before,
        })
    }

    /// Gives the lane's task something to do.
    pub(super) fn order(&self, orders: u8) {
        self.orders.fetch_or(orders, Ordering::AcqRel);
        self.wake();
    }

    /// Has the task look again.
    pub(super) fn wake(&self) {
        if let Some(task) = &*self.task.lock() {
            task.wake_by_ref();
        }
    }

    pub(super) fn last_received(&self) -> Duration {
        Duration::from_millis(self.last_received.load(Ordering::Relaxed))
    }

    /// The peer has been written to, and nothing has arrived since.
    pub(super) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed)
    }

    pub(super) fn orders(&self) -> u8 {
        self.orders.load(Ordering::Acquire)
    }

    pub(super) fn done(&self, orders: u8) {
        self.orders.fetch_and(!orders, Ordering::AcqRel);
    }
}

/// How a lane ended.
pub(super) enum LaneEnd {
    /// In order; it can carry the next bundle.
    Left(Box<dyn ByteStream>),
    /// Its connection did.
    Lost(String),
    /// With the bundle.
    Closed,
}

/// What a lane got of the bundle.
pub(super) enum Taken {
    Data(Segment),
    End(u64),
    Nothing,
}
