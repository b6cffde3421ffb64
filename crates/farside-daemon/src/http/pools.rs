//! `/pools`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{
    CreatePool, ErrorBody, ErrorCode, GrowPool, ImportPool, Plan, Pool, PoolEngine, PoolState, ReopenPool,
    StagedContent,
};

use farside_engine::VolumeName;
use farside_platform::free_bytes_at;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::error::{Body, Query};
use super::handler::{Answer, Routes, Shared};
use super::likeness;
use super::plan::{Answered, Outcome, Planned};
use crate::damage;
use crate::failure::Failure;
use crate::known_clusters;
use crate::known_pools;
use crate::peers;
use crate::plans;
use crate::pools::cluster_room::TO_MAKE_ROOM;
use crate::pools::place::{is_rbd, of_rbd, parse_rbd};
use crate::pools::{self, Manner, Pools, seen};
use crate::site::Site;
use crate::staged;
use crate::state::PoolRow;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(import))
        .routes(routes!(status, delete))
        .routes(routes!(reopen))
        .routes(routes!(grow))
        .routes(routes!(drop_all_staged))
        .routes(routes!(drop_staged_of))
}

/// Pools.
#[utoipa::path(get, path = "/pools", responses((status = 200, body = Vec<Pool>)))]
async fn list(State(site): Shared) -> Answer<Vec<Pool>> {
    Ok(Json(site.pools.list()))
}

/// A pool.
#[utoipa::path(get, path = "/pools/{pool}", responses((status = 200, body = Pool)))]
async fn status(State(site): Shared, Path(pool): Path<String>) -> Answer<Pool> {
    Ok(Json(with_content(&site, site.pools.status(&pool)?).await?))
}

/// Adds what is staged and what is quarantined. A pool that is not open, or cannot say, has nothing to add.
async fn with_content(site: &Site, document: Pool) -> Result<Pool, ErrorBody> {
    let document = Pool { scrub: site.scrubs.status(&document.name), ..document };
    let Ok(pool) = site.pools.get(&document.name) else { return Ok(document) };
    let look = move || {
        Ok::<_, ErrorBody>((staged::content(&pool, None).ok(), damage::quarantined(&pool, None).ok()))
    };
    let (staged, quarantined) = site.blocking.run(look).await?;
    let staged_bytes = staged.as_deref().and_then(staged::sum);
    Ok(Pool { staged, staged_bytes, quarantined, ..document })
}

/// Drops what broken transfers have left in a pool.
#[utoipa::path(
    delete,
    path = "/pools/{pool}/staged",
    params(Planned),
    responses((status = 200, body = Outcome<Vec<StagedContent>>))
)]
async fn drop_all_staged(
    State(site): Shared,
    Path(pool): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Vec<StagedContent>> {
    drop_staged(&site, pool, None, planned).await
}

/// Drops what a broken transfer has left of a volume.
#[utoipa::path(
    delete,
    path = "/pools/{pool}/staged/{volume}",
    params(Planned),
    responses((status = 200, body = Outcome<Vec<StagedContent>>))
)]
async fn drop_staged_of(
    State(site): Shared,
    Path((pool, volume)): Path<(String, String)>,
    Query(planned): Query<Planned>,
) -> Answered<Vec<StagedContent>> {
    drop_staged(&site, pool, Some(volume), planned).await
}

async fn drop_staged(
    site: &Site,
    name: String,
    volume: Option<String>,
    planned: Planned,
) -> Answered<Vec<StagedContent>> {
    let pool = site.pools.get(&name)?;
    let (counted, of) = (Arc::clone(&pool), volume.clone());
    let found = site
        .blocking
        .run(move || {
            if let Some(volume) = &of {
                counted.volume(volume).map_err(Failure::into_error_body)?;
            }
            staged::content(&counted, of.as_deref()).map_err(Failure::into_error_body)
        })
        .await?;
    let plan = plans::drop_staged(&name, &found, staged::sum(&found));
    if planned.plan {
        let refused = match plan.refused {
            None => site.refuses_deletions(&name).await?,
            refused => refused,
        };
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    if let Some(reason) = plan.refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).hint(plans::STOP_TRANSFER).into());
    }
    // The pool looks once more: a transfer may have begun since.
    site.blocking.run(move || pool.drop_staged(volume.as_deref()).map_err(Failure::into_error_body)).await?;
    tracing::warn!(pool = name, volumes = ?found.iter().map(|s| &s.volume).collect::<Vec<_>>(), "staged content discarded on request");
    Ok(Outcome::Done(found))
}

