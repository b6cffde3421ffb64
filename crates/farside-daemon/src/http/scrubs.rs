//! `/pools/POOL/scrub`, `/scrubs`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::get;
use axum::{Json, Router};
use farside_api::{Scrub, StartScrub};
use tokio::runtime::Handle;

use super::error::Body;
use super::handler::{Answer, Shared};
use crate::site::Site;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        // Beside the pools: one may have any name.
        .route("/scrubs", get(list))
        .route("/pools/{pool}/scrub", get(status).post(start).delete(stop))
}

async fn list(State(site): Shared) -> Answer<Vec<Scrub>> {
    Ok(Json(site.scrubs.list()))
}

async fn status(State(site): Shared, Path(pool): Path<String>) -> Answer<Option<Scrub>> {
    site.pools.status(&pool)?;
    Ok(Json(site.scrubs.status(&pool)))
}

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

async fn stop(State(site): Shared, Path(name): Path<String>) -> Answer<Scrub> {
    let _guard = site.pool_lock.lock().await;
    site.pools.status(&name)?;
    let (scrubs, runtime) = (Arc::clone(&site.scrubs), Handle::current());
    Ok(Json(site.blocking.run(move || scrubs.stop(&name, &runtime)).await?))
}
