//! The mirrors of this site, by replica; how one is made and ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_engine::{Engine, EngineError, ReplicaRecord, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_format::Fingerprint;
use farside_peer::PeerId;
use farside_platform::{Clock, Randomness};
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::protocol::convert::{Place, Upstream};
use farside_transfer::protocol::{Body, Describe, Description, Release, convert};
use farside_transfer::report::TransferReport;
use prost::Message;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::endings::Endings;
use crate::error::{MirrorError, blocking};
use crate::group::{GroupKey, Groups, Member};
use crate::limits::ANSWER_WAIT;
use crate::links::{Links, ask_at_once};
use crate::log::LogEntry;
use crate::options::MirrorOptions;
use crate::queue::TransferQueue;
use crate::relationship::{Mirror, Parts};
use crate::replica_limits::ReplicaLimits;
use crate::retention::Retention;
use crate::schedule::Schedule;
use crate::source::{ReverseRights, SourceService};
use crate::state::State;
use crate::store::{Ending, Relationship, RelationshipStore, place};

/// What the destination side works with. The clock must run with tokio's (in tests: both paused, or both real).
pub struct DestinationParts {
    /// This site's storage.
    pub engine: Arc<dyn Engine>,
    /// Sessions with the peers.
    pub links: Arc<dyn Links>,
    /// Configuration and history.
    pub store: Arc<dyn RelationshipStore>,
    /// The other side of this site: what it keeps for its own destinations ends when a volume changes its direction.
    pub source: Arc<SourceService>,
    /// Where the right to the way back is recorded.
    pub reverse: Arc<dyn ReverseRights>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// For identities.
    pub randomness: Arc<dyn Randomness>,
    /// Whose turn it is to transfer; the same for every `Destination` of a site.
    pub queue: TransferQueue,
    /// Who is still to be told that a mirror is no more; the same for every `Destination` of a site.
    pub endings: Arc<Endings>,
    /// What its mirrors may take.
    pub limits: ReplicaLimits,
}

/// A mirror that was made.
#[derive(Debug)]
pub struct MadeMirror {
    /// It.
    pub mirror: Mirror,
    /// What a first copy brings at most, bytes, where the source says it.
    pub first_copy_bytes: Option<u64>,
    /// The size of its source, bytes, which its volume gets with the first copy; none if it was there, and is taken over.
    pub size_bytes: Option<u64>,
    /// What its source follows itself, as far as it says so.
    pub source_follows: Option<Place>,
}

/// A mirror that is wanted.
#[derive(Clone, Debug)]
pub struct NewMirror {
    /// The source's site.
    pub peer: PeerId,
    /// The volume there.
    pub source: VolumeName,
    /// The replica here.
    pub destination: VolumeName,
    /// When it is updated.
    pub schedule: Schedule,
    /// What it may take of the link.
    pub options: MirrorOptions,
    /// Which of the points that are published stay.
    pub retention: Retention,
    /// The group of mirrors that are updated and broken off together.
    pub group: Option<String>,
    /// Whether the source may have the right to the way back.
    pub allow_reverse: bool,
    /// Whether the source may follow a volume of this very site: the replica is a copy of a copy beside its original then.
    pub allow_copy_of_own: bool,
}

/// The destination side of this site: its mirrors, by replica.
pub struct Destination {
    pub(super) parts: DestinationParts,
    pub(super) stop: CancellationToken,
    groups: Arc<Groups>,
    mirrors: Mutex<BTreeMap<VolumeName, Slot>>,
}

/// A volume's slot among the mirrors.
pub(super) enum Slot {
    /// Taken by one that is being made.
    Reserved,
    /// A mirror and its driver.
    Running(Mirror, JoinHandle<()>),
}

impl Slot {
    fn mirror(&self) -> Option<&Mirror> {
        match self {
            Slot::Reserved => None,
            Slot::Running(mirror, _) => Some(mirror),
        }
    }
}

