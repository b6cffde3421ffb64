//! Counts what a socket carries, under TLS, so that the numbers are those of the wire; and charges its
//! limits with the same bytes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::connection::Connection;
use super::stats::SocketStats;
use crate::limits::READ_AHEAD;
use crate::throttle::{self, StreamLimits};
use crate::wire::{ByteStream, WireCounters};

/// A socket with its own counters and, once it is known what it belongs to, those of others.
pub struct Counted {
    io: Box<dyn ByteStream>,
    stats: Arc<dyn SocketStats>,
    own: Arc<WireCounters>,
    also: OnceLock<Vec<Arc<WireCounters>>>,
    limits: OnceLock<StreamLimits>,
    /// Read from the socket, and of that taken by the TLS layer, which asks for 4 KiB at a time: at 1 Gb/s that would be 30,000
    /// system calls a second. No memory while nothing comes.
    ahead: BytesMut,
    ahead_taken: usize,
}

impl Counted {
    /// Counts from now on.
    pub fn new(connection: Connection) -> Self {
        Counted {
            io: connection.io,
            stats: connection.stats,
            own: Arc::default(),
            also: OnceLock::new(),
            limits: OnceLock::new(),
            ahead: BytesMut::new(),
            ahead_taken: 0,
        }
    }

    /// How the socket goes.
    pub fn stats(&self) -> Arc<dyn SocketStats> {
        Arc::clone(&self.stats)
    }

    /// What this socket alone has carried.
    pub fn wire(&self) -> Arc<WireCounters> {
        Arc::clone(&self.own)
    }

    /// Charges `counters` with what was carried so far and with everything to come. The first call counts.
    pub fn charge(&self, counters: Vec<Arc<WireCounters>>) {
        for counter in &counters {
            counter.add_sent(self.own.sent());
            counter.add_received(self.own.received());
        }
        // Each connection joins one session, once.
        let _ = self.also.set(counters);
    }

    /// Charges limits with what was carried so far and with everything to come. The socket does not wait for them: whoever waits
    /// makes up for its bytes. The first call counts.
    pub fn limit(&self, limits: StreamLimits) {
        let now = throttle::clock();
        limits.sent.charge(now, self.own.sent());
        limits.received.charge(now, self.own.received());
        let _ = self.limits.set(limits);
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

impl Counted {
    /// Whatever is there, up to [`READ_AHEAD`]; nothing at the end.
    fn poll_read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ahead.clear();
        self.ahead_taken = 0;
        if self.ahead.capacity() == 0 {
            self.ahead.reserve(READ_AHEAD);
        }
        match poll_read_buf(Pin::new(&mut self.io), cx, &mut self.ahead) {
            Poll::Ready(read) => {
                self.count_received(read?);
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.ahead = BytesMut::new();
                Poll::Pending
            }
        }
    }

    fn take_ahead(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = &self.ahead[self.ahead_taken..];
        let bytes = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..bytes]);
        self.ahead_taken += bytes;
    }

    fn count_received(&self, bytes: usize) {
        self.each(|counter| counter.add_received(bytes as u64));
        if let Some(limits) = self.limits.get() {
            limits.received.charge(throttle::clock(), bytes as u64);
        }
    }

    fn count_sent(&self, bytes: usize) {
        self.each(|counter| counter.add_sent(bytes as u64));
        if let Some(limits) = self.limits.get() {
            limits.sent.charge(throttle::clock(), bytes as u64);
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead_taken == self.ahead.len() {
            ready!(self.poll_read_ahead(cx)).map_err(never_an_end)?;
        }
        self.take_ahead(buf);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.io).poll_write(cx, buf)).map_err(never_an_end)?;
        self.count_sent(bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, bufs)).map_err(never_an_end)?;
        self.count_sent(bytes);
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
