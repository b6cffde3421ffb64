//! The mirrors' other side: who holds which base of this site's volumes, who has overtaken them, and what is fenced for it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use farside_api::{self as api, ErrorBody, ErrorCode, MirrorState, Role};
use farside_engine::{Engine, EngineError, VolumeName};
use farside_mirror::SourceRelationship;
use farside_peer::{PeerId, PeerStatus};
use farside_store::Version;
use tokio::time::timeout;
use uuid::Uuid;

use super::histories::{OfGroups, rest_of_group};
use super::{Mirrors, kept};
use crate::convert;
use crate::failure::Failure;
use crate::figures::Counter;
use crate::peers;
use crate::plans::{self, OvertakenFacts};
use crate::pools::seen::VolumeSeen;

/// Shortest beginning of a key that stands for a peer.
const KEY_PREFIX_MIN: usize = 8;
/// How long who lists mirrors waits for what a cluster says of a volume.
const CLUSTER_ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How far a volume has diverged is counted again once the last figure is older: status is asked for often, by people and
/// by programs, and counting costs metadata reads.
const DIVERGENCE_AGE_MAX: Duration = Duration::from_secs(10);

/// Whose bases are meant by a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Holder {
    /// That of a relationship that this site knows.
    Known(Uuid),
    /// Those of a relationship that this site does not know.
    Unknown(Uuid),
}

impl Mirrors {
    /// Who holds which base of this site's volumes, and since when. With `costs`, also which snapshots are kept for each and what
    /// that takes, and pins that no known relationship explains, of `volume` or of all: that looks through metadata.
    pub(crate) async fn held_by_others(
        &self,
        volume: Option<&VolumeName>,
        costs: bool,
    ) -> Result<Vec<api::MirrorDestination>, ErrorBody> {
        let serving = self.parts.source.serving();
        let of_volume = |r: &SourceRelationship| volume.is_none_or(|volume| r.source == *volume);
        let relationships: Vec<_> = self.parts.source.destinations().into_iter().filter(of_volume).collect();
        let (fenced, set_back) = (self.parts.source.fenced(), self.parts.source.set_back());
        // Of each listing once: each volume of a group asks for all of it.
        let is_grouped =
            |r: &SourceRelationship| r.overtaken.as_ref().is_some_and(|overtaken| overtaken.group.is_some());
        let of_groups = match relationships.iter().any(is_grouped) {
            true => self.of_groups(),
            false => OfGroups::default(),
        };
        let mut held = Vec::with_capacity(relationships.len());
        for relationship in relationships.clone() {
            let follows = match relationship.overtaken {
                Some(_) => self.follows(&relationship.source).await,
                None => None,
            };
            // Without the figures the rest is still worth showing.
            let figures = self.figures(&relationship, costs).await.unwrap_or_default();
            let (base_snapshot, content_root) = figures.base.unzip();
            let overtaken = relationship.overtaken.as_ref().map(|overtaken| api::Overtaken {
                since: convert::time(overtaken.broken_off_at.unwrap_or(overtaken.reported_at)),
                reported_at: convert::time(overtaken.reported_at),
                snapshot: figures.from,
                diverged_bytes: figures.diverged_bytes,
                diverged_blocks: figures.diverged_bytes.map(plans::blocks),
                fenced: fenced.contains(&relationship.source),
                ended: overtaken.ended,
                beyond: overtaken.beyond.clone(),
                group: overtaken.group.as_ref().map(|(name, _)| name.clone()),
                group_rest: overtaken
                    .group
                    .as_ref()
                    .map(|(name, size)| rest_of_group(&of_groups, name, *size, relationship.peer)),
                follows: follows.clone(),
                set_back: set_back.contains_key(&relationship.source),
                follows_since: overtaken
                    .follows
                    .first()
                    .filter(|_| overtaken.ended && overtaken.beyond.is_none())
                    .map(|place| {
                        format!("{}:{}", peers::name_of(&self.parts.node, PeerId(place.site)), place.volume)
                    }),
            });
            let released = relationship.released.clone();
            let transferring = serving.iter().any(|(id, _)| *id == relationship.id);
            let kept = if costs { self.kept(&relationship, transferring).await } else { Vec::new() };
            let stale = relationships.iter().any(|other| is_newer_sibling(other, &relationship));
            held.push(api::MirrorDestination {
                id: relationship.id,
                volume: relationship.source.to_string(),
                peer: peers::name_of(&self.parts.node, relationship.peer),
                destination: relationship.destination.to_string(),
                base_snapshot,
                content_root,
                since: relationship.since.map(convert::time),
                pinned_bytes: figures.pinned_bytes,
                kept,
                transferring,
                known: true,
                stale,
                overtaken,
                released: released
                    .map(|released| api::Released { at: convert::time(released.at), why: released.why }),
                budgets: Some(self.budget_use(relationship.peer)),
            });
        }
        if costs {
            held.extend(self.unexplained(volume).await?);
        }
        Ok(held)
    }