impl Destination {
    /// Starts every mirror that the store knows. With a schedule each looks for news at once.
    pub async fn open(parts: DestinationParts) -> Result<Destination, MirrorError> {
        let relationships = parts.store.relationships().await?;
        let groups = Arc::new(Groups::new(parts.engine.clone()));
        let destination =
            Destination { parts, stop: CancellationToken::new(), groups, mirrors: Mutex::default() };
        // All of them before the first begins: it would take those that are not there for none.
        for relationship in &relationships {
            if let Some(key) = GroupKey::of(relationship) {
                destination.groups.enroll(relationship.id, Some(&key), Member::unknown(relationship));
            }
        }
        for relationship in relationships {
            let relationship = destination.as_the_pool_knows(relationship).await?;
            let volume = relationship.destination.clone();
            let slot = destination.start(relationship, true);
            destination.slots().insert(volume, slot);
        }
        for mirror in destination.mirrors() {
            mirror.is_known().await;
        }
        Ok(destination)
    }

    /// The database may have the relationship that was about to take another's place when the power failed, and the pool the one
    /// that it was: that one goes on.
    async fn as_the_pool_knows(&self, row: Relationship) -> Result<Relationship, MirrorError> {
        let (engine, volume) = (self.parts.engine.clone(), row.destination.clone());
        // What cannot be asked now is asked by its driver again.
        let record = blocking(move || engine.replica_record(&volume)).await.ok().flatten();
        let is_other =
            |r: &ReplicaRecord| r.relationship != row.id && !self.parts.endings.is_over(r.relationship);
        let Some(record) = record.filter(is_other) else { return Ok(row) };
        let Ok(source) = record.source.parse() else { return Ok(row) };
        let known = Relationship {
            options: row.options.clone(),
            ..Relationship::new(
                record.relationship,
                PeerId(record.peer),
                source,
                row.destination.clone(),
                row.schedule.clone(),
            )
        };
        tracing::warn!(volume = %row.destination, source = %known.source, "a change of the source of this volume was \
             begun and did not come about; it is what it was");
        // The source that was about to be followed may keep a base for that.
        let release = Release {
            relationship: row.id.as_bytes().to_vec(),
            volume: row.source.to_string(),
            destination: String::new(),
        };
        let ending = Ending {
            relationship: row.id,
            peer: row.peer,
            at: self.parts.clock.now(),
            message: Body::Release(release),
        };
        self.parts.store.end(&ending).await?;
        self.parts.store.save(&known).await?;
        self.parts.endings.tell(ending);
        Ok(known)
    }

    pub(super) fn slots(&self) -> MutexGuard<'_, BTreeMap<VolumeName, Slot>> {
        // Every change is one insertion or removal: a panic in between leaves nothing half done.
        self.mirrors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(&self, relationship: Relationship, at_once: bool) -> Slot {
        let (mirror, driver) = Mirror::start(self.driver_parts(), relationship, at_once);
        Slot::Running(mirror, driver)
    }

    pub(super) fn driver_parts(&self) -> Parts {
        let DestinationParts {
            engine,
            links,
            store,
            source,
            reverse: _,
            clock,
            randomness,
            queue,
            endings,
            limits,
        } = &self.parts;
        Parts {
            engine: engine.clone(),
            links: links.clone(),
            store: store.clone(),
            source: source.clone(),
            clock: clock.clone(),
            randomness: randomness.clone(),
            queue: queue.clone(),
            endings: endings.clone(),
            groups: self.groups.clone(),
            limits: *limits,
            stop: self.stop.clone(),
        }
    }

