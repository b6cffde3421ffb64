//! Resync: the volume follows its source again, from the newest point that both hold.
//!
//! The order, and what a crash after each line leaves:
//!
//! 1. the source is asked for the newest common base; nothing is changed
//! 2. the row says that a resync is pending: still broken off; asked again, it goes on from here
//! 3. the base is pinned here: as 2
//! 4. the pool's record says *replica* (refused while a host has the volume open for writing): read-only, shows what it
//!    showed; the next start goes on with the resync
//! 5. the first commit (as of every transfer): the source's version; what was written here is a side branch

use std::time::Duration;

use farside_engine::{
    ChangedBytes, Engine, EngineError, ReplicaRecord, SnapshotInfo, SnapshotOwner, VolumeName,
};
use farside_platform::Timestamp;
use farside_transfer::TransferKind;
use farside_transfer::going_back::{GoingBack, go_back};
use farside_transfer::limits::ROLE_CHANGE_MAX;
use farside_transfer::protocol::convert::Upstream;
use uuid::Uuid;

use super::command::{Ended, Onto};
use super::dissolve::leave;
use super::driver::Driver;
use super::status::CROSSED_WITH;
use crate::error::{MirrorError, blocking};
use crate::limits::BREAK_PATIENCE;
use crate::log::{LogEvent, RequestedBy};
use crate::past::Resynced;
use crate::shown::{Holder, keep_as_of, keep_for_good};
use crate::state::{Event, Work};
use crate::store::{Relationship, SwapMark};

impl Driver {
    pub(super) async fn resync(
        &mut self,
        onto: Onto,
        link_wait: Duration,
        ended: Ended,
    ) -> Result<(), MirrorError> {
        let Onto { base, replaces, newest, follows, set_aside_at } = onto;
        // A resync that stopped between row and record has left a volume that the pool knows as nobody's replica.
        let is_follower = self.check_probed().is_ok();
        let before = self.relationship.clone();
        let was_replica = replaces.as_ref().is_some_and(|replaced| replaced.was_in_force);
        let was_writable = !was_replica && (!is_follower || self.state.work == Work::BrokenOff);
        // The source has compared itself with this volume, which it refuses while it is the replica: a role change that
        // was prepared here has taken over there, and a source that lost its database forgot to say so.
        let swap = before.swap.filter(|mark| !matches!(mark, SwapMark::Prepared { .. }));
        if is_follower {
            if swap == before.swap {
                self.check_unprepared()?;
            }
            self.step(Event::AskResync)?;
        }
        // Below what the source has seen it would be taken for one that comes late.
        let role_change = self.next_role_change().max((newest + 1).min(ROLE_CHANGE_MAX));
        // What hosts went on from the first time is what the rest of a group went on from as well.
        let went_on_from = self.went_on_from.filter(|_| was_writable);
        let went_on_from = went_on_from.map(|from| if from.is_own { from.since } else { from.at });
        let pending = Relationship {
            past: before.past.resynced(Resynced {
                at: self.parts.clock.now(),
                was_broken_off_at: before.broken_off_at,
                went_on_by: before.past.went_on_by,
                taken_over_at: self.taken_over_at(),
                went_on_from,
                left: Some(base),
            }),
            resync_pending: true,
            broken_off_at: None,
            swap,
            role_change,
            upstream: Upstream { follows, overtaken: None },
            told: false,
            ended_there: false,
            ..before.clone()
        };
        self.parts.store.save(&pending).await?;
        let mut held_as = None;
        if !is_follower || self.state.work == Work::BrokenOff {
            self.notice = None;
            let (engine, relationship) = (self.parts.engine.clone(), pending.clone());
            let before_this = replaces.as_ref().map(|replaced| replaced.relationship);
            let endings = self.parts.endings.clone();
            let is_over = move |id| endings.is_over(id);
            let as_of = set_aside_at.map(|moment| (moment, self.new_id()));
            let or_now = (self.parts.clock.now(), self.new_id());
            let follow = move || {
                let as_of =
                    as_of.or_else(|| shows_an_older_point(&*engine, &relationship, base).then_some(or_now));
                follow(&*engine, &relationship, base, before_this, as_of, is_over)
            };
            let followed = blocking(follow).await;
            if let Ok(kept) = &followed {
                self.held_as = kept.holder.as_ref().map(|holder| holder.snapshot.name.clone());
                self.kept_with_group = kept.with_group.clone();
                held_as = kept.holder.as_ref().map(|holder| holder.snapshot.uuid);
            }
            if let Err(error) = followed {
                if let Err(error) = self.parts.store.save(&before).await {
                    tracing::warn!(relationship = %before.id, "the state database could not record that the resync \
                         was given up; the volume is unchanged. After a restart the mirror may try the resync once \
                         more: {error}");
                }
                self.probe().await;
                return Err(error);
            }
            self.relationship = pending;
            if let Some(resync) = &mut self.relationship.past.resync {
                // What a person's snapshot has is not set aside once more.
                resync.left = held_as.or(resync.left);
            }
            self.shows_own = true;
            self.left = replaces.map(|replaced| replaced.left).unwrap_or_default();
            self.probe().await;
            self.check_probed()?;
            tracing::info!(
                relationship = %self.relationship.id, volume = %self.relationship.destination,
                source = %self.relationship.source, "the volume is a replica again and read-only; a resync brings \
                     the source's version"
            );
            self.log(LogEvent::Resync, Some(TransferKind::Resync), None).await;
        } else {
            // Whatever the replica shows, a plan of this may have named it as kept.
            let (engine, of, id) = (self.parts.engine.clone(), pending.destination.clone(), pending.id);
            let keep = move || Ok::<_, MirrorError>(keep(&*engine, &of, base, id));
            self.held_as = blocking(keep).await?.map(|holder| holder.snapshot.name);
            self.relationship = pending;
            // A replica that shows a version of its source goes on doing so.
            self.shows_own &= self.state.resync_pending;
        }
        self.was_writable = was_writable;
        let (next, action) = self.step(Event::AskResync)?;
        self.why = None;
        self.log(LogEvent::Request { by: RequestedBy::Person }, Some(TransferKind::Resync), None).await;
        self.join(next, action, TransferKind::Resync, link_wait, ended).await
    }

