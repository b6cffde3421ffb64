//! The mirrors of this site, on both sides.
//!
//! Replicas are driven by pool: a pool's mirrors start when it is opened and end before it is closed, so that one
//! that cannot be opened leaves the others alone, and one that is imported brings its replicas with it. What a pool
//! says of a replica counts: a relationship that the state database does not know (any more) is taken over from there.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use farside_api::{self as api, ErrorBody, ErrorCode, MirrorState, Role};
use farside_engine::{Engine, VolumeName};
use farside_mirror::{
    Destination, DestinationParts, Mirror, MirrorError, MirrorStatus, Relationship, Reversal,
    ReverseAccepted, ReverseOffer, ReverseRights, Schedule, SourceRelationship, SourceService,
    transfer_slots,
};
use farside_platform::{Clock, Randomness, Timestamp};
use farside_session::{Node, PeerId};
use farside_store::Pool;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::blocking::Blocking;
use crate::failure::Failure;
use crate::peers::{self, Rights};
use crate::state::{PoolRelationships, RightRow, State};
use crate::words;

/// Shortest beginning of a key that stands for a peer.
const KEY_PREFIX_MIN: usize = 8;

/// The mirrors.
pub(crate) struct Mirrors {
    parts: MirrorParts,
    /// By pool.
    destinations: Arc<Mutex<BTreeMap<String, Arc<Destination>>>>,
    /// What the source side hands changes of roles to; it looks there.
    _reversals: Arc<dyn Reversal>,
    /// Turns of transfers, shared by all pools.
    slots: Arc<Semaphore>,
}

/// What the mirrors work with.
pub(crate) struct MirrorParts {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) node: Node,
    pub(crate) source: Arc<SourceService>,
    pub(crate) rights: Arc<Rights>,
    pub(crate) state: State,
    pub(crate) blocking: Blocking,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
}

impl std::fmt::Debug for Mirrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mirrors")
    }
}

impl Mirrors {
    pub(crate) fn new(parts: MirrorParts) -> Mirrors {
        let destinations: Arc<Mutex<BTreeMap<String, Arc<Destination>>>> = Arc::default();
        let reversals: Arc<dyn Reversal> = Arc::new(Reversals { destinations: Arc::clone(&destinations) });
        parts.source.set_reversal(Arc::downgrade(&reversals));
        Mirrors { parts, destinations, _reversals: reversals, slots: transfer_slots() }
    }

    /// Starts the mirrors whose replicas are in `pool`. The caller sees to it that one pool is opened or closed at a time.
    pub(crate) async fn pool_opened(&self, name: &str, pool: &Pool) -> Result<(), ErrorBody> {
        self.take_over(name, pool).await?;
        let parts = DestinationParts {
            engine: Arc::clone(&self.parts.engine),
            links: Arc::new(self.parts.node.clone()),
            store: Arc::new(PoolRelationships::new(self.parts.state.clone(), name)),
            source: Arc::clone(&self.parts.source),
            reverse: Arc::new(WayBack {
                rights: Arc::clone(&self.parts.rights),
                state: self.parts.state.clone(),
            }),
            clock: Arc::clone(&self.parts.clock),
            randomness: Arc::clone(&self.parts.randomness),
            slots: Arc::clone(&self.slots),
        };
        let destination = Destination::open(parts).await.map_err(Failure::tell)?;
        self.destinations.lock().insert(name.to_owned(), Arc::new(destination));
        Ok(())
    }

    /// Ends them, and waits: nothing touches the pool afterwards.
    pub(crate) async fn pool_closing(&self, name: &str) {
        let destination = self.destinations.lock().remove(name);
        if let Some(destination) = destination {
            destination.shut_down().await;
        }
    }

    /// Ends all of them.
    pub(crate) async fn shut_down(&self) {
        let destinations = std::mem::take(&mut *self.destinations.lock());
        for destination in destinations.values() {
            destination.shut_down().await;
        }
    }

