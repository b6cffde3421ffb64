//! `/audit`: what was asked for, by whom, from where, and what came of it.
//!
//! Every request that changes something is written down before it begins, with what was sent along (secrets left out), and
//! its outcome when it is over: one without an outcome was under way when the daemon ended. Nothing of the API takes an entry
//! away; the daemon itself forgets what is older than [`KEPT_FOR`], and the oldest of more than [`KEPT_MAX`].
//!
//! Not written down: requests that only read, plans, and whoever was turned away at the gate (metrics count these): who has
//! no right must not be able to push out what others have done.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::{Body as RequestBody, Bytes, to_bytes};
use axum::extract::{MatchedPath, Query as AxumQuery, Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use farside_api::{AccessRole, AuditEntry, AuditPage, ErrorBody, ErrorCode, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{ApiError, Query};
use super::gate::asked_by;
use super::handler::{Answer, Routes, Shared};
use super::plan::Planned;
use super::roles::THROUGH;
use crate::access::Principal;
use crate::convert;
use crate::listen::Origin;
use crate::site::Site;
use crate::state::{AuditRow, AuditWanted, DatabaseChoice, StateError};

/// How long entries are kept.
const KEPT_FOR: Duration = Duration::from_secs(400 * 86_400);
/// Entries that are kept: some 300 MB at most if each is of the usual size.
const KEPT_MAX: i64 = 500_000;
/// How often that is looked after.
const TIDIED_EVERY: Duration = Duration::from_secs(3600);
/// Longest JSON that is read of a request: what the handlers themselves read.
const BODY_BYTES_MAX: usize = 2 << 20;
/// Longest that is kept of it, and of what a failure says.
const KEPT_BYTES_MAX: usize = 4 << 10;
const MESSAGE_BYTES_MAX: usize = 1 << 10;
/// Entries of one page.
const PAGE_DEFAULT: u32 = 100;
const PAGE_MAX: u32 = 1000;

/// Fields that hold a secret, whatever they are a field of. A test compares them with what the document calls a password.
const SECRETS: [&str; 2] = ["password", "code"];
/// What is kept instead.
const HIDDEN: &str = "***";

/// The route of a move of the state. What came of one that is over is written by the move itself, where the state is then.
const MOVE: &str = "/api/v1/site/move-state";
/// The route of logins.
const LOGIN: &str = "/api/v1/session";

/// Requests that change nothing though they are no GET, or nothing that anybody did: a drill's client renews it every few seconds.
const NOT_KEPT: [&str; 2] = ["/api/v1/accelerator/plan", "/api/v1/drills/{pool}/{volume}/renew"];

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which entries are wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Older than the entry of this number: `next` of the page before.
    before: Option<i64>,
    /// Of this somebody alone, as entries say it.
    who: Option<String>,
    /// At this moment or later.
    since: Option<Timestamp>,
    /// Entries of the page, 1 to 1000; 100 if it is left out.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Changes that were asked for, newest first
#[utoipa::path(get, path = "/audit", params(Wanted), responses((status = 200, body = AuditPage)))]
async fn list(State(site): Shared, Query(wanted): Query<Wanted>) -> Answer<AuditPage> {
    let limit = wanted.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(ErrorBody::new(ErrorCode::WrongUsage, format!("ask for 1 to {PAGE_MAX} entries")).into());
    }
    let since = wanted.since.map(|at| i64::try_from(convert::timestamp(at).0).unwrap_or(i64::MAX));
    let wanted = AuditWanted { before: wanted.before, who: wanted.who, since, limit };
    let rows = site.state.audit(&wanted).await?;
    let next = rows.last().filter(|_| rows.len() == limit as usize).map(|row| row.id);
    Ok(Json(AuditPage { entries: rows.into_iter().map(entry).collect(), next }))
}

fn entry(row: AuditRow) -> AuditEntry {
    let at = farside_platform::Timestamp(u64::try_from(row.at).unwrap_or(0));
    AuditEntry {
        id: row.id,
        at: convert::time(at),
        who: row.who,
        role: row.role.as_deref().and_then(AccessRole::named),
        from: row.origin,
        method: row.method,
        path: row.path,
        request: row.request.and_then(|text| serde_json::from_str(&text).ok()),
        outcome: row.outcome,
        message: row.message,
        duration_seconds: row.duration.map(|nanoseconds| nanoseconds as f64 / 1e9),
    }
}

/// Answers a request, and writes it down if it may change something.
pub(super) async fn audited(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let Some(route) = route.filter(|route| changes(request.method(), route, request.uri())) else {
        return next.run(request).await;
    };
    // A wrong password is written down by the handler, which knows whether there is such an account.
    if request.method() == Method::POST && route == LOGIN {
        return next.run(request).await;
    }
    let is_move = route == MOVE;
    let (mut request, sent) = match with_body(request).await {
        Ok((request, sent)) => (request, kept(sent)),
        Err(refused) => return ApiError::from(refused).into_response(),
    };
    let row = row(&site, &request, sent);
    let (began, begun) = (Instant::now(), site.state.audit_begins(&row).await);
    if let Ok(id) = begun {
        request.extensions_mut().insert(EntryNumber(id));
    }
    let response = next.run(request).await;
    let failed = response.extensions().get::<ErrorBody>();
    match begun {
        Ok(_) if is_move && failed.is_none() => {}
        Ok(id) => ends(&site, id, failed, began.elapsed()).await,
        Err(error) => unwritten(&error, &row, failed),
    }
    response
}

/// The number of the entry of a request, for its handler.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryNumber(pub(super) i64);

/// What is to be written down of a request.
#[derive(Clone)]
pub(super) struct Entry(AuditRow);

impl Entry {
    pub(super) fn of(site: &Site, request: &Request, sent: Option<Value>) -> Entry {
        Entry(row(site, request, kept(sent)))
    }

    /// The same request, now.
    pub(super) fn again(self, site: &Site) -> Entry {
        Entry(AuditRow { at: now(site), ..self.0 })
    }
}

/// Writes down a request that was not carried out now, and why.
pub(super) async fn not_now(site: &Site, Entry(row): Entry, why: &ErrorBody) {
    at_once(site, &row, Some(why)).await;
}

fn row(site: &Site, request: &Request, sent: Option<String>) -> AuditRow {
    let principal = request.extensions().get::<Principal>();
    let origin = request.extensions().get::<Origin>().copied().unwrap_or(Origin::Unknown);
    AuditRow {
        at: now(site),
        who: asked_by(principal).to_string(),
        role: principal.map(|principal| principal.role.name().to_owned()),
        origin: origin.to_string(),
        method: request.method().to_string(),
        path: path_of(request.uri()),
        request: sent,
        ..AuditRow::default()
    }
}

/// Path and query.
pub(super) fn path_of(uri: &Uri) -> String {
    uri.path_and_query().map(ToString::to_string).unwrap_or_default()
}

/// Writes down a login; one that failed, too.
pub(super) async fn login(site: &Site, who: String, origin: Origin, outcome: Result<AccessRole, &ErrorBody>) {
    let row = AuditRow {
        at: now(site),
        who,
        role: outcome.ok().map(|role| role.name().to_owned()),
        origin: origin.to_string(),
        method: Method::POST.to_string(),
        path: LOGIN.to_owned(),
        ..AuditRow::default()
    };
    at_once(site, &row, outcome.err()).await;
}

fn now(site: &Site) -> i64 {
    i64::try_from(site.clock.now().0).unwrap_or(i64::MAX)
}

/// Writes down what is over already.
async fn at_once(site: &Site, row: &AuditRow, failed: Option<&ErrorBody>) {
    match site.state.audit_begins(row).await {
        Ok(id) => ends(site, id, failed, Duration::ZERO).await,
        Err(error) => unwritten(&error, row, failed),
    }
}

/// Whoever has to act on the worst day is not stopped by a full disk: what cannot be written down is in the log.
fn unwritten(error: &StateError, row: &AuditRow, failed: Option<&ErrorBody>) {
    let (who, from, method, path) = (&row.who, &row.origin, &row.method, &row.path);
    match failed {
        None => tracing::error!(%error, who, from, method, path,
            "a change is not in the audit log: the state database could not be written. The change is carried out all the same"),
        Some(failed) => {
            tracing::warn!(%error, who, from, method, path, outcome = code(failed.code), why = failed.message,
            "a request that did not succeed is not in the audit log: the state database could not be written")
        }
    }
}

async fn ends(site: &Site, id: i64, failed: Option<&ErrorBody>, took: Duration) {
    let (outcome, message) = outcome_of(failed);
    let took = i64::try_from(took.as_nanos()).unwrap_or(i64::MAX);
    if let Err(error) = site.state.audit_ends(id, &outcome, message.as_deref(), took).await {
        tracing::warn!(%error, id, outcome, "what came of a change is not in the audit log");
    }
}

/// What came of a change, in a word and in words.
pub(crate) fn outcome_of(failed: Option<&ErrorBody>) -> (String, Option<String>) {
    let outcome = failed.map_or_else(|| String::from("done"), |body| code(body.code));
    (outcome, failed.map(|body| shortened(&body.message)))
}

/// As the API writes it.
fn code(code: ErrorCode) -> String {
    serde_json::to_value(code).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(MESSAGE_BYTES_MAX.min(text.len()));
    text[..end].to_owned()
}

/// Whether a request may change something.
fn changes(method: &Method, route: &str, uri: &Uri) -> bool {
    let reads = *method == Method::GET || *method == Method::HEAD || NOT_KEPT.contains(&route);
    if route == THROUGH {
        // The site that is asked knows best; what is plainly a plan, or a drill that goes on, is none here either.
        let is_plan = AxumQuery::<Planned>::try_from_uri(uri).is_ok_and(|AxumQuery(planned)| planned.plan);
        return !reads && !is_plan && !uri.path().ends_with("/renew");
    }
    !reads && !is_plan(method, route, uri)
}

/// Whether a request only asks what it would do.
pub(super) fn is_plan(method: &Method, route: &str, uri: &Uri) -> bool {
    /// Routes that can be asked for a plan: their declarations say so.
    static WITH_PLAN: LazyLock<HashSet<(String, String)>> = LazyLock::new(|| {
        super::document::operations()
            .filter(|(_, _, operation)| takes_plan(operation))
            .map(|(method, path, _)| (method, path))
            .collect()
    });
    // Read as the handler reads it; where no handler does, the word means nothing.
    WITH_PLAN.contains(&(method.to_string(), route.to_owned()))
        && AxumQuery::<Planned>::try_from_uri(uri).is_ok_and(|AxumQuery(planned)| planned.plan)
}

fn takes_plan(operation: &Value) -> bool {
    operation["parameters"].as_array().into_iter().flatten().any(|parameter| parameter["name"] == "plan")
}

/// The request with its body read, and what that says, without secrets. Other bodies than JSON are files, and pass by.
async fn with_body(request: Request) -> Result<(Request, Option<Value>), ErrorBody> {
    if !is_json(request.headers()) {
        return Ok((request, None));
    }
    let (parts, body) = request.into_parts();
    let bytes: Bytes = to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("the request cannot be read: {error}"))
            .hint(format!("it may have {BODY_BYTES_MAX} bytes at most"))
    })?;
    let sent = shown(&bytes);
    Ok((Request::from_parts(parts, RequestBody::from(bytes)), sent))
}

