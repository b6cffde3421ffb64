//! A destination that was broken off tells its source: hosts there went on without it. From then on updates of that
//! relationship are refused, until it is resynced from here, overwrites this side, or is released.

use farside_engine::VolumeName;
use farside_peer::{PeerId, Refusal};
use farside_transfer::TransferKind;
use farside_transfer::bases::{is_kept_for, release};
use farside_transfer::protocol::convert::{self, CandidateBase};
use farside_transfer::protocol::{self, Noted};
use farside_transfer::refusal::refusal;
use uuid::Uuid;

use super::log_limit::Admitted;
use super::refusal::to_refusal;
use super::role_changes::RoleChangeMessage;
use super::service::SourceService;
use super::shared::Shared;
use crate::error::{MirrorError, blocking};
use crate::store::{Overtaken, SourceRelationship};

impl SourceService {
    /// The relationships whose destination was broken off, in order of volume.
    pub fn overtaken(&self) -> Vec<SourceRelationship> {
        self.destinations().into_iter().filter(|r| r.overtaken.is_some()).collect()
    }

    /// Volumes that hosts may not write to until their overtaking is cleared: by policy of the right that the
    /// destination has ([`SourceRights::is_fenced_when_overtaken`](super::SourceRights::is_fenced_when_overtaken)).
    pub fn fenced(&self) -> Vec<VolumeName> {
        let rights = &self.shared.registry.rights;
        let mut volumes: Vec<VolumeName> = self
            .overtaken()
            .into_iter()
            .filter(|r| rights.is_fenced_when_overtaken(r.peer, &r.source))
            .map(|r| r.source)
            .collect();
        volumes.dedup();
        volumes
    }

    /// Changes whenever [`SourceService::overtaken`] does; the value counts how often.
    pub fn overtaken_changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.overtaken_changes.subscribe()
    }
}

impl Shared {
    pub(super) async fn overtaken(
        &self,
        peer: PeerId,
        message: protocol::Overtaken,
    ) -> Result<Noted, Refusal> {
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        let snapshot = message.snapshot.as_ref().map(CandidateBase::from_message).transpose();
        let snapshot = snapshot.map_err(to_refusal)?;
        let change = convert::role_change(message.role_change).map_err(to_refusal)?;
        self.check_owner(relationship, peer, &volume)?;
        self.check_not_own(relationship, &volume).await?;
        let destination = convert::volume(&message.destination).map_err(to_refusal)?;
        // A role change whose last message was lost: broken off at the very snapshot that was the last here. Asked before
        // this relationship's lock is taken: the driver that answers may be waiting for it, to let the bases go.
        let concerned = self.concerns(relationship, peer, &volume).await?;
        let order = self.registry.order(relationship);
        let _order = order.lock().await;
        let noted = || Noted { newest: self.registry.newest_role_change(relationship) };
        if self.registry.is_late(relationship, change, RoleChangeMessage::Continue) {
            tracing::info!(%relationship, %peer, %volume, "ignored a delayed break message: a newer one is known. \
                 Nothing to do");
            return Ok(noted());
        }
        let prepared = match self.reversal().filter(|_| concerned) {
            Some(reversal) => reversal.prepared(&volume, relationship).await.map_err(to_refusal)?,
            None => None,
        };
        if let (Some(reversal), Some(stands_on)) = (self.reversal(), snapshot)
            && prepared == Some(stands_on.uuid)
        {
            self.registry.accept(relationship, change, RoleChangeMessage::End);
            reversal.done(&volume, relationship).await.map_err(to_refusal)?;
            return Ok(noted());
        }
        let follows = prepared.is_none() && self.check_no_circle(peer, &volume, &destination).await.is_err();
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        let known = self.tables().relationships.get(&relationship).cloned();
        let known = match known {
            // The replica's pool may have another name by now; what this side follows later is called by that.
            Some(known) => SourceRelationship { destination, ..known },
            // With the database lost the pins still tell whose base is kept here.
            None if self.is_kept(relationship, &volume).await.map_err(to_refusal)? => {
                self.check_rights(peer, &volume)?;
                SourceRelationship::new(relationship, peer, volume.clone(), destination)
            }
            None => {
                // It was released: then it is no news.
                tracing::debug!(%relationship, %peer, %volume, "a mirror for which this site keeps no base was \
                     broken off; nothing to do");
                return Ok(noted());
            }
        };
        // Once more, now that this relationship's order lock is held: a resync may have begun meanwhile.
        if !self.registry.accept(relationship, change, RoleChangeMessage::Continue) {
            return Ok(noted());
        }
        if follows {
            // This side follows that one by now: no alarm. What is still kept here goes with the next version.
            self.keep(known).await.map_err(to_refusal)?;
            return Ok(noted());
        }
        let at = Some(message.broken_off_at).filter(|at| *at != 0);
        let overtaken = Overtaken {
            broken_off_at: at.map(farside_platform::Timestamp),
            reported_at: self.clock.now(),
            snapshot: snapshot.map(|s| (s.uuid, s.content_root)),
        };
        let is_news = known
            .overtaken
            .is_none_or(|o| (o.broken_off_at, o.snapshot) != (overtaken.broken_off_at, overtaken.snapshot));
        if is_news {
            self.alarm(peer, &known);
            let known = SourceRelationship { overtaken: Some(overtaken), ..known };
            self.keep(known).await.map_err(to_refusal)?;
        }
        Ok(noted())
    }

