//! What the pool says of a replica: the part of a mirror's state that survives everything.

use farside_engine::{ChangedBytes, Engine, ReplicaRecord, SnapshotInfo, SnapshotOwner, VolumeName};
use farside_platform::Timestamp;
use farside_transfer::bases::kept_of;
use uuid::Uuid;

use super::status::{Published, WentOnFrom};
use crate::error::MirrorError;
use crate::rescues;
use crate::set_back::{PoolShows, is_set_back};
use crate::store::{Relationship, SwapMark};

/// What the pool says of a replica.
pub(super) struct Found {
    pub(super) initialized: bool,
    pub(super) broken_off: bool,
    /// Broken off by a role change, of which the row does not say yet that it has come so far: the version it shows is
    /// pinned for the reverse mirror. Only where it is there does this pin say anything: it may be released any time.
    pub(super) is_taken_over: bool,
    /// To follow its source, but shows what hosts have made of it: a resync that has brought nothing yet.
    pub(super) shows_own_writes: bool,
    /// It shows the last snapshot of a role change that is not over, as far as the pool knows, and the row does not say
    /// so: the database was lost meanwhile. The relationship that was to end.
    pub(super) forgotten_fence: Option<Uuid>,
    pub(super) current: Option<Published>,
    /// Of one that is broken off: the point that hosts went on from.
    pub(super) went_on_from: Option<WentOnFrom>,
    /// Name of the snapshot that has what it showed before the resync by which it follows, or followed last.
    pub(super) left_as: Option<String>,
    /// What the volume's earlier content became: side branches, and what the source left behind, which may lie below what came next.
    pub(super) rescues: Vec<(Uuid, String)>,
}

/// What asking the pool came to.
pub(super) enum Inspected {
    /// It knows the replica.
    Found(Box<Found>),
    /// It was set back to before the volume became one.
    SetBack,
}

