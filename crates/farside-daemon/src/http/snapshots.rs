//! `/snapshots`, and `/volumes/POOL/VOL/snapshots`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Body as ResponseBody;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use farside_api::{
    CreateSnapshots, Difference, DifferenceKind, ErrorBody, ErrorCode, HoldSnapshot, MadeBy, Plan, Rename,
    Rollback, Snapshot, StartRollback, TakenBy, Uuid,
};
use farside_engine::{Engine, EngineError, SnapshotInfo, VolumeName, is_label};
use farside_mirror::rescues;
use farside_mirror::shown::{Holder, holder, keep_as_of, keep_for_good};
use farside_platform::{BLOCK_BYTES, Timestamp};
use farside_store::{NewSnapshot, Pool, SnapshotStatus, Version};
use farside_transfer::bases::{common_of, kept_of};
use farside_transfer::going_back::{GoingBack, go_back};
use serde::Deserialize;
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio_util::io::ReaderStream;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{ApiError, Body, BodyOrDefault, Query};
use super::handler::{Answer, Routes, Shared};
use super::images;
use super::page::{Page, Wanted};
use super::plan::{Answered, Outcome, Planned, set_aside_at};
use super::volumes::{clones_of, count, name_of, parse};
use crate::convert;
use crate::failure::Failure;
use crate::figures::{Counter, LISTING_MAX, Remembered};
use crate::plans::{self, Frees, RollbackFacts};
use crate::site::Site;

/// Snapshots of one request: one record of the pool freezes them all.
const TOGETHER_MAX: usize = 1024;
/// Times that a list is begun anew because a snapshot went meanwhile.
const LISTINGS_MAX: usize = 8;
/// Bytes of a difference that wait for the client.
const DIFFERENCE_BUFFER_BYTES: usize = 256 << 10;
/// A client that takes nothing of a difference for so long is given up.
const DIFFERENCE_STALL_MAX: Duration = Duration::from_secs(60);

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(list_all, create))
        .routes(routes!(list))
        .routes(routes!(difference))
        .routes(routes!(delete))
        .routes(routes!(rename))
        .routes(routes!(hold))
        .routes(routes!(rollback))
}

/// Snapshots of all volumes.
///
/// In pages they are sorted by volume, oldest first.
#[utoipa::path(get, path = "/snapshots", params(Wanted), responses((status = 200, body = Vec<Snapshot>)))]
async fn list_all(State(site): Shared, Query(wanted): Query<Wanted>) -> Result<Page<Snapshot>, ApiError> {
    let (pools, remembered) = (site.pools.open_pools(), Arc::clone(&site.figures));
    let others = images::all_snapshots(&site).await;
    let all = site.blocking.run(move || {
        let of_pool = |(pool_name, pool): &(String, Arc<Pool>)| {
            let name = |volume| VolumeName { pool: pool_name.clone(), volume };
            let volumes = pool.volumes().into_iter().map(|volume| (Arc::clone(pool), name(volume.name)));
            volumes.collect::<Vec<_>>()
        };
        listed(&pools.iter().flat_map(of_pool).collect::<Vec<_>>(), &others, &wanted, &remembered)
    });
    Ok(all.await?)
}

/// Snapshots of a volume.
///
/// In pages they are sorted, oldest first.
#[utoipa::path(
    get,
    path = "/volumes/{pool}/{volume}/snapshots",
    params(Wanted),
    responses((status = 200, body = Vec<Snapshot>))
)]
async fn list(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(wanted): Query<Wanted>,
) -> Result<Page<Snapshot>, ApiError> {
    let name = name_of(pool, volume)?;
    if site.pools.is_clustered(&name.pool) {
        let all = images::snapshots(&site, &name).await?;
        return Ok(wanted.of(all, place)?);
    }
    let (pool, remembered) = (site.pools.get(&name.pool)?, Arc::clone(&site.figures));
    let page = site.blocking.run(move || {
        // A volume that is not there has no empty list.
        pool.volume(&name.volume).map_err(Failure::into_error_body)?;
        listed(&[(pool, name)], &[], &wanted, &remembered)
    });
    Ok(page.await?)
}

/// Where one of a cluster stands among those of all volumes: as others stand there.
fn place(snapshot: &Snapshot) -> String {
    let created_at = snapshot.created_at.as_nanosecond();
    format!("{}@{created_at:020}-{}", snapshot.volume, snapshot.uuid)
}

