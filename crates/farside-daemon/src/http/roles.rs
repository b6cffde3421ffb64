//! Which role each route needs. What is not in this table, nobody may do who comes over the network.
//!
//! *Viewer* reads. *Operator* runs mirrors, volumes and snapshots. What takes data or a right away for good, what lets
//! somebody in, and what names files or addresses of the machine is for an *administrator*. The control socket is the
//! administrator's: its file mode says who may open it.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::Method;
use farside_api::{API_PREFIX, AccessRole};

use super::console;

/// Who may use a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needs {
    /// Anybody: it tells nothing about this site.
    Nobody,
    /// Somebody of this role, or of a higher one.
    Role(AccessRole),
}

const ANYBODY: Needs = Needs::Nobody;
const VIEWER: Needs = Needs::Role(AccessRole::Viewer);
const OPERATOR: Needs = Needs::Role(AccessRole::Operator);
const ADMINISTRATOR: Needs = Needs::Role(AccessRole::Administrator);

/// The table, by noun.
#[rustfmt::skip]
const TABLE: &[(&str, &str, Needs)] = &[
    ("GET", "/openapi.json", ANYBODY),
    ("GET", "/docs", ANYBODY),

    ("GET", "/site", VIEWER),
    ("GET", "/site/status", VIEWER),
    ("POST", "/site/set", ADMINISTRATOR),
    ("POST", "/site/move-state", ADMINISTRATOR),
    ("GET", "/site/invitations", ADMINISTRATOR),
    ("POST", "/site/invitations", ADMINISTRATOR),
    ("DELETE", "/site/invitations/{id}", ADMINISTRATOR),
    ("POST", "/site/join", ADMINISTRATOR),
    ("GET", "/site/daemons", VIEWER),
    ("DELETE", "/site/daemons/{daemon}", ADMINISTRATOR),
    ("POST", "/site/daemons/{daemon}/drain", ADMINISTRATOR),
    ("POST", "/site/daemons/{daemon}/undrain", ADMINISTRATOR),
    // The daemon's log and configuration, though without secrets.
    ("GET", "/support", OPERATOR),
    ("GET", "/events", VIEWER),
    ("GET", "/log", VIEWER),
    ("GET", "/operations", VIEWER),
    ("GET", "/operations/{id}", VIEWER),

    ("GET", "/sites", VIEWER),
    ("GET", "/audit", OPERATOR),
    ("GET", "/delayed", VIEWER),
    ("DELETE", "/delayed/{id}", ADMINISTRATOR),
    ("GET", "/tokens", ADMINISTRATOR),
    ("POST", "/tokens", ADMINISTRATOR),
    ("DELETE", "/tokens/{token}", ADMINISTRATOR),
    ("GET", "/accounts", ADMINISTRATOR),
    ("POST", "/accounts", ADMINISTRATOR),
    ("POST", "/accounts/{account}/set", ADMINISTRATOR),
    ("DELETE", "/accounts/{account}", ADMINISTRATOR),
    ("GET", "/session", VIEWER),
    ("POST", "/session", ANYBODY),
    ("DELETE", "/session", VIEWER),

    ("GET", "/alarms", VIEWER),
    ("POST", "/alarms/test", OPERATOR),
    ("POST", "/alarms/{id}/ack", OPERATOR),

    ("GET", "/pools", VIEWER),
    ("POST", "/pools", ADMINISTRATOR),
    ("POST", "/imports", ADMINISTRATOR),
    ("GET", "/pools/{pool}", VIEWER),
    ("DELETE", "/pools/{pool}", ADMINISTRATOR),
    ("POST", "/pools/{pool}/reopen", ADMINISTRATOR),
    ("POST", "/pools/{pool}/grow", ADMINISTRATOR),
    ("DELETE", "/pools/{pool}/staged", OPERATOR),
    ("DELETE", "/pools/{pool}/staged/{volume}", OPERATOR),
    ("GET", "/scrubs", VIEWER),
    ("GET", "/pools/{pool}/scrub", VIEWER),
    ("POST", "/pools/{pool}/scrub", OPERATOR),
    ("DELETE", "/pools/{pool}/scrub", OPERATOR),

    ("GET", "/volumes", VIEWER),
    ("POST", "/volumes", OPERATOR),
    ("GET", "/volumes/{pool}/{volume}", VIEWER),
    ("DELETE", "/volumes/{pool}/{volume}", ADMINISTRATOR),
    // Smaller, too: what lies behind the new end is gone.
    ("POST", "/volumes/{pool}/{volume}/resize", ADMINISTRATOR),
    ("POST", "/volumes/{pool}/{volume}/rename", OPERATOR),
    ("POST", "/volumes/{pool}/{volume}/limits", OPERATOR),
    ("GET", "/dedups", VIEWER),
    ("GET", "/volumes/{pool}/{volume}/dedup", VIEWER),
    ("POST", "/volumes/{pool}/{volume}/dedup", OPERATOR),
    ("DELETE", "/volumes/{pool}/{volume}/dedup", OPERATOR),
    ("POST", "/volumes/{pool}/{volume}/dedup/undo", OPERATOR),

    ("GET", "/snapshots", VIEWER),
    ("POST", "/snapshots", OPERATOR),
    ("GET", "/volumes/{pool}/{volume}/snapshots", VIEWER),
    ("GET", "/volumes/{pool}/{volume}/difference", VIEWER),
    ("DELETE", "/volumes/{pool}/{volume}/snapshots/{snapshot}", ADMINISTRATOR),
    ("POST", "/volumes/{pool}/{volume}/snapshots/{snapshot}/rename", OPERATOR),
    // Not to hold it any longer is half of deleting it.
    ("POST", "/volumes/{pool}/{volume}/snapshots/{snapshot}/hold", ADMINISTRATOR),
    ("POST", "/volumes/{pool}/{volume}/snapshots/{snapshot}/rollback", ADMINISTRATOR),
    ("POST", "/volumes/{pool}/{volume}/snapshots/{snapshot}/clone", OPERATOR),
    ("GET", "/snapshot-schedules", VIEWER),
    ("GET", "/volumes/{pool}/{volume}/snapshot-schedule", VIEWER),
    // A timetable deletes by its own rule.
    ("POST", "/volumes/{pool}/{volume}/snapshot-schedule", ADMINISTRATOR),
    ("DELETE", "/volumes/{pool}/{volume}/snapshot-schedule", ADMINISTRATOR),

    ("GET", "/mirrors", VIEWER),
    ("POST", "/mirrors", OPERATOR),
    ("DELETE", "/mirrors/{pool}/{volume}", ADMINISTRATOR),
    // Retention is among it.
    ("POST", "/mirrors/{pool}/{volume}/set", ADMINISTRATOR),
    ("POST", "/mirrors/{pool}/{volume}/initialize", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/update", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/quiesce", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/resume", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/abort", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/break", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/resync", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/swap", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/drill", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/drilled", OPERATOR),
    ("POST", "/mirrors/{pool}/{volume}/release/{peer}", ADMINISTRATOR),
    ("POST", "/drills/{pool}/{volume}/renew", OPERATOR),
    ("POST", "/drills/{pool}/{volume}/end", OPERATOR),
    ("GET", "/destinations", VIEWER),
    ("GET", "/history", VIEWER),

    ("GET", "/peers", VIEWER),
    ("POST", "/peers", ADMINISTRATOR),
    ("GET", "/invitations", ADMINISTRATOR),
    ("POST", "/invitations", ADMINISTRATOR),
    ("DELETE", "/invitations/{id}", ADMINISTRATOR),
    ("GET", "/peers/{peer}", VIEWER),
    ("DELETE", "/peers/{peer}", ADMINISTRATOR),
    ("POST", "/peers/{peer}/rekey", ADMINISTRATOR),
    ("POST", "/peers/{peer}/set", ADMINISTRATOR),
    ("POST", "/peers/{peer}/allow", ADMINISTRATOR),
    ("POST", "/peers/{peer}/deny", ADMINISTRATOR),

    ("GET", "/hosts", VIEWER),
    ("POST", "/hosts", ADMINISTRATOR),
    ("GET", "/hosts/{host}", VIEWER),
    ("DELETE", "/hosts/{host}", ADMINISTRATOR),
    ("POST", "/hosts/{host}/allow", ADMINISTRATOR),
    ("POST", "/hosts/{host}/deny", ADMINISTRATOR),

    ("GET", "/accelerator", VIEWER),
    ("POST", "/accelerator/up", ADMINISTRATOR),
    ("POST", "/accelerator/down", ADMINISTRATOR),
    ("POST", "/accelerator/plan", ADMINISTRATOR),
    ("GET", "/accelerator/connections", VIEWER),
    ("POST", "/accelerator/connections/reset", OPERATOR),
    ("GET", "/accelerator/cache", VIEWER),
    ("POST", "/accelerator/cache/clear", OPERATOR),
    ("GET", "/accelerator/prepositions", VIEWER),
    ("POST", "/accelerator/prepositions", OPERATOR),
    ("POST", "/accelerator/prepositions/volume", OPERATOR),
    ("DELETE", "/accelerator/prepositions/{job}", OPERATOR),
    ("GET", "/accelerator/policies", VIEWER),
    ("POST", "/accelerator/policies", ADMINISTRATOR),
    ("POST", "/accelerator/reload", ADMINISTRATOR),
    ("DELETE", "/accelerator/policies/{application}", ADMINISTRATOR),
    ("GET", "/accelerator/forwards", VIEWER),
    ("POST", "/accelerator/forwards", ADMINISTRATOR),
    ("DELETE", "/accelerator/forwards/{listen}", ADMINISTRATOR),
];

/// How other sites are. No peer hears that from this one.
pub(super) const SITES: &str = "/api/v1/sites";
/// What is asked of a peer. The peer decides what it answers to whom: this site says who asks and what they may do here, and
/// the peer has its own table.
pub(super) const THROUGH: &str = "/api/v1/sites/{peer}/{*path}";

/// What is beside the API.
const BESIDE: &[(&str, &str, Needs)] =
    &[("GET", "/metrics", VIEWER), ("GET", "/healthz", VIEWER), ("GET", "/readyz", VIEWER)];

/// What a route needs, named as the router names it; none: it is not in the table.
pub(super) fn needed(method: &Method, route: &str) -> Option<Needs> {
    // Its pages and their files are the same at every site.
    if console::has(method, route) {
        return Some(ANYBODY);
    }
    static BY_ROUTE: LazyLock<HashMap<(&str, String), Needs>> = LazyLock::new(|| {
        let api =
            TABLE.iter().map(|(method, path, needs)| ((*method, format!("{API_PREFIX}{path}")), *needs));
        api.chain(BESIDE.iter().map(|(method, path, needs)| ((*method, (*path).to_owned()), *needs)))
            .collect()
    });
    if route == THROUGH {
        // A viewer changes nothing there either, and fills no audit log with being told so.
        let reads = *method == Method::GET || *method == Method::HEAD;
        return Some(if reads { VIEWER } else { OPERATOR });
    }
    // The router answers HEAD by what GET answers.
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    BY_ROUTE.get(&(method, route.to_owned())).copied()
}

/// The methods that a route has, as the header `Allow` names them; none: it is not in the table.
pub(super) fn methods(route: &str) -> Option<String> {
    const ALL: [Method; 4] = [Method::GET, Method::HEAD, Method::POST, Method::DELETE];
    let methods: Vec<Method> = ALL.into_iter().filter(|method| needed(method, route).is_some()).collect();
    let names: Vec<&str> = methods.iter().map(Method::as_str).collect();
    (!names.is_empty()).then(|| names.join(","))
}

/// Every row: method, path, role.
#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = (&'static str, String, Needs)> {
    let api = TABLE.iter().map(|(method, path, needs)| (*method, format!("{API_PREFIX}{path}"), *needs));
    api.chain(BESIDE.iter().map(|(method, path, needs)| (*method, (*path).to_owned(), *needs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_told_with_the_methods_that_it_has() {
        assert_eq!(methods("/api/v1/pools").as_deref(), Some("GET,HEAD,POST"));
        assert_eq!(methods("/api/v1/pools/{pool}").as_deref(), Some("GET,HEAD,DELETE"));
        assert_eq!(methods("/metrics").as_deref(), Some("GET,HEAD"));
        assert_eq!(methods("/api/v1/no/such"), None);
    }
}