    /// Brings the database in line with what the pool knows of its replicas.
    async fn take_over(&self, pool_name: &str, pool: &Pool) -> Result<(), ErrorBody> {
        let known = self.parts.state.relationships(None).await.map_err(Failure::tell)?;
        for volume in pool.volumes() {
            let Some(replica) = volume.replica else { continue };
            let Ok(source) = replica.source.parse() else {
                tracing::error!(
                    pool = pool_name,
                    volume = volume.name,
                    source = replica.source,
                    "not a volume's name"
                );
                continue;
            };
            let destination = VolumeName { pool: pool_name.to_owned(), volume: volume.name };
            let relationship = match known.iter().find(|r| r.id == replica.relationship) {
                Some(known) if known.destination == destination => continue,
                // The pool has another name now than when its replica was made.
                Some(known) => Relationship { destination, ..known.clone() },
                None => Relationship::new(
                    replica.relationship,
                    PeerId(replica.peer),
                    source,
                    destination,
                    Schedule::OnRequest,
                ),
            };
            tracing::warn!(volume = %relationship.destination, source = %relationship.source,
                "a replica was found in its pool; it has no schedule until farside mirror set gives it one");
            self.parts.state.save_relationship(&relationship).await.map_err(Failure::tell)?;
        }
        Ok(())
    }

    /// The destination side of a pool.
    pub(crate) fn destination(&self, pool: &str) -> Result<Arc<Destination>, ErrorBody> {
        self.destinations.lock().get(pool).map(Arc::clone).ok_or_else(|| {
            ErrorBody::new(ErrorCode::NotFound, format!("pool {pool} is not open here"))
                .hint("farside pool list shows what is there, and why not")
        })
    }

    /// The mirror whose replica is `volume`.
    pub(crate) fn mirror(&self, volume: &VolumeName) -> Result<Mirror, ErrorBody> {
        let unknown = || {
            ErrorBody::new(ErrorCode::NotFound, format!("no mirror has {volume} as its destination"))
                .hint("farside mirror status shows what is there")
        };
        match self.destinations.lock().get(&volume.pool).map(Arc::clone) {
            Some(destination) => destination.mirror(volume).map_err(|_| unknown()),
            None => Err(unknown()),
        }
    }

