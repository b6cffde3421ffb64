//! `/log`: what happened to the mirrors whose replica is, or was, here.

use axum::Json;
use axum::extract::State;
use farside_api::{ErrorBody, ErrorCode, LogLine};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::Query;
use super::handler::{Answer, Routes, Shared};
use super::mirrors::unknown;
use super::volumes::parse;
use crate::convert;

/// Lines of an answer that does not ask for a number.
const LINES_DEFAULT: usize = 1000;
/// Most lines of one answer, as many as are kept of one volume: some 9 MB of JSON.
const LINES_MAX: usize = 30_000;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(log))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Wanted {
    volume: Option<String>,
    #[param(minimum = 1, maximum = 30000)]
    limit: Option<usize>,
}

/// What happened to mirrors whose replica is, or was, here.
///
/// The newest lines, in the order in which they happened.
#[utoipa::path(get, path = "/log", params(Wanted), responses((status = 200, body = Vec<LogLine>)))]
async fn log(State(site): Shared, Query(wanted): Query<Wanted>) -> Answer<Vec<LogLine>> {
    let volume = wanted.volume.as_deref().map(parse).transpose()?;
    let limit = wanted.limit.unwrap_or(LINES_DEFAULT);
    if !(1..=LINES_MAX).contains(&limit) {
        return Err(ErrorBody::new(ErrorCode::WrongUsage, format!("ask for 1 to {LINES_MAX} lines")).into());
    }
    let entries = site.state.log(volume.as_ref(), limit).await?;
    if let Some(name) = volume.filter(|_| entries.is_empty()).map(|name| name.to_string())
        && !site.mirrors.list().await?.iter().any(|mirror| mirror.name == name)
    {
        return Err(unknown(&name).into());
    }
    Ok(Json(entries.iter().rev().map(convert::log_line).collect()))
}
