//! A trunk: two data streams of a session that carry the flows which one of the two boxes opens.
//!
//! The box that has the clients opens it (`open.rs`); the other serves it (`serve.rs`). Both then do the
//! same: a task per stream cuts what arrives into frames and hands them to flows, a task per stream writes what is queued.

mod background;
mod effort;
mod fuzz;
mod header;
mod holdings;
mod io;
mod open;
mod serve;
mod state;

pub(crate) use effort::{Cores, Encoded, History};
pub use fuzz::{fuzz_header, fuzz_trunk};
pub use header::Stream;
pub(crate) use open::{Outcome, TrunkEvents, keep_trunk};
pub(crate) use serve::{Connected, Serving, TrunkService, may_connect};
pub use state::Trunk;
pub(crate) use state::TrunkParts;
