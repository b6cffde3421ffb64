//! The mirrors of this site, on both sides.
//!
//! Replicas are driven by pool: a pool's mirrors start when it is opened and end before it is closed, so that one
//! that cannot be opened leaves the others alone, and one that is imported brings its replicas with it. What a pool
//! says of a replica counts: a relationship that the state database does not know (any more) is taken over from there.

pub(crate) mod destinations;
mod directions;
mod documents;
mod histories;
mod kept;
mod one_moment;
mod own_paths;
mod recorded_rights;
mod replaced_peers;
mod role_changes;
mod set_back;
mod unfinished_swap;
mod why;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Instant;

use farside_api::{self as api, ErrorBody, ErrorCode, MirrorState};
use farside_engine::{Engine, StagingRoom, VolumeName};
use farside_mirror::{
    Destination, DestinationParts, EndingStore, Endings, Mirror, MirrorStatus, QueueStatus, Relationship,
    ReplicaLimits, Reversal, Schedule, SourceService, TransferQueue, dissolve_in_pool,
};
use farside_peer::{Node, PeerId};
use farside_platform::{Clock, Randomness, Timestamp};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use uuid::Uuid;

use directions::{is_left_over, note_sleepers_and_splits, why_asleep};
use role_changes::{Reversals, WayBack};

use crate::blocking::Blocking;
use crate::exports::Exports;
use crate::failure::Failure;
use crate::peers::{self, Rights};
use crate::pools::Pools;
use crate::pools::seen::VolumeSeen;
use crate::state::{PoolRelationships, State, StateError};

/// The mirrors.
pub(crate) struct Mirrors {
    parts: MirrorParts,
    /// By pool.
    destinations: Arc<Mutex<BTreeMap<String, Arc<Destination>>>>,
    /// What the source side hands role changes to; it looks there.
    _reversals: Arc<dyn Reversal>,
    /// Whose turn it is to transfer, over all pools.
    queue: TransferQueue,
    /// One change of its size at a time, so that database and queue agree.
    size_lock: tokio::sync::Mutex<()>,
    endings: OnceCell<Arc<Endings>>,
    /// Mirrors that had ended when this process began; the pool of one may not know it yet.
    ended_before: Mutex<HashSet<Uuid>>,
    /// How far volumes have diverged, by relationship, and when that was counted.
    divergences: Mutex<HashMap<Uuid, (Instant, Option<u64>)>>,
    /// Of what hosts there had at last, by relationship: of volumes in clusters, which are asked when they are listed.
    base_times: Mutex<HashMap<Uuid, Timestamp>>,
    fence_lock: Mutex<()>,
}

/// What the mirrors work with.
pub(crate) struct MirrorParts {
    pub(crate) pools: Arc<Pools>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) node: Node,
    pub(crate) source: Arc<SourceService>,
    pub(crate) rights: Arc<Rights>,
    pub(crate) state: State,
    pub(crate) blocking: Blocking,
    /// For what asks a cluster, which may be away: nobody else waits behind it.
    pub(crate) far: Blocking,
    pub(crate) limits: ReplicaLimits,
    /// What this daemon is called among those of its site; none where it is the only one.
    pub(crate) daemon: Option<String>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
}

impl std::fmt::Debug for Mirrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mirrors")
    }
}

impl Mirrors {
    pub(crate) fn new(parts: MirrorParts) -> Arc<Mirrors> {
        Arc::new_cyclic(|mirrors| Mirrors::of(parts, mirrors))
    }

    /// `mirrors`: the same, once they are made.
    fn of(parts: MirrorParts, mirrors: &Weak<Mirrors>) -> Mirrors {
        let destinations: Arc<Mutex<BTreeMap<String, Arc<Destination>>>> = Arc::default();
        let reversals: Arc<dyn Reversal> = Arc::new(Reversals {
            destinations: Arc::clone(&destinations),
            exports: Arc::clone(&parts.exports),
            node: parts.node.clone(),
            mirrors: Weak::<Mirrors>::clone(mirrors),
        });
        parts.source.set_reversal(Arc::downgrade(&reversals));
        Mirrors {
            parts,
            destinations,
            _reversals: reversals,
            queue: TransferQueue::default(),
            size_lock: tokio::sync::Mutex::default(),
            endings: OnceCell::new(),
            ended_before: Mutex::default(),
            divergences: Mutex::default(),
            base_times: Mutex::default(),
            fence_lock: Mutex::default(),
        }
    }

