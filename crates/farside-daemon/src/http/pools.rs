//! `/pools`.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use farside_api::{CreatePool, ErrorBody, ErrorCode, ImportPool, Plan, Pool, StagedContent};

use super::error::{Body, Query};
use super::handler::{Answer, Shared};
use super::plan::{Answered, Outcome, Planned};
use crate::damage;
use crate::failure::Failure;
use crate::plans;
use crate::pools;
use crate::site::Site;
use crate::staged;
use crate::state::PoolRow;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/pools", get(list).post(create))
        .route("/pools/import", post(import))
        .route("/pools/{pool}", get(status).delete(delete))
        .route("/pools/{pool}/staged", axum::routing::delete(drop_all_staged))
        .route("/pools/{pool}/staged/{volume}", axum::routing::delete(drop_staged_of))
}

async fn list(State(site): Shared) -> Answer<Vec<Pool>> {
    Ok(Json(site.pools.list()))
}

async fn status(State(site): Shared, Path(pool): Path<String>) -> Answer<Pool> {
    Ok(Json(with_content(&site, site.pools.status(&pool)?).await?))
}

/// Adds what is staged and what is quarantined. A pool that is not open, or cannot say, has nothing to add.
async fn with_content(site: &Site, document: Pool) -> Result<Pool, ErrorBody> {
    let Ok(pool) = site.pools.get(&document.name) else { return Ok(document) };
    let look = move || {
        Ok::<_, ErrorBody>((staged::content(&pool, None).ok(), damage::quarantined(&pool, None).ok()))
    };
    let (staged, quarantined) = site.blocking.run(look).await?;
    let staged_bytes = staged.as_deref().and_then(staged::sum);
    Ok(Pool { staged, staged_bytes, quarantined, ..document })
}

async fn drop_all_staged(
    State(site): Shared,
    Path(pool): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Vec<StagedContent>> {
    drop_staged(&site, pool, None, planned).await
}

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
        return Ok(Outcome::Plan(plan));
    }
    if let Some(reason) = plan.refused {
        return Err(ErrorBody::new(ErrorCode::Refused, reason).hint(plans::STOP_TRANSFER).into());
    }
    // The pool looks once more: a transfer may have begun since.
    site.blocking.run(move || pool.drop_staged(volume.as_deref()).map_err(Failure::into_error_body)).await?;
    tracing::warn!(pool = name, volumes = ?found.iter().map(|s| &s.volume).collect::<Vec<_>>(), "staged content discarded on request");
    Ok(Outcome::Done(found))
}

async fn create(State(site): Shared, Body(request): Body<CreatePool>) -> Answer<Pool> {
    let CreatePool { name, path, size_bytes } = request;
    let _guard = site.pool_lock.lock().await;
    let (pools, pool_name, pool_path) = (Arc::clone(&site.pools), name.clone(), path.clone());
    let pool = site.blocking.run(move || pools.create(&pool_name, &pool_path, size_bytes)).await?;
    opened(&site, name, path, &pool).await
}

async fn import(State(site): Shared, Body(request): Body<ImportPool>) -> Answer<Pool> {
    let ImportPool { name, path } = request;
    let _guard = site.pool_lock.lock().await;
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
    site.state.remember_pool(row, site.clock.now()).await.map_err(Failure::into_error_body)
}

async fn delete(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<Pool> {
    let _guard = site.pool_lock.lock().await;
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
