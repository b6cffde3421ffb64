//! Prepositions that are under way, for status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::connections::Record;
use crate::control::{PrepositionStatus, Prepositioned};

/// Those under way, by the number that `farsided` gave them.
#[derive(Default)]
pub(super) struct Prepositions(Mutex<BTreeMap<u64, Arc<Record>>>);

impl Prepositions {
    /// How far each is.
    pub(super) fn status(&self) -> Vec<PrepositionStatus> {
        let all = self.0.lock();
        let status = all.iter().map(|(id, record)| {
            let Prepositioned { original_bytes, wire_bytes } = came_to(record);
            PrepositionStatus { id: *id, original_bytes, wire_bytes }
        });
        status.collect()
    }
}

/// What a flow came to so far.
pub(super) fn came_to(record: &Record) -> Prepositioned {
    Prepositioned {
        original_bytes: record.original_bytes.load(Ordering::Relaxed),
        wire_bytes: record.wire_bytes.load(Ordering::Relaxed),
    }
}

/// Among those that are shown until it is dropped.
pub(super) struct UnderWay<'a> {
    among: &'a Prepositions,
    id: u64,
}

impl UnderWay<'_> {
    pub(super) fn new(among: &Prepositions, id: u64, record: Arc<Record>) -> UnderWay<'_> {
        among.0.lock().insert(id, record);
        UnderWay { among, id }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.among.0.lock().remove(&self.id);
    }
}