    /// When hosts had gone on at what this follows, by what that site has told.
    fn taken_over_at(&self) -> Option<Timestamp> {
        let Relationship { peer, source, destination, .. } = &self.relationship;
        let told = self.parts.source.overtaken_of(destination);
        let told = told.into_iter().find(|r| r.peer == *peer && r.destination == *source)?;
        told.overtaken?.broken_off_at
    }

    /// The resync has crossed with one in the other direction: each volume would follow the other. It is taken back, unless
    /// something has come of it or it is over. Answers whether it was. A volume that was a replica before stays one, read-only: nobody has
    /// broken it off.
    pub(super) async fn give_way(&mut self, of: Uuid) -> Result<bool, MirrorError> {
        self.check_probed()?;
        if self.relationship.id != of || !self.state.resync_pending || self.state.work == Work::BrokenOff {
            return Ok(false);
        }
        if !self.was_writable {
            return Ok(false);
        }
        let shown = self.current.as_ref().map(|shown| shown.uuid);
        let why = self.crossed_why();
        self.settle(|| Err(MirrorError::State(why.clone())));
        self.stop_briefly().await;
        self.probe().await;
        self.check_probed()?;
        if self.current.as_ref().map(|shown| shown.uuid) != shown {
            // It was faster than the other.
            self.state.resync_pending = false;
            self.keep_pending().await;
            return Ok(false);
        }
        self.break_at(None, None).await?;
        self.why = Some(why);
        Ok(true)
    }

    /// The source has refused the resync for that.
    pub(super) async fn has_crossed(&mut self) {
        let of = self.relationship.id;
        match self.give_way(of).await {
            Ok(true) => {}
            Ok(false) if !self.was_writable && self.state.resync_pending => self.why = Some(self.stays_why()),
            Ok(false) => return,
            Err(error) => self.why = Some(error.to_string()),
        }
        tracing::warn!(volume = %self.relationship.destination, "{}", self.why.clone().unwrap_or_default());
    }

    fn stays_why(&self) -> String {
        let Relationship { destination, .. } = &self.relationship;
        let source = self.source_name();
        format!(
            "{source} {CROSSED_WITH} {destination}, so neither brings anything. {destination} stays \
             read-only, as it was: nothing of it was changed. Let it follow an original: farside mirror resync {destination} \
             --from PEER:POOL/VOL. Or make it one: farside mirror break {destination}"
        )
    }

