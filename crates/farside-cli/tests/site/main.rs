//! A site as who runs it meets it: command line, API, accounts, keys, alarms, its state in SQLite and PostgreSQL, several daemons.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod alarms;
mod api;
mod api_versions;
mod command_line;
mod daemons;
mod databases;
mod doors;
mod first_steps;
mod keys;
mod prometheus;
mod rights;
mod sites;
#[path = "../support/mod.rs"]
mod support;
mod upkeep;
