//! What outlives a daemon besides the pool: configuration and history. The daemon keeps it in a database; tests, and
//! whoever needs no history, in memory. What a disaster needs (replica records, pins) is in the pool instead.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use farside_engine::{ContentRoot, ReplicaRecord, VolumeName};
use farside_peer::PeerId;
use farside_platform::Timestamp;
use farside_transfer::Replica;
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::protocol::convert::{Place, Upstream};
use farside_transfer::protocol::{Body, Request};
use farside_transfer::report::TransferReport;
use prost::Message;
use uuid::Uuid;

use crate::directions::GoneOn;
use crate::error::MirrorError;
use crate::log::LogEntry;
use crate::options::MirrorOptions;
use crate::past::Past;
use crate::retention::{KeptPoint, Retention};
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
    /// The mirror was found in its pool. Whether it had a schedule, a state database knew that was lost, or is older than the mirror.
    pub schedule_lost: bool,
    /// What its transfers may take of the link.
    pub options: MirrorOptions,
    /// Which of the points that were published stay.
    pub retention: Retention,
    /// The group of mirrors that are updated and broken off together.
    pub group: Option<String>,
    /// No transfers until resumed.
    pub quiesced: bool,
    /// When it was broken off; none if it is not, or if the moment was lost with the database.
    pub broken_off_at: Option<Timestamp>,
    /// A resync was asked for and has not brought anything yet: what is retried is the resync.
    pub resync_pending: bool,
    /// A role change that has begun and is not over.
    pub swap: Option<SwapMark>,
    /// Number of the newest role change: breaks, resyncs and attempts to change the roles are counted, so that what
    /// was told of one of them has no effect when it comes after what was told of a newer. From 1.
    pub role_change: u64,
    /// Where the source's volume stands among the sites, as it said last.
    pub upstream: Upstream,
    /// What it remembers of its earlier directions.
    pub past: Past,
    /// The source has answered what it was told of the newest break.
    pub told: bool,
    /// Of one that is broken off: its source followed it, and has ended that mirror since.
    pub ended_there: bool,
}

/// How far a role change is that one side has begun: this says what its source is told. Whether the volume is writable is
/// in the pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapMark {
    /// At the site that asked, on the mirror that ends: the source was, or may have been, told to prepare `reverse`.
    /// As long as the pool has it as a replica, the source is told that it is cancelled. Broken off, nobody can tell from this
    /// alone by what: it is never cancelled.
    Swapping {
        /// The relationship that takes this one's place, the other way round.
        reverse: Uuid,
    },
    /// The same, once the pool's record of the takeover is durable: the source is told that it is done.
    TakenOver {
        /// As in [`SwapMark::Swapping`].
        reverse: Uuid,
    },
    /// The same, once a person's break has ended the attempt: the source is told that it is cancelled.
    GivenUp {
        /// As in [`SwapMark::Swapping`].
        reverse: Uuid,
    },
    /// At the former source, on the reverse mirror: its volume is read-only and waits for the message.
    Prepared {
        /// The relationship that ends.
        of: Uuid,
        /// The reverse mirror was made for this; if it comes to nothing it is forgotten again.
        is_new: bool,
    },
}

impl SwapMark {
    /// At the site that asked: the relationship that takes the other's place.
    pub fn reverse(&self) -> Option<Uuid> {
        match *self {
            SwapMark::Swapping { reverse }
            | SwapMark::TakenOver { reverse }
            | SwapMark::GivenUp { reverse } => Some(reverse),
            SwapMark::Prepared { .. } => None,
        }
    }
}

impl Relationship {
    /// A new one: nothing has happened to it yet, and it may take of the link what it can.
    pub fn new(
        id: Uuid,
        peer: PeerId,
        source: VolumeName,
        destination: VolumeName,
        schedule: Schedule,
    ) -> Relationship {
        Relationship {
            id,
            peer,
            source,
            destination,
            schedule,
            schedule_lost: false,
            options: MirrorOptions::default(),
            retention: Retention::default(),
            group: None,
            quiesced: false,
            broken_off_at: None,
            resync_pending: false,
            swap: None,
            role_change: 1,
            upstream: Upstream::default(),
            past: Past::default(),
            told: false,
            ended_there: false,
        }
    }

    /// What the pool remembers of it.
    pub(crate) fn record(&self, broken_off: bool) -> ReplicaRecord {
        ReplicaRecord {
            relationship: self.id,
            peer: self.peer.0,
            source: self.source.to_string(),
            broken_off,
        }
    }

    /// What the replica follows, as far as its source has said, the nearest first.
    pub(crate) fn chain(&self) -> Vec<Place> {
        let beyond = self.upstream.follows.iter().take(HOPS_MAX - 1).cloned();
        [place(self.peer, &self.source)].into_iter().chain(beyond).collect()
    }

