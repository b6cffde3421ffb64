//! The OpenAPI document: made of the routes' own declarations, served, and committed as `docs/openapi.json`.
//!
//! Each route declares its method, path, query, body and answer beside its handler. What all have in common is added
//! here: how they fail, what the parts of their paths mean, and the role that they need. So there is no second list of
//! routes that could say something else.

use std::sync::{LazyLock, OnceLock};

use axum::http::{HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use farside_api::{CONFIRM_HEADER, DelayedDocument, ErrorDocument};
use farside_platform::{OsRandomness, Randomness};
use serde_json::{Map, Value, json};
use utoipa::openapi::OpenApi;
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::destructive::{Destructive, destructive};
use super::handler::Routes;
use super::roles::{Needs, needed};

/// The page that shows the document. Its script and style are its own, and it asks nobody but this daemon.
const PAGE: &str = include_str!("document.html");
/// Where the page has the number that its script and style are marked with.
const NONCE: &str = "@NONCE@";

pub(super) fn routes() -> Routes {
    OpenApiRouter::new().routes(routes!(openapi)).routes(routes!(page))
}

/// This document
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, body = Value)))]
async fn openapi() -> Response {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| DOCUMENT.get().map(Value::to_string).unwrap_or_default());
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

/// This document as a page
#[utoipa::path(get, path = "/docs", responses((status = 200, body = String, content_type = "text/html")))]
async fn page() -> Response {
    let nonce = format!("{:016x}{:016x}", OsRandomness.next_u64(), OsRandomness.next_u64());
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let mut response = PAGE.replace(NONCE, &nonce).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// The document of this version: every router of this process says the same.
static DOCUMENT: OnceLock<Value> = OnceLock::new();

/// Completes what the routes say of themselves, and keeps it.
pub(super) fn keep(mut routes: OpenApi) -> &'static Value {
    DOCUMENT.get_or_init(|| {
        let schemas = &mut routes.components.get_or_insert_default().schemas;
        schemas.insert(ErrorDocument::name().into_owned(), ErrorDocument::schema());
        schemas.insert(DelayedDocument::name().into_owned(), DelayedDocument::schema());
        let mut parts = Vec::new();
        ErrorDocument::schemas(&mut parts);
        DelayedDocument::schemas(&mut parts);
        schemas.extend(parts);
        completed(serde_json::to_value(routes).unwrap_or_default())
    })
}

/// Adds what all routes have in common.
fn completed(mut document: Value) -> Value {
    document["info"] = json!({
        "title": "farside",
        "version": env!("CARGO_PKG_VERSION"),
        "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        "description": "The API of one site's daemon. It is served on the control socket, where whoever may open the \
            socket is an administrator, and over HTTPS (farsided --api-listen), where a token or a login says who asks. \
            Sizes are whole bytes, durations are seconds (…_seconds), times are RFC 3339 in UTC. A failure has a code \
            that stays, a sentence that says what happened, and a hint that says what to do next. Destructive requests \
            take ?plan=true: they answer what they would do, and do nothing. Over HTTPS those that take data away have to name \
            the thing once more in the header x-farside-confirm, and may be made to wait (202).",
    });
    document["servers"] = json!([{"url": "/"}]);
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer", "description": "farside token create"},
        "session": {"type": "apiKey", "in": "cookie", "name": "__Host-farside",
            "description": "POST /api/v1/session. Requests that change something need the header Origin, too."},
    });
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, item) in paths {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                if let Some(operation) = operation.as_object_mut() {
                    complete_operation(operation, method, path);
                }
            }
        }
    }
    without_links(&mut document);
    unsigned(&mut document);
    document
}

fn complete_operation(operation: &mut Map<String, Value>, method: &str, path: &str) {
    let named = |segment: &&str| !segment.is_empty() && !segment.starts_with('{');
    let below = path.strip_prefix(farside_api::API_PREFIX).unwrap_or(path);
    let mut words: Vec<&str> = below.split('/').filter(named).collect();
    operation.insert("tags".into(), json!([words.first().copied().unwrap_or("site")]));
    // A handler's name says what it does to its noun: with the path before it, it is one of a kind.
    let handler = operation.get("operationId").and_then(Value::as_str).unwrap_or_default().to_owned();
    if words.last().is_some_and(|last| handler.starts_with(last)) {
        words.pop();
    }
    words.push(&handler);
    operation.insert("operationId".into(), json!(words.join("_").replace(['-', '.'], "_")));

    let parameters = operation.entry("parameters").or_insert_with(|| json!([]));
    let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    for name in in_path {
        if let Some(parameters) = parameters.as_array_mut() {
            parameters.push(json!({
                "name": name, "in": "path", "required": true, "description": meaning(name), "schema": form(name),
            }));
        }
    }
    if parameters.as_array().is_some_and(Vec::is_empty) {
        operation.remove("parameters");
    }

    for (kind, media) in operation
        .get_mut("requestBody")
        .and_then(|body| body["content"].as_object_mut())
        .into_iter()
        .flatten()
    {
        // A body that may be left away is an object where there is one: null is none.
        let either = media["schema"]["oneOf"].as_array();
        if let Some(named) =
            either.and_then(|either| either.iter().find(|one| one["type"] != "null")).cloned()
        {
            media["schema"] = named;
        }
        // Bytes, and no list of numbers.
        if kind == "application/octet-stream" {
            media["schema"] = json!({"type": "string", "format": "binary"});
        }
    }

    let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes()).unwrap_or_default();
    let destructive = destructive(&method, path);
    if let Some(Value::Array(parameters)) = operation.get_mut("parameters")
        && matches!(destructive, Some(Destructive::Takes))
    {
        parameters.push(json!({
            "name": CONFIRM_HEADER, "in": "header", "required": false, "schema": {"type": "string"},
            "description": "Over HTTPS, unless only the plan is asked for: what this is about, as people name it. POOL, POOL/VOL, \
                POOL/VOL@SNAP, PEER; of a release POOL/VOL PEER.",
        }));
    }
    let delayed = json!({
        "description": "It waits, if this site has destructive requests wait: nothing has been changed yet.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DelayedDocument"}}},
    });
    let failure = json!({
        "description": "It failed.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorDocument"}}},
    });
    if let Some(Value::Object(responses)) = operation.get_mut("responses") {
        responses.insert("default".into(), failure);
        if destructive.is_some() {
            responses.insert("202".into(), delayed);
        }
        for response in responses.values_mut().filter_map(Value::as_object_mut) {
            // Every answer has to be described; the type of its body says the rest.
            response.entry("description").or_insert_with(|| json!("It is done."));
        }
    }
    match needed(&method, path) {
        Some(Needs::Role(role)) => {
            operation.insert("x-role".into(), json!(role.name()));
            operation.insert("security".into(), json!([{"token": []}, {"session": []}]));
        }
        Some(Needs::Nobody) => {
            operation.insert("security".into(), json!([]));
        }
        // Refused over the network; a test sees to it that there is none.
        None => {}
    }
}