    pub(super) fn new_id(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.parts.randomness.uuid_bytes()).into_uuid()
    }

    /// [`make`](Destination::make) of a mirror that may take of the link what it can, and of which nothing has to be confirmed.
    pub async fn create(
        &self,
        peer: PeerId,
        source: VolumeName,
        destination: VolumeName,
        schedule: Schedule,
        link_wait: Duration,
        allow_reverse: bool,
    ) -> Result<Mirror, MirrorError> {
        let (options, retention) = (MirrorOptions::default(), Retention::default());
        let (group, allow_copy_of_own) = (None, true);
        let wanted = NewMirror {
            peer,
            source,
            destination,
            schedule,
            options,
            retention,
            group,
            allow_reverse,
            allow_copy_of_own,
        };
        self.make(wanted, link_wait).await.map(|made| made.mirror)
    }

    /// Makes a mirror of a peer's volume: all of it, or nothing. The replica is made if it is not there; if it is, it must be empty,
    /// or the replica of this very source that lost its configuration. Waits for a session for at most `link_wait`: what the
    /// peer does not allow is said now, not at the first transfer. If the peer's administrator allows the way back, and
    /// `allow_reverse` says that this side's does, the peer gets the right to read the replica: it will need it to follow
    /// this side after a failover.
    ///
    pub async fn make(&self, wanted: NewMirror, link_wait: Duration) -> Result<MadeMirror, MirrorError> {
        let NewMirror { peer, source, destination, schedule, options, retention, group, .. } = wanted;
        let NewMirror { allow_reverse, allow_copy_of_own, .. } = wanted;
        options.check()?;
        if let Some(found) = self.found_in_pool(peer, &source, &destination) {
            // What the pool knows of it goes on; what only the database knew is said again. The schedule last: without one the
            // same command finds it again.
            let id = found.status().relationship.id;
            let (_, reverse, _) = self.describe(id, peer, &source, &destination, link_wait).await?;
            if reverse && allow_reverse {
                self.parts.reverse.grant_reverse(peer, &destination).await?;
            }
            if options != MirrorOptions::default() {
                found.set_options(options).await?;
            }
            if !retention.is_none() {
                found.set_retention(retention).await?;
            }
            if group.is_some() {
                found.set_group(group).await?;
            }
            found.set_schedule(schedule).await?;
            tracing::info!(%peer, volume = %destination, "took over the mirror that was found in the pool");
            let source_follows = found.status().relationship.upstream.follows.first().cloned();
            return Ok(MadeMirror {
                mirror: found,
                first_copy_bytes: None,
                size_bytes: None,
                source_follows,
            });
        }
        let _reserved = ReservedSlot::take(self, &destination)?;
        let new_id = self.new_id();
        let (size_bytes, reverse, first_copy) =
            self.describe(new_id, peer, &source, &destination, link_wait).await?;
        let follows = self.check_circle(new_id, peer, &source, &destination, link_wait).await?;
        if !allow_copy_of_own {
            self.check_not_of_own(peer, &source, &destination, &follows)?;
        }
        let source_follows = follows.into_iter().next();
        let (engine, clock) = (self.parts.engine.clone(), self.parts.clock.clone());
        let (of, to) = (source.clone(), destination.clone());
        let wanted = move |id| ReplicaRecord {
            relationship: id,
            peer: peer.0,
            source: of.to_string(),
            broken_off: false,
        };
        let endings = self.parts.endings.clone();
        let is_over = move |id| endings.is_over(id);
        let prepare = move || prepare_replica(&*engine, &*clock, &to, size_bytes, new_id, wanted, is_over);
        let (id, made) = blocking(prepare).await?;
        let relationship = Relationship::new(id, peer, source, destination.clone(), schedule);
        let relationship = Relationship { options, retention, group, ..relationship };
        if let Err(error) = self.parts.store.save(&relationship).await {
            self.unmake(&destination, made).await;
            return Err(error);
        }
        if reverse && allow_reverse {
            if let Err(error) = self.parts.reverse.grant_reverse(peer, &destination).await {
                // One that was found in the pool is there whatever the database knows.
                if made != Made::Nothing && self.parts.store.forget(id).await.is_ok() {
                    self.unmake(&destination, made).await;
                    return Err(error);
                }
                self.drive(relationship).await?;
                return Err(MirrorError::Store(format!(
                    "the mirror into {destination} is made, but the right of its source to the way back could not be \
                     recorded: {error}. Once that is mended: farside peer allow PEER {destination} --reverse"
                )));
            }
            tracing::info!(%peer, volume = %destination, "the way back is allowed on both sides");
        }
        let mirror = self.drive(relationship).await?;
        Ok(MadeMirror { mirror, first_copy_bytes: first_copy, size_bytes: Some(size_bytes), source_follows })
    }

    /// Starts the mirror of a relationship that the store knows.
    async fn drive(&self, relationship: Relationship) -> Result<Mirror, MirrorError> {
        let destination = relationship.destination.clone();
        let slot = self.start(relationship, false);
        self.slots().insert(destination.clone(), slot);
        let mirror = self.mirror(&destination)?;
        mirror.is_known().await;
        Ok(mirror)
    }

    /// Takes away again what was made for a mirror that does not come about.
    async fn unmake(&self, volume: &VolumeName, made: Made) {
        let (engine, of) = (self.parts.engine.clone(), volume.clone());
        if let Err(error) = blocking(move || unmake(&*engine, &of, made)).await {
            tracing::warn!(%volume, "a mirror into this volume was not made, and the volume stays: {error}. It is empty: farside \
                 mirror delete, then farside volume delete");
        }
    }

    /// Whether [`make`](Destination::make) would take over a mirror that is there: one that was found in the pool, and that nothing
    /// is known of but what the pool has.
    pub fn takes_over(&self, peer: PeerId, source: &VolumeName, destination: &VolumeName) -> bool {
        self.found_in_pool(peer, source, destination).is_some()
    }

    /// The mirror of these very volumes, if it was found in the pool and its schedule is lost.
    fn found_in_pool(&self, peer: PeerId, source: &VolumeName, destination: &VolumeName) -> Option<Mirror> {
        let mirror = self.mirror(destination).ok()?;
        let known = mirror.status().relationship;
        let is_it = known.schedule_lost && known.peer == peer && known.source == *source;
        (is_it && mirror.status().state != State::BrokenOff).then_some(mirror)
    }

    /// Gives the peer the right to the way back of a mirror that is there, if its administrator allows that, as
    /// [`make`](Destination::make) does. Answers whether it has given it.
    pub async fn renew_way_back(
        &self,
        volume: &VolumeName,
        link_wait: Duration,
    ) -> Result<bool, MirrorError> {
        let Relationship { id, peer, source, destination, .. } = self.mirror(volume)?.status().relationship;
        let (_, reverse, _) = self.describe(id, peer, &source, &destination, link_wait).await?;
        if reverse {
            self.parts.reverse.grant_reverse(peer, &destination).await?;
            tracing::info!(%peer, volume = %destination, "the way back is allowed on both sides again");
        }
        Ok(reverse)
    }

    /// What the first copy into `volume` brings at most, bytes: what its source occupies. Asks the source, for which it waits for
    /// at most `link_wait`; None of a source that cannot tell.
    pub async fn first_copy_bytes(
        &self,
        volume: &VolumeName,
        link_wait: Duration,
    ) -> Result<Option<u64>, MirrorError> {
        let Relationship { id, peer, source, destination, .. } = self.mirror(volume)?.status().relationship;
        let (_, _, bytes) = self.describe(id, peer, &source, &destination, link_wait).await?;
        Ok(bytes)
    }

    /// Refuses a mirror of a volume that follows the replica-to-be itself, as far as those between can be asked: then none of them
    /// would be an original, and no host could write anywhere. Answers what the source follows, the nearest first; a source of an
    /// older version does not say it.
    async fn check_circle(
        &self,
        id: Uuid,
        peer: PeerId,
        source: &VolumeName,
        destination: &VolumeName,
        link_wait: Duration,
    ) -> Result<Vec<Place>, MirrorError> {
        let links = &*self.parts.links;
        let Some(own_id) = links.own_id() else { return Ok(Vec::new()) };
        // What the pool has as a replica goes on as it was: in the middle of a role change both sides may be one, for a moment.
        let (engine, at) = (self.parts.engine.clone(), destination.clone());
        let recorded =
            blocking(move || Ok::<_, EngineError>(engine.replica_record(&at).unwrap_or_default())).await?;
        if recorded.is_some() {
            return Ok(Vec::new());
        }
        let describe = Describe {
            relationship: id.as_bytes().to_vec(),
            volume: source.to_string(),
            destination: destination.to_string(),
            hops: HOPS_MAX as u32,
        };
        let Some(answer) = ask_at_once(links, peer, Body::Describe(describe), link_wait).await? else {
            return Ok(Vec::new());
        };
        let description = Description::decode(answer)
            .map_err(|e| MirrorError::protocol(format!("malformed description: {e}")))?;
        let Some(origin) = description.origin else { return Ok(Vec::new()) };
        let follows = Upstream::from_message(&origin)?.follows;
        let itself = place(own_id, destination);
        let Some(hops) = follows.iter().position(|place| *place == itself) else { return Ok(follows) };
        let name = |peer: PeerId, volume: &VolumeName| match links.name_of(peer) {
            Some(peer) => format!("{peer}:{volume}"),
            None => volume.to_string(),
        };
        let mut circle = vec![name(peer, source)];
        circle.extend(follows.iter().take(hops).map(|place| name(PeerId(place.site), &place.volume)));
        Err(MirrorError::State(format!(
            "{destination} would follow {}, which follows {destination} itself: a circle without an original, and no host could \
             write anywhere. Nothing was made. If {destination} is the original, there is nothing to do here. If {source} shall \
             be it, at its site: farside mirror swap {source}, which loses nothing; or, if what {destination} has is to give way to what {source} \
             shows, farside mirror break {source} there, then here farside mirror resync {destination} --from {}",
            circle.join(", which follows "),
            name(peer, source)
        )))
    }

    /// Has somebody confirm a mirror of a volume that follows, directly or by others, a volume of this very site: nearly always a mirror
    /// to the other site was meant, and is made there.
    fn check_not_of_own(
        &self,
        peer: PeerId,
        source: &VolumeName,
        destination: &VolumeName,
        follows: &[Place],
    ) -> Result<(), MirrorError> {
        let links = &*self.parts.links;
        let own_id = links.own_id();
        let Some(own) = follows.iter().find(|place| own_id.is_some_and(|id| id.0 == place.site)) else {
            return Ok(());
        };
        let there = links.name_of(peer).unwrap_or_else(|| "the peer".to_owned());
        Err(MirrorError::Unconfirmed(format!(
            "{there}:{source} is itself a replica of {} here: {destination} would be a copy of that copy, beside its original, and every \
             change would travel there and back. Nothing was made",
            own.volume
        )))
    }

    async fn describe(
        &self,
        id: Uuid,
        peer: PeerId,
        source: &VolumeName,
        destination: &VolumeName,
        link_wait: Duration,
    ) -> Result<(u64, bool, Option<u64>), MirrorError> {
        let describe = Describe {
            relationship: id.as_bytes().to_vec(),
            volume: source.to_string(),
            destination: destination.to_string(),
            hops: 0,
        };
        let links = &*self.parts.links;
        let answer = ask_at_once(links, peer, Body::Describe(describe), link_wait).await?;
        let answer = answer.ok_or_else(|| MirrorError::NoAnswer {
            site: links.name_of(peer).unwrap_or_else(|| "the peer".to_owned()),
            waited: ANSWER_WAIT,
        })?;
        let description = Description::decode(answer)
            .map_err(|e| MirrorError::protocol(format!("malformed description: {e}")))?;
        Ok((convert::size(description.size_bytes)?, description.reverse, description.occupied_bytes))
    }

    /// The mirror whose replica is `volume`.
    pub fn mirror(&self, volume: &VolumeName) -> Result<Mirror, MirrorError> {
        let slots = self.slots();
        let mirror = slots.get(volume).and_then(Slot::mirror).cloned();
        mirror.ok_or_else(|| MirrorError::NotFound(volume.clone()))
    }

    /// All of them, by name of the replica.
    pub fn mirrors(&self) -> Vec<Mirror> {
        self.slots().values().filter_map(Slot::mirror).cloned().collect()
    }

    /// The newest `limit` transfers of a mirror, newest first.
    pub async fn history(
        &self,
        volume: &VolumeName,
        limit: usize,
    ) -> Result<Vec<TransferReport>, MirrorError> {
        let id = self.mirror(volume)?.status().relationship.id;
        self.parts.store.history(id, limit).await
    }

    /// The newest `limit` lines of the log of a replica, newest first; also of one whose mirror is over.
    pub async fn log(&self, volume: &VolumeName, limit: usize) -> Result<Vec<LogEntry>, MirrorError> {
        self.parts.store.log(volume, limit).await
    }

    /// Ends a relationship: the volume stays, writable, no longer a replica.
    pub async fn delete(&self, volume: &VolumeName) -> Result<(), MirrorError> {
        self.mirror(volume)?.delete().await?;
        self.slots().remove(volume);
        Ok(())
    }

    /// Ends every driver and the transfers that run, and waits for them: nothing touches the storage afterwards.
    pub async fn shut_down(&self) {
        self.stop.cancel();
        let slots = std::mem::take(&mut *self.slots());
        for (volume, slot) in slots {
            let Slot::Running(_, driver) = slot else { continue };
            if let Err(error) = driver.await {
                tracing::error!(%volume, "internal error (bug): the task of this mirror ended: {error}. The replica \
                     is unchanged; restart farsided to start the mirror again, and please report this with farside \
                     support-bundle");
            }
        }
    }
}