    /// What a transfer knows of it.
    pub(crate) fn replica(&self) -> Replica {
        Replica {
            relationship: self.id,
            peer: self.peer,
            source: self.source.clone(),
            destination: self.destination.clone(),
            keeps: !self.retention.is_none(),
        }
    }
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
    /// The destination was broken off and went on without this site.
    pub overtaken: Option<Overtaken>,
    /// Its base was released here, because of a budget; until there is another.
    pub released: Option<Released>,
}

/// That a base was released, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Released {
    /// When.
    pub at: Timestamp,
    /// The budget and what was over it, in a sentence's part.
    pub why: String,
}

/// What a source was told of a destination that was broken off. Updates of that relationship are refused until it is
/// resynced or released.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Overtaken {
    /// When it was broken off, by the destination's clock; none if it does not know any more.
    pub broken_off_at: Option<Timestamp>,
    /// When this site was told of it.
    pub reported_at: Timestamp,
    /// The snapshot that hosts there went on from, and its content root; none if the replica held none.
    pub snapshot: Option<(Uuid, ContentRoot)>,
    /// Hosts here may not write until it is over, whatever becomes of the right that asked for it.
    pub fenced: bool,
    /// The destination's mirror was deleted since: only this side's administrator can end this.
    pub ended: bool,
    /// The destination itself still follows; this one, beyond it, went on: `PEER:POOL/VOL`, as the destination calls it.
    pub beyond: Option<String>,
    /// What the volume that went on follows since, the nearest first; with `beyond` that volume itself is before them.
    pub follows: Vec<Place>,
    /// The group that the destination's mirror is in there, and how many mirrors are.
    pub group: Option<(String, u32)>,
}

/// A peer's volume.
pub(crate) fn place(peer: PeerId, volume: &VolumeName) -> Place {
    Place { site: peer.0, volume: volume.clone() }
}

/// A mirror of this site that was deleted, and of which its source has not heard that yet.
#[derive(Clone, PartialEq, Debug)]
pub struct Ending {
    /// The relationship.
    pub relationship: Uuid,
    /// The source's site.
    pub peer: PeerId,
    /// When it was deleted.
    pub at: Timestamp,
    /// What the source is told: that it may release what it keeps, or that it was overtaken before the mirror was deleted.
    pub message: Body,
}

impl Ending {
    /// What the source is told, as it is kept.
    pub fn message_bytes(&self) -> Vec<u8> {
        Request { version: 0, body: Some(self.message.clone()) }.encode_to_vec()
    }

    /// As it was kept; none if that makes no sense.
    pub fn message_of(bytes: &[u8]) -> Option<Body> {
        Request::decode(bytes).ok()?.body
    }
}

impl SourceRelationship {
    /// Who went on without this side; nobody if it is not overtaken.
    pub(crate) fn gone_on(&self) -> GoneOn<Place> {
        let Some(overtaken) = &self.overtaken else { return GoneOn::default() };
        let itself = overtaken.beyond.is_none().then(|| place(self.peer, &self.destination));
        GoneOn { itself, follows: overtaken.follows.clone() }
    }

    /// A new one: no base is held yet.
    pub fn new(id: Uuid, peer: PeerId, source: VolumeName, destination: VolumeName) -> SourceRelationship {
        SourceRelationship {
            id,
            peer,
            source,
            destination,
            base: None,
            since: None,
            overtaken: None,
            released: None,
        }
    }
}

/// Where a destination keeps its relationships and their history.
#[async_trait]
pub trait RelationshipStore: Send + Sync + 'static {
    /// All of them.
    async fn relationships(&self) -> Result<Vec<Relationship>, MirrorError>;
    /// Adds or replaces one.
    async fn save(&self, relationship: &Relationship) -> Result<(), MirrorError>;
    /// Whether the site has one with this id, of whatever pool: also of one that is not open.
    async fn knows(&self, id: Uuid) -> Result<bool, MirrorError>;
    /// Forgets one that has not come about: nobody is told.
    async fn forget(&self, id: Uuid) -> Result<(), MirrorError>;
    /// Forgets one, and in the same moment remembers what its source is to be told; its history may stay.
    async fn end(&self, ending: &Ending) -> Result<(), MirrorError>;
    /// The moments for which points count that retention keeps.
    async fn kept_points(&self, id: Uuid) -> Result<Vec<KeptPoint>, MirrorError>;
    /// Remembers those of new points.
    async fn note_kept(&self, id: Uuid, noted: &[KeptPoint]) -> Result<(), MirrorError>;
    /// Forgets those of points that are gone.
    async fn forget_kept(&self, id: Uuid, gone: &[Uuid]) -> Result<(), MirrorError>;
    /// Forgets those of all points.
    async fn forget_all_kept(&self, id: Uuid) -> Result<(), MirrorError>;
    /// Adds a transfer that has ended.
    async fn append_history(&self, id: Uuid, report: &TransferReport) -> Result<(), MirrorError>;
    /// The newest `limit` transfers, newest first.
    async fn history(&self, id: Uuid, limit: usize) -> Result<Vec<TransferReport>, MirrorError>;
    /// Adds a line to the log of its volume. The log outlives the relationship; the oldest lines may go.
    async fn append_log(&self, entry: &LogEntry) -> Result<(), MirrorError>;
    /// The newest `limit` lines about the replica `volume`, newest first.
    async fn log(&self, volume: &VolumeName, limit: usize) -> Result<Vec<LogEntry>, MirrorError>;
}

