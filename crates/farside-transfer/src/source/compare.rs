//! What a resync from here would start from and bring. Blocking; call from a blocking thread.

use farside_engine::{
    ChangeKind, ChangedBytes, Engine, EngineError, SnapshotOwner, SnapshotSpec, VolumeName,
};
use farside_platform::Clock;
use uuid::Uuid;

use super::choose::{Base, Rooted, choose_base, travelling};
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
    let changed = base.map(|base| brought(engine, volume, &line, &base)).transpose()?.unwrap_or_default();
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
        base_is_beside: base.is_some_and(|base| base.is_beside),
    })
}

/// What travels from `base` on: each snapshot in between that does, and what the volume shows then. What comes and goes again between
/// two of them travels, though in the end nothing differs.
fn brought(
    engine: &dyn Engine,
    volume: &VolumeName,
    line: &[Rooted],
    base: &Base<'_>,
) -> Result<ChangedBytes, TransferError> {
    let mut sum = ChangedBytes::default();
    let mut from = base.rooted;
    for to in travelling(line, Some(base), None) {
        if to.root != from.root || to.info.size_bytes != from.info.size_bytes {
            for extent in engine.changed_extents(volume, Some(from.info.uuid), to.info.uuid)? {
                let extent = extent?;
                match extent.kind {
                    ChangeKind::Data => sum.data_bytes += extent.changed,
                    ChangeKind::Hole => sum.hole_bytes += extent.changed,
                }
            }
        }
        from = to;
    }
    let last = engine.changed_since(volume, from.info.uuid)?;
    Ok(ChangedBytes {
        data_bytes: sum.data_bytes + last.data_bytes,
        hole_bytes: sum.hole_bytes + last.hole_bytes,
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

#[cfg(test)]
mod tests {
    use farside_engine::BLOCK_BYTES;
    use farside_engine::memory::{MemoryEngine, MemoryOptions};
    use farside_platform::{ManualClock, Timestamp};

    use super::*;

    #[test]
    fn what_came_and_went_between_two_snapshots_travels_and_is_told() {
        let engine = MemoryEngine::new(MemoryOptions::default());
        let volume: VolumeName = "p/v".parse().unwrap();
        let (clock, relationship) = (ManualClock::new(Timestamp(1_000)), Uuid::from_u128(7));
        engine.create_volume(&volume, 64 * BLOCK_BYTES).unwrap();
        let write =
            |stamp: u8| engine.write_as_host(&volume, 0, &vec![stamp; 2 * BLOCK_BYTES as usize]).unwrap();
        let snapshot = |name: &str, number: u128, owner: SnapshotOwner| {
            let spec = SnapshotSpec {
                name: name.into(),
                uuid: Uuid::from_u128(number),
                created_at: Timestamp(number as u64),
                owner,
                pin_for: None,
            };
            engine.take_snapshot(&volume, &spec).unwrap()
        };
        write(1);
        let base = snapshot("base", 1, SnapshotOwner::Relationship(relationship));
        let candidate = CandidateBase {
            uuid: base.uuid,
            content_root: engine.content_root(&volume, base.uuid).unwrap(),
            size_bytes: base.size_bytes,
        };
        let bytes = || {
            let probe = Uuid::from_u128(99);
            compare(&engine, &clock, &volume, relationship, probe, &[candidate]).unwrap().data_bytes
        };
        assert_eq!(bytes(), 0);
        write(2);
        assert_eq!(bytes(), 2 * BLOCK_BYTES, "what the volume shows");
        snapshot("monday", 2, SnapshotOwner::Person);
        write(1);
        assert_eq!(bytes(), 4 * BLOCK_BYTES, "there, and back again");
        // What only a mirror took does not travel.
        engine.delete_snapshot(&volume, Uuid::from_u128(2)).unwrap();
        write(3);
        snapshot("mirror-1", 3, SnapshotOwner::Relationship(Uuid::from_u128(8)));
        write(1);
        assert_eq!(bytes(), 0);
    }
}
