//! Mirrors for every day, tried as they are used: a database under load, drills, a chain of sites that fails, hundreds of mirrors on
//! one line, a day's load. What each test prints are the figures of the manual; they take minutes, and some need root.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod cascades;
mod drills;
mod encryptors;
mod figures;
mod forecasts;
mod many;
mod pauses;
mod requests;
#[path = "../support/mod.rs"]
mod support;
mod transfer_sizes;
