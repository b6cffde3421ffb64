//! `/delayed`: destructive requests that wait, and the guard that has them confirmed and wait.
//!
//! The guard stands between the gate and the audit log. A request that waits is kept as it came and runs as it would have run, by the
//! same way from here on, so the log has it twice: when it was asked for (outcome `delayed`) and when it ran.

use std::sync::Arc;
use std::time::Duration;

use axum::RequestExt;
use axum::extract::{Json, MatchedPath, Path, RawPathParams, Request, State};
use axum::http::{HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use farside_api::{CONFIRM_HEADER, Delayed, DelayedDocument, ErrorBody, ErrorCode, Uuid};
use serde_json::Value;
use tokio_util::task::TaskTracker;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::audit;
use super::destructive::{Destructive, destructive, thing, unconfirmed};
use super::error::ApiError;
use super::gate::asked_by;
use super::handler::{Answer, Routes, Shared};
use super::roles::{Needs, needed};
use crate::access::Principal;
use crate::convert;
use crate::delays::Added;
use crate::listen::Origin;
use crate::metrics;
use crate::site::Site;

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(stop))
}

/// Destructive requests that wait, the next one first
#[utoipa::path(get, path = "/delayed", responses((status = 200, body = Vec<Delayed>)))]
async fn list(State(site): Shared) -> Answer<Vec<Delayed>> {
    Ok(Json(site.delays.list()))
}

/// Stops a request that waits
#[utoipa::path(delete, path = "/delayed/{id}", responses((status = 200, body = Delayed)))]
async fn stop(State(site): Shared, Path(id): Path<String>) -> Answer<Delayed> {
    let stopped = id.parse::<Uuid>().ok().and_then(|id| site.delays.stop(id)).ok_or_else(|| {
        ErrorBody::new(ErrorCode::NotFound, format!("no request {id} waits: it has run, or was stopped"))
            .hint("farside delayed list shows those that wait; farside audit what has run")
    })?;
    tracing::warn!(
        who = stopped.who,
        thing = stopped.thing,
        method = stopped.method,
        path = stopped.path,
        "a destructive request was stopped; nothing of it has been done"
    );
    Ok(Json(stopped))
}

/// What the guard needs.
#[derive(Clone)]
pub(super) struct Guard {
    pub(super) site: Arc<Site>,
    /// Knows the requests that run.
    pub(super) requests: TaskTracker,
}

/// Lets a request pass, has it confirmed first, or has it wait.
pub(super) async fn guarded(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let origin = request.extensions().get::<Origin>().copied().unwrap_or(Origin::Unknown);
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let found = route.and_then(|route| destructive(request.method(), &route).map(|kind| (route, kind)));
    let (route, kind) = match (origin, found) {
        (Origin::Socket { .. }, _) | (_, None) => return next.run(request).await,
        (Origin::Network(_) | Origin::Peer(_) | Origin::Unknown, Some(found)) => found,
    };
    if audit::is_plan(request.method(), &route, request.uri()) {
        return next.run(request).await;
    }
    let names = request.extract_parts::<RawPathParams>().await.ok();
    let thing = names.and_then(|names| thing(&route, &names)).unwrap_or_default();
    if matches!(kind, Destructive::Takes) {
        let said = request.headers().get(HeaderName::from_static(CONFIRM_HEADER));
        let said = said.map(|value| value.to_str().unwrap_or_default());
        if said != Some(thing.as_str()) {
            metrics::api_refused("unconfirmed");
            return ApiError::from(unconfirmed(&thing, said)).into_response();
        }
    }
    let Some(delay) = guard.site.configuration.api.delay else { return next.run(request).await };
    let (request, sent) = match audit::with_body(request).await {
        Ok(read) => read,
        Err(refused) => return ApiError::from(refused).into_response(),
    };
    match kind {
        Destructive::LetsGo(lets_go) if !sent.as_ref().is_some_and(lets_go) => next.run(request).await,
        Destructive::LetsGo(_) | Destructive::Takes => {
            wait(guard, request, next, Wish { route, thing, sent, delay }).await
        }
    }
}

/// What is to wait, and how long.
struct Wish {
    route: String,
    thing: String,
    sent: Option<Value>,
    delay: Duration,
}

async fn wait(guard: Guard, request: Request, next: Next, wish: Wish) -> Response {
    let Guard { site, requests } = guard;
    let Wish { route, thing, sent, delay } = wish;
    let principal = request.extensions().get::<Principal>().cloned();
    let origin = request.extensions().get::<Origin>().copied().unwrap_or(Origin::Unknown);
    let now = site.clock.now();
    let delayed = Delayed {
        id: Uuid::new_v4(),
        who: asked_by(principal.as_ref()).to_string(),
        from: origin.to_string(),
        method: request.method().to_string(),
        path: audit::path_of(request.uri()),
        request: sent.clone(),
        thing,
        asked_at: convert::time(now),
        runs_at: convert::time(now.plus(delay)),
    };
    let stopped = match site.delays.add(delayed.clone()) {
        Err(full) => return ApiError::from(full).into_response(),
        Ok(Added::Before(before)) => return taken(before),
        Ok(Added::New(stopped)) => stopped,
    };
    tracing::warn!(who = delayed.who, from = delayed.from, thing = delayed.thing, method = delayed.method, path = delayed.path,
        runs_at = %delayed.runs_at, id = %delayed.id, "a destructive request waits; farside delayed stop {} stops it", delayed.id);
    let said = said(&delayed);
    let entry = audit::Entry::of(&site, &request, sent);
    audit::not_now(&site, entry, &said).await;
    let role = match needed(request.method(), &route) {
        Some(Needs::Role(role)) => role,
        // Neither lets a destructive request in.
        Some(Needs::Nobody) | None => farside_api::AccessRole::Administrator,
    };
    let (id, end) = (delayed.id, site.stop.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = stopped.cancelled() => return,
            () = end.cancelled() => return,
            () = tokio::time::sleep(delay) => {}
        }
        if !site.delays.begins(id) {
            return;
        }
        if !principal.is_some_and(|principal| site.access.may_still(&principal, role)) {
            tracing::warn!(%id, "a destructive request that waited is not carried out: who asked for it may not do that any more");
            return;
        }
        // The log of the daemon and the audit log say what came of it.
        requests.spawn(async move { drop(next.run(request).await) });
    });
    taken(delayed)
}

/// What the one who asked is told.
fn said(delayed: &Delayed) -> ErrorBody {
    ErrorBody::new(
        ErrorCode::Delayed,
        format!(
            "nothing is changed yet: this site has destructive requests wait. It runs at {}",
            delayed.runs_at
        ),
    )
    .hint(format!("farside delayed stop {} stops it; farside delayed list shows all that wait", delayed.id))
}

fn taken(delayed: Delayed) -> Response {
    let error = said(&delayed);
    (StatusCode::ACCEPTED, Json(DelayedDocument { delayed, error })).into_response()
}
