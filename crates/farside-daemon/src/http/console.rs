//! The web console: the pages that a browser is shown over HTTPS. A client of the API like any other.
//!
//! What is served was built from `console/` (`make console`), compressed, and committed in `console/dist`, so that building the
//! daemon needs nothing but the compiler. The files tell nothing about the site, so they need no token; everything that they
//! show comes from the API, by the session of whoever has logged in.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Extension, Path};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::handler::unknown;
use crate::listen::Origin;
use crate::site::Site;

/// A file of the console, brotli-compressed.
struct File {
    name: &'static str,
    media_type: &'static str,
    /// In quotes, as the header has it: from the content.
    etag: &'static str,
    bytes: &'static [u8],
}

/// Sorted by name. Beside the files, so that one command writes both.
static FILES: &[File] = include!("../../../../console/dist/files.rs");

const PAGE: &str = "index.html";
/// Where the files with a hash in their name are: what such a name leads to never changes.
const ASSETS: &str = "/assets/{file}";

/// Where the page is shown, too: it reads from the address what to show. Other words below `/` are no pages, so that a request
/// that is wrong is told so.
const PAGES: &[&str] = &[
    "/",
    "/login",
    "/mirrors",
    "/mirrors/{*rest}",
    "/volumes",
    "/volumes/{*rest}",
    "/pools",
    "/pools/{*rest}",
    "/hosts",
    "/hosts/{*rest}",
    "/peers",
    "/peers/{*rest}",
    "/calculator",
    "/accelerator",
    "/events",
    "/alarms",
    "/audit",
    "/access",
    "/create",
    "/create/{*rest}",
    "/sites",
    "/site/{*rest}",
];

/// The page may load what this daemon serves, and nothing else; no script or style stands in the page itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn routes() -> Router<Arc<Site>> {
    let pages = PAGES.iter().fold(Router::new(), |router, path| router.route(path, get(page)));
    pages.route(ASSETS, get(asset)).route("/favicon.svg", get(icon))
}

/// Whether a route, named as the router names it, is one of these. They only answer.
pub(super) fn has(method: &Method, route: &str) -> bool {
    (*method == Method::GET || *method == Method::HEAD)
        && (PAGES.contains(&route) || route == ASSETS || route == "/favicon.svg")
}

async fn page(origin: Option<Extension<Origin>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    // It has to be looked at again each time: it names the files of this version.
    answer(PAGE, "no-cache", origin, method, uri, &headers).await
}

async fn icon(origin: Option<Extension<Origin>>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    answer("favicon.svg", "no-cache", origin, method, uri, &headers).await
}

async fn asset(
    Path(file): Path<String>,
    origin: Option<Extension<Origin>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let name = format!("assets/{file}");
    answer(&name, "public, max-age=31536000, immutable", origin, method, uri, &headers).await
}

async fn answer(
    name: &str,
    caching: &'static str,
    origin: Option<Extension<Origin>>,
    method: Method,
    uri: Uri,
    headers: &HeaderMap,
) -> Response {
    // The control socket is for programs.
    let by_network = matches!(origin, Some(Extension(Origin::Network(_))));
    let found = FILES.iter().find(|file| file.name == name).filter(|_| by_network);
    let Some(file) = found else { return unknown(method, uri).await.into_response() };
    if !takes_brotli(headers) {
        let reason = "The console's files are kept compressed by brotli, and this client does not say that it takes that \
                      (Accept-Encoding: br). Every browser of today does, over HTTPS. Programs ask the API: /api/v1/docs\n";
        return (StatusCode::NOT_ACCEPTABLE, [(header::VARY, "accept-encoding")], reason).into_response();
    }
    let common = [
        (header::ETAG, file.etag),
        (header::CACHE_CONTROL, caching),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    if known.flat_map(|value| value.split(',')).any(|tag| tag.trim().trim_start_matches("W/") == file.etag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    let content = [(header::CONTENT_TYPE, file.media_type), (header::CONTENT_ENCODING, "br")];
    (common, content, file.bytes).into_response()
}

fn takes_brotli(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("br"));
        let is_refused = parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        is_named && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn who_takes_brotli() {
        for (value, takes) in [
            ("gzip, deflate, br, zstd", true),
            ("br;q=0.5", true),
            ("BR", true),
            ("br;q=0", false),
            ("gzip", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            assert_eq!(takes_brotli(&headers), takes, "{value}");
        }
        assert!(!takes_brotli(&HeaderMap::new()));
    }

    #[test]
    fn the_files_are_there_and_stay_small() {
        assert!(FILES.is_sorted_by_key(|file| file.name));
        assert!(FILES.iter().any(|file| file.name == PAGE));
        assert!(FILES.iter().all(|file| file.etag.starts_with('"') && file.etag.len() == 34));
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes < 500_000, "{bytes}");
    }
}