/// Asks the pool. An error means that nothing is known: the replica must not be touched.
pub(super) fn inspect(engine: &dyn Engine, relationship: &Relationship) -> Result<Inspected, MirrorError> {
    let volume = &relationship.destination;
    let record = engine.replica_record(volume)?;
    let broken_off = match &record {
        Some(record) if record.relationship == relationship.id => record.broken_off,
        record if is_set_back(relationship, shows(record.as_ref())) => return Ok(Inspected::SetBack),
        _ => {
            return Err(MirrorError::State(format!(
                "the pool does not know {volume} as the replica of this relationship. To end the mirror and keep the \
                 volume: farside mirror delete {volume}"
            )));
        }
    };
    let (snapshots, all) = (engine.snapshots(volume)?, engine.all_snapshots(volume)?);
    // Every version a transfer publishes is pinned in the record that publishes it, and the base of a resync, which may
    // lie on a side branch, before it begins.
    let is_base = |s: &SnapshotInfo| s.pinned_by.contains(&relationship.id);
    let initialized = snapshots.iter().any(is_base) || all.iter().any(is_base);
    // One that is broken off may have been rolled back to a point that retention keeps, which is a version of its source as well.
    let is_version = |s: &SnapshotInfo| {
        is_base(s)
            || broken_off && relationship.swap.is_none() && s.pinned_by.contains(&kept_of(relationship.id))
    };
    // A person may have named the published version since; what the relationship published is what counts.
    let published = snapshots.iter().rev().find(|s| is_version(s)).or(snapshots.last());
    let is_taken_over = match (relationship.swap, published) {
        (Some(SwapMark::Swapping { reverse }), Some(published)) => {
            broken_off && published.pinned_by.contains(&reverse)
        }
        _ => false,
    };
    let shows_own_writes = match published {
        // Known already, and a walk over all that differs: a break would wait for it.
        _ if relationship.resync_pending => false,
        Some(published) if initialized && !broken_off => {
            engine.changed_since(volume, published.uuid)? != ChangedBytes::default()
        }
        Some(_) => false,
        None => initialized && !broken_off,
    };
    // Once the peer has taken over, what was kept for the relationship that ends is released.
    let may_be_forgotten = !broken_off && relationship.swap.is_none() && !relationship.resync_pending;
    let forgotten_fence = published.filter(|_| may_be_forgotten).and_then(|s| match s.owner {
        SnapshotOwner::Relationship(of) => (of != relationship.id && s.pinned_by.contains(&of)).then_some(of),
        SnapshotOwner::Person => None,
    });
    let current = match published {
        None => None,
        Some(newest) => Some(Published {
            name: newest.name.clone(),
            uuid: newest.uuid,
            created_at: newest.created_at,
            size_bytes: newest.size_bytes,
            content_root: engine.content_root(volume, newest.uuid)?,
        }),
    };
    // One that was rolled back below its base went on from what lies below that; what was taken since is newer.
    let went_on = match snapshots.iter().rposition(is_version) {
        _ if !broken_off => None,
        Some(version) => Some(version),
        None => {
            let base = all.iter().filter(|s| is_base(s)).map(|s| s.created_at).max();
            base.and_then(|base| snapshots.iter().rposition(|s| s.created_at <= base))
        }
    };
    let went_on_from = went_on.map(|newest| {
        let at = snapshots[newest].created_at;
        let name = &snapshots[newest].name;
        // As hosts here left it, whatever it is called.
        let is_left = relationship.past.left() == Some(snapshots[newest].uuid);
        let is_own = is_left || rescues::is_reserved(name) && !rescues::is_of_source(name);
        let first = snapshots[..newest].iter().rfind(|s| is_version(s) && !rescues::is_reserved(&s.name));
        let since = match is_own {
            // From that version they went on the first time: whatever went on from it as well fits.
            true if is_left && !rescues::is_reserved(name) => since(engine, volume, &snapshots[..=newest]),
            true => relationship
                .past
                .moment_below(snapshots[newest].uuid)
                .or(first.map(|version| version.created_at)),
            false => relationship.group.as_ref().and_then(|_| since(engine, volume, &snapshots[..=newest])),
        };
        WentOnFrom { at, since: since.unwrap_or(at), is_own }
    });
    // One that is on the main line was brought, as any named snapshot of the source; unless there is no other place, or it is
    // what the source left behind here: what comes next lies upon that.
    let is_one_line = engine.branches(&volume.pool).is_none();
    let is_aside = |s: &&SnapshotInfo| is_one_line || snapshots.iter().all(|on_line| on_line.uuid != s.uuid);
    let rescues = rescues::of(&all)
        .filter(|s| is_aside(s) || rescues::is_of_source(&s.name) || relationship.past.is_set_aside(s.uuid))
        .map(|s| (s.uuid, s.name.clone()))
        .collect();
    let found = Found {
        initialized,
        broken_off,
        is_taken_over,
        shows_own_writes,
        forgotten_fence,
        current,
        went_on_from,
        left_as: relationship
            .past
            .left()
            .and_then(|left| Some(all.iter().find(|s| s.uuid == left)?.name.clone())),
        rescues,
    };
    Ok(Inspected::Found(Box::new(found)))
}

/// Since when the newest of these snapshots has shown the same, as far as those before it tell. Volumes of a group fit together at any moment
/// of that time, whichever of them each is at. What cannot be read tells nothing: it must not keep the mirror from being looked at.
fn since(engine: &dyn Engine, volume: &VolumeName, snapshots: &[SnapshotInfo]) -> Option<Timestamp> {
    let (newest, older) = snapshots.split_last()?;
    let root = engine.content_root(volume, newest.uuid).ok()?;
    let is_equal = |s: &&SnapshotInfo| engine.content_root(volume, s.uuid).is_ok_and(|of| of == root);
    let equal = older.iter().rev().take(LOOKED_BACK_MAX).take_while(is_equal);
    Some(equal.map(|s| s.created_at).fold(newest.created_at, Timestamp::min))
}

/// So many snapshots are looked at for that: more equal ones in a row are no longer than it takes to notice.
const LOOKED_BACK_MAX: usize = 64;

fn shows(record: Option<&ReplicaRecord>) -> PoolShows {
    PoolShows::volume(record.map(|record| record.broken_off))
}