    fn crossed_why(&self) -> String {
        let Relationship { destination, source: there, .. } = &self.relationship;
        let source = self.source_name();
        format!(
            "{destination} is broken off, as before: {source} {CROSSED_WITH} it, and does. Nothing of \
             {destination} was changed. If {source} shall count after all, with what its hosts wrote: there \
             farside mirror break {there} --at RESCUE, the rescue-TIME that its resync names at its end (before that without --at), then farside mirror \
             resync {destination}"
        )
    }

    /// Keeps in the row what the state says of a pending resync.
    pub(super) async fn keep_pending(&mut self) {
        if self.relationship.resync_pending == self.state.resync_pending {
            return;
        }
        self.relationship.resync_pending = self.state.resync_pending;
        if let Err(error) = self.parts.store.save(&self.relationship).await {
            tracing::warn!(relationship = %self.relationship.id, "the state database could not record that the \
                 resync ended; the replica is right. After a restart the mirror may resync once more: {error}");
        }
    }

    /// Something of the source is published here: what this site kept as the source of that very volume, before the
    /// direction changed, has a successor. Repeated after every transfer, so that a crash in between is made good.
    pub(super) async fn drop_other_direction(&self) {
        let Relationship { destination, peer, source, .. } = self.relationship.clone();
        let (of_source, at) = (self.parts.source.clone(), destination.clone());
        // In a task of its own: it waits for the other mirror's lock, and a break must not wait for that.
        let dropped = tokio::spawn(async move {
            let dropped = of_source.overwritten(&at, peer, &source).await?;
            of_source.settle(&at).await?;
            Ok::<_, MirrorError>(dropped)
        });
        let dropped = match tokio::time::timeout(BREAK_PATIENCE, dropped).await {
            Ok(ended) => ended.unwrap_or_else(|error| Err(error.into())),
            Err(_) => {
                tracing::warn!(volume = %destination, "the old bases of the mirror in the other direction are not \
                     released yet; they only hold space");
                return;
            }
        };
        match dropped {
            Ok(0) => {}
            Ok(_) => {
                tracing::info!(volume = %destination, "the mirror in the other direction has ended; its bases are released")
            }
            Err(error) => tracing::warn!(
                volume = %destination, "the old bases of the mirror in the other direction are kept until the next \
                     update: {error}"
            ),
        }
    }
}

impl Driver {
    /// The peer has taken over from `of`, or a person says so: what is kept for that here goes.
    pub(super) async fn release_ended(&self, of: Uuid) -> Result<(), MirrorError> {
        let (source, volume) = (self.parts.source.clone(), self.relationship.destination.clone());
        // As above.
        let released = tokio::spawn(async move { source.release_ended(of, volume).await });
        match tokio::time::timeout(BREAK_PATIENCE, released).await {
            Ok(ended) => ended?,
            Err(_) => Err(MirrorError::State(format!(
                "releasing the bases of {} takes long; try again",
                self.relationship.destination
            ))),
        }
    }
}

/// Where what the volume shows is kept.
#[derive(Debug)]
struct Kept {
    /// By a snapshot of a person's that was there.
    holder: Option<Holder>,
    /// By one of the name that it has in all of a group.
    with_group: Option<SnapshotInfo>,
}

