//! What every handler is handed, and what it answers.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::error::ApiError;
use crate::site::Site;

/// What a handler is handed.
pub(super) type Shared = State<Arc<Site>>;
/// What a handler answers.
pub(super) type Answer<T> = Result<Json<T>, ApiError>;
