//! `/snapshot-schedules`, and `/volumes/POOL/VOL/snapshot-schedule`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use farside_api::{ErrorBody, ErrorCode, SetSnapshotSchedule, SnapshotSchedule, Uuid};
use farside_engine::VolumeName;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::Body;
use super::handler::{Answer, Routes, Shared};
use super::images;
use super::plan::{Answered, Outcome, Planned};
use super::volumes::{look, name_of, parse};
use crate::failure::Failure;
use crate::site::Site;
use crate::snapshot_schedules::Wanted;
use crate::{convert, plans, schedules};

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, set, end))
}

/// Timetables of snapshots.
#[utoipa::path(get, path = "/snapshot-schedules", responses((status = 200, body = Vec<SnapshotSchedule>)))]
async fn list(State(site): Shared) -> Answer<Vec<SnapshotSchedule>> {
    Ok(Json(site.snapshot_schedules.list(None).await))
}

type Named = Path<(String, String)>;

/// A volume's timetable of snapshots.
#[utoipa::path(
    get,
    path = "/volumes/{pool}/{volume}/snapshot-schedule",
    responses((status = 200, body = SnapshotSchedule))
)]
async fn show(State(site): Shared, Path((pool, volume)): Named) -> Answer<SnapshotSchedule> {
    let name = name_of(pool, volume)?;
    let uuid = volume_id(&site, &name).await?;
    let found = site.snapshot_schedules.list(Some(uuid)).await;
    found.into_iter().next().map(Json).ok_or_else(|| none(&name).into())
}

/// Sets a timetable of snapshots.
#[utoipa::path(
    post,
    path = "/volumes/{pool}/{volume}/snapshot-schedule",
    params(Planned),
    request_body = SetSnapshotSchedule,
    responses((status = 200, body = Outcome<SnapshotSchedule>))
)]
async fn set(
    State(site): Shared,
    Path((pool, volume)): Named,
    Query(planned): Query<Planned>,
    Body(request): Body<SetSnapshotSchedule>,
) -> Answered<SnapshotSchedule> {
    let name = name_of(pool, volume)?;
    let uuid = volume_id(&site, &name).await?;
    let schedule =
        schedules::asked(request.every_seconds, request.schedule.as_deref(), request.time_zone.as_deref())?;
    if schedule == Some(farside_mirror::Schedule::OnRequest) {
        let wrong = ErrorBody::new(ErrorCode::WrongUsage, "an interval of snapshots is at least 1 s");
        return Err(wrong.hint("farside snapshot schedule --off ends it").into());
    }
    let retention = request.retention.as_deref().map(str::parse).transpose();
    let mut others = request.others.as_ref().map(|_| Vec::new());
    for text in request.others.iter().flatten() {
        let name = parse(text)?;
        let uuid = volume_id(&site, &name).await?;
        others.get_or_insert_default().push((name, uuid));
    }
    let wanted = Wanted {
        others,
        schedule,
        retention: retention.map_err(Failure::into_error_body)?,
        hook: request.hook.map(|hook| Some(hook).filter(|hook| !hook.is_empty())),
    };
    if planned.plan {
        let timetables = Arc::clone(&site.snapshot_schedules);
        let retention = wanted.retention;
        // As with mirrors: said again it changes nothing, and asks nothing.
        if let Some(retention) = retention.filter(|wanted| timetables.retention_of(uuid) == Some(*wanted)) {
            return Ok(Outcome::Plan(plans::rotates_so_already(&name, &retention.to_string())));
        }
        let found =
            site.blocking.run(move || Ok::<_, ErrorBody>(timetables.would_let_go(uuid, retention.as_ref())));
        let (gone, of) = found.await?;
        let gone: Vec<_> = gone.into_iter().map(|(name, at)| (name, convert::time(at))).collect();
        let retention = retention.map(|retention| retention.to_string());
        return Ok(Outcome::Plan(plans::rotate_otherwise(&name, retention.as_deref(), &gone, of)));
    }
    let set = site.snapshot_schedules.set(&name, uuid, wanted).await?;
    tracing::info!(volume = %name, schedule = set.schedule, retention = set.retention, hook = set.hook, "snapshots by timetable");
    Ok(Outcome::Done(set))
}

/// Ends a timetable of snapshots.
#[utoipa::path(
    delete,
    path = "/volumes/{pool}/{volume}/snapshot-schedule",
    responses((status = 200, body = SnapshotSchedule))
)]
async fn end(State(site): Shared, Path((pool, volume)): Named) -> Answer<SnapshotSchedule> {
    let name = name_of(pool, volume)?;
    let uuid = volume_id(&site, &name).await?;
    let ended = site.snapshot_schedules.end(uuid).await?.ok_or_else(|| none(&name))?;
    tracing::info!(volume = %name, points = ended.points, "the timetable of snapshots has ended; what it took stays");
    Ok(Json(ended))
}

/// The identity of a volume that is there.
async fn volume_id(site: &Site, name: &VolumeName) -> Result<Uuid, ErrorBody> {
    match site.pools.is_clustered(&name.pool) {
        true => Ok(images::volume(site, name).await?.uuid),
        false => Ok(look(site, name)?.uuid),
    }
}

fn none(name: &VolumeName) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("{name} has no timetable of snapshots"))
        .hint(format!("farside snapshot schedule {name} --every 1h --keep hourly=24,daily=7 sets one"))
}
