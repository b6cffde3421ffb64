//! What the stages of a step count, told to the destination at its end.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::StepEnd;

/// Counted by the stages, in whatever order they come.
#[derive(Default)]
pub(super) struct Counters {
    /// Frames encoded.
    pub(super) frames: Counter,
    /// Bytes of data in them, decoded.
    pub(super) changed: Counter,
    /// Bytes of holes in them.
    pub(super) deallocated: Counter,
    /// Bytes of the incremental that were read.
    pub(super) source_read: Counter,
    /// Bytes that were read to code against: of the base, or of the incremental where the stream has carried it.
    pub(super) base_read: Counter,
    /// Bytes not sent because the destination had staged them before.
    pub(super) held: Counter,
    /// Bytes not sent because the destination took them from its own store.
    pub(super) known: Counter,
}

/// One figure.
#[derive(Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// For a figure that its one counter keeps itself.
    pub(super) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// The last message of the step, once every stage has ended.
    pub(super) fn step_end(&self) -> StepEnd {
        StepEnd {
            frames: self.frames.get(),
            changed_bytes: self.changed.get(),
            deallocated_bytes: self.deallocated.get(),
            source_read_bytes: self.source_read.get(),
            base_read_bytes: self.base_read.get(),
            held_bytes: self.held.get(),
            known_bytes: self.known.get(),
        }
    }
}
