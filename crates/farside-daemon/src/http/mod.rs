//! What is served: the API on the control socket, over HTTPS and to peers, with the console over HTTPS; `/metrics`, `/healthz` and `/readyz`
//! on TCP, and nothing else there.

mod accelerator;
mod access;
mod alarms;
mod audit;
mod clones;
mod console;
mod daemons;
mod dedups;
mod delayed;
mod destructive;
mod directions;
mod document;
mod error;
mod events;
mod gate;
mod handler;
mod health;
mod hosts;
mod identity;
mod images;
mod likeness;
mod log;
mod mirrors;
mod page;
mod parameters;
mod peers;
mod plan;
mod pools;
mod roles;
mod scrubs;
mod site;
mod sites;
mod snapshot_schedules;
mod snapshots;
mod support;
mod volumes;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use farside_api::{API_PREFIX, ErrorBody, ErrorCode};
use tokio_util::task::TaskTracker;
use utoipa_axum::router::OpenApiRouter;

use crate::listen::attend;
use crate::site::Site;
pub(crate) use error::ApiError;
use handler::{Routes, unknown, unknown_method, versioned};

pub(crate) use audit::{keep_audit_within, outcome_of};
pub(crate) use clones::end_drills;
pub(crate) use events::keep_looking;
pub(crate) use gate::wrong_host;

/// All routes with what they say of themselves.
fn api() -> Routes {
    let api = OpenApiRouter::new()
        .merge(document::routes())
        .merge(site::routes())
        .merge(daemons::routes())
        .merge(pools::routes())
        .merge(scrubs::routes())
        .merge(dedups::routes())
        .merge(volumes::routes())
        .merge(snapshots::routes())
        .merge(snapshot_schedules::routes())
        .merge(clones::routes())
        .merge(peers::routes())
        .merge(hosts::routes())
        .merge(mirrors::routes())
        .merge(log::routes())
        .merge(alarms::routes())
        .merge(support::routes())
        .merge(directions::routes())
        .merge(accelerator::routes())
        .merge(access::routes())
        .merge(audit::routes())
        .merge(delayed::routes())
        .merge(sites::routes())
        .merge(events::routes());
    OpenApiRouter::new().nest(API_PREFIX, api).merge(health::routes())
}

/// What all routes say of themselves, for tests.
#[cfg(test)]
fn described() -> &'static serde_json::Value {
    document::keep(api().into_openapi())
}

/// The API, for the control socket, for HTTPS and for sessions with peers: where a request comes from decides who asks. A request that has begun runs to its end, whether or not its client still waits: half a
/// deletion would be worse than one nobody hears of. `requests` knows them all.
pub(crate) fn control(site: Arc<Site>, requests: TaskTracker) -> Router {
    let tasks = requests.clone();
    let to_its_end = move |request: Request, next: Next| {
        let task = requests.spawn(next.run(request));
        async move {
            task.await.unwrap_or_else(|error| {
                tracing::error!(
                    "internal error (bug) while answering a request: {error}. The request may be half done: check \
                     the status of what it was about. Flushed data is safe, and the daemon goes on; please report \
                     this with farside support-bundle"
                );
                let body = ErrorBody::new(ErrorCode::Failed, "internal error (bug): the request ended unexpectedly \
                     and may be half done");
                ApiError::from(body.hint("the daemon's log says more")).into_response()
            })
        }
    };
    let (routes, description) = api().split_for_parts();
    document::keep(description);
    let gate = middleware::from_fn_with_state(Arc::clone(&site), gate::gate);
    let audit = middleware::from_fn_with_state(Arc::clone(&site), audit::audited);
    let guard = delayed::Guard { site: Arc::clone(&site), requests: tasks };
    let guard = middleware::from_fn_with_state(guard, delayed::guarded);
    let routes = routes.merge(console::routes()).merge(sites::through());
    let routes = routes.fallback(unknown).method_not_allowed_fallback(unknown_method);
    let routes = routes.with_state(site).layer(middleware::from_fn(parameters::only_known));
    let routes = routes.layer(middleware::from_fn(versioned));
    let routes = routes.layer(audit).layer(guard).layer(gate);
    routes.layer(middleware::from_fn(to_its_end)).layer(middleware::from_fn(attend))
}

/// What is served over TCP without a word of who asks. Control is not among them: it would be open to every user of the machine, or worse.
pub(crate) fn public(site: Arc<Site>) -> Router {
    let routes = Router::from(health::routes()).fallback(unknown).method_not_allowed_fallback(unknown_method);
    routes.with_state(site).layer(middleware::from_fn(attend))
}
