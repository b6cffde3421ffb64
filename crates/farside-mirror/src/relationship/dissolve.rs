//! The two ways out of a relationship: break (the replica is taken over) and delete (it is over). Neither needs the
//! peer.

use farside_engine::{Engine, EngineError, SnapshotInfo, SnapshotOwner, VolumeName};
use farside_platform::Timestamp;
use farside_transfer::bases::{RESCUE, kept_of, leave_bases, leave_kept, release, release_all};
use farside_transfer::going_back::{GoingBack, go_back};
use farside_transfer::protocol::convert::{self, Place};
use farside_transfer::protocol::{Body, Overtaken, Release};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::announcements::{beyond_message, overtaken_message};
use super::command::{Replaced, Reply};
use super::driver::Driver;
use super::status::Published;
use crate::error::{MirrorError, blocking};
use crate::limits::BREAK_PATIENCE;
use crate::log::LogEvent;
use crate::set_back::Row;
use crate::source::Overtaker;
use crate::state::{Event, Work};
use crate::store::{Ending, Relationship, SwapMark, place};

impl Driver {
    /// Breaks off, at a snapshot if one is named. Answers the name of the side branch that newer content stays as, which is of
    /// `moment` where one is given. On this way
    /// nothing is asked of the peer, and nothing is waited for that may hang but the pool itself.
    pub(super) async fn break_at(
        &mut self,
        at: Option<Uuid>,
        moment: Option<Timestamp>,
    ) -> Result<Option<String>, MirrorError> {
        let (next, _) = self.step(Event::Break)?;
        if let Some(at) = at {
            // Refused with everything as it was: the transfer that runs goes on.
            let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
            blocking(move || {
                if engine.all_snapshots(&volume)?.iter().any(|s| s.uuid == at) {
                    return Ok(());
                }
                Err(MirrorError::from(EngineError::NotFound { what: format!("snapshot {at} of {volume}") }))
            })
            .await?;
        }
        self.forget_not_resynced();
        self.stop_briefly().await;
        self.state = next;
        self.notice = None;
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        let broken = blocking(move || break_off(&*engine, &relationship, at, moment)).await;
        let kept_as = match broken {
            Ok(kept_as) => kept_as,
            Err(error) => {
                // Not durable, so not so; the pool says what is.
                self.state.work = Work::Idle;
                self.probe().await;
                self.why = Some(format!("break failed: {error}"));
                return Err(error);
            }
        };
        self.settle_back();
        (self.kept_with_group, self.held_as) = (None, None);
        self.relationship.broken_off_at = Some(self.parts.clock.now());
        self.relationship.past = self.relationship.past.broken_off();
        self.relationship.resync_pending = false;
        (self.relationship.told, self.relationship.ended_there) = (false, false);
        self.relationship.role_change = self.next_role_change();
        self.relationship.swap = match self.relationship.swap {
            // The attempt has ended, and not by a takeover. Where a crash comes before the row says so, the source stays as it
            // is: overtaken, and read-only if it was prepared, until a person there decides.
            Some(SwapMark::Swapping { reverse }) => Some(SwapMark::GivenUp { reverse }),
            Some(SwapMark::Prepared { .. }) => None,
            other => other,
        };
        let saved = tokio::time::timeout(BREAK_PATIENCE, self.parts.store.save(&self.relationship)).await;
        if !matches!(saved, Ok(Ok(()))) {
            tracing::warn!(relationship = %self.relationship.id, "the mirror is broken off and writable; only the \
                 time of it could not be saved in the state database");
        }
        tracing::warn!(
            relationship = %self.relationship.id, volume = %self.relationship.destination,
            source = %self.relationship.source, peer = %self.relationship.peer,
            "broken off: hosts may write to the volume; the source is told at the next session"
        );
        self.log(LogEvent::Break, None, None).await;
        if let Some(snapshot) = kept_as.clone() {
            self.log(LogEvent::Rescue { snapshot }, None, None).await;
        }
        // Says also who broke it off, and where hosts go on from.
        self.probe().await;
        self.log_thinned().await;
        Ok(kept_as)
    }

    /// Deletes rescues that are too many, and writes down which.
    pub(super) async fn log_thinned(&self) {
        for snapshot in self.thin_rescues().await {
            self.log(LogEvent::RescueDeleted { snapshot }, None, None).await;
        }
    }

    /// Each part may find its work done: repeating a deletion that failed finishes it.
    pub(super) async fn delete(&mut self) -> Result<(), MirrorError> {
        self.is_deleted = true;
        self.stop().await;
        self.end_rotation().await;
        self.notice = None;
        let result = self.undo().await;
        match &result {
            Ok(ending) => {
                self.log(LogEvent::Delete, None, None).await;
                self.forget_points().await;
                self.parts.endings.tell(ending.clone());
            }
            Err(error) => {
                self.is_deleted = false;
                // The volume may not be a replica any more: nothing is done before the pool has been asked again.
                self.forget_probe(format!("delete failed; run farside mirror delete again: {error}"));
            }
        }
        result.map(drop)
    }

