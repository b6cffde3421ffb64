//! All mirrors whose replica is at this site.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use farside_engine::{Engine, EngineError, ReplicaRecord, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_format::Fingerprint;
use farside_platform::{Clock, Randomness};
use farside_session::{Node, PeerId, PeerLink, SessionError};
use prost::Message;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::error::{MirrorError, blocking};
use crate::limits::TRANSFERS_MAX;
use crate::protocol::{Body, Describe, Description, convert};
use crate::relationship::{Mirror, Parts};
use crate::report::TransferReport;
use crate::schedule::Schedule;
use crate::store::{Relationship, RelationshipStore};
use crate::transfer;

/// Where the sessions with the peers are. Whoever dialled.
#[async_trait]
pub trait Links: Send + Sync + 'static {
    /// The live session with `peer`; waits for one for at most `wait`. Must be cancel-safe.
    async fn link(&self, peer: PeerId, wait: Duration) -> Result<Arc<dyn PeerLink>, SessionError>;
}

#[async_trait]
impl Links for Node {
    async fn link(&self, peer: PeerId, wait: Duration) -> Result<Arc<dyn PeerLink>, SessionError> {
        self.wait_link(peer, wait).await
    }
}

/// What the destination side works with. The clock must run with tokio's (in tests: both paused, or both real).
pub struct DestinationParts {
    /// This site's storage.
    pub engine: Arc<dyn Engine>,
    /// Sessions with the peers.
    pub links: Arc<dyn Links>,
    /// Configuration and history.
    pub store: Arc<dyn RelationshipStore>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// For identities.
    pub randomness: Arc<dyn Randomness>,
}

/// The destination side of this site: its mirrors, by replica.
pub struct Destination {
    parts: DestinationParts,
    slots: Arc<Semaphore>,
    stop: CancellationToken,
    /// Held across the short steps of making and deleting, so that two of them never meet at one volume.
    mirrors: Mutex<BTreeMap<VolumeName, (Mirror, JoinHandle<()>)>>,
}

impl Destination {
    /// Starts every mirror that the store knows. With a schedule each looks for news at once.
    pub async fn open(parts: DestinationParts) -> Result<Destination, MirrorError> {
        let relationships = parts.store.relationships().await?;
        let slots = Arc::new(Semaphore::new(TRANSFERS_MAX));
        let destination =
            Destination { parts, slots, stop: CancellationToken::new(), mirrors: Mutex::default() };
        let mut mirrors = destination.mirrors.lock().await;
        for relationship in relationships {
            let volume = relationship.destination.clone();
            mirrors.insert(volume, destination.start(relationship, true));
        }
        drop(mirrors);
        Ok(destination)
    }

    fn start(&self, relationship: Relationship, at_once: bool) -> (Mirror, JoinHandle<()>) {
        let DestinationParts { engine, links, store, clock, randomness } = &self.parts;
        let parts = Parts {
            engine: engine.clone(),
            links: links.clone(),
            store: store.clone(),
            clock: clock.clone(),
            randomness: randomness.clone(),
            slots: self.slots.clone(),
            stop: self.stop.clone(),
        };
        Mirror::start(parts, relationship, at_once)
    }

    /// Makes a mirror of the peer's volume `source`. The replica `destination` is made if it is not there; if it is, it
    /// must be empty, or the replica of this very source that lost its configuration. Waits for a session for at most
    /// `link_wait`: what the peer does not allow is said now, not at the first transfer.
    pub async fn create(
        &self,
        peer: PeerId,
        source: VolumeName,
        destination: VolumeName,
        schedule: Schedule,
        link_wait: Duration,
    ) -> Result<Mirror, MirrorError> {
        let mut mirrors = self.mirrors.lock().await;
        if mirrors.contains_key(&destination) {
            return Err(MirrorError::Exists(destination));
        }
        let new_id = uuid::Builder::from_random_bytes(self.parts.randomness.uuid_bytes()).into_uuid();
        let size_bytes = self.describe(new_id, peer, &source, &destination, link_wait).await?;
        let (engine, clock) = (self.parts.engine.clone(), self.parts.clock.clone());
        let (of, to) = (source.clone(), destination.clone());
        let wanted = move |id| ReplicaRecord {
            relationship: id,
            peer: peer.0,
            source: of.to_string(),
            broken_off: false,
        };
        let id =
            blocking(move || prepare_replica(&*engine, &*clock, &to, size_bytes, new_id, wanted)).await?;
        let relationship =
            Relationship { id, peer, source, destination: destination.clone(), schedule, quiesced: false };
        self.parts.store.save(&relationship).await?;
        let started = self.start(relationship, false);
        let mirror = started.0.clone();
        mirrors.insert(destination, started);
        Ok(mirror)
    }