    fn budget_use(&self, peer: PeerId) -> api::BudgetUse {
        let (used, budgets) = (self.parts.source.budget_use(peer), self.parts.source.budgets());
        api::BudgetUse {
            transfers: used.transfers as u64,
            transfers_max: budgets.transfers as u64,
            mirrors: used.mirrors as u64,
            mirrors_max: budgets.mirrors as u64,
            pins: used.pins as u64,
            pins_max: budgets.pins as u64,
            snapshots: u64::from(used.snapshots),
            snapshots_max: u64::from(budgets.snapshots_per_minute),
            pinned_bytes_max: budgets.pinned_bytes,
        }
    }

    /// Names and figures of one relationship, from its volume.
    async fn figures(&self, relationship: &SourceRelationship, costs: bool) -> Result<Figures, ErrorBody> {
        let volume = relationship.source.clone();
        if self.parts.pools.is_clustered(&volume.pool) {
            return self.figures_in_cluster(relationship).await;
        }
        let (engine, pool) = (self.parts.engine.clone(), self.parts.pools.get(&volume.pool)?);
        let from = relationship.overtaken.as_ref().and_then(|o| o.snapshot);
        let base = relationship.base;
        let known_divergence = {
            let mut divergences = self.divergences.lock();
            divergences.retain(|_, (counted_at, _)| counted_at.elapsed() < DIVERGENCE_AGE_MAX);
            divergences.get(&relationship.id).map(|(_, bytes)| *bytes)
        };
        let figures = self.parts.blocking.run(move || {
            let base = base.and_then(|base| named(&*engine, &volume, base));
            let counter = Counter::new(pool, &volume.volume);
            // The base and what hosts there went on from have the same content, but need not be the same snapshot here.
            let from = match from {
                None => None,
                Some((uuid, root)) => {
                    let all = engine.all_snapshots(&volume).map_err(Failure::into_error_body)?;
                    let same = |uuid: Uuid| engine.content_root(&volume, uuid).is_ok_and(|r| r == root);
                    let by_uuid = all.iter().find(|s| s.uuid == uuid && same(s.uuid));
                    by_uuid.or_else(|| all.iter().rev().find(|s| same(s.uuid))).cloned()
                }
            };
            let diverged_bytes = match (&from, known_divergence) {
                (_, Some(known)) => known,
                (None, None) => None,
                (Some(from), None) => counter
                    .changed(Version::Snapshot(from.uuid), Version::Head)
                    .map_err(Failure::into_error_body)?,
            };
            let pinned_bytes = match &base {
                Some((uuid, ..)) if costs => {
                    counter.replaced_since(*uuid).map_err(Failure::into_error_body)?
                }
                _ => None,
            };
            Ok::<_, ErrorBody>(Figures {
                base: base.map(|(_, name, root)| (name, root)),
                from: from.map(|from| from.name),
                diverged_bytes,
                pinned_bytes,
            })
        });
        let figures = figures.await?;
        // Nothing is counted in no time, and would be a lie with the first write.
        let is_worth_keeping = figures.diverged_bytes != Some(0);
        if relationship.overtaken.is_some() && known_divergence.is_none() && is_worth_keeping {
            self.divergences.lock().insert(relationship.id, (Instant::now(), figures.diverged_bytes));
        }
        Ok(figures)
    }