/// What cannot be negative has a sign's room, too: by their names the formats of utoipa end at half of it.
fn unsigned(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if object.get("minimum") == Some(&json!(0)) {
                match object.get("format").and_then(Value::as_str) {
                    Some("int64") => object.insert("format".into(), json!("uint64")),
                    Some("int32") => object.insert("format".into(), json!("uint32")),
                    _ => None,
                };
            }
            object.values_mut().for_each(unsigned);
        }
        Value::Array(array) => array.iter_mut().for_each(unsigned),
        _ => {}
    }
}

/// What a part of a path looks like, as far as it is the same everywhere.
fn form(name: &str) -> Value {
    match name {
        // What `farside_engine::is_label` takes.
        "pool" | "volume" => json!({"type": "string", "pattern": "^[A-Za-z0-9_:+][A-Za-z0-9._:+-]{0,127}$"}),
        _ => json!({"type": "string"}),
    }
}

/// What a part of a path is.
fn meaning(name: &str) -> &'static str {
    match name {
        "pool" => "The pool's name.",
        "volume" => "The volume's name in its pool.",
        "snapshot" => "The snapshot's name.",
        "peer" => "The peer's name, or its id.",
        "host" => "The host's name.",
        "id" => "Its id, as it is listed.",
        "job" => "Its id, as it is listed.",
        "application" => "The application's name.",
        "listen" => "The address that it listens on.",
        "token" => "The token's name.",
        "account" => "The account's name.",
        _ => "",
    }
}

/// Descriptions come from the comments of the code, where names in brackets are links. Here they lead nowhere.
fn without_links(value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(text) if key == "description" || key == "summary" => {
                        *text = text.replace("[`", "`").replace("`]", "`");
                    }
                    value => without_links(value),
                }
            }
        }
        Value::Array(array) => array.iter_mut().for_each(without_links),
        _ => {}
    }
}

/// Every request that the document has: method, path, and what is said of it.
pub(super) fn operations() -> impl Iterator<Item = (String, String, &'static Value)> {
    let items = DOCUMENT.get().and_then(|document| document["paths"].as_object()).into_iter().flatten();
    items.flat_map(|(path, item)| {
        let operations = item.as_object().into_iter().flatten();
        operations.map(|(method, operation)| (method.to_ascii_uppercase(), path.clone(), operation))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::described as document;
    use super::super::roles::rows;
    use super::*;

    /// Writes the file instead of comparing it: `scripts/generate-openapi`.
    const WRITE: &str = "FARSIDE_WRITE_OPENAPI";

    #[test]
    fn the_committed_document_is_what_the_routes_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let said = serde_json::to_string_pretty(document()).unwrap() + "\n";
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(path, said).unwrap();
            return;
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        let differs = said.lines().zip(committed.lines()).position(|(a, b)| a != b);
        assert!(
            said == committed,
            "docs/openapi.json is old, from line {differs:?}: run scripts/generate-openapi"
        );
    }

    #[test]
    fn every_route_is_in_the_table_and_every_row_has_its_route() {
        let mut described = BTreeSet::new();
        let mut ids = BTreeSet::new();
        for (path, item) in document()["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let method = method.to_ascii_uppercase();
                assert!(
                    operation["summary"].as_str().is_some_and(|text| !text.is_empty()),
                    "{method} {path}"
                );
                assert!(
                    ids.insert(operation["operationId"].to_string()),
                    "{} is there twice",
                    operation["operationId"]
                );
                let answers = operation["responses"].as_object().unwrap();
                assert!(answers.values().all(|answer| answer["description"].is_string()), "{method} {path}");
                described.insert((method, path.clone()));
            }
        }
        let listed: BTreeSet<_> = rows().map(|(method, path, _)| (method.to_owned(), path)).collect();
        assert_eq!(listed.len(), rows().count(), "a row is there twice");
        assert_eq!(described, listed);
        assert!(needed(&Method::POST, "/api/v1/no/such").is_none());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(object) => {
                    if let Some(Value::String(reference)) = object.get("$ref") {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                    }
                    object.values().for_each(|value| walk(value, document));
                }
                Value::Array(array) => array.iter().for_each(|value| walk(value, document)),
                _ => {}
            }
        }
        walk(document(), document());
        assert_eq!(document()["openapi"], "3.1.0");
    }
}