/// The snapshots of these volumes, and these others, that are on a page, with what each refers to and holds alone as far as that can be counted soon.
fn listed(
    volumes: &[(Arc<Pool>, VolumeName)],
    others: &[Snapshot],
    wanted: &Wanted,
    remembered: &Arc<Remembered>,
) -> Result<Page<Snapshot>, ErrorBody> {
    let until = Instant::now() + LISTING_MAX;
    // A mirror deletes its own as it goes on. Where the only one goes while the list is made, the one that took its place is not on
    // it, and a replica would seem to have lost its content.
    for _ in 0..LISTINGS_MAX {
        let (page, is_whole) = list_at_once(volumes, others, wanted, until, remembered)?;
        if is_whole {
            return Ok(page);
        }
    }
    Ok(list_at_once(volumes, others, wanted, until, remembered)?.0)
}

/// The same, and whether all of them were there until the end.
fn list_at_once(
    volumes: &[(Arc<Pool>, VolumeName)],
    others: &[Snapshot],
    wanted: &Wanted,
    until: Instant,
    remembered: &Arc<Remembered>,
) -> Result<(Page<Snapshot>, bool), ErrorBody> {
    let mut all = Vec::new();
    for (at, (pool, volume)) in volumes.iter().enumerate() {
        match pool.snapshots(&volume.volume).map_err(Failure::into_error_body) {
            Ok(snapshots) => all.extend(snapshots.into_iter().map(|snapshot| Listed::Embedded(at, snapshot))),
            // Deleted meanwhile.
            Err(error) if error.code == ErrorCode::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    all.extend(others.iter().cloned().map(Listed::Other));
    let page = wanted.clone().of(all, |listed| match listed {
        Listed::Embedded(at, snapshot) => {
            format!("{}@{:020}-{}", volumes[*at].1, snapshot.created_at.0, snapshot.uuid)
        }
        Listed::Other(snapshot) => place(snapshot),
    })?;
    let mut by_volume: BTreeMap<usize, Vec<&SnapshotStatus>> = BTreeMap::new();
    for listed in page.things() {
        if let Listed::Embedded(at, snapshot) = listed {
            by_volume.entry(*at).or_default().push(snapshot);
        }
    }
    // A replica's snapshot has the identity of the source's.
    let mut documents = HashMap::new();
    for (at, snapshots) in by_volume {
        let (pool, volume) = &volumes[at];
        match of_volume(pool, volume, &snapshots, until, remembered) {
            Ok(found) => documents.extend(found.into_iter().map(|document| ((at, document.uuid), document))),
            Err(error) if error.code == ErrorCode::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let embedded = page.things().iter().filter(|listed| matches!(listed, Listed::Embedded(..))).count();
    let is_whole = documents.len() == embedded;
    let document = |listed| match listed {
        Listed::Embedded(at, snapshot) => documents.remove(&(at, snapshot.uuid)),
        Listed::Other(snapshot) => Some(snapshot),
    };
    Ok((page.filter_map(document), is_whole))
}

/// One for a list.
enum Listed {
    /// Of the volume at this place.
    Embedded(usize, SnapshotStatus),
    /// Of which all is known.
    Other(Snapshot),
}

/// Those of these snapshots of a volume that are there yet.
fn of_volume(
    pool: &Arc<Pool>,
    volume: &VolumeName,
    snapshots: &[&SnapshotStatus],
    until: Instant,
    remembered: &Arc<Remembered>,
) -> Result<Vec<Snapshot>, ErrorBody> {
    let keepers = keepers_of(pool, volume)?;
    let counter = Counter::until(Arc::clone(pool), &volume.volume, until, remembered);
    let documents = snapshots.iter().map(|snapshot| {
        let version = Version::Snapshot(snapshot.uuid);
        // What cannot be read, or went meanwhile, has no figure.
        Ok::<_, ErrorBody>(Snapshot {
            referenced_bytes: counter.referenced(version).ok().flatten(),
            unique_bytes: counter.only_in(snapshot.uuid).ok().flatten(),
            ..document(pool, &keepers, volume, snapshot)?
        })
    });
    documents.filter(|d| !matches!(d, Err(error) if error.code == ErrorCode::NotFound)).collect()
}

fn document(
    pool: &Pool,
    keepers: &Keepers,
    volume: &VolumeName,
    snapshot: &SnapshotStatus,
) -> Result<Snapshot, ErrorBody> {
    let root = match pool.content_root(&volume.volume, snapshot.uuid).map_err(Failure::into_error_body) {
        Ok(root) => Some(root.to_string()),
        // Part of it cannot be read: it is listed all the same, and so are the others.
        Err(error) if error.code == ErrorCode::Corrupt => None,
        Err(error) => return Err(error),
    };
    let rotates = snapshot.pinned_by.iter().any(|pin| keepers.all().any(|keeper| keeper == *pin));
    // What is published is the mirror's base besides.
    let is_kept = is_kept_only(keepers, snapshot);
    Ok(Snapshot {
        name: snapshot.name.clone(),
        volume: volume.to_string(),
        uuid: snapshot.uuid,
        content_root: root,
        created_at: convert::time(snapshot.created_at),
        held: snapshot.held,
        on_main_line: snapshot.on_main_line,
        made_by: match snapshot.relationship {
            None => MadeBy::Person,
            Some(_) if is_kept => MadeBy::Kept,
            Some(_) if is_common(snapshot) => MadeBy::Common,
            Some(_) => MadeBy::Mirror,
        },
        taken_by: match snapshot.relationship {
            None if snapshot.pinned_by.contains(&keepers.timetable) => Some(TakenBy::Timetable),
            None => convert::taken_by(&snapshot.name),
            Some(_) => None,
        },
        rotates,
        referenced_bytes: None,
        unique_bytes: None,
    })
}

/// Whether retention alone keeps it, and lets it go one day.
fn is_kept_only(keepers: &Keepers, snapshot: &SnapshotStatus) -> bool {
    !snapshot.pinned_by.is_empty()
        && snapshot.pinned_by.iter().all(|pin| keepers.all().any(|keeper| keeper == *pin))
}

/// By what retention pins in a volume.
struct Keepers {
    /// That of its timetable.
    timetable: Uuid,
    /// That of the mirror whose replica it is, or was: once it was broken off nothing of it goes, until it follows again.
    mirror: Option<Uuid>,
}

impl Keepers {
    fn all(&self) -> impl Iterator<Item = Uuid> {
        self.mirror.into_iter().chain([self.timetable])
    }
}

fn keepers_of(pool: &Pool, volume: &VolumeName) -> Result<Keepers, ErrorBody> {
    let status = pool.volume(&volume.volume).map_err(Failure::into_error_body)?;
    let replica = status.replica;
    Ok(Keepers {
        timetable: kept_of(status.uuid),
        mirror: replica.map(|replica| kept_of(replica.relationship)),
    })
}

/// Whether a mirror keeps it for nothing but to have it in common with other replicas of the same volume.
fn is_common(snapshot: &SnapshotStatus) -> bool {
    let is_pinned = |by| snapshot.pinned_by.contains(&by);
    snapshot.relationship.is_some_and(|owner| is_pinned(common_of(owner)) && !is_pinned(owner))
}

/// Takes snapshots of several volumes at one instant.
#[utoipa::path(
    post,
    path = "/snapshots",
    request_body = CreateSnapshots,
    responses((status = 200, body = Vec<Snapshot>))
)]
async fn create(State(site): Shared, Body(request): Body<CreateSnapshots>) -> Answer<Vec<Snapshot>> {
    let wanted = wanted(&request.snapshots)?;
    let Some((first, _)) = wanted.first() else {
        return Err(wrong(String::from("name at least one snapshot")).into());
    };
    let pool_name = first.pool.clone();
    if let Some((other, _)) = wanted.iter().find(|(volume, _)| volume.pool != pool_name) {
        return Err(wrong(format!(
            "{other} is in another pool than {first}: snapshots at one instant are of one pool"
        ))
        .into());
    }
    if site.pools.is_clustered(&pool_name) {
        let [(volume, name)] = &wanted[..] else {
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!(
                    "pool {pool_name} is of Ceph RBD, where one instant is of one image. Nothing was taken"
                ),
            )
            .hint("take them one after the other, with hosts frozen or stopped if they must agree")
            .into());
        };
        return Ok(Json(vec![images::take(&site, volume, name).await?]));
    }
    let pool = site.pools.get(&pool_name)?;
    let now = site.clock.now();
    let made = site.blocking.run(move || {
        let new = wanted.iter().map(|(volume, name)| {
            let snapshot = NewSnapshot {
                name: name.clone(),
                uuid: Uuid::new_v4(),
                created_at: published_at(&pool, volume)?.unwrap_or(now),
                relationship: None,
                pin_for: None,
            };
            Ok((volume.volume.clone(), snapshot))
        });
        let new = new.collect::<Result<Vec<_>, ErrorBody>>()?;
        let made = pool.create_snapshots(&new).map_err(Failure::into_error_body)?;
        wanted
            .iter()
            .zip(&made)
            .map(|((volume, _), s)| document(&pool, &keepers_of(&pool, volume)?, volume, s))
            .collect::<Result<Vec<_>, _>>()
    });
    Ok(Json(made.await?))
}

