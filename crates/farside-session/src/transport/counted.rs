//! Counts what a socket carries, under TLS, so that the figures are those of the wire.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Connection, SocketFigures};
use crate::link::{ByteStream, WireCounters};

/// A socket with its own counters and, once its session is known, those of the session and the peer.
pub(crate) struct Counted {
    io: Box<dyn ByteStream>,
    figures: Arc<dyn SocketFigures>,
    own: Arc<WireCounters>,
    also: OnceLock<Vec<Arc<WireCounters>>>,
}

impl Counted {
    pub(crate) fn new(connection: Connection) -> Self {
        Counted { io: connection.io, figures: connection.figures, own: Arc::default(), also: OnceLock::new() }
    }

    /// How the socket goes.
    pub(crate) fn figures(&self) -> Arc<dyn SocketFigures> {
        Arc::clone(&self.figures)
    }

    /// What this socket alone has carried.
    pub(crate) fn wire(&self) -> Arc<WireCounters> {
        Arc::clone(&self.own)
    }

    /// Charges `counters` with what was carried so far and with everything to come. The first call counts.
    pub(crate) fn charge(&self, counters: Vec<Arc<WireCounters>>) {
        for counter in &counters {
            counter.add_sent(self.own.sent());
            counter.add_received(self.own.received());
        }
        // Each connection joins one session, once.
        let _ = self.also.set(counters);
    }

    fn each(&self, add: impl Fn(&WireCounters)) {
        add(&self.own);
        self.also.get().into_iter().flatten().for_each(|counter| add(counter));
    }
}

/// The TLS layer takes "aborted" for an orderly end of file; a lost link must never look like one.
fn never_an_end(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ConnectionAborted => io::Error::new(io::ErrorKind::ConnectionReset, error),
        _ => error,
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf)).map_err(never_an_end)?;
        let bytes = (buf.filled().len() - before) as u64;
        self.each(|counter| counter.add_received(bytes));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.io).poll_write(cx, buf)).map_err(never_an_end)?;
        self.each(|counter| counter.add_sent(bytes as u64));
        Poll::Ready(Ok(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, bufs)).map_err(never_an_end)?;
        self.each(|counter| counter.add_sent(bytes as u64));
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx).map_err(never_an_end)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx).map_err(never_an_end)
    }
}