    /// All mirrors of both sides, by name: replicas first.
    pub(crate) async fn list(&self) -> Result<Vec<api::Mirror>, ErrorBody> {
        let now = self.parts.clock.now();
        let mut all = Vec::new();
        let destinations = self.destinations.lock().clone();
        for relationship in self.parts.state.relationships(None).await.map_err(Failure::tell)? {
            if !destinations.contains_key(&relationship.destination.pool) {
                all.push(self.undriven(&relationship));
            }
        }
        for destination in destinations.values() {
            let mirrors = destination.mirrors();
            all.extend(mirrors.iter().map(|mirror| self.document(&mirror.status(), now)));
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all.extend(self.sources().await);
        Ok(all)
    }

    /// A mirror as its destination lists it.
    pub(crate) fn document(&self, status: &MirrorStatus, now: Timestamp) -> api::Mirror {
        let current = status.current.as_ref();
        api::Mirror {
            state: words::state(status.state),
            why: status.why.clone(),
            lag_seconds: status.lag_seconds(now),
            current_snapshot: current.map(|c| c.name.clone()),
            content_root: current.map(|c| c.content_root.to_string()),
            base_snapshot: current.map(|c| c.name.clone()),
            transfer: status.progress.as_ref().map(words::transfer),
            ..self.undriven(&status.relationship)
        }
    }

    /// A mirror whose pool is not open: all that is known is its configuration.
    fn undriven(&self, relationship: &Relationship) -> api::Mirror {
        let peer = peers::name_of(&self.parts.node, relationship.peer);
        api::Mirror {
            id: relationship.id,
            name: relationship.destination.to_string(),
            role: Role::Destination,
            source: format!("{peer}:{}", relationship.source),
            destination: relationship.destination.to_string(),
            state: MirrorState::Quiesced,
            why: Some(format!(
                "pool {} is not open; farside pool list says why",
                relationship.destination.pool
            )),
            lag_seconds: None,
            objective_seconds: None,
            current_snapshot: None,
            content_root: None,
            base_snapshot: None,
            last_proven_at: None,
            schedule: (relationship.schedule != Schedule::OnRequest)
                .then(|| relationship.schedule.to_string()),
            throttle: None,
            transfer: None,
            overtaken: None,
        }
    }

    /// Who holds which base of this site's volumes, and since when.
    pub(crate) async fn held_by_others(&self) -> Vec<api::MirrorDestination> {
        let serving = self.parts.source.serving();
        let relationships = self.parts.source.destinations();
        let (engine, named) = (Arc::clone(&self.parts.engine), relationships.clone());
        let bases = self.parts.blocking.run(move || {
            Ok::<_, ErrorBody>(
                named.iter().map(|relationship| base(&*engine, relationship)).collect::<Vec<_>>(),
            )
        });
        // Without the names the rest is still worth showing.
        let bases = bases.await.unwrap_or_else(|_| vec![None; relationships.len()]);
        let held = relationships.into_iter().zip(bases).map(|(relationship, base)| {
            let (base_snapshot, content_root) = base.unzip();
            api::MirrorDestination {
                id: relationship.id,
                volume: relationship.source.to_string(),
                peer: peers::name_of(&self.parts.node, relationship.peer),
                destination: relationship.destination.to_string(),
                base_snapshot,
                content_root,
                since: relationship.since.map(words::time),
                pinned_bytes: None,
                transferring: serving.iter().any(|(id, _)| *id == relationship.id),
                known: true,
                overtaken: None,
            }
        });
        held.collect()
    }

    /// Whose bases of `volume` are meant by `peer`: a peer's name, or the beginning of a key, as those are listed whose
    /// peer was removed.
    pub(crate) fn holders(&self, volume: &VolumeName, peer: &str) -> Vec<PeerId> {
        let of_volume = self.parts.source.destinations().into_iter().filter(|r| r.source == *volume);
        let mut ids: Vec<PeerId> = of_volume.map(|r| r.peer).collect();
        ids.sort_by_key(|id| id.0);
        ids.dedup();
        let named = |id: &PeerId| peers::name_of(&self.parts.node, *id) == peer;
        if ids.iter().any(named) {
            ids.retain(named);
        } else {
            ids.retain(|id| peer.len() >= KEY_PREFIX_MIN && id.to_string().starts_with(peer));
        }
        ids
    }

    /// The bases that a peer holds here: (volume, replica).
    pub(crate) fn held_by(&self, peer: PeerId) -> Vec<(VolumeName, VolumeName)> {
        let all = self.parts.source.destinations().into_iter();
        all.filter(|r| r.peer == peer).map(|r| (r.source, r.destination)).collect()
    }

    /// Lets go of the bases that `peer` holds of `volume`; how many there were.
    pub(crate) async fn release(&self, volume: &VolumeName, peer: PeerId) -> Result<usize, ErrorBody> {
        self.parts.source.release(volume, peer).await.map_err(Failure::tell)
    }

    /// The side of the source, as `mirror status` lists it.
    async fn sources(&self) -> Vec<api::Mirror> {
        self.held_by_others().await.into_iter().map(source).collect()
    }

    /// Whether the pool has `volume` as a replica that hosts may not write to.
    pub(crate) async fn is_replica(&self, volume: &VolumeName) -> Result<bool, ErrorBody> {
        let (engine, of) = (Arc::clone(&self.parts.engine), volume.clone());
        let info = self.parts.blocking.run(move || engine.volume(&of).map_err(Failure::tell)).await?;
        Ok(info.is_replica)
    }

    /// Whether a mirror of either side stands on this volume: then it cannot be renamed or deleted.
    pub(crate) async fn stands_on(&self, volume: &VolumeName) -> Result<Option<String>, ErrorBody> {
        let relationships =
            self.parts.state.relationships(Some(&volume.pool)).await.map_err(Failure::tell)?;
        if relationships.iter().any(|r| r.destination == *volume) {
            return Ok(Some(format!(
                "{volume} is the replica of a mirror; end it first with farside mirror delete {volume}"
            )));
        }
        let sources = self.parts.source.destinations();
        Ok(sources.iter().find(|r| r.source == *volume).map(|r| {
            let peer = peers::name_of(&self.parts.node, r.peer);
            format!("{volume} is mirrored by {peer} as {}; end that mirror there first", r.destination)
        }))
    }

    /// The mirrors whose replica or original is in this pool, by volume here.
    pub(crate) async fn of_pool(&self, pool: &str) -> Result<Vec<VolumeName>, ErrorBody> {
        let relationships = self.parts.state.relationships(Some(pool)).await.map_err(Failure::tell)?;
        let replicas = relationships.into_iter().map(|r| r.destination);
        let originals =
            self.parts.source.destinations().into_iter().map(|r| r.source).filter(|v| v.pool == pool);
        Ok(replicas.chain(originals).collect())
    }

    /// Forgets the relationships of a pool that is being deleted.
    pub(crate) async fn forget_pool(&self, pool: &str) -> Result<(), ErrorBody> {
        for relationship in self.parts.state.relationships(Some(pool)).await.map_err(Failure::tell)? {
            self.parts.state.remove_relationship(relationship.id).await.map_err(Failure::tell)?;
        }
        Ok(())
    }
}

/// Hands a change of roles to the destination side of the pool that it is about.
struct Reversals {
    destinations: Arc<Mutex<BTreeMap<String, Arc<Destination>>>>,
}

impl Reversals {
    fn of(&self, volume: &VolumeName) -> Result<Arc<Destination>, MirrorError> {
        let found = self.destinations.lock().get(&volume.pool).map(Arc::clone);
        found.ok_or_else(|| MirrorError::State(format!("pool {} is not open here", volume.pool)))
    }
}

#[async_trait]
impl Reversal for Reversals {
    async fn prepare(&self, offer: &ReverseOffer) -> Result<ReverseAccepted, MirrorError> {
        self.of(&offer.volume)?.prepare(offer).await
    }

