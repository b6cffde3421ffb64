//! Bundles: one reliable, ordered byte stream each way over up to [`LANES_MAX`](crate::limits::LANES_MAX) connections, the lanes.
//!
//! ```text
//!                  ┌─ lane ── TLS ── path 0 ─┐
//! application ─► Sender ─ lane ── TLS ── path 0 ─► Receiver ─► application       (and the same the other way)
//!                  └─ lane ── TLS ── path 1 ─┘
//! ```
//!
//! * [`sender`] and [`receiver`] decide and know neither sockets nor clocks; [`lane`] reads and writes one connection;
//!   [`supervisor`] watches the time; [`segment`] is what travels; [`stream`] is what the application holds.
//! * **Lanes take.** A lane asks for the next segment when its connection has taken the one before, so that load spreads by
//!   what each carries, whatever path it is on.
//! * **Lanes come** with [`Bundle::add_lane`], at any time: connections fresh from their handshake, or idle ones
//!   on which an [`Attach`] was the last segment. Both sides add the same connection.
//! * **Lanes go** when their connection ends, and are set aside when they make no progress; what they had goes over the others
//!   and is counted. A lane that moves again is used again. The side that dials learns of it by [`Bundle::lanes_wanted`].
//!   With no lane the bundle waits [`LANELESS_MAX`](crate::limits::LANELESS_MAX) for one.
//! * **The end.** When both sides have shut down and everything has arrived, the lanes are idle again and
//!   [`Bundle::ended`] gives them back. A stream dropped before that aborts the bundle: the other side reads an error,
//!   never an end of file. So does [`Bundle::close`].
//! * **Memory** is bounded by what was granted: the window of the receiving side, and at the sender what is not yet
//!   acknowledged; see [`WindowBudget`].
//! * **Limits**: lanes ask this side's throttle before they take, and credit is granted only as fast as it allows, so that
//!   each side's limits hold whatever the other does. A low priority bounds what is in flight.

mod budget;
mod handle;
mod lane;
mod open;
mod options;
mod pace;
mod receiver;
mod segment;
mod sender;
mod state;
mod stream;
mod supervisor;
#[cfg(test)]
mod tests;

pub use budget::WindowBudget;
pub use options::{
    BlockedShares, BundleOptions, BundleStats, IdleLane, LaneId, LaneOptions, LaneStats, LanesWanted,
    LostLane,
};
pub use segment::{Attach, encode_abort, fuzz_segments};
pub use state::Bundle;
pub use stream::BundleStream;
