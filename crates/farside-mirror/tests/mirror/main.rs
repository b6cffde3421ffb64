//! Two sites in one process: real sessions over a simulated network, on tokio's paused clock, against a plain model
//! of the data. Every test that draws at random prints its seed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod budgets;
mod cross_volume;
mod directions;
mod driver;
mod embedded;
mod faults;
mod followed_since;
mod full_database;
mod groups;
mod in_common;
mod kept_for_good;
mod known;
mod log_floods;
mod notices;
mod orders;
mod overtaken;
mod resume;
mod retention;
mod rings;
mod room;
mod similar;
mod stale_breaks;
#[path = "../support/mod.rs"]
mod support;
mod swap;
mod tail_takes_over;
mod three_lives;
mod three_sites;
mod transfers;
mod turns;
mod versions;
mod without;

use support::{embedded_storage, memory_engine, site};