    /// The same of a volume in a cluster: what would take reading data is not counted.
    async fn figures_in_cluster(&self, relationship: &SourceRelationship) -> Result<Figures, ErrorBody> {
        if self.parts.pools.is_away(&relationship.source.pool) {
            return Ok(Figures::default());
        }
        let (engine, volume) = (self.parts.engine.clone(), relationship.source.clone());
        let (base, from) = (relationship.base, relationship.overtaken.as_ref().and_then(|o| o.snapshot));
        let figures = self.parts.far.run(move || {
            let base = base.and_then(|base| named(&*engine, &volume, base));
            let at = base.as_ref().and_then(|(uuid, ..)| {
                Some(
                    engine.snapshots(&volume).ok()?.into_iter().find(|found| found.uuid == *uuid)?.created_at,
                )
            });
            let from = match from {
                None => None,
                Some((uuid, _)) => engine
                    .snapshots(&volume)?
                    .into_iter()
                    .find(|found| found.uuid == uuid)
                    .map(|found| found.name),
            };
            let base = base.map(|(_, name, root)| (name, root));
            Ok::<_, EngineError>((Figures { base, from, ..Figures::default() }, at))
        });
        // A list of all mirrors waits for no cluster: each of them would wait as long.
        let Ok(figures) = timeout(CLUSTER_ANSWERS_WITHIN, figures).await else {
            self.parts.pools.note_away(&relationship.source.pool);
            return Ok(Figures::default());
        };
        let (figures, at) = figures?;
        if let Some(at) = at {
            self.base_times.lock().insert(relationship.id, at);
        }
        Ok(figures)
    }

    /// Pins that no known relationship explains.
    async fn unexplained(
        &self,
        volume: Option<&VolumeName>,
    ) -> Result<Vec<api::MirrorDestination>, ErrorBody> {
        let volumes = match volume {
            Some(volume) => vec![volume.clone()],
            None => self.volumes().await,
        };
        let mut found = Vec::new();
        for volume in volumes {
            let replicas = self.replicas_of(&volume).await?;
            // A pool that is not open, or a volume that goes meanwhile, has nothing to show.
            let Ok(pins) = self.parts.source.unexplained(&volume, &replicas).await else { continue };
            found.extend(pins.into_iter().map(|pin| api::MirrorDestination {
                id: pin.relationship,
                volume: pin.volume.to_string(),
                peer: String::new(),
                destination: String::new(),
                base_snapshot: pin.snapshots.last().map(|s| s.name.clone()),
                content_root: None,
                since: Some(convert::time(pin.since)),
                pinned_bytes: None,
                kept: kept::of_unknown(pin.snapshots),
                transferring: false,
                known: false,
                stale: false,
                overtaken: None,
                released: None,
                budgets: None,
            }));
        }
        Ok(found)
    }

    async fn volumes(&self) -> Vec<VolumeName> {
        let named = |(pool, volumes): (String, Vec<VolumeSeen>)| {
            let volumes = volumes.into_iter();
            volumes.map(|v| VolumeName { pool: pool.clone(), volume: v.name }).collect::<Vec<_>>()
        };
        self.all_seen().await.into_iter().flat_map(named).collect()
    }

    /// The relationships that have `volume` as their replica.
    async fn replicas_of(&self, volume: &VolumeName) -> Result<Vec<Uuid>, ErrorBody> {
        let all =
            self.parts.state.relationships(Some(&volume.pool)).await.map_err(Failure::into_error_body)?;
        let of_volume = all.into_iter().filter(|r| r.destination == *volume).map(|r| r.id);
        // A timetable of snapshots pins as retention does, for the volume itself.
        let own = self.parts.pools.get(&volume.pool).ok().and_then(|pool| pool.volume(&volume.volume).ok());
        Ok(of_volume.chain(own.map(|own| own.uuid)).collect())
    }

