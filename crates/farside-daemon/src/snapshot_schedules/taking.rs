//! Taking the snapshots of a timetable, and letting those go that its retention does not name: of any engine.

use farside_api::{ErrorBody, ErrorCode};
use farside_engine::{Engine, EngineError, SnapshotInfo, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_mirror::retention::{KeptPoint, Retention, to_go};
use farside_platform::Timestamp;
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

/// How a volume is called now. What it was called last is asked first: a cluster is not searched each time.
pub(super) fn name_of(
    engine: &dyn Engine,
    pool: &str,
    volume: Uuid,
    last: &str,
) -> Result<Option<VolumeName>, EngineError> {
    let is_it = |name: &VolumeName| match engine.volume(name) {
        Ok(info) => Ok(info.uuid == volume),
        Err(EngineError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    };
    if let Ok(name) = last.parse::<VolumeName>()
        && name.pool == pool
        && is_it(&name)?
    {
        return Ok(Some(name));
    }
    for name in engine.volumes_of(pool)? {
        if is_it(&name)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Why a timetable takes nothing and is well: all of its volumes are replicas. What cannot be told is not so.
pub(super) fn rests(pools: &Pools, entry: &Entry) -> Result<Option<String>, ErrorBody> {
    if pools.not_open(&entry.pool).is_some() {
        return Ok(None);
    }
    let engine = pools.engine();
    for (volume, last) in entry.volumes().zip(entry.names()) {
        let name = name_of(&*engine, &entry.pool, volume, &last).map_err(Failure::into_error_body)?;
        let Some(name) = name else { return Ok(None) };
        if !engine.volume(&name).map_err(Failure::into_error_body)?.is_replica {
            return Ok(None);
        }
    }
    let names = entry.names();
    Ok(Some(format!(
        "it rests while {} {}: what {} has the snapshots of {} source; it goes on by itself once hosts may write here",
        names.join(", "),
        if names.len() == 1 { "is a replica" } else { "are replicas" },
        if names.len() == 1 { "that shows" } else { "these show" },
        if names.len() == 1 { "its" } else { "their" },
    )))
}

/// What the volumes of a timetable are called now, which is not what they were called at its last tick; none if that cannot be told.
pub(super) fn names_now(pools: &Pools, entry: &Entry) -> Result<Option<Vec<String>>, ErrorBody> {
    if pools.not_open(&entry.pool).is_some() {
        return Ok(None);
    }
    let engine = pools.engine();
    let now = |(volume, last): (Uuid, String)| {
        let name = name_of(&*engine, &entry.pool, volume, &last).map_err(Failure::into_error_body)?;
        Ok(name.map_or(last, |name| name.to_string()))
    };
    entry.volumes().zip(entry.names()).map(now).collect::<Result<Vec<String>, ErrorBody>>().map(Some)
}

/// The names of all volumes, if a snapshot of them can be taken. Asked before anything is frozen for it.
pub(super) fn look(pools: &Pools, entry: &Entry) -> Result<Vec<VolumeName>, ErrorBody> {
    let refused = |why: String| Err(ErrorBody::new(ErrorCode::Refused, why));
    if let Some(why) = pools.not_open(&entry.pool) {
        return Err(why);
    }
    let engine = pools.engine();
    let mut names = Vec::new();
    for (volume, last) in entry.volumes().zip(entry.names()) {
        let name = name_of(&*engine, &entry.pool, volume, &last).map_err(Failure::into_error_body)?;
        let Some(name) = name else {
            return refused("a volume of it is gone; farside snapshot schedule --off ends this".into());
        };
        if engine.volume(&name).map_err(Failure::into_error_body)?.is_replica {
            return refused(format!(
                "no snapshots are taken while {} is a replica: what it shows has those of its source",
                name.volume
            ));
        }
        names.push(name);
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
    let engine = pools.engine();
    let mut taken = Vec::new();
    for name in &names {
        let all = engine.all_snapshots(name).map_err(Failure::into_error_body)?;
        taken.extend(all.into_iter().map(|s| s.name));
    }
    let snapshot = name_at(at, is_consistent, |name| taken.iter().any(|taken| taken == name));
    let spec = |(name, volume): (&VolumeName, Uuid)| {
        let spec = SnapshotSpec {
            name: snapshot.clone(),
            uuid: Uuid::new_v4(),
            created_at: at,
            owner: SnapshotOwner::Person,
            pin_for: Some(kept_of(volume)),
        };
        (name.clone(), spec)
    };
    let all: Vec<(VolumeName, SnapshotSpec)> = names.iter().zip(entry.volumes()).map(spec).collect();
    let done = match &all[..] {
        [(name, spec)] => engine.take_snapshot(name, spec).map(drop),
        // One record: one instant, for all of them or none.
        _ => engine
            .need_together(&entry.pool, "no snapshot was taken of the volumes of a timetable")
            .and_then(|together| together.take_snapshots(&all))
            .map(drop),
    };
    done.map_err(Failure::into_error_body)?;
    Ok(Taken { volumes: names.iter().map(ToString::to_string).collect(), snapshot })
}

/// What a volume has of timetables.
pub(super) fn kept(
    engine: &dyn Engine,
    name: &VolumeName,
    volume: Uuid,
) -> Result<Vec<SnapshotInfo>, EngineError> {
    let mut all = engine.all_snapshots(name)?;
    all.retain(|s| s.pinned_by.contains(&kept_of(volume)));
    Ok(all)
}

/// How many snapshots the volumes of a timetable have of it.
pub(super) fn count(engine: &dyn Engine, entry: &Entry) -> Result<u64, EngineError> {
    let mut points = 0;
    for (volume, last) in entry.volumes().zip(entry.names()) {
        if let Some(name) = name_of(engine, &entry.pool, volume, &last)? {
            points += kept(engine, &name, volume)?.len() as u64;
        }
    }
    Ok(points)
}

/// Leaves to a person what timetables have taken of a volume. Answers how many.
pub(super) fn leave(engine: &dyn Engine, name: &VolumeName, volume: Uuid) -> Result<u64, EngineError> {
    let mut left = 0;
    for snapshot in kept(engine, name, volume)? {
        engine.unpin(name, snapshot.uuid, kept_of(volume))?;
        left += 1;
    }
    Ok(left)
}

/// The same of those volumes of a pool that are still there.
pub(super) fn leave_all(
    engine: &dyn Engine,
    pool: &str,
    volumes: &[(Uuid, String)],
) -> Result<u64, EngineError> {
    let mut left = 0;
    for (volume, last) in volumes {
        if let Some(name) = name_of(engine, pool, *volume, last)? {
            left += leave(engine, &name, *volume)?;
        }
    }
    Ok(left)
}

/// Lets go what the retention does not name. Answers how many went, and how many there are now.
pub(super) fn rotate(pools: &Pools, entry: &Entry) -> Result<(usize, u64), EngineError> {
    let engine = pools.engine();
    let (mut gone, mut points) = (0, 0);
    for (volume, last) in entry.volumes().zip(entry.names()) {
        if let Some(name) = name_of(&*engine, &entry.pool, volume, &last)? {
            let (went, stay) = rotate_one(&*engine, &name, volume, entry)?;
            gone += went;
            points += stay;
        }
    }
    Ok((gone, points))
}

/// Only a timetable keeps it.
fn is_free(snapshot: &SnapshotInfo, keeper: Uuid) -> bool {
    !snapshot.held && snapshot.pinned_by == [keeper]
}

/// Which points of a volume another retention would let go, oldest first: each `POOL/VOL@SNAPSHOT` with its moment. And how many points it has.
pub(super) fn would_let_go(
    engine: &dyn Engine,
    entry: &Entry,
    (volume, last): (Uuid, &str),
    retention: &Retention,
) -> Result<(Vec<(String, Timestamp)>, usize), EngineError> {
    let Some(name) = name_of(engine, &entry.pool, volume, last)? else { return Ok((Vec::new(), 0)) };
    let mut kept = kept(engine, &name, volume)?;
    kept.sort_by_key(|s| s.sequence);
    let due = to_go(&kept.iter().map(point).collect::<Vec<_>>(), retention);
    let goes = |s: &&SnapshotInfo| due.contains(&s.uuid) && is_free(s, kept_of(volume));
    let gone = kept.iter().filter(goes).map(|s| (format!("{name}@{}", s.name), s.created_at)).collect();
    Ok((gone, kept.len()))
}

fn point(snapshot: &SnapshotInfo) -> KeptPoint {
    KeptPoint { snapshot: snapshot.uuid, at: snapshot.created_at, noted_at: snapshot.created_at }
}

fn rotate_one(
    engine: &dyn Engine,
    name: &VolumeName,
    volume: Uuid,
    entry: &Entry,
) -> Result<(usize, u64), EngineError> {
    let keeper = kept_of(volume);
    let mut kept = kept(engine, name, volume)?;
    kept.sort_by_key(|s| s.sequence);
    let points: Vec<KeptPoint> = kept.iter().map(point).collect();
    let mut gone = 0;
    for uuid in to_go(&points, &entry.retention) {
        // Held, or a transfer needs it: the next time.
        if !kept.iter().any(|s| s.uuid == uuid && is_free(s, keeper)) {
            continue;
        }
        engine.unpin(name, uuid, keeper)?;
        match engine.delete_snapshot(name, uuid) {
            Ok(()) => gone += 1,
            // Somebody came in between: it is this timetable's still.
            Err(_) => engine.pin(name, uuid, keeper)?,
        }
    }
    Ok((gone, (kept.len() - gone) as u64))
}
