//! TLS over TCP, for the API. The handshake is a part of a connection's first read: it holds up nobody else, and has to be
//! over with the header of the first request, in the time that is granted for that ([`super::Manners`]).

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::serve::Listener;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use super::origin::{FromSomewhere, Origin};

/// Accepts connections that begin with a handshake.
pub(crate) struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl TlsListener {
    pub(crate) fn new(listener: TcpListener, configuration: Arc<ServerConfig>) -> TlsListener {
        TlsListener { listener, acceptor: TlsAcceptor::from(configuration) }
    }
}

impl Listener for TlsListener {
    type Io = Tls;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Tls, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Answers are small and written whole: waiting for more to send with them costs, and saves nothing.
        let _ = stream.set_nodelay(true);
        (Tls { from: address, state: State::Shaking(Box::new(self.acceptor.accept(stream))) }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, before and after its handshake.
pub(crate) struct Tls {
    from: SocketAddr,
    state: State,
}

enum State {
    Shaking(Box<Accept<TcpStream>>),
    Open(Box<TlsStream<TcpStream>>),
    /// The handshake failed, and was told.
    Failed,
}

impl Tls {
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&mut TlsStream<TcpStream>>> {
        if let State::Shaking(handshake) = &mut self.state {
            match ready!(Pin::new(&mut **handshake).poll(cx)) {
                Ok(stream) => self.state = State::Open(Box::new(stream)),
                Err(error) => {
                    tracing::debug!(from = %self.from, %error, "a TLS handshake with a client of the API failed");
                    self.state = State::Failed;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match &mut self.state {
            State::Open(stream) => Ok(stream),
            State::Shaking(_) | State::Failed => Err(io::ErrorKind::ConnectionAborted.into()),
        })
    }
}

impl FromSomewhere for Tls {
    fn origin(&self) -> Origin {
        Origin::Network(self.from)
    }
}

impl AsyncRead for Tls {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(ready!(self.poll_open(cx))?).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Tls {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(ready!(self.poll_open(cx))?).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(ready!(self.poll_open(cx))?).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        matches!(&self.state, State::Open(stream) if stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            // Nothing has been written, and a flush must not wait for a client that says nothing.
            State::Shaking(_) | State::Failed => Poll::Ready(Ok(())),
            State::Open(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Shaking(_) | State::Failed => Poll::Ready(Ok(())),
            State::Open(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