    /// Whose bases of `volume` are meant by `holder`: a peer's name, the beginning of a key (as those are listed whose
    /// peer was removed), or the id of a relationship that is not known here.
    pub(crate) fn holder(&self, volume: &VolumeName, holder: &str) -> Result<Holder, ErrorBody> {
        let of_volume: Vec<_> =
            self.parts.source.destinations().into_iter().filter(|r| r.source == *volume).collect();
        if let Ok(id) = holder.parse::<Uuid>() {
            let is_known = of_volume.iter().any(|r| r.id == id);
            return Ok(if is_known { Holder::Known(id) } else { Holder::Unknown(id) });
        }
        let ids: BTreeSet<[u8; 32]> = of_volume.iter().map(|r| r.peer.0).collect();
        let mut ids: Vec<PeerId> = ids.into_iter().map(PeerId).collect();
        let named = |id: &PeerId| peers::name_of(&self.parts.node, *id) == holder;
        if ids.iter().any(named) {
            ids.retain(named);
        } else {
            ids.retain(|id| holder.len() >= KEY_PREFIX_MIN && id.to_string().starts_with(holder));
        }
        match ids[..] {
            [] => Err(ErrorBody::new(ErrorCode::NotFound, format!("{holder} holds no base of {volume}"))
                .hint("farside mirror destinations shows who does")),
            [id] => {
                let of_peer: Vec<_> = of_volume.iter().filter(|r| r.peer == id).collect();
                match of_peer[..] {
                    [only] => Ok(Holder::Known(only.id)),
                    _ => Err(self.ambiguous(volume, holder, &of_peer)),
                }
            }
            _ => Err(ErrorBody::new(
                ErrorCode::WrongUsage,
                format!("{holder} may mean any of {} peers", ids.len()),
            )
            .hint("give more of the key that farside mirror destinations shows")),
        }
    }

