//! What a resync from here would start from and bring. Changes nothing.

use farside_engine::VolumeName;
use farside_peer::{PeerId, Refusal};
use farside_transfer::protocol::convert;
use farside_transfer::protocol::{Compare, Comparison};
use farside_transfer::refusal::refusal;
use farside_transfer::source;

use super::refusal::to_refusal;
use super::shared::Shared;
use crate::error::blocking;

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
        self.check_no_circle(peer, &volume, &destination).await?;
        let (engine, clock) = (self.engine.clone(), self.clock.clone());
        // Gone when this is answered.
        let probe = uuid::Uuid::from_u128(u128::from_be_bytes(*relationship.as_bytes()) ^ PROBE);
        let compared =
            blocking(move || source::compare(&*engine, &*clock, &volume, relationship, probe, &candidates));
        let compared = compared.await;
        let compared = compared.map_err(to_refusal)?;
        Ok(Comparison { newest: self.registry.newest_role_change(relationship), ..compared })
    }

    /// A volume that follows the asker's cannot be followed by it: each would wait for the other, and no host could
    /// write to either.
    pub(super) async fn check_no_circle(
        &self,
        peer: PeerId,
        volume: &VolumeName,
        destination: &VolumeName,
    ) -> Result<(), Refusal> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let record = blocking(move || engine.replica_record(&of)).await.map_err(to_refusal)?;
        let follows =
            record.is_some_and(|r| !r.broken_off && r.peer == peer.0 && r.source == destination.to_string());
        if !follows {
            return Ok(());
        }
        Err(refusal(
            "state",
            format!(
                "{volume} at the source is already the replica of {destination}; there is nothing to resync. To \
                 exchange roles, at the source: farside mirror swap {volume}. To make it writable, at the source: \
                 farside mirror break {volume}"
            ),
        ))
    }
}
