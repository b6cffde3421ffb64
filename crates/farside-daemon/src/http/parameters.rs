//! What stands behind the `?` of a request: only what the document says that somebody reads.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use farside_api::{ErrorBody, ErrorCode};

use super::document;
use super::error::ApiError;

/// Refuses a request to the API that has a parameter which nothing would read: a `plan` where there is none must not be carried out.
pub(super) async fn only_known(request: Request, next: Next) -> Response {
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
