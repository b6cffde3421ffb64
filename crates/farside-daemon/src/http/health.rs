//! `/metrics` for Prometheus, `/healthz` for whoever asks whether to page somebody.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use super::Shared;
use crate::site::Site;

pub(super) fn routes() -> Router<Arc<Site>> {
    Router::new().route("/metrics", get(metrics)).route("/healthz", get(healthz))
}

async fn metrics(State(site): Shared) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], site.metrics.render()).into_response()
}

/// 200 if everything serves, 503 with the reasons if not.
async fn healthz(State(site): Shared) -> Response {
    let mut ill = Vec::new();
    if let Err(error) = site.state.probe().await {
        ill.push(error.to_string());
    }
    let (status, word) =
        if ill.is_empty() { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, "ill") };
    (status, Json(json!({"status": word, "reasons": ill}))).into_response()
}