/// Since when the data of a replica is as it is; none for a volume that hosts write to. A snapshot of a replica only names
/// the version that is published, so it is as old as that: lag is counted from it.
fn published_at(pool: &Pool, volume: &VolumeName) -> Result<Option<Timestamp>, ErrorBody> {
    let status = pool.volume(&volume.volume).map_err(Failure::into_error_body)?;
    if status.replica.is_none_or(|replica| replica.broken_off) {
        return Ok(None);
    }
    let snapshots = pool.snapshots(&volume.volume).map_err(Failure::into_error_body)?;
    let published = snapshots.iter().rev().find(|snapshot| snapshot.on_main_line);
    published.map(|snapshot| Some(snapshot.created_at)).ok_or_else(|| {
        ErrorBody::new(ErrorCode::Refused, format!("{volume} is a replica that holds nothing yet"))
            .hint(format!("farside mirror initialize {volume} makes the first copy"))
    })
}

fn wanted(names: &[String]) -> Result<Vec<(VolumeName, String)>, ErrorBody> {
    if names.len() > TOGETHER_MAX {
        return Err(wrong(format!("at most {TOGETHER_MAX} snapshots can be taken together")));
    }
    let mut seen = BTreeSet::new();
    let mut wanted = Vec::with_capacity(names.len());
    for name in names {
        let (volume, snapshot) =
            name.split_once('@').ok_or_else(|| wrong(format!("{name:?} is not POOL/VOL@SNAP")))?;
        check_label(snapshot)?;
        if !seen.insert(volume) {
            return Err(wrong(format!("{volume} is named twice: one instant gives one snapshot of it")));
        }
        check_not_reserved(snapshot)?;
        wanted.push((parse(volume)?, snapshot.to_owned()));
    }
    Ok(wanted)
}