    /// The database first, and all of it at once: what a full one refuses has changed nothing. From then on the mirror is over, and
    /// what a crash leaves undone in the pool is done when that is opened ([`dissolve_in_pool`]).
    async fn undo(&self) -> Result<Ending, MirrorError> {
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let before = match blocking(move || engine.all_snapshots(&volume)).await {
            Ok(all) => all.iter().map(|s| s.uuid).collect(),
            // With the volume gone there is nothing to undo.
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => return Err(error),
        };
        let ending = self.ending(&before, &[], None);
        self.parts.store.end(&ending).await?;
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        let shown = self.current.clone();
        let undone = blocking(move || {
            let Relationship { id, destination, .. } = &relationship;
            // What was prepared for a role change that did not come was never anybody's base.
            let leaves = !matches!(relationship.swap, Some(SwapMark::Prepared { is_new: true, .. }));
            let left = dissolve_in_pool(&*engine, destination, *id, leaves)?;
            with_content_of(&*engine, destination, left, shown)
        });
        let left = match undone.await {
            Ok(left) => left,
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => {
                self.restore_row().await;
                return Err(error);
            }
        };
        let exact = self.ending(&left, &[], None);
        if exact.message != ending.message
            && let Err(error) = self.parts.store.end(&exact).await
        {
            tracing::warn!(relationship = %self.relationship.id, "the source may be told after a restart that a base of \
                 the deleted mirror is still here, and keep it: {error}");
        }
        Ok(exact)
    }

    /// The pool has refused the end of the mirror: the database knows it again.
    async fn restore_row(&self) {
        // The volume may be writable already: a database that knows nothing of that would believe that the pool was set back.
        let broken_off_at = match Row::of(&self.relationship) {
            Row::Follows => Some(self.parts.clock.now()),
            _ => self.relationship.broken_off_at,
        };
        let relationship = Relationship { broken_off_at, ..self.relationship.clone() };
        let restored = match self.parts.store.save(&relationship).await {
            Ok(()) => self.parts.endings.forget(relationship.id).await,
            Err(error) => Err(error),
        };
        if let Err(error) = restored {
            tracing::error!(relationship = %relationship.id, volume = %relationship.destination, "this mirror could not be \
                 deleted, and the state database could not record that it goes on. It does until a restart; then its \
                 deletion is finished: {error}");
        }
    }