/// Makes a pool.
#[utoipa::path(
    post,
    path = "/pools",
    params(Planned),
    request_body = CreatePool,
    responses((status = 200, body = Outcome<Pool>))
)]
async fn create(
    State(site): Shared,
    Query(planned): Query<Planned>,
    Body(mut request): Body<CreatePool>,
) -> Answered<Pool> {
    pools::check_name_and_path(&request.name, &request.path)?;
    request.path = in_full(request.path);
    let _guard = site.pool_lock.lock().await;
    if request.if_absent
        && let Ok(there) = site.pools.status(&request.name)
    {
        likeness::pool(&there, &request)?;
        if !planned.plan {
            return Ok(Outcome::Done(there));
        }
    }
    let CreatePool { name, path, size_bytes, overwrite, if_absent: _ } = request;
    if is_rbd(&path) {
        return add_clustered(&site, name, path, planned).await;
    }
    super::daemons::check_one_daemon(&site).await?;
    if planned.plan {
        let at = path.clone();
        let found = site.blocking.run(move || Pools::found_at(&at)).await?;
        let mut plan = plans::create_pool(&name, &path, &found, overwrite);
        plan.would.extend(thin(&site, &path, size_bytes).await);
        let refused = plan.refused.or_else(|| site.pools.would_not_make(&name, &path, size_bytes));
        return Ok(Outcome::Plan(Plan { refused, ..plan }));
    }
    let thin = thin(&site, &path, size_bytes).await;
    let (pools, pool_name, pool_path) = (Arc::clone(&site.pools), name.clone(), path.clone());
    let made = move || pools.create(&pool_name, &pool_path, size_bytes, overwrite);
    let pool = site.blocking.run(made).await?;
    let row = PoolRow { name, path };
    if let Err(error) = remember(&site, &row, &pool).await {
        // Nobody was told of it: it goes whole, as it came.
        drop(pool);
        let removed = withdraw(&site, &row.name).await?;
        site.blocking.run(move || pools::destroy(&removed)).await?;
        return Err(error.into());
    }
    tracing::info!(pool = row.name, id = %pool.status().id, path = row.path, "pool made");
    let made = site.pools.status(&row.name)?;
    Ok(Outcome::Done(Pool { warning: made.warning.or(thin), ..made }))
}

/// A pool of Ceph as it is written in full, however it was asked for.
fn in_full(path: String) -> String {
    parse_rbd(&path).map(|place| of_rbd(&place)).unwrap_or(path)
}

/// Adds a pool of Ceph, whose images stay what they are.
async fn add_clustered(site: &Arc<Site>, name: String, path: String, planned: Planned) -> Answered<Pool> {
    let there = site.pools.status(&name).ok().filter(|there| there.state != PoolState::Failed);
    if planned.plan {
        let refused = there.map(|there| format!("pool {name} already exists, in {}", there.path));
        return Ok(Outcome::Plan(Plan { refused, ..plans::add_clustered(&name, &path) }));
    }
    let was_known = site.pools.status(&name).is_ok();
    if let Err(error) = known_clusters::connect_in_turn(site, &name, &path).await {
        // What nobody knew before leaves no row behind. One that is not there has none already.
        if !was_known {
            _ = site.pools.remove(&name);
        }
        return Err(error.into());
    }
    let row = PoolRow { name, path };
    if let Err(error) = site.state.remember_pool(&row, site.clock.now()).await {
        // Not half: a pool that serves now and is forgotten at the next start would be found out too late.
        withdraw(site, &row.name).await?;
        return Err(error.into_error_body().into());
    }
    Ok(Outcome::Done(site.pools.status(&row.name)?))
}

/// Connects a pool of Ceph anew: as another client of its cluster.
async fn reconnect(site: &Arc<Site>, name: &str) -> Answer<Pool> {
    close_readers(site, name).await?;
    let path = site.pools.disconnect(name)?;
    if let Err(error) = known_clusters::connect_in_turn(site, name, &path).await {
        known_clusters::try_on(site, name, &path);
        return Err(error.into());
    }
    Ok(Json(site.pools.status(name)?))
}