    /// A peer that mirrors a volume more than once: which of its mirrors is meant, a person has to say.
    fn ambiguous(&self, volume: &VolumeName, holder: &str, of_peer: &[&SourceRelationship]) -> ErrorBody {
        let candidates = of_peer.iter().map(|r| {
            let state = match &r.overtaken {
                Some(_) => ", which has overtaken it",
                None if of_peer.iter().any(|other| is_newer_sibling(other, r)) => ", stale",
                None => "",
            };
            format!("{} ({}:{}{state})", r.id, peers::name_of(&self.parts.node, r.peer), r.destination)
        });
        let candidates: Vec<String> = candidates.collect();
        ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("{holder} has {} mirrors of {volume}: {}", candidates.len(), candidates.join(", ")),
        )
        .hint(format!("name one by its id: farside mirror release {volume} ID"))
    }

    /// What a volume here follows, if it is itself a replica: `PEER:POOL/VOL`.
    async fn follows(&self, volume: &VolumeName) -> Option<String> {
        let (engine, of) = (self.parts.engine.clone(), volume.clone());
        let record = self
            .parts
            .blocking
            .run(move || engine.replica_record(&of).map_err(Failure::into_error_body))
            .await;
        let record = record.ok().flatten().filter(|record| !record.broken_off)?;
        Some(format!("{}:{}", peers::name_of(&self.parts.node, PeerId(record.peer)), record.source))
    }

    /// Who mirrors `volume`: `PEER:POOL/VOL`.
    pub(crate) fn mirrored_by(&self, volume: &VolumeName) -> Vec<String> {
        self.mirrored_by_where(volume, |_| true)
    }

    /// Those of them, by `PEER:POOL/VOL`, that bring its changes: what was broken off follows nothing.
    pub(crate) fn followed_by(&self, volume: &VolumeName) -> Vec<String> {
        self.mirrored_by_where(volume, |r| !has_gone_on(r))
    }

    /// Those at which hosts went on.
    pub(crate) fn broken_off_from(&self, volume: &VolumeName) -> Vec<String> {
        self.mirrored_by_where(volume, has_gone_on)
    }

    fn mirrored_by_where(
        &self,
        volume: &VolumeName,
        is_wanted: impl Fn(&SourceRelationship) -> bool,
    ) -> Vec<String> {
        let of_volume = self.parts.source.destinations().into_iter().filter(|r| r.source == *volume);
        let wanted = of_volume.filter(is_wanted);
        wanted.map(|r| format!("{}:{}", peers::name_of(&self.parts.node, r.peer), r.destination)).collect()
    }

    /// Whether `name`, `PEER:POOL/VOL`, follows the volume and hosts have not gone on there.
    pub(crate) fn is_followed_by(&self, volume: &VolumeName, name: &str) -> bool {
        self.parts.source.destinations().iter().any(|r| {
            let is_it = || format!("{}:{}", peers::name_of(&self.parts.node, r.peer), r.destination) == name;
            r.source == *volume && r.base.is_some() && r.overtaken.is_none() && is_it()
        })
    }

    /// Who has taken a volume over, if that is not `from`: what is to be followed may be another volume by mistake. Nobody where one of
    /// them has gone on by way of others: then `from` may be in one line with it.
    pub(crate) fn taken_over_by_others(
        &self,
        volume: &VolumeName,
        from: (PeerId, &VolumeName),
    ) -> Vec<String> {
        let all = self.parts.source.overtaken_of(volume);
        let is_itself = |r: &SourceRelationship| {
            r.overtaken.as_ref().is_some_and(|o| o.beyond.is_none() && o.follows.is_empty())
        };
        if all.iter().any(|r| (r.peer, &r.destination) == from || !is_itself(r)) {
            return Vec::new();
        }
        all.iter()
            .map(|r| format!("{}:{}", peers::name_of(&self.parts.node, r.peer), r.destination))
            .collect()
    }

    /// Why `volume` is overtaken, and what can be done, as `mirror status` says it; none if it is not.
    pub(crate) async fn overtaken_why(&self, volume: &VolumeName) -> Option<String> {
        let held = self.held_by_others(Some(volume), false).await.ok()?;
        held.into_iter().filter(|held| held.overtaken.is_some()).find_map(|held| source(held).why)
    }

    /// What whoever asks something of a volume's mirror is told first, in place of `error`, where hosts went on elsewhere: that this
    /// one counts is what a tired person would read out of anything else.
    pub(crate) async fn overtaken_first(&self, volume: &VolumeName, error: ErrorBody) -> ErrorBody {
        let is_of_mirror = self.mirror(volume).map(|m| m.status().state == farside_mirror::State::BrokenOff);
        if !matches!(error.code, ErrorCode::Refused | ErrorCode::NotFound) || is_of_mirror == Ok(false) {
            return error;
        }
        match self.overtaken_why(volume).await {
            Some(why) => ErrorBody::new(ErrorCode::Refused, format!("{volume} is {why}. Nothing was done")),
            None => error,
        }
    }

    /// The bases that a peer holds here: (volume, replica).
    pub(crate) fn held_by(&self, peer: PeerId) -> Vec<(VolumeName, VolumeName)> {
        let all = self.parts.source.destinations().into_iter();
        all.filter(|r| r.peer == peer).map(|r| (r.source, r.destination)).collect()
    }

    /// Releases what `holder` keeps of `volume`.
    pub(crate) async fn release(&self, volume: &VolumeName, holder: Holder) -> Result<(), ErrorBody> {
        match holder {
            Holder::Known(id) => {
                self.parts.source.release_one(volume, id).await.map_err(Failure::into_error_body)?;
            }
            Holder::Unknown(id) => {
                let replicas = self.replicas_of(volume).await?;
                self.parts
                    .source
                    .release_unexplained(volume, id, &replicas)
                    .await
                    .map_err(Failure::into_error_body)?;
            }
        }
        Ok(())
    }

    /// Volumes here that a peer has overtaken, and whether hosts may not write to them for it.
    pub(crate) fn overtaken(&self) -> Vec<(SourceRelationship, bool)> {
        let fenced = self.parts.source.fenced();
        let overtaken = self.parts.source.overtaken().into_iter();
        overtaken
            .map(|relationship| {
                let is_fenced = fenced.contains(&relationship.source);
                (relationship, is_fenced)
            })
            .collect()
    }

    /// What of being overtaken outlives the rights of `peer`, which are about to go: fences stay. Answers what is to be said of it.
    pub(crate) async fn fences_that_stay(
        &self,
        peer: PeerId,
        volumes: Option<&[String]>,
    ) -> Result<Vec<String>, ErrorBody> {
        self.parts.source.note_fences().await.map_err(Failure::into_error_body)?;
        let is_meant = |r: &SourceRelationship| {
            r.peer == peer && volumes.is_none_or(|volumes| volumes.contains(&r.source.to_string()))
        };
        let fenced = self.parts.source.fenced();
        let all = self.parts.source.overtaken().into_iter().filter(is_meant);
        let name = peers::name_of(&self.parts.node, peer);
        Ok(all
            .filter(|r| fenced.contains(&r.source))
            .map(|r| plans::stays_fenced(&r.source, &name, &r.destination))
            .collect())
    }

    /// The same of rights that were given anew: without a fence, hosts may write again. Answers what is to be said of it.
    pub(crate) async fn set_fences(
        &self,
        peer: PeerId,
        volumes: &[String],
        fence: bool,
    ) -> Result<Vec<String>, ErrorBody> {
        let before = self.parts.exports.fences();
        for volume in volumes.iter().filter(|_| !fence).filter_map(|volume| volume.parse().ok()) {
            self.parts.source.lift_fence(peer, &volume).await.map_err(Failure::into_error_body)?;
        }
        self.parts.source.note_fences().await.map_err(Failure::into_error_body)?;
        self.refresh_fences();
        let lifted = before.into_iter().filter(|volume| self.parts.exports.fenced(volume).is_none());
        let name = peers::name_of(&self.parts.node, peer);
        Ok(lifted.map(|volume| plans::fence_lifted(&volume, &name)).collect())
    }

    /// The side of the source, as `mirror status` lists it.
    pub(super) async fn sources(&self) -> Result<Vec<api::Mirror>, ErrorBody> {
        let held = self.held_by_others(None, false).await?;
        // Once for all: a site may have thousands of mirrors.
        let peers = self.parts.node.peers();
        Ok(held.into_iter().map(|held| self.with_lag(source(held), &peers)).collect())
    }

    /// Adds how old that is which the replica has, as far as this side has heard, and that nothing is heard of it.
    fn with_lag(&self, mirror: api::Mirror, peers: &[PeerStatus]) -> api::Mirror {
        // Of a volume that is not here nothing else counts.
        if let Some(why) = self.is_not_here(&mirror) {
            return api::Mirror { why: Some(why), stopped: Some(api::MirrorStopped::NoPool), ..mirror };
        }
        if mirror.state == MirrorState::BrokenOff {
            return mirror;
        }
        let created_at = || {
            let (pool, volume) = mirror.name.split_once('/')?;
            if self.parts.pools.is_clustered(pool) {
                return self.base_times.lock().get(&mirror.id).copied();
            }
            let pool = self.parts.pools.get(pool).ok()?;
            Some(pool.snapshot_named(volume, mirror.base_snapshot.as_deref()?).ok()?.created_at)
        };
        let lag_seconds = created_at().map(|at| self.parts.clock.now().seconds_since(at).max(0.0));
        let peer = mirror.destination.split_once(':').map_or("", |(peer, _)| peer);
        let key = peer;
        let peer = peers.iter().find(|known| known.record.name == peer);
        let gone = peer.is_none().then(|| {
            format!(
                "the site of {} is not paired any more: its peer was removed here, and it can fetch nothing. Pair again, then farside peer \
                 allow for {1} (if that site has another key by then, farside peer rekey too), or farside mirror release {1} {key}",
                mirror.destination, mirror.name
            )
        });
        let away = peer.filter(|peer| !peer.state.connected).map(|peer| {
            let because = peers::why(peer).map(|why| format!(": {why}")).unwrap_or_default();
            format!("no session with {}, so nothing is brought to it{because}", peer.record.name)
        });
        let quiet = || peers::silent(peer?);
        let is_stopped = peer.is_none_or(peers::is_removed_there);
        // What was told to go on there is said above.
        let has_no_right = mirror.overtaken.is_none()
            && peer
                .zip(mirror.name.parse::<VolumeName>().ok())
                .is_some_and(|(peer, volume)| self.parts.rights.right(peer.record.id, &volume).is_none());
        let denied = has_no_right.then(|| {
            format!(
                "{key} may not read {0} (any more), so nothing is brought to {1}: farside peer allow {key} {0} --reverse; or, if that is as \
                 it should be, farside mirror release {0} {key}",
                mirror.name, mirror.destination
            )
        });
        let stopped = is_stopped.then_some(api::MirrorStopped::NotPaired);
        let stopped = stopped.or(has_no_right.then_some(api::MirrorStopped::NoRight));
        let of_pool = mirror.name.split_once('/').map(|(pool, _)| pool);
        // One that is being opened serves soon, without anybody.
        let is_closed = of_pool.is_some_and(|pool| self.parts.pools.is_closed(pool));
        let stopped = stopped.or(is_closed.then_some(api::MirrorStopped::NoPool));
        let pool = of_pool.and_then(|pool| self.why_serves_nothing(pool));
        let why = mirror.why.or(gone).or(pool).or(denied).or(away).or_else(quiet);
        api::Mirror { lag_seconds, why, stopped, ..mirror }
    }

    /// That the pool of a volume that others mirror is forgotten here; none if it is known.
    fn is_not_here(&self, mirror: &api::Mirror) -> Option<String> {
        let (pool, _) = mirror.name.split_once('/').filter(|(pool, _)| !self.parts.pools.knows(pool))?;
        let peer = mirror.destination.split_once(':').map_or("", |(peer, _)| peer);
        Some(format!(
            "there is no pool {pool} here any more, so {0} is not here and nothing can be fetched of it. If the pool is only to be found \
             again: farside pool import {pool} --path WHERE. To forget this: farside mirror release {0} {peer}",
            mirror.name
        ))
    }

    /// Why nothing can be fetched from a pool of this site, or no snapshot be taken for it.
    fn why_serves_nothing(&self, pool: &str) -> Option<String> {
        let pools = &self.parts.pools;
        if let Some(error) = pools.not_open(pool) {
            return Some(format!(
                "nothing can be fetched: {}; farside pool status {pool} says what to do",
                error.message
            ));
        }
        if pools.is_clustered(pool) {
            let away = || format!("nothing can be fetched: the cluster of pool {pool} does not answer");
            return pools.is_away(pool).then(away);
        }
        let cause = pools.get(pool).ok()?.status().failed?;
        Some(format!(
            "pool {pool} is read-only since a write failed ({cause}), so no snapshot can be taken for the next update; farside pool \
             status {pool} says what to do"
        ))
    }

    /// Brings the fences in line with what is overtaken, what was allowed with a fence, and what was set back. Called at the start,
    /// and whenever one of them changes.
    pub(crate) fn refresh_fences(&self) {
        let exports = &self.parts.exports;
        // One at a time: a refresh that has looked earlier must not have the last word.
        let _guard = self.fence_lock.lock();
        let fenced = self.parts.source.fenced();
        for relationship in self.parts.source.overtaken() {
            let volume = &relationship.source;
            if !fenced.contains(volume) || exports.fenced(volume).is_some() {
                continue;
            }
            let peer = peers::name_of(&self.parts.node, relationship.peer);
            let beyond = relationship.overtaken.as_ref().and_then(|o| o.beyond.as_deref());
            let why = plans::fence(volume, &peer, &relationship.destination, beyond);
            let writers = exports.fence(volume, why);
            tracing::warn!(%volume, peer, writers, "FENCED: hosts may not write to {volume} any more, its writers are dropped");
        }
        let set_back = self.parts.source.set_back();
        for (volume, why) in set_back.iter().filter(|(volume, _)| exports.fenced(volume).is_none()) {
            let writers = exports.fence(volume, format!("it is fenced: {why}"));
            tracing::warn!(%volume, writers, "FENCED: hosts may not write to {volume}: {why}");
        }
        let is_over = |volume: &VolumeName| !fenced.contains(volume) && !set_back.contains_key(volume);
        for volume in exports.fences().into_iter().filter(is_over) {
            if exports.unfence(&volume) {
                tracing::warn!(%volume, "the fence is lifted: hosts may write to {volume} again, unless it is a replica now");
            }
        }
    }

    /// Releases bases that are over the budgets of their peers, for as long as the site lives.
    pub(crate) async fn keep_within_budgets(&self) {
        self.parts.source.keep_within_budgets().await;
    }

    /// Does so whenever what is overtaken changes, for as long as the site lives.
    pub(crate) async fn keep_fences(&self) {
        let mut changes = self.parts.source.overtaken_changes();
        // A peer may have said so since the site began to listen, and before this line: that is no change any more.
        self.refresh_fences();
        while changes.changed().await.is_ok() {
            self.refresh_fences();
        }
    }
}

