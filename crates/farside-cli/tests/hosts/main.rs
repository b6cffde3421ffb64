//! Hosts on volumes: clients of NBD, file systems and databases on them, while the daemon dies or a replica takes over.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod applications;
mod clients;
mod file_systems;
mod readers;
#[path = "../support/mod.rs"]
mod support;
