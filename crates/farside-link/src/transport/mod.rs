//! The seam to the network: who can be dialled, who dials us.
//!
//! A [`Transport`] moves bytes and nothing else; TLS, hello and sessions are above it and the same over every
//! implementation. Addresses are `HOST:PORT`; what a host is, the transport knows.
//!
//! * [`TcpTransport`]: the kernel's.
//! * [`SimulatedNetwork`]: hosts in one process, on tokio's clock, with latency and faults.

mod address;
mod connection;
mod counted;
mod host;
mod options;
mod race;
mod simulated;
mod stats;
mod tcp;
mod tcp_info;

pub use address::{split_address, with_port};
pub use connection::{Connection, Listener, Transport};
pub use counted::Counted;
pub use host::HostTcp;
pub use options::{Congestion, SocketOptions};
pub use simulated::{LinkSettings, SimulatedHost, SimulatedNetwork};
pub use stats::{LinkStats, NoStats, SocketStats};
pub use tcp::TcpTransport;
