//! What becomes of connections when something of the accelerator fails: two sites as they are run, with a WAN between them that can be
//! spoilt. Each test is a cell of the table in the guide, and prints its line of it (`make accel-faults` shows all):
//!
//! ```text
//! accel-fault cell="kill -9 of the near box" resets=2 flow=0.02 slowest=1.03 again=0.61
//! ```
//!
//! In all cells every byte that arrives is compared with what was sent, a connection that is cut is cut by a reset and by no end,
//! and nothing hangs. Needs root, `ip` and `nft`; without them the tests say that they are skipped, and `FARSIDE_REQUIRE_LAB=1` makes
//! that a failure.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod bed;
mod clocks;
mod hosts;
mod kills;
mod load;
mod many;
mod network;
mod space;
mod stores;
#[path = "../support/mod.rs"]
mod support;
mod traffic;
mod watch;