/// Pins the base and makes the volume a replica, in this order: nothing relies on what is not kept. It may have been another
/// relationship's until now, `replaces`, or have been in one that is over. Answers where what it shows is kept: `as_of` a moment, if one
/// is given.
fn follow(
    engine: &dyn Engine,
    relationship: &Relationship,
    base: Uuid,
    replaces: Option<Uuid>,
    as_of: Option<(Timestamp, Uuid)>,
    is_over: impl Fn(Uuid) -> bool,
) -> Result<Kept, MirrorError> {
    let volume = &relationship.destination;
    let record = engine.replica_record(volume)?;
    let may_go = |r: &ReplicaRecord| {
        r.relationship == relationship.id || Some(r.relationship) == replaces || is_over(r.relationship)
    };
    if let Some(other) = record.filter(|r| !may_go(r)) {
        return Err(MirrorError::State(format!(
            "{volume} is the replica of another volume, {}. Nothing was changed. To end that mirror and keep the \
             volume: farside mirror delete {volume}",
            other.source
        )));
    }
    let known = engine.all_snapshots(volume)?.into_iter().find(|s| s.uuid == base);
    let pinned_before = known.as_ref().is_some_and(|s| s.pinned_by.contains(&relationship.id));
    // What is kept as of a moment needs no other that holds it.
    let mut holder = if as_of.is_none() { keep(engine, volume, base, relationship.id) } else { None };
    engine.pin(volume, base, relationship.id)?;
    if let Err(error) = engine.set_replica_record(volume, Some(relationship.record(false))) {
        if !pinned_before && let Err(error) = engine.unpin(volume, base, relationship.id) {
            tracing::warn!(%volume, "a base snapshot stays pinned and holds space: {error}");
        }
        return Err(error.into());
    }
    // No host writes any more.
    let with_group =
        as_of.and_then(|(moment, uuid)| keep_with_group(engine, relationship, base, moment, uuid));
    if as_of.is_some() && with_group.is_none() {
        holder = keep(engine, volume, base, relationship.id);
    }
    // Before anything is brought: nothing goes while a transfer looks at what is here.
    if let Some(ended) = replaces
        && let Err(error) = leave(engine, volume, ended, false)
    {
        tracing::warn!(%volume, relationship = %ended, "what the mirror that is over kept here stays and holds space: \
             {error}");
    }
    Ok(Kept { holder, with_group })
}

/// Keeps what the volume shows by the name that it has in all of its group. Without that nothing is lost: what is set aside has a name of
/// its own then.
fn keep_with_group(
    engine: &dyn Engine,
    relationship: &Relationship,
    base: Uuid,
    moment: Timestamp,
    uuid: Uuid,
) -> Option<SnapshotInfo> {
    let volume = &relationship.destination;
    let kept = keep_as_of(engine, volume, moment, uuid).unwrap_or_else(|error| {
        tracing::warn!(%volume, "what the volume shows has no name in common with the rest of its group: {error}");
        None
    })?;
    // Where the source has nothing newer it lies beside the line at once: else an update would find there what its source never had.
    let aside = match engine.changed_since(volume, base) {
        Ok(changed) if changed == ChangedBytes::default() => {
            go_back(engine, volume, base, GoingBack::OfMirror(relationship.id), None).map(drop)
        }
        other => other.map(drop),
    };
    if let Err(error) = aside {
        tracing::warn!(%volume, snapshot = kept.name, "what the volume showed is kept; it could not be taken off its main line yet: {error}");
    }
    Some(kept)
}

/// Whether the volume shows an older point of its mirror, to which a person went back. The line that comes has it as well, and the engine
/// sets nothing aside: but retention lets it go one day, and what hosts here have last seen is not to go by itself.
fn shows_an_older_point(engine: &dyn Engine, relationship: &Relationship, base: Uuid) -> bool {
    let volume = &relationship.destination;
    let look = || {
        let Some(branches) = engine.branches(&volume.pool) else { return Ok(false) };
        let Some(shown) = engine.snapshots(volume)?.pop() else { return Ok(false) };
        let is_point = shown.owner == SnapshotOwner::Relationship(relationship.id) && shown.uuid != base;
        Ok::<_, EngineError>(
            is_point
                && branches.fork(volume, base)? == Some(shown.uuid)
                && engine.changed_since(volume, shown.uuid)? == ChangedBytes::default()
                && engine.changed_since(volume, base)? != ChangedBytes::default(),
        )
    };
    // What cannot be read on the way is no reason not to resync.
    look().unwrap_or(false)
}

/// What the plan of a resync names as kept stays, whoever made it. What cannot be read on the way is no reason not to resync: that may
/// be what heals it.
fn keep(engine: &dyn Engine, volume: &VolumeName, base: Uuid, id: Uuid) -> Option<Holder> {
    keep_for_good(engine, volume, base, Some(id)).unwrap_or_else(|error| {
        tracing::warn!(%volume, "whether a snapshot that rotates has what the volume shows could not be looked at: {error}");
        None
    })
}
