//! `/pools/POOL/scrub`, `/scrubs`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{Scrub, StartScrub};
use tokio::runtime::Handle;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::Body;
use super::handler::{Answer, Routes, Shared};

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(status, start, stop))
}

/// Scrubs of all pools.
#[utoipa::path(get, path = "/scrubs", responses((status = 200, body = Vec<Scrub>)))]
async fn list(State(site): Shared) -> Answer<Vec<Scrub>> {
    Ok(Json(site.scrubs.list()))
}

/// The scrub of a pool.
#[utoipa::path(get, path = "/pools/{pool}/scrub", responses((status = 200, body = Option<Scrub>)))]
async fn status(State(site): Shared, Path(pool): Path<String>) -> Answer<Option<Scrub>> {
    site.pools.status(&pool)?;
    Ok(Json(site.scrubs.status(&pool)))
}

/// Starts or goes on with the scrub of a pool.
#[utoipa::path(
    post,
    path = "/pools/{pool}/scrub",
    request_body = StartScrub,
    responses((status = 200, body = Scrub))
)]
async fn start(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<StartScrub>,
) -> Answer<Scrub> {
    // One that is being closed must not get another reader.
    let _guard = site.pool_lock.lock().await;
    let pool = site.pools.get(&name)?;
    let (scrubs, runtime) = (Arc::clone(&site.scrubs), Handle::current());
    let started = site.blocking.run(move || {
        let started = scrubs.start(&name, &pool, &request, &runtime)?;
        tracing::info!(pool = name, limit = started.limit_bytes_per_second, "scrub on request");
        Ok::<_, farside_api::ErrorBody>(started)
    });
    Ok(Json(started.await?))
}

/// Stops the scrub of a pool.
#[utoipa::path(delete, path = "/pools/{pool}/scrub", responses((status = 200, body = Scrub)))]
async fn stop(State(site): Shared, Path(name): Path<String>) -> Answer<Scrub> {
    let _guard = site.pool_lock.lock().await;
    site.pools.status(&name)?;
    let (scrubs, runtime) = (Arc::clone(&site.scrubs), Handle::current());
    Ok(Json(site.blocking.run(move || scrubs.stop(&name, &runtime)).await?))
}
