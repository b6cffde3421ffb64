//! Addresses to listen on, and how many may be connected.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::DaemonError;

/// Who may open the daemon's Unix sockets: its user and group.
pub(crate) const SOCKET_MODE: u32 = 0o660;

/// Binds a TCP address.
pub(crate) async fn tcp(
    what: &'static str,
    option: &'static str,
    address: &str,
) -> Result<TcpListener, DaemonError> {
    TcpListener::bind(address).await.map_err(|source| DaemonError::Listen {
        what,
        option,
        address: address.to_owned(),
        source,
    })
}

/// Connections of one HTTP listener. One more waits in the kernel's queue until another ends.
const CONNECTIONS_MAX: usize = 128;

/// A listener that accepts no more than [`CONNECTIONS_MAX`] at a time.
#[derive(Debug)]
pub(crate) struct Limited<L> {
    listener: L,
    places: Arc<Semaphore>,
}

impl<L> Limited<L> {
    pub(crate) fn new(listener: L) -> Self {
        Limited { listener, places: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

impl<L: Listener> Listener for Limited<L> {
    type Io = Placed<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        // The semaphore is never closed; if it were there would be no limit, but service.
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (io, address) = self.listener.accept().await;
        (Placed { io, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that gives its place back when it ends.
#[derive(Debug)]
pub(crate) struct Placed<T> {
    io: T,
    _place: Option<OwnedSemaphorePermit>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Placed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Placed<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
