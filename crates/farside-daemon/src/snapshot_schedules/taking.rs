//! Taking the snapshots of a timetable, and letting those go that its retention does not name.

use farside_api::ErrorBody;
use farside_mirror::retention::{KeptPoint, Retention, to_go};
use farside_platform::Timestamp;
use farside_store::{NewSnapshot, Pool, SnapshotStatus};
use farside_transfer::bases::kept_of;
use uuid::Uuid;

use super::document::{Entry, name_at};
use crate::failure::Failure;
use crate::pools::Pools;

/// What was taken.
pub(super) struct Taken {
    /// As the volumes are called now, that by which the timetable is known first.
    pub(super) volumes: Vec<String>,
    pub(super) snapshot: String,
}

/// How a volume is called now.
pub(super) fn name_of(pool: &Pool, volume: Uuid) -> Option<String> {
    pool.volumes().into_iter().find(|v| v.uuid == volume).map(|v| v.name)
}

/// The names of all volumes, if a snapshot of them can be taken. Asked before anything is frozen for it.
pub(super) fn look(pools: &Pools, entry: &Entry) -> Result<Vec<String>, ErrorBody> {
    let refused = |why: String| Err(ErrorBody::new(farside_api::ErrorCode::Refused, why));
    let pool = pools.get(&entry.pool)?;
    let names: Option<Vec<String>> = entry.volumes().map(|volume| name_of(&pool, volume)).collect();
    let Some(names) = names else {
        return refused("a volume of it is gone; farside snapshot schedule --off ends this".into());
    };
    for name in &names {
        let status = pool.volume(name).map_err(Failure::into_error_body)?;
        if status.replica.is_some_and(|replica| !replica.broken_off) {
            return refused(format!(
                "no snapshots are taken while {name} is a replica: what it shows has those of its source"
            ));
        }
    }
    Ok(names)
}

/// Takes one of each volume, all in one instant.
pub(super) fn take_now(
    pools: &Pools,
    entry: &Entry,
    at: Timestamp,
    is_consistent: bool,
) -> Result<Taken, ErrorBody> {
    let names = look(pools, entry)?;
    let pool = pools.get(&entry.pool)?;
    let mut taken = Vec::new();
    for name in &names {
        taken.extend(pool.snapshots(name).map_err(Failure::into_error_body)?.into_iter().map(|s| s.name));
    }
    let snapshot = name_at(at, is_consistent, |name| taken.iter().any(|taken| taken == name));
    let new = |(name, volume): (&String, Uuid)| {
        let new = NewSnapshot {
            name: snapshot.clone(),
            uuid: Uuid::new_v4(),
            created_at: at,
            relationship: None,
            pin_for: Some(kept_of(volume)),
        };
        (name.clone(), new)
    };
    let all: Vec<(String, NewSnapshot)> = names.iter().zip(entry.volumes()).map(new).collect();
    // One record: one instant, for all of them or none.
    pool.create_snapshots(&all).map_err(Failure::into_error_body)?;
    let volumes = names.into_iter().map(|name| format!("{}/{name}", entry.pool)).collect();
    Ok(Taken { volumes, snapshot })
}

/// What a volume has of timetables.
pub(super) fn kept(pool: &Pool, volume: Uuid) -> Vec<SnapshotStatus> {
    let all = name_of(pool, volume).and_then(|name| pool.snapshots(&name).ok()).unwrap_or_default();
    all.into_iter().filter(|s| s.pinned_by.contains(&kept_of(volume))).collect()
}

/// Leaves to a person what timetables have taken of a volume. Answers how many.
pub(super) fn leave(pool: &Pool, volume: Uuid) -> Result<u64, ErrorBody> {
    let Some(name) = name_of(pool, volume) else { return Ok(0) };
    let mut left = 0;
    for snapshot in kept(pool, volume) {
        pool.unpin_snapshot(&name, snapshot.uuid, kept_of(volume)).map_err(Failure::into_error_body)?;
        left += 1;
    }
    Ok(left)
}

/// Lets go what the retention does not name. Answers how many.
pub(super) fn rotate(pools: &Pools, entry: &Entry) -> Result<usize, ErrorBody> {
    let pool = pools.get(&entry.pool)?;
    let mut gone = 0;
    for volume in entry.volumes() {
        gone += rotate_one(&pool, volume, entry)?;
    }
    Ok(gone)
}

/// Only a timetable keeps it.
fn is_free(snapshot: &SnapshotStatus, keeper: Uuid) -> bool {
    !snapshot.held && snapshot.pinned_by == [keeper]
}

/// Which points of a volume another retention would let go, oldest first, with the moment of each, and how many there are.
pub(super) fn would_let_go(
    pool: &Pool,
    volume: Uuid,
    retention: &Retention,
) -> (Vec<(String, Timestamp)>, usize) {
    let Some(name) = name_of(pool, volume) else { return (Vec::new(), 0) };
    let mut kept = kept(pool, volume);
    kept.sort_by_key(|s| s.sequence);
    let due = to_go(&kept.iter().map(point).collect::<Vec<_>>(), retention);
    let goes = |s: &&SnapshotStatus| due.contains(&s.uuid) && is_free(s, kept_of(volume));
    let gone = kept.iter().filter(goes).map(|s| (format!("{name}@{}", s.name), s.created_at)).collect();
    (gone, kept.len())
}

fn point(snapshot: &SnapshotStatus) -> KeptPoint {
    KeptPoint { snapshot: snapshot.uuid, at: snapshot.created_at, noted_at: snapshot.created_at }
}

fn rotate_one(pool: &Pool, volume: Uuid, entry: &Entry) -> Result<usize, ErrorBody> {
    let Some(name) = name_of(pool, volume) else { return Ok(0) };
    let (name, keeper) = (&*name, kept_of(volume));
    let mut kept = kept(pool, volume);
    kept.sort_by_key(|s| s.sequence);
    let points: Vec<KeptPoint> = kept.iter().map(point).collect();
    let mut gone = 0;
    for uuid in to_go(&points, &entry.retention) {
        // Held, or a transfer needs it: the next time.
        if !kept.iter().any(|s| s.uuid == uuid && is_free(s, keeper)) {
            continue;
        }
        pool.unpin_snapshot(name, uuid, keeper).map_err(Failure::into_error_body)?;
        match pool.delete_snapshot(name, uuid) {
            Ok(()) => gone += 1,
            // Somebody came in between: it is this timetable's still.
            Err(_) => pool.pin_snapshot(name, uuid, keeper).map_err(Failure::into_error_body)?,
        }
    }
    Ok(gone)
}
