//! Who is at the other end: identity, pairing, TLS 1.3 with pinned keys, sessions with calls and data streams. How their bytes get
//! there is `farside-link`'s.
//!
//! The rooms above see [`service`]: a [`PeerLink`] to call through and the [`PeerService`] they offer. The daemon starts a
//! [`Node`], which keeps one session with each pinned peer.
//!
//! ```text
//! Node ── listens, dials ─► Transport (TCP or simulated) ─► TLS, key compared ─► hello ─► Session ─► PeerLink
//!   └── PeerRegistry: who is pinned        pairing: how a key comes to be pinned
//! ```

mod collision;
mod control;
mod dial;
mod error;
pub mod hello;
mod id;
mod identity;
mod instances;
pub mod limits;
mod node;
mod pairing;
mod registry;
mod service;
mod session;
mod tls;

pub use control::fuzz_control;
pub use error::{Refusal, SessionError};
pub use hello::{Service, fuzz_hello};
pub use id::PeerId;
pub use identity::{IDENTITY_FILE, Identity};
pub use limits::{CALL_BYTES_MAX, HEADER_BYTES_MAX};
pub use node::{Node, NodeConfig, NodeParts, PeerState, PeerStatus};
pub use pairing::{CodeError, Invite, OpenInvite, PairingCode, fuzz_pairing};
pub use registry::{MemoryPeerRegistry, PeerRecord, PeerRegistry};
pub use service::{DataStream, PeerLink, PeerService};
pub use session::{PathStats, SessionStats};

/// The limits of a site and of its peers.
pub type Throttles = farside_link::Throttles<PeerId>;

#[cfg(test)]
mod tests;
