//! What every handler is handed, and what it answers; and what is answered where there is none.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::Response;
use farside_api::{ErrorBody, ErrorCode, VERSION_HEADER};
use utoipa_axum::router::OpenApiRouter;

use super::error::ApiError;
use crate::site::Site;

/// The routes of one noun, with what they say of themselves.
pub(super) type Routes = OpenApiRouter<Arc<Site>>;
/// What a handler is handed.
pub(super) type Shared = State<Arc<Site>>;
/// What a handler answers.
pub(super) type Answer<T> = Result<Json<T>, ApiError>;

/// Says of each answer which version of the daemon gave it, so that a client of another one can tell why it does not understand. What
/// a peer has answered says that of the peer. Whoever was not let in is not told.
pub(super) async fn versioned(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let version = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));
    response.headers_mut().entry(VERSION_HEADER).or_insert(version);
    response
}

/// Something is called that, and this cannot be done with it.
pub(super) async fn unknown_method(method: Method, uri: Uri) -> ApiError {
    no_such_method(&method, &uri)
}

/// What is said of it.
pub(super) fn no_such_method(method: &Method, uri: &Uri) -> ApiError {
    ApiError::unknown_method(
        ErrorBody::new(ErrorCode::WrongUsage, format!("there is no {method} {}", uri.path()))
            .hint("the header Allow has the methods that there are"),
    )
}

/// Nothing is called that.
pub(super) async fn unknown(method: Method, uri: Uri) -> ApiError {
    ApiError::unknown_request(
        ErrorBody::new(ErrorCode::NotFound, format!("there is no {method} {}", uri.path())).hint(
            "the API is served on the control socket and over HTTPS only; GET /api/v1/openapi.json says what there is",
        ),
    )
}
