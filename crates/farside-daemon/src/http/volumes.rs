//! `/volumes`.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{CreateVolume, ErrorBody, ErrorCode, Plan, Rename, ResizeVolume, SetVolume, Uuid, Volume};
use farside_engine::VolumeName;
use farside_peer::PeerId;
use farside_platform::BLOCK_BYTES;
use farside_store::{Autogrow, Pool, StoreError, VOLUME_BYTES_MAX, Version, VolumeLimits, VolumeStatus};
use farside_transfer::bases::kept_of;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{ApiError, Body, Query};
use super::handler::{Answer, Routes, Shared};
use super::images;
use super::likeness;
use super::page::{Page, Wanted};
use super::plan::{Answered, Outcome, Planned};
use crate::convert;
use crate::damage;
use crate::failure::Failure;
use crate::figures::{Counter, LISTING_MAX, Remembered};
use crate::peers;
use crate::plans;
use crate::pools::seen;
use crate::site::Site;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(status, delete))
        .routes(routes!(resize))
        .routes(routes!(rename))
        .routes(routes!(set_limits))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct OfPool {
    /// Of this pool alone.
    pool: Option<String>,
    /// So many, 1 to 10,000. With this or `after` the list is sorted, and the header `x-farside-next` says how it goes on.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
    /// Those behind this one: what `x-farside-next` of the page before has said.
    after: Option<String>,
}

/// Volumes.
#[utoipa::path(get, path = "/volumes", params(OfPool), responses((status = 200, body = Vec<Volume>)))]
async fn list(State(site): Shared, Query(of): Query<OfPool>) -> Result<Page<Volume>, ApiError> {
    let of_all = of.pool.is_none();
    let (pools, clusters) = match of.pool {
        Some(name) if site.pools.is_clustered(&name) => (Vec::new(), vec![name]),
        Some(name) => {
            let pool = site.pools.get(&name)?;
            (vec![(name, pool)], Vec::new())
        }
        None => (site.pools.open_pools(), Vec::new()),
    };
    let mut all: Vec<(Option<Arc<Pool>>, Volume)> = Vec::new();
    for (name, pool) in &pools {
        all.extend(
            pool.volumes().into_iter().map(|v| (Some(Arc::clone(pool)), document(&site, name, pool, v))),
        );
    }
    for name in &clusters {
        all.extend(images::volumes(&site, name).await?.into_iter().map(|volume| (None, volume)));
    }
    // Where all are asked for, a cluster that is away hides no others.
    for name in site.pools.clustered().iter().filter(|_| of_all) {
        match images::volumes(&site, name).await {
            Ok(volumes) => all.extend(volumes.into_iter().map(|volume| (None, volume))),
            Err(error) => tracing::warn!(pool = name, "its volumes are not listed: {}", error.message),
        }
    }
    let wanted = Wanted { limit: of.limit, after: of.after };
    let page = wanted.of(all, |(_, volume)| volume.name.clone())?;
    let remembered = Arc::clone(&site.figures);
    let counted = site.blocking.run(move || {
        let until = Instant::now() + LISTING_MAX;
        let counted = page.map(|(pool, mut volume)| {
            volume.referenced_bytes =
                pool.and_then(|pool| referenced(&pool, &volume.name, until, &remembered));
            volume
        });
        Ok::<_, ErrorBody>(counted)
    });
    Ok(counted.await?)
}

/// A volume.
#[utoipa::path(get, path = "/volumes/{pool}/{volume}", responses((status = 200, body = Volume)))]
async fn status(State(site): Shared, Path((pool, volume)): Path<(String, String)>) -> Answer<Volume> {
    let name = name_of(pool, volume)?;
    if site.pools.is_clustered(&name.pool) {
        return Ok(Json(images::volume(&site, &name).await?));
    }
    let document = look(&site, &name)?;
    let (pool, remembered) = (site.pools.get(&name.pool)?, Arc::clone(&site.figures));
    let counted = site.blocking.run(move || {
        Ok::<_, ErrorBody>(Volume {
            referenced_bytes: referenced(&pool, &document.name, Instant::now() + LISTING_MAX, &remembered),
            quarantined: damage::quarantined(&pool, Some(&name.volume)).ok(),
            ..document
        })
    });
    Ok(Json(counted.await?))
}