/// What a body says, without secrets; none: it is no JSON.
pub(super) fn shown(body: &[u8]) -> Option<Value> {
    let mut value = serde_json::from_slice::<Value>(body).ok()?;
    hide(&mut value);
    Some(value)
}

/// As much of it as is kept.
fn kept(sent: Option<Value>) -> Option<String> {
    sent.map(|sent| sent.to_string()).filter(|text| text.len() <= KEPT_BYTES_MAX && text != "null")
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                if SECRETS.iter().any(|secret| name.eq_ignore_ascii_case(secret)) && !value.is_null() {
                    *value = Value::from(HIDDEN);
                } else {
                    hide(value);
                }
            }
        }
        Value::Array(array) => array.iter_mut().for_each(hide),
        // The address of a database that is refused may be refused for the password in it.
        Value::String(text) if text.starts_with("postgres") && text.parse::<DatabaseChoice>().is_err() => {
            *text = HIDDEN.into();
        }
        _ => {}
    }
}

/// Keeps the log within its bounds as long as the daemon runs.
pub(crate) async fn keep_audit_within(site: Arc<Site>) {
    loop {
        let before =
            site.clock.now().0.saturating_sub(u64::try_from(KEPT_FOR.as_nanos()).unwrap_or(u64::MAX));
        match site.state.prune_audit(farside_platform::Timestamp(before), KEPT_MAX).await {
            Ok(0) => {}
            Ok(gone) => tracing::warn!(
                gone,
                "the audit log had more than {KEPT_MAX} entries: the oldest are gone before their time. farside audit --json keeps \
                 a copy elsewhere"
            ),
            Err(error) => tracing::warn!(%error, "the audit log is not kept within its bounds"),
        }
        site.access.tidy();
        tokio::time::sleep(TIDIED_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_are() {
        let mut value =
            json!({"name": "a", "code": "x", "in": [{"Password": "y", "password": null}], "codes": 1});
        hide(&mut value);
        assert_eq!(
            value,
            json!({"name": "a", "code": "***", "in": [{"Password": "***", "password": null}], "codes": 1})
        );
    }

    /// What the document calls a password is hidden, and what is hidden is called one.
    #[test]
    fn every_password_of_the_document_is_hidden() {
        fn walk(value: &Value, found: &mut BTreeSet<String>) {
            for (name, property) in value["properties"].as_object().into_iter().flatten() {
                if property["format"] == "password" && property["writeOnly"] == true {
                    found.insert(name.clone());
                }
            }
            match value {
                Value::Object(object) => object.values().for_each(|value| walk(value, found)),
                Value::Array(array) => array.iter().for_each(|value| walk(value, found)),
                _ => {}
            }
        }
        let mut found = BTreeSet::new();
        walk(super::super::described(), &mut found);
        assert_eq!(found, SECRETS.into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn what_changes_something_is_kept() {
        super::super::described();
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        let (pools, one) = ("/api/v1/pools", "/api/v1/pools/{pool}");
        assert!(
            changes(&Method::POST, pools, &uri(pools))
                && changes(&Method::DELETE, one, &uri("/api/v1/pools/p"))
        );
        assert!(!changes(&Method::GET, pools, &uri(pools)) && !changes(&Method::HEAD, pools, &uri(pools)));
        assert!(!changes(&Method::DELETE, one, &uri("/api/v1/pools/p?plan=true")));
        assert!(changes(&Method::DELETE, one, &uri("/api/v1/pools/p?plan=false")));
        let mirrors = "/api/v1/mirrors";
        assert!(changes(&Method::POST, mirrors, &uri("/api/v1/mirrors?plan=true")), "it takes no plan");
        assert!(!changes(&Method::POST, NOT_KEPT[0], &uri(NOT_KEPT[0])));
        assert_eq!(shortened(&"ö".repeat(1000)).len(), MESSAGE_BYTES_MAX);
    }
}
