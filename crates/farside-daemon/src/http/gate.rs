//! The way in: who asks, whether they may, and what every answer over the network carries.
//!
//! Whoever comes by the control socket is an administrator: the socket's file mode has decided that. Over the network a token
//! or a session says who asks, and the table of routes ([`super::roles`]) what they may; what is not in the table is refused.
//!
//! Against what a browser can be made to do: the name in `Host` must be one of this daemon's (a page elsewhere cannot have its
//! own name resolve to this address, and ask as if it were ours), a request that changes something by a session must say that
//! it comes from this daemon's own page (`Origin`), the cookie is sent to and by this site alone, no page may be shown in a
//! frame, and no other site's page may read an answer.

use std::sync::Arc;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use farside_api::{AccessRole, ErrorBody, ErrorCode};
use farside_peer::PeerId;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::error::ApiError;
use super::handler::no_such_method;
use super::roles::{Needs, SITES, THROUGH, methods, needed};
use crate::access::{Principal, Who};
use crate::daemons::{FROM_HEADER, PASS_HEADER};
use crate::listen::{Origin, is_called};
use crate::metrics;
use crate::site::Site;
use crate::sites::{ROLE_HEADER, WHO_HEADER};

/// The session's cookie. A browser takes the prefix to mean: over HTTPS alone, for this host alone, for every path.
pub(super) const SESSION_COOKIE: &str = "__Host-farside";

/// What answers over the network carry. The page of the API has a policy of its own.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Lets a request in, or says why not.
pub(super) async fn gate(State(site): State<Arc<Site>>, mut request: Request, next: Next) -> Response {
    let origin = request.extensions().get::<Origin>().copied().unwrap_or(Origin::Unknown);
    match origin {
        Origin::Socket { uid } => {
            request.extensions_mut().insert(Principal::local(uid));
            next.run(request).await
        }
        Origin::Peer(peer) => match allowed_peer(&site, peer, &request) {
            Ok(principal) => {
                request.extensions_mut().insert(principal);
                next.run(request).await
            }
            Err(refusal) => refused(&site, &request, refusal),
        },
        Origin::Network(_) | Origin::Unknown => {
            let passed = passed_on(&site, &mut request);
            if let Some(Passed::FromSocket { uid }) = passed {
                request.extensions_mut().insert(Principal::local(uid));
                return next.run(request).await;
            }
            let mut response = match allowed(&site, &request, passed.is_some()) {
                Ok(principal) => {
                    if let Some(principal) = principal {
                        request.extensions_mut().insert(principal);
                    }
                    next.run(request).await
                }
                Err(refusal) => refused(&site, &request, refusal),
            };
            for (name, value) in HEADERS {
                response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
            }
            response
        }
    }
}

/// Where a request has come from that another daemon of this site passes on.
enum Passed {
    FromSocket { uid: Option<u32> },
    FromNetwork,
}

/// Whether another daemon of this site passes the request on: it says what only they can know. What it says is taken out.
fn passed_on(site: &Site, request: &mut Request) -> Option<Passed> {
    let headers = request.headers_mut();
    let (said, from) = (headers.remove(PASS_HEADER)?, headers.remove(FROM_HEADER)?);
    let keeper = site.keeper.as_ref()?;
    let is_right = !keeper.leading.pass.is_empty()
        && verify_slices_are_equal(said.as_bytes(), keeper.leading.pass.as_bytes()).is_ok();
    if !is_right {
        return None;
    }
    match from.to_str().ok()?.split_once(' ') {
        Some(("socket", uid)) => Some(Passed::FromSocket { uid: uid.parse().ok() }),
        None if from == "socket" => Some(Passed::FromSocket { uid: None }),
        _ => Some(Passed::FromNetwork),
    }
}

/// The reason of a refusal that is about the request, not about who asks.
const NO_SUCH_METHOD: &str = "method";

/// Why somebody is not let in, in a word for the metrics, and in words for them.
struct Refusal {
    reason: &'static str,
    body: ErrorBody,
}