/// What the volume `POOL/VOL` itself refers to. None: not counted in time, or part of it cannot be read.
fn referenced(pool: &Arc<Pool>, name: &str, until: Instant, remembered: &Arc<Remembered>) -> Option<u64> {
    let (_, volume) = name.split_once('/')?;
    Counter::until(Arc::clone(pool), volume, until, remembered).referenced(Version::Head).ok().flatten()
}

/// Makes a thin volume.
#[utoipa::path(
    post,
    path = "/volumes",
    request_body = CreateVolume,
    responses((status = 200, body = Volume))
)]
async fn create(State(site): Shared, Body(request): Body<CreateVolume>) -> Answer<Volume> {
    let name: VolumeName = parse(&request.name)?;
    check_size(request.size_bytes)?;
    check_limits(&request.limits)?;
    if site.pools.is_clustered(&name.pool) {
        return Ok(Json(images::create(&site, &name, &request).await?));
    }
    let pool = site.pools.get(&name.pool)?;
    if request.if_absent
        && let Ok(there) = look(&site, &name)
    {
        likeness::volume(&there, &request)?;
        return Ok(Json(there));
    }
    let (volume, made) = (name.volume.clone(), Arc::clone(&pool));
    let mut limits = VolumeLimits::default();
    apply(&mut limits, &request.limits, request.size_bytes);
    site.blocking.run(move || made.create_volume_with(&volume, request.size_bytes, limits)).await?;
    rights_follow(&site, &name.pool, &pool).await;
    Ok(Json(look(&site, &name)?))
}

/// Changes the size of a volume.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/resize",
    params(Planned),
    request_body = ResizeVolume,
    responses((status = 200, body = Outcome<Volume>))
)]
async fn resize(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(planned): Query<Planned>,
    Body(request): Body<ResizeVolume>,
) -> Answered<Volume> {
    let name = name_of(pool, volume)?;
    check_size(request.size_bytes)?;
    let before = look(&site, &name)?;
    let shrinks = request.size_bytes < before.size_bytes;
    if planned.plan {
        let beyond = match shrinks {
            true => count(&site, &name, move |counter| counter.only_beyond(request.size_bytes)).await?,
            false => Some(0),
        };
        let plan = plans::resize(&name, before.size_bytes, request.size_bytes, beyond);
        let refused = if before.replica {
            Some(format!("{name} is a replica: its size is that of its source"))
        } else {
            plans::busy(&name, &site.exports.writers(&name)).filter(|_| shrinks)
        };
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    if before.replica {
        return Err(ErrorBody::new(
            ErrorCode::Refused,
            format!("{name} is a replica: its size is that of its source"),
        )
        .hint("resize the source; the next update brings the new size")
        .into());
    }
    if let Some(busy) = plans::busy(&name, &site.exports.writers(&name)).filter(|_| shrinks) {
        return Err(ErrorBody::new(ErrorCode::Refused, busy).into());
    }
    let pool = site.pools.get(&name.pool)?;
    let volume = name.volume.clone();
    site.blocking.run(move || pool.resize_volume(&volume, request.size_bytes)).await?;
    Ok(Outcome::Done(look(&site, &name)?))
}

/// Changes a volume's quota, reservation and growth.
///
/// Changes what is said of a volume's room, at once: open connections notice nothing.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/limits",
    request_body = SetVolume,
    responses((status = 200, body = Volume))
)]
async fn set_limits(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Body(request): Body<SetVolume>,
) -> Answer<Volume> {
    let name = name_of(pool, volume)?;
    check_limits(&request)?;
    let size_bytes = look(&site, &name)?.size_bytes;
    if let Some(to) =
        request.autogrow.map(|autogrow| autogrow.to_bytes).filter(|to| (1..size_bytes).contains(to))
    {
        let message = format!("{name} has {size_bytes} bytes already: it cannot grow by itself to {to}");
        return Err(ErrorBody::new(ErrorCode::WrongUsage, message).into());
    }
    let pool = site.pools.get(&name.pool)?;
    let volume = name.volume.clone();
    let limits = site
        .blocking
        .run(move || pool.set_limits(&volume, |limits| apply(limits, &request, size_bytes)))
        .await?;
    tracing::info!(volume = %name, ?limits, "what the volume may take of its pool was changed on request");
    Ok(Json(look(&site, &name)?))
}

