//! The engine: its pools, and what this process has of their images.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use parking_lot::{Mutex, RwLock};

use super::held::Head;
use super::lately::Lately;
use super::pool::{OpenPool, RbdPool, open};
use super::readers::Readers;
use super::steps::Steps;
use crate::{EngineError, is_label};

/// What this process has of an image's head, and whose turn it is to change the volume.
pub(super) type SharedHead = Arc<Mutex<Head>>;

/// The engine. Its clones are the same.
#[derive(Clone)]
pub struct RbdEngine {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) pools: RwLock<BTreeMap<String, Arc<OpenPool>>>,
    /// What this process has of each image, by (pool, image's id).
    pub(super) heads: Mutex<HashMap<(String, String), SharedHead>>,
    /// Images that are being brought in order.
    pub(super) settling: Mutex<HashSet<(String, String)>>,
    pub(super) readers: Readers,
    pub(super) lately: Lately,
    pub(super) steps: Steps,
    /// Whose client this is.
    pub(super) site: String,
    /// What transfers leave free of each pool.
    pub(super) host_reserve_percent: AtomicU8,
}

impl Default for RbdEngine {
    fn default() -> Self {
        RbdEngine::new()
    }
}

impl RbdEngine {
    /// Of a site that has no name. See [`of_site`](Self::of_site).
    pub fn new() -> RbdEngine {
        RbdEngine::of_site("")
    }

    /// Without pools. Ceph's libraries are not looked for yet. `site` is what all daemons of a site have in common, and no other site has:
    /// one of them may take over what another has held.
    pub fn of_site(site: &str) -> RbdEngine {
        let inner = Inner {
            pools: RwLock::default(),
            heads: Mutex::default(),
            settling: Mutex::default(),
            readers: Readers::default(),
            lately: Lately::default(),
            steps: Steps::default(),
            site: site.to_owned(),
            host_reserve_percent: AtomicU8::new(0),
        };
        RbdEngine { inner: Arc::new(inner) }
    }

    /// Adds a pool: connects to its cluster, which takes tens of milliseconds, or until the time-out. Nothing there is changed;
    /// [`settle`](Self::settle) does what the volumes need.
    ///
    /// # Errors
    /// The libraries cannot be loaded (it names their packages), the cluster cannot be reached, the user or the pool is not there.
    pub fn add(&self, name: &str, options: RbdPool) -> Result<(), EngineError> {
        if !is_label(name) {
            return Err(EngineError::BadName { name: name.into() });
        }
        if self.inner.pools.read().contains_key(name) {
            return Err(EngineError::Exists { what: format!("pool {name}") });
        }
        let opened = open(name, options)?;
        self.inner.pools.write().insert(name.into(), Arc::new(opened));
        Ok(())
    }

    /// Takes a pool away, and lets go of its images: their locks come free.
    pub fn remove(&self, name: &str) -> bool {
        let is_gone = self.inner.pools.write().remove(name).is_some();
        // They are closed after the lock is given back: that may take as long as the cluster takes to answer.
        let of_it: Vec<SharedHead> =
            self.inner.heads.lock().extract_if(|(pool, _), _| pool == name).map(|(_, head)| head).collect();
        drop(of_it);
        // Who connects it again is not kept waiting by a call that went over this connection.
        self.inner.settling.lock().retain(|(pool, _)| pool != name);
        self.inner.lately.forget_pool(name);
        self.inner.readers.forget(name);
        is_gone
    }

    pub(super) fn pool(&self, name: &str) -> Result<Arc<OpenPool>, EngineError> {
        self.inner.pool(name)
    }
}

impl Inner {
    pub(super) fn pool(&self, name: &str) -> Result<Arc<OpenPool>, EngineError> {
        let found = self.pools.read().get(name).cloned();
        found.ok_or_else(|| EngineError::NotFound { what: format!("pool {name}") })
    }
}
