//! `/events`: what changes, as it changes, as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::{IntoResponse, Response};
use farside_api::{ErrorBody, ErrorCode};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::time::Instant;
use tokio_util::io::ReaderStream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::ApiError;
use super::handler::{Routes, Shared};
use crate::access::Principal;
use crate::events::{Follower, LOOKED_AT_EVERY, LOOKED_AT_FOR_NOBODY, Position, Thing};
use crate::peers;
use crate::site::Site;

/// What a client that was cut off sends: the number of the last event that it has.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// How often something is sent to a client even if nothing happens: so that both sides see that the other is there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Bytes on their way to a client that does not read.
const BUFFER_BYTES: usize = 64 << 10;
/// How long the first look at the site may take.
const BEGINS_WITHIN: Duration = Duration::from_secs(30);

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(events))
}

/// What changes, as it changes
///
/// Server-sent events. First comes `reset`: read the lists now, what changes from here on follows. An event is `mirror`, `peer`,
/// `pool`, `alarm` or `operation` with the thing as the lists have it, or `gone` with `kind` and `key`. What changes all
/// the time (`lag_seconds`, bytes of a peer) is no event. A client that was cut off sends `Last-Event-ID` and goes on behind that event, or is
/// told `reset`.
#[utoipa::path(
    get,
    path = "/events",
    params(("Last-Event-ID" = Option<String>, Header, description = "The id of the last event that came.")),
    responses((status = 200, body = String, content_type = "text/event-stream"))
)]
async fn events(
    State(site): Shared,
    principal: Option<Extension<Principal>>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let was = headers.get(LAST_EVENT_ID).and_then(|value| value.to_str().ok()).and_then(Position::read);
    let Some((follower, begins_anew)) = site.events.follow(was) else {
        return Err(ErrorBody::new(ErrorCode::TooManyRequests, "as many follow the events as may")
            .hint("close one of the others, or read the lists now and then")
            .into());
    };
    let (ours, theirs) = tokio::io::duplex(BUFFER_BYTES);
    let principal = principal.map(|Extension(principal)| principal);
    let stop = site.stop.clone();
    tokio::spawn(stop.run_until_cancelled_owned(async move {
        // Whoever has gone away is no failure.
        let _ = tell(&site, follower, begins_anew, principal, ours).await;
    }));
    let body = Body::from_stream(ReaderStream::new(theirs));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

async fn tell(
    site: &Site,
    mut follower: Follower,
    begins_anew: bool,
    principal: Option<Principal>,
    mut to: DuplexStream,
) -> std::io::Result<()> {
    // Whoever reads the lists now must hear of everything that changes afterwards.
    let until = Instant::now() + BEGINS_WITHIN;
    while !site.events.has_begun() && Instant::now() < until {
        tokio::time::sleep(LOOKED_AT_EVERY / 20).await;
    }
    if begins_anew {
        follower.take();
        to.write_all(reset(follower.position()).as_bytes()).await?;
    }
    loop {
        // A token that was revoked, or a session that has ended, hears nothing more.
        if !principal.as_ref().is_some_and(|principal| site.access.still_holds(principal)) {
            return Ok(());
        }
        match follower.take() {
            None => to.write_all(reset(follower.position()).as_bytes()).await?,
            Some(events) => {
                for event in events {
                    let at = event.position(follower.position());
                    let text = format!("id: {at}\nevent: {}\ndata: {}\n\n", event.kind, event.data);
                    to.write_all(text.as_bytes()).await?;
                }
            }
        }
        if tokio::time::timeout(SIGN_OF_LIFE, follower.changed()).await.is_err() {
            to.write_all(b": still here\n\n").await?;
        }
    }
}

fn reset(at: Position) -> String {
    format!("id: {at}\nevent: reset\ndata: {{}}\n\n")
}

/// Looks at the site as long as the daemon runs, whenever somebody follows.
pub(crate) async fn keep_looking(site: Arc<Site>) {
    loop {
        site.events.wanted().await;
        let mut followed = Instant::now();
        while followed.elapsed() < LOOKED_AT_FOR_NOBODY {
            if site.events.has_followers() {
                followed = Instant::now();
            }
            match things(&site).await {
                Ok(things) => site.events.look(things),
                // It is asked again in a second; whoever follows sees nothing change meanwhile.
                Err(error) => tracing::debug!(%error, "the site could not be looked at for its events"),
            }
            tokio::time::sleep(LOOKED_AT_EVERY).await;
        }
        site.events.forget();
    }
}

async fn things(site: &Site) -> Result<Vec<Thing>, ErrorBody> {
    let mut all = Vec::new();
    for mirror in site.mirrors.list().await? {
        let key = format!("{} {} {}", mirror.name, mirror.id, mirror.role == farside_api::Role::Source);
        all.push(Thing::new("mirror", key, &mirror));
    }
    all.extend(site.pools.list().iter().map(|pool| Thing::new("pool", pool.name.clone(), pool)));
    // As they are raised: how long one has been gone is no change.
    all.extend(site.alarms.raised().iter().map(|alarm| Thing::new("alarm", alarm.id.clone(), alarm)));
    all.extend(peers::list(&site.node).iter().map(|peer| Thing::new("peer", peer.id.clone(), peer)));
    let operations = site.operations.list(&site.node, &site.mirrors);
    all.extend(
        operations.iter().map(|operation| Thing::new("operation", operation.id.to_string(), operation)),
    );
    Ok(all)
}
