//! What a resync from here would start from and bring. Blocking; call from a blocking thread.

use farside_engine::{Engine, VolumeName};

use super::choose::choose_base;
use super::prepare::rooted;
use crate::error::TransferError;
use crate::protocol::Comparison;
use crate::protocol::convert::CandidateBase;

/// Compares `volume` as it is now with the newest of its snapshots that is among `candidates`. Changes nothing.
pub fn compare(
    engine: &dyn Engine,
    volume: &VolumeName,
    candidates: &[CandidateBase],
) -> Result<Comparison, TransferError> {
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
        newest: 0,
        follows: Vec::new(),
    })
}
