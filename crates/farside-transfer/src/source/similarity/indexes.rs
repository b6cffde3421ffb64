//! The indexes of a site: which of them are in memory, and when they are rebuilt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farside_platform::Clock;
use farside_wire::SimilarityIndex;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::rebuild::{Content, Rebuilding};
use super::store::Similarity;
use super::volume::VolumeIndex;
use crate::limits::{INDEX_BYTES_MIN, INDEX_IDLE_MAX, INDEXED_BYTES_MAX, REBUILT_FROM_BYTES};

/// Those in memory.
#[derive(Default)]
struct Volumes(Mutex<HashMap<Uuid, Arc<VolumeIndex>>>);

/// The indexes of a site.
pub(crate) struct Indexes {
    similarity: Similarity,
    clock: Arc<dyn Clock>,
    volumes: Arc<Volumes>,
    /// One is rebuilt at a time.
    rebuilding: Arc<Semaphore>,
    stop: CancellationToken,
    _stops: DropGuard,
}

impl Indexes {
    pub(crate) fn new(similarity: Similarity, clock: Arc<dyn Clock>) -> Indexes {
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
    pub(crate) fn of(&self, volume: Uuid, size_bytes: u64, has_base: bool) -> Option<Arc<VolumeIndex>> {
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
                    tracing::warn!(%volume, "rebuilding the index of similar content: {why}. No data is affected; \
                         the index only saves bytes");
                }
                let is_missed = has_base && size_bytes >= REBUILT_FROM_BYTES;
                (SimilarityIndex::new(budget), is_missed.then_some(0))
            }
        };
        let store = self.similarity.store.clone();
        let index = Arc::new(VolumeIndex::new(volume, store, index, is_stored, from));
        // Of two that came at once both use the first.
        let first = self.volumes.locked().entry(volume).or_insert(index.clone()).clone();
        if Arc::ptr_eq(&first, &index) {
            let watching = self.volumes.clone().watch(volume);
            tokio::spawn(self.stop.clone().run_until_cancelled_owned(watching));
        }
        Some(first)
    }

    /// Nobody mirrors this volume any more. Blocks.
    pub(crate) fn forget(&self, volume: Uuid) {
        if let Some(index) = self.volumes.locked().remove(&volume) {
            index.forget();
        }
        if let Err(error) = self.similarity.store.remove(volume) {
            tracing::warn!(%volume, "cannot remove the file of an index that is no longer needed; it only takes \
                 space: {error}");
        }
    }

    /// Begins or goes on to rebuild what `index` lacks of `content`, in the background. It rests three times as long as it
    /// works, stops with the service, and where the snapshot goes away; the next transfer then goes on with its own.
    pub(crate) fn rebuild(&self, index: &Arc<VolumeIndex>, content: Content) {
        let Some(mut rebuilding) = Rebuilding::begin(index, content, &self.clock) else { return };
        let (index, permits) = (index.clone(), self.rebuilding.clone());
        let rebuilding = async move {
            let Ok(_permit) = permits.acquire_owned().await else { return };
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
        index.count_use();
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

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::sync::OnceLock;

    use farside_platform::SystemClock;

    use super::*;
    use crate::source::similarity::missing::MissingRuns;
    use crate::source::similarity::store::{
        MemorySimilarityStore, SIMILARITY_BYTES_PER_TIB, SimilarityStore,
    };
    use crate::source::similarity::volume::Unread;

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
        index.missing().missing_runs = MissingRuns::default();
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
