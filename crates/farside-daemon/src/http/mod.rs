//! What is served: the API on the control socket; `/metrics` and `/healthz` on TCP and nothing else there.

mod error;
mod health;
mod mirrors;
mod peers;
mod plan;
mod pools;
mod snapshots;
mod volumes;

use std::sync::Arc;

use axum::extract::State;
use axum::http::{Method, Uri};
use axum::routing::get;
use axum::{Json, Router};
use farside_api::{API_PREFIX, ErrorBody, ErrorCode};

use crate::site::Site;
use error::ApiError;

/// What a handler is handed.
type Shared = State<Arc<Site>>;
/// What a handler answers.
type Answer<T> = Result<Json<T>, ApiError>;

/// The control socket's routes.
pub(crate) fn control(site: Arc<Site>) -> Router {
    let api = Router::new()
        .route("/site", get(site_document))
        .merge(pools::routes())
        .merge(volumes::routes())
        .merge(snapshots::routes())
        .merge(peers::routes())
        .merge(mirrors::routes());
    Router::new().nest(API_PREFIX, api).merge(health::routes()).fallback(unknown).with_state(site)
}

/// The routes over TCP. Control is not among them: it would be open to every user of the machine, or worse.
pub(crate) fn public(site: Arc<Site>) -> Router {
    Router::new().merge(health::routes()).fallback(unknown).with_state(site)
}

async fn site_document(State(site): Shared) -> Answer<farside_api::Site> {
    Ok(Json(site.document.clone()))
}

async fn unknown(method: Method, uri: Uri) -> ApiError {
    ApiError::unknown_request(
        ErrorBody::new(ErrorCode::Failed, format!("there is no {method} {}", uri.path())).hint(
            "farside and farsided may be of different versions; the API is served on the control socket only",
        ),
    )
}
