//! How bytes get over one or several connections. Knows who is at the other end as little as what the bytes mean: identity, TLS,
//! sessions and messages are above it (`farside-peer`).
//!
//! ```text
//! Transport ─► Connection ─► Counted ─► (TLS, by the caller) ─► lane of a Bundle ─► BundleStream: ordered bytes each way
//!  TCP or simulated           counts                             striped over lanes on several Paths
//! ```
//!
//! * [`transport`]: who can be dialled, and what a connection knows of its link.
//! * [`bundle`]: one ordered stream over several connections, its lanes.
//! * [`lanes`], pure: how many lanes pay. [`pacing`]: how fast those of a path may send together. [`low_priority`], pure: how a stream
//!   gives way to other traffic. [`paths`], pure: which paths carry data. [`packets`], pure:
//!   whether full packets pass. [`idle_lanes`], pure: lanes kept for the next stream.
//! * [`throttle`], pure: how many bytes may go now.
//! * [`options`]: what is asked of a link and of a stream.

mod backoff;
mod bundle;
mod idle_lanes;
mod lanes;
pub mod limits;
mod low_priority;
mod options;
mod pacing;
mod packets;
mod paths;
mod text;
pub mod throttle;
pub mod transport;
mod wire;

pub use backoff::Backoff;
pub use bundle::{
    Attach, BlockedShares, Bundle, BundleOptions, BundleStats, BundleStream, IdleLane, LaneId, LaneOptions,
    LaneStats, LanesWanted, LostLane, WindowBudget, encode_abort, fuzz_segments,
};
pub use idle_lanes::IdleLanes;
pub use lanes::{LaneWatch, lanes_of_bulk, min_rtt};
pub use options::{LinkOptions, PathSpec, PathsMode, Priority, Reach, StreamOptions, Window};
pub use pacing::PacedLanes;
pub use packets::{LaneWithData, PacketWatch, smaller_segment};
pub use paths::Paths;
pub use text::printable;
pub use throttle::{Bucket, Direction, Granted, Limits, Rate, RateError, Rules, StreamLimits, Throttles};
pub use transport::{
    Congestion, Connection, Counted, HostTcp, LinkSettings, LinkStats, Listener, NoStats, SimulatedHost,
    SimulatedNetwork, SocketOptions, SocketStats, TcpTransport, Transport, split_address, with_port,
};
pub use wire::{ByteStream, WireCounters, wire_cost};
