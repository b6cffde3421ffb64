//! What a role change does at one mirror: at the replica that becomes the original, and at the original that becomes
//! the replica. The whole story is told in `destination/swap.rs`.

use farside_engine::{ChangedBytes, Engine, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_platform::Clock;
use farside_transfer::bases::{release, release_all};
use farside_transfer::limits::ROLE_CHANGE_MAX;
use farside_transfer::protocol::convert::{CandidateBase, Upstream};
use uuid::Uuid;

use super::command::RoleChangeCommand;
use super::driver::Driver;
use crate::error::{MirrorError, blocking};
use crate::limits::{BREAK_PATIENCE, FENCE_ATTEMPTS};
use crate::log::LogEvent;
use crate::schedule::{ClockReading, Schedule, Ticker};
use crate::source::{Overtaker, ReverseAccepted};
use crate::state::Work;
use crate::store::{Relationship, SourceRelationship, SwapMark};

impl Driver {
    /// Whoever is notified that it is done sees it in the status too.
    pub(super) async fn change_roles(&mut self, command: RoleChangeCommand) {
        match command {
            RoleChangeCommand::Begin { reverse, done } => {
                let result = self.begin_swap(reverse).await;
                self.publish();
                let _ = done.send(result);
            }
            RoleChangeCommand::Look { done } => {
                let result = self.check_swap();
                let _ = done.send(result);
            }
            RoleChangeCommand::Forgo { done } => {
                self.is_for_swap = false;
                self.publish();
                let _ = done.send(Ok(()));
            }
            RoleChangeCommand::Agree { reverse, done } => {
                let result = match self.relationship.swap {
                    Some(SwapMark::Swapping { .. }) => self.mark(Some(SwapMark::Swapping { reverse })).await,
                    // A person's break has come between: how the attempt ended must not be forgotten.
                    _ => Err(MirrorError::State("the mirror was broken off meanwhile".into())),
                };
                let _ = done.send(result);
            }
            RoleChangeCommand::Raise { newest, done } => {
                let result = self.raise(newest).await;
                self.publish();
                let _ = done.send(result);
            }
            RoleChangeCommand::TakeOver { last, role_change, done } => {
                let result = self.take_over_at(last, role_change).await;
                self.publish();
                let _ = done.send(result);
            }
            RoleChangeCommand::Finish { done } => {
                self.is_swapping = self.is_outcome_unknown;
                self.probe().await;
                self.publish();
                let _ = done.send(Ok(()));
            }
            RoleChangeCommand::Acknowledged { role_change, done } => {
                // What a divergence notice said of an earlier one may arrive when the next has begun.
                let is_it = role_change == self.relationship.role_change;
                let result = if is_it { self.acknowledged().await } else { Ok(()) };
                self.publish();
                let _ = done.send(result);
            }
            RoleChangeCommand::GiveWay { of, done } => {
                let result = self.give_way(of).await;
                self.publish();
                let _ = done.send(result);
            }
            RoleChangeCommand::Released { done } => {
                self.is_followed_no_more().await;
                self.publish();
                let _ = done.send(Ok(()));
            }
            RoleChangeCommand::SourceStands { of, upstream, done } => {
                self.source_stands(of, upstream).await;
                self.publish();
                let _ = done.send(Ok(()));
            }
            RoleChangeCommand::Prepare { of, schedule, done } => {
                let result = self.prepare(of, schedule).await;
                self.publish();
                let _ = done.send(result);
            }
            RoleChangeCommand::Prepared { of, done } => {
                let last = if self.is_prepared(of) { self.current.as_ref().map(|c| c.uuid) } else { None };
                let _ = done.send(Ok(last));
            }
            RoleChangeCommand::Changing { of: ended, done } => {
                let is_marked =
                    matches!(self.relationship.swap, Some(SwapMark::Prepared { of, .. }) if of == ended);
                let _ = done.send(Ok(is_marked || self.forgotten_fence == Some(ended)));
            }
            RoleChangeCommand::Cancel { of, done } => {
                let result = self.cancel(of).await;
                self.publish();
                let _ = done.send(result);
            }
            RoleChangeCommand::Activate { of, done } => {
                let result = self.activate(of).await;
                self.publish();
                let _ = done.send(result);
            }
        }
    }

    /// The number of the role change that comes next.
    pub(super) fn next_role_change(&self) -> u64 {
        (self.relationship.role_change + 1).min(ROLE_CHANGE_MAX)
    }

    /// Counts on from `newest`, which the source has seen without this side, and says once more what there is to say.
    async fn raise(&mut self, newest: u64) -> Result<(), MirrorError> {
        if newest < self.relationship.role_change {
            return Ok(());
        }
        tracing::warn!(
            relationship = %self.relationship.id, newest, role_change = self.relationship.role_change,
            "continuing the role-change count from the source's number {newest} (this site's count was lost)"
        );
        let role_change = (newest + 1).min(ROLE_CHANGE_MAX);
        let raised = Relationship { role_change, ..self.relationship.clone() };
        self.parts.store.save(&raised).await?;
        self.relationship = raised;
        self.probe().await;
        Ok(())
    }

    async fn mark(&mut self, swap: Option<SwapMark>) -> Result<(), MirrorError> {
        let marked = Relationship { swap, ..self.relationship.clone() };
        self.parts.store.save(&marked).await?;
        self.relationship = marked;
        Ok(())
    }

    /// The pool's record says that a takeover came about, and the row does not: a crash came between. Now the row says so
    /// too, since what tells it in the pool may be released.
    pub(super) async fn remember_takeover(&mut self) {
        let Some(SwapMark::Swapping { reverse }) = self.relationship.swap else { return };
        // With a failing device the record may not be on it.
        if self.is_outcome_unknown {
            return;
        }
        self.relationship.swap = Some(SwapMark::TakenOver { reverse });
        self.relationship.past = self.relationship.past.taken_over();
        let saved = tokio::time::timeout(BREAK_PATIENCE, self.parts.store.save(&self.relationship)).await;
        if !matches!(saved, Ok(Ok(()))) {
            tracing::warn!(relationship = %self.relationship.id, "the roles have changed, but the database does not know it");
        }
    }

    /// Hosts went on at a destination of this volume: they are not to be left behind without a word.
    fn check_not_overtaken(&self) -> Result<(), MirrorError> {
        let volume = &self.relationship.destination;
        let Some(Overtaker { by, at, .. }) = self.overtaker() else { return Ok(()) };
        Err(MirrorError::State(format!(
            "{volume} was overtaken by {by} at {at:.0}: hosts went on there. No role changed. Decide first which of them \
             counts: farside mirror status {volume}"
        )))
    }

    /// Whether a role change may begin, as far as this side knows.
    fn check_swap(&self) -> Result<(), MirrorError> {
        self.check_ready()?;
        let refuse = |text: &str| Err(MirrorError::State(text.into()));
        if self.is_swapping {
            return refuse("a role change is already running for this mirror");
        }
        if self.state.work == Work::BrokenOff {
            return refuse(
                "the mirror is broken off: the volume at this site is already writable. To make the other volume \
                 follow it, at the other site: farside mirror resync OTHER_VOLUME --from PEER:THIS_VOLUME",
            );
        }
        if !self.state.initialized || self.state.resync_pending {
            return refuse(
                "the replica is not initialized, or a resync is pending. No role changed. Run farside \
                 mirror update (or initialize) first",
            );
        }
        if self.state.quiesced {
            return refuse(&format!(
                "the mirror of {0} is quiesced. No role changed. Run farside mirror resume {0} first",
                self.relationship.destination
            ));
        }
        self.check_not_overtaken()
    }

    async fn begin_swap(&mut self, reverse: Uuid) -> Result<bool, MirrorError> {
        self.check_swap()?;
        if self.relationship.swap.is_some() {
            return Ok(false);
        }
        self.notice = None;
        let begun = Relationship {
            swap: Some(SwapMark::Swapping { reverse }),
            role_change: self.next_role_change(),
            ..self.relationship.clone()
        };
        self.parts.store.save(&begun).await?;
        self.relationship = begun;
        self.is_swapping = true;
        Ok(true)
    }

    async fn take_over_at(
        &mut self,
        last: CandidateBase,
        reverse_role_change: u64,
    ) -> Result<(), MirrorError> {
        self.check_probed()?;
        let Some(SwapMark::Swapping { reverse }) = self.relationship.swap else {
            return Err(MirrorError::State("no role change is running for this mirror".into()));
        };
        if self.state.work == Work::BrokenOff {
            return Err(MirrorError::State("the mirror was broken off during the role change".into()));
        }
        self.check_not_overtaken()?;
        // A tick may have begun another update; it cannot bring anything that this side does not have.
        self.stop().await;
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        if let Err(error) = blocking(move || take_over_at(&*engine, &relationship, reverse, last)).await {
            self.is_outcome_unknown = error.is_io();
            self.probe().await;
            return Err(error);
        }
        let now = self.parts.clock.now();
        self.state.work = Work::BrokenOff;
        self.relationship.broken_off_at = Some(now);
        self.relationship.past = self.relationship.past.taken_over();
        (self.relationship.told, self.relationship.ended_there) = (false, false);
        // Only now: until the record is durable the other side can still be made writable.
        self.relationship.swap = Some(SwapMark::TakenOver { reverse });
        let saved = tokio::time::timeout(BREAK_PATIENCE, self.parts.store.save(&self.relationship)).await;
        if !matches!(saved, Ok(Ok(()))) {
            tracing::warn!(relationship = %self.relationship.id, "the mirror is broken off and writable; the state \
                 database could not record that the roles have changed");
        }
        let Relationship { peer, source, destination, .. } = self.relationship.clone();
        let kept = SourceRelationship {
            base: Some(last.uuid),
            since: Some(now),
            ..SourceRelationship::new(reverse, peer, destination.clone(), source.clone())
        };
        if let Err(error) = self.parts.source.adopt(kept, reverse_role_change).await {
            tracing::warn!(volume = %destination, "mirror destinations will list the reverse mirror only after its \
                 first update: {error}");
        }
        tracing::info!(
            relationship = %self.relationship.id, %reverse, volume = %destination, %source, %peer,
            "the roles have changed: {destination} is writable; {source} at the peer becomes its replica"
        );
        self.log(LogEvent::Swap, None, None).await;
        self.probe().await;
        Ok(())
    }

    async fn acknowledged(&mut self) -> Result<(), MirrorError> {
        let Some(mark) = self.relationship.swap else { return Ok(()) };
        let Some(reverse) = mark.reverse() else { return Ok(()) };
        let is_taken_over = matches!(mark, SwapMark::TakenOver { .. });
        if self.state.work != Work::BrokenOff && !is_taken_over {
            // Cancelled: the pin of a takeover that did not come.
            let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
            blocking(move || release(&*engine, &volume, reverse, &[])).await?;
        }
        // Whoever knows of the takeover is not to be fenced for it, though it deletes its mirror before it hears the same as a break.
        self.relationship.told |= is_taken_over;
        self.mark(None).await
    }

    fn is_prepared(&self, for_end_of: Uuid) -> bool {
        let is_marked =
            matches!(self.relationship.swap, Some(SwapMark::Prepared { of, .. }) if of == for_end_of);
        is_marked && self.check_probed().is_ok() && self.state.work != Work::BrokenOff
    }

    async fn prepare(&mut self, of: Uuid, schedule: Schedule) -> Result<ReverseAccepted, MirrorError> {
        let volume = self.relationship.destination.clone();
        let reverse = self.relationship.id;
        if !self.is_prepared(of) {
            let (engine, volume_of) = (self.parts.engine.clone(), volume.clone());
            let record = blocking(move || engine.replica_record(&volume_of)).await?;
            let is_new = match &record {
                None => true,
                // What it remembers of another site is over once this is prepared.
                Some(record) if record.broken_off => record.relationship != reverse,
                Some(record) => {
                    return Err(already_a_replica(&volume, &record.source));
                }
            };
            let before = self.relationship.clone();
            let schedule =
                if before.schedule == Schedule::OnRequest { schedule } else { before.schedule.clone() };
            self.notice = None;
            let marked = Relationship {
                swap: Some(SwapMark::Prepared { of, is_new }),
                // One that comes from the other site takes the place of what was lost.
                schedule_lost: before.schedule_lost && schedule == Schedule::OnRequest,
                schedule,
                role_change: self.next_role_change(),
                ..before.clone()
            };
            self.parts.store.save(&marked).await?;
            let (engine, clock) = (self.parts.engine.clone(), self.parts.clock.clone());
            let randomness = self.parts.randomness.clone();
            let relationship = marked.clone();
            let fenced = blocking(move || {
                let id = || uuid::Builder::from_random_bytes(randomness.uuid_bytes()).into_uuid();
                fence(&*engine, &*clock, &relationship, of, id)
            });
            if let Err(error) = fenced.await {
                // With a failing device nobody knows whether the record is on it: then the mark stays, so that the peer's
                // message that it gave up finds what to undo.
                if !error.is_io() {
                    self.parts.store.save(&before).await?;
                } else {
                    self.relationship = marked;
                }
                self.probe().await;
                return Err(error);
            }
            self.relationship = marked;
            self.ticker =
                Ticker::new(self.relationship.schedule.clone(), ClockReading::of(&*self.parts.clock), false);
            self.probe().await;
            tracing::warn!(
                %volume, peer = %self.relationship.peer, %of, %reverse,
                "{volume} is now read-only: its peer asked for a role change and is about to take over"
            );
        }
        self.check_probed()?;
        let last = self.current.as_ref().ok_or_else(|| MirrorError::internal("no last snapshot"))?;
        let last =
            CandidateBase { uuid: last.uuid, content_root: last.content_root, size_bytes: last.size_bytes };
        Ok(ReverseAccepted { reverse, last, role_change: self.relationship.role_change })
    }

    async fn cancel(&mut self, for_end_of: Uuid) -> Result<bool, MirrorError> {
        let is_new = match self.relationship.swap {
            Some(SwapMark::Prepared { of, is_new }) if of == for_end_of => is_new,
            // Done, cancelled or broken off before.
            _ => return Ok(false),
        };
        tracing::warn!(
            volume = %self.relationship.destination, peer = %self.relationship.peer,
            "the role change was cancelled: hosts may write again"
        );
        if is_new {
            return Ok(true);
        }
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        blocking(move || {
            engine.set_replica_record(&relationship.destination, Some(relationship.record(true)))?;
            release_all(&*engine, &relationship.destination, relationship.id)
        })
        .await?;
        self.mark(None).await?;
        self.probe().await;
        Ok(false)
    }

    async fn activate(&mut self, of: Uuid) -> Result<(), MirrorError> {
        if self.state.work == Work::BrokenOff {
            return Err(MirrorError::State(format!(
                "{} at the former source was broken off during the role change: both sides are writable. Decide \
                 which one counts, and run farside mirror resync for the other",
                self.relationship.destination
            )));
        }
        self.check_probed()?;
        let is_prepared = self.is_prepared(of);
        if is_prepared || self.forgotten_fence == Some(of) {
            // First, and the word is repeated if it fails: a volume that nothing says of that the roles have changed, and that
            // keeps a base of before, would look as if it still waited.
            self.release_ended(of).await?;
            // A pool that refuses changes since its device failed may show pins as gone that are still on it: it says so here.
            let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
            blocking(move || {
                engine.set_replica_record(&relationship.destination, Some(relationship.record(false)))
            })
            .await?;
        }
        if is_prepared {
            let active = Relationship {
                swap: None,
                broken_off_at: None,
                resync_pending: false,
                // Whoever asked for quiet did so when this was another's replica. Who asked for the role change wants
                // its former original to follow.
                quiesced: false,
                upstream: Upstream::default(),
                past: self.relationship.past.turned(self.parts.clock.now()),
                told: false,
                ended_there: false,
                ..self.relationship.clone()
            };
            self.parts.store.save(&active).await?;
            self.state.quiesced = false;
            self.relationship = active;
            self.why = None;
            tracing::info!(
                volume = %self.relationship.destination, source = %self.relationship.source,
                peer = %self.relationship.peer, "the roles have changed: this volume is a replica from now on"
            );
            self.log(LogEvent::Swap, None, None).await;
        } else if self.forgotten_fence == Some(of) {
            tracing::info!(
                volume = %self.relationship.destination, source = %self.relationship.source,
                peer = %self.relationship.peer, "the peer has taken over: this volume follows from now on"
            );
            self.probe().await;
        }
        self.drop_other_direction().await;
        Ok(())
    }
}

/// The volume that is to become the replica is one.
pub(crate) fn already_a_replica(volume: &VolumeName, source: &str) -> MirrorError {
    MirrorError::State(format!(
        "{volume} at the source is already a replica of {source}; there is no role to change"
    ))
}

/// The takeover at the replica: one record, before which only the other side can be made writable, and after which
/// only this one is.
fn take_over_at(
    engine: &dyn Engine,
    relationship: &Relationship,
    reverse: Uuid,
    last: CandidateBase,
) -> Result<(), MirrorError> {
    let volume = &relationship.destination;
    let is_shown = engine.snapshots(volume)?.iter().any(|s| s.uuid == last.uuid)
        && engine.content_root(volume, last.uuid)? == last.content_root
        && engine.changed_since(volume, last.uuid)? == ChangedBytes::default();
    // M5: not one byte of the other side may be missing here once hosts write here.
    if !is_shown {
        return Err(MirrorError::State(format!(
            "{volume} does not show the last snapshot of its source. No role changed. Run farside mirror swap again"
        )));
    }
    engine.pin(volume, last.uuid, reverse)?;
    engine.abandon_staged(volume)?;
    engine.set_replica_record(volume, Some(relationship.record(true)))?;
    Ok(())
}

/// Makes the original read-only with a last snapshot that nothing was written after. On an error it is as it was.
fn fence(
    engine: &dyn Engine,
    clock: &dyn Clock,
    relationship: &Relationship,
    of: Uuid,
    mut id: impl FnMut() -> Uuid,
) -> Result<(), MirrorError> {
    let volume = &relationship.destination;
    let before = engine.replica_record(volume)?;
    let reverse = relationship.id;
    for attempt in 1..=FENCE_ATTEMPTS {
        let uuid = id();
        let spec = SnapshotSpec {
            name: format!("mirror-{}-{}", &of.simple().to_string()[..8], &uuid.simple().to_string()[20..]),
            uuid,
            created_at: clock.now(),
            owner: SnapshotOwner::Relationship(of),
            pin_for: Some(of),
        };
        engine.take_snapshot(volume, &spec)?;
        let is_last = engine
            .pin(volume, uuid, reverse)
            .and_then(|()| engine.set_replica_record(volume, Some(relationship.record(false))))
            .and_then(|()| engine.changed_since(volume, uuid))
            .and_then(|changed| {
                // The bytes that were there, written once more, lose nothing; but the first update here would set them aside.
                let is_same = changed == ChangedBytes::default();
                Ok(is_same && (attempt == FENCE_ATTEMPTS || !engine.is_written_since(volume, uuid)?))
            });
        match is_last {
            Ok(true) => return Ok(()),
            other => {
                if engine.replica_record(volume)? != before {
                    engine.set_replica_record(volume, before.clone())?;
                }
                engine.unpin(volume, uuid, reverse)?;
                engine.unpin(volume, uuid, of)?;
                engine.delete_snapshot(volume, uuid)?;
                other?;
            }
        }
    }
    Err(MirrorError::State(format!(
        "hosts wrote to {volume} at the source during each of {FENCE_ATTEMPTS} attempts to take its last snapshot. \
         No role changed. Stop those hosts, then run farside mirror swap again"
    )))
}
