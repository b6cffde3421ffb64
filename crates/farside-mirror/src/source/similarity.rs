//! Indexes of similar content: for each volume that this site is source of, where in its newest base what content lies.
//!
//! They are fed by the transfers: what a step sends is entered as it is sent, so host writes pay nothing, and what it leaves
//! behind is the index of the next step's base. Kept over restarts by a [`SimilarityStore`]; where one is absent it is
//! rebuilt in the background, by reading the snapshot that will be the next base, while transfers go on without it. What a
//! step need not read, because the destination knows it, is read so afterwards, and nothing else with it.
//! In memory an index stays as long as transfers use it, and at least [`INDEX_IDLE_MAX`] longer.
//!
//! Everything in an index is a hint: one that is stale, incomplete or lost costs bytes on the wire, never data.

mod lacks;
mod rebuild;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use farside_engine::BLOCK_BYTES;
use farside_platform::Clock;
use farside_wire::{FramePlan, SimilarityIndex};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use crate::error::{MirrorError, blocking};
use crate::limits::{
    INDEX_BYTES_MIN, INDEX_IDLE_MAX, INDEX_SAVED_PART, INDEXED_BYTES_MAX, REBUILT_FROM_BYTES,
};

use self::lacks::Lacks;
pub(super) use self::rebuild::Content;
use self::rebuild::{Missing, Rebuilding};

/// Bytes of memory for each TiB of a volume's size, unless said otherwise. Its index takes them as content is entered, so a thin
/// volume takes less. Content has an anchor of 4 bytes in 16 KiB: of a volume that is full of it two thirds fit, which loses 3
/// to 5 % of the bytes saved against all.
pub const SIMILARITY_BYTES_PER_TIB: u64 = 171 << 20;

/// Where indexes are kept over restarts. What it loses is rebuilt, and what it spoils is found out, so nothing need be synced.
pub trait SimilarityStore: Send + Sync + 'static {
    /// The index of a volume as it was saved last; none if there is none.
    fn load(&self, volume: Uuid) -> io::Result<Option<Box<dyn Read + Send>>>;
    /// Replaces it by what `write` writes, whole or not at all.
    fn save(&self, volume: Uuid, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()>;
    /// Forgets it. An absent one is no error.
    fn remove(&self, volume: Uuid) -> io::Result<()>;
}

/// Keeps indexes as long as it lives.
#[derive(Default)]
pub struct MemorySimilarityStore {
    files: Mutex<HashMap<Uuid, Vec<u8>>>,
}

impl MemorySimilarityStore {
    /// The files, by volume: a test may look at them, spoil or lose them.
    pub fn files(&self) -> MutexGuard<'_, HashMap<Uuid, Vec<u8>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SimilarityStore for MemorySimilarityStore {
    fn load(&self, volume: Uuid) -> io::Result<Option<Box<dyn Read + Send>>> {
        let file = self.files().get(&volume).cloned();
        Ok(file.map(|bytes| Box::new(io::Cursor::new(bytes)) as Box<dyn Read + Send>))
    }

    fn save(&self, volume: Uuid, write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes)?;
        self.files().insert(volume, bytes);
        Ok(())
    }

    fn remove(&self, volume: Uuid) -> io::Result<()> {
        self.files().remove(&volume);
        Ok(())
    }
}

/// What a site gives for finding similar content.
pub struct Similarity {
    /// Where indexes are kept.
    pub store: Arc<dyn SimilarityStore>,
    /// Bytes of memory for each TiB of a volume's size at most; see [`SIMILARITY_BYTES_PER_TIB`]. 0 keeps no indexes.
    pub bytes_per_tib: u64,
}

impl Default for Similarity {
    /// Kept in memory, with the default budget.
    fn default() -> Self {
        let store = Arc::<MemorySimilarityStore>::default();
        Similarity { store, bytes_per_tib: SIMILARITY_BYTES_PER_TIB }
    }
}

/// Those in memory.
#[derive(Default)]
struct Volumes(Mutex<HashMap<Uuid, Arc<VolumeIndex>>>);

/// The indexes of a site.
pub(super) struct Indexes {
    similarity: Similarity,
    clock: Arc<dyn Clock>,
    volumes: Arc<Volumes>,
    /// One is rebuilt at a time.
    rebuilding: Arc<Semaphore>,
    stop: CancellationToken,
    _stops: DropGuard,
}

/// The index of one volume.
pub(super) struct VolumeIndex {
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

impl Indexes {
    pub(super) fn new(similarity: Similarity, clock: Arc<dyn Clock>) -> Indexes {
        let stop = CancellationToken::new();
        Indexes {
            similarity,
            clock,
            volumes: Arc::default(),
            rebuilding: Arc::new(Semaphore::new(1)),
            _stops: stop.clone().drop_guard(),
            stop,
        }
    }

