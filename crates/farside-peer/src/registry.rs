//! The list of pinned peers. The caller owns it and keeps it durable; a node holds a copy in memory and changes it
//! through this trait only.

use std::collections::BTreeMap;

use async_trait::async_trait;
use farside_platform::Timestamp;
use parking_lot::Mutex;

use crate::error::SessionError;
use crate::id::PeerId;
use farside_link::LinkOptions;

/// A pinned peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerRecord {
    /// Its key.
    pub id: PeerId,
    /// What it is called here; unique among the peers.
    pub name: String,
    /// Where it can be dialled, `HOST:PORT`; `None`: it dials us.
    pub address: Option<String>,
    /// Over which paths, and how.
    pub link: LinkOptions,
    /// When it was pinned.
    pub added_at: Timestamp,
}

/// Where pinned peers are kept. What a function has returned from must survive a crash.
#[async_trait]
pub trait PeerRegistry: Send + Sync + 'static {
    /// All peers.
    async fn list(&self) -> Result<Vec<PeerRecord>, SessionError>;
    /// The peer with this key.
    async fn lookup(&self, id: PeerId) -> Result<Option<PeerRecord>, SessionError>;
    /// Adds a peer, or replaces name, address and link of one that is there (its `added_at` stays). Returns the record as
    /// kept: a name that another peer bears is to be changed, not refused.
    async fn pin(&self, record: PeerRecord) -> Result<PeerRecord, SessionError>;
    /// Removes a peer; whether it was there.
    async fn unpin(&self, id: PeerId) -> Result<bool, SessionError>;
}

/// A registry in memory: for tests, and for peers that shall be forgotten.
#[derive(Debug, Default)]
pub struct MemoryPeerRegistry(Mutex<BTreeMap<PeerId, PeerRecord>>);

#[async_trait]
impl PeerRegistry for MemoryPeerRegistry {
    async fn list(&self) -> Result<Vec<PeerRecord>, SessionError> {
        Ok(self.0.lock().values().cloned().collect())
    }

    async fn lookup(&self, id: PeerId) -> Result<Option<PeerRecord>, SessionError> {
        Ok(self.0.lock().get(&id).cloned())
    }

    async fn pin(&self, mut record: PeerRecord) -> Result<PeerRecord, SessionError> {
        let mut peers = self.0.lock();
        if let Some(known) = peers.get(&record.id) {
            record.added_at = known.added_at;
        }
        let taken = |name: &str| peers.values().any(|p| p.id != record.id && p.name == name);
        if taken(&record.name) {
            // The key tells apart what the name does not.
            record.name = format!("{}-{:?}", record.name, record.id);
        }
        peers.insert(record.id, record.clone());
        Ok(record)
    }

    async fn unpin(&self, id: PeerId) -> Result<bool, SessionError> {
        Ok(self.0.lock().remove(&id).is_some())
    }
}