    async fn describe(
        &self,
        id: Uuid,
        peer: PeerId,
        source: &VolumeName,
        destination: &VolumeName,
        link_wait: Duration,
    ) -> Result<u64, MirrorError> {
        let describe = Describe {
            relationship: id.as_bytes().to_vec(),
            volume: source.to_string(),
            destination: destination.to_string(),
        };
        let answer = transfer::ask(&*self.parts.links, peer, Body::Describe(describe), link_wait).await?;
        let description = Description::decode(answer)
            .map_err(|e| MirrorError::Protocol(format!("a description that cannot be read: {e}")))?;
        convert::size(description.size_bytes)
    }

    /// The mirror whose replica is `volume`.
    pub async fn mirror(&self, volume: &VolumeName) -> Result<Mirror, MirrorError> {
        let mirrors = self.mirrors.lock().await;
        mirrors
            .get(volume)
            .map(|(mirror, _)| mirror.clone())
            .ok_or_else(|| MirrorError::NotFound(volume.clone()))
    }

    /// All of them, by name of the replica.
    pub async fn mirrors(&self) -> Vec<Mirror> {
        self.mirrors.lock().await.values().map(|(mirror, _)| mirror.clone()).collect()
    }

    /// The newest `limit` transfers of a mirror, newest first.
    pub async fn history(
        &self,
        volume: &VolumeName,
        limit: usize,
    ) -> Result<Vec<TransferReport>, MirrorError> {
        let id = self.mirror(volume).await?.status().relationship.id;
        self.parts.store.history(id, limit).await
    }

    /// Ends a relationship: the volume stays, writable, no longer a replica.
    pub async fn delete(&self, volume: &VolumeName) -> Result<(), MirrorError> {
        let mut mirrors = self.mirrors.lock().await;
        let (mirror, _) = mirrors.get(volume).ok_or_else(|| MirrorError::NotFound(volume.clone()))?;
        mirror.delete().await?;
        mirrors.remove(volume);
        Ok(())
    }

    /// Ends every driver and the transfers that run, and waits for them: nothing touches the storage afterwards.
    pub async fn shut_down(&self) {
        self.stop.cancel();
        let mirrors = std::mem::take(&mut *self.mirrors.lock().await);
        for (volume, (_, driver)) in mirrors {
            if let Err(error) = driver.await {
                tracing::error!(%volume, "the mirror's driver ended badly: {error}");
            }
        }
    }
}

/// Makes, or takes over, the volume, and marks it as a replica. Returns the relationship's id: a replica of the same
/// source that lost its configuration keeps the one it has in the pool.
fn prepare_replica(
    engine: &dyn Engine,
    clock: &dyn Clock,
    volume: &VolumeName,
    size_bytes: u64,
    new_id: Uuid,
    record: impl Fn(Uuid) -> ReplicaRecord,
) -> Result<Uuid, MirrorError> {
    match engine.volume(volume) {
        Err(EngineError::NotFound { .. }) => {
            engine.create_volume(volume, size_bytes)?;
        }
        Err(error) => return Err(error.into()),
        Ok(_) => match engine.replica_record(volume)? {
            Some(known) if known.broken_off => {
                return Err(MirrorError::State(format!(
                    "{volume} was broken off from {}; what was written to it since would be lost. Use another volume",
                    known.source
                )));
            }
            Some(known) if known == record(known.relationship) => return Ok(known.relationship),
            Some(known) => {
                return Err(MirrorError::State(format!(
                    "{volume} is the replica of another volume, {}",
                    known.source
                )));
            }
            None => refuse_data(engine, clock, volume, new_id)?,
        },
    }
    engine.set_replica_record(volume, Some(record(new_id)))?;
    Ok(new_id)
}

/// Refuses a volume that holds anything: a mirror would hide it. A snapshot's content root tells, without a read.
fn refuse_data(
    engine: &dyn Engine,
    clock: &dyn Clock,
    volume: &VolumeName,
    id: Uuid,
) -> Result<(), MirrorError> {
    let refused = || {
        MirrorError::State(format!(
            "{volume} exists and holds data or snapshots, which a mirror would hide; give another name, or delete it first"
        ))
    };
    if !engine.snapshots(volume)?.is_empty() {
        return Err(refused());
    }
    let spec = SnapshotSpec {
        name: format!("mirror-probe-{}", &id.simple().to_string()[..12]),
        uuid: id,
        created_at: clock.now(),
        owner: SnapshotOwner::Relationship(id),
        pin_for: None,
    };
    let probe = engine.take_snapshot(volume, &spec)?;
    let root = engine.content_root(volume, probe.uuid);
    engine.delete_snapshot(volume, probe.uuid)?;
    if root? == farside_engine::ContentRoot::new(Fingerprint::HOLE, probe.size_bytes) {
        Ok(())
    } else {
        Err(refused())
    }
}
