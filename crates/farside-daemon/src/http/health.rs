//! `/metrics` for Prometheus, `/healthz` for whoever asks whether to page somebody, `/readyz` for whether anything waits for a person.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use farside_api::{Pool, PoolRoom, PoolState};
use farside_mirror::{MirrorStatus, State as MirrorState, Stopped};
use farside_store::VolumeStatus;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::ApiError;
use super::handler::{Routes, Shared};
use crate::metrics::{Present, VolumeRoom};
use crate::peers;
use crate::site::Site;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(metrics)).routes(routes!(healthz)).routes(routes!(readyz))
}

/// Metrics as Prometheus reads them.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "text/plain")))]
async fn metrics(State(site): Shared) -> Result<Response, ApiError> {
    let page = site.metrics.render(&Present {
        pools: site.pools.list(),
        volumes: volumes(&site),
        scrubs: site.scrubs.list(),
        dedups: site.dedups.list(&site.pools.open_pools()),
        mirrors: site.mirrors.list().await?,
        peers: peers::list(&site.node),
        paths: peers::paths(&site.node),
        queue: site.mirrors.queue(),
        accelerator: site.accelerator.status(),
        hosts: site.hosts.list(),
        host_times: site.exports.times(),
        alarms: site.alarms.count(),
        log_lines_lost: site.log.lost_lines(),
        daemons: site.keeper.as_ref().map(|keeper| keeper.counts()),
    });
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response())
}

/// What each volume takes of its pool.
fn volumes(site: &Site) -> Vec<VolumeRoom> {
    let of_pool = |(pool_name, pool): (String, Arc<farside_store::Pool>)| {
        let mut levels: BTreeMap<String, PoolRoom> =
            site.pools.quotas(&pool_name).into_iter().map(|seen| (seen.volume, seen.level)).collect();
        let room = |volume: VolumeStatus| VolumeRoom {
            room: levels.remove(&volume.name),
            name: format!("{pool_name}/{}", volume.name),
            occupied_bytes: volume.occupied_bytes,
            quota_bytes: volume.limits.quota_bytes,
            reserve_bytes: volume.limits.reserve_bytes,
        };
        pool.volumes().into_iter().map(room).collect::<Vec<_>>()
    };
    site.pools.open_pools().into_iter().flat_map(of_pool).collect()
}

/// Whether everything serves, and why not.
///
/// 200 if everything serves, 503 with the reasons if not. Warnings change neither.
#[utoipa::path(
    get,
    path = "/healthz",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
async fn healthz(State(site): Shared) -> Response {
    let reasons = reasons(&site).await;
    let warnings = warnings(&site);
    let (status, word) =
        if reasons.is_empty() { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "ill") };
    (status, Json(Health { status: word, reasons, warnings })).into_response()
}

/// Whether nothing waits for a person, and what does.
///
/// 200 if everything serves and no alarm is raised that nobody has acknowledged, 503 with the reasons if not: also if a replica here is
/// late, its peer is gone, or its pool nearly full. For whoever can ask one question only.
#[utoipa::path(
    get,
    path = "/readyz",
    responses((status = 200, body = Health), (status = 503, body = Health))
)]
async fn readyz(State(site): Shared) -> Response {
    let mut reasons = reasons(&site).await;
    reasons.extend(warnings(&site));
    let (status, word) =
        if reasons.is_empty() { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "ill") };
    (status, Json(Health { status: word, reasons, warnings: Vec::new() })).into_response()
}

/// What `/healthz` and `/readyz` answer.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// `ok` or `ill`.
    status: &'static str,
    /// Why somebody has to look after the site.
    reasons: Vec<String>,
    /// What is all right yet, and will not be for long.
    warnings: Vec<String>,
}

/// What is all right yet, and somebody should know before it is not.
pub(super) fn warnings(site: &Site) -> Vec<String> {
    let late = |pool: &Pool| pool.room.is_some_and(|room| room >= PoolRoom::NearlyFull);
    let pools = site.pools.list().into_iter().filter(late);
    let pools = pools.filter_map(|pool| Some(format!("pool {}: {}", pool.name, pool.warning?)));
    let volumes = site.pools.open_pools().into_iter().flat_map(|(pool, _)| {
        let late = site.pools.quotas(&pool).into_iter().filter(|seen| seen.level >= PoolRoom::NearlyFull);
        late.filter_map(|seen| Some(format!("volume {pool}/{}: {}", seen.volume, seen.warning(&pool)?)))
            .collect::<Vec<_>>()
    });
    let daemons = site.keeper.iter().flat_map(|keeper| keeper.warnings());
    let mirrors = site.mirrors.statuses().into_iter().filter_map(|mirror| left_alone(&mirror));
    let own = mirrors.chain(site.hosts.warning());
    pools.chain(volumes).chain(daemons).chain(own).chain(site.alarms.warnings()).collect()
}

/// That nothing will ever come to a replica by itself: no alarm of lateness says it, as nobody knows how late it may be.
fn left_alone(mirror: &MirrorStatus) -> Option<String> {
    let name = &mirror.relationship.destination;
    if mirror.state == MirrorState::BrokenOff {
        return None;
    }
    match &mirror.stopped {
        Some(Stopped::NoRight(why) | Stopped::NoOriginal(why)) => {
            return Some(format!("{name} gets nothing any more: {why}"));
        }
        Some(Stopped::NoRoom(_)) | None => {}
    }
    mirror.relationship.schedule_lost.then(|| {
        format!(
            "{name} is updated only when somebody asks: the state database that knew its schedule, what it keeps and the way back is \
             lost or older. Run the line that made it once more (farside mirror create … --every … --keep … --if-absent); farside mirror status \
             {name} has it. If no schedule is meant: farside mirror set {name} --every off"
        )
    })
}

/// Why somebody has to look after the site. Lag and sessions are no matter of this: the replica's site goes on serving what it has.
pub(super) async fn reasons(site: &Site) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Err(error) = site.state.probe().await {
        reasons.push(error.to_string());
    }
    // Until somebody has done about it what there is to do, or begun anew.
    if site.pools.list().is_empty() {
        reasons.extend(site.half_new.map(str::to_owned));
    }
    for pool in
        site.pools.list().into_iter().filter(|pool| pool.state != PoolState::Open || pool.error.is_some())
    {
        let (error, advice) = (pool.error.unwrap_or_default(), pool.advice.unwrap_or_default());
        reasons.push(format!("pool {}: {error}. What to do: {advice}", pool.name));
    }
    reasons.extend(site.log.trouble());
    reasons
}