    /// How many mirrors have their replica in a pool that is open here.
    pub(crate) fn count(&self) -> usize {
        self.destinations.lock().values().map(|destination| destination.mirrors().len()).sum()
    }

    /// The queue of transfers as it is now.
    pub(crate) fn queue(&self) -> QueueStatus {
        self.queue.status()
    }

    /// Has as many transfers be under way at once as was set. What cannot be read must not keep the daemon from its start.
    pub(crate) async fn load_transfer_size(&self) -> Result<(), StateError> {
        let Some(text) = self.parts.state.transfer_size().await? else { return Ok(()) };
        match text.parse() {
            Ok(size) => self.queue.set_size(size),
            Err(_) => tracing::error!(
                text,
                "the stored number of simultaneous transfers is invalid; {} run at once. Set it again: farside site \
                 set",
                self.queue().size
            ),
        }
        Ok(())
    }

    /// Lets this many transfers be under way at once: from now on, and after a restart.
    pub(crate) async fn set_transfer_size(&self, size: usize) -> Result<(), ErrorBody> {
        let _guard = self.size_lock.lock().await;
        self.parts.state.set_transfer_size(size).await.map_err(Failure::into_error_body)?;
        self.queue.set_size(size);
        Ok(())
    }

    /// Starts the mirrors whose replicas are in `pool`. The caller sees to it that one pool is opened or closed at a time.
    pub(crate) async fn pool_opened(&self, name: &str, volumes: &[VolumeSeen]) -> Result<(), ErrorBody> {
        self.take_over(name, volumes).await?;
        self.fence_what_was_set_back(name, volumes, &self.rows_of(name).await?);
        self.rights_follow(name, volumes).await.map_err(Failure::into_error_body)?;
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
            queue: self.queue.clone(),
            endings: self.endings().await?,
            limits: self.parts.limits,
        };
        let destination = Destination::open(parts).await.map_err(Failure::into_error_body)?;
        self.destinations.lock().insert(name.to_owned(), Arc::new(destination));
        Ok(())
    }

    /// Who is still to be told of mirrors that are no more; the first who asks begins to tell.
    async fn endings(&self) -> Result<Arc<Endings>, ErrorBody> {
        let open = async || {
            let links = Arc::new(self.parts.node.clone());
            // Before one of them is told, and then forgotten.
            let ended = self.parts.state.endings().await?;
            *self.ended_before.lock() = ended.iter().map(|ending| ending.relationship).collect();
            let endings =
                Endings::open(links, self.parts.source.clone(), Arc::new(self.parts.state.clone())).await?;
            Ok::<_, farside_mirror::MirrorError>(Arc::new(endings))
        };
        self.endings.get_or_try_init(open).await.map(Arc::clone).map_err(Failure::into_error_body)
    }

    /// Begins to tell, also where no pool is open.
    pub(crate) async fn tell_endings(&self) -> Result<(), ErrorBody> {
        self.endings().await.map(drop)
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
    async fn take_over(&self, pool_name: &str, volumes: &[VolumeSeen]) -> Result<(), ErrorBody> {
        self.follow_replaced_peers(pool_name, volumes).await?;
        let endings = self.endings().await?;
        let known = self.parts.state.relationships(None).await.map_err(Failure::into_error_body)?;
        for volume in volumes {
            let Some(replica) = &volume.replica else { continue };
            let Ok(source) = replica.source.parse() else {
                tracing::error!(
                    pool = pool_name,
                    volume = volume.name,
                    source = replica.source,
                    "this volume is a replica, and the name of its source in the pool is invalid. It stays \
                     read-only. To use its data, copy it to another volume"
                );
                continue;
            };
            let destination = VolumeName { pool: pool_name.to_owned(), volume: volume.name.clone() };
            // One whose source has not heard yet that hosts went on here.
            if replica.broken_off && endings.is_over(replica.relationship) {
                self.dissolve(&destination, replica.relationship).await;
                continue;
            }
            if self.has_ended(replica.relationship)
                && self.finish_deletion(&destination, replica.relationship).await
            {
                continue;
            }
            let relationship = match known.iter().find(|r| r.id == replica.relationship) {
                Some(known) if known.destination == destination => continue,
                // The pool has another name now than when its replica was made.
                Some(known) => Relationship { destination, ..known.clone() },
                // A change of source that was begun and did not come about: the destination side puts it right.
                None if known.iter().any(|r| r.destination == destination) => continue,
                None => {
                    let (id, peer) = (replica.relationship, PeerId(replica.peer));
                    let found = Relationship::new(id, peer, source, destination, Schedule::OnRequest);
                    Relationship { schedule_lost: true, ..found }
                }
            };
            tracing::warn!(
                volume = %relationship.destination, source = %relationship.source, peer = ?relationship.peer,
                relationship = %relationship.id,
                "found a replica in the pool that is unknown to the state database under this name; it is readable \
                 and can be broken off. For updates: pair with its source again (if it is not paired), then farside \
                 mirror set {} --every TIME",
                relationship.destination
            );
            self.parts.state.save_relationship(&relationship).await.map_err(Failure::into_error_body)?;
        }
        Ok(())
    }

    fn has_ended(&self, relationship: Uuid) -> bool {
        self.ended_before.lock().remove(&relationship)
    }

    /// A mirror was deleted, and the daemon ended before its pool knew. Answers whether it does now.
    async fn finish_deletion(&self, volume: &VolumeName, relationship: Uuid) -> bool {
        let is_done = self.dissolve(volume, relationship).await;
        if is_done {
            tracing::warn!(%volume, %relationship, "finished the deletion of this mirror, which a stop of the daemon \
                 interrupted: hosts may write to the volume");
        }
        is_done
    }

    async fn dissolve(&self, volume: &VolumeName, relationship: Uuid) -> bool {
        let (engine, of) = (Arc::clone(&self.parts.engine), volume.clone());
        let dissolve =
            move || dissolve_in_pool(&*engine, &of, relationship, true).map_err(Failure::into_error_body);
        match self.parts.blocking.run(dissolve).await {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(%volume, %relationship, "cannot finish the deletion of this mirror, which a stop of the \
                     daemon interrupted. It goes on without a schedule: {}", error.message);
                false
            }
        }
    }

    /// The destination side of a pool.
    pub(crate) fn destination(&self, pool: &str) -> Result<Arc<Destination>, ErrorBody> {
        self.destinations.lock().get(pool).map(Arc::clone).ok_or_else(|| {
            self.parts.pools.not_open(pool).unwrap_or_else(|| {
                ErrorBody::new(ErrorCode::NotFound, format!("pool {pool} is not open here"))
                    .hint("farside pool list shows what is there, and why not")
            })
        })
    }

    /// The mirror whose replica is `volume`.
    pub(crate) fn mirror(&self, volume: &VolumeName) -> Result<Mirror, ErrorBody> {
        let unknown = || self.no_replica(volume);
        match self.destinations.lock().get(&volume.pool).map(Arc::clone) {
            Some(destination) => destination.mirror(volume).map_err(|_| unknown()),
            None => Err(self.parts.pools.not_open(&volume.pool).unwrap_or_else(unknown)),
        }
    }

    /// The mirror of a replica that is to be updated or paused: not a direction that sleeps, of a volume that lives as a source and
    /// is followed. What can be done about that one is to resync or delete it.
    pub(crate) fn awake(&self, volume: &VolumeName) -> Result<Mirror, ErrorBody> {
        let mirror = self.mirror(volume)?;
        let status = mirror.status();
        let of = &status.relationship;
        let follower = format!("{}:{}", peers::name_of(&self.parts.node, of.peer), of.source);
        if status.state == farside_mirror::State::BrokenOff && self.is_followed_by(volume, &follower) {
            return Err(self.no_replica(volume));
        }
        Ok(mirror)
    }

    /// Refuses what needs a peer that was removed here: no session with it will ever come back by itself.
    pub(crate) fn need_peer(&self, of: &Relationship) -> Result<(), ErrorBody> {
        if self.parts.node.peer(of.peer).is_some() {
            return Ok(());
        }
        let (volume, key) = (&of.destination, peers::name_of(&self.parts.node, of.peer));
        Err(ErrorBody::new(
            ErrorCode::Refused,
            format!(
                "the site that {volume} follows, with the key {key}, is not paired any more: its peer was removed here. Nothing was done"
            ),
        )
        .hint(format!(
            "pair again (farside peer invite there, farside peer join here); if the site has another key by then: farside peer rekey \
             {key} NEW. To end the mirror: farside mirror delete {volume}"
        )))
    }

    /// What whoever takes a volume for a replica is told.
    fn no_replica(&self, volume: &VolumeName) -> ErrorBody {
        let replicas = self.mirrored_by(volume);
        let far = self.parts.source.destinations().into_iter().find(|r| r.destination == *volume);
        if let (None, Some(far)) = (replicas.first(), far) {
            let site = peers::name_of(&self.parts.node, far.peer);
            return ErrorBody::new(
                ErrorCode::NotFound,
                format!("{volume} is at {site}: it is the replica of {} here. Nothing was done", far.source),
            )
            .hint(format!("a mirror is steered where its replica is: the same command at {site}"));
        }
        if replicas.is_empty() {
            return ErrorBody::new(ErrorCode::NotFound, format!("no mirror has {volume} as its destination"))
                .hint("farside mirror status shows what is there");
        }
        let there = replicas.iter().map(|replica| match replica.split_once(':') {
            Some((site, replica)) => format!("at {site}, with {replica} in place of {volume}"),
            None => format!("at its site, with {replica} in place of {volume}"),
        });
        let there: Vec<String> = there.collect();
        let which = if replicas.len() == 1 { "its replica is" } else { "its replicas are" };
        ErrorBody::new(
            ErrorCode::Refused,
            format!("{volume} is the source here; {which} {}. Nothing was done", replicas.join(", ")),
        )
        .hint(format!("a mirror is steered where its replica is: {}", there.join("; or ")))
    }

    /// Where a volume that is not here is, as mirrors of this site tell; none if they do not.
    pub(crate) fn at_other_site(&self, volume: &VolumeName) -> Option<String> {
        let site_of = |peer| peers::name_of(&self.parts.node, peer);
        let replica = self.parts.source.destinations().into_iter().find(|r| r.destination == *volume);
        if let Some(of) = replica {
            return Some(format!(
                "{volume} is at {}, as the replica of {} here",
                site_of(of.peer),
                of.source
            ));
        }
        let statuses = self.statuses();
        let of = statuses.iter().map(|status| &status.relationship).find(|of| of.source == *volume)?;
        Some(format!("{volume} is at {}, and {} here is its replica", site_of(of.peer), of.destination))
    }

    /// What whoever asks something of a mirror by the name of its source, at the site of its replica, is told besides: it is steered by
    /// the replica. Of any other volume as [`Mirrors::with_place`].
    pub(crate) fn with_replica(&self, volume: &VolumeName, error: ErrorBody) -> ErrorBody {
        let of_source = |m: &farside_mirror::MirrorStatus| m.relationship.source == *volume;
        match self.statuses().into_iter().find(of_source).filter(|_| error.code == ErrorCode::NotFound) {
            Some(status) => {
                let (site, replica) = (
                    peers::name_of(&self.parts.node, status.relationship.peer),
                    status.relationship.destination,
                );
                error.hint(format!(
                    "{volume} is at {site}, and {replica} here is its replica, by which the mirror is steered: the same command with {replica}"
                ))
            }
            None => self.with_place(volume, error),
        }
    }

    /// What whoever asks at the wrong site is told besides.
    pub(crate) fn with_place(&self, volume: &VolumeName, error: ErrorBody) -> ErrorBody {
        match self.at_other_site(volume).filter(|_| error.code == ErrorCode::NotFound) {
            Some(there) => error.hint(format!("{there}: the same command at that site")),
            None => error,
        }
    }

    /// All mirrors of both sides, by name: replicas first.
    pub(crate) async fn list(&self) -> Result<Vec<api::Mirror>, ErrorBody> {
        let now = self.parts.clock.now();
        let mut all = Vec::new();
        let destinations = self.destinations.lock().clone();
        // Without the database what is driven is known all the same, and it is what counts.
        match self.parts.state.relationships(None).await {
            Ok(known) => {
                let waits = |of: &&Relationship| !destinations.contains_key(&of.destination.pool);
                all.extend(known.iter().filter(waits).map(|relationship| self.undriven(relationship)));
            }
            Err(StateError::Away { .. }) => {}
            Err(error) => return Err(error.into_error_body()),
        }
        let statuses: Vec<MirrorStatus> = destinations
            .values()
            .flat_map(|of_pool| of_pool.mirrors())
            .map(|mirror| mirror.status())
            .collect();
        let overtaken: Vec<VolumeName> =
            self.parts.source.overtaken().into_iter().map(|r| r.source).collect();
        let without = one_moment::without(&statuses, &overtaken, &|volumes| self.has_common_moment(volumes));
        for status in &statuses {
            let mut mirror = self.document(status, now);
            if let Some(without) = without.get(&mirror.id) {
                mirror.no_common_moment = without.is_of_no_use;
                mirror.why = mirror
                    .why
                    .into_iter()
                    .chain([without.why.clone()])
                    .reduce(|all, more| format!("{all}; {more}"));
            }
            all.push(mirror);
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let mut sources = self.sources().await?;
        // After a role change: the volume follows, and what is left of its time as source goes with the next version.
        sources.retain(|source| !all.iter().any(|mirror| is_left_over(source, mirror)));
        for mirror in all.iter_mut().filter(|m| m.state == MirrorState::BrokenOff && m.why.is_none()) {
            let back = sources.iter().find(|s| s.name == mirror.name && s.destination == mirror.source);
            mirror.why = back.map(|back| why_asleep(mirror, back));
        }
        all.extend(sources);
        note_sleepers_and_splits(&mut all);
        Ok(all)
    }

    /// Whether there is a moment of which all of the replicas hold a snapshot that can be taken over; none if that is not known without
    /// asking a cluster.
    fn has_common_moment(&self, volumes: &[VolumeName]) -> Option<bool> {
        let mut common: Option<BTreeSet<farside_platform::Timestamp>> = None;
        for volume in volumes {
            if self.parts.pools.is_clustered(&volume.pool) {
                return None;
            }
            let snapshots = self.parts.engine.snapshots(volume).ok()?;
            let of_it: BTreeSet<farside_platform::Timestamp> =
                snapshots.iter().map(|snapshot| snapshot.created_at).collect();
            common = Some(match common {
                None => of_it,
                Some(common) => common.intersection(&of_it).copied().collect(),
            });
        }
        Some(!common?.is_empty())
    }

    /// Every mirror whose replica is in a pool that is open.
    pub(crate) fn statuses(&self) -> Vec<MirrorStatus> {
        let destinations: Vec<_> = self.destinations.lock().values().cloned().collect();
        destinations.iter().flat_map(|of_pool| of_pool.mirrors()).map(|mirror| mirror.status()).collect()
    }

    /// The replicas of those whose pool is not.
    pub(crate) async fn undriven_names(&self) -> Vec<String> {
        let Ok(relationships) = self.parts.state.relationships(None).await else { return Vec::new() };
        let destinations = self.destinations.lock();
        let undriven = relationships.into_iter().filter(|r| !destinations.contains_key(&r.destination.pool));
        undriven.map(|r| r.destination.to_string()).collect()
    }

    /// How far a mirror is behind, seconds.
    pub(crate) fn lag_seconds(&self, status: &MirrorStatus, now: Timestamp) -> Option<f64> {
        status.lag_seconds(now, peers::source_ahead(self.peer_of(status).as_ref()))
    }

    /// By how much the clock of a mirror's source is ahead of this site's, seconds, where that is worth a word.
    pub(crate) fn source_ahead_seconds(&self, status: &MirrorStatus) -> f64 {
        peers::source_ahead(self.peer_of(status).as_ref())
    }

    /// Has every mirror's throttle be what it is at this hour.
    pub(crate) fn follow_throttles(&self) {
        let destinations: Vec<_> = self.destinations.lock().values().cloned().collect();
        destinations.iter().flat_map(|of_pool| of_pool.mirrors()).for_each(|mirror| mirror.follow_throttle());
    }

    /// What transfers may stage for `volume` now; none if the engine cannot tell.
    pub(crate) async fn staging_room(&self, volume: &VolumeName) -> Option<StagingRoom> {
        let (engine, of) = (Arc::clone(&self.parts.engine), volume.clone());
        let room = move || engine.staging_room(&of).map_err(Failure::into_error_body);
        self.parts.blocking.run(room).await.ok().flatten()
    }

    /// Whether the pool has `volume` as a replica that hosts may not write to.
    pub(crate) async fn is_replica(&self, volume: &VolumeName) -> Result<bool, ErrorBody> {
        let (engine, of) = (Arc::clone(&self.parts.engine), volume.clone());
        let info =
            self.parts.blocking.run(move || engine.volume(&of).map_err(Failure::into_error_body)).await?;
        Ok(info.is_replica)
    }

    /// Whether a mirror of either side stands on this volume: then it cannot be renamed or deleted.
    pub(crate) async fn stands_on(&self, volume: &VolumeName) -> Result<Option<String>, ErrorBody> {
        let all = self.all_on(volume).await?;
        Ok((!all.is_empty()).then(|| all.join(". Besides: ")))
    }

    /// Whether the other site has ended the mirror by which it followed this volume.
    fn is_over_there(&self, volume: &VolumeName) -> bool {
        self.mirror(volume).is_ok_and(|mirror| {
            let status = mirror.status();
            status.state == farside_mirror::State::BrokenOff
                && status.source_heard == Some(farside_mirror::SourceHeard::Released)
        })
    }

    /// Whether a mirror was broken off before a copy had arrived whole.
    fn holds_nothing(&self, volume: &VolumeName) -> bool {
        self.mirror(volume).is_ok_and(|mirror| {
            let status = mirror.status();
            status.state == farside_mirror::State::BrokenOff && status.current.is_none()
        })
    }

    /// Every mirror that stands on this volume, each with what ends it.
    pub(crate) async fn all_on(&self, volume: &VolumeName) -> Result<Vec<String>, ErrorBody> {
        let mut all = Vec::new();
        let relationships =
            self.parts.state.relationships(Some(&volume.pool)).await.map_err(Failure::into_error_body)?;
        if let Some(of) = relationships.iter().find(|r| r.destination == *volume) {
            let from = format!("{}:{}", peers::name_of(&self.parts.node, of.peer), of.source);
            all.push(if self.is_replica(volume).await? {
                format!(
                    "{volume} is the replica of {from}; end the mirror first: farside mirror delete {volume} (the volume stays)"
                )
            } else if self.is_followed_by(volume, &from) {
                format!(
                    "{volume} is the original of {from}, and the way back is kept here: farside mirror delete {volume} ends that \
                     (the volume stays, and {from} follows it as before)"
                )
            } else if self.is_over_there(volume) {
                format!(
                    "{from} has nothing to do with {volume} any more, and is kept here by name still, for the way back: farside mirror \
                     delete {volume} ends that (the volume stays)"
                )
            } else if self.holds_nothing(volume) {
                format!(
                    "{volume} was broken off from {from} before a copy had arrived whole: farside mirror delete {volume} ends that \
                     mirror (the volume stays)"
                )
            } else {
                let again = match self.parts.node.peer(of.peer) {
                    Some(_) => format!(", farside mirror resync {volume} makes it follow again"),
                    None => String::new(),
                };
                format!(
                    "{volume} was broken off from {from}, and the mirror still remembers it by this name: farside mirror \
                     delete {volume} ends it for good (the volume stays){again}"
                )
            });
        }
        let sources = self.parts.source.destinations();
        all.extend(sources.iter().filter(|r| r.source == *volume).map(|r| {
            let peer = peers::name_of(&self.parts.node, r.peer);
            let release = format!("farside mirror release {volume} {peer}");
            if r.overtaken.is_some() {
                format!("{volume} was overtaken by {peer} with {}, and a base is kept for that; to keep both volumes: {release}", r.destination)
            } else {
                format!(
                    "{volume} is mirrored by {peer} as {}; end that mirror there first (farside mirror delete), or, if that \
                     site will not come back: {release}",
                    r.destination
                )
            }
        }));
        Ok(all)
    }

    /// The mirrors whose replica or original is in this pool, by volume here.
    pub(crate) async fn of_pool(&self, pool: &str) -> Result<Vec<VolumeName>, ErrorBody> {
        let relationships =
            self.parts.state.relationships(Some(pool)).await.map_err(Failure::into_error_body)?;
        let replicas = relationships.into_iter().map(|r| r.destination);
        let originals =
            self.parts.source.destinations().into_iter().map(|r| r.source).filter(|v| v.pool == pool);
        Ok(replicas.chain(originals).collect())
    }

    /// Forgets the relationships of a pool that is being deleted.
    pub(crate) async fn forget_pool(&self, pool: &str) -> Result<(), ErrorBody> {
        for relationship in
            self.parts.state.relationships(Some(pool)).await.map_err(Failure::into_error_body)?
        {
            self.parts.state.remove_relationship(relationship.id).await.map_err(Failure::into_error_body)?;
        }
        Ok(())
    }
}
