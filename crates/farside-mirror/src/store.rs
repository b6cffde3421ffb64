//! What outlives a daemon besides the pool: configuration and history. The daemon keeps it in a database; tests, and
//! whoever needs no history, in memory. What a disaster needs (replica records, pins) is in the pool instead.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use farside_engine::VolumeName;
use farside_platform::Timestamp;
use farside_session::PeerId;
use uuid::Uuid;

use crate::error::MirrorError;
use crate::report::TransferReport;
use crate::schedule::Schedule;

/// A relationship, as its destination configures it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Relationship {
    /// Its id, the same on both sides.
    pub id: Uuid,
    /// The source's site.
    pub peer: PeerId,
    /// The volume there.
    pub source: VolumeName,
    /// The replica here.
    pub destination: VolumeName,
    /// When updates begin.
    pub schedule: Schedule,
    /// No transfers until resumed.
    pub quiesced: bool,
}

/// A relationship, as its source knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceRelationship {
    /// Its id, the same on both sides.
    pub id: Uuid,
    /// The destination's site; nobody else may speak for this relationship.
    pub peer: PeerId,
    /// The volume here.
    pub source: VolumeName,
    /// The replica there, as the destination calls it.
    pub destination: VolumeName,
    /// The snapshot that both sides hold, kept here for the next update.
    pub base: Option<Uuid>,
    /// Since when that is the base.
    pub since: Option<Timestamp>,
}

/// Where a destination keeps its relationships and their history.
#[async_trait]
pub trait RelationshipStore: Send + Sync + 'static {
    /// All of them.
    async fn relationships(&self) -> Result<Vec<Relationship>, MirrorError>;
    /// Adds or replaces one.
    async fn save(&self, relationship: &Relationship) -> Result<(), MirrorError>;
    /// Forgets one; its history may stay.
    async fn remove(&self, id: Uuid) -> Result<(), MirrorError>;
    /// Adds a transfer that has ended.
    async fn append_history(&self, id: Uuid, report: &TransferReport) -> Result<(), MirrorError>;
    /// The newest `limit` transfers, newest first.
    async fn history(&self, id: Uuid, limit: usize) -> Result<Vec<TransferReport>, MirrorError>;
}

/// Where a source remembers who holds which base.
#[async_trait]
pub trait SourceStore: Send + Sync + 'static {
    /// All of them.
    async fn source_relationships(&self) -> Result<Vec<SourceRelationship>, MirrorError>;
    /// Adds or replaces one.
    async fn save_source(&self, relationship: &SourceRelationship) -> Result<(), MirrorError>;
    /// Forgets one.
    async fn remove_source(&self, id: Uuid) -> Result<(), MirrorError>;
}

/// Transfers an in-memory history keeps for each relationship.
const MEMORY_HISTORY_MAX: usize = 1000;

/// Both stores in memory: gone with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Tables>,
}

#[derive(Clone, Debug, Default)]
struct Tables {
    relationships: BTreeMap<Uuid, Relationship>,
    history: BTreeMap<Uuid, Vec<TransferReport>>,
    sources: BTreeMap<Uuid, SourceRelationship>,
}

impl MemoryStore {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Each change is one insertion or removal: a panic in between leaves nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for MemoryStore {
    /// A store of its own with the same contents.
    fn clone(&self) -> Self {
        MemoryStore { inner: Mutex::new(self.tables().clone()) }
    }
}

#[async_trait]
impl RelationshipStore for MemoryStore {
    async fn relationships(&self) -> Result<Vec<Relationship>, MirrorError> {
        Ok(self.tables().relationships.values().cloned().collect())
    }

    async fn save(&self, relationship: &Relationship) -> Result<(), MirrorError> {
        self.tables().relationships.insert(relationship.id, relationship.clone());
        Ok(())
    }

    async fn remove(&self, id: Uuid) -> Result<(), MirrorError> {
        self.tables().relationships.remove(&id);
        Ok(())
    }

    async fn append_history(&self, id: Uuid, report: &TransferReport) -> Result<(), MirrorError> {
        let mut tables = self.tables();
        let history = tables.history.entry(id).or_default();
        if history.len() >= MEMORY_HISTORY_MAX {
            history.remove(0);
        }
        history.push(report.clone());
        Ok(())
    }

    async fn history(&self, id: Uuid, limit: usize) -> Result<Vec<TransferReport>, MirrorError> {
        let tables = self.tables();
        Ok(tables.history.get(&id).into_iter().flat_map(|h| h.iter().rev()).take(limit).cloned().collect())
    }
}

#[async_trait]
impl SourceStore for MemoryStore {
    async fn source_relationships(&self) -> Result<Vec<SourceRelationship>, MirrorError> {
        Ok(self.tables().sources.values().cloned().collect())
    }

    async fn save_source(&self, relationship: &SourceRelationship) -> Result<(), MirrorError> {
        self.tables().sources.insert(relationship.id, relationship.clone());
        Ok(())
    }

    async fn remove_source(&self, id: Uuid) -> Result<(), MirrorError> {
        self.tables().sources.remove(&id);
        Ok(())
    }
}
