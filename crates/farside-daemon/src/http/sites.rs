//! `/sites`: this site and those that it is paired with; and below `/sites/PEER/` everything that the API of a peer has.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Json, Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use farside_api::{API_PREFIX, CONFIRM_HEADER, ErrorBody, ErrorCode, SiteSeen, VERSION_HEADER};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Interval;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::ApiError;
use super::handler::{Answer, Routes, Shared};
use super::page::{NEXT, TOTAL};
use super::roles::THROUGH;
use super::site::status_of;
use crate::access::Principal;
use crate::peers;
use crate::site::Site;
use crate::sites::{ask, look};

/// What of a request's head goes on to the peer: nothing that proves who asks, and nothing of the connection.
const PASSED_ON: [HeaderName; 4] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    HeaderName::from_static(CONFIRM_HEADER),
    HeaderName::from_static("last-event-id"),
];
/// What of an answer's head comes back.
const PASSED_BACK: [HeaderName; 4] =
    [header::CONTENT_TYPE, NEXT, TOTAL, HeaderName::from_static(VERSION_HEADER)];

/// What of a peer is passed on as what it says that it is.
const MEDIA_TYPES: [&str; 3] = ["application/json", "text/event-stream", "text/plain"];
/// How often it is asked whether whoever reads may still do so.
const ASKED_EVERY: Duration = Duration::from_secs(15);

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list))
}

/// Everything that a peer's API has. Its own document says what that is.
pub(super) fn through() -> Router<Arc<Site>> {
    Router::new().route(THROUGH, any(pass))
}

/// This site, and those that it is paired with as they are now or were last seen
///
/// A site that lets this one look (`peer set --role` there) can be asked by this API, too: what is `/api/v1/mirrors` there is
/// `/api/v1/sites/PEER/mirrors` here.
#[utoipa::path(get, path = "/sites", responses((status = 200, body = Vec<SiteSeen>)))]
async fn list(State(site): Shared, Extension(principal): Extension<Principal>) -> Answer<Vec<SiteSeen>> {
    let own = status_of(&site).await;
    Ok(Json(look::sites(&site, own, &principal).await))
}

async fn pass(
    State(site): Shared,
    Extension(principal): Extension<Principal>,
    Path((name, _)): Path<(String, String)>,
    request: Request,
) -> Result<Response, ApiError> {
    let peer = peers::named(&site.node, &name)?;
    let link = site.node.link(peer.record.id).ok_or_else(|| {
        let why = peers::why(&peer).unwrap_or_else(|| String::from("there is no session"));
        ErrorBody::new(ErrorCode::PeerUnreachable, format!("the site {name} cannot be asked now: {why}"))
            .hint(format!(
                "farside site list shows when it was last seen, farside peer status {name} the session"
            ))
    })?;
    let (parts, body) = request.into_parts();
    let mut asked = axum::http::Request::new(body);
    *asked.method_mut() = parts.method;
    *asked.uri_mut() = beyond(&parts.uri).ok_or_else(|| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("{} leads to no request of a peer", parts.uri))
    })?;
    *asked.headers_mut() = only(&parts.headers, &PASSED_ON);
    let answer = ask::ask(&site.asking, &link, &name, &principal, asked).await?;
    let (head, body) = answer.into_parts();
    let mut headers = only(&head.headers, &PASSED_BACK);
    // Nothing of a peer is a script or a page of this site.
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !MEDIA_TYPES.contains(&kind.split(';').next().unwrap_or_default().trim()) {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    }
    let body = Body::new(WhileAllowed::new(body, Arc::clone(&site), principal));
    let mut response = (head.status, headers, body).into_response();
    if !head.status.is_success() {
        // For the audit log of this site. What exactly was wrong is in the answer, and in the log there.
        let said = format!("the site {name} has answered {}", head.status.as_u16());
        response.extensions_mut().insert(ErrorBody::new(ErrorCode::PeerRefused, said));
    }
    Ok(response)
}

/// A body that breaks off once its reader may not ask any more: events have no end of their own, and what is not whole must not
/// look as if it were.
struct WhileAllowed {
    body: Body,
    site: Arc<Site>,
    principal: Principal,
    asked: Interval,
}

impl WhileAllowed {
    fn new(body: Body, site: Arc<Site>, principal: Principal) -> WhileAllowed {
        WhileAllowed { body, site, principal, asked: tokio::time::interval(ASKED_EVERY) }
    }
}

impl HttpBody for WhileAllowed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        while self.asked.poll_tick(cx).is_ready() {
            if !self.site.access.still_holds(&self.principal) {
                let ended = std::io::Error::other("the right to ask ended");
                return Poll::Ready(Some(Err(axum::Error::new(ended))));
            }
        }
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn only(headers: &HeaderMap, names: &[HeaderName]) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| names.contains(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// The same request at the peer: `/api/v1/sites/b/mirrors?limit=1` is `/api/v1/mirrors?limit=1` there.
fn beyond(uri: &Uri) -> Option<Uri> {
    let below = uri.path_and_query()?.as_str().strip_prefix(API_PREFIX)?.strip_prefix("/sites/")?;
    let (_, path) = below.split_once('/')?;
    format!("{API_PREFIX}/{path}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_same_at_the_peer() {
        let beyond = |text: &str| beyond(&text.parse().unwrap()).map(|uri| uri.to_string());
        for (here, there) in [
            ("/api/v1/sites/b/mirrors", Some("/api/v1/mirrors")),
            ("/api/v1/sites/b/mirrors?limit=1&after=p%2Fv", Some("/api/v1/mirrors?limit=1&after=p%2Fv")),
            ("/api/v1/sites/b/volumes/p/v%2B", Some("/api/v1/volumes/p/v%2B")),
            ("/api/v1/sites/b/sites/c/mirrors", Some("/api/v1/sites/c/mirrors")),
            ("/api/v1/sites/b", None),
            ("/api/v1/mirrors", None),
        ] {
            assert_eq!(beyond(here).as_deref(), there, "{here}");
        }
    }

    #[test]
    fn what_proves_who_asks_stays_here() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "origin", "host", "x-farside-who", "x-farside-role", "accept"]
        {
            headers.insert(HeaderName::from_static(name), "x".parse().unwrap());
        }
        let kept = only(&headers, &PASSED_ON);
        assert_eq!(kept.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
