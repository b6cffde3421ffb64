//! `/delayed`: destructive requests that wait, and the guard that has them confirmed and wait.
//!
//! The guard stands between the gate and the audit log. A request that waits is kept as it came and runs as it would have run, by the
//! same way from here on, so the log has it twice: when it was asked for (outcome `delayed`) and when it ran.

use std::sync::Arc;
use std::time::Duration;

use axum::RequestExt;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Json, MatchedPath, Path, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use farside_api::{
    CONFIRM_HEADER, Delayed, DelayedDocument, ErrorBody, ErrorCode, ErrorDocument, Plan, Uuid,
};
use serde_json::Value;
use tokio_util::task::TaskTracker;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::audit;
use super::destructive::{Destructive, destructive, thing, unconfirmed};
use super::error::ApiError;
use super::gate::asked_by;
use super::handler::{Answer, Routes, Shared};
use super::identity::Identity;
use super::roles::{Needs, needed};
use crate::access::Principal;
use crate::convert;
use crate::delays::Added;
use crate::listen::Origin;
use crate::metrics;
use crate::site::Site;

/// Longest body of what may wait.
const BODY_BYTES_MAX: usize = 64 << 10;

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
        asked_by = stopped.who,
        thing = stopped.thing,
        method = stopped.method,
        path = stopped.path,
        "a destructive request was stopped, and nothing of it has been done; the audit log has who stopped it"
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
    let Ok(names) = request.extract_parts::<RawPathParams>().await else { return next.run(request).await };
    let thing = thing(&route, &names).unwrap_or_default();
    if matches!(kind, Destructive::Takes) {
        let said = request.headers().get(HeaderName::from_static(CONFIRM_HEADER));
        let said = said.map(|value| value.to_str().unwrap_or_default());
        if said != Some(thing.as_str()) {
            metrics::api_refused("unconfirmed");
            return ApiError::from(unconfirmed(&thing, said)).into_response();
        }
    }
    let Some(delay) = guard.site.configuration.api.delay else { return next.run(request).await };
    // All of it: what waits holds nothing of its connection.
    let (parts, body) = request.into_parts();
    let bytes = match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => {
            let wrong = ErrorBody::new(ErrorCode::WrongUsage, format!("the request cannot be read: {error}"));
            let hint = format!("what takes something away is said in {BODY_BYTES_MAX} bytes at most");
            return ApiError::from(wrong.hint(hint)).into_response();
        }
    };
    let sent = audit::shown(&bytes);
    let plan = plan_of(&parts, &route, bytes.clone());
    let request = Request::from_parts(parts, Body::from(bytes));
    let waits = match (kind, &sent) {
        (Destructive::Takes, _) => true,
        (Destructive::LetsGo(lets_go), Some(body @ Value::Object(_))) => lets_go(body),
        // Read by position, it could say anything.
        (Destructive::LetsGo(_), _) => {
            let wrong =
                ErrorBody::new(ErrorCode::WrongUsage, "the body of this request has to be a JSON object");
            return ApiError::from(wrong).into_response();
        }
    };
    if !waits {
        return next.run(request).await;
    }
    // Nobody waits an hour for what is refused as things stand.
    if let Some(refused) = refused_now(plan, next.clone()).await {
        return ApiError::from(refused).into_response();
    }
    let identity = match Identity::of(&guard.site, &route, names).await {
        Some(identity) => identity,
        None => {
            let absent = ErrorBody::new(
                ErrorCode::NotFound,
                format!(
                    "there is no {thing} now, or its pool is not open; nothing waits, and nothing was changed"
                ),
            );
            return ApiError::from(absent).into_response();
        }
    };
    let thing = match thing.is_empty() {
        true => sent.as_ref().and_then(|sent| sent["name"].as_str()).unwrap_or_default().to_owned(),
        false => thing,
    };
    wait(guard, request, next, Wish { route, thing, identity, sent, delay }).await
}

/// The request that asks for the plan of this one, if it has one.
fn plan_of(parts: &Parts, route: &str, bytes: Bytes) -> Option<Request> {
    let (path, query) = (parts.uri.path(), parts.uri.query());
    let before = query.map(|query| format!("{query}&")).unwrap_or_default();
    let uri: Uri = format!("{path}?{before}plan=true").parse().ok()?;
    if !audit::is_plan(&parts.method, route, &uri) {
        return None;
    }
    let mut parts = parts.clone();
    parts.uri = uri;
    Some(Request::from_parts(parts, Body::from(bytes)))
}

/// Why a request would be refused, as its plan says; none where that cannot be told.
async fn refused_now(plan: Option<Request>, next: Next) -> Option<ErrorBody> {
    let answer = next.run(plan?).await;
    let status = answer.status();
    let bytes = to_bytes(answer.into_body(), BODY_BYTES_MAX).await.ok()?;
    // What is wrong already with asking, for example of a mirror that is not here, is no better an hour later. A site or a database
    // that does not answer may be.
    if status.is_client_error() {
        return serde_json::from_slice::<ErrorDocument>(&bytes).ok().map(|said| said.error);
    }
    let plan: Plan = serde_json::from_slice(&bytes).ok().filter(|_| status.is_success())?;
    let refused = ErrorBody::new(ErrorCode::Refused, plan.refused?);
    Some(refused.hint("nothing waits, and nothing was changed"))
}

/// What is to wait, and how long.
struct Wish {
    route: String,
    thing: String,
    identity: Identity,
    sent: Option<Value>,
    delay: Duration,
}

async fn wait(guard: Guard, request: Request, next: Next, wish: Wish) -> Response {
    let Guard { site, requests } = guard;
    let Wish { route, thing, identity, sent, delay } = wish;
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
    audit::not_now(&site, entry.clone(), &said).await;
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
        let may = principal.is_some_and(|principal| site.access.may_still(&principal, role));
        let why = match (may, identity.is_still(&site).await) {
            (true, true) => {
                // The log of the daemon and the audit log say what came of it.
                requests.spawn(async move { drop(next.run(request).await) });
                return;
            }
            (false, _) => ErrorBody::new(ErrorCode::Forbidden, "who asked for it may not do that any more"),
            (true, false) => ErrorBody::new(
                ErrorCode::Refused,
                "what it was about is not there any more, or is another now: its name was given to something else, or its size has changed",
            ),
        };
        tracing::warn!(%id, "a destructive request that waited is not carried out: {}", why.message);
        audit::not_now(&site, entry.again(&site), &why).await;
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
