//! Prepositions that are under way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use farside_platform::Timestamp;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Those under way.
#[derive(Default)]
pub(super) struct Prepositions {
    pub(super) next: AtomicU64,
    pub(super) running: Mutex<BTreeMap<u64, Entry>>,
}

/// One of them.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) job: String,
    pub(super) what: String,
    pub(super) peer: String,
    pub(super) size_bytes: Option<u64>,
    pub(super) started_at: Timestamp,
    pub(super) stop: CancellationToken,
}

/// One among those under way, until it is dropped.
pub(super) struct Listed {
    pub(super) among: Arc<Prepositions>,
    pub(super) id: u64,
    pub(super) entry: Entry,
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.among.running.lock().remove(&self.id);
    }
}
