//! Which snapshot of a person's holds what a volume shows, before it shows something else.
//!
//! Whoever is told that a snapshot keeps what goes out of sight relies on it. So one that a timetable or retention lets go one day is
//! named to nobody: where it lies beside what comes, the engine makes a side branch of its own of the same content, which costs nothing.
//! Where it lies below what comes, the engine makes none, and it is taken out of the rotation for good. Blocking.

use farside_engine::{
    ChangedBytes, Engine, EngineError, SnapshotInfo, SnapshotOwner, SnapshotSpec, VolumeName,
};
use farside_platform::Timestamp;
use farside_transfer::bases::{RESCUE, kept_of, rotates};
use uuid::Uuid;

/// Keeps what a volume shows by the name that one command gives to what it sets aside of several, `rescue-` and the moment: each of
/// them can be gone back to by it, also one to which nothing was written, and one of which another snapshot holds all. Of that moment
/// the data is, too. None where there are no side branches, and so no groups.
///
/// # Errors
/// If it could not be taken.
pub fn keep_as_of(
    engine: &dyn Engine,
    volume: &VolumeName,
    moment: Timestamp,
    uuid: Uuid,
) -> Result<Option<SnapshotInfo>, EngineError> {
    if engine.branches(&volume.pool).is_none() {
        return Ok(None);
    }
    let spec = SnapshotSpec {
        name: format!("{RESCUE}-{moment}"),
        uuid,
        created_at: moment,
        owner: SnapshotOwner::Person,
        pin_for: None,
    };
    engine.take_snapshot(volume, &spec).map(Some)
}

/// A person's snapshot that holds all of what a volume shows.
#[derive(Clone, Debug)]
pub struct Holder {
    /// It.
    pub snapshot: SnapshotInfo,
    /// It would go one day by itself: it holds that for good only after [`keep_for_good`].
    pub rotates: bool,
}

/// The snapshot that holds what a volume shows once it shows, or is built upon, the snapshot `to`. None: a side branch will. `mirror`:
/// by which it follows from then on, or will once it follows again.
///
/// # Errors
/// If the volume cannot be looked at.
pub fn holder(
    engine: &dyn Engine,
    volume: &VolumeName,
    to: Uuid,
    mirror: Option<Uuid>,
) -> Result<Option<Holder>, EngineError> {
    let main_line = engine.snapshots(volume)?;
    let id = engine.volume(volume)?.uuid;
    let is_persons = |s: &&SnapshotInfo| s.owner == SnapshotOwner::Person;
    let is_rotating = |s: &SnapshotInfo| !s.held && rotates(id, mirror, s.pinned_by.iter().copied());
    let newest = |wanted: bool| main_line.iter().rev().filter(is_persons).find(|s| is_rotating(s) == wanted);
    if let Some(lasting) = newest(false)
        && engine.changed_since(volume, lasting.uuid)? == ChangedBytes::default()
    {
        return Ok(Some(Holder { snapshot: lasting.clone(), rotates: false }));
    }
    let Some(rotating) = newest(true) else { return Ok(None) };
    let at = |uuid: Uuid| main_line.iter().position(|s| s.uuid == uuid);
    let is_below = match engine.branches(&volume.pool) {
        Some(branches) => branches.fork(volume, to)?.and_then(at) >= at(rotating.uuid),
        // All there is lies on one line.
        None => true,
    };
    let holds = is_below && engine.changed_since(volume, rotating.uuid)? == ChangedBytes::default();
    Ok(holds.then(|| Holder { snapshot: rotating.clone(), rotates: true }))
}

/// Takes what holds it out of the rotation, if there is such a snapshot: from then on only a person deletes it. Before anything is
/// changed: what a crash leaves is a snapshot more than was needed.
///
/// # Errors
/// If that could not be done.
pub fn keep_for_good(
    engine: &dyn Engine,
    volume: &VolumeName,
    to: Uuid,
    mirror: Option<Uuid>,
) -> Result<Option<Holder>, EngineError> {
    if engine.changed_since(volume, to)? == ChangedBytes::default() {
        // Nothing goes out of sight.
        return Ok(None);
    }
    let holder = holder(engine, volume, to, mirror)?;
    if let Some(Holder { snapshot, rotates: true }) = &holder {
        for keeper in [Some(engine.volume(volume)?.uuid), mirror].into_iter().flatten().map(kept_of) {
            if snapshot.pinned_by.contains(&keeper) {
                engine.unpin(volume, snapshot.uuid, keeper)?;
            }
        }
        tracing::warn!(
            %volume, snapshot = snapshot.name,
            "what {volume} shows goes out of sight and stays as {volume}@{}, which rotates no more: only a person deletes it",
            snapshot.name
        );
    }
    Ok(holder)
}