fn check_label(name: &str) -> Result<(), ErrorBody> {
    match is_label(name) {
        true => Ok(()),
        false => Err(wrong(format!("{name:?} cannot be a snapshot's name"))
            .hint("use 1 to 128 of A-Z a-z 0-9 . _ : + -, and no - or . at the beginning")),
    }
}

/// What is called so is deleted one day.
fn check_not_reserved(name: &str) -> Result<(), ErrorBody> {
    match convert::taken_by(name) {
        None => Ok(()),
        Some(TakenBy::Rescue) => Err(wrong(format!(
            "{name} is a name of side branches, of which only the newest stay; choose one that does not begin with rescue- and a date"
        ))),
        Some(TakenBy::Timetable | TakenBy::Mirror) => Err(wrong(format!(
            "{name} is a name as timetables and mirrors give it, and would be listed as theirs; choose one that does not begin with auto-, \
             app-, base-, kept- or mirror- and a date or an id"
        ))),
    }
}

type OneSnapshot = Path<(String, String, String)>;

/// A snapshot of a request, as it is now.
async fn find(site: &Site, (pool, volume, snapshot): (String, String, String)) -> Result<Found, ErrorBody> {
    let volume = name_of(pool, volume)?;
    let misplaced = |error| site.mirrors.with_place(&volume, error);
    let pool = site.pools.get(&volume.pool).map_err(misplaced)?;
    // Of a volume that is not here no snapshot is looked for.
    if !site.pools.is_clustered(&volume.pool) && pool.volume(&volume.volume).is_err() {
        super::volumes::look(site, &volume)?;
    }
    let found = pool.clone();
    let name = volume.clone();
    site.blocking
        .run(move || {
            let status = found.snapshot_named(&name.volume, &snapshot).map_err(|error| {
                let told = error.into_error_body();
                match told.code {
                    ErrorCode::NotFound => ErrorBody::new(
                        ErrorCode::NotFound,
                        format!("snapshot {name}@{snapshot} does not exist"),
                    )
                    .hint("farside snapshot list shows what is there"),
                    _ => told,
                }
            })?;
            let keepers = keepers_of(&pool, &volume)?;
            Ok::<_, ErrorBody>(Found { pool, volume, status, keepers })
        })
        .await
}

