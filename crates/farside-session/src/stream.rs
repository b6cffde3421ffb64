//! Data streams: a TLS connection that ends with its session.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::WaitForCancellationFutureOwned;

use crate::error::SessionError;
use crate::link::HEADER_BYTES_MAX;
use crate::session::Session;
use crate::tls::Secured;

/// The header as it travels: little-endian u32 length, bytes.
pub(crate) fn write_header(header: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + header.len());
    bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
    bytes.extend_from_slice(header);
    bytes
}

/// Reads what [`write_header`] wrote.
pub(crate) async fn read_header(io: &mut (impl AsyncRead + Unpin)) -> Result<Bytes, SessionError> {
    let lost = |e: io::Error| SessionError::Lost(e.to_string());
    let length = io.read_u32_le().await.map_err(lost)? as usize;
    if length > HEADER_BYTES_MAX {
        return Err(SessionError::TooLarge { bytes: length, limit: HEADER_BYTES_MAX });
    }
    let mut header = vec![0; length];
    io.read_exact(&mut header).await.map_err(lost)?;
    Ok(header.into())
}

/// A data stream that fails as soon as its session is lost. Dropped without shutdown, it is an error at the other
/// end, not an end of file: only a writer that says so has written everything.
pub(crate) struct BoundStream {
    io: Secured,
    session: Arc<Session>,
    // One waiter for each direction: reader and writer may be different tasks, and a waiter wakes one.
    lost_to_reader: Pin<Box<WaitForCancellationFutureOwned>>,
    lost_to_writer: Pin<Box<WaitForCancellationFutureOwned>>,
    _place: OwnedSemaphorePermit,
}

impl BoundStream {
    pub(crate) fn new(io: Secured, session: Arc<Session>, place: OwnedSemaphorePermit) -> Self {
        let waiter = || Box::pin(session.lost_token().clone().cancelled_owned());
        BoundStream { lost_to_reader: waiter(), lost_to_writer: waiter(), io, session, _place: place }
    }

    fn loss(&self) -> io::Error {
        io::Error::new(
            io::ErrorKind::ConnectionReset,
            format!("the session with the peer was lost: {}", self.session.reason()),
        )
    }

    fn writable(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.lost_to_writer.as_mut().poll(cx) {
            Poll::Ready(()) => Err(self.loss()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for BoundStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.lost_to_reader.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(self.loss()));
        }
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for BoundStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.writable(cx)?;
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writable(cx)?;
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writable(cx)?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writable(cx)?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
