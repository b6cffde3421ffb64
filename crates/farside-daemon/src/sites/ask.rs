//! A peer's API is asked.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Method, Request, header};
use axum::response::Response;
use farside_api::{ErrorBody, ErrorCode};
use farside_link::StreamOptions;
use farside_peer::PeerLink;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use super::shares::{Place, Shares};
use super::{ROLE_HEADER, STREAM_HEADER, WHO_HEADER};
use crate::access::Principal;

/// How long a stream may take to come about.
const OPENED_WITHIN: Duration = Duration::from_secs(10);
/// How long an answer may take to begin: what only reads is answered soon, what changes something may take minutes.
const READ_WITHIN: Duration = Duration::from_secs(30);
const DONE_WITHIN: Duration = Duration::from_secs(600);
/// Longest answer that is read as a whole.
const READ_BYTES_MAX: usize = 1 << 20;

/// Asks a peer on a stream of its own, as somebody of this site. The answer's body comes as it is read.
///
/// # Errors
/// The peer cannot be asked, or does not know how to be.
pub(crate) async fn ask(
    shares: &Shares,
    link: &Arc<dyn PeerLink>,
    name: &str,
    as_who: &Principal,
    mut request: Request<Body>,
) -> Result<Response, ErrorBody> {
    let unreachable = |why: String| {
        ErrorBody::new(ErrorCode::PeerUnreachable, format!("the site {name} cannot be asked: {why}"))
            .hint(format!("farside peer status {name} shows the session; a site of a version before this one cannot be asked at all"))
    };
    let headers = request.headers_mut();
    headers.insert(header::HOST, HeaderValue::from_static("farside"));
    let who = HeaderValue::from_str(&as_who.who.to_string()).unwrap_or(HeaderValue::from_static("?"));
    headers.insert(WHO_HEADER, who);
    headers.insert(ROLE_HEADER, HeaderValue::from_static(as_who.role.name()));

    let place = shares.take(link.peer()).ok_or_else(|| {
        ErrorBody::new(
            ErrorCode::TooManyRequests,
            format!("as much is asked of the site {name} as may be at a time"),
        )
        .hint("nothing was changed; try again, or close pages that show it")
    })?;
    let reads = *request.method() == Method::GET || *request.method() == Method::HEAD;
    // What was on its way when the session was lost may have been done.
    let lost = |why: String| match reads {
        true => unreachable(why),
        false => ErrorBody::new(
            ErrorCode::PeerUnreachable,
            format!("the answer of the site {name} was lost: {why}. What was asked may have been done there"),
        )
        .hint("look at what it was about before you ask again: farside --site, or at the site itself"),
    };
    let opened = link.open_stream(Bytes::from_static(STREAM_HEADER), StreamOptions::default());
    let stream = match tokio::time::timeout(OPENED_WITHIN, opened).await {
        Ok(opened) => opened.map_err(|error| unreachable(error.to_string()))?,
        Err(_) => return Err(unreachable(format!("no stream within {} s", OPENED_WITHIN.as_secs()))),
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream.io))
        .await
        .map_err(|error| unreachable(error.to_string()))?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move {
        // The answer says what is wrong with it.
        let _ = connection.await;
    }));
    let within = if reads { READ_WITHIN } else { DONE_WITHIN };
    let response = match tokio::time::timeout(within, sender.send_request(request)).await {
        Ok(response) => response.map_err(|error| lost(error.to_string()))?,
        Err(_) => return Err(lost(format!("none came within {} s", within.as_secs()))),
    };
    Ok(response
        .map(|body| Body::new(Answer { body: Body::new(body), _connection: connection, _place: place })))
}

/// Asks a peer for a document.
///
/// # Errors
/// The same; the peer's own refusal; an answer that is none.
pub(crate) async fn document<T: DeserializeOwned>(
    shares: &Shares,
    link: &Arc<dyn PeerLink>,
    name: &str,
    as_who: &Principal,
    path: &str,
) -> Result<T, ErrorBody> {
    let strange = |why: String| {
        ErrorBody::new(
            ErrorCode::PeerRefused,
            format!("the site {name} answers what this version does not know: {why}"),
        )
        .hint("compare the versions of both sites")
    };
    let request = Request::builder().method(Method::GET).uri(path).body(Body::empty());
    let response =
        ask(shares, link, name, as_who, request.map_err(|error| strange(error.to_string()))?).await?;
    let is_done = response.status().is_success();
    let body = axum::body::to_bytes(response.into_body(), READ_BYTES_MAX).await;
    let body = body.map_err(|error| strange(error.to_string()))?;
    if is_done {
        return serde_json::from_slice(&body).map_err(|error| strange(error.to_string()));
    }
    Err(serde_json::from_slice::<farside_api::ErrorDocument>(&body)
        .map_or_else(|error| strange(error.to_string()), |document| document.error))
}

/// An answer's body, with the connection that it comes on.
struct Answer {
    body: Body,
    _connection: AbortOnDropHandle<()>,
    _place: Place,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        std::pin::Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