struct Found {
    pool: Arc<Pool>,
    volume: VolumeName,
    status: SnapshotStatus,
    /// By what retention pins in its volume.
    keepers: Keepers,
}

impl Found {
    /// As it is listed, after a change.
    fn look(&self) -> Result<Snapshot, ErrorBody> {
        let status =
            self.pool.snapshot(&self.volume.volume, self.status.uuid).map_err(Failure::into_error_body)?;
        document(&self.pool, &self.keepers, &self.volume, &status)
    }
}

/// Renames a snapshot.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/snapshots/{snapshot}/rename",
    request_body = Rename,
    responses((status = 200, body = Snapshot))
)]
async fn rename(
    State(site): Shared,
    Path(path): OneSnapshot,
    Body(request): Body<Rename>,
) -> Answer<Snapshot> {
    check_label(&request.name)?;
    check_not_reserved(&request.name)?;
    let found = find(&site, path).await?;
    let renamed = site.blocking.run(move || {
        found
            .pool
            .rename_snapshot(&found.volume.volume, found.status.uuid, &request.name)
            .map_err(Failure::into_error_body)?;
        found.look()
    });
    Ok(Json(renamed.await?))
}

/// Holds a snapshot, so that nothing deletes it, or no longer.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/snapshots/{snapshot}/hold",
    request_body = HoldSnapshot,
    responses((status = 200, body = Snapshot))
)]
async fn hold(
    State(site): Shared,
    Path(path): OneSnapshot,
    Body(request): Body<HoldSnapshot>,
) -> Answer<Snapshot> {
    let found = find(&site, path).await?;
    let held = site.blocking.run(move || {
        found
            .pool
            .hold_snapshot(&found.volume.volume, found.status.uuid, request.held)
            .map_err(Failure::into_error_body)?;
        found.look()
    });
    Ok(Json(held.await?))
}

