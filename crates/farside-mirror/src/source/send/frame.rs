//! What goes from stage to stage: frames to be, frames, and the memory they use, which goes round.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farside_wire::{Effort, Prefix, Sent};

use super::plan::Planned;
use crate::limits::SPARES_MAX;
use crate::protocol::stream::StreamMessage;

/// A frame to be: what it carries and what it may refer to. With its memory, and the encoder's, about 6 MiB.
pub(super) struct Frame {
    pub(super) planned: Planned,
    pub(super) work: Work,
    pub(super) effort: Effort,
    /// Time the search had it.
    pub(super) searching: Duration,
    /// Other volumes that were offered as bases and are named no more from this frame on.
    pub(super) let_go: Vec<u8>,
}

/// The memory of a frame to be.
#[derive(Default)]
pub(super) struct Work {
    /// Of the data runs.
    pub(super) data: Vec<u8>,
    pub(super) prefix: Prefix,
}

/// What is sent next.
pub(in crate::source) enum Outgoing {
    Message(StreamMessage),
    /// A frame, and what it cost so far.
    Frame(Vec<u8>, Sent),
}

impl From<StreamMessage> for Outgoing {
    fn from(message: StreamMessage) -> Outgoing {
        Outgoing::Message(message)
    }
}

/// Memory that is used again instead of being claimed and cleared for each frame; at most [`SPARES_MAX`] of it.
#[derive(Default)]
pub(super) struct Spares<T>(Mutex<Vec<T>>);

impl<T: Default> Spares<T> {
    pub(super) fn take(&self) -> T {
        // A list of spares cannot be half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(super) fn give(&self, spare: T) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES_MAX {
            spares.push(spare);
        }
    }
}
