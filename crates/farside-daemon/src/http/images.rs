//! Volumes and snapshots of pools in a cluster, as `/volumes` and `/snapshots` have them: what an engine can say of them, asked of the
//! cluster each time.

use farside_api::{CreateVolume, ErrorBody, ErrorCode, MadeBy, Plan, Snapshot, Uuid, Volume};
use farside_engine::{
    Engine, EngineError, SnapshotInfo, SnapshotOwner, SnapshotSpec, VolumeInfo, VolumeName,
};
use farside_peer::PeerId;
use farside_platform::Timestamp;
use farside_transfer::bases::kept_of;

use super::likeness;
use super::plan::{Answered, Outcome, Planned};
use crate::convert;
use crate::failure::Failure;
use crate::peers;
use crate::plans;
use crate::site::Site;

/// What is known of one, after one look.
struct Seen {
    info: VolumeInfo,
    replica: Option<farside_engine::ReplicaRecord>,
    snapshots: usize,
}

fn see(engine: &dyn Engine, name: &VolumeName) -> Result<Seen, EngineError> {
    Ok(Seen {
        info: engine.volume(name)?,
        replica: engine.replica_record(name)?,
        snapshots: engine.snapshots(name)?.len(),
    })
}

/// All volumes of a pool.
pub(super) async fn volumes(site: &Site, pool: &str) -> Result<Vec<Volume>, ErrorBody> {
    let (engine, of) = (site.pools.engine(), pool.to_owned());
    let seen = site.far.run(move || {
        let mut all = Vec::new();
        for name in engine.volumes_of(&of)? {
            match see(&*engine, &name) {
                Ok(seen) => all.push(seen),
                Err(EngineError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    });
    Ok(seen.await?.into_iter().map(|seen| document(site, seen)).collect())
}

/// One volume.
pub(super) async fn volume(site: &Site, name: &VolumeName) -> Result<Volume, ErrorBody> {
    let (engine, of) = (site.pools.engine(), name.clone());
    let seen = site.far.run(move || see(&*engine, &of)).await;
    Ok(document(site, seen.map_err(|error| told(error, "farside volume list"))?))
}

fn told(error: ErrorBody, list: &str) -> ErrorBody {
    match error.code {
        ErrorCode::NotFound => error.hint(format!("{list} shows what is there")),
        _ => error,
    }
}

fn document(site: &Site, Seen { info, replica, snapshots }: Seen) -> Volume {
    let VolumeInfo { name, uuid, size_bytes, .. } = info;
    let replica = replica.filter(|replica| !replica.broken_off);
    let why = match &replica {
        Some(replica) => Some(format!(
            "it is the replica of {}:{}, and its image is locked for the mirror: hosts open snapshots of it; farside mirror break {name} \
             makes it writable",
            peers::name_of(&site.node, PeerId(replica.peer)),
            replica.source
        )),
        None => site.exports.fenced(&name),
    };
    let rights_of = site.rights.on_volume(&name, uuid).into_iter();
    let mut rights_of: Vec<_> = rights_of.map(|peer| peers::name_of(&site.node, peer)).collect();
    rights_of.sort();
    Volume {
        name: name.to_string(),
        uuid,
        size_bytes,
        referenced_bytes: None,
        snapshots: snapshots as u64,
        side_branches: 0,
        replica: replica.is_some(),
        writable: why.is_none(),
        why,
        writers: 0,
        readers: 0,
        rights_of,
        hosts: Vec::new(),
        quarantined: None,
        occupied_bytes: None,
        quota_bytes: None,
        room: None,
        warning: None,
        reserve_bytes: None,
        autogrow: None,
        origin: None,
        origin_created_at: None,
        origin_exists: None,
    }
}

/// Makes an image.
pub(super) async fn create(
    site: &Site,
    name: &VolumeName,
    request: &CreateVolume,
) -> Result<Volume, ErrorBody> {
    if request.if_absent
        && let Ok(there) = volume(site, name).await
    {
        likeness::volume(&there, request)?;
        return Ok(there);
    }
    if request.limits != Default::default() {
        return Err(ErrorBody::new(
            ErrorCode::Refused,
            format!(
                "{name} is of Ceph RBD, where farside keeps no quota, reservation or growth. Nothing was made"
            ),
        )
        .hint("ceph osd pool set-quota limits a pool of Ceph"));
    }
    let (engine, of, size_bytes) = (site.pools.engine(), name.clone(), request.size_bytes);
    site.far.run(move || engine.create_volume(&of, size_bytes)).await?;
    follow(site, &name.pool).await;
    volume(site, name).await
}

/// Rights that were given to a name are on the volume that has it now.
async fn follow(site: &Site, pool: &str) {
    let followed = async {
        let volumes = site.mirrors.seen_in_cluster(pool).await?;
        site.mirrors.rights_follow(pool, &volumes).await.map_err(Failure::into_error_body)
    };
    if let Err(error) = followed.await {
        tracing::warn!(
            pool,
            "rights on volumes of the pool were not written down; it is tried again in a minute: {}",
            error.message
        );
    }
}

/// Deletes an image with the snapshots that farside made.
pub(super) async fn delete(site: &Site, name: &VolumeName, planned: Planned) -> Answered<Volume> {
    let document = volume(site, name).await?;
    let refused = site.mirrors.stands_on(name).await?;
    if planned.plan {
        let plan = plans::delete_volume(name, document.snapshots, None, &[], &document.rights_of, &[]);
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    if let Some(reason) = refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    site.snapshot_schedules.delete_volume(name, document.uuid).await?;
    if let Err(error) = site.rights.end_with(&site.state, &[(name.clone(), document.uuid)]).await {
        // They hold for nobody else: the volume that they were on is no more.
        tracing::warn!(volume = %name, "the rights on the volume stay in the state database until a restart: {error}");
    }
    tracing::warn!(volume = %name, rights_ended = ?document.rights_of, "volume deleted on request");
    Ok(Outcome::Done(document))
}

/// The snapshots of a volume that farside made, or took over; oldest first.
pub(super) async fn snapshots(site: &Site, name: &VolumeName) -> Result<Vec<Snapshot>, ErrorBody> {
    let (engine, of) = (site.pools.engine(), name.clone());
    let look = move || {
        Ok::<_, EngineError>((engine.volume(&of)?, engine.snapshots(&of)?, engine.replica_record(&of)?))
    };
    let (volume, all, replica) =
        site.far.run(look).await.map_err(|error| told(error, "farside volume list"))?;
    let keepers: Vec<Uuid> = std::iter::once(kept_of(volume.uuid))
        .chain(replica.map(|replica| kept_of(replica.relationship)))
        .collect();
    Ok(all.iter().map(|info| snapshot(name, info, &keepers)).collect())
}

/// The snapshots of all volumes that can be looked at now.
pub(super) async fn all_snapshots(site: &Site) -> Vec<Snapshot> {
    let mut all = Vec::new();
    for pool in site.pools.clustered() {
        let listed = async {
            let mut of_pool = Vec::new();
            for volume in site.mirrors.seen_in_cluster(&pool).await? {
                let name = VolumeName { pool: pool.clone(), volume: volume.name };
                match snapshots(site, &name).await {
                    Err(error) if error.code == ErrorCode::NotFound => {}
                    found => of_pool.extend(found?),
                }
            }
            Ok::<_, ErrorBody>(of_pool)
        };
        match listed.await {
            Ok(found) => all.extend(found),
            Err(error) => tracing::warn!(pool, "its snapshots are not listed: {}", error.message),
        }
    }
    all
}

/// `keepers`: as whom the volume's timetable and the retention of its mirror keep snapshots.
fn snapshot(volume: &VolumeName, info: &SnapshotInfo, keepers: &[Uuid]) -> Snapshot {
    let rotates = info.pinned_by.iter().any(|pin| keepers.contains(pin));
    let is_kept = !info.pinned_by.is_empty() && info.pinned_by.iter().all(|pin| keepers.contains(pin));
    Snapshot {
        name: info.name.clone(),
        volume: volume.to_string(),
        uuid: info.uuid,
        content_root: None,
        created_at: convert::time(info.created_at),
        held: info.held,
        on_main_line: true,
        made_by: match info.owner {
            SnapshotOwner::Person => MadeBy::Person,
            SnapshotOwner::Relationship(_) if is_kept => MadeBy::Kept,
            SnapshotOwner::Relationship(_) => MadeBy::Mirror,
        },
        taken_by: (info.owner == SnapshotOwner::Person).then(|| convert::taken_by(&info.name)).flatten(),
        rotates,
        referenced_bytes: None,
        unique_bytes: None,
    }
}

/// Takes a snapshot. One of a replica is as old as the version that it shows.
pub(super) async fn take(site: &Site, name: &VolumeName, label: &str) -> Result<Snapshot, ErrorBody> {
    let (engine, of, label, now) = (site.pools.engine(), name.clone(), label.to_owned(), site.clock.now());
    let taken = site.far.run(move || {
        let created_at = published_at(&*engine, &of)?.unwrap_or(now);
        let spec = SnapshotSpec {
            name: label,
            uuid: Uuid::new_v4(),
            created_at,
            owner: SnapshotOwner::Person,
            pin_for: None,
        };
        engine.take_snapshot(&of, &spec).map_err(Failure::into_error_body)
    });
    Ok(snapshot(name, &taken.await?, &[]))
}

/// Since when the data of a replica is as it is; none for a volume that hosts write to.
fn published_at(engine: &dyn Engine, name: &VolumeName) -> Result<Option<Timestamp>, ErrorBody> {
    let record = engine.replica_record(name).map_err(Failure::into_error_body)?;
    if record.is_none_or(|record| record.broken_off) {
        return Ok(None);
    }
    let snapshots = engine.snapshots(name).map_err(Failure::into_error_body)?;
    snapshots.last().map(|newest| Some(newest.created_at)).ok_or_else(|| {
        ErrorBody::new(ErrorCode::Refused, format!("{name} is a replica that holds nothing yet"))
            .hint(format!("farside mirror initialize {name} makes the first copy"))
    })
}

/// Deletes a snapshot that no mirror needs.
pub(super) async fn delete_snapshot(
    site: &Site,
    name: &VolumeName,
    label: &str,
    planned: Planned,
) -> Answered<Snapshot> {
    let all = snapshots(site, name).await?;
    let found = all.into_iter().find(|found| found.name == label).ok_or_else(|| {
        ErrorBody::new(ErrorCode::NotFound, format!("snapshot {name}@{label} does not exist"))
            .hint("farside snapshot list shows what is there")
    })?;
    let (engine, of, uuid) = (site.pools.engine(), name.clone(), found.uuid);
    let look = move || {
        let info = engine.snapshots(&of)?.into_iter().find(|info| info.uuid == uuid);
        Ok::<_, EngineError>((kept_of(engine.volume(&of)?.uuid), info))
    };
    let (timetable, info) = site.far.run(look).await?;
    // What only the timetable keeps a person may delete.
    let is_of_timetable = info.as_ref().is_some_and(|info| info.pinned_by == [timetable]);
    if planned.plan {
        let refused = info.filter(|info| !info.pinned_by.is_empty() && !is_of_timetable).map(|_| {
            format!("{name}@{label} is kept for a mirror; farside mirror destinations {name} says for whom")
        });
        let plan =
            plans::delete_snapshot(name, label, found.created_at, true, None, plans::Frees::default(), &[]);
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    let (engine, of) = (site.pools.engine(), name.clone());
    let delete = move || {
        if is_of_timetable {
            engine.unpin(&of, uuid, timetable)?;
        }
        engine.delete_snapshot(&of, uuid)
    };
    site.far.run(delete).await?;
    Ok(Outcome::Done(found))
}