/// Where a destination remembers what sources are to be told of mirrors that are no more.
#[async_trait]
pub trait EndingStore: Send + Sync + 'static {
    /// All that is to be told.
    async fn endings(&self) -> Result<Vec<Ending>, MirrorError>;
    /// What of one is to be told has changed.
    async fn keep_ending(&self, ending: &Ending) -> Result<(), MirrorError>;
    /// It was told.
    async fn remove_ending(&self, relationship: Uuid) -> Result<(), MirrorError>;
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
/// Lines an in-memory log keeps for each volume.
const MEMORY_LOG_MAX: usize = 4000;

/// Both stores in memory: gone with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Tables>,
}

#[derive(Clone, Debug, Default)]
struct Tables {
    relationships: BTreeMap<Uuid, Relationship>,
    history: BTreeMap<Uuid, Vec<TransferReport>>,
    log: BTreeMap<VolumeName, VecDeque<LogEntry>>,
    sources: BTreeMap<Uuid, SourceRelationship>,
    endings: BTreeMap<Uuid, Ending>,
    kept: BTreeMap<Uuid, BTreeMap<Uuid, KeptPoint>>,
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

    async fn knows(&self, id: Uuid) -> Result<bool, MirrorError> {
        Ok(self.tables().relationships.contains_key(&id))
    }

    async fn forget(&self, id: Uuid) -> Result<(), MirrorError> {
        self.tables().relationships.remove(&id);
        Ok(())
    }

    async fn end(&self, ending: &Ending) -> Result<(), MirrorError> {
        let mut tables = self.tables();
        tables.relationships.remove(&ending.relationship);
        tables.endings.insert(ending.relationship, ending.clone());
        Ok(())
    }

    async fn kept_points(&self, id: Uuid) -> Result<Vec<KeptPoint>, MirrorError> {
        Ok(self.tables().kept.get(&id).into_iter().flat_map(|kept| kept.values().copied()).collect())
    }

    async fn note_kept(&self, id: Uuid, noted: &[KeptPoint]) -> Result<(), MirrorError> {
        let mut tables = self.tables();
        tables.kept.entry(id).or_default().extend(noted.iter().map(|point| (point.snapshot, *point)));
        Ok(())
    }

    async fn forget_kept(&self, id: Uuid, gone: &[Uuid]) -> Result<(), MirrorError> {
        if let Some(kept) = self.tables().kept.get_mut(&id) {
            kept.retain(|snapshot, _| !gone.contains(snapshot));
        }
        Ok(())
    }

    async fn forget_all_kept(&self, id: Uuid) -> Result<(), MirrorError> {
        self.tables().kept.remove(&id);
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

    async fn append_log(&self, entry: &LogEntry) -> Result<(), MirrorError> {
        let mut tables = self.tables();
        let log = tables.log.entry(entry.volume.clone()).or_default();
        if log.len() >= MEMORY_LOG_MAX {
            log.pop_front();
        }
        log.push_back(entry.clone());
        Ok(())
    }

    async fn log(&self, volume: &VolumeName, limit: usize) -> Result<Vec<LogEntry>, MirrorError> {
        let tables = self.tables();
        Ok(tables.log.get(volume).into_iter().flat_map(|log| log.iter().rev()).take(limit).cloned().collect())
    }
}

#[async_trait]
impl EndingStore for MemoryStore {
    async fn endings(&self) -> Result<Vec<Ending>, MirrorError> {
        Ok(self.tables().endings.values().cloned().collect())
    }

    async fn keep_ending(&self, ending: &Ending) -> Result<(), MirrorError> {
        self.tables().endings.insert(ending.relationship, ending.clone());
        Ok(())
    }

    async fn remove_ending(&self, relationship: Uuid) -> Result<(), MirrorError> {
        self.tables().endings.remove(&relationship);
        Ok(())
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
