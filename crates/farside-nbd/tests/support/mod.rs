//! What tests with NBD clients need: an export in memory, a server on a socket of its own, clients found on this
//! machine, and a client of bare bytes.
//!
//! Other crates' tests include it by `#[path = "../../farside-nbd/tests/support/mod.rs"] mod support;`.
// Each test file uses its part, and a failure here is a failed test.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod gate;
pub mod memory;
pub mod network;
pub mod raw;
pub mod serve;
pub mod tools;
