//! The chunk store of this box, what each peer is known to hold of it, and the processor time for both.

mod pace;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use farside_chunks::{
    ChunkError, ChunkStore, Holdings, KnownAtPeer, Realm, RealmId, StoreSettings, StoreStats,
};
use farside_peer::PeerId;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use pace::Pace;

/// How often the store's figures are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After so many looks at its figures, its directory: tens of thousands of files in a large one.
const SURVEY_EVERY: u32 = 50;
/// A disk with less room than this is full: four containers.
const FULL_BELOW: u64 = 64 << 20;

/// See the head of the module.
pub struct Store {
    chunks: Arc<ChunkStore>,
    peers: Mutex<HashMap<PeerId, Arc<PeerStore>>>,
    small: Arc<Semaphore>,
    pace: Arc<Pace>,
    /// As last looked at: who asks is not to wait for a disk.
    stats: Arc<Mutex<StoreStats>>,
    surveyed: Arc<Mutex<Survey>>,
}

/// What the store's directory shows, and how much room its disk has.
#[derive(Debug, Default)]
struct Survey {
    /// When the oldest container was last written to.
    oldest: Option<SystemTime>,
    /// Free on the disk, bytes; none if that cannot be told.
    free: Option<u64>,
}

impl Survey {
    fn of(path: &Path) -> Survey {
        let entries = |of: PathBuf| std::fs::read_dir(of).into_iter().flatten().flatten();
        let containers = entries(path.join("realms"))
            .flat_map(|realm| entries(realm.path()))
            .flat_map(|origin| entries(origin.path()));
        let oldest = containers.filter_map(|container| container.metadata().ok()?.modified().ok()).min();
        let free = rustix::fs::statvfs(path).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        Survey { oldest, free }
    }
}

/// What this box and one peer's share.
pub struct PeerStore {
    /// Chunks that have passed between the two.
    pub realm: Realm,
    /// Which of them the peer has said that it holds.
    pub known: Arc<Mutex<KnownAtPeer>>,
    /// Blocks that are encoded or decoded at the same time: as many as there are cores.
    pub cores: Arc<Semaphore>,
    /// The same for small ones, which do not wait behind large ones.
    pub(crate) small: Arc<Semaphore>,
    /// Whether the store keeps up.
    pub(crate) pace: Arc<Pace>,
}

impl std::fmt::Debug for PeerStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerStore").field("realm", &self.realm).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store. What it holds of an earlier time enters the index in a thread of its own.
    ///
    /// # Errors
    /// [`ChunkError`].
    pub fn open(path: &Path, bytes: u64) -> Result<Store, ChunkError> {
        let chunks = Arc::new(ChunkStore::open(path, StoreSettings { bytes })?);
        let loading = Arc::downgrade(&chunks);
        let load = move || {
            while loading.upgrade().is_some_and(|chunks| chunks.load_next()) {}
        };
        if let Err(error) = std::thread::Builder::new().name("chunk-index".to_owned()).spawn(load) {
            tracing::warn!(%error, "what the chunk store holds of an earlier time is not found");
        }
        let stats = Arc::new(Mutex::new(chunks.stats()));
        let (looked_at, latest) = (Arc::downgrade(&chunks), Arc::clone(&stats));
        let surveyed = Arc::new(Mutex::default());
        let (survey, directory) = (Arc::clone(&surveyed), path.to_owned());
        let look = move || {
            let mut looks = 0u32;
            while let Some(chunks) = looked_at.upgrade() {
                *latest.lock() = chunks.stats();
                drop(chunks);
                if looks.is_multiple_of(SURVEY_EVERY) {
                    *survey.lock() = Survey::of(&directory);
                }
                looks = looks.wrapping_add(1);
                std::thread::sleep(LOOK_EVERY);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("chunk-stats".to_owned()).spawn(look) {
            tracing::warn!(%error, "the figures of the chunk store stay as they are");
        }
        let small = Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)));
        Ok(Store { chunks, peers: Mutex::default(), small, pace: Arc::default(), stats, surveyed })
    }

    /// What is shared with a peer. Realms are the peers' own: nothing is found across them.
    pub fn of(&self, peer: PeerId, cores: &Arc<Semaphore>) -> Arc<PeerStore> {
        let mut peers = self.peers.lock();
        let known = peers.entry(peer).or_insert_with(|| {
            let realm = self.chunks.realm(realm_of(peer));
            Arc::new(PeerStore {
                realm,
                known: Arc::default(),
                cores: Arc::clone(cores),
                small: Arc::clone(&self.small),
                pace: Arc::clone(&self.pace),
            })
        });
        Arc::clone(known)
    }

    /// A peer is gone, and what was kept of it goes.
    pub fn forget(&self, peer: PeerId) {
        self.peers.lock().remove(&peer);
        self.clear(Some(peer));
    }

    /// Removes all that is kept of one peer, or of all.
    pub fn clear(&self, peer: Option<PeerId>) {
        self.chunks.clear(peer.map(realm_of));
    }

    /// How old the oldest of it is; none if there is nothing. A clock that was set back makes nothing older.
    pub fn oldest_seconds(&self) -> Option<u64> {
        let oldest = self.surveyed.lock().oldest?;
        Some(oldest.elapsed().unwrap_or_default().as_secs())
    }

    /// Why it takes less than it is told to: a sentence for people; none if all is well.
    pub fn trouble(&self) -> Option<String> {
        let free = self.surveyed.lock().free?;
        let stats = self.stats();
        let is_full = stats.bytes + FULL_BELOW >= stats.limit_bytes;
        (free < FULL_BELOW && !is_full).then(|| {
            format!(
                "the disk of the chunk store has {} MiB left: it keeps what it has and takes little that is new. Connections \
                 go on. Make room there, or make the store smaller with farside accel up --store-size",
                free >> 20
            )
        })
    }

    /// What it had a moment ago.
    pub fn stats(&self) -> StoreStats {
        *self.stats.lock()
    }
}

impl PeerStore {
    /// The peer has said what it holds. Whether that can be understood.
    pub(crate) fn heed(&self, body: &[u8]) -> bool {
        let Some(holdings) = Holdings::decode(body) else { return false };
        self.known.lock().heed(&holdings);
        true
    }
}

/// A realm of the peer's own.
fn realm_of(peer: PeerId) -> RealmId {
    let mut id = [0; 16];
    id.copy_from_slice(&peer.0[..16]);
    RealmId(id)
}
