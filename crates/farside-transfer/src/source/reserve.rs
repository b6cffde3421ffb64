//! Snapshots that are taken before their transfers begin: of an update that waits for its turn, and of a group. Blocking; call from a
//! blocking thread.

use farside_engine::{Engine, SnapshotInfo, SnapshotSpec, VolumeName};
use farside_platform::Clock;
use uuid::Uuid;

use super::prepare::incremental_spec;
use crate::error::TransferError;
use crate::protocol::group::{GroupMoment, NO_ONE_MOMENT, Reservation};

/// Takes a snapshot for a transfer that waits at its destination for its turn: pinned as its incremental will be.
///
/// # Errors
/// If the volume is a replica, which takes no snapshots of its own, or the engine refuses.
pub fn reserve(
    engine: &dyn Engine,
    clock: &dyn Clock,
    volume: &VolumeName,
    relationship: Uuid,
    transfer: Uuid,
) -> Result<(), TransferError> {
    if engine.volume(volume)?.is_replica {
        return Err(TransferError::State(format!("{volume} at the source is itself a replica")));
    }
    engine.take_snapshot(volume, &incremental_spec(clock, relationship, transfer))?;
    Ok(())
}

/// Takes snapshots of several volumes in one moment, each as [`reserve`] does; of replicas it names what they show. Answers the
/// moment of each, in the order of `of`. What of a replica is named is pinned.
///
/// # Errors
/// If some of the volumes are replicas and others are not, if what replicas show is not of one moment, or the engine refuses. Then
/// nothing was taken.
pub fn reserve_together(
    engine: &dyn Engine,
    clock: &dyn Clock,
    of: &[Reservation],
) -> Result<Vec<GroupMoment>, TransferError> {
    let mut replicas = Vec::new();
    for member in of {
        replicas.extend(engine.volume(&member.volume)?.is_replica.then_some(member));
    }
    if replicas.is_empty() {
        let now = clock.now();
        let spec = |r: &Reservation| SnapshotSpec {
            created_at: now,
            ..incremental_spec(clock, r.relationship, r.transfer)
        };
        let wanted: Vec<_> = of.iter().map(|r| (r.volume.clone(), spec(r))).collect();
        let Some(first) = of.first() else { return Ok(Vec::new()) };
        let together = engine.need_together(&first.volume.pool, NO_ONE_MOMENT)?;
        let taken = together.take_snapshots(&wanted)?;
        return Ok(taken
            .iter()
            .map(|s| GroupMoment { snapshot: s.uuid, created_at: s.created_at })
            .collect());
    }
    let split = |why: String| Err(TransferError::State(format!("{why}. Nothing was changed")));
    if replicas.len() < of.len() {
        return split("at the source some volumes of the group are replicas and others are not".into());
    }
    let mut moments: Vec<GroupMoment> = Vec::with_capacity(of.len());
    for Reservation { volume, .. } in of {
        let record = engine.replica_record(volume)?;
        let shows = |s: &SnapshotInfo| record.as_ref().is_some_and(|r| s.pinned_by.contains(&r.relationship));
        let Some(shown) = engine.snapshots(volume)?.into_iter().rev().find(shows) else {
            return split(format!("{volume} at the source is itself a replica and holds no version yet"));
        };
        if let Some(first) = moments.first().filter(|first| first.created_at != shown.created_at) {
            return split(format!(
                "the volumes of the group are replicas at the source, and do not show one moment there ({volume} shows {}, {} \
                 {}). At the source, farside mirror set --group puts them into a group",
                shown.created_at, of[0].volume, first.created_at
            ));
        }
        moments.push(GroupMoment { snapshot: shown.uuid, created_at: shown.created_at });
    }
    for (member, moment) in of.iter().zip(&moments) {
        engine.pin(&member.volume, moment.snapshot, member.relationship)?;
    }
    Ok(moments)
}