/// What to know of a file that is larger than the room there is for it: it takes its room as it fills.
async fn thin(site: &Site, path: &str, size_bytes: Option<u64>) -> Option<String> {
    let (at, size) = (PathBuf::from(path), size_bytes?);
    let free = site.blocking.run(move || Ok::<_, ErrorBody>(free_bytes_at(&at))).await.ok()??;
    (free < size).then(|| {
        format!(
            "the file system of {path} has {:.1} GiB free, and the pool may take {:.1}: when that file system is full, writes to the \
             pool fail, whatever room the pool says it has",
            gibibytes(free),
            gibibytes(size)
        )
    })
}

fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Opens a pool again.
///
/// Opens again, without a restart, what a failure has left read-only or closed. Hosts are cut off and connect again; mirrors of
/// the pool end and start anew.
#[utoipa::path(
    post,
    path = "/pools/{pool}/reopen",
    request_body = ReopenPool,
    responses((status = 200, body = Pool))
)]
async fn reopen(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<ReopenPool>,
) -> Answer<Pool> {
    let _guard = site.pool_lock.lock().await;
    let document = site.pools.status(&name)?;
    if document.engine == PoolEngine::Rbd {
        return reconnect(&site, &name).await;
    }
    // One whose mirrors did not start is opened again too.
    if document.state == PoolState::Open && site.mirrors.destination(&name).is_ok() {
        let refusing = site.takes_no_changes(&name).await?.map(|refusing| refusing.why);
        let why = refusing.unwrap_or_else(|| format!("pool {name} is open and accepts changes"));
        return Err(ErrorBody::new(ErrorCode::Refused, why).into());
    }
    let (pools, of) = (Arc::clone(&site.pools), name.clone());
    let look = move || {
        pools.refuse_if_away(&of)?;
        pools.refuse_without_room(&of)
    };
    site.blocking.run(look).await?;
    tracing::warn!(pool = name, error = document.error, "the pool is opened again on request");
    close_readers(&site, &name).await?;
    // From there on its place is taken until it is open again or failed.
    let look = site.mirrors.look_before(&name).await?;
    let reopening = site.pools.begin_reopening(&name)?;
    site.exports.drop_connections_to_pool(&name).await;
    let pools = Arc::clone(&site.pools);
    let reopened = site.blocking.run(move || pools.reopen(reopening, request.force, look)).await;
    let pool = reopened.map_err(|error| match error.code {
        ErrorCode::NotFound => {
            error.hint(format!("if it lies elsewhere now: farside pool import {name} --path WHERE"))
        }
        _ => error,
    })?;
    site.mirrors.pool_opened(&name, &seen::of_store(&pool)).await?;
    site.mirrors.refresh_fences();
    readers_go_on(&site, &name).await?;
    tracing::info!(pool = name, id = %pool.status().id, path = document.path, "pool opened");
    Ok(Json(site.pools.status(&name)?))
}

/// Makes a pool larger.
///
/// Makes a pool larger while hosts use it.
#[utoipa::path(
    post,
    path = "/pools/{pool}/grow",
    request_body = GrowPool,
    responses((status = 200, body = Pool))
)]
async fn grow(
    State(site): Shared,
    Path(name): Path<String>,
    Body(GrowPool { size_bytes }): Body<GrowPool>,
) -> Answer<Pool> {
    let _guard = site.pool_lock.lock().await;
    if site.pools.status(&name)?.engine == PoolEngine::Rbd {
        let message =
            format!("pool {name} is of Ceph RBD: it grows with its cluster alone. Nothing was changed");
        return Err(ErrorBody::new(ErrorCode::Refused, message).hint(TO_MAKE_ROOM).into());
    }
    let pool = site.pools.get(&name)?;
    let before = pool.status().size_bytes;
    let (pools, of) = (Arc::clone(&site.pools), name.clone());
    let growing = move || {
        let wanted = match size_bytes {
            Some(bytes) => bytes,
            None => pool.device_bytes().map_err(Failure::into_error_body)?,
        };
        // One that was written down by half is written down to the end.
        let is_done = pool.status().withheld_bytes == 0;
        // Asked for twice it is done once.
        if size_bytes == Some(before) && is_done {
            return Ok(before);
        }
        if is_done && wanted / farside_engine::BLOCK_BYTES * farside_engine::BLOCK_BYTES == before {
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("the pool has {before} bytes, and its device or file has no more. Nothing was changed"),
            )
            .hint(
                "a file: name the new size, farside pool grow NAME --size 100G. A raw device: make it larger first (for example \
                 lvextend), then this again",
            ));
        }
        pools.refuse_to_grow_without_room(&of)?;
        pool.grow(wanted).map_err(Failure::into_error_body)
    };
    let path = PathBuf::from(site.pools.status(&name)?.path);
    // A raw device takes nothing of the file system that its name lies on.
    let free =
        move || Ok::<_, ErrorBody>((!pools::is_raw_device(&path)).then(|| free_bytes_at(&path)).flatten());
    let free = site.blocking.run(free).await?;
    let size_bytes = site.blocking.run(growing).await?;
    tracing::info!(pool = name, before, size_bytes, "pool grown on request");
    let grown = site.pools.status(&name)?;
    // What it had not taken of its file system yet is not counted: the word may come too late, and is not wrong.
    let beyond = free.zip(Some(size_bytes.saturating_sub(before))).filter(|(free, more)| more > free);
    let thin = beyond.map(|(free, _)| {
        format!(
            "the file system of {} has {:.1} GiB free, less than the pool has grown by: when that file system is full, writes to the \
             pool fail, whatever room the pool says it has",
            grown.path,
            gibibytes(free)
        )
    });
    Ok(Json(Pool { warning: grown.warning.or(thin), ..grown }))
}