/// Changes limits as a request says, of a volume of this size.
fn apply(limits: &mut VolumeLimits, request: &SetVolume, size_bytes: u64) {
    let said = |bytes: u64| (bytes > 0).then_some(bytes);
    if let Some(bytes) = request.quota_bytes {
        limits.quota_bytes = said(bytes);
    }
    if let Some(bytes) = request.reserve_bytes {
        limits.reserve_bytes = said(bytes);
    }
    if let Some(autogrow) = request.autogrow {
        // A tenth of the volume, in whole MiB.
        let step_bytes = autogrow.step_bytes.unwrap_or((size_bytes / 10).max(1).next_multiple_of(1 << 20));
        limits.autogrow = said(autogrow.to_bytes).map(|to_bytes| Autogrow { to_bytes, step_bytes });
    }
}

/// Renames a volume.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/rename",
    request_body = Rename,
    responses((status = 200, body = Volume))
)]
async fn rename(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Body(request): Body<Rename>,
) -> Answer<Volume> {
    let name = name_of(pool, volume)?;
    let new = name_of(name.pool.clone(), request.name)?;
    look(&site, &name)?;
    if let Some(reason) = site.mirrors.stands_on(&name).await? {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    let pool = site.pools.get(&name.pool)?;
    let (from, to, renamed) = (name.clone(), new.clone(), Arc::clone(&pool));
    let exports = Arc::clone(&site.exports);
    let rename = move || exports.rename(&from, &to, || renamed.rename_volume(&from.volume, &to.volume));
    site.blocking.run(rename).await?;
    site.mirrors.refresh_fences();
    rights_follow(&site, &name.pool, &pool).await;
    Ok(Json(look(&site, &new)?))
}

/// Rights belong to volumes: a name that changed hands gives none. So what fails here is tried again in a minute, and no right
/// is used by anybody else meanwhile.
pub(super) async fn rights_follow(site: &Site, name: &str, pool: &Pool) {
    if let Err(error) = site.mirrors.rights_follow(name, &seen::of_store(pool)).await {
        tracing::warn!(
            pool = name,
            "rights on volumes of the pool were not written down; it is tried again in a minute: {error}"
        );
    }
}

/// Deletes a volume with its snapshots.
#[utoipa::path(
    delete,
    path = "/volumes/{pool}/{volume}",
    params(Planned),
    responses((status = 200, body = Outcome<Volume>))
)]
async fn delete(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(planned): Query<Planned>,
) -> Answered<Volume> {
    let name = name_of(pool, volume)?;
    if site.pools.is_clustered(&name.pool) {
        return images::delete(&site, &name, planned).await;
    }
    let document = look(&site, &name)?;
    let clients = site.exports.clients_of(&name);
    let (connections, counted) = clients.count();
    let refused = match site.mirrors.stands_on(&name).await? {
        Some(reason) => Some(reason),
        None if connections > 0 => {
            Some(format!("{counted} to {name}{}; disconnect the hosts first", clients.named()))
        }
        None => needed(&site, &name, document.uuid).await?,
    };
    if planned.plan {
        let bytes = count(&site, &name, |counter| counter.everything()).await?;
        // What a clone has in common with its origin stays there.
        let bytes = bytes.map(|bytes| document.occupied_bytes.map_or(bytes, |own| bytes.min(own)));
        let clones = clones_of(&site, &name, None)?;
        let plan = plans::delete_volume(
            &name,
            document.snapshots,
            bytes,
            &clones,
            &document.rights_of,
            &document.hosts,
        );
        let refused = match refused {
            None => site.refuses_deletions(&name.pool).await?,
            refused => refused,
        };
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    if let Some(reason) = refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    remove(&site, &name, &document).await?;
    tracing::warn!(volume = %name, hosts = ?document.hosts, rights_ended = ?document.rights_of, "volume deleted on request");
    Ok(Outcome::Done(document))
}

/// Why a snapshot keeps its volume from being deleted. What only its timetable keeps goes with it.
async fn needed(site: &Site, name: &VolumeName, identity: Uuid) -> Result<Option<String>, ErrorBody> {
    let (pool, volume) = (site.pools.get(&name.pool)?, name.volume.clone());
    let snapshots = site.blocking.run(move || pool.snapshots(&volume)).await?;
    let needed = snapshots.iter().find(|s| s.held || s.pinned_by.iter().any(|pin| *pin != kept_of(identity)));
    Ok(needed.map(|snapshot| {
        let snapshot_name = format!("{name}@{}", snapshot.name);
        match snapshot.held {
            true => {
                format!("{snapshot_name} is held; farside snapshot unhold {snapshot_name} allows deleting it")
            }
            false => format!(
                "{snapshot_name} is kept for a mirror; farside mirror destinations {name} says for whom"
            ),
        }
    }))
}

/// Deletes a volume that no mirror stands on and nobody has open. A volume of another identity stays, whatever its name is.
pub(super) async fn remove_unused(site: &Site, name: &VolumeName, identity: Uuid) -> Result<(), ErrorBody> {
    let document = look(site, name)?;
    if document.uuid != identity {
        return Err(ErrorBody::new(ErrorCode::NotFound, format!("{name} is another volume by now")));
    }
    if site.mirrors.stands_on(name).await?.is_some() || site.exports.connections_to(name).all() > 0 {
        return Err(ErrorBody::new(ErrorCode::Refused, format!("{name} is in use")));
    }
    remove(site, name, &document).await
}

/// Deletes a volume, and all that the site knows of it.
async fn remove(site: &Site, name: &VolumeName, document: &Volume) -> Result<(), ErrorBody> {
    site.snapshot_schedules.delete_volume(name, document.uuid).await?;
    site.drills.end(document.uuid).await;
    if let Err(error) = site.rights.end_with(&site.state, &[(name.clone(), document.uuid)]).await {
        // They hold for nobody else: the volume that they were on is no more.
        tracing::warn!(volume = %name, "the rights on the volume stay in the state database until a restart: {error}");
    }
    if let Err(error) = site.dedups.forget_volume(&name.pool, document.uuid).await {
        tracing::warn!(volume = %name, "the deduplication of the volume stays in the state database: {error}");
    }
    if let Err(error) = site.hosts.end_with(&[document.uuid]).await {
        tracing::warn!(volume = %name, "the rights of hosts on the volume stay in the state database: {error}");
    }
    Ok(())
}

/// A volume as it is listed.
pub(super) fn look(site: &Site, name: &VolumeName) -> Result<Volume, ErrorBody> {
    let pool = site.pools.get(&name.pool).map_err(|error| site.mirrors.with_place(name, error))?;
    pool.volume(&name.volume).map(|status| document(site, &name.pool, &pool, status)).map_err(|error| {
        let told = error.into_error_body();
        match told.code {
            ErrorCode::NotFound => {
                let told = ErrorBody::new(ErrorCode::NotFound, format!("volume {name} does not exist"))
                    .hint("farside volume list shows what is there");
                site.mirrors.with_place(name, told)
            }
            _ => told,
        }
    })
}

fn document(site: &Site, pool_name: &str, pool: &Pool, status: VolumeStatus) -> Volume {
    let name = VolumeName { pool: pool_name.to_owned(), volume: status.name };
    // A volume that goes while the list is made has none.
    let snapshots = pool.snapshots(&name.volume).unwrap_or_default();
    let connections = site.exports.connections_to(&name);
    let replica = status.replica.filter(|replica| !replica.broken_off);
    let why = match &replica {
        Some(replica) => Some(format!(
            "it is the replica of {}:{}; farside mirror break {name} makes it writable",
            peers::name_of(&site.node, PeerId(replica.peer)),
            replica.source
        )),
        None => site.exports.fenced(&name),
    };
    let quota = status
        .limits
        .quota_bytes
        .and_then(|_| site.pools.quotas(pool_name).into_iter().find(|seen| seen.volume == name.volume));
    let rights_of = site.rights.on_volume(&name, status.uuid).into_iter();
    let mut rights_of: Vec<_> = rights_of.map(|peer| peers::name_of(&site.node, peer)).collect();
    rights_of.sort();
    Volume {
        rights_of,
        hosts: site.hosts.on_volume(status.uuid),
        name: name.to_string(),
        uuid: status.uuid,
        size_bytes: status.size_bytes,
        referenced_bytes: None,
        snapshots: status.snapshots as u64,
        side_branches: snapshots.iter().filter(|snapshot| !snapshot.on_main_line).count() as u64,
        replica: replica.is_some(),
        writable: why.is_none(),
        why,
        writers: connections.writers as u64,
        readers: (connections.readers + connections.fenced) as u64,
        quarantined: None,
        occupied_bytes: Some(status.occupied_bytes),
        quota_bytes: status.limits.quota_bytes,
        room: quota.as_ref().map(|seen| seen.level),
        warning: quota.and_then(|seen| seen.warning(pool_name)),
        reserve_bytes: status.limits.reserve_bytes,
        autogrow: status.limits.autogrow.map(|autogrow| farside_api::Autogrow {
            to_bytes: autogrow.to_bytes,
            step_bytes: Some(autogrow.step_bytes),
        }),
        origin: status
            .origin
            .as_ref()
            .map(|origin| format!("{pool_name}/{}@{}", origin.volume, origin.snapshot)),
        origin_created_at: status.origin.as_ref().map(|origin| convert::time(origin.created_at)),
        origin_exists: status.origin.as_ref().map(|origin| origin.exists),
    }
}

/// The clones that were made of a volume, or of one snapshot of it, by name.
pub(super) fn clones_of(
    site: &Site,
    name: &VolumeName,
    snapshot: Option<Uuid>,
) -> Result<Vec<String>, ErrorBody> {
    let clones = site.pools.get(&name.pool)?.clones_of(&name.volume).map_err(Failure::into_error_body)?;
    let wanted = clones.into_iter().filter(|(_, of)| snapshot.is_none_or(|snapshot| snapshot == *of));
    Ok(wanted.map(|(clone, _)| format!("{}/{clone}", name.pool)).collect())
}

/// Counts for a plan, off the runtime. None: not counted in time.
pub(super) async fn count(
    site: &Site,
    name: &VolumeName,
    count: impl FnOnce(Counter) -> Result<Option<u64>, StoreError> + Send + 'static,
) -> Result<Option<u64>, ErrorBody> {
    let counter = Counter::new(site.pools.get(&name.pool)?, &name.volume);
    site.blocking.run(move || count(counter)).await
}

/// `POOL/VOL` of a request.
pub(super) fn parse(text: &str) -> Result<VolumeName, ErrorBody> {
    text.parse().map_err(Failure::into_error_body)
}

/// `POOL/VOL` of two segments of a path.
pub(super) fn name_of(pool: String, volume: String) -> Result<VolumeName, ErrorBody> {
    parse(&format!("{pool}/{volume}"))
}

fn check_size(bytes: u64) -> Result<(), ErrorBody> {
    if (1..=VOLUME_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(());
    }
    Err(ErrorBody::new(ErrorCode::WrongUsage, format!("a volume cannot have {bytes} bytes"))
        .hint(format!(
            "sizes are multiples of {BLOCK_BYTES} bytes, more than 0 and at most 16 PiB; a size without a unit is in bytes"
        )))
}

/// Less than a block is what somebody says who forgot the unit: nothing could be written.
fn check_limits(asked: &SetVolume) -> Result<(), ErrorBody> {
    let limits = [("quota", asked.quota_bytes), ("reserve", asked.reserve_bytes)];
    for (what, bytes) in limits {
        if let Some(bytes) = bytes.filter(|bytes| (1..BLOCK_BYTES as u64).contains(bytes)) {
            let said = format!(
                "a {what} of {bytes} bytes is less than a block of {BLOCK_BYTES}; nothing was changed"
            );
            return Err(ErrorBody::new(ErrorCode::WrongUsage, said)
                .hint(format!("a size without a unit is in bytes: {bytes}G is gibibytes")));
        }
    }
    Ok(())
}