    /// The index of a volume of `size_bytes`: as it is in memory, as it was saved, or an empty one. Blocks. `has_base`: both
    /// sides hold something already, which an empty index lacks. None where none are kept.
    pub(super) fn of(&self, volume: Uuid, size_bytes: u64, has_base: bool) -> Option<Arc<VolumeIndex>> {
        if self.similarity.bytes_per_tib == 0 {
            return None;
        }
        let budget = budget(self.similarity.bytes_per_tib, size_bytes);
        if let Some(index) = self.volumes.used(volume) {
            index.raise_budget(budget);
            return Some(index);
        }
        let loaded = self.similarity.store.load(volume).map_err(|e| e.to_string()).and_then(|file| {
            file.map(|mut file| SimilarityIndex::read_from(&mut file, budget))
                .transpose()
                .map_err(|e| e.to_string())
        });
        let is_stored = matches!(loaded, Ok(Some(_)));
        let (index, from) = match loaded {
            Ok(Some(index)) => (index, None),
            absent => {
                if let Err(why) = absent {
                    tracing::warn!(%volume, "the index of similar content is made anew: {why}. It is a hint only");
                }
                let is_missed = has_base && size_bytes >= REBUILT_FROM_BYTES;
                (SimilarityIndex::new(budget), is_missed.then_some(0))
            }
        };
        let index = Arc::new(VolumeIndex {
            volume,
            store: self.similarity.store.clone(),
            index: RwLock::new(index),
            uses: AtomicU64::new(0),
            missing: Mutex::new(Missing { from, ..Missing::default() }),
            is_stored: AtomicBool::new(is_stored),
            unsaved: AtomicU64::new(0),
            is_saving: AtomicBool::new(false),
            is_forgotten: AtomicBool::new(false),
        });
        // Of two that came at once both use the first.
        let first = self.volumes.locked().entry(volume).or_insert(index.clone()).clone();
        if Arc::ptr_eq(&first, &index) {
            let watching = self.volumes.clone().watch(volume);
            tokio::spawn(self.stop.clone().run_until_cancelled_owned(watching));
        }
        Some(first)
    }

    /// Nobody mirrors this volume any more. Blocks.
    pub(super) fn forget(&self, volume: Uuid) {
        if let Some(index) = self.volumes.locked().remove(&volume) {
            index.is_forgotten.store(true, Ordering::SeqCst);
        }
        if let Err(error) = self.similarity.store.remove(volume) {
            tracing::warn!(%volume, "the file of an index that is not needed any more cannot be removed: {error}");
        }
    }

    /// Begins or goes on to rebuild what `index` lacks of `content`, in the background. It rests three times as long as it
    /// works, stops with the service, and where the snapshot goes away; the next transfer then goes on with its own.
    pub(super) fn rebuild(&self, index: &Arc<VolumeIndex>, content: Content) {
        let Some(mut rebuilding) = Rebuilding::begin(index, content, &self.clock) else { return };
        let (index, turns) = (index.clone(), self.rebuilding.clone());
        let rebuilding = async move {
            let Ok(_turn) = turns.acquire_owned().await else { return };
            if let Err(error) = rebuilding.run().await {
                tracing::debug!(volume = %rebuilding.volume(), "an index is not rebuilt to its end yet: {error}");
            }
            drop(rebuilding);
            index.save_if_due().await;
        };
        tokio::spawn(self.stop.clone().run_until_cancelled_owned(rebuilding));
    }
}

impl Volumes {
    fn locked(&self) -> MutexGuard<'_, HashMap<Uuid, Arc<VolumeIndex>>> {
        // One insertion or removal leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An index, for somebody who will use it.
    fn used(&self, volume: Uuid) -> Option<Arc<VolumeIndex>> {
        let volumes = self.locked();
        let index = volumes.get(&volume)?;
        index.uses.fetch_add(1, Ordering::Relaxed);
        Some(index.clone())
    }

    /// Lets an index go, saved, once nobody has used it for [`INDEX_IDLE_MAX`]. One that lacks something stays, because nothing else
    /// knows what; so does one that cannot be saved.
    async fn watch(self: Arc<Self>, volume: Uuid) {
        // How often it had been asked for when nobody had it in hand.
        let mut idle_at = None;
        loop {
            tokio::time::sleep(INDEX_IDLE_MAX).await;
            let Some(index) = self.locked().get(&volume).cloned() else { return };
            // Nobody but the table and this one.
            let uses_if_idle = || (Arc::strong_count(&index) == 2).then(|| index.uses());
            if idle_at.is_some() && uses_if_idle() == idle_at {
                index.save().await;
                let mut volumes = self.locked();
                if uses_if_idle() == idle_at && index.is_saved() {
                    volumes.remove(&volume);
                    return;
                }
            }
            idle_at = uses_if_idle();
        }
    }
}

/// Memory that a volume's index may take.
fn budget(bytes_per_tib: u64, size_bytes: u64) -> u64 {
    let share = (u128::from(bytes_per_tib) * u128::from(size_bytes.min(INDEXED_BYTES_MAX))) >> 40;
    u64::try_from(share).unwrap_or(u64::MAX).max(INDEX_BYTES_MIN)
}

impl VolumeIndex {
    fn missing(&self) -> MutexGuard<'_, Missing> {
        // Runs that are half merged are hints too.
        self.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self) -> u64 {
        self.uses.load(Ordering::Relaxed)
    }

