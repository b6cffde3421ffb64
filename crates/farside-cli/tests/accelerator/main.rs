//! The accelerator between real programs, and a path whose packets become smaller.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod connections;
mod packet_size;
#[allow(dead_code, reason = "others use the rest")]
#[path = "../accel_faults/space.rs"]
mod space;
#[path = "../support/mod.rs"]
mod support;