fn refused(site: &Site, request: &Request, Refusal { reason, body }: Refusal) -> Response {
    metrics::api_refused(reason);
    if body.code == ErrorCode::Forbidden {
        let who =
            known(site, request.headers()).ok().flatten().map(|(principal, _)| principal.who.to_string());
        tracing::info!(reason, who, method = %request.method(), path = request.uri().path(), "a request to the API was refused");
    }
    if reason == NO_SUCH_METHOD {
        let mut response = no_such_method(request.method(), request.uri()).into_response();
        if let Some(allow) = route_of(request).and_then(methods).and_then(|names| names.parse().ok()) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        return response;
    }
    let is_unauthenticated = body.code == ErrorCode::Unauthenticated;
    let mut response = ApiError::from(body).into_response();
    if is_unauthenticated {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// Who asks, if they may; nobody in particular, where anybody may.
fn allowed(site: &Site, request: &Request, was_passed_on: bool) -> Result<Option<Principal>, Refusal> {
    let headers = request.headers();
    // Of what another daemon of this site passes on the host is that one's, which has looked at it.
    if !was_passed_on {
        check_host(site, headers)?;
    }
    let known = known(site, headers)?;
    let by_session = known.as_ref().is_some_and(|(_, by)| *by == By::Session);
    let principal = known.map(|(principal, _)| principal);
    check_same_page(request.method(), headers, by_session)?;
    let route = route_of(request);
    let needs = route.and_then(|route| needed(request.method(), route));
    match (needs, principal) {
        (Some(Needs::Nobody), principal) => Ok(principal),
        (_, None) => Err(Refusal {
            reason: "unauthenticated",
            body: ErrorBody::new(
                ErrorCode::Unauthenticated,
                "say who you are: this needs a token, or a login",
            )
            .hint("make a token at the site itself: farside token create NAME --role viewer"),
        }),
        (needs, Some(principal)) => check_role(route, needs, principal).map(Some),
    }
}

/// Somebody at a peer's site, if they may.
fn allowed_peer(site: &Site, peer: PeerId, request: &Request) -> Result<Principal, Refusal> {
    let said = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let name = site.node.peer(peer).map_or_else(|| format!("{peer:?}"), |known| known.record.name);
    let role = said(ROLE_HEADER).and_then(AccessRole::named);
    let principal = site.access.peer(peer, &name, said(WHO_HEADER), role).ok_or_else(|| Refusal {
        reason: "role",
        body: ErrorBody::new(
            ErrorCode::Forbidden,
            format!("the site {} does not let your site look at it", site.document.name),
        )
        .hint(format!("an administrator there allows it: farside peer set {name} --role viewer")),
    })?;
    // From one peer to the next: who asks would be said by somebody whom this site does not know.
    // And it has no session here that it could end.
    match route_of(request) {
        Some(SITES | THROUGH) => Err(not_served()),
        Some("/api/v1/session") if request.method() != Method::GET => Err(not_served()),
        route => check_role(route, route.and_then(|route| needed(request.method(), route)), principal),
    }
}

fn route_of(request: &Request) -> Option<&str> {
    request.extensions().get::<MatchedPath>().map(MatchedPath::as_str)
}

/// Somebody who is known, if they may use a route.
fn check_role(route: Option<&str>, needs: Option<Needs>, principal: Principal) -> Result<Principal, Refusal> {
    match needs {
        Some(Needs::Nobody) => Ok(principal),
        Some(Needs::Role(role)) if principal.role >= role => Ok(principal),
        Some(Needs::Role(role)) => {
            let message = format!(
                "{} is {} here, and this needs {}",
                principal.who,
                principal.role.name(),
                role.name()
            );
            Err(Refusal {
                reason: "role",
                body: ErrorBody::new(ErrorCode::Forbidden, message)
                    .hint("nothing was changed; an administrator gives roles"),
            })
        }
        // No such route: the answer says so. One without a row in the table is for the control socket alone.
        None if route.is_none() => Ok(principal),
        // Other methods are in the table. No handler is asked whether there is this one, too.
        None if route.and_then(methods).is_some() => Err(Refusal {
            reason: NO_SUCH_METHOD,
            body: ErrorBody::new(ErrorCode::WrongUsage, "there is no such method"),
        }),
        None => Err(not_served()),
    }
}

/// It is for the control socket alone.
fn not_served() -> Refusal {
    Refusal {
        reason: "route",
        body: ErrorBody::new(ErrorCode::Forbidden, "this is not served over the network")
            .hint("ask it at the site itself, by the control socket"),
    }
}

/// How somebody has said who they are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Token,
    Session,
}

/// Who asks, by what came along; none, if nothing did.
fn known(site: &Site, headers: &HeaderMap) -> Result<Option<(Principal, By)>, Refusal> {
    let refusal = |message: &str, hint: &str| Refusal {
        reason: "unauthenticated",
        body: ErrorBody::new(ErrorCode::Unauthenticated, message).hint(hint),
    };
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|text| {
            let (scheme, token) = text.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        let principal = token.and_then(|token| site.access.token(token)).ok_or_else(|| {
            refusal(
                "this token is not known here, or was revoked, or has ended",
                "farside token list at the site itself shows them",
            )
        })?;
        return Ok(Some((principal, By::Token)));
    }
    let Some(session) = session_of(headers) else { return Ok(None) };
    // A session that has ended is as good as none: the page asks for the password again.
    Ok(site.access.session(session).map(|principal| (principal, By::Session)))
}

/// What the session's cookie says.
pub(super) fn session_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == SESSION_COOKIE).map(|(_, value)| value)
}

