//! What a resync from here would start from and bring. Blocking; call from a blocking thread.

use farside_engine::{Engine, EngineError, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_platform::Clock;
use uuid::Uuid;

use super::choose::{Rooted, choose_base};
use super::prepare::{Snapshots, equal_content};
use crate::bases::{drop_left_probes, probe_name};
use crate::error::TransferError;
use crate::limits::GONE_ATTEMPTS;
use crate::protocol::Comparison;
use crate::protocol::convert::CandidateBase;

/// Compares `volume` as it is now with the nearest of its snapshots that is among `candidates`; if there is none, what it shows
/// with them. Changes nothing: for the latter a snapshot `probe` is taken for the relationship, and deleted. What whoever it was
/// kept for lets go of meanwhile is not chosen.
pub fn compare(
    engine: &dyn Engine,
    clock: &dyn Clock,
    volume: &VolumeName,
    relationship: Uuid,
    probe: Uuid,
    candidates: &[CandidateBase],
) -> Result<Comparison, TransferError> {
    for _ in 1..GONE_ATTEMPTS {
        match compare_once(engine, clock, volume, relationship, probe, candidates) {
            Err(TransferError::Engine(EngineError::NotFound { .. })) => {}
            compared => return compared,
        }
    }
    compare_once(engine, clock, volume, relationship, probe, candidates)
}

fn compare_once(
    engine: &dyn Engine,
    clock: &dyn Clock,
    volume: &VolumeName,
    relationship: Uuid,
    probe: Uuid,
    candidates: &[CandidateBase],
) -> Result<Comparison, TransferError> {
    let info = engine.volume(volume)?;
    let Snapshots { line, beside } = Snapshots::find(engine, volume, candidates)?;
    let base = choose_base(&line, &beside, candidates, true)?;
    let ours = base.map(|base| &base.rooted.info);
    let changed = ours.map(|ours| engine.changed_since(volume, ours.uuid)).transpose()?.unwrap_or_default();
    let shown = match base {
        None if !info.is_replica && !candidates.is_empty() => {
            equal_to_shown(engine, clock, volume, relationship, probe, candidates)?
        }
        _ => None,
    };
    let created_at = ours.map_or(0, |ours| ours.created_at.0);
    Ok(Comparison {
        base: base.map(|base| base.candidate).or(shown).map(CandidateBase::to_message),
        base_name: ours.map(|ours| ours.name.clone()).unwrap_or_default(),
        base_created_at: if shown.is_some() { clock.now().0 } else { created_at },
        data_bytes: changed.data_bytes,
        hole_bytes: changed.hole_bytes,
        is_replica: info.is_replica,
        size_bytes: info.size_bytes,
        newest: 0,
        follows: Vec::new(),
    })
}

/// Which of the candidates has the content that the volume shows now.
fn equal_to_shown(
    engine: &dyn Engine,
    clock: &dyn Clock,
    volume: &VolumeName,
    relationship: Uuid,
    probe: Uuid,
    candidates: &[CandidateBase],
) -> Result<Option<CandidateBase>, TransferError> {
    let spec = SnapshotSpec {
        name: probe_name(probe),
        uuid: probe,
        created_at: clock.now(),
        owner: SnapshotOwner::Relationship(relationship),
        pin_for: None,
    };
    drop_left_probes(engine, volume)?;
    let info = engine.take_snapshot(volume, &spec)?;
    let root = engine.content_root(volume, info.uuid);
    engine.delete_snapshot(volume, info.uuid)?;
    Ok(equal_content(&Rooted { info, root: root? }, candidates))
}
