//! `/pools`.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use farside_api::{CreatePool, ErrorBody, ErrorCode, ImportPool, Plan, Pool};

use super::error::{Body, Query};
use super::plan::{Answered, Outcome, Planned};
use super::{Answer, Shared};
use crate::failure::Failure;
use crate::plans;
use crate::pools;
use crate::site::Site;
use crate::state::PoolRow;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/pools", get(list).post(create))
        .route("/pools/import", post(import))
        .route("/pools/{pool}", get(status).delete(delete))
}

async fn list(State(site): Shared) -> Answer<Vec<Pool>> {
    Ok(Json(site.pools.list()))
}

async fn status(State(site): Shared, Path(pool): Path<String>) -> Answer<Pool> {
    Ok(Json(site.pools.status(&pool)?))
}

async fn create(State(site): Shared, Body(request): Body<CreatePool>) -> Answer<Pool> {
    let CreatePool { name, path, size_bytes } = request;
    let _turn = site.pool_turn.lock().await;
    let (pools, pool_name, pool_path) = (Arc::clone(&site.pools), name.clone(), path.clone());
    let pool = site.blocking.run(move || pools.create(&pool_name, &pool_path, size_bytes)).await?;
    opened(&site, name, path, &pool).await
}

async fn import(State(site): Shared, Body(request): Body<ImportPool>) -> Answer<Pool> {
    let ImportPool { name, path } = request;
    let _turn = site.pool_turn.lock().await;
    let (pools, pool_name, pool_path) = (Arc::clone(&site.pools), name.clone(), path.clone());
    let pool = site.blocking.run(move || pools.open(&pool_name, &pool_path)).await?;
    opened(&site, name, path, &pool).await
}

/// Remembers an opened pool and starts its mirrors.
async fn opened(site: &Site, name: String, path: String, pool: &farside_store::Pool) -> Answer<Pool> {
    let row = PoolRow { name, path };
    if let Err(error) = remember(site, &row, pool).await {
        // Not half: a pool that serves now and is forgotten at the next start would be found out too late.
        site.mirrors.pool_closing(&row.name).await;
        let (pools, name) = (Arc::clone(&site.pools), row.name.clone());
        site.blocking.run(move || pools.remove(&name)).await?;
        return Err(error
            .hint(format!("the pool is whole, in {}; farside pool import takes it over", row.path))
            .into());
    }
    tracing::info!(pool = row.name, id = %pool.status().id, path = row.path, "pool opened");
    Ok(Json(site.pools.status(&row.name)?))
}

async fn remember(site: &Site, row: &PoolRow, pool: &farside_store::Pool) -> Result<(), ErrorBody> {
    site.mirrors.pool_opened(&row.name, pool).await?;
    site.state.remember_pool(row, site.clock.now()).await.map_err(Failure::tell)
}

async fn delete(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Pool> {
    let _turn = site.pool_turn.lock().await;
    let document = site.pools.status(&name)?;
    let plan = plan(&site, &document).await?;
    if planned.plan {
        return Ok(Outcome::Plan(plan));
    }
    if let Some(reason) = plan.refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).into());
    }
    site.mirrors.pool_closing(&name).await;
    let (pools, pool_name) = (Arc::clone(&site.pools), name.clone());
    let path = site.blocking.run(move || pools.remove(&pool_name)).await?;
    site.mirrors.forget_pool(&name).await?;
    site.state.forget_pool(&name).await?;
    // Last: from here on it is gone for good. A pool that failed to open is only forgotten: its file may be all that
    // is left of somebody's data.
    if document.uuid.is_some() {
        site.blocking.run(move || pools::destroy(FilePath::new(&path))).await?;
    }
    tracing::warn!(pool = name, path = document.path, "pool deleted on request");
    Ok(Outcome::Done(document))
}

async fn plan(site: &Site, pool: &Pool) -> Result<Plan, ErrorBody> {
    let mirrored = site.mirrors.of_pool(&pool.name).await?;
    let connections = site.exports.connections_to_pool(&pool.name);
    let refused = if pool.uuid.is_none() {
        None
    } else if let Some(volume) = mirrored.first() {
        let part = || format!("{volume} is part of a mirror; end that first");
        Some(site.mirrors.stands_on(volume).await?.unwrap_or_else(part))
    } else if connections > 0 {
        Some(format!("{connections} NBD connections are open to its volumes; disconnect the hosts first"))
    } else {
        None
    };
    let plan = match pool.uuid {
        Some(_) => {
            let (volumes, used) = (pool.volumes.unwrap_or(0), pool.used_bytes.unwrap_or(0));
            plans::delete_pool(&pool.name, &pool.path, volumes, used)
        }
        None => plans::forget_pool(&pool.name, &pool.path),
    };
    Ok(Plan { refused, ..plan })
}
