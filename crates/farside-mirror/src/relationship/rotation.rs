//! Lets go what the retention of a replica does not name any more. What decides is pure ([`retention`](crate::retention)).
//!
//! What retention keeps is pinned by [`kept_of`] the relationship, in the pool; the moments for which the points count are in the state
//! database. Where that was lost a point counts for the moment of its data. A crash anywhere in between costs nothing: what is
//! pinned and not noted is noted next time, and what is a mirror's without a pin goes with the next transfer.

use std::collections::HashMap;
use std::sync::Arc;

use farside_engine::{Engine, EngineError, SnapshotInfo, SnapshotOwner, VolumeName};
use farside_platform::Timestamp;
use farside_transfer::bases::{KEPT, is_of_timetable, kept_of, leave_kept, rescue_moment};
use uuid::Uuid;

use super::command::Parts;
use super::driver::Driver;
use crate::error::{MirrorError, blocking};
use crate::retention::{KeptPoint, Retention, counts_for, to_go};
use crate::store::Relationship;

impl Driver {
    /// Another retention from now on. With none, what was kept becomes a person's: nothing goes by itself.
    pub(super) async fn set_retention(&mut self, retention: Retention) -> Result<(), MirrorError> {
        let changed = Relationship { retention, ..self.relationship.clone() };
        self.parts.store.save(&changed).await?;
        self.relationship = changed;
        self.end_rotation().await;
        if !retention.is_none() {
            self.rotate();
            return Ok(());
        }
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let id = self.relationship.id;
        let left = blocking(move || Ok::<_, MirrorError>(leave_kept(&*engine, &volume, id)?)).await?;
        if left > 0 {
            tracing::info!(
                relationship = %id, volume = %self.relationship.destination, points = left,
                "retention has ended: what it kept stays until a person deletes it"
            );
        }
        self.forget_points().await;
        Ok(())
    }

    /// Begins to let go what is due. Nobody waits for it; one that is under way does it.
    pub(super) fn rotate(&mut self) {
        if self.relationship.retention.is_none() || self.rotation.as_ref().is_some_and(|r| !r.is_finished()) {
            return;
        }
        let (parts, relationship) = (self.parts.clone(), self.relationship.clone());
        self.rotation = Some(tokio::spawn(async move {
            match rotate(&parts, &relationship).await {
                Ok(0) => {}
                // With each update, as a rule: what it says would push what is worth keeping out of a support bundle.
                Ok(gone) => tracing::debug!(
                    relationship = %relationship.id, volume = %relationship.destination, points = gone,
                    "retention ({}) has let points go", relationship.retention
                ),
                Err(error) => tracing::warn!(
                    relationship = %relationship.id, volume = %relationship.destination,
                    "retention could not let go what is due; it is tried again after the next update, and nothing else is \
                     affected: {error}"
                ),
            }
        }));
    }

    /// Waits for what lets go: after this nothing that is a person's by now goes.
    pub(super) async fn end_rotation(&mut self) {
        if let Some(rotation) = self.rotation.take() {
            // An error is a panic, which its own line tells.
            let _ = rotation.await;
        }
    }

    /// The moments of points that nothing keeps any more.
    pub(super) async fn forget_points(&self) {
        if let Err(error) = self.parts.store.forget_all_kept(self.relationship.id).await {
            tracing::debug!(relationship = %self.relationship.id, "moments of points stay in the state database: {error}");
        }
    }
}

/// Answers how many went.
async fn rotate(parts: &Parts, relationship: &Relationship) -> Result<usize, MirrorError> {
    let (engine, volume, id) = (parts.engine.clone(), relationship.destination.clone(), relationship.id);
    let live = blocking(move || Ok::<_, MirrorError>(kept(&*engine, &volume, id)?)).await?;
    let known = parts.store.kept_points(id).await?;
    let (points, noted) = note(&live, &known, parts.clock.now());
    if !noted.is_empty() {
        parts.store.note_kept(id, &noted).await?;
    }
    let due = to_go(&points, &relationship.retention);
    let (engine, volume) = (parts.engine.clone(), relationship.destination.clone());
    let gone = match due.is_empty() {
        true => Vec::new(),
        false => blocking(move || let_go(&engine, &volume, id, &due)).await?,
    };
    let is_left = |point: &&KeptPoint| !live.iter().any(|s| s.uuid == point.snapshot);
    let absent = known.iter().filter(is_left).map(|point| point.snapshot);
    let forgotten: Vec<Uuid> = gone.iter().copied().chain(absent).collect();
    if !forgotten.is_empty() {
        parts.store.forget_kept(id, &forgotten).await?;
    }
    Ok(gone.len())
}

