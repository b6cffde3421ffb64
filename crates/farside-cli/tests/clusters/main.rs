//! Mirrors of volumes on Ceph RBD, on a real cluster: `scripts/ceph-cluster start DIR`, and its `FARSIDE_TEST_CEPH_CONF`. Without one
//! they say that they are skipped; `make test-full` starts one.

#![allow(clippy::unwrap_used, reason = "a test ends where it is wrong")]

mod capacity;
mod cluster;
mod daemons;
mod databases;
mod faults;
mod keeper;
mod matrix;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod thin;
mod timetables;