/// The name by which the client calls this daemon must be one of its own.
fn check_host(site: &Site, headers: &HeaderMap) -> Result<(), Refusal> {
    let called = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if is_called(called, &site.host_name, &site.configuration.api.names) {
        return Ok(());
    }
    Err(Refusal { reason: "host", body: wrong_host(called) })
}

/// That this daemon has another name.
pub(crate) fn wrong_host(called: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::Forbidden, format!("this daemon is not called {called:?}"))
        .hint("add the name to names of [api] in farside.toml, or come by address")
}

/// A browser sends a session's cookie by itself: a request that changes something has to come from this daemon's own page,
/// which browsers say in `Origin`. Whoever says that it comes from elsewhere is refused in any case.
fn check_same_page(method: &Method, headers: &HeaderMap, by_session: bool) -> Result<(), Refusal> {
    let called = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let origin = headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or("?"));
    let is_own =
        |origin: &str| origin.strip_prefix("https://").is_some_and(|host| host.eq_ignore_ascii_case(called));
    let changes = *method != Method::GET && *method != Method::HEAD;
    match origin {
        Some(origin) if is_own(origin) => Ok(()),
        None if !(changes && by_session) => Ok(()),
        _ => Err(Refusal {
            reason: "origin",
            body: ErrorBody::new(
                ErrorCode::Forbidden,
                "this request does not come from this daemon's own page",
            )
            .hint("nothing was changed; programs use a token, and send no Origin"),
        }),
    }
}

/// The somebody of a request, for handlers.
pub(super) fn asked_by(principal: Option<&Principal>) -> Who {
    principal.map_or(Who::Nobody, |principal| principal.who.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_changes_something_from_its_own_page_only() {
        let check = |method: Method, origin: Option<&str>, by_session: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("site:7443"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
            }
            check_same_page(&method, &headers, by_session).is_ok()
        };
        let (own, other) = (Some("https://site:7443"), Some("https://evil.example"));
        assert!(check(Method::POST, own, true) && check(Method::GET, None, true));
        assert!(check(Method::POST, None, false), "a program with a token");
        assert!(!check(Method::POST, None, true) && !check(Method::DELETE, other, true));
        for wrong in ["http://site:7443", "https://site", "null", "https://site:7443.evil.example"] {
            assert!(
                !check(Method::POST, Some(wrong), true) && !check(Method::POST, Some(wrong), false),
                "{wrong}"
            );
        }
        assert!(!check(Method::GET, other, true), "it could not read the answer, and gets none");
    }

    #[test]
    fn the_cookie_among_others() {
        let mut headers = HeaderMap::new();
        assert_eq!(session_of(&headers), None);
        headers.append(header::COOKIE, HeaderValue::from_static("a=b; __Host-farside=00ff; c=d"));
        assert_eq!(session_of(&headers), Some("00ff"));
    }
}