/// What another retention would let go of what is kept by now, oldest first, and how many points there are. What is held, or needed
/// for something else, stays.
pub(super) async fn would_let_go(
    parts: &Parts,
    relationship: &Relationship,
    retention: &Retention,
) -> Result<(Vec<SnapshotInfo>, usize), MirrorError> {
    let (engine, volume, id) = (parts.engine.clone(), relationship.destination.clone(), relationship.id);
    let live = blocking(move || Ok::<_, MirrorError>(kept(&*engine, &volume, id)?)).await?;
    let (points, _) = note(&live, &parts.store.kept_points(id).await?, parts.clock.now());
    let (keeper, count) = (kept_of(id), live.len());
    if retention.is_none() {
        return Ok((Vec::new(), count));
    }
    let due = to_go(&points, retention);
    let goes = |s: &SnapshotInfo| {
        due.contains(&s.uuid) && !s.held && s.pinned_by == [keeper] && rescue_moment(&s.name).is_none()
    };
    Ok((live.into_iter().filter(goes).collect(), count))
}

/// What a retention lets go as soon as the volume follows again, oldest first, and how many points there are: as
/// [`would_let_go`], with the one point that a resync brings at least, and without the bases that it needs no more then. `stays` is
/// out of the rotation by then.
pub(crate) async fn would_let_go_then(
    parts: &Parts,
    relationship: &Relationship,
    retention: &Retention,
    stays: Option<Uuid>,
    comes: usize,
) -> Result<(Vec<SnapshotInfo>, usize), MirrorError> {
    let (engine, volume, id) = (parts.engine.clone(), relationship.destination.clone(), relationship.id);
    let mut live = blocking(move || Ok::<_, MirrorError>(kept(&*engine, &volume, id)?)).await?;
    live.retain(|s| Some(s.uuid) != stays);
    let known = parts.store.kept_points(id).await?;
    Ok((goes_then(&live, &known, id, retention, parts.clock.now(), comes), live.len()))
}

fn goes_then(
    live: &[SnapshotInfo],
    known: &[KeptPoint],
    id: Uuid,
    retention: &Retention,
    now: Timestamp,
    comes: usize,
) -> Vec<SnapshotInfo> {
    if retention.is_none() {
        return Vec::new();
    }
    let (mut points, _) = note(live, known, now);
    let coming = (0..comes as u64).map(|at| Timestamp(now.0.saturating_add(at)));
    points.extend(coming.zip(0..).map(|(at, number)| KeptPoint {
        snapshot: Uuid::from_u128(u128::MAX - number),
        at,
        noted_at: at,
    }));
    let due = to_go(&points, retention);
    let own = [id, kept_of(id)];
    let goes = |s: &&SnapshotInfo| {
        let is_free = !s.held && s.pinned_by.iter().all(|pin| own.contains(pin));
        due.contains(&s.uuid) && is_free && rescue_moment(&s.name).is_none()
    };
    live.iter().filter(goes).cloned().collect()
}

/// What retention keeps, in the order in which it came.
pub(crate) fn kept(
    engine: &dyn Engine,
    volume: &VolumeName,
    relationship: Uuid,
) -> Result<Vec<SnapshotInfo>, EngineError> {
    let keeper = kept_of(relationship);
    let mut kept = engine.all_snapshots(volume)?;
    kept.retain(|s| s.pinned_by.contains(&keeper));
    kept.sort_by_key(|s| s.sequence);
    Ok(kept)
}

