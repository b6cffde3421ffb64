//! What a resync from here would start from and bring. Changes nothing.

use farside_engine::{ReplicaRecord, VolumeName};
use farside_peer::{PeerId, Refusal};
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::protocol::convert::{self, Place};
use farside_transfer::protocol::{Compare, Comparison};
use farside_transfer::refusal::{CROSSED, NO_ORIGINAL, not_open, refusal};
use farside_transfer::source;
use uuid::Uuid;

use super::refusal::to_refusal;
use super::shared::Shared;
use crate::error::blocking;
use crate::relationship::CROSSED_WITH;
use crate::store::place;

/// Makes the id of what is taken to be compared of that of the relationship.
const PROBE: u128 = 0x9c1d_83f2_5a06_4e7b_b0d4_6f2e_71a8_35c9;

impl Shared {
    pub(super) async fn compare(&self, peer: PeerId, message: Compare) -> Result<Comparison, Refusal> {
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        let destination = convert::volume(&message.destination).map_err(to_refusal)?;
        let candidates = convert::candidates(&message.candidates).map_err(to_refusal)?;
        self.check_rights(peer, &volume)?;
        self.check_owner(relationship, peer, &volume)?;
        self.admit_snapshot(peer)?;
        self.check_not_own(relationship, &volume).await?;
        let follows = self.check_no_circle(peer, &volume, &destination).await?;
        let (engine, clock) = (self.engine.clone(), self.clock.clone());
        // Gone when this is answered.
        let probe = uuid::Uuid::from_u128(u128::from_be_bytes(*relationship.as_bytes()) ^ PROBE);
        let compared =
            blocking(move || source::compare(&*engine, &*clock, &volume, relationship, probe, &candidates));
        let compared = compared.await;
        let compared = compared.map_err(to_refusal)?;
        Ok(Comparison {
            newest: self.registry.newest_role_change(relationship),
            follows: convert::place_messages(&follows),
            ..compared
        })
    }

    /// A volume that follows the asker's, by whatever way, cannot be followed by it: each would wait for the other, and no host
    /// could write anywhere. Answers what it follows.
    pub(super) async fn check_no_circle(
        &self,
        peer: PeerId,
        volume: &VolumeName,
        destination: &VolumeName,
    ) -> Result<Vec<Place>, Refusal> {
        self.look_upstream(volume, HOPS_MAX).await;
        let follows = self.follows(volume).await?;
        let is_asker = |place: &Place| place.site == peer.0 && place.volume == *destination;
        let message = match follows.iter().position(is_asker) {
            None => return Ok(follows),
            Some(0) => format!(
                "{volume} at the source is already the replica of {destination}; there is nothing to resync. To \
                 exchange roles, at the source: farside mirror swap {volume}. To make it writable, at the source: \
                 farside mirror break {volume}"
            ),
            Some(hops) => {
                let between: Vec<String> =
                    follows.iter().take(hops).map(|place| place.volume.to_string()).collect();
                format!(
                    "{volume} at the source follows {}, which follows {destination} itself: there would be no original \
                     left, and no host could write anywhere. Nothing was changed. If hosts shall go on at {volume}, at \
                     the source: farside mirror break {volume}, then this again. If the chain has changed since, and \
                     one of its sites cannot be reached: once it can, this again",
                    between.join(", which follows ")
                )
            }
        };
        Err(refusal("state", message))
    }

    /// An update is no way to a volume that follows the asker's: one of the two pools is older than the site's state, as after a
    /// backup of it was put in its place, and its data must not take the place of the newer.
    pub(super) async fn check_not_mutual(
        &self,
        relationship: Uuid,
        peer: PeerId,
        volume: &VolumeName,
        destination: &VolumeName,
    ) -> Result<(), Refusal> {
        let asker = place(peer, destination);
        if self.follows(volume).await?.first() != Some(&asker) {
            return Ok(());
        }
        // While roles change it follows already, and what it shows goes over last.
        if let Some(reversal) = self.reversal() {
            match reversal.is_changing(volume, relationship).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Its mirrors are being started: soon it can be told.
                Err(_) => return Err(not_open(&volume.pool)),
            }
        }
        let site = self.name_of(peer);
        Err(refusal(
            NO_ORIGINAL,
            format!(
                "{volume} at the source is a read-only replica of {site}:{destination}, so each of the two follows the other, and neither \
                 is an original. One of the two pools is probably an older copy of itself. Nothing was changed. Decide which of them has what \
                 counts. If it is {destination} at {site}: farside mirror break {destination} there, then farside mirror resync {volume} \
                 --whole at the source. If it is {volume} at the source: farside mirror break {volume} there, then farside mirror resync \
                 {destination} --whole at {site}. What the other shows is kept there as a side branch"
            ),
        ))
    }

    /// The same when a resync begins. Of two that cross, so that each volume follows the other, the one with the greater id gives
    /// way, if nothing has come of it yet; otherwise the asker's does.
    pub(super) async fn check_not_crossed(
        &self,
        relationship: Uuid,
        peer: PeerId,
        volume: &VolumeName,
        destination: &VolumeName,
    ) -> Result<(), Refusal> {
        if self.check_no_circle(peer, volume, destination).await.is_ok() {
            return Ok(());
        }
        let (engine, of) = (self.engine.clone(), volume.clone());
        let record = blocking(move || engine.replica_record(&of)).await.map_err(to_refusal)?;
        let is_direct =
            |r: &ReplicaRecord| !r.broken_off && r.peer == peer.0 && r.source == destination.to_string();
        let own = record.filter(is_direct).map(|record| record.relationship);
        if let (Some(own), Some(reversal)) = (own.filter(|own| *own > relationship), self.reversal())
            && reversal.give_way(volume, own).await.map_err(to_refusal)?
        {
            tracing::warn!(
                %relationship, %peer, %volume, %destination,
                "two resyncs crossed: {volume} was to follow {destination}, which was asked at the same time to follow {volume}. \
                 {volume} gives way: it is broken off, as before"
            );
            return Ok(());
        }
        // It may have given way by itself meanwhile.
        let Err(circle) = self.check_no_circle(peer, volume, destination).await else { return Ok(()) };
        if own.is_none() {
            return Err(refusal(CROSSED, circle.message));
        }
        Err(refusal(
            CROSSED,
            format!(
                "{volume} at the source {CROSSED_WITH} {destination}. {destination} gives way: it is what \
                 it was before. If {volume} shall follow nothing, at the source: farside mirror break {volume}"
            ),
        ))
    }
}
