//! `/log`: what happened to the mirrors whose replica is, or was, here.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use farside_api::{ErrorBody, ErrorCode, LogLine};
use serde::Deserialize;

use super::error::Query;
use super::handler::{Answer, Shared};
use super::mirrors::unknown;
use super::volumes::parse;
use crate::convert;
use crate::site::Site;

/// Lines of an answer that does not ask for a number.
const LINES_DEFAULT: usize = 1000;
/// Most lines of one answer, as many as are kept of one volume: some 9 MB of JSON.
const LINES_MAX: usize = 30_000;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new().route("/log", get(log))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    volume: Option<String>,
    limit: Option<usize>,
}

/// The newest lines, in the order in which they happened.
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
