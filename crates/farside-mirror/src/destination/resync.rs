//! A volume that is here becomes the replica of a peer's volume, from what both hold: how a former source follows the
//! side that took over.

use std::time::Duration;

use farside_engine::VolumeName;
use farside_peer::PeerId;
use farside_transfer::limits::GONE_ATTEMPTS;
use farside_transfer::protocol::convert::Place;
use tokio::sync::oneshot;

use super::service::{Destination, ReservedSlot, Slot};
use crate::error::{MirrorError, blocking};
use crate::relationship::{Asked, Comparing, Mirror, Replaced, Replacing, ResyncRequest, base_to_begin_from};
use crate::schedule::Schedule;
use crate::source::Overtaker;
use crate::store::{Relationship, place};

impl Destination {
    /// Makes the volume `destination`, which is here and holds data, the replica of the peer's `source`, from the newest
    /// snapshot that both hold; what only this side holds stays as a side branch. If it is the replica of another
    /// volume (or was), that mirror is over then; its last base stays as a snapshot. If it is the replica of that volume
    /// already (or was, before it was broken off) this is [`Mirror::resync`], and `schedule` is only taken by one that has
    /// none. Nothing is changed before the peer has named a common base; refused while a host has the volume open for
    /// writing. Should the transfer fail, the mirror stays; `break` gives the volume back as it was.
    pub async fn resync_from(
        &self,
        peer: PeerId,
        source: VolumeName,
        destination: VolumeName,
        schedule: Schedule,
        link_wait: Duration,
    ) -> Result<(Mirror, Asked), MirrorError> {
        let request = ResyncRequest::new(Comparing::CommonPoint, link_wait);
        self.resync_as_asked(peer, source, destination, schedule, &request).await
    }

    /// The same; with [`Comparing::Everything`] also where the two have no point in common.
    pub async fn resync_as_asked(
        &self,
        peer: PeerId,
        source: VolumeName,
        destination: VolumeName,
        schedule: Schedule,
        request: &ResyncRequest,
    ) -> Result<(Mirror, Asked), MirrorError> {
        for _ in 1..GONE_ATTEMPTS {
            let (of, at, when) = (source.clone(), destination.clone(), schedule.clone());
            match self.resync_once(peer, of, at, when, request).await {
                // What was chosen has been deleted by whoever it was kept for.
                Err(error) if error.is_not_found() => {}
                asked => return asked,
            }
        }
        self.resync_once(peer, source, destination, schedule, request).await
    }

    async fn resync_once(
        &self,
        peer: PeerId,
        source: VolumeName,
        destination: VolumeName,
        schedule: Schedule,
        request: &ResyncRequest,
    ) -> Result<(Mirror, Asked), MirrorError> {
        if let Ok(mirror) = self.mirror(&destination) {
            let known = mirror.status().relationship;
            if known.peer != peer || known.source != source {
                return self.follow_another(peer, source, destination, schedule, request).await;
            }
            let asked = mirror.resync_as_asked(request).await?;
            if known.schedule == Schedule::OnRequest && schedule != Schedule::OnRequest {
                mirror.set_schedule(schedule).await?;
            }
            return Ok((mirror, asked));
        }
        let _reserved = ReservedSlot::take(self, &destination)?;
        let relationship = self.to_follow(peer, source, destination.clone(), schedule).await?;
        let common = base_to_begin_from(&self.driver_parts(), &relationship, request).await?;
        // The row first: whatever stops this from here on, the same command finds it and goes on. Pending: what the pool does not
        // know yet must not look as if the pool was set back.
        let relationship = Relationship { resync_pending: true, ..relationship };
        self.parts.store.save(&relationship).await?;
        let slot = self.start(relationship, false);
        self.slots().insert(destination.clone(), slot);
        let mirror = self.mirror(&destination)?;
        mirror.is_known().await;
        match mirror.resync_onto(common, None, request).await {
            Ok(asked) => Ok((mirror, asked)),
            Err(error) => {
                if let Err(error) = self.delete(&destination).await {
                    tracing::warn!(volume = %destination, "cannot remove the record of a mirror whose creation \
                         failed; remove it with farside mirror delete {destination}: {error}");
                }
                Err(error)
            }
        }
    }

    /// The volume `destination` is, or was, the replica of another source than this: it follows this one from now on, from what both
    /// hold. Nothing is changed before that is known. The mirror that it was in is over then, as if deleted: its last base
    /// stays as a snapshot, and its source is told.
    async fn follow_another(
        &self,
        peer: PeerId,
        source: VolumeName,
        destination: VolumeName,
        schedule: Schedule,
        request: &ResyncRequest,
    ) -> Result<(Mirror, Asked), MirrorError> {
        let known = self.mirror(&destination)?.status().relationship;
        check_no_role_change(&known)?;
        // Whoever says nothing of a schedule means that the volume is kept as current as it was.
        let schedule = if schedule == Schedule::OnRequest { known.schedule.clone() } else { schedule };
        let relationship = Relationship {
            options: known.options.clone(),
            past: known.past.clone(),
            ..Relationship::new(self.new_id(), peer, source, destination.clone(), schedule)
        };
        let common = base_to_begin_from(&self.driver_parts(), &relationship, request).await?;
        let mut left = known.chain();
        if left.contains(&place(peer, &relationship.source)) {
            left.clear();
        }
        let was_in_force = known.broken_off_at.is_none();
        let overtaker = self.overtaker_of(&known, &relationship, &common.follows);
        let replaces = Replacing { relationship: known.id, was_in_force, left };
        let (mirror, asked) = self
            .replace(relationship.clone(), overtaker, async |mirror| {
                mirror.resync_onto(common, Some(replaces), request).await
            })
            .await?;
        tracing::warn!(
            volume = %destination, peer = %relationship.peer, source = %relationship.source, was = %known.source,
            "the volume follows another source from now on; the mirror that it was in is over"
        );
        Ok((mirror, asked))
    }

