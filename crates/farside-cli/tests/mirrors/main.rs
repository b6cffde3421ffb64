//! Mirrors between sites of real daemons: their verbs, breaks and ways back, cut links and killed ends, chains and groups.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod adversity;
mod directions;
mod group_sides;
mod groups;
mod kills;
mod outages;
mod overtaken;
mod paths;
mod points;
mod resyncs;
mod role_changes;
mod set_back;
mod split_groups;
#[path = "../support/mod.rs"]
mod support;
mod three_sites;
mod throttles;
mod two_sites;
mod verbs;
mod versions;
