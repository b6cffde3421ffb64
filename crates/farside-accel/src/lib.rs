//! The transparent accelerator for TCP applications: a pair of boxes in the path between two sites.
//!
//! ```text
//! client ── LAN ─► box ═══ sessions of farside-peer, few and full ═══► box ── LAN ─► server
//!             SYN held: kernel/queue        trunk/, flow/            connects as the client
//! ```
//!
//! * [`policy`], pure: what is done for which connection. [`discovery`], pure: which peer's box is on the way to a server.
//! * [`protocol`], pure: what two boxes say to each other. [`packet`], pure: what is queued. [`rules`], pure: what is installed.
//! * [`kernel`]: nftables, the queue, transparent sockets, interfaces.
//! * [`trunk`]: the streams between two boxes. [`flow`]: one connection on a trunk; `carry`: its two tasks. [`connections`]: all of
//!   them, for people; [`figures`]: how long things take.
//! * [`store`]: the chunk store, and what each peer is known to hold of it.
//! * [`accelerator`]: how these work together. [`process`]: the process that `farsided` starts; [`control`]: what they say, [`requests`]: how.

pub mod accelerator;
mod carry;
pub mod connections;
pub mod control;
pub mod discovery;
pub mod figures;
pub mod flow;
pub mod kernel;
pub mod packet;
pub mod policy;
pub mod process;
pub mod protocol;
pub mod requests;
pub mod rules;
pub mod store;
pub mod trunk;
