//! A connection, and who makes it: the kernel or a simulation.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;

use super::options::SocketOptions;
use super::stats::{NoStats, SocketStats};
use crate::wire::ByteStream;

/// A connection as it was made.
pub struct Connection {
    /// The bytes.
    pub io: Box<dyn ByteStream>,
    /// How it goes.
    pub stats: Arc<dyn SocketStats>,
    /// This end's address.
    pub local: String,
    /// The other end's address.
    pub remote: String,
}

impl Connection {
    /// Bytes that no network carries, and of which nothing is known.
    pub fn unknown(io: Box<dyn ByteStream>) -> Connection {
        Connection { io, stats: Arc::new(NoStats), local: String::new(), remote: String::new() }
    }
}

/// Dials and listens.
#[async_trait]
pub trait Transport: Send + Sync + 'static {
    /// Connects to `address`. May take as long as the kernel likes: the caller sets the time. Of `options` only
    /// the local address is a condition.
    async fn dial(&self, address: &str, options: &SocketOptions) -> io::Result<Connection>;
    /// Listens at `address`; port 0 takes a free one. What is accepted begins with `options`; whose connection it is, is
    /// known later ([`SocketStats::apply`]).
    async fn listen(&self, address: &str, options: &SocketOptions) -> io::Result<Box<dyn Listener>>;
}

/// Where others dial in.
#[async_trait]
pub trait Listener: Send {
    /// Where it listens, with the real port.
    fn address(&self) -> String;
    /// The next connection.
    async fn accept(&mut self) -> io::Result<Connection>;
}
