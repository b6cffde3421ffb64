//! Ceph's libraries as plain Rust: all that is unsafe of this engine is in this folder.
//!
//! Everything here blocks, and every call has an end: librados gives up an operation after its time-out
//! ([`Connection::open`](cluster::Connection::open)). What failed is a [`Failed`]; `errors.rs` beside this folder says what it means.

mod cluster;
mod failed;
mod image;
mod library;
mod transfers;

pub(crate) use cluster::{CANCELED, Connection, Pool};
pub(crate) use failed::Failed;
pub(crate) use image::{DiffExtent, Image};
pub(crate) use transfers::Writes;
