//! Authenticated sessions between sites: identity, pairing, TLS 1.3 with pinned keys, calls and data streams.
//!
//! The rooms above see [`link`]: a [`PeerLink`] to call through and the [`PeerService`] they offer. The daemon starts a
//! [`Node`], which keeps one session with each pinned peer.
//!
//! ```text
//! Node ── listens, dials ─► Transport (TCP or simulated) ─► TLS, key compared ─► hello ─► Session ─► PeerLink
//!   └── PeerBook: who is pinned        pairing: how a key comes to be pinned
//! ```

pub mod book;
mod bundle;
mod control;
mod dial;
pub mod error;
pub mod hello;
pub mod identity;
mod lanes;
pub mod limits;
pub mod link;
pub mod node;
mod pacing;
pub mod pairing;
mod pauses;
mod session;
mod settle;
mod stream;
mod terms;
pub mod throttle;
mod tls;
pub mod transport;
mod yielding;

pub use book::{MemoryPeerBook, PeerBook, PeerRecord};
pub use bundle::{BlockedShares, BundleFigures, LaneFigures, fuzz_segments};
pub use control::fuzz_control;
pub use error::SessionError;
pub use hello::fuzz_hello;
pub use identity::Identity;
pub use link::{
    ByteStream, CALL_BYTES_MAX, DataStream, HEADER_BYTES_MAX, PeerId, PeerLink, PeerService, Refusal,
    WireCounters,
};
pub use node::{Node, NodeConfig, NodeParts, PeerState, PeerStatus};
pub use pairing::{CodeError, Invite, PairingCode, fuzz_pairing};
pub use session::{PathFigures, SessionFigures};
pub use terms::{LinkTerms, PathTerms, PathsMode, Priority, StreamTerms, Window};
pub use throttle::{Bucket, Direction, Granted, Limits, Rate, RateError, Rules, StreamLimits, Throttles};
pub use transport::{
    Congestion, Connection, HostTcp, LinkFigures, LinkSettings, Listener, NoFigures, SimulatedHost,
    SimulatedNetwork, SocketFigures, SocketTerms, TcpTransport, Transport,
};

#[cfg(test)]
mod tests;
