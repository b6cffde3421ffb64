//! The index of similar content of one volume, and what it lacks.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use farside_wire::{Anchors, FramePlan, SimilarityIndex};
use uuid::Uuid;

use super::missing::MissingRuns;
use super::store::SimilarityStore;
use crate::error::{TransferError, blocking};
use crate::limits::INDEX_SAVED_PART;

/// The index of one volume.
pub(crate) struct VolumeIndex {
    volume: Uuid,
    store: Arc<dyn SimilarityStore>,
    index: RwLock<SimilarityIndex>,
    /// How often somebody has asked for it.
    uses: AtomicU64,
    missing: Mutex<Missing>,
    /// There is a file of it.
    is_stored: AtomicBool,
    /// Bytes of content entered since it was saved last.
    unsaved: AtomicU64,
    is_saving: AtomicBool,
    /// Nobody will ask for it again: who still has it in hand leaves no file behind.
    is_forgotten: AtomicBool,
}

/// What is missing in an index.
#[derive(Default)]
pub(crate) struct Missing {
    /// All that the volume holds from this offset on: the index is new.
    pub(crate) from: Option<u64>,
    /// What was not read because the destination knew it.
    pub(crate) missing_runs: MissingRuns,
    /// Somebody is at it, and has taken what there was.
    pub(crate) is_underway: bool,
}

impl Missing {
    /// Whether the index has all it should.
    pub(crate) fn is_nothing(&self) -> bool {
        self.from.is_none() && self.missing_runs.is_empty() && !self.is_underway
    }
}

impl VolumeIndex {
    /// Kept in `store`, where there is one already if `is_stored`; all of the volume from the offset `missing_from` on is
    /// missing in it.
    pub(crate) fn new(
        volume: Uuid,
        store: Arc<dyn SimilarityStore>,
        index: SimilarityIndex,
        is_stored: bool,
        missing_from: Option<u64>,
    ) -> VolumeIndex {
        VolumeIndex {
            volume,
            store,
            index: RwLock::new(index),
            uses: AtomicU64::new(0),
            missing: Mutex::new(Missing { from: missing_from, ..Missing::default() }),
            is_stored: AtomicBool::new(is_stored),
            unsaved: AtomicU64::new(0),
            is_saving: AtomicBool::new(false),
            is_forgotten: AtomicBool::new(false),
        }
    }

    /// Somebody has asked for it once more.
    pub(crate) fn count_use(&self) {
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// Nobody will ask for it again.
    pub(crate) fn forget(&self) {
        self.is_forgotten.store(true, Ordering::SeqCst);
    }

    pub(crate) fn missing(&self) -> MutexGuard<'_, Missing> {
        // Runs that are half merged are hints too.
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    /// The volume has grown.
    pub(crate) fn raise_budget(&self, budget_bytes: u64) {
        // Seldom: a transfer that looks something up meanwhile waits, and so does this where it is being saved.
        if self.read(SimilarityIndex::budget_bytes) < budget_bytes {
            self.index.write().unwrap_or_else(PoisonError::into_inner).raise_budget(budget_bytes);
        }
    }

    /// Looks something up.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&SimilarityIndex) -> T) -> T {
        // Half an entry is a wrong hint at worst.
        look(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Enters what a frame carries, by the `anchors` of its data. While the index is being saved it is left out.
    pub(crate) fn enter(&self, plan: &FramePlan, anchors: &Anchors) {
        self.change(plan.data_bytes(), |index| index.enter_anchors(anchors));
    }

    /// Enters what stands at block `position`.
    pub(crate) fn enter_at(&self, position: u64, bytes: &[u8]) {
        self.change(bytes.len() as u64, |index| index.enter(position, bytes));
    }

    /// Enters so many bytes of content.
    fn change(&self, bytes: u64, enter: impl FnOnce(&mut SimilarityIndex)) {
        if self.is_saving.load(Ordering::Relaxed) {
            return;
        }
        self.unsaved.fetch_add(bytes, Ordering::Relaxed);
        enter(&mut self.index.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Whether as much was entered that it should be saved: what is written stays in proportion to what travelled. One that
    /// lacks something is not saved: without a file it is rebuilt after a restart.
    fn is_due(&self) -> bool {
        let entered = self.unsaved.load(Ordering::Relaxed);
        let is_much = entered >= self.read(SimilarityIndex::bytes).saturating_mul(INDEX_SAVED_PART);
        let is_new = entered > 0 && !self.is_stored.load(Ordering::Relaxed);
        (is_much || is_new) && self.missing().is_nothing()
    }

    /// Whether its file is all that it has and lacks.
    pub(crate) fn is_saved(&self) -> bool {
        let is_stored = self.is_stored.load(Ordering::Relaxed) && !self.is_saving.load(Ordering::Relaxed);
        is_stored && self.unsaved.load(Ordering::Relaxed) == 0 && self.missing().is_nothing()
    }

    /// Saves it if that is due.
    pub(crate) async fn save_if_due(self: &Arc<Self>) {
        if self.is_due() {
            self.save().await;
        }
    }

    /// Saves it if it has what its file has not.
    pub(crate) async fn save(self: &Arc<Self>) {
        let is_wanted = !self.is_forgotten.load(Ordering::SeqCst)
            && self.unsaved.load(Ordering::Relaxed) > 0
            && self.missing().is_nothing();
        if !is_wanted || self.is_saving.swap(true, Ordering::AcqRel) {
            return;
        }
        let index = self.clone();
        let saved = blocking(move || {
            index.unsaved.store(0, Ordering::Relaxed);
            let mut saved =
                index.store.save(index.volume, &mut |mut out| index.read(|index| index.write_to(&mut out)));
            // Forgotten while it was written; else whoever forgets it now removes the file.
            if index.is_forgotten.load(Ordering::SeqCst) {
                saved = saved.and_then(|()| index.store.remove(index.volume));
            }
            index.is_stored.store(saved.is_ok(), Ordering::Relaxed);
            index.is_saving.store(false, Ordering::Release);
            Ok::<_, TransferError>(saved.map_err(|e| e.to_string()))
        });
        let saved = saved.await.unwrap_or_else(|e| Err(e.to_string()));
        if let Err(error) = saved {
            tracing::warn!(
                volume = %self.volume,
                "cannot save the index of similar content; it is rebuilt after a restart, no data is affected: \
                 {error}"
            );
        }
    }
}

/// What a step leaves out of its volume's index, because the destination knew it and nobody reads it here. The index is told when
/// this is dropped, however the step ends; the next [`super::Indexes::rebuild`] reads it.
pub(crate) struct Unread {
    index: Option<Arc<VolumeIndex>>,
    missing_runs: MissingRuns,
}

impl Unread {
    /// Of nothing yet; nothing is kept where there is no index.
    pub(crate) fn new(index: Option<Arc<VolumeIndex>>) -> Unread {
        Unread { index, missing_runs: MissingRuns::default() }
    }

    /// A run of blocks that is not read.
    pub(crate) fn add(&mut self, blocks: Range<u64>) {
        if self.index.is_some() {
            self.missing_runs.add(blocks);
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(index) = &self.index {
            index.missing().missing_runs.merge(std::mem::take(&mut self.missing_runs));
        }
    }
}
