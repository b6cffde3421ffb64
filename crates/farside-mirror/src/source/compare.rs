//! What a resync from here would start from and bring. Changes nothing.

use farside_engine::{Engine, VolumeName};
use farside_session::{PeerId, Refusal};

use super::choose::choose_base;
use super::prepare::rooted;
use super::{Shared, refusal, to_refusal};
use crate::error::{MirrorError, blocking};
use crate::protocol::convert::{self, CandidateBase};
use crate::protocol::{Compare, Comparison};

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
        let engine = self.engine.clone();
        blocking(move || compare(&*engine, &volume, &candidates)).await.map_err(to_refusal)
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
                "{volume} here is the replica of your {destination}: there is nothing to bring back. To change roles, run \
                 `mirror swap {volume}` here; to make {volume} writable, `mirror break {volume}` here"
            ),
        ))
    }
}

fn compare(
    engine: &dyn Engine,
    volume: &VolumeName,
    candidates: &[CandidateBase],
) -> Result<Comparison, MirrorError> {
    let info = engine.volume(volume)?;
    let snapshots = rooted(engine, volume)?;
    let base = choose_base(&snapshots, candidates)?;
    let ours = base.map(|base| &snapshots[base.index].info);
    let changed = ours.map(|ours| engine.changed_since(volume, ours.uuid)).transpose()?.unwrap_or_default();
    Ok(Comparison {
        base: base.map(|base| base.candidate.to_message()),
        base_name: ours.map(|ours| ours.name.clone()).unwrap_or_default(),
        base_created_at: ours.map_or(0, |ours| ours.created_at.0),
        data_bytes: changed.data_bytes,
        hole_bytes: changed.hole_bytes,
        is_replica: info.is_replica,
        size_bytes: info.size_bytes,
    })
}