    /// The volume has grown.
    fn raise_budget(&self, budget_bytes: u64) {
        // Seldom: a transfer that looks something up meanwhile waits, and so does this where it is being saved.
        if self.read(SimilarityIndex::budget_bytes) < budget_bytes {
            self.index.write().unwrap_or_else(PoisonError::into_inner).raise_budget(budget_bytes);
        }
    }

    /// Looks something up.
    pub(super) fn read<T>(&self, look: impl FnOnce(&SimilarityIndex) -> T) -> T {
        // Half an entry is a wrong hint at worst.
        look(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Enters what a frame carries; `data` is that of its data runs. While the index is being saved it is left out.
    pub(super) fn enter(&self, plan: &FramePlan, mut data: &[u8]) {
        for run in plan.data_runs() {
            let (bytes, rest) = data.split_at(data.len().min((run.blocks * BLOCK_BYTES) as usize));
            self.enter_at(run.position, bytes);
            data = rest;
        }
    }

    fn enter_at(&self, position: u64, bytes: &[u8]) {
        if self.is_saving.load(Ordering::Relaxed) {
            return;
        }
        self.unsaved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.index.write().unwrap_or_else(PoisonError::into_inner).enter(position, bytes);
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
    fn is_saved(&self) -> bool {
        let is_stored = self.is_stored.load(Ordering::Relaxed) && !self.is_saving.load(Ordering::Relaxed);
        is_stored && self.unsaved.load(Ordering::Relaxed) == 0 && self.missing().is_nothing()
    }

    /// Saves it if that is due.
    pub(super) async fn save_if_due(self: &Arc<Self>) {
        if self.is_due() {
            self.save().await;
        }
    }

    /// Saves it if it has what its file has not.
    async fn save(self: &Arc<Self>) {
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
            saved.map_err(|e| MirrorError::Store(e.to_string()))
        });
        if let Err(error) = saved.await {
            tracing::warn!(
                volume = %self.volume,
                "the index of similar content cannot be saved, and is rebuilt after a restart: {error}"
            );
        }
    }
}

/// What a step leaves out of its volume's index, because the destination knew it and nobody reads it here. The index is told when
/// this is dropped, however the step ends; the next [`Indexes::rebuild`] reads it.
pub(super) struct Unread {
    index: Option<Arc<VolumeIndex>>,
    lacks: Lacks,
}

impl Unread {
    /// Of nothing yet; nothing is kept where there is no index.
    pub(super) fn new(index: Option<Arc<VolumeIndex>>) -> Unread {
        Unread { index, lacks: Lacks::default() }
    }

