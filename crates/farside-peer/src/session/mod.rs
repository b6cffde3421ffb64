//! One live session: a control stream, and data streams that live and die with it. Each is a bundle of lanes; lanes are always made by
//! the side that dialled the session.
//!
//! ```text
//! start ─► control_stream ─► calls, streams ─► bundles ─► supervisor ─► lanes ─► state ─► lane_table ─► entry
//! ```
//!
//! [`state`] is what all tasks share; the files above it hold the tasks, functions over it.

mod bundles;
mod calls;
mod clocks;
mod context;
mod control_stream;
mod elsewhere;
mod entry;
mod holds;
mod lane_table;
mod lanes;
mod packet_limits;
mod packets;
mod preopened;
mod questions;
mod start;
mod state;
mod status;
mod streams;
mod supervisor;

pub(crate) use clocks::{Measured, apart};
pub(crate) use context::{SessionContext, SessionInfo};
pub(crate) use packet_limits::PacketLimits;
pub(crate) use state::Session;
pub use status::{PathStats, SessionStats};
pub(crate) use streams::accept_lane;
