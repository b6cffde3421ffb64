//! How a volume ceases to be overtaken.

use farside_engine::VolumeName;
use farside_peer::{PeerId, Refusal};
use farside_transfer::TransferKind;
use farside_transfer::bases::release_all;
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::protocol::convert::Place;
use farside_transfer::refusal::refusal;
use uuid::Uuid;

use crate::directions::{self};
use crate::error::{MirrorError, blocking};
use crate::source::refusal::to_refusal;
use crate::source::role_changes::RoleChangeMessage;
use crate::source::shared::Shared;
use crate::store::{Overtaken, SourceRelationship, place};

impl Shared {
    /// The very volume that went on follows again, under another relationship: what its old one has left is settled, unless it has
    /// followed one since that may go on.
    pub(crate) async fn comes_back(
        &self,
        relationship: Uuid,
        peer: PeerId,
        volume: &VolumeName,
        destination: &VolumeName,
        left: Vec<Place>,
    ) -> Result<(), MirrorError> {
        let is_over = |r: &&SourceRelationship| {
            let is_ended = r.overtaken.as_ref().is_some_and(|overtaken| overtaken.ended);
            let names_it = || r.gone_on().places().contains(&place(peer, destination));
            is_ended && r.source == *volume && r.id != relationship && names_it()
        };
        let over: Vec<SourceRelationship> =
            self.tables().relationships.values().filter(is_over).cloned().collect();
        for known in over {
            let Some(mut overtaken) = known.overtaken.clone() else { continue };
            overtaken
                .follows
                .extend(left.iter().filter(|place| !known.gone_on().places().contains(place)).cloned());
            overtaken.follows.truncate(HOPS_MAX);
            if overtaken.follows.is_empty() {
                self.release(known.id, volume.clone()).await?;
            } else if known.overtaken.as_ref() != Some(&overtaken) {
                self.keep(SourceRelationship { overtaken: Some(overtaken), ..known }).await?;
            }
        }
        Ok(())
    }

    /// Who stands in one line with a volume here has not gone on without it any more. `further` follow it, besides those that are
    /// known to. To be called with no relationship's lock held.
    pub(crate) async fn settle(&self, volume: &VolumeName, further: &[Place]) -> Result<(), MirrorError> {
        let is_overtaken = |r: &SourceRelationship| r.source == *volume && r.overtaken.is_some();
        if !self.tables().relationships.values().any(is_overtaken) {
            return Ok(());
        }
        let (engine, of) = (self.engine.clone(), volume.clone());
        let record = match blocking(move || engine.replica_record(&of)).await {
            Err(error) if error.is_not_found() => return Ok(()),
            record => record?,
        };
        let chain = self.chain(volume, record.as_ref());
        let settled: Vec<Uuid> = {
            let tables = self.tables();
            let is_settled =
                |r: &&SourceRelationship| is_overtaken(r) && tables.is_settled(r, &chain, further);
            tables.relationships.values().filter(is_settled).map(|r| r.id).collect()
        };
        for id in settled {
            let lock = self.registry.lock(id);
            let guard = lock.lock().await;
            let known = {
                let tables = self.tables();
                let known = tables.relationships.get(&id);
                known.filter(|known| tables.is_settled(known, &chain, further)).cloned()
            };
            let Some(known) = known else { continue };
            tracing::info!(
                relationship = %id, %volume, replica = %known.destination,
                "no longer overtaken by way of this replica: who went on stands in one line with {volume} by now"
            );
            if known.overtaken.as_ref().is_some_and(|overtaken| overtaken.ended) {
                drop(guard);
                self.release(id, volume.clone()).await?;
            } else {
                self.keep(SourceRelationship { overtaken: None, ..known }).await?;
            }
        }
        Ok(())
    }

    /// Lets go of what is kept for a relationship that only stands for its being overtaken. What fails costs space, until it is
    /// released.
    pub(super) async fn let_go(&self, known: &SourceRelationship) {
        let (engine, of, id) = (self.engine.clone(), known.source.clone(), known.id);
        match blocking(move || release_all(&*engine, &of, id)).await {
            Ok(()) => {
                self.tables().pins.insert(id, 0);
            }
            Err(error) => {
                tracing::warn!(relationship = %id, volume = %known.source, "cannot release the base of a mirror that \
                     was deleted; it holds space until farside mirror release: {error}");
                return;
            }
        }
        let without = SourceRelationship { base: None, since: None, ..known.clone() };
        if let Err(error) = self.keep(without).await {
            tracing::warn!(relationship = %id, volume = %known.source, "the state database could not record that \
                 a base is released: {error}");
        }
    }

    /// The destination gives up what is kept for it. Answers whether this side stays overtaken: then that is all it gives up.
    pub(crate) async fn release_to_mark(&self, relationship: Uuid) -> Result<bool, MirrorError> {
        let known = self.tables().relationships.get(&relationship).cloned();
        let Some((known, overtaken)) = known.and_then(|k| k.overtaken.clone().map(|o| (k, o))) else {
            return Ok(false);
        };
        if directions::release(true) == directions::Left::Nothing {
            return Ok(false);
        }
        self.transfers.stop(relationship, false);
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        let known = SourceRelationship { overtaken: Some(Overtaken { ended: true, ..overtaken }), ..known };
        self.keep(known.clone()).await?;
        self.let_go(&known).await;
        Ok(true)
    }

    /// Refuses what an overtaken source must not do; a resync says that the destination's hosts have stopped, and
    /// clears it.
    pub(crate) async fn check_overtaken(
        &self,
        relationship: Uuid,
        volume: &VolumeName,
        kind: TransferKind,
        change: u64,
    ) -> Result<(), Refusal> {
        let is_news = self.registry.accept(relationship, change, RoleChangeMessage::Continue);
        let known = self.tables().relationships.get(&relationship).cloned();
        // A destination that asks for an update follows: what it has passed on is no reason to refuse it.
        let is_its_own = |known: &SourceRelationship| {
            known.overtaken.as_ref().is_some_and(|overtaken| overtaken.beyond.is_none())
        };
        let Some(known) = known.filter(is_its_own) else { return Ok(()) };
        let of_overtaker = kind != TransferKind::Resync;
        if directions::is_refused(directions::Request::Update { of_overtaker }, true) {
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

    /// Once a destination holds a new base of this volume, and the volume was itself that destination's replica before
    /// it was broken off: the bases of that older, dormant relationship have a successor. Its record stays, so that the
    /// roles can be changed again.
    pub(crate) async fn release_dormant(
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
                Some(dormant) => release_all(&*engine, &of, dormant.relationship),
                None => Ok(()),
            }
        })
        .await
    }
}
