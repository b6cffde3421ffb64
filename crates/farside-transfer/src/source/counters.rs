//! What the stages of a step count, told to the destination at its end.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::StepEnd;

/// Counted by the stages, in whatever order they come.
#[derive(Default)]
pub(crate) struct Counters {
    /// Frames encoded.
    pub(crate) frames: Counter,
    /// Bytes of data in them, decoded.
    pub(crate) changed: Counter,
    /// Bytes of holes in them.
    pub(crate) deallocated: Counter,
    /// Bytes of the incremental that were read.
    pub(crate) source_read: Counter,
    /// Bytes that were read to code against: of the base, or of the incremental where the stream has carried it.
    pub(crate) base_read: Counter,
    /// Bytes not sent because the destination had staged them before.
    pub(crate) held: Counter,
    /// Bytes not sent because the destination took them from its own store.
    pub(crate) known: Counter,
}

/// One figure.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// For a figure that its one counter keeps itself.
    pub(crate) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// The last message of the step, once every stage has ended.
    pub(crate) fn step_end(&self) -> StepEnd {
        StepEnd {
            frames: self.frames.get(),
            changed_bytes: self.changed.get(),
            deallocated_bytes: self.deallocated.get(),
            source_read_bytes: self.source_read.get(),
            base_read_bytes: self.base_read.get(),
            resumed_bytes: self.held.get(),
            known_bytes: self.known.get(),
        }
    }
}
