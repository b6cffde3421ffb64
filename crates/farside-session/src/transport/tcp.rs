//! TCP by the kernel.
//!
//! Nagle is off: frames are written whole. Buffers are left to the kernel's autotuning, which is bounded by
//! `tcp_rmem` and `tcp_wmem`. Keepalive finds a dead path on a quiet connection. TCP_USER_TIMEOUT is *not* set:
//! Linux counts the time a reader keeps its window closed against it, though the reader's host answers every probe
//! (measured on Linux 6.18: set to 3 s, a healthy connection with a reader that pauses died after 3.5 s). It would kill
//! a data stream whose far disk stalls. A black hole is found by the pings of the control connection, and the loss of a
//! session closes its data streams.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use async_trait::async_trait;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};

use super::{Listener, Transport};
use crate::limits::DIAL_TIMEOUT;
use crate::link::ByteStream;

const KEEPALIVE_AFTER: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;

/// Real connections.
#[derive(Debug, Default)]
pub struct TcpTransport;

fn prepare(socket: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(socket);
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)
}

#[async_trait]
impl Transport for TcpTransport {
    async fn dial(&self, address: &str) -> io::Result<Box<dyn ByteStream>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        // A name may have several addresses, and one of them may swallow packets: each gets its own time.
        for candidate in tokio::net::lookup_host(address).await? {
            match tokio::time::timeout(DIAL_TIMEOUT / 2, TcpStream::connect(candidate)).await {
                Ok(Ok(socket)) => {
                    prepare(&socket)?;
                    return Ok(Box::new(socket));
                }
                Ok(Err(e)) => last = e,
                Err(_) => {
                    last = io::Error::new(io::ErrorKind::TimedOut, format!("{candidate} does not answer"))
                }
            }
        }
        Err(last)
    }

    async fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        Ok(Box::new(TcpDoor { socket, address }))
    }
}

struct TcpDoor {
    socket: TcpListener,
    address: SocketAddr,
}

#[async_trait]
impl Listener for TcpDoor {
    fn address(&self) -> String {
        self.address.to_string()
    }

    async fn accept(&mut self) -> io::Result<(Box<dyn ByteStream>, String)> {
        let (socket, from) = self.socket.accept().await?;
        prepare(&socket)?;
        Ok((Box::new(socket), from.to_string()))
    }
}
