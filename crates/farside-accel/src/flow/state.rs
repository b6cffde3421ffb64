//! What the trunk and the two tasks of a flow share.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use farside_chunks::ChunkName;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::inbox::{Arrived, Inbox, Part};
use super::window::{WINDOW_MIN, Window, Windows};
use crate::protocol::PART_COST;
use crate::trunk::History;

/// What the two sides of a flow share: the trunk puts in what arrives, the pump takes it out.
#[derive(Debug)]
pub struct Flow {
    /// Its number on the trunk.
    pub id: u32,
    pub(crate) inbox: Mutex<Inbox>,
    arrived: Notify,
    /// Bytes that the far side has room for.
    credit: Mutex<u64>,
    /// The most credit there was since the last rest: the far side's window is no smaller. Changed under the lock of `credit`.
    credit_most: AtomicU64,
    credited: Notify,
    /// One part is queued at a time: flows take turns.
    pub(crate) slot: Arc<Semaphore>,
    pub(crate) window: Mutex<Window>,
    /// What this side has sent and the far side may still ask for.
    pub(crate) kept: Mutex<Kept>,
    /// What the far side asks for.
    asked: Mutex<VecDeque<Asked>>,
    is_asked: Notify,
    /// What this side has asked for: how many bytes that stands for, and the answer.
    asking: Mutex<BTreeMap<u64, (usize, Option<Bytes>)>>,
    /// The histories that rests end, until the far side has come to them.
    resting: Mutex<Vec<(u64, History)>>,
    is_answered: Notify,
    /// What has come of it over the trunk, and is not in its record yet; bytes.
    pub(crate) wire_received: AtomicU64,
    /// The far side has delivered all that was sent.
    pub(crate) done: CancellationToken,
    /// The far side's host has reset it, and what it sent before is still to be delivered.
    pub(crate) is_reset: CancellationToken,
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
/// Blocks of a direction that may be asked for and not be answered yet.
pub(crate) const ASKS_MAX: usize = 64;
/// An answer may be larger than what it stands for by so much.
const ANSWER_OVERHEAD: usize = 4096;
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
            asking: Mutex::default(),
            resting: Mutex::default(),
            is_answered: Notify::new(),
            wire_received: AtomicU64::new(0),
            done: CancellationToken::new(),
            is_reset: CancellationToken::new(),
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
        // Before the lock goes: a rest that came between would leave a window here that the far side has no more, and a sender
        // that waits for half of it.
        self.credit_most.fetch_max(sum, Ordering::Relaxed);
        drop(credit);
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
    pub(crate) fn rests_at(&self, sequence: u64, history: Option<History>) {
        if let Some(history) = history {
            self.resting.lock().push((sequence, history));
        }
    }

    /// This side asks for a block that stands for so many bytes.
    pub(crate) fn asks(&self, sequence: u64, bytes: usize) {
        self.asking.lock().insert(sequence, (bytes, None));
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

    /// The far side has reset the connection after so many parts; whether that can be.
    #[must_use]
    pub fn put_reset(&self, parts: u64) -> bool {
        let is_allowed = self.inbox.lock().put_reset(parts);
        self.arrived.notify_one();
        self.is_reset.cancel();
        is_allowed
    }

    /// The far side asks for a block; whether it may ask for one more.
    #[must_use]
    pub fn ask(&self, asked: Asked) -> bool {
        let mut waiting = self.asked.lock();
        waiting.push_back(asked);
        self.is_asked.notify_one();
        waiting.len() <= ASKS_MAX
    }

    /// The far side answers; whether it was asked.
    #[must_use]
    pub fn put_answer(&self, sequence: u64, block: Bytes, wire_bytes: u64) -> bool {
        match self.asking.lock().get_mut(&sequence) {
            Some((bytes, answer @ None)) if block.len() <= *bytes + *bytes / 8 + ANSWER_OVERHEAD => {
                *answer = Some(block);
            }
            _ => return false,
        }
        self.wire_received.fetch_add(wire_bytes, Ordering::Relaxed);
        self.is_answered.notify_one();
        true
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
            if let Some(asked) = self.asked.lock().pop_front() {
                return asked;
            }
            is_asked.await;
        }
    }

    /// The answer to what was asked for.
    pub(crate) async fn answer_to(&self, sequence: u64) -> Bytes {
        loop {
            let is_answered = self.is_answered.notified();
            {
                let mut asking = self.asking.lock();
                if asking.get(&sequence).is_some_and(|(_, answer)| answer.is_some())
                    && let Some((_, Some(answer))) = asking.remove(&sequence)
                {
                    return answer;
                }
            }
            is_answered.await;
        }
    }

    /// How many parts the far side has delivered.
    pub(crate) fn delivered_parts(&self) -> u64 {
        self.kept.lock().delivered
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
            if credit >= least + PART_COST && is_near {
                return credit - PART_COST;
            }
            credited.await;
        }
    }

    /// A part of so many bytes is sent.
    pub(crate) fn spend(&self, bytes: usize) {
        let mut credit = self.credit.lock();
        *credit = credit.saturating_sub(bytes as u64 + PART_COST);
    }

    /// What the far side has room for now.
    pub(crate) fn credit(&self) -> u64 {
        *self.credit.lock()
    }

    /// Gives back the credit of a flow that says nothing, but for the least that each flow has; how much.
    pub(crate) fn return_credit(&self) -> u64 {
        let mut credit = self.credit.lock();
        let returned = credit.saturating_sub(WINDOW_MIN);
        *credit -= returned;
        // The far side's window is smaller from now on.
        self.credit_most.store(*credit, Ordering::Relaxed);
        returned
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
