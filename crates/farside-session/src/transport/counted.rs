//! Counts what a socket carries, under TLS, so that the figures are those of the wire; and keeps it to its limits, in the
//! same bytes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::io::poll_read_buf;

use super::{Connection, SocketFigures};
use crate::limits::READ_AHEAD;
use crate::link::{ByteStream, WireCounters};
use crate::throttle::{self, Limits, StreamLimits};

/// A socket with its own counters and, once its session is known, those of the session and the peer.
pub(crate) struct Counted {
    io: Box<dyn ByteStream>,
    figures: Arc<dyn SocketFigures>,
    own: Arc<WireCounters>,
    also: OnceLock<Vec<Arc<WireCounters>>>,
    limits: OnceLock<SocketLimits>,
    /// Read from the socket, and of that taken by the TLS layer, which asks for 4 KiB at a time: at 1 Gb/s that would be 30,000
    /// system calls a second. No memory while nothing comes, but for a socket that waits for its limits (version 1): it keeps the
    /// buffer of its handshake.
    ahead: BytesMut,
    ahead_taken: usize,
    /// Reader and writer may be different tasks: each has its own wait.
    reader_waits: Option<Pin<Box<Sleep>>>,
    writer_waits: Option<Pin<Box<Sleep>>>,
}

/// How a socket heeds its limits.
pub(crate) enum SocketLimits {
    /// It waits until its bytes may go.
    Waits(StreamLimits),
    /// It does not wait, and its bytes count: whoever waits makes up for them.
    Counts(StreamLimits),
}

impl Counted {
    pub(crate) fn new(connection: Connection) -> Self {
        Counted {
            io: connection.io,
            figures: connection.figures,
            own: Arc::default(),
            also: OnceLock::new(),
            limits: OnceLock::new(),
            ahead: BytesMut::new(),
            ahead_taken: 0,
            reader_waits: None,
            writer_waits: None,
        }
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

    /// Puts the socket under limits, at which everything it has carried so far counts. The first call counts.
    pub(crate) fn limit(&self, limits: SocketLimits) {
        let (SocketLimits::Waits(both) | SocketLimits::Counts(both)) = &limits;
        let now = throttle::clock();
        both.sent.charge(now, self.own.sent());
        both.received.charge(now, self.own.received());
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

/// Waits for leave to move at most `want` bytes.
fn poll_granted(
    limits: &Limits,
    waits: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
    want: usize,
) -> Poll<usize> {
    loop {
        if let Some(timer) = waits {
            ready!(timer.as_mut().poll(cx));
            *waits = None;
        }
        let granted = limits.take(throttle::clock(), want as u64);
        if granted.bytes > 0 || want == 0 {
            // At most `want`, which was a usize.
            return Poll::Ready(granted.bytes as usize);
        }
        *waits = Some(Box::pin(tokio::time::sleep(granted.retry_after)));
    }
}

impl Counted {
    fn poll_receive(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead_taken < self.ahead.len() {
            self.take_ahead(buf);
            return Poll::Ready(Ok(()));
        }
        let Some(SocketLimits::Waits(StreamLimits { received, .. })) = self.limits.get() else {
            ready!(self.poll_read_ahead(cx))?;
            self.take_ahead(buf);
            return Poll::Ready(Ok(()));
        };
        let granted = ready!(poll_granted(received, &mut self.reader_waits, cx, buf.remaining()));
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(granted));
        let read = Pin::new(&mut self.io).poll_read(cx, &mut part);
        let bytes = part.filled().len();
        received.give_back((granted - bytes) as u64);
        buf.advance(bytes);
        self.count_received(bytes);
        read
    }

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
        if let Some(SocketLimits::Counts(limits)) = self.limits.get() {
            limits.received.charge(throttle::clock(), bytes as u64);
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let Some(SocketLimits::Waits(StreamLimits { sent, .. })) = self.limits.get() else {
            return Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        };
        let want = bufs.iter().map(|buf| buf.len()).sum();
        let granted = ready!(poll_granted(sent, &mut self.writer_waits, cx, want));
        let io = Pin::new(&mut self.io);
        let written = if granted == want {
            io.poll_write_vectored(cx, bufs)
        } else {
            // A part of the first that is not empty: there is one, or nothing would have been wanted.
            let first = bufs.iter().find(|buf| !buf.is_empty()).map_or(&[][..], |buf| buf);
            io.poll_write(cx, &first[..granted.min(first.len())])
        };
        let bytes = if let Poll::Ready(Ok(bytes)) = &written { *bytes } else { 0 };
        sent.give_back(granted.saturating_sub(bytes) as u64);
        written
    }

    fn count_sent(&self, bytes: usize) {
        self.each(|counter| counter.add_sent(bytes as u64));
        if let Some(SocketLimits::Counts(limits)) = self.limits.get() {
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
        self.poll_receive(cx, buf).map_err(never_an_end)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = ready!(self.poll_send(cx, &[io::IoSlice::new(buf)])).map_err(never_an_end)?;
        self.count_sent(bytes);
        Poll::Ready(Ok(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = ready!(self.poll_send(cx, bufs)).map_err(never_an_end)?;
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
