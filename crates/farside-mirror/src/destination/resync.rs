//! A volume that is here becomes the replica of a peer's volume, from what both hold: how a former source follows the
//! side that took over.

use std::time::Duration;

use farside_engine::VolumeName;
use farside_peer::PeerId;

use super::service::{Destination, ReservedSlot};
use crate::error::{MirrorError, blocking};
use crate::relationship::{Asked, Mirror, common_base};
use crate::schedule::Schedule;
use crate::store::Relationship;

impl Destination {
    /// Makes the volume `destination`, which is here and holds data, the replica of the peer's `source`, from the newest
    /// snapshot that both hold; what only this side holds stays as a side branch. If it is the replica of that volume
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
        if let Ok(mirror) = self.mirror(&destination) {
            let known = mirror.status().relationship;
            if known.peer != peer || known.source != source {
                return Err(other_source(&destination, &known.source.to_string()));
            }
            let asked = mirror.resync(link_wait).await?;
            if known.schedule == Schedule::OnRequest && schedule != Schedule::OnRequest {
                mirror.set_schedule(schedule).await?;
            }
            return Ok((mirror, asked));
        }
        let _reserved = ReservedSlot::take(self, &destination)?;
        let relationship = self.to_follow(peer, source, destination.clone(), schedule).await?;
        let common = common_base(&self.driver_parts(), &relationship, link_wait).await?;
        // The row first: whatever stops this from here on, the same command finds it and goes on.
        self.parts.store.save(&relationship).await?;
        let slot = self.start(relationship, false);
        self.slots().insert(destination.clone(), slot);
        let mirror = self.mirror(&destination)?;
        mirror.is_known().await;
        match mirror.resync_onto(common, link_wait).await {
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
        let id = match record {
            None => self.new_id(),
            Some(known) if known.peer == peer.0 && known.source == source.to_string() => known.relationship,
            Some(known) => return Err(other_source(&destination, &known.source)),
        };
        Ok(Relationship::new(id, peer, source, destination, schedule))
    }
}

pub(super) fn other_source(volume: &VolumeName, source: &str) -> MirrorError {
    MirrorError::State(format!(
        "{volume} is, or was, the replica of another volume, {source}. Nothing was changed. To end that mirror and \
         keep the volume: farside mirror delete {volume}"
    ))
}
