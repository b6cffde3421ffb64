//! `/alarms`.

use axum::Json;
use axum::extract::{Path, State};
use farside_api::{Alarm, AlarmTest};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{ApiError, Query};
use super::handler::{Answer, Routes, Shared};
use super::page::{Page, Wanted};

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(test)).routes(routes!(acknowledge))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct WantedAlarms {
    /// Those that are over, too.
    #[serde(default)]
    all: bool,
    /// So many, 1 to 10,000. With this or `after` the list is sorted, oldest first, and the header `x-farside-next` says how it goes on.
    #[param(minimum = 1, maximum = 10000)]
    limit: Option<u32>,
    /// Those behind this one: what `x-farside-next` of the page before has said.
    after: Option<String>,
}

/// Alarms that are raised.
#[utoipa::path(get, path = "/alarms", params(WantedAlarms), responses((status = 200, body = Vec<Alarm>)))]
async fn list(State(site): Shared, Query(wanted): Query<WantedAlarms>) -> Result<Page<Alarm>, ApiError> {
    let all = if wanted.all { site.alarms.all().await? } else { site.alarms.open() };
    // Ids are numbers.
    let page = Wanted { limit: wanted.limit, after: wanted.after };
    Ok(page.of(all, |alarm| format!("{:0>20}", alarm.id))?)
}

/// Says that an alarm is known.
#[utoipa::path(post, path = "/alarms/{id}/ack", responses((status = 200, body = Alarm)))]
async fn acknowledge(State(site): Shared, Path(id): Path<String>) -> Answer<Alarm> {
    Ok(Json(site.alarms.acknowledge(&id).await?))
}

/// Sends a test alarm on every way that is configured.
#[utoipa::path(post, path = "/alarms/test", responses((status = 200, body = Vec<AlarmTest>)))]
async fn test(State(site): Shared) -> Answer<Vec<AlarmTest>> {
    Ok(Json(site.alarms.test().await?))
}
