//! `/volumes/POOL/VOL/dedup`, `/dedups`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use farside_api::{Dedup, ErrorBody, StartDedup, Volume};
use farside_engine::VolumeName;
use farside_store::Pool;
use tokio::runtime::Handle;

use super::error::{Body, Query};
use super::handler::{Answer, Shared};
use super::plan::{Answered, Outcome, Planned};
use super::volumes::{look, name_of};
use crate::dedups::{self, Dedups};
use crate::site::Site;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/dedups", get(list))
        .route("/volumes/{pool}/{volume}/dedup", get(status).post(start).delete(stop))
        .route("/volumes/{pool}/{volume}/dedup/undo", post(undo))
}

type Named = Path<(String, String)>;

async fn list(State(site): Shared) -> Answer<Vec<Dedup>> {
    Ok(Json(site.dedups.list(&site.pools.open_pools())))
}

async fn status(State(site): Shared, Path((pool, volume)): Named) -> Answer<Dedup> {
    let (name, document, pool) = find(&site, pool, volume)?;
    Ok(Json(site.dedups.status(&name.pool, &pool, &document.name, document.uuid)))
}

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

async fn stop(State(site): Shared, Path((pool, volume)): Named) -> Answer<Dedup> {
    let stop =
        change(&site, pool, volume, |dedups, pool, volume, runtime| dedups.stop(pool, volume, runtime));
    Ok(Json(stop.await?))
}

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