/// Deletes a snapshot.
#[utoipa::path(
    delete,
    path = "/volumes/{pool}/{volume}/snapshots/{snapshot}",
    params(Planned),
    responses((status = 200, body = Outcome<Snapshot>))
)]
async fn delete(
    State(site): Shared,
    Path(path): OneSnapshot,
    Query(planned): Query<Planned>,
) -> Answered<Snapshot> {
    if site.pools.is_clustered(&path.0) {
        let (pool, volume, snapshot) = path;
        return images::delete_snapshot(&site, &name_of(pool, volume)?, &snapshot, planned).await;
    }
    let found = find(&site, path).await?;
    let name = format!("{}@{}", found.volume, found.status.name);
    // What only retention keeps a person may delete, but for the floor.
    let is_kept = is_kept_only(&found.keepers, &found.status);
    let refused = if found.status.held {
        Some(format!("{name} is held; farside snapshot unhold {name} allows deleting it"))
    } else if is_kept && is_floor(&site, &found).await? {
        Some(format!(
            "{name} is one of the newest points, which the mirror's retention keeps whatever happens (floor). farside mirror set {} \
             --keep changes that",
            found.volume
        ))
    } else if is_kept {
        None
    } else if is_common(&found.status) {
        Some(format!(
            "{name} is also at other replicas of the same volume, so that one can follow another if their source is \
             lost. It is deleted after an update, when a newer one has replaced it, or the other mirror has ended"
        ))
    } else if !found.status.pinned_by.is_empty() {
        let volume = &found.volume;
        Some(format!(
            "{name} is kept for a mirror. It can be deleted when a newer base has replaced it, or when the transfer that \
             brings it has ended. If another site mirrors {volume}, farside mirror destinations {volume} says for whom \
             it is kept and why"
        ))
    } else {
        None
    };
    if planned.plan {
        let uuid = found.status.uuid;
        let bytes = count(&site, &found.volume, move |counter| counter.only_in(uuid)).await?;
        let (volume, status) = (&found.volume, &found.status);
        let created_at = convert::time(status.created_at);
        let clones = clones_of(&site, volume, Some(uuid))?;
        let in_line = found.pool.snapshot_in_line(&volume.volume, uuid).map_err(Failure::into_error_body)?;
        let (heirs, branches) = (in_line.heirs, in_line.branches.clone());
        let bytes_freed = match heirs > 1 {
            true => found.pool.snapshot_owned_bytes(&volume.volume, uuid).ok(),
            false => count(&site, volume, move |counter| counter.only_in_line(in_line)).await?,
        };
        let frees = Frees { bytes: bytes_freed, heirs, branches: &branches };
        let plan = plans::delete_snapshot(
            volume,
            &status.name,
            created_at,
            status.on_main_line,
            bytes,
            frees,
            &clones,
        );
        let refused = match refused {
            None => site.refuses_deletions(&volume.pool).await?,
            refused => refused,
        };
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    if let Some(reason) = refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    let deleted = site.blocking.run(move || {
        let document = found.look()?;
        if is_kept {
            for pin in &found.status.pinned_by {
                found
                    .pool
                    .unpin_snapshot(&found.volume.volume, found.status.uuid, *pin)
                    .map_err(Failure::into_error_body)?;
            }
        }
        found
            .pool
            .delete_snapshot(&found.volume.volume, found.status.uuid)
            .map_err(Failure::into_error_body)?;
        Ok::<_, ErrorBody>(document)
    });
    Ok(Outcome::Done(deleted.await?))
}

/// Whether it is one of the points that a replica's retention keeps whatever happens.
async fn is_floor(site: &Site, found: &Found) -> Result<bool, ErrorBody> {
    let Ok(mirror) = site.mirrors.mirror(&found.volume) else { return Ok(false) };
    mirror.is_floor(found.status.uuid).await.map_err(Failure::into_error_body)
}

/// Makes the volume show a snapshot again.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/snapshots/{snapshot}/rollback",
    params(Planned),
    request_body = Option<StartRollback>,
    responses((status = 200, body = Outcome<Rollback>))
)]
async fn rollback(
    State(site): Shared,
    Path(path): OneSnapshot,
    Query(planned): Query<Planned>,
    BodyOrDefault(request): BodyOrDefault<StartRollback>,
) -> Answered<Rollback> {
    // One that has waited for its time since is carried out as if there was none.
    let set_aside_at = set_aside_at(&site, request.set_aside_at).unwrap_or_default();
    let found = find(&site, path).await?;
    let (volume, name) = (found.volume.clone(), found.status.name.clone());
    let before = found.pool.volume(&volume.volume)?;
    let is_replica = before.replica.is_some_and(|replica| !replica.broken_off);
    let refused = if is_replica {
        Some(format!("{volume} is a replica: the next update would undo the rollback"))
    } else {
        plans::busy(&volume, &site.exports.writers(&volume))
    };
    let refusing = site.takes_no_changes(&volume.pool).await?;
    if planned.plan {
        let plan = plan_rollback(&site, &found, before.size_bytes, set_aside_at).await?;
        let refused = refusing.map(|refusing| refusing.why).or(refused);
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    if let Some(refusing) = refusing {
        return Err(refusing.refusal(&format!("{volume} shows what it showed")).into());
    }
    if let Some(reason) = refused {
        let refusal = ErrorBody::new(ErrorCode::Refused, reason);
        return Err(match is_replica {
            true => refusal.hint(format!(
                "to take it over at that point, use farside mirror break {volume} --at {name}"
            )),
            false => refusal,
        }
        .into());
    }
    site.exports.drop_fenced_readers(&volume).await;
    let (engine, of, uuid) = (site.pools.engine(), volume.clone(), found.status.uuid);
    let moved = site.blocking.run(move || {
        // Before: what the answer names as kept must not go by itself, whatever took it.
        let with_group = set_aside_at.and_then(|moment| keep_with_group(&*engine, &of, moment));
        let holder = match with_group {
            Some(_) => None,
            None => held_by(&*engine, &of, uuid),
        };
        let back = go_back(&*engine, &of, uuid, GoingBack::OfPerson, set_aside_at);
        if let (Err(_), Some(kept)) = (&back, &with_group)
            && let Err(error) = engine.delete_snapshot(&of, kept.uuid)
        {
            tracing::warn!(volume = %of, snapshot = kept.name, "a snapshot of what the volume shows still stays, and may be deleted: {error}");
        }
        let held = with_group.map(|kept| kept.name).or(holder.map(|holder| holder.snapshot.name));
        Ok::<_, EngineError>((back?, held))
    });
    let (back, held) =
        moved.await.map_err(|error| match plans::busy(&volume, &site.exports.writers(&volume)) {
            // A host was faster.
            Some(reason) if error.code == ErrorCode::Refused => ErrorBody::new(ErrorCode::Refused, reason),
            _ => error,
        })?;
    let held = held.filter(|held| *held != name);
    let kept = back.rescued.map(|snapshot| snapshot.name).or(held);
    let kept_as = kept.map(|kept| format!("{volume}@{kept}"));
    tracing::warn!(%volume, snapshot = name, kept_as, "rolled back");
    if let Ok(mirror) = site.mirrors.mirror(&volume)
        && let Err(error) = mirror.moved().await
    {
        tracing::warn!(%volume, "its mirror shows the point of before until the next start: {error}");
    }
    let (engine, of, most) = (site.pools.engine(), volume.clone(), site.configuration.replicas.rescues);
    let thinned =
        site.blocking.run(move || rescues::thin(&*engine, &of, most).map_err(Failure::into_error_body));
    if let Err(error) = thinned.await {
        tracing::warn!(%volume, "cannot look for rescues that are too many: {}", error.message);
    }
    Ok(Outcome::Done(Rollback { volume: volume.to_string(), snapshot: name, kept_as }))
}

/// What the volume shows, by the name that it has in all of its group. Without that nothing is lost: what goes out of sight has a name of
/// its own then.
fn keep_with_group(engine: &dyn Engine, volume: &VolumeName, moment: Timestamp) -> Option<SnapshotInfo> {
    keep_as_of(engine, volume, moment, Uuid::new_v4()).unwrap_or_else(|error| {
        tracing::warn!(%volume, "what it shows has no name in common with the rest of its group: {error}");
        None
    })
}

/// Which snapshot has what the volume shows, if one has.
fn held_by(engine: &dyn Engine, volume: &VolumeName, to: Uuid) -> Option<Holder> {
    let mirror = || Ok::<_, EngineError>(engine.replica_record(volume)?.map(|record| record.relationship));
    let holder = mirror().and_then(|mirror| keep_for_good(engine, volume, to, mirror));
    holder.unwrap_or_else(|error| {
        // What cannot be read may be why it goes back.
        tracing::warn!(%volume, "whether a snapshot has what it shows could not be looked at: {error}");
        None
    })
}

async fn plan_rollback(
    site: &Site,
    found: &Found,
    size_bytes: u64,
    set_aside_at: Option<Timestamp>,
) -> Result<Plan, ErrorBody> {
    let (volume, status) = (&found.volume, &found.status);
    let to = Version::Snapshot(status.uuid);
    let changed = count(site, volume, move |counter| counter.changed(to, Version::Head)).await?;
    let (engine, of, uuid) = (site.pools.engine(), volume.clone(), status.uuid);
    let held = site.blocking.run(move || {
        let mirror = engine.replica_record(&of)?.map(|record| record.relationship);
        Ok::<_, EngineError>(holder(&*engine, &of, uuid, mirror).unwrap_or_default())
    });
    let held = held.await?.map(|holder| holder.snapshot.name).filter(|_| set_aside_at.is_none());
    // As the plan says what is kept: where a person's snapshot has it all, no side branch is made, unless all of a group shall have one.
    let makes_one = set_aside_at.is_some() || changed != Some(0) && held.is_none();
    let (engine, of, most) = (site.pools.engine(), volume.clone(), site.configuration.replicas.rescues);
    let now = site.clock.now();
    let lets_go = site.blocking.run(move || {
        let all = engine.all_snapshots(&of).map_err(Failure::into_error_body)?;
        Ok::<_, ErrorBody>(match makes_one {
            true => rescues::would_go(&all, most, false, now),
            false => rescues::due(&all, most),
        })
    });
    let lets_go = lets_go.await?;
    Ok(plans::rollback(&RollbackFacts {
        lets_go: &lets_go,
        volume,
        snapshot: &status.name,
        created_at: convert::time(status.created_at),
        on_main_line: status.on_main_line,
        size_bytes,
        snapshot_size_bytes: status.size_bytes,
        changed_bytes: changed,
        held_by: held.as_deref(),
        age_seconds: site.clock.now().seconds_since(status.created_at),
        followed_by: &site.mirrors.followed_by(volume),
        broken_off: &site.mirrors.broken_off_from(volume),
        fence: site.exports.fenced(volume).as_deref(),
        group: group_with_others(site, volume).as_deref(),
    }))
}

/// The group that the mirror of a volume is in, if there are others in it.
fn group_with_others(site: &Site, volume: &VolumeName) -> Option<String> {
    let all: Vec<_> = site.mirrors.statuses().into_iter().map(|status| status.relationship).collect();
    let own = all.iter().find(|r| r.destination == *volume && r.group.is_some())?;
    all.iter().any(|r| r.id != own.id && r.group == own.group).then(|| own.group.clone())?
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Between {
    from: String,
    to: String,
}

/// What changed between two snapshots.
///
/// Streams a JSON array of extents, as they are found. Should a node turn out damaged half-way, the array stays
/// unfinished, which no reader takes for an answer; the reason is in the log.
#[utoipa::path(
    get,
    path = "/volumes/{pool}/{volume}/difference",
    params(Between),
    responses((status = 200, body = Vec<Difference>))
)]
async fn difference(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(between): Query<Between>,
) -> Result<Response, ApiError> {
    let volume = name_of(pool, volume)?;
    let pool = site.pools.get(&volume.pool)?;
    let (from, to) = (between.from, between.to);
    let name = volume.clone();
    let extents = site.blocking.run(move || {
        let base = pool.open_snapshot(&name.volume, &from).map_err(Failure::into_error_body)?;
        let incremental = pool.open_snapshot(&name.volume, &to).map_err(Failure::into_error_body)?;
        Ok::<_, ErrorBody>(Arc::new(incremental).difference_from(Some(Arc::new(base))))
    });
    let extents = extents.await?;
    let (reader, writer) = tokio::io::duplex(DIFFERENCE_BUFFER_BYTES);
    let streams = site.streams.clone();
    tokio::spawn(async move {
        if let Err(error) = streams.run(move || send(extents, writer)).await {
            tracing::error!(%volume, "snapshot diff stopped early; its output is incomplete: {error}");
        }
    });
    let body = ResponseBody::from_stream(ReaderStream::new(reader));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

fn send(extents: farside_store::Difference, mut writer: DuplexStream) -> Result<(), ErrorBody> {
    let runtime = tokio::runtime::Handle::current();
    let mut text = String::from("[");
    let mut separator = "";
    let mut write = |text: &mut String| -> bool {
        let written =
            runtime.block_on(tokio::time::timeout(DIFFERENCE_STALL_MAX, writer.write_all(text.as_bytes())));
        text.clear();
        // An error is a client that has gone away: nobody to tell.
        matches!(written, Ok(Ok(())))
    };
    for extent in extents {
        let extent = extent.map_err(Failure::into_error_body)?;
        let difference = Difference {
            offset: extent.block * BLOCK_BYTES as u64,
            length: extent.count * BLOCK_BYTES as u64,
            kind: match extent.kind {
                farside_store::DifferenceKind::Data => DifferenceKind::Data,
                farside_store::DifferenceKind::Hole => DifferenceKind::Hole,
            },
        };
        text.push_str(separator);
        separator = ",";
        text.push_str(
            &serde_json::to_string(&difference)
                .map_err(|e| ErrorBody::new(ErrorCode::Failed, e.to_string()))?,
        );
        if text.len() >= DIFFERENCE_BUFFER_BYTES / 4 && !write(&mut text) {
            return Ok(());
        }
    }
    text.push(']');
    write(&mut text);
    Ok(())
}

fn wrong(message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::WrongUsage, message)
}
