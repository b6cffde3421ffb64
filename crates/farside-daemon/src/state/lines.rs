//! Lines of the log that wait to be written together, and when the oldest of log and history go.

use std::collections::HashMap;
use std::hash::Hash;

use farside_mirror::LogEntry;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

/// Lines of a volume, or transfers of a relationship, after which it is looked how many it has: that walks all of them, 2 ms.
pub(super) const PRUNED_EVERY: u32 = 256;

/// A line, and who waits for it.
pub(super) type Waiting = (LogEntry, oneshot::Sender<Result<(), String>>);

/// Lines that wait for one transaction, and when the oldest of each volume and relationship go.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    pub(super) waiting: Mutex<Vec<Waiting>>,
    pub(super) turn: tokio::sync::Mutex<()>,
    pub(super) of_volumes: SincePruned<String>,
    pub(super) transfers: SincePruned<Uuid>,
}

/// How many each got since it was last looked whether it has too many.
#[derive(Debug)]
pub(super) struct SincePruned<K>(Mutex<HashMap<K, u32>>);

impl<K> Default for SincePruned<K> {
    fn default() -> Self {
        SincePruned(Mutex::default())
    }
}

impl<K: Eq + Hash + Clone> SincePruned<K> {
    /// Counts one more, and says whether it is the one at which the oldest go.
    pub(super) fn is_pruned_at(&self, of: &K) -> bool {
        let mut since = self.0.lock();
        match since.get_mut(of) {
            Some(count) if *count + 1 < PRUNED_EVERY => {
                *count += 1;
                false
            }
            Some(count) => {
                *count = 0;
                true
            }
            // The first since the start: nobody knows how many there were before.
            None => since.insert(of.clone(), 0).is_none(),
        }
    }
}
