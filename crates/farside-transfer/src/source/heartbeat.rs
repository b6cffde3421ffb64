//! Whether a step gets on while nothing of it travels.

use std::sync::atomic::{AtomicBool, Ordering};

/// Stages that get on say so here; when nothing was sent for a while, what sends tells the destination that the source is
/// working, but only if one of them did. So a long comparison is not silence, and a storage that hangs is.
#[derive(Default)]
pub(crate) struct Heartbeat(AtomicBool);

impl Heartbeat {
    /// A stage got on.
    pub(crate) fn beat(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether one has since this was asked last.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}
