//! `/alarms`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use farside_api::{Alarm, AlarmTest};
use serde::Deserialize;

use super::error::Query;
use super::handler::{Answer, Shared};
use crate::site::Site;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/alarms", get(list))
        .route("/alarms/test", post(test))
        .route("/alarms/{id}/ack", post(acknowledge))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Those that are over, too.
    #[serde(default)]
    all: bool,
}

async fn list(State(site): Shared, Query(wanted): Query<Wanted>) -> Answer<Vec<Alarm>> {
    Ok(Json(if wanted.all { site.alarms.all().await? } else { site.alarms.open() }))
}

async fn acknowledge(State(site): Shared, Path(id): Path<String>) -> Answer<Alarm> {
    Ok(Json(site.alarms.acknowledge(&id).await?))
}

async fn test(State(site): Shared) -> Answer<Vec<AlarmTest>> {
    Ok(Json(site.alarms.test().await?))
}