/// Ends what reads a pool of this site's own accord.
async fn close_readers(site: &Site, name: &str) -> Result<(), ErrorBody> {
    site.mirrors.pool_closing(name).await;
    let (scrubs, dedups, name) = (Arc::clone(&site.scrubs), Arc::clone(&site.dedups), name.to_owned());
    let close = move || {
        scrubs.pool_closing(&name);
        dedups.pool_closing(&name);
        Ok::<_, ErrorBody>(())
    };
    site.blocking.run(close).await
}

/// What read the pool when it was closed goes on.
async fn readers_go_on(site: &Site, name: &str) -> Result<(), ErrorBody> {
    known_pools::readers_go_on(site, name.to_owned(), site.pools.get(name)?).await;
    Ok(())
}

async fn withdraw(site: &Site, name: &str) -> Result<pools::Removed, ErrorBody> {
    close_readers(site, name).await?;
    let (pools, name) = (Arc::clone(&site.pools), name.to_owned());
    site.blocking.run(move || pools.remove(&name)).await
}

/// Opens a pool that another daemon has made.
#[utoipa::path(
    post,
    path = "/imports",
    params(Planned),
    request_body = ImportPool,
    responses((status = 200, body = Outcome<Pool>))
)]
async fn import(
    State(site): Shared,
    Query(planned): Query<Planned>,
    Body(request): Body<ImportPool>,
) -> Answered<Pool> {
    let ImportPool { name, path, force, as_copy } = request;
    pools::check_name_and_path(&name, &path)?;
    let _guard = site.pool_lock.lock().await;
    if is_rbd(&path) {
        if as_copy {
            let message =
                "an image of Ceph has its own identity, also as a copy: there is nothing for --as-copy to do";
            return Err(ErrorBody::new(ErrorCode::WrongUsage, message).into());
        }
        return add_clustered(&site, name, in_full(path), planned).await;
    }
    super::daemons::check_one_daemon(&site).await?;
    // What the database knows of a pool of that name would be taken for what it knows of the copy.
    let known = if as_copy { site.mirrors.rows_of(&name).await? } else { Vec::new() };
    let refused = (!known.is_empty()).then(|| {
        format!("this site knows mirrors of a pool {name}, which the copy has not got any more. Give it another name")
    });
    let open = site.pools.list().into_iter().find(|pool| pool.path == path && pool.state == PoolState::Open);
    let refused = refused.or_else(|| open.map(|pool| format!("{path} is open here, as pool {}", pool.name)));
    if planned.plan {
        let refused = refused
            .or_else(|| site.pools.refuse_anothers_place(&name, &path).err().map(|error| error.message));
        return Ok(Outcome::Plan(Plan { refused, ..plans::import_pool(&name, &path, as_copy) }));
    }
    if let Some(reason) = refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    let (pools, pool_name, pool_path) = (Arc::clone(&site.pools), name.clone(), path.clone());
    let look = site.mirrors.look_before(&name).await?;
    let manner = Manner { force, as_copy };
    let pool = site.blocking.run(move || pools.open(&pool_name, &pool_path, manner, look)).await?;
    opened(&site, name, path, &pool).await
}