/// The points with their moments, and those that are new. They count in the order in which they came, whatever their source says.
pub(crate) fn note(
    live: &[SnapshotInfo],
    known: &[KeptPoint],
    now: Timestamp,
) -> (Vec<KeptPoint>, Vec<KeptPoint>) {
    let known: HashMap<Uuid, KeptPoint> = known.iter().map(|point| (point.snapshot, *point)).collect();
    let (mut points, mut noted) = (Vec::with_capacity(live.len()), Vec::new());
    let mut before = None;
    for snapshot in live {
        let point = match known.get(&snapshot.uuid) {
            Some(point) => {
                before = Some(point.noted_at);
                *point
            }
            None => {
                let at = counts_for(snapshot.created_at, before, now);
                before = Some(at);
                let point = KeptPoint { snapshot: snapshot.uuid, at, noted_at: now };
                noted.push(point);
                point
            }
        };
        points.push(point);
    }
    (points, noted)
}

/// Lets points go that nobody else needs. Answers which are gone.
fn let_go(
    engine: &Arc<dyn Engine>,
    volume: &VolumeName,
    relationship: Uuid,
    due: &[Uuid],
) -> Result<Vec<Uuid>, MirrorError> {
    let keeper = kept_of(relationship);
    let mut gone = Vec::new();
    for uuid in due {
        // A person who breaks the replica off may want any of them: from that moment on nothing goes.
        let record = engine.replica_record(volume)?;
        if record.is_none_or(|record| record.relationship != relationship || record.broken_off) {
            break;
        }
        let found = engine.all_snapshots(volume)?.into_iter().find(|s| s.uuid == *uuid);
        let Some(found) = found else { continue };
        // Held, or a base: it is asked again after the next update.
        if found.held || found.pinned_by != [keeper] {
            continue;
        }
        if rescue_moment(&found.name).is_some() {
            // What a source left behind stays as long as other rescues do.
            engine.unpin(volume, *uuid, keeper)?;
            gone.push(*uuid);
            continue;
        }
        if found.owner == SnapshotOwner::Person {
            // A crash after the next step then leaves what a transfer clears up, not a person's snapshot.
            engine.hand_over(volume, *uuid, SnapshotOwner::Relationship(relationship), KEPT, None)?;
        }
        engine.unpin(volume, *uuid, keeper)?;
        match engine.delete_snapshot(volume, *uuid) {
            Ok(()) | Err(EngineError::NotFound { .. }) => {
                // A person may look for it one day; what a mirror or a timetable took goes by the thousand.
                if found.owner == SnapshotOwner::Person && !is_of_timetable(&found.name) {
                    tracing::info!(
                        %volume, snapshot = found.name,
                        "retention has let go {volume}@{}, which a person made at the source; farside snapshot hold keeps such a point",
                        found.name
                    );
                }
                gone.push(*uuid);
            }
            Err(EngineError::Refused(reason)) => {
                engine.pin(volume, *uuid, keeper)?;
                tracing::debug!(%volume, snapshot = found.name, "a point stays for now: {reason}");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(number: u64, name: &str, pins: &[Uuid]) -> SnapshotInfo {
        SnapshotInfo {
            name: name.to_owned(),
            uuid: Uuid::from_u128(u128::from(number)),
            created_at: Timestamp(number),
            size_bytes: 4096,
            owner: SnapshotOwner::Person,
            held: false,
            pinned_by: pins.to_vec(),
            sequence: number,
        }
    }

    #[test]
    fn what_goes_once_it_follows_again_counts_the_point_that_comes_and_needs_no_old_base() {
        let (id, other) = (Uuid::from_u128(77), Uuid::from_u128(78));
        let keeper = kept_of(id);
        let held = SnapshotInfo { held: true, ..point(1, "held", &[keeper]) };
        let live = [
            held,
            point(2, "rescue-2027-01-15T08:00:00Z", &[keeper]),
            point(3, "for-another", &[keeper, other]),
            point(4, "before-upgrade", &[keeper]),
            point(5, "base", &[keeper, id]),
            point(6, "newest", &[keeper]),
        ];
        let named = |keep: &str, comes| -> Vec<String> {
            let retention = keep.parse().unwrap();
            goes_then(&live, &[], id, &retention, Timestamp(9), comes).into_iter().map(|s| s.name).collect()
        };
        assert_eq!(named("last=2", 1), ["before-upgrade", "base"]);
        assert_eq!(named("last=1", 1), ["before-upgrade", "base", "newest"]);
        assert!(named("last=6", 1).is_empty() && named("none", 2).is_empty());
        // A group that follows as one is updated once more.
        assert_eq!(named("last=3", 2), named("last=2", 1));
    }
}