    async fn prepared(&self, volume: &VolumeName, of: Uuid) -> Result<Option<Uuid>, MirrorError> {
        self.of(volume)?.prepared(volume, of).await
    }

    async fn cancel(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError> {
        self.of(volume)?.cancel(volume, of).await
    }

    async fn done(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError> {
        self.of(volume)?.done(volume, of).await
    }
}

/// Records what the way back needs among the rights of peers.
struct WayBack {
    rights: Arc<Rights>,
    state: State,
}

#[async_trait]
impl ReverseRights for WayBack {
    async fn grant_reverse(&self, peer: PeerId, volume: &VolumeName) -> Result<(), MirrorError> {
        // Both ways: what has turned once may turn again.
        let fence = self.rights.right(peer, volume).is_some_and(|right| right.fence);
        let right = RightRow { peer, volume: volume.to_string(), reverse: true, fence };
        self.rights.allow(&self.state, vec![right]).await.map_err(|e| MirrorError::Store(e.to_string()))
    }
}

/// What the source knows of a mirror: not more than who holds which base.
fn source(held: api::MirrorDestination) -> api::Mirror {
    api::Mirror {
        id: held.id,
        name: held.volume.clone(),
        role: Role::Source,
        source: held.volume,
        destination: format!("{}:{}", held.peer, held.destination),
        state: match (held.transferring, held.since) {
            (true, None) => MirrorState::Initializing,
            (true, Some(_)) => MirrorState::Transferring,
            (false, None) => MirrorState::Uninitialized,
            (false, Some(_)) => MirrorState::Mirrored,
        },
        why: None,
        lag_seconds: None,
        objective_seconds: None,
        current_snapshot: held.base_snapshot.clone(),
        content_root: held.content_root,
        base_snapshot: held.base_snapshot,
        last_proven_at: None,
        schedule: None,
        throttle: None,
        transfer: None,
        overtaken: held.overtaken,
    }
}

/// Name and content root of the base that a destination holds.
fn base(engine: &dyn Engine, relationship: &SourceRelationship) -> Option<(String, String)> {
    let uuid = relationship.base?;
    // A pool that is not open, or a base that is gone, is shown by its absence.
    let snapshots = engine.snapshots(&relationship.source).ok()?;
    let snapshot = snapshots.into_iter().find(|s| s.uuid == uuid)?;
    let root = engine.content_root(&relationship.source, uuid).ok()?;
    Some((snapshot.name, root.to_string()))
}
