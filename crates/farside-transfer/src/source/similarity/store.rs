//! Where indexes of similar content are kept over restarts, and how much memory they may take.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

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
