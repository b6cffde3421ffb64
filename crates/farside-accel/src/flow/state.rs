//! What the trunk and the two tasks of a flow share.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use farside_chunks::ChunkName;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::inbox::{Arrived, Inbox, Part};
use super::window::{Window, Windows};

/// What the two sides of a flow share: the trunk puts in what arrives, the pump takes it out.
#[derive(Debug)]
pub struct Flow {
    /// Its number on the trunk.
    pub id: u32,
    pub(crate) inbox: Mutex<Inbox>,
    arrived: Notify,
    /// Bytes that the far side has room for.
    credit: Mutex<u64>,
    /// The most credit there ever was: the far side's window is no smaller.
    credit_most: AtomicU64,
    credited: Notify,
    /// One part is queued at a time: flows take turns.
    pub(crate) slot: Arc<Semaphore>,
    pub(crate) window: Mutex<Window>,
    /// What this side has sent and the far side may still ask for.
    pub(crate) kept: Mutex<Kept>,
    /// What the far side asks for; one block at a time.
    asked: Mutex<Option<Asked>>,
    is_asked: Notify,
    /// This side has asked, and has no answer yet.
    is_asking: AtomicBool,
    /// The histories that rests end, until the far side has come to them.
    resting: Mutex<Vec<(u64, OwnedSemaphorePermit)>>,
    /// The answer to what this side has asked for.
    answer: Mutex<Option<(u64, Bytes)>>,
    is_answered: Notify,
    /// What has come of it over the trunk, and is not in its record yet; bytes.
    pub(crate) wire_received: AtomicU64,
    /// The far side has delivered all that was sent.
    pub(crate) done: CancellationToken,
    /// The connection is over: reset by the far side, or lost with its trunk.
    pub over: CancellationToken,
}

/// A block that the far side could not make of what it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Its sequence number.
    pub sequence: u64,
    /// The chunk that is missing there, if it is one.
    pub missing: Option<ChunkName>,
}

/// Bytes of blocks with references, until they are delivered.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) blocks: BTreeMap<u64, Bytes>,
    /// Of all of them.
    bytes: usize,
    delivered: u64,
}

/// Parts that are sent ahead of what was delivered. The far side holds four times as many.
const PARTS_AHEAD: u64 = 16_384;
/// Kept of a flow: twice the largest window.
const KEPT_MAX: usize = 32 << 20;
/// Credit beyond this is no credit: a far side that says so breaks the protocol.
const CREDIT_MAX: u64 = 1 << 30;

impl Flow {
    /// A flow; `windows` bounds what all flows together may have waiting here.
    pub fn new(id: u32, windows: &Arc<Windows>) -> Arc<Flow> {
        let window = Window::new(Arc::clone(windows));
        Arc::new(Flow {
            id,
            inbox: Mutex::new(Inbox::new(window.initial())),
            arrived: Notify::new(),
            credit: Mutex::default(),
            credit_most: AtomicU64::new(0),
            credited: Notify::new(),
            slot: Arc::new(Semaphore::new(1)),
            window: Mutex::new(window),
            kept: Mutex::default(),
            asked: Mutex::default(),
            is_asked: Notify::new(),
            is_asking: false.into(),
            resting: Mutex::default(),
            answer: Mutex::default(),
            is_answered: Notify::new(),
            wire_received: AtomicU64::new(0),
            done: CancellationToken::new(),
            over: CancellationToken::new(),
        })
    }

    /// How many bytes may come before credit is given.
    pub fn initial_window(&self) -> u32 {
        self.window.lock().initial()
    }

    /// The far side has room for so many bytes more; whether that can be.
    #[must_use]
    pub fn add_credit(&self, bytes: u64) -> bool {
        let mut credit = self.credit.lock();
        let Some(sum) = credit.checked_add(bytes).filter(|sum| *sum <= CREDIT_MAX) else { return false };
        *credit = sum;
        drop(credit);
        self.credit_most.fetch_max(sum, Ordering::Relaxed);
        self.credited.notify_one();
        true
    }

    /// The far side has delivered so many parts: it asks for none of them any more.
    pub fn delivered(&self, parts: u64) {
        let mut kept = self.kept.lock();
        kept.delivered = kept.delivered.max(parts);
        let delivered = kept.delivered;
        kept.blocks = kept.blocks.split_off(&delivered);
        kept.bytes = kept.blocks.values().map(Bytes::len).sum();
        drop(kept);
        self.resting.lock().retain(|(rest, _)| *rest >= delivered);
        self.credited.notify_one();
    }

