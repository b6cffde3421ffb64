//! Bases in other volumes: what a destination offers of what it holds, found among what this site keeps for that very peer.
//!
//! A destination names identities of snapshots, nothing else. One counts if it is the base that this site keeps for another
//! mirror of the same peer, and the peer may read that volume: so it is content that both sides have compared by its root, and
//! nothing is learnt from a frame coded against it that was not sent before. It is kept for that mirror alone, as long as
//! that needs it: nothing is pinned here. Once that mirror has a newer base, the destination is told that this one is named no
//! more.

use std::sync::Arc;

use farside_engine::{Engine, EngineError, VolumeName};
use farside_peer::PeerId;
use farside_wire::{Origin, Region, SimilarityIndex};
use uuid::Uuid;

use super::relationships::KeptBase;
use super::serving::Serving;
use super::shared::Shared;
use super::similarity::VolumeIndex;
use crate::error::{TransferError, blocking};
use crate::limits::{CROSS_VOLUME_FRUITLESS_MAX, CROSS_VOLUME_RETRIED_EVERY};
use crate::protocol::short_identity;

/// What was offered, by number.
pub(crate) struct CrossVolume {
    shared: Arc<Shared>,
    peer: PeerId,
    bases: Vec<Option<CrossVolumeBase>>,
    /// Numbers of which the destination has not heard yet that they are not named (any more).
    withdrawn: Vec<u8>,
    /// Frames that were searched for.
    frames: u64,
}

struct CrossVolumeBase {
    relationship: Uuid,
    volume: VolumeName,
    snapshot: Uuid,
    index: Arc<VolumeIndex>,
    /// Frames in a row that resembled nothing of it.
    fruitless: u32,
}

impl CrossVolume {
    /// Those of what a destination `offered` that this site knows.
    pub(crate) async fn of(
        shared: &Arc<Shared>,
        serving: &Serving,
        offered: Vec<u64>,
    ) -> Result<CrossVolume, TransferError> {
        let (peer, own) = (serving.peer, serving.relationship);
        let mut of_peer = shared.relationships.bases_of(peer);
        of_peer.retain(|base| base.relationship != own);
        let within = shared.clone();
        blocking(move || {
            let known = |offered: &u64| {
                let is_offered = |base: &&KeptBase| short_identity(base.snapshot) == *offered;
                let KeptBase { relationship, volume, snapshot } = of_peer.iter().find(is_offered)?.clone();
                // What cannot be had here is done without; that mirror's own transfers say what is wrong with it.
                let info = within.engine.volume(&volume).ok()?;
                let index = within.indexes.of(info.uuid, info.size_bytes, true)?;
                Some(CrossVolumeBase { relationship, volume, snapshot, index, fruitless: 0 })
            };
            let bases: Vec<Option<CrossVolumeBase>> = offered.iter().map(known).collect();
            let unknown = (0..).zip(&bases).filter(|(_, base)| base.is_none());
            let withdrawn = unknown.map(|(number, _)| number).collect();
            Ok::<_, TransferError>(CrossVolume { shared: within, peer, bases, withdrawn, frames: 0 })
        })
        .await
    }

    /// Looks before a frame which of them still count. Answers the numbers of those that neither this frame nor a later one
    /// names, each once.
    pub(crate) fn look(&mut self) -> Vec<u8> {
        let mut gone = std::mem::take(&mut self.withdrawn);
        let (shared, peer) = (&self.shared, self.peer);
        for (number, base) in (0..).zip(&mut self.bases) {
            let is_over = |base: &mut CrossVolumeBase| {
                let kept = shared.relationships.base_of(base.relationship);
                kept != Some(base.snapshot) || !shared.relationships.may_read(peer, &base.volume)
            };
            if base.take_if(is_over).is_some() {
                gone.push(number);
            }
        }
        gone
    }

    /// Shows `look` the index of each that is worth it: of one that many frames in a row resembled nothing of, now and then.
    pub(crate) fn indexes(&self, look: &mut dyn FnMut(Origin, &SimilarityIndex)) {
        for (number, base) in (0..).zip(&self.bases) {
            let Some(base) = base else { continue };
            let is_due = (self.frames + u64::from(number)).is_multiple_of(CROSS_VOLUME_RETRIED_EVERY);
            if base.fruitless < CROSS_VOLUME_FRUITLESS_MAX || is_due {
                base.index.read(|index| look(Origin::Other(number), index));
            }
        }
    }

    /// What came of the search for a frame.
    pub(crate) fn searched(&mut self, found: &[Region]) {
        self.frames += 1;
        for (number, base) in (0..).zip(&mut self.bases) {
            let Some(base) = base else { continue };
            let is_like = found.iter().any(|region| region.origin == Origin::Other(number));
            base.fruitless = if is_like { 0 } else { base.fruitless.saturating_add(1) };
        }
    }

    /// Reads of one of them. What was withdrawn, by a check or since the last, reads as zeros, which a prefix leaves out: a search
    /// remembers for a while what it has read.
    pub(crate) fn read(
        &self,
        engine: &dyn Engine,
        number: u8,
        ranges: &[(u64, u64)],
        buffer: &mut [u8],
    ) -> Result<(), String> {
        let Some(base) = self.bases.get(usize::from(number)).and_then(Option::as_ref) else {
            buffer.fill(0);
            return Ok(());
        };
        match engine.read_snapshot_ranges(&base.volume, base.snapshot, ranges, buffer) {
            Ok(()) => Ok(()),
            Err(EngineError::NotFound { .. }) => {
                buffer.fill(0);
                Ok(())
            }
            Err(error) => Err(format!("{}: {error}", base.volume)),
        }
    }
}
