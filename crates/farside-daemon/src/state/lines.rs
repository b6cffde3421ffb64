//! Lines of the log that wait to be written together.

use std::collections::HashMap;

use farside_mirror::LogEntry;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Lines of a volume after which it is looked how many it has: that walks all of them, 2 ms.
pub(super) const PRUNED_EVERY: u32 = 256;

/// A line, and who waits for it.
pub(super) type Waiting = (LogEntry, oneshot::Sender<Result<(), String>>);

/// Lines that wait for one transaction, and how many each volume got since it was last looked whether it has too many.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(super) waiting: Mutex<Vec<Waiting>>,
    pub(super) turn: tokio::sync::Mutex<()>,
    since_pruned: Mutex<HashMap<String, u32>>,
}

impl Lines {
    /// Counts a line, and says whether it is the one at which the oldest go.
    pub(super) fn is_pruned_at(&self, volume: &str) -> bool {
        let mut since = self.since_pruned.lock();
        match since.get_mut(volume) {
            Some(count) if *count + 1 < PRUNED_EVERY => {
                *count += 1;
                false
            }
            Some(count) => {
                *count = 0;
                true
            }
            // The first since the start: nobody knows how many there were before.
            None => since.insert(volume.to_owned(), 0).is_none(),
        }
    }
}
