//! Destructive requests: with `?plan=true` they answer what they would do, and do nothing.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use farside_api::Plan;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::error::ApiError;

/// How long a plan waits for a session to ask the peer for the common base: long enough to dial once.
pub(super) const PLAN_PATIENCE: Duration = Duration::from_secs(5);

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