/// Remembers an opened pool and starts its mirrors.
async fn opened(site: &Site, name: String, path: String, pool: &farside_store::Pool) -> Answered<Pool> {
    let row = PoolRow { name, path };
    if let Err(error) = remember(site, &row, pool).await {
        // Not half: a pool that serves now and is forgotten at the next start would be found out too late.
        withdraw(site, &row.name).await?;
        return Err(error
            .hint(format!("the pool is whole, in {}; farside pool import takes it over", row.path))
            .into());
    }
    tracing::info!(pool = row.name, id = %pool.status().id, path = row.path, "pool opened");
    Ok(Outcome::Done(site.pools.status(&row.name)?))
}

async fn remember(site: &Site, row: &PoolRow, pool: &farside_store::Pool) -> Result<(), ErrorBody> {
    site.mirrors.pool_opened(&row.name, &seen::of_store(pool)).await?;
    site.state.remember_pool(row, site.clock.now()).await.map_err(Failure::into_error_body)?;
    readers_go_on(site, &row.name).await
}

/// Removes a pool with all that is in it.
#[utoipa::path(
    delete,
    path = "/pools/{pool}",
    params(Planned),
    responses((status = 200, body = Outcome<Pool>))
)]
async fn delete(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Pool> {
    let _guard = site.pool_lock.lock().await;
    let document = site.pools.status(&name)?;
    let plan = plan(&site, &document).await?;
    let path_lost = match document.uuid {
        None => Some(is_gone(&site, &document).await),
        Some(_) => document.path_lost,
    };
    if planned.plan {
        return Ok(Outcome::Plan(plan));
    }
    if let Some(reason) = plan.refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    let volumes = volumes_of(&site, &name).await;
    // Asked now: it may come to nothing because the database does not answer any more.
    let look = site.mirrors.look_before(&name).await?;
    // A database that fails must not leave the pool out of service.
    site.state.probe().await.map_err(Failure::into_error_body)?;
    let removed = withdraw(&site, &name).await?;
    let forget = async {
        site.mirrors.forget_pool(&name).await?;
        site.rights.end_with(&site.state, &volumes).await.map_err(Failure::into_error_body)?;
        let ids: Vec<_> = volumes.iter().map(|(_, id)| *id).collect();
        site.hosts.end_with(&ids).await.map_err(Failure::into_error_body)?;
        site.scrubs.forget(&name).await.map_err(Failure::into_error_body)?;
        site.dedups.forget(&name).await.map_err(Failure::into_error_body)?;
        site.snapshot_schedules.forget(&name).await.map_err(Failure::into_error_body)?;
        site.state.forget_pool(&name).await.map_err(Failure::into_error_body)
    };
    if let Err(error) = forget.await {
        drop(removed);
        put_back(&site, &document, look).await;
        return Err(error.into());
    }
    // Last: from here on it is gone for good.
    site.blocking.run(move || pools::destroy(&removed)).await?;
    tracing::warn!(pool = name, path = document.path, "pool deleted on request");
    Ok(Outcome::Done(Pool { path_lost, ..document }))
}

/// Opens a pool again whose deletion came to nothing. `look` sees it before it is served.
async fn put_back(
    site: &Arc<Site>,
    document: &Pool,
    look: impl FnOnce(&farside_store::Pool) + Send + 'static,
) {
    let (pools, name, path) = (Arc::clone(&site.pools), document.name.clone(), document.path.clone());
    if document.engine == PoolEngine::Rbd {
        if let Err(error) = known_clusters::connect_in_turn(site, &name, &path).await {
            tracing::error!(
                pool = name,
                "the pool was not forgotten, and is not connected: {}",
                error.message
            );
            known_clusters::try_on(site, &name, &path);
        }
        return;
    }
    let opened = match document.state {
        // Its device did not answer, and would hold up this request, too.
        PoolState::Opening => {
            pools.put_back_closed(&name, &path, "it was to be forgotten while it was being opened")
        }
        _ => site.blocking.run(move || pools.put_back(&name, &path, look)).await,
    };
    let opened = match opened {
        Ok(pool) => {
            let opened = site.mirrors.pool_opened(&document.name, &seen::of_store(&pool)).await;
            opened.and(readers_go_on(site, &document.name).await)
        }
        Err(error) => Err(error),
    };
    match opened {
        Ok(()) => tracing::warn!(pool = document.name, "the pool was not deleted, and is open again"),
        Err(error) => {
            let (pool, reason) = (&document.name, error.message);
            tracing::error!(
                pool,
                "the pool was not deleted, and is not open: {reason}. farside pool reopen {pool} opens it"
            );
        }
    }
}

/// The volumes of a pool that is open.
async fn volumes_of(site: &Site, name: &str) -> Vec<(VolumeName, Uuid)> {
    let volumes = match site.pools.get(name) {
        Ok(pool) => seen::of_store(&pool),
        // A cluster that does not answer keeps nobody from forgetting it.
        Err(_) if site.pools.is_clustered(name) => {
            site.mirrors.seen_in_cluster(name).await.unwrap_or_default()
        }
        Err(_) => Vec::new(),
    };
    let volumes = volumes.into_iter();
    volumes.map(|v| (VolumeName { pool: name.to_owned(), volume: v.name }, v.uuid)).collect()
}

/// Snapshots of a pool that somebody holds.
async fn held_in(site: &Site, name: &str) -> Result<Vec<String>, ErrorBody> {
    let Ok(pool) = site.pools.get(name) else { return Ok(Vec::new()) };
    let of = name.to_owned();
    let look = move || {
        let mut held = Vec::new();
        for volume in pool.volumes() {
            let snapshots = pool.snapshots(&volume.name).map_err(Failure::into_error_body)?;
            let named = snapshots.into_iter().filter(|snapshot| snapshot.held);
            held.extend(named.map(|snapshot| format!("{of}/{}@{}", volume.name, snapshot.name)));
        }
        Ok::<_, ErrorBody>(held)
    };
    site.blocking.run(look).await
}

/// Whether nothing is at the path of a pool that is not open. Of one that hangs in being opened nobody asks.
async fn is_gone(site: &Site, pool: &Pool) -> bool {
    if pool.engine != PoolEngine::Embedded || pool.state == PoolState::Opening {
        return false;
    }
    let path = PathBuf::from(&pool.path);
    let look = move || Ok::<_, ErrorBody>(matches!(path.try_exists(), Ok(false)));
    site.blocking.run(look).await.unwrap_or(false)
}

async fn plan(site: &Site, pool: &Pool) -> Result<Plan, ErrorBody> {
    let mirrored: BTreeSet<VolumeName> = site.mirrors.of_pool(&pool.name).await?.into_iter().collect();
    // All that stands in the way, so that nobody has to find one after the other.
    let mut in_the_way = Vec::new();
    if pool.uuid.is_some() || site.pools.is_clustered(&pool.name) {
        for volume in &mirrored {
            let of_volume = site.mirrors.all_on(volume).await?;
            if of_volume.is_empty() {
                in_the_way.push(format!("{volume} is part of a mirror; end that first"));
            }
            in_the_way.extend(of_volume);
        }
        in_the_way.extend(held_in(site, &pool.name).await?.into_iter().map(|snapshot| {
            format!("{snapshot} is held; farside snapshot unhold {snapshot} allows deleting it")
        }));
        in_the_way.extend(site.pools.moved_away(&pool.name));
        let clients = site.exports.clients_of_pool(&pool.name);
        let (connections, count) = clients.count();
        if connections > 0 {
            let who = clients.named();
            in_the_way.push(format!("{count} to its volumes{who}; disconnect the hosts first"));
        }
    }
    let refused = (!in_the_way.is_empty()).then(|| in_the_way.join(". Besides: "));
    let plan = match pool.uuid {
        Some(_) => {
            let (volumes, used) = (pool.volumes.unwrap_or(0), pool.used_bytes.unwrap_or(0));
            let volumes_of_pool = volumes_of(site, &pool.name).await;
            let holders = volumes_of_pool.iter().flat_map(|(name, id)| site.rights.on_volume(name, *id));
            let holders: BTreeSet<_> = holders.map(|peer| peers::name_of(&site.node, peer)).collect();
            let holders: Vec<_> = holders.into_iter().collect();
            plans::delete_pool(&pool.name, &pool.path, volumes, used, &holders)
        }
        None => {
            // Of an original the other site has the schedule.
            let replicas = site.mirrors.rows_of(&pool.name).await?;
            let replicas: Vec<_> = replicas.iter().map(|row| row.destination.to_string()).collect();
            plans::forget_pool(&pool.name, &pool.path, is_gone(site, pool).await, &replicas)
        }
    };
    Ok(Plan { refused, ..plan })
}
