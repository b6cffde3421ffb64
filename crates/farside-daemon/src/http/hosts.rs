//! `/hosts`.

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{AddHost, AddedHost, ErrorBody, ErrorCode, Host, HostRights, HostStatus};
use farside_engine::VolumeName;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{Body, Query};
use super::handler::{Answer, Routes, Shared};
use super::plan::{Answered, Outcome, Planned};
use super::volumes::parse;
use crate::plans;

/// Volumes of one request.
const VOLUMES_MAX: usize = 1024;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(status, remove))
        .routes(routes!(allow))
        .routes(routes!(deny))
}

/// Hosts that may open volumes over the network.
#[utoipa::path(get, path = "/hosts", responses((status = 200, body = Vec<Host>)))]
async fn list(State(site): Shared) -> Answer<Vec<Host>> {
    Ok(Json(site.hosts.list()))
}

/// Adds a host, with a certificate for it.
#[utoipa::path(post, path = "/hosts", request_body = AddHost, responses((status = 200, body = AddedHost)))]
async fn add(State(site): Shared, Body(request): Body<AddHost>) -> Answer<AddedHost> {
    Ok(Json(site.hosts.add(&request.name).await?))
}

/// A host and its rights.
#[utoipa::path(get, path = "/hosts/{host}", responses((status = 200, body = HostStatus)))]
async fn status(State(site): Shared, Path(name): Path<String>) -> Answer<HostStatus> {
    Ok(Json(site.hosts.document(&name)?))
}

/// Removes a host.
#[utoipa::path(
    delete,
    path = "/hosts/{host}",
    params(Planned),
    responses((status = 200, body = Outcome<HostStatus>))
)]
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

/// Lets a host open volumes.
#[utoipa::path(
    post,
    path = "/hosts/{host}/allow",
    request_body = HostRights,
    responses((status = 200, body = HostStatus))
)]
async fn allow(
    State(site): Shared,
    Path(name): Path<String>,
    Body(request): Body<HostRights>,
) -> Answer<HostStatus> {
    let notes = site.hosts.allow(&name, &volumes(&request)?, request.read_only).await?;
    Ok(Json(HostStatus { notes, ..site.hosts.document(&name)? }))
}

/// Takes the right to open volumes from a host.
#[utoipa::path(
    post,
    path = "/hosts/{host}/deny",
    request_body = HostRights,
    responses((status = 200, body = HostStatus))
)]
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