#[derive(Debug, Default)]
struct Figures {
    /// Name and content root.
    base: Option<(String, String)>,
    /// Name of the snapshot that hosts at the peer went on from.
    from: Option<String>,
    diverged_bytes: Option<u64>,
    pinned_bytes: Option<u64>,
}

/// A snapshot with name and content root, on whatever branch; one that is gone is shown by its absence.
fn named(engine: &dyn Engine, volume: &VolumeName, uuid: Uuid) -> Option<(Uuid, String, String)> {
    let snapshots = engine.all_snapshots(volume).ok()?;
    let snapshot = snapshots.into_iter().find(|s| s.uuid == uuid)?;
    let root = engine.content_root(volume, uuid).ok()?;
    Some((uuid, snapshot.name, root.to_string()))
}

/// Whether hosts went on at the destination itself; one beyond which they did follows as before.
fn has_gone_on(relationship: &SourceRelationship) -> bool {
    relationship.overtaken.as_ref().is_some_and(|overtaken| overtaken.beyond.is_none())
}

/// Whether `other` is a later mirror by the same peer into a volume of the same name: a volume has one, so the earlier is over.
fn is_newer_sibling(other: &SourceRelationship, than: &SourceRelationship) -> bool {
    let is_same =
        other.peer == than.peer && other.source == than.source && other.destination == than.destination;
    is_same && other.id != than.id && than.overtaken.is_none() && other.since > than.since
}