    /// A run of blocks that is not read.
    pub(super) fn add(&mut self, blocks: Range<u64>) {
        if self.index.is_some() {
            self.lacks.add(blocks);
        }
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        if let Some(index) = &self.index {
            index.missing().lacks.merge(std::mem::take(&mut self.lacks));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use farside_platform::SystemClock;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Its file comes when the volume was forgotten already.
    #[derive(Default)]
    struct ForgetsMeanwhile {
        files: MemorySimilarityStore,
        indexes: OnceLock<Arc<Indexes>>,
    }

    impl SimilarityStore for ForgetsMeanwhile {
        fn load(&self, volume: Uuid) -> io::Result<Option<Box<dyn Read + Send>>> {
            self.files.load(volume)
        }

        fn save(
            &self,
            volume: Uuid,
            write: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
        ) -> io::Result<()> {
            if let Some(indexes) = self.indexes.get() {
                indexes.forget(volume);
            }
            self.files.save(volume, write)
        }

        fn remove(&self, volume: Uuid) -> io::Result<()> {
            self.files.remove(volume)
        }
    }

    #[tokio::test]
    async fn of_a_volume_that_was_forgotten_no_file_comes_back() {
        let (store, volume) = (Arc::<ForgetsMeanwhile>::default(), Uuid::from_u128(7));
        let similarity = Similarity { store: store.clone(), ..Similarity::default() };
        let indexes = Arc::new(Indexes::new(similarity, Arc::new(SystemClock::default())));
        let is_there = || store.files.files().contains_key(&volume);
        let entered = || {
            let index = indexes.of(volume, MIB, false).unwrap();
            index.enter_at(0, &[1; 4096]);
            index
        };
        entered().save_if_due().await;
        assert!(is_there());
        indexes.forget(volume);
        assert!(!is_there());
        // Forgotten before it is saved, and while it is.
        let index = entered();
        indexes.forget(volume);
        index.save_if_due().await;
        assert!(!is_there());
        assert!(store.indexes.set(indexes.clone()).is_ok());
        entered().save_if_due().await;
        assert!(!is_there());
    }

    /// A service with a store whose files can be looked at.
    fn kept() -> (Arc<MemorySimilarityStore>, Indexes) {
        let store = Arc::<MemorySimilarityStore>::default();
        let similarity = Similarity { store: store.clone(), ..Similarity::default() };
        (store, Indexes::new(similarity, Arc::new(SystemClock::default())))
    }

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 7u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        words.take(bytes / 8).flatten().collect()
    }

    /// Waits on the paused clock until nobody needs to keep the index.
    async fn gone(indexes: &Indexes, volume: Uuid) {
        for _ in 0..100 {
            if !indexes.volumes.locked().contains_key(&volume) {
                return;
            }
            tokio::time::sleep(INDEX_IDLE_MAX / 10).await;
        }
        panic!("the index is still in memory");
    }

    #[tokio::test(start_paused = true)]
    async fn an_index_that_no_transfer_uses_leaves_memory_and_comes_back() {
        let ((store, indexes), volume) = (kept(), Uuid::from_u128(9));
        let index = indexes.of(volume, MIB, false).unwrap();
        index.enter_at(0, &noise(1 << 20));
        let anchors = index.read(SimilarityIndex::anchors);
        assert!(anchors > 0 && store.files().is_empty());
        // Somebody has it in hand.
        tokio::time::sleep(3 * INDEX_IDLE_MAX).await;
        assert!(Arc::ptr_eq(&index, &indexes.of(volume, MIB, false).unwrap()));
        // It lacks something that only memory tells of.
        let mut unread = Unread::new(Some(index.clone()));
        unread.add(5..6);
        drop((unread, index));
        tokio::time::sleep(3 * INDEX_IDLE_MAX).await;
        let index = indexes.of(volume, MIB, false).unwrap();
        assert_eq!((index.read(SimilarityIndex::anchors), store.files().len()), (anchors, 0));
        index.missing().lacks = Lacks::default();
        // Asked for again and again it stays, though nobody has it for long.
        let same = Arc::downgrade(&index);
        drop(index);
        for _ in 0..40 {
            tokio::time::sleep(INDEX_IDLE_MAX / 4).await;
            assert!(indexes.of(volume, MIB, false).is_some() && same.strong_count() > 0);
        }
        gone(&indexes, volume).await;
        assert!(same.strong_count() == 0 && store.files().contains_key(&volume));
        // It was saved before, though little was entered, and is read again.
        let again = indexes.of(volume, MIB, true).unwrap();
        assert!(again.missing().is_nothing() && again.read(SimilarityIndex::anchors) == anchors);
        drop(again);
        gone(&indexes, volume).await;
    }

    #[tokio::test]
    async fn a_volume_that_has_grown_gets_its_budget_with_the_next_step() {
        let ((_, indexes), volume) = (kept(), Uuid::from_u128(9));
        let small = indexes.of(volume, MIB, false).unwrap();
        assert_eq!(small.read(SimilarityIndex::budget_bytes), INDEX_BYTES_MIN);
        let grown = indexes.of(volume, 1 << 40, false).unwrap();
        assert!(Arc::ptr_eq(&small, &grown));
        assert_eq!(grown.read(SimilarityIndex::budget_bytes), SIMILARITY_BYTES_PER_TIB);
        // A volume that shrinks keeps what it has.
        indexes.of(volume, MIB, false).unwrap();
        assert_eq!(grown.read(SimilarityIndex::budget_bytes), SIMILARITY_BYTES_PER_TIB);
    }

    #[test]
    fn a_budget_follows_the_size_between_its_limits() {
        let tib = 1 << 40;
        assert_eq!(budget(SIMILARITY_BYTES_PER_TIB, tib), 171 << 20);
        assert_eq!(budget(SIMILARITY_BYTES_PER_TIB, tib / 2), 171 << 19);
        assert_eq!(budget(SIMILARITY_BYTES_PER_TIB, 4096), INDEX_BYTES_MIN);
        assert_eq!(budget(SIMILARITY_BYTES_PER_TIB, u64::MAX), (16 * 171) << 20);
        assert_eq!(budget(u64::MAX, u64::MAX), u64::MAX);
    }
}
