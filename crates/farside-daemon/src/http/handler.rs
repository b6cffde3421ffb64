//! What every handler is handed, and what it answers; and what is answered where there is none.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, Method, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use farside_api::{ErrorBody, ErrorCode, VERSION_HEADER};
use utoipa_axum::router::OpenApiRouter;

use super::document;
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

/// Refuses a request to the API that has a parameter which nothing would read: a `plan` where there is none must not be carried out.
pub(super) async fn only_known_parameters(request: Request, next: Next) -> Response {
    static KNOWN: LazyLock<HashMap<(String, String), HashSet<&'static str>>> = LazyLock::new(|| {
        let parameters = |operation: &'static serde_json::Value| {
            let all = operation["parameters"].as_array().into_iter().flatten();
            let of_query = all.filter(|parameter| parameter["in"] == "query");
            of_query.filter_map(|parameter| parameter["name"].as_str()).collect()
        };
        document::operations().map(|(method, path, of)| ((method, path), parameters(of))).collect()
    });
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let method = if request.method() == Method::HEAD { "GET" } else { request.method().as_str() };
    let known = route.and_then(|route| KNOWN.get(&(method.to_owned(), route)));
    if let (Some(known), Some(query)) = (known, request.uri().query()) {
        let names = query
            .split('&')
            .filter(|part| !part.is_empty())
            .map(|part| part.split('=').next().unwrap_or(part));
        if let Some(other) = names.into_iter().find(|name| !known.contains(name)) {
            let what = if other == "plan" {
                "this request has no plan".to_owned()
            } else {
                format!("this request has no parameter {:?}", other.chars().take(64).collect::<String>())
            };
            return ApiError::from(
                ErrorBody::new(ErrorCode::WrongUsage, format!("{what}; nothing was done"))
                    .hint("GET /api/v1/openapi.json says what there is"),
            )
            .into_response();
        }
    }
    next.run(request).await
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
