//! `/hosts`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use farside_api::{AddHost, AddedHost, ErrorBody, ErrorCode, Host, HostRights, HostStatus};
use farside_engine::VolumeName;

use super::error::{Body, Query};
use super::handler::{Answer, Shared};
use super::plan::{Answered, Outcome, Planned};
use super::volumes::parse;
use crate::plans;
use crate::site::Site;

/// Volumes of one request.
const VOLUMES_MAX: usize = 1024;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/hosts", get(list).post(add))
        .route("/hosts/{host}", get(status).delete(remove))
        .route("/hosts/{host}/allow", post(allow))
        .route("/hosts/{host}/deny", post(deny))
}

async fn list(State(site): Shared) -> Answer<Vec<Host>> {
    Ok(Json(site.hosts.list()))
}

async fn add(State(site): Shared, Body(request): Body<AddHost>) -> Answer<AddedHost> {
    Ok(Json(site.hosts.add(&request.name).await?))
}

async fn status(State(site): Shared, Path(name): Path<String>) -> Answer<HostStatus> {
    Ok(Json(site.hosts.document(&name)?))
}

async fn remove(
    State(site): Shared,
    Path(name): Path<String>,
    Query(planned): Query<Planned>,
) -> Answered<HostStatus> {
    if planned.plan {
        return Ok(Outcome::Plan(plans::remove_host(&site.hosts.document(&name)?)));
    }
    let (document, notes) = site.hosts.remove(&name).await?;
    Ok(Outcome::Done(HostStatus { notes, ..document }))
}

async fn allow(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<HostRights>,
) -> Answer<HostStatus> {
    let notes = site.hosts.allow(&name, &volumes(&request)?, request.read_only).await?;
    Ok(Json(HostStatus { notes, ..site.hosts.document(&name)? }))
}

async fn deny(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<HostRights>,
) -> Answer<HostStatus> {
    let notes = site.hosts.deny(&name, &volumes(&request)?).await?;
    Ok(Json(HostStatus { notes, ..site.hosts.document(&name)? }))
}

fn volumes(request: &HostRights) -> Result<Vec<VolumeName>, ErrorBody> {
    if request.volumes.is_empty() || request.volumes.len() > VOLUMES_MAX {
        return Err(ErrorBody::new(ErrorCode::WrongUsage, format!("name 1 to {VOLUMES_MAX} volumes")));
    }
    request.volumes.iter().map(|name| parse(name)).collect()
}