    /// Who has gone on without what a volume has followed by `known`, where it is to follow `next` from now on, which itself follows
    /// `beyond`. A volume that has followed this one, and does not any more, went on, whether this site has heard it or not.
    fn overtaker_of(&self, known: &Relationship, next: &Relationship, beyond: &[Place]) -> Option<Overtaker> {
        let source = &self.parts.source;
        let places: Vec<Place> =
            [place(next.peer, &next.source)].into_iter().chain(beyond.iter().cloned()).collect();
        let has_followed = source
            .destinations()
            .iter()
            .any(|r| (r.peer, &r.source, &r.destination) == (next.peer, &known.destination, &next.source));
        if !has_followed || places.contains(&place(known.peer, &known.source)) {
            return None;
        }
        let name = self.parts.links.name_of(next.peer).unwrap_or_else(|| format!("{:?}", next.peer));
        Some(Overtaker { by: format!("{name}:{}", next.source), at: self.parts.clock.now(), places })
    }

    /// Puts `relationship` in the place of the one that its volume is in, if `change` succeeds with it: then that one is over.
    /// Otherwise it goes on as it was.
    pub(super) async fn replace<T>(
        &self,
        relationship: Relationship,
        overtaker: Option<Overtaker>,
        change: impl AsyncFnOnce(&Mirror) -> Result<T, MirrorError>,
    ) -> Result<(Mirror, T), MirrorError> {
        let volume = relationship.destination.clone();
        let decision = self.mirror(&volume)?.step_aside().await?;
        let before = self.slots().insert(volume.clone(), Slot::Reserved);
        let changed = async {
            self.parts.store.save(&relationship).await?;
            let (mirror, driver) = Mirror::start(self.driver_parts(), relationship.clone(), false);
            mirror.is_known().await;
            match change(&mirror).await {
                Ok(done) => Ok((mirror, driver, done)),
                Err(error) => {
                    if let Err(error) = mirror.delete().await {
                        tracing::warn!(%volume, "what was begun for another source of the volume could not be taken back: {error}");
                    }
                    Err(error)
                }
            }
        };
        match changed.await {
            Ok((mirror, driver, done)) => {
                self.slots().insert(volume.clone(), Slot::Running(mirror.clone(), driver));
                let (left, is_left) = oneshot::channel();
                let follows = mirror.status().relationship.chain();
                let left = decision.send(Replaced { follows, overtaker, done: left }).map(|()| is_left);
                if let Ok(left) = left
                    && let Ok(Err(error)) = left.await
                {
                    tracing::warn!(%volume, "what the mirror that is over kept here stays until it is released by \
                         hand (farside mirror destinations lists it): {error}");
                }
                Ok((mirror, done))
            }
            Err(error) => {
                // Its row first, then its slot: whoever finds the mirror finds it as it was.
                drop(decision);
                if let Some(before) = before {
                    self.slots().insert(volume, before);
                }
                Err(error)
            }
        }
    }

    /// The relationship by which a volume here is to follow: the one its pool remembers, or a new one.
    pub(super) async fn to_follow(
        &self,
        peer: PeerId,
        source: VolumeName,
        destination: VolumeName,
        schedule: Schedule,
    ) -> Result<Relationship, MirrorError> {
        let (engine, of) = (self.parts.engine.clone(), destination.clone());
        let record = blocking(move || engine.volume(&of).and_then(|_| engine.replica_record(&of))).await?;
        let id = match record.filter(|known| !self.parts.endings.is_over(known.relationship)) {
            None => self.new_id(),
            Some(known) if known.peer == peer.0 && known.source == source.to_string() => known.relationship,
            Some(known) => return Err(other_source(&destination, &known.source)),
        };
        Ok(Relationship::new(id, peer, source, destination, schedule))
    }
}

/// Refuses what would leave a role change of the volume without an end.
pub(super) fn check_no_role_change(known: &Relationship) -> Result<(), MirrorError> {
    match known.swap {
        None => Ok(()),
        Some(_) => Err(MirrorError::State(format!(
            "a role change of {} with its source {} is not over. Nothing was changed. Wait for it to end, or run farside \
             mirror break {} first",
            known.destination, known.source, known.destination
        ))),
    }
}

pub(super) fn other_source(volume: &VolumeName, source: &str) -> MirrorError {
    MirrorError::State(format!(
        "{volume} is, or was, the replica of another volume, {source}. Nothing was changed. To end that mirror and \
         keep the volume: farside mirror delete {volume}"
    ))
}
