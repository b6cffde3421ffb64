//! Destructive requests: with `?plan=true` they answer what they would do, and do nothing.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use farside_api::{ErrorBody, ErrorCode, Plan, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::ApiError;
use crate::convert;
use crate::site::Site;

/// How long a plan waits for a session to ask the peer for the common base: long enough to dial once.
pub(super) const PLAN_PATIENCE: Duration = Duration::from_secs(5);

/// What one command sets aside of several volumes has one moment, which is that of the first of them: so long ago at most.
const SET_ASIDE_AGE_MAX_SECONDS: f64 = 3600.0;
/// By so much the clock may have been set back since.
const SET_ASIDE_AHEAD_MAX_SECONDS: f64 = 60.0;

/// The moment that what is set aside shall be named by, if a request says one.
pub(super) fn set_aside_at(
    site: &Site,
    wanted: Option<Timestamp>,
) -> Result<Option<farside_platform::Timestamp>, ErrorBody> {
    let Some(wanted) = wanted else { return Ok(None) };
    let (at, now) = (convert::timestamp(wanted), site.clock.now());
    let is_recent = now.seconds_since(at) <= SET_ASIDE_AGE_MAX_SECONDS
        && at.seconds_since(now) <= SET_ASIDE_AHEAD_MAX_SECONDS;
    match is_recent {
        true => Ok(Some(at)),
        false => Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("set_aside_at {wanted} is not a moment of the last hour"),
        )),
    }
}

/// The query of a destructive request.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Planned {
    /// Only say what would happen.
    #[serde(default)]
    pub(super) plan: bool,
}

/// The plan, or what was done.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[expect(clippy::large_enum_variant, reason = "there is one for each request, and it is written out at once")]
pub(super) enum Outcome<T: ToSchema> {
    /// Nothing has been changed.
    Plan(Plan),
    /// It is done; this is what it was, or is now.
    Done(T),
}

impl<T: Serialize + ToSchema> IntoResponse for Outcome<T> {
    fn into_response(self) -> Response {
        Json(self).into_response()
    }
}

/// What a destructive handler answers.
pub(super) type Answered<T> = Result<Outcome<T>, ApiError>;
