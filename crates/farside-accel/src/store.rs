//! The chunk store of this box, what each peer is known to hold of it, and the processor time for both.

mod pace;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_chunks::{
    ChunkError, ChunkStore, Holdings, KnownAtPeer, Realm, RealmId, StoreSettings, StoreStats,
};
use farside_peer::PeerId;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use pace::Pace;

/// How often the store's figures are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// See the head of the module.
pub struct Store {
    chunks: Arc<ChunkStore>,
    peers: Mutex<HashMap<PeerId, Arc<PeerStore>>>,
    small: Arc<Semaphore>,
    pace: Arc<Pace>,
    /// As last looked at: who asks is not to wait for a disk.
    stats: Arc<Mutex<StoreStats>>,
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
        let look = move || {
            while let Some(chunks) = looked_at.upgrade() {
                *latest.lock() = chunks.stats();
                drop(chunks);
                std::thread::sleep(LOOK_EVERY);
            }
        };
        if let Err(error) = std::thread::Builder::new().name("chunk-stats".to_owned()).spawn(look) {
            tracing::warn!(%error, "the figures of the chunk store stay as they are");
        }
        let small = Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)));
        Ok(Store { chunks, peers: Mutex::default(), small, pace: Arc::default(), stats })
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