/// What the source knows of a mirror: not more than who holds which base, and who has overtaken it.
fn source(held: api::MirrorDestination) -> api::Mirror {
    let why = held.overtaken.as_ref().and_then(|overtaken| {
        let (volume, destination) = (held.volume.parse().ok()?, held.destination.parse().ok()?);
        Some(plans::overtaken(&OvertakenFacts {
            volume: &volume,
            peer: &held.peer,
            destination: &destination,
            since: Some(overtaken.since),
            snapshot: overtaken.snapshot.as_deref(),
            diverged_bytes: overtaken.diverged_bytes,
            fenced: overtaken.fenced,
            ended: overtaken.ended,
            beyond: overtaken.beyond.as_deref(),
            follows: overtaken.follows.as_deref(),
            follows_since: overtaken.follows_since.as_deref(),
            set_back: overtaken.set_back,
            group: overtaken.group.as_deref(),
            group_rest: overtaken.group_rest.unwrap_or(0) as usize,
        }))
    });
    let why = why.or_else(|| {
        held.stale.then(|| {
            format!(
                "stale: {} has a newer mirror into {}; farside mirror release {} {} ends this one",
                held.peer, held.destination, held.volume, held.id
            )
        })
    });
    let why = why.or_else(|| {
        held.released.as_ref().map(|released| {
            format!(
                "what was kept here for its next update was released ({}): that update compares everything, and what is equal does not \
                 travel",
                released.why
            )
        })
    });
    api::Mirror {
        id: held.id,
        name: held.volume.clone(),
        role: Role::Source,
        source: held.volume,
        destination: format!("{}:{}", held.peer, held.destination),
        state: match (&held.overtaken, held.transferring, held.since) {
            // One beyond which hosts went on follows as before.
            (Some(overtaken), ..) if overtaken.beyond.is_none() => MirrorState::BrokenOff,
            (_, true, None) => MirrorState::Initializing,
            (_, true, Some(_)) => MirrorState::Transferring,
            // Its replica is whole; only what is kept here for its next update is gone.
            (_, false, None) if held.released.is_some() => MirrorState::Mirrored,
            (_, false, None) => MirrorState::Uninitialized,
            (_, false, Some(_)) => MirrorState::Mirrored,
        },
        why,
        stopped: None,
        lag_seconds: None,
        objective_seconds: None,
        forecast_seconds: None,
        queue_position: None,
        retention: None,
        group: None,
        owner: None,
        current_snapshot: held.base_snapshot.clone(),
        content_root: held.content_root,
        base_snapshot: held.base_snapshot,
        last_proven_at: None,
        schedule: None,
        schedule_lost: false,
        throttle: None,
        link: None,
        transfer: None,
        shows_own_state: false,
        changes_roles: false,
        sleeping: false,
        group_split: None,
        overtaken: held.overtaken,
        source_heard: None,
        source_heard_at: None,
        broken_off_at: None,
        was_in_use: None,
        went_on_by: None,
        turned_at: None,
        set_aside: None,
        source_overtaken: None,
        kept_as: None,
        hosts_refused: None,
        no_common_moment: false,
        way_back: None,
        first_copy_bytes: None,
        room_bytes: None,
        resized: None,
        source_follows: None,
        taken_over: None,
        given_up: None,
    }
}
