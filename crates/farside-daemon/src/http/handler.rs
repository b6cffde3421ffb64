//! What every handler is handed, and what it answers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;

use super::error::ApiError;
use crate::site::Site;

/// The routes of one noun, with what they say of themselves.
pub(super) type Routes = OpenApiRouter<Arc<Site>>;
/// What a handler is handed.
pub(super) type Shared = State<Arc<Site>>;
/// What a handler answers.
pub(super) type Answer<T> = Result<Json<T>, ApiError>;
