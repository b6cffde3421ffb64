//! `/volumes/POOL/VOL/dedup`, `/dedups`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{Dedup, ErrorBody, StartDedup, Volume};
use farside_engine::VolumeName;
use farside_store::Pool;
use tokio::runtime::Handle;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{Body, Query};
use super::handler::{Answer, Routes, Shared};
use super::plan::{Answered, Outcome, Planned};
use super::volumes::{look, name_of};
use crate::dedups::{self, Dedups};
use crate::site::Site;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(status, start, stop)).routes(routes!(undo))
}

type Named = Path<(String, String)>;

/// Deduplication of all volumes.
#[utoipa::path(get, path = "/dedups", responses((status = 200, body = Vec<Dedup>)))]
async fn list(State(site): Shared) -> Answer<Vec<Dedup>> {
    Ok(Json(site.dedups.list(&site.pools.open_pools())))
}

/// Deduplication of a volume.
#[utoipa::path(get, path = "/volumes/{pool}/{volume}/dedup", responses((status = 200, body = Dedup)))]
async fn status(State(site): Shared, Path((pool, volume)): Named) -> Answer<Dedup> {
    let (name, document, pool) = find(&site, pool, volume)?;
    Ok(Json(site.dedups.status(&name.pool, &pool, &document.name, document.uuid)))
}

/// Starts deduplication of a volume.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/dedup",
    request_body = StartDedup,
    responses((status = 200, body = Dedup))
)]
async fn start(
    State(site): Shared,
    Path((pool, volume)): Named,
    Body(request): Body<StartDedup>,
) -> Answer<Dedup> {
    let started = change(&site, pool, volume, move |dedups, pool, volume, runtime| {
        dedups.start(pool, volume, &request, runtime)
    });
    let started = started.await?;
    let (volume, limit) = (&started.volume, started.limit_bytes_per_second);
    tracing::info!(volume, limit, "deduplication on request");
    Ok(Json(started))
}

/// Stops deduplication of a volume.
#[utoipa::path(delete, path = "/volumes/{pool}/{volume}/dedup", responses((status = 200, body = Dedup)))]
async fn stop(State(site): Shared, Path((pool, volume)): Named) -> Answer<Dedup> {
    let stop =
        change(&site, pool, volume, |dedups, pool, volume, runtime| dedups.stop(pool, volume, runtime));
    Ok(Json(stop.await?))
}

/// Gives every block of a volume a place of its own again.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/dedup/undo",
    params(Planned),
    request_body = StartDedup,
    responses((status = 200, body = Outcome<Dedup>))
)]
async fn undo(
    State(site): Shared,
    Path((pool, volume)): Named,
    Query(planned): Query<Planned>,
    Body(request): Body<StartDedup>,
) -> Answered<Dedup> {
    if planned.plan {
        let (name, document, pool) = find(&site, pool, volume)?;
        let needs = site.blocking.run(move || dedups::undo_needs(&pool, document.uuid)).await?;
        return Ok(Outcome::Plan(needs.plan(&name)));
    }
    let undone = change(&site, pool, volume, move |dedups, pool, volume, runtime| {
        dedups.undo(pool, volume, &request, runtime)
    });
    let undone = undone.await?;
    tracing::info!(volume = undone.volume, "deduplication is undone on request");
    Ok(Outcome::Done(undone))
}

fn find(site: &Site, pool: String, volume: String) -> Result<(VolumeName, Volume, Arc<Pool>), ErrorBody> {
    let name = name_of(pool, volume)?;
    let document = look(site, &name)?;
    let pool = site.pools.get(&name.pool)?;
    Ok((name, document, pool))
}

/// One change of what is wanted, off the runtime.
async fn change(
    site: &Site,
    pool: String,
    volume: String,
    change: impl FnOnce(
        &Dedups,
        (&str, &Arc<Pool>),
        (&str, farside_api::Uuid),
        &Handle,
    ) -> Result<Dedup, ErrorBody>
    + Send
    + 'static,
) -> Result<Dedup, ErrorBody> {
    // One that is being closed must not get another reader.
    let _guard = site.pool_lock.lock().await;
    let (name, document, pool) = find(site, pool, volume)?;
    let (dedups, runtime) = (Arc::clone(&site.dedups), Handle::current());
    let changed = move || change(&dedups, (&name.pool, &pool), (&document.name, document.uuid), &runtime);
    site.blocking.run(changed).await
}
