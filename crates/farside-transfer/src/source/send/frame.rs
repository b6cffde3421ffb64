//! What goes from stage to stage: frames to be, frames, and the memory they use, which goes round.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use farside_wire::{Effort, Prefix};

use super::plan::Planned;
use crate::limits::SPARES_MAX;

/// A frame to be: what it carries and what it may refer to. With its memory, and the encoder's, about 6 MiB.
pub(crate) struct Frame {
    pub(crate) planned: Planned,
    pub(crate) work: Work,
    pub(crate) effort: Effort,
    /// Time the search had it.
    pub(crate) searching: Duration,
    /// Other volumes that were offered as bases and are named no more from this frame on.
    pub(crate) withdrawn: Vec<u8>,
}

/// The memory of a frame to be.
#[derive(Default)]
pub(crate) struct Work {
    /// Of the data runs.
    pub(crate) data: Vec<u8>,
    pub(crate) prefix: Prefix,
}

/// Memory that is used again instead of being claimed and cleared for each frame; at most [`SPARES_MAX`] of it.
#[derive(Default)]
pub(crate) struct Spares<T>(Mutex<Vec<T>>);

impl<T: Default> Spares<T> {
    pub(crate) fn take(&self) -> T {
        // A list of spares cannot be half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, spare: T) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES_MAX {
            spares.push(spare);
        }
    }
}
