//! Which requests are destructive, and what is asked of them over the network: that they name the thing once more
//! ([`CONFIRM_HEADER`]), and, where the site says so, that they wait ([`super::delayed`]).
//!
//! Not asked of the control socket: whoever may open that may also delete the pool's file. Not destructive is what takes no data
//! away and may have to be done at once on the worst day: a break, a swap, a token that is revoked.

use axum::extract::RawPathParams;
use axum::http::Method;
use farside_api::{API_PREFIX, CONFIRM_HEADER, ErrorBody, ErrorCode, thing_of};
use serde_json::Value;

/// A kind of destructive request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Destructive {
    /// It takes away what cannot be had again, or not soon: it has to name the thing, and waits.
    Takes,
    /// It has other rules take data away later, if its body says so: it waits.
    LetsGo(fn(&Value) -> bool),
}

use Destructive::{LetsGo, Takes};

/// The table.
#[rustfmt::skip]
const TABLE: &[(&str, &str, Destructive)] = &[
    ("POST", "/pools", LetsGo(overwrites)),
    ("DELETE", "/pools/{pool}", Takes),
    ("DELETE", "/pools/{pool}/staged", Takes),
    ("DELETE", "/pools/{pool}/staged/{volume}", Takes),
    ("DELETE", "/volumes/{pool}/{volume}", Takes),
    ("POST", "/volumes/{pool}/{volume}/resize", Takes),
    ("DELETE", "/volumes/{pool}/{volume}/snapshots/{snapshot}", Takes),
    ("POST", "/volumes/{pool}/{volume}/snapshots/{snapshot}/rollback", Takes),
    ("POST", "/volumes/{pool}/{volume}/snapshots/{snapshot}/hold", LetsGo(no_longer_held)),
    ("POST", "/volumes/{pool}/{volume}/snapshot-schedule", LetsGo(rotates_otherwise)),
    ("DELETE", "/mirrors/{pool}/{volume}", Takes),
    ("POST", "/mirrors/{pool}/{volume}/resync", Takes),
    ("POST", "/mirrors/{pool}/{volume}/release/{peer}", Takes),
    ("POST", "/mirrors/{pool}/{volume}/set", LetsGo(rotates_otherwise)),
    ("DELETE", "/peers/{peer}", Takes),
];

fn no_longer_held(body: &Value) -> bool {
    body["held"] == false
}

/// Of points that are kept by number, a faster schedule pushes the old ones out, too.
fn rotates_otherwise(body: &Value) -> bool {
    ["retention", "every_seconds", "schedule", "rpo_seconds"].iter().any(|field| !body[*field].is_null())
}

fn overwrites(body: &Value) -> bool {
    body["overwrite"] == true
}

/// Whether a route, named as the router names it, is destructive.
pub(super) fn destructive(method: &Method, route: &str) -> Option<Destructive> {
    let below = route.strip_prefix(API_PREFIX)?;
    TABLE.iter().find(|(m, path, _)| *m == method.as_str() && *path == below).map(|(_, _, kind)| *kind)
}

/// The thing that a request of this route is about, with the names that its path has.
pub(super) fn thing(route: &str, names: &RawPathParams) -> Option<String> {
    let below = route.strip_prefix(API_PREFIX)?.trim_start_matches('/');
    let name_of = |part: &str| {
        let name = part.strip_prefix('{')?.strip_suffix('}')?;
        names.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    };
    let parts: Vec<String> =
        below.split('/').map(|part| name_of(part).unwrap_or_else(|| part.to_owned())).collect();
    thing_of(&parts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What somebody is told whose request does not name the thing.
pub(super) fn unconfirmed(thing: &str, said: Option<&str>) -> ErrorBody {
    let message = match said {
        None => format!("this takes something away, so it has to be confirmed by name: {thing}"),
        Some(said) => format!("this is about {thing}, and was confirmed for {said:?}"),
    };
    ErrorBody::new(ErrorCode::Unconfirmed, message).hint(format!(
        "nothing was changed. ?plan=true shows what it would do; with the header {CONFIRM_HEADER}: {thing} it is done"
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::super::{described, document};
    use super::*;

    #[test]
    fn every_row_has_its_route_and_a_plan_where_it_takes_something() {
        described();
        let with_plan: BTreeSet<(String, String)> = document::operations()
            .filter(|(_, _, operation)| {
                operation["parameters"].as_array().into_iter().flatten().any(|p| p["name"] == "plan")
            })
            .map(|(method, path, _)| (method, path))
            .collect();
        let routes: BTreeSet<_> = document::operations().map(|(method, path, _)| (method, path)).collect();
        for (method, path, kind) in TABLE {
            let row = ((*method).to_owned(), format!("{API_PREFIX}{path}"));
            assert!(routes.contains(&row), "{row:?}");
            assert!(!matches!(kind, Takes) || with_plan.contains(&row), "{row:?} has no plan");
            let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
            assert!(thing_of(&parts).is_some() || *path == "/pools", "{row:?} is about nothing");
        }
    }

    #[test]
    fn a_body_says_whether_something_is_let_go() {
        let kind = |method: Method, path: &str| destructive(&method, &format!("{API_PREFIX}{path}"));
        let Some(LetsGo(lets_go)) = kind(Method::POST, "/volumes/{pool}/{volume}/snapshots/{snapshot}/hold")
        else {
            panic!()
        };
        assert!(lets_go(&json!({"held": false})) && !lets_go(&json!({"held": true})));
        let Some(LetsGo(lets_go)) = kind(Method::POST, "/mirrors/{pool}/{volume}/set") else { panic!() };
        assert!(lets_go(&json!({"retention": "last=1"})) && !lets_go(&json!({"group": "g"})));
        assert!(lets_go(&json!({"every_seconds": 1.0})));
        let Some(LetsGo(lets_go)) = kind(Method::POST, "/pools") else { panic!() };
        assert!(lets_go(&json!({"overwrite": true})) && !lets_go(&json!({"overwrite": false})));
        assert!(matches!(kind(Method::DELETE, "/volumes/{pool}/{volume}"), Some(Takes)));
        assert!(kind(Method::POST, "/mirrors/{pool}/{volume}/break").is_none());
        assert!(kind(Method::GET, "/volumes/{pool}/{volume}").is_none());
    }
}
