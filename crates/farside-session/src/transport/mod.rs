//! The seam to the network: who can be dialled, who dials us.
//!
//! A [`Transport`] moves bytes and nothing else; TLS, hello and sessions are above it and the same over every
//! implementation. Addresses are `HOST:PORT`; what a host is, the transport knows.
//!
//! * [`TcpTransport`]: the kernel's.
//! * [`SimulatedNetwork`]: hosts in one process, on tokio's clock, with latency and faults.

mod counted;
mod figures;
mod host;
mod simulated;
mod tcp;
mod tcp_info;
mod terms;

use std::io;
use std::sync::Arc;

use async_trait::async_trait;

pub(crate) use counted::{Counted, SocketLimits};
pub use figures::{LinkFigures, NoFigures, SocketFigures};
pub use host::HostTcp;
pub use simulated::{LinkSettings, SimulatedHost, SimulatedNetwork};
pub use tcp::TcpTransport;
pub use terms::{Congestion, SocketTerms};

use crate::link::ByteStream;

/// A connection as it was made.
pub struct Connection {
    /// The bytes.
    pub io: Box<dyn ByteStream>,
    /// How it goes.
    pub figures: Arc<dyn SocketFigures>,
    /// This end's address.
    pub local: String,
    /// The other end's address.
    pub remote: String,
}

#[cfg(test)]
impl Connection {
    /// Bytes that no network carries.
    pub(crate) fn unknown(io: Box<dyn ByteStream>) -> Connection {
        Connection { io, figures: Arc::new(NoFigures), local: String::new(), remote: String::new() }
    }
}

/// Dials and listens.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Connects to `address`. May take as long as the kernel likes: the caller sets the time. Of `terms` only
    /// the local address is a condition.
    async fn dial(&self, address: &str, terms: &SocketTerms) -> io::Result<Connection>;
    /// Listens at `address`; port 0 takes a free one. What is accepted begins with `terms`; whose connection it is, is
    /// known later ([`SocketFigures::apply`]).
    async fn listen(&self, address: &str, terms: &SocketTerms) -> io::Result<Box<dyn Listener>>;
}

/// Where others dial in.
#[async_trait]
pub trait Listener: Send {
    /// Where it listens, with the real port.
    fn address(&self) -> String;
    /// The next connection.
    async fn accept(&mut self) -> io::Result<Connection>;
}

/// `HOST:PORT` split; the host without brackets.
pub(crate) fn split_address(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() { None } else { Some((host, port.parse().ok()?)) }
}

/// The host of `address` with another port.
pub(crate) fn with_port(address: &str, port: u16) -> Option<String> {
    let (host, _) = split_address(address)?;
    Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_split_and_join() {
        assert_eq!(split_address("site-a:7440"), Some(("site-a", 7440)));
        assert_eq!(split_address("[::1]:7440"), Some(("::1", 7440)));
        assert_eq!(split_address("site-a"), None);
        assert_eq!(split_address(":7440"), None);
        assert_eq!(split_address("a:70000"), None);
        assert_eq!(with_port("[::1]:50123", 7440).as_deref(), Some("[::1]:7440"));
        assert_eq!(with_port("10.0.0.1:50123", 7440).as_deref(), Some("10.0.0.1:7440"));
    }
}