    /// Lets another relationship take this one's place, if it does: then what this one kept is left as a deletion leaves it, its
    /// source is told, and the driver ends. Otherwise everything goes on.
    pub(super) async fn step_aside(
        &mut self,
        aside: Reply<()>,
        decision: oneshot::Receiver<Replaced>,
    ) -> bool {
        if self.relationship.swap.is_some() || self.is_swapping {
            let _ = aside.send(Err(MirrorError::State(format!(
                "a role change of {} with its source {} is not over. Nothing was changed. Wait for it to end, or run \
                 farside mirror break {} first",
                self.relationship.destination, self.relationship.source, self.relationship.destination
            ))));
            return false;
        }
        self.stop().await;
        self.end_rotation().await;
        let _ = aside.send(Ok(()));
        let Ok(Replaced { follows, overtaker, done }) = decision.await else {
            // The row may have made room for the other's.
            if let Err(error) = self.parts.store.save(&self.relationship).await {
                tracing::warn!(relationship = %self.relationship.id, "the state database could not record that the \
                     mirror goes on; it does, until a restart at least: {error}");
            }
            self.probe().await;
            return false;
        };
        self.notice = None;
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        let shown = self.current.clone();
        let left = blocking(move || {
            let Relationship { id, destination, .. } = &relationship;
            let left = leave(&*engine, destination, *id, false)?;
            with_content_of(&*engine, destination, left, shown)
        });
        let (left, kept) = match left.await {
            Ok(left) => (left, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        // Told in this life whatever the database says: the old row is gone already.
        let ending = self.ending(&left, &follows, overtaker);
        let ended = self.parts.store.end(&ending).await.and(kept);
        self.parts.endings.tell(ending);
        self.log(LogEvent::Delete, None, None).await;
        self.forget_points().await;
        let _ = done.send(ended);
        true
    }

    /// What the source is to be told: that it may let everything go, or that it was overtaken, which it may not have heard yet; and
    /// what the volume follows since. `overtaker`: as far as whoever replaces this knows more than what was heard here.
    fn ending(&self, left: &[Uuid], follows: &[Place], overtaker: Option<Overtaker>) -> Ending {
        let relationship = &self.relationship;
        // Where the pool could not be asked the row tells.
        let was_broken_off = self.state.work == Work::BrokenOff || relationship.broken_off_at.is_some();
        // Whoever was overtaken by its own source since, which had followed it, has nothing to say to that.
        let was_broken_off = was_broken_off && !self.is_overtaken_back();
        let stands_on = self.current.as_ref();
        let keeps_snapshot = stands_on.is_some_and(|stands_on| left.contains(&stands_on.uuid));
        let message = if was_broken_off {
            Body::Overtaken(Overtaken {
                ended: true,
                keeps_snapshot,
                follows: convert::place_messages(follows),
                returned: follows.contains(&place(relationship.peer, &relationship.source)),
                ..overtaken_message(relationship, stands_on)
            })
        } else if let Some(beyond) = overtaker
            .or_else(|| self.overtaker())
            .filter(|_| self.state.initialized && !self.state.resync_pending)
        {
            // It could not be passed on any more. Of a source that nothing has come from nobody here went on. It may follow this
            // volume, which now follows another, from what both have.
            let beyond = beyond_message(relationship, Some(beyond), &[]);
            Body::Overtaken(Overtaken { ended: true, keeps_snapshot, ..beyond })
        } else {
            Body::Release(Release {
                relationship: relationship.id.as_bytes().to_vec(),
                volume: relationship.source.to_string(),
                destination: if follows.is_empty() {
                    String::new()
                } else {
                    relationship.destination.to_string()
                },
            })
        };
        Ending { relationship: relationship.id, peer: relationship.peer, at: self.parts.clock.now(), message }
    }
}

/// Ends a replica in the pool: hosts may write from here on, and nothing is kept for the relationship; its bases stay as a person's
/// if it `leaves` any. That hosts had gone on there stays in the pool until the source has heard it
/// ([`Endings`](crate::Endings)). Each part may find its work done. Answers which snapshots are left.
pub fn dissolve_in_pool(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    leaves: bool,
) -> Result<Vec<Uuid>, MirrorError> {
    if let Err(error) = engine.abandon_staged(volume) {
        tracing::warn!(%volume, "cannot discard staged content; it only holds space: {error}");
    }
    let record = engine.replica_record(volume)?;
    if record.is_some_and(|record| record.relationship == relationship && !record.broken_off) {
        engine.set_replica_record(volume, None)?;
    }
    if leaves {
        return leave(engine, volume, relationship, true);
    }
    leave_kept(engine, volume, relationship)?;
    release_all(engine, volume, relationship)?;
    Ok(engine.all_snapshots(volume)?.iter().map(|s| s.uuid).collect())
}

/// Releases what the relationship keeps here; its newest base stays, as a person's, and with `common` what other replicas of the
/// same volume hold too. Answers which snapshots are left.
pub(super) fn leave(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
    common: bool,
) -> Result<Vec<Uuid>, MirrorError> {
    for left in leave_bases(engine, volume, relationship, common)? {
        tracing::info!(%volume, snapshot = left.name, "a base of the mirror stays as a snapshot, so that the volume can \
             follow again with a difference; whoever does not want that deletes it");
    }
    let kept = leave_kept(engine, volume, relationship)?;
    if kept > 0 {
        tracing::info!(%volume, points = kept, "what retention kept stays, as snapshots that only persons delete");
    }
    release_all(engine, volume, relationship)?;
    Ok(engine.all_snapshots(volume)?.iter().map(|s| s.uuid).collect())
}

/// With what was `shown`, if one of those that are `left` has its content: a person's stands for the base.
fn with_content_of(
    engine: &dyn Engine,
    volume: &VolumeName,
    mut left: Vec<Uuid>,
    shown: Option<Published>,
) -> Result<Vec<Uuid>, MirrorError> {
    let Some(shown) = shown.filter(|shown| !left.contains(&shown.uuid)) else { return Ok(left) };
    for snapshot in engine.all_snapshots(volume)? {
        let is_equal =
            || Ok::<_, EngineError>(engine.content_root(volume, snapshot.uuid)? == shown.content_root);
        // What cannot be read stands for nothing.
        if snapshot.size_bytes == shown.size_bytes && is_equal().unwrap_or(false) {
            left.push(shown.uuid);
            break;
        }
    }
    Ok(left)
}

/// One record makes it writable; with `at` the same record takes it back to that snapshot, where the engine has branches.
/// Answers the name of the side branch that what is newer than `at` stays as, if there is any.
fn break_off(
    engine: &dyn Engine,
    relationship: &Relationship,
    at: Option<Uuid>,
    moment: Option<Timestamp>,
) -> Result<Option<String>, MirrorError> {
    let volume = &relationship.destination;
    // What a transfer left staged would never be wanted again. It only costs space: not a reason not to break.
    if let Err(error) = engine.abandon_staged(volume) {
        tracing::warn!(%volume, "cannot discard staged content; it only holds space: {error}");
    }
    // A person's break in the middle of a role change is not its takeover, and must not look like it.
    if let Some(SwapMark::Swapping { reverse }) = relationship.swap {
        release(engine, volume, reverse, &[])?;
    }
    let broken = relationship.record(true);
    let kept_as = match at {
        None => {
            engine.set_replica_record(volume, Some(broken))?;
            None
        }
        Some(at) => {
            // Both sides hold it, as likely as not: a base to come back from. The version shown before stays pinned too.
            engine.pin(volume, at, relationship.id)?;
            // A person's snapshot of what came last lies on the line, and nothing in it is newer.
            let is_shown_already = shows_content_of(engine, volume, at);
            // What is set aside may be the only copy left of it: the end of the mirror must not delete it.
            let set_aside = keep_set_aside(engine, relationship, at, moment)?;
            let set_aside = set_aside.filter(|_| !is_shown_already);
            let back = go_back(engine, volume, at, GoingBack::BrokenOff(broken), moment)?;
            let kept_as = back.rescued.map(|rescued| rescued.name).or(set_aside);
            if let Some(kept_as) = &kept_as {
                tracing::warn!(%volume, rescued = kept_as, "what is newer than that snapshot is kept");
            }
            kept_as
        }
    };
    Ok(kept_as)
}

/// Whether the newest snapshot of the main line holds what `at` holds. What cannot be told, or only by reading all of it, is no.
fn shows_content_of(engine: &dyn Engine, volume: &VolumeName, at: Uuid) -> bool {
    if engine.branches(&volume.pool).is_none() {
        return false;
    }
    let is_equal = || {
        let main_line = engine.snapshots(volume)?;
        let (Some(newest), Some(old)) = (main_line.last(), main_line.iter().find(|s| s.uuid == at)) else {
            return Ok(false);
        };
        let root = |uuid| engine.content_root(volume, uuid);
        Ok::<_, EngineError>(newest.size_bytes == old.size_bytes && root(newest.uuid)? == root(at)?)
    };
    is_equal().unwrap_or(false)
}

/// The versions of the relationship that are newer than `at` on the main line: the one shown, as a rule. They become a person's.
/// Answers the name of the newest that is set aside, whosever it is.
fn keep_set_aside(
    engine: &dyn Engine,
    relationship: &Relationship,
    at: Uuid,
    moment: Option<Timestamp>,
) -> Result<Option<String>, MirrorError> {
    let volume = &relationship.destination;
    let main_line = engine.snapshots(volume)?;
    // One on a side branch sets all of the main line aside.
    let newer = || main_line.iter().rev().take_while(|s| s.uuid != at);
    let mut newest = newer().next().map(|s| s.name.clone());
    // Where nothing lies beside the line, nothing else will have the same content: it is what the answer names.
    if let Some(named) = newer().next().filter(|s| s.owner == SnapshotOwner::Person)
        && engine.branches(&volume.pool).is_none()
        && named.pinned_by.contains(&kept_of(relationship.id))
    {
        engine.unpin(volume, named.uuid, kept_of(relationship.id))?;
    }
    for (newer, snapshot) in handed_over(&main_line, relationship.id, at) {
        let kept = engine.hand_over(volume, snapshot.uuid, SnapshotOwner::Person, RESCUE, moment)?;
        // A name that a person is told is nothing that retention lets go once the volume follows again.
        if snapshot.pinned_by.contains(&kept_of(relationship.id)) {
            engine.unpin(volume, snapshot.uuid, kept_of(relationship.id))?;
        }
        // It has another name from now on.
        newest = newest.filter(|_| newer > 0).or(Some(kept.name));
    }
    Ok(newest)
}

/// Those of them that become a person's, under another name: each with how many of the main line are newer than it.
pub(crate) fn handed_over(
    main_line: &[SnapshotInfo],
    id: Uuid,
    at: Uuid,
) -> impl Iterator<Item = (usize, &SnapshotInfo)> {
    // What retention keeps stays there by that, beside the line.
    let stays = move |s: &SnapshotInfo| s.pinned_by.contains(&kept_of(id));
    let newer = main_line.iter().rev().take_while(move |s| s.uuid != at).enumerate();
    newer.filter(move |(newer, s)| s.owner == SnapshotOwner::Relationship(id) && (*newer == 0 || !stays(s)))
}
