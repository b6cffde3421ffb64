//! What every handler is handed, and what it answers; and what is answered where there is none.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::{Method, Uri};
use farside_api::{ErrorBody, ErrorCode};
use utoipa_axum::router::OpenApiRouter;

use super::error::ApiError;
use crate::site::Site;

/// The routes of one noun, with what they say of themselves.
pub(super) type Routes = OpenApiRouter<Arc<Site>>;
/// What a handler is handed.
pub(super) type Shared = State<Arc<Site>>;
/// What a handler answers.
pub(super) type Answer<T> = Result<Json<T>, ApiError>;

/// Something is called that, and this cannot be done with it.
pub(super) async fn unknown_method(method: Method, uri: Uri) -> ApiError {
    no_such_method(&method, &uri)
}

/// What is said of it.
pub(super) fn no_such_method(method: &Method, uri: &Uri) -> ApiError {
    ApiError::unknown_method(
        ErrorBody::new(ErrorCode::WrongUsage, format!("there is no {method} {}", uri.path()))
            .hint("the header Allow has the methods that there are; farside and farsided may be of different versions"),
    )
}

/// Nothing is called that.
pub(super) async fn unknown(method: Method, uri: Uri) -> ApiError {
    ApiError::unknown_request(
        ErrorBody::new(ErrorCode::Failed, format!("there is no {method} {}", uri.path())).hint(
            "farside and farsided may be of different versions; the API is served on the control socket and over HTTPS only",
        ),
    )
}
