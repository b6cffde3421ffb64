//! Pools and their volumes: room, damage, deduplication, clones, devices that hang or go away.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod clones;
mod dedups;
mod devices;
mod full_data_directory;
mod lost_files;
mod one_pool;
mod quarantine;
mod quotas;
mod room;
mod scrubs;
mod slow_pools;
#[path = "../support/mod.rs"]
mod support;
mod unfinished;
