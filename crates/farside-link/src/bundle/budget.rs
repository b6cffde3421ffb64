//! What all windows of a site may have together.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::WINDOW_BUDGET;

/// Bytes that windows past their start, and senders past theirs, share. Taken before it is granted or retained, so that the
/// sum holds whatever peers do; nobody waits for it: a window that gets none stays as it is.
#[derive(Debug)]
pub struct WindowBudget {
    free: AtomicU64,
}

impl WindowBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> WindowBudget {
        WindowBudget { free: AtomicU64::new(bytes) }
    }

    /// Takes all of it or nothing.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let less = |free: u64| free.checked_sub(bytes);
        self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.free.fetch_add(bytes, Ordering::AcqRel);
    }
}

impl Default for WindowBudget {
    fn default() -> Self {
        WindowBudget::new(WINDOW_BUDGET)
    }
}