    /// Tells the log that hosts went on at `peer`, as far as its share of alarms reaches: a destination that makes up a new
    /// break with each call fills no disk.
    fn alarm(&self, peer: PeerId, known: &SourceRelationship) {
        let suppressed = match self.tables().alarms.admit(known.id, self.clock.monotonic()) {
            Admitted::Line { suppressed } => suppressed,
            Admitted::Nothing => return,
        };
        let SourceRelationship { id: relationship, source: volume, destination, .. } = known;
        let fenced = self.registry.rights.is_fenced_when_overtaken(peer, volume);
        tracing::warn!(
            %relationship, %peer, %volume, replica = %destination, fenced, suppressed,
            "OVERTAKEN: the replica of {volume} was broken off and hosts may be writing to it. Decide which side \
             counts. To make {volume} follow the replica: farside mirror resync {volume} --from PEER:{destination} \
             (what was written to {volume} since stays as a side branch). To make the replica follow {volume}, at \
             its site: farside mirror resync {destination}. To keep both and end the mirror: farside mirror release \
             {volume} PEER"
        );
    }

    /// Refuses what an overtaken source must not do; a resync says that the destination's hosts have stopped, and
    /// clears it.
    pub(super) async fn check_overtaken(
        &self,
        relationship: Uuid,
        volume: &VolumeName,
        kind: TransferKind,
        change: u64,
    ) -> Result<(), Refusal> {
        let is_news = self.registry.accept(relationship, change, RoleChangeMessage::Continue);
        let known = self.tables().relationships.get(&relationship).cloned();
        let Some(known) = known.filter(|known| known.overtaken.is_some()) else { return Ok(()) };
        if kind != TransferKind::Resync {
            return Err(refusal(
                "state",
                format!(
                    "{volume} is overtaken: its replica {} was broken off, and both sides may have been written to \
                     since. Nothing was transferred. To make the replica follow {volume} again, at the replica's \
                     site: farside mirror resync {}",
                    known.destination, known.destination
                ),
            ));
        }
        if !is_news {
            return Err(refusal(
                "state",
                format!(
                    "{} was broken off again after this resync was asked for. Nothing was transferred. Run farside \
                     mirror resync again",
                    known.destination
                ),
            ));
        }
        tracing::info!(%relationship, %volume, "the replica follows again: no longer overtaken");
        self.keep(SourceRelationship { overtaken: None, ..known }).await.map_err(to_refusal)
    }

    /// Whether any snapshot is pinned for it, or was taken for it.
    async fn is_kept(&self, relationship: Uuid, volume: &VolumeName) -> Result<bool, MirrorError> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        match blocking(move || is_kept_for(&*engine, &of, relationship)).await {
            Err(error) if error.is_not_found() => Ok(false),
            other => other,
        }
    }

    /// Stores a relationship, durably, and tells those who watch if its being overtaken changed.
    pub(super) async fn keep(&self, relationship: SourceRelationship) -> Result<(), MirrorError> {
        self.store.save_source(&relationship).await?;
        let is_overtaken = relationship.overtaken.is_some();
        let before = self.tables().relationships.insert(relationship.id, relationship);
        if is_overtaken || before.is_some_and(|before| before.overtaken.is_some()) {
            self.overtaken_changes.send_modify(|changes| *changes += 1);
        }
        Ok(())
    }

    /// Once a destination holds a new base of this volume, and the volume was itself that destination's replica before
    /// it was broken off: the bases of that older, dormant relationship have a successor. Its record stays, so that the
    /// roles can be changed again.
    pub(super) async fn release_dormant(
        &self,
        peer: PeerId,
        volume: &VolumeName,
        destination: &VolumeName,
    ) -> Result<(), MirrorError> {
        let (engine, of, from) = (self.engine.clone(), volume.clone(), destination.to_string());
        blocking(move || {
            let dormant = engine.replica_record(&of)?;
            let dormant = dormant.filter(|r| r.broken_off && r.peer == peer.0 && r.source == from);
            match dormant {
                Some(dormant) => release(&*engine, &of, dormant.relationship, &[]),
                None => Ok(()),
            }
        })
        .await
    }
}