/// Keeps a volume's slot while its mirror is being made, and gives it back if that fails.
pub(super) struct ReservedSlot<'a> {
    destination: &'a Destination,
    volume: VolumeName,
}

impl<'a> ReservedSlot<'a> {
    pub(super) fn take(destination: &'a Destination, volume: &VolumeName) -> Result<Self, MirrorError> {
        let mut slots = destination.slots();
        match slots.get(volume) {
            None => {}
            Some(Slot::Reserved) => return Err(MirrorError::BeingMade(volume.clone())),
            Some(Slot::Running(..)) => return Err(MirrorError::Exists(volume.clone())),
        }
        slots.insert(volume.clone(), Slot::Reserved);
        drop(slots);
        Ok(ReservedSlot { destination, volume: volume.clone() })
    }
}

impl Drop for ReservedSlot<'_> {
    fn drop(&mut self) {
        let mut slots = self.destination.slots();
        if matches!(slots.get(&self.volume), Some(Slot::Reserved)) {
            slots.remove(&self.volume);
        }
    }
}

/// What was made in the pool for a mirror.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Made {
    /// It was there: a replica of the same source that lost its configuration.
    Nothing,
    /// The record of an empty volume that was there.
    Record,
    /// The volume too.
    Volume,
}

fn unmake(engine: &dyn Engine, volume: &VolumeName, made: Made) -> Result<(), MirrorError> {
    if made != Made::Nothing {
        engine.set_replica_record(volume, None)?;
    }
    if made == Made::Volume {
        engine.delete_volume(volume)?;
    }
    Ok(())
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
    is_over: impl Fn(Uuid) -> bool,
) -> Result<(Uuid, Made), MirrorError> {
    let mut made = Made::Record;
    match engine.volume(volume) {
        Err(EngineError::NotFound { .. }) => {
            engine.create_volume(volume, size_bytes)?;
            made = Made::Volume;
        }
        Err(error) => return Err(error.into()),
        Ok(_) => match engine.replica_record(volume)?.filter(|known| !is_over(known.relationship)) {
            Some(known) if known.broken_off => {
                return Err(MirrorError::State(format!(
                    "{volume} was broken off from {}; what was written to it since would be lost. Nothing was \
                     changed. Use another volume name, or farside mirror resync",
                    known.source
                )));
            }
            Some(known) if known == record(known.relationship) => {
                return Ok((known.relationship, Made::Nothing));
            }
            Some(known) => {
                return Err(MirrorError::State(format!(
                    "{volume} is the replica of another volume, {}. Nothing was changed. Use another volume name",
                    known.source
                )));
            }
            None => refuse_data(engine, clock, volume, new_id)?,
        },
    }
    if let Err(error) = engine.set_replica_record(volume, Some(record(new_id))) {
        if made == Made::Volume {
            engine.delete_volume(volume)?;
        }
        return Err(error.into());
    }
    Ok((new_id, made))
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
            "{volume} exists and holds data or snapshots, which a mirror would hide. Nothing was changed. If it was the replica of \
             that volume: farside mirror resync {volume} --from PEER:POOL/VOL --whole, which brings what was written since the newest snapshot that \
             both hold, and where there is none compares everything. Else use another volume name, or delete {volume} first"
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