    /// A history ends with the part of this number: its place is free once the far side has come to it.
    pub(crate) fn rests_at(&self, sequence: u64, permit: Option<OwnedSemaphorePermit>) {
        if let Some(permit) = permit {
            self.resting.lock().push((sequence, permit));
        }
    }

    /// This side asks for a block.
    pub(crate) fn asks(&self) {
        self.is_asking.store(true, Ordering::Relaxed);
    }

    /// A part has arrived, and was so many bytes on the wire; whether it keeps to what was allowed.
    #[must_use]
    pub fn put(&self, sequence: u64, part: Part, wire_bytes: u64) -> bool {
        self.wire_received.fetch_add(wire_bytes, Ordering::Relaxed);
        let is_allowed = self.inbox.lock().put(sequence, part);
        self.arrived.notify_one();
        is_allowed
    }

    /// The far side has said how many parts there were; whether that can be.
    #[must_use]
    pub fn put_end(&self, parts: u64) -> bool {
        let is_allowed = self.inbox.lock().put_end(parts);
        self.arrived.notify_one();
        is_allowed
    }

    /// The far side asks for a block; whether it may: one at a time.
    #[must_use]
    pub fn ask(&self, asked: Asked) -> bool {
        let before = self.asked.lock().replace(asked);
        self.is_asked.notify_one();
        before.is_none()
    }

    /// The far side answers; whether it was asked.
    #[must_use]
    pub fn put_answer(&self, sequence: u64, block: Bytes, wire_bytes: u64) -> bool {
        if !self.is_asking.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.wire_received.fetch_add(wire_bytes, Ordering::Relaxed);
        let before = self.answer.lock().replace((sequence, block));
        self.is_answered.notify_one();
        before.is_none()
    }

    /// All that was sent has been delivered.
    pub fn put_done(&self) {
        self.done.cancel();
    }

    /// The next part in order, or the end.
    pub(crate) async fn next(&self) -> Arrived {
        loop {
            let arrived = self.arrived.notified();
            if let Some(next) = self.inbox.lock().take() {
                return next;
            }
            arrived.await;
        }
    }

    /// The block that the far side asks for next.
    pub(crate) async fn next_asked(&self) -> Asked {
        loop {
            let is_asked = self.is_asked.notified();
            if let Some(asked) = self.asked.lock().take() {
                return asked;
            }
            is_asked.await;
        }
    }

    pub(crate) async fn next_answer(&self) -> (u64, Bytes) {
        loop {
            let is_answered = self.is_answered.notified();
            if let Some(answer) = self.answer.lock().take() {
                return answer;
            }
            is_answered.await;
        }
    }

    /// How many bytes may be sent now, in the part of this number; waits until it is `wanted`, or half of the far side's window: a
    /// part that ends for want of room ends a chunk where its content does not. Credit comes for each quarter of the window, so
    /// that three quarters are there once the far side has taken all that was sent.
    pub(crate) async fn room(&self, sequence: u64, wanted: u64) -> u64 {
        let least = wanted.min(self.credit_most.load(Ordering::Relaxed) / 2).max(1);
        loop {
            let credited = self.credited.notified();
            let credit = *self.credit.lock();
            // Parts are few bytes where a client says little at a time; the far side holds no more of them than that.
            let is_near = sequence < self.kept.lock().delivered + PARTS_AHEAD;
            if credit >= least && is_near {
                return credit;
            }
            credited.await;
        }
    }

    pub(crate) fn spend(&self, bytes: usize) {
        let mut credit = self.credit.lock();
        *credit = credit.saturating_sub(bytes as u64);
    }

    /// Keeps what a block stands for until it is delivered.
    ///
    /// # Errors
    /// If the far side takes ever more without delivering it.
    pub(crate) fn keep(&self, sequence: u64, bytes: Bytes) -> io::Result<()> {
        let mut kept = self.kept.lock();
        if sequence >= kept.delivered {
            kept.bytes += bytes.len();
            kept.blocks.insert(sequence, bytes);
        }
        if kept.bytes > KEPT_MAX {
            return Err(io::Error::other("the far side delivers nothing and gives credit"));
        }
        Ok(())
    }
}
