//! One lane: a connection, and the task that reads and writes it.
//!
//! The task does both in turn on one thread, so that nothing is shared between reader and writer: what was read decides
//! which ack is written next. It *takes* a segment from the bundle only when its connection has taken all of the one
//! before, so that the fastest lane carries most and a slow one holds up one segment. What it reads goes into memory of
//! the segment's own size, once the bundle has admitted it, and from there to the application: one copy each.
//!
//! Acks are due after some bytes of the lane's or some milliseconds, when the bundle has credit to announce, and go along
//! with whatever else is written. Pings that come faster than they can be answered get one answer.
//!
//! A lane ends in order when both sides have said that they leave; then its connection is at the border of two segments,
//! both ways, and carries the next bundle.

use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

use super::handle::{CLOSE, Handle, LEAVE, LaneEnd, PING, SEND_ACK, Taken};
use super::segment::{self, Ack, HEADER_BYTES, Header};
use super::sender::{Broken, Segment};
use super::state::Bundle;
use crate::limits::{ACK_AFTER, CLOSE_TIMEOUT, LANE_READS_IN_TURN, LEAVE_TIMEOUT};
use crate::wire::ByteStream;

/// Why the task stops.
enum Stop {
    Left,
    Lost(String),
    /// The peer broke the protocol: the bundle is lost, and the lane says so.
    Broken(Broken),
    /// The peer has given up the stream.
    Aborted(String),
    Closed,
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Stop {
        Stop::Broken(broken)
    }
}

/// What is being read.
enum Reading {
    Header,
    Data {
        offset: u64,
        crowded: bool,
    },
    /// Anything else with a payload.
    Other(Header),
}

struct Input {
    reading: Reading,
    header: [u8; HEADER_BYTES],
    have: usize,
    payload: BytesMut,
    wanted: usize,
    /// What has arrived of data and end segments.
    position: u64,
}

/// A batch that is being written: small segments and a header, then the payload.
#[derive(Default)]
struct Output {
    head: Vec<u8>,
    payload: Bytes,
    written: usize,
    is_flushed: bool,
}

impl Output {
    fn is_written(&self) -> bool {
        self.written == self.head.len() + self.payload.len()
    }
}

/// See the module.
pub(super) struct Lane {
    bundle: Arc<Bundle>,
    me: Arc<Handle>,
    io: Box<dyn ByteStream>,
    input: Input,
    output: Output,
    /// The position of the last ack.
    acked: u64,
    ack_every: u64,
    ack_at: Option<Instant>,
    pong: Option<u64>,
    we_left: bool,
    they_left: bool,
    leave_until: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    armed: bool,
    counted: (u64, u64),
}

impl Lane {
    pub(super) fn new(bundle: Arc<Bundle>, me: Arc<Handle>, io: Box<dyn ByteStream>) -> Lane {
        let counted = me.wire_before;
        Lane {
            bundle,
            me,
            io,
            input: Input {
                reading: Reading::Header,
                header: [0; HEADER_BYTES],
                have: 0,
                payload: BytesMut::new(),
                wanted: 0,
                position: 0,
            },
            output: Output { is_flushed: true, ..Output::default() },
            acked: 0,
            ack_every: 0,
            ack_at: None,
            pong: None,
            we_left: false,
            they_left: false,
            leave_until: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            armed: false,
            counted,
        }
    }

    /// Carries segments until the lane ends, and tells the bundle.
    pub(super) async fn run(mut self) {
        let stop = poll_fn(|cx| self.poll(cx)).await;
        let end = match stop {
            Stop::Left => LaneEnd::Left(self.io),
            Stop::Lost(reason) => LaneEnd::Lost(reason),
            Stop::Aborted(reason) => {
                self.bundle.on_abort(&reason);
                LaneEnd::Closed
            }
            Stop::Broken(broken) => {
                self.bundle.on_broken(&broken);
                self.send_close().await;
                LaneEnd::Closed
            }
            Stop::Closed => {
                self.send_close().await;
                LaneEnd::Closed
            }
        };
        self.bundle.on_lane_end(&self.me, end);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Stop> {
        {
            let mut task = self.me.task.lock();
            if !task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
                *task = Some(cx.waker().clone());
            }
        }
        let stop = self.poll_both(cx);
        self.count_wire();
        match stop {
            Ok(()) => Poll::Pending,
            Err(stop) => Poll::Ready(stop),
        }
    }

    /// Reads and writes until neither goes on.
    fn poll_both(&mut self, cx: &mut Context<'_>) -> Result<(), Stop> {
        loop {
            if self.me.orders() & CLOSE != 0 {
                return Err(Stop::Closed);
            }
            if self.me.orders() & LEAVE != 0 && self.leave_until.is_none() {
                // From now on, not from when it is said: a connection that takes nothing more never comes to that.
                self.leave_until = Some(Instant::now() + LEAVE_TIMEOUT);
            }
            let has_read = self.poll_input(cx)?;
            let has_written = self.poll_output(cx)?;
            if self.we_left && self.they_left && self.output.is_written() && self.output.is_flushed {
                return Err(Stop::Left);
            }
            if has_read == LANE_READS_IN_TURN {
                // Others on this thread have their turn.
                cx.waker().wake_by_ref();
                return Ok(());
            }
            if has_read == 0 && !has_written && !self.poll_timer(cx)? {
                return Ok(());
            }
        }
    }

    /// Reads what is there, within a turn; how many reads there were.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Result<usize, Stop> {
        let mut reads = 0;
        // After the leave comes an attach, which is not of this bundle.
        while reads < LANE_READS_IN_TURN && !self.they_left {
            let read = match self.input.reading {
                Reading::Header => {
                    let mut buffer = ReadBuf::new(&mut self.input.header[self.input.have..]);
                    let read = Pin::new(&mut self.io).poll_read(cx, &mut buffer);
                    let bytes = buffer.filled().len();
                    read.map_ok(|()| bytes)
                }
                Reading::Data { .. } | Reading::Other(_) => {
                    let left = self.input.wanted - self.input.payload.len();
                    let mut buffer = (&mut self.input.payload).limit(left);
                    poll_read_buf(Pin::new(&mut self.io), cx, &mut buffer)
                }
            };
            let bytes = match read {
                Poll::Pending => break,
                Poll::Ready(Err(e)) => return Err(Stop::Lost(e.to_string())),
                Poll::Ready(Ok(0)) => return Err(Stop::Lost("the peer closed the connection".to_owned())),
                Poll::Ready(Ok(bytes)) => bytes,
            };
            reads += 1;
            self.on_bytes(bytes)?;
        }
        if reads > 0 {
            self.me.owed.store(false, Ordering::Relaxed);
            self.me.last_received.store(self.bundle.now().as_millis() as u64, Ordering::Relaxed);
            // After our leave nothing more is said on this lane: an ack would be due for ever.
            if !self.we_left && self.input.position > self.acked && self.ack_at.is_none() {
                self.ack_at = Some(Instant::now() + ACK_AFTER);
            }
        }
        Ok(reads)
    }

    fn on_bytes(&mut self, bytes: usize) -> Result<(), Stop> {
        match self.input.reading {
            Reading::Header => {
                self.input.have += bytes;
                if self.input.have == HEADER_BYTES {
                    self.input.have = 0;
                    self.on_header()?;
                }
            }
            Reading::Data { offset, crowded } => {
                self.input.position += bytes as u64;
                if self.input.payload.len() == self.input.wanted {
                    self.input.reading = Reading::Header;
                    let payload = std::mem::take(&mut self.input.payload).freeze();
                    self.ack_every = self.bundle.on_data(offset, payload, crowded)?;
                }
            }
            Reading::Other(header) => {
                if self.input.payload.len() == self.input.wanted {
                    self.input.reading = Reading::Header;
                    let payload = std::mem::take(&mut self.input.payload);
                    self.on_payload(header, &payload)?;
                }
            }
        }
        Ok(())
    }

    fn on_header(&mut self) -> Result<(), Stop> {
        let header = Header::decode(&self.input.header).map_err(|e| Broken(e.to_string()))?;
        match header {
            Header::Data { offset, bytes, crowded } => {
                self.bundle.admits(offset, bytes)?;
                self.input.position += HEADER_BYTES as u64;
                self.input.reading = Reading::Data { offset, crowded };
            }
            Header::Ack { .. } | Header::Abort { .. } => self.input.reading = Reading::Other(header),
            Header::End { offset } => {
                self.input.position += HEADER_BYTES as u64;
                self.bundle.on_end(offset)?;
                // The sender waits for nothing else.
                self.me.orders.fetch_or(SEND_ACK, Ordering::AcqRel);
            }
            Header::Ping(number) => self.pong = Some(number),
            Header::Pong(_) => self.bundle.on_pong(self.me.id),
            Header::Leave => {
                self.they_left = true;
                self.bundle.on_leave()?;
            }
            Header::Attach { .. } => {
                return Err(Broken("it attaches a lane that is in use".to_owned()).into());
            }
        }
        self.input.wanted = header.payload_bytes();
        if let Reading::Other(header) = self.input.reading
            && self.input.wanted == 0
        {
            self.input.reading = Reading::Header;
            return self.on_payload(header, &[]);
        }
        if self.input.wanted > 0 {
            self.input.payload = BytesMut::with_capacity(self.input.wanted);
        }
        Ok(())
    }

    fn on_payload(&mut self, header: Header, payload: &[u8]) -> Result<(), Stop> {
        match header {
            Header::Ack { contiguous } => {
                let ack = Ack::decode(payload).map_err(|e| Broken(e.to_string()))?;
                self.bundle.on_ack(self.me.id, contiguous, ack)?;
                Ok(())
            }
            _ => Err(Stop::Aborted(segment::decode_reason(payload))),
        }
    }

    /// Writes what there is, and takes more; whether anything went on.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Result<bool, Stop> {
        let lost = |e: io::Error| Stop::Lost(e.to_string());
        let mut has_written = false;
        loop {
            if !self.output.is_written() {
                match self.poll_write(cx) {
                    Poll::Pending => return Ok(has_written),
                    Poll::Ready(written) => written.map_err(lost)?,
                }
                has_written = true;
            } else if !self.output.is_flushed {
                match Pin::new(&mut self.io).poll_flush(cx) {
                    Poll::Pending => return Ok(has_written),
                    Poll::Ready(flushed) => flushed.map_err(lost)?,
                }
                self.output.is_flushed = true;
                has_written = true;
                self.bundle.on_written(&self.me);
            } else if self.we_left || !self.fill() {
                return Ok(has_written);
            } else {
                // Reading has its turn between batches.
                match self.poll_write(cx) {
                    Poll::Pending => return Ok(true),
                    Poll::Ready(written) => written.map_err(lost)?,
                }
                return Ok(true);
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Output { head, payload, written, .. } = &mut self.output;
        let (in_head, in_payload) = ((*written).min(head.len()), written.saturating_sub(head.len()));
        let slices = [IoSlice::new(&head[in_head..]), IoSlice::new(&payload[in_payload..])];
        let io = Pin::new(&mut self.io);
        let bytes = ready!(match slices.iter().position(|slice| !slice.is_empty()) {
            Some(0) if !slices[1].is_empty() && io.is_write_vectored() => io.poll_write_vectored(cx, &slices),
            Some(first) => io.poll_write(cx, &slices[first]),
            None => return Poll::Ready(Ok(())),
        })?;
        if bytes == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        *written += bytes;
        if self.output.is_written() {
            self.output.payload = Bytes::new();
            self.output.head.clear();
            self.output.written = 0;
        }
        Poll::Ready(Ok(()))
    }

    /// The next batch; whether there is one.
    fn fill(&mut self) -> bool {
        let orders = self.me.orders();
        let mut segment = None;
        let mut end = None;
        if orders & LEAVE == 0 {
            match self.bundle.take(&self.me) {
                Taken::Data(data) => segment = Some(data),
                Taken::End(offset) => end = Some(offset),
                Taken::Nothing => {}
            }
        }
        let goes_anyway = segment.is_some() || end.is_some() || self.pong.is_some();
        let unacked = self.input.position - self.acked;
        let is_due = orders & (SEND_ACK | LEAVE) != 0
            || unacked > 0 && unacked >= self.ack_every
            || self.ack_at.is_some_and(|at| at <= Instant::now())
            || goes_anyway && (unacked > 0 || self.bundle.has_unannounced());
        let head = &mut self.output.head;
        if is_due {
            self.me.done(SEND_ACK);
            // A pong or a bare ack is not answered: two sides that wait for answers to those would never be quiet.
            if self.bundle.has_unannounced() {
                self.me.owed.store(true, Ordering::Relaxed);
            }
            let (contiguous, limit) = self.bundle.send_ack();
            let position = self.input.position;
            head.put_slice(&Header::Ack { contiguous }.encode());
            head.put_slice(&Ack { limit, position }.encode());
            self.acked = position;
            self.ack_at = None;
        }
        if let Some(number) = self.pong.take() {
            head.put_slice(&Header::Pong(number).encode());
        }
        if orders & PING != 0 {
            self.me.done(PING);
            self.me.owed.store(true, Ordering::Relaxed);
            self.bundle.on_ping_sent(self.me.id);
            head.put_slice(&Header::Ping(u64::from(self.me.id.0)).encode());
        }
        if let Some(Segment { offset, bytes, crowded }) = segment {
            head.put_slice(&Header::Data { offset, bytes: bytes.len(), crowded }.encode());
            self.output.payload = bytes;
        } else if let Some(offset) = end {
            head.put_slice(&Header::End { offset }.encode());
        }
        if orders & LEAVE != 0 {
            head.put_slice(&Header::Leave.encode());
            self.we_left = true;
        }
        if self.output.payload.is_empty() && !head.is_empty() {
            self.bundle.charge(head.len());
        }
        self.output.is_flushed = head.is_empty();
        !head.is_empty()
    }

    /// Whether a moment has come at which something is due.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Result<bool, Stop> {
        loop {
            if self.ack_at.is_none() && self.leave_until.is_none() {
                return Ok(false);
            }
            let now = Instant::now();
            if self.leave_until.is_some_and(|until| until <= now) {
                return Err(Stop::Lost("the peer did not leave in time".to_owned()));
            }
            let is_due = self.ack_at.is_some_and(|at| at <= now);
            if is_due && self.output.is_written() && self.output.is_flushed {
                return Ok(true);
            }
            // A batch in the way of an ack that is due keeps it: then the connection wakes the task. A timer that is set to a
            // moment that has passed would wake it at once, again and again.
            let ack_at = self.ack_at.filter(|_| !is_due);
            let Some(wanted) = [ack_at, self.leave_until].into_iter().flatten().min() else {
                return Ok(false);
            };
            // A timer that is armed for an earlier moment stays: to set it anew for each ack costs more than to be woken once
            // for nothing.
            if !self.armed || wanted < self.timer.deadline() {
                self.timer.as_mut().reset(wanted);
                self.armed = true;
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Ok(false);
            }
            self.armed = false;
        }
    }

    fn count_wire(&mut self) {
        let now = (self.me.options.wire.sent(), self.me.options.wire.received());
        self.bundle.count_wire(now.0 - self.counted.0, now.1 - self.counted.1);
        self.counted = now;
    }

    /// What is half written, and the reason; nobody waits for it longer than [`CLOSE_TIMEOUT`].
    async fn send_close(&mut self) {
        let abort = self.bundle.closing_segment();
        let part = async {
            while !self.output.is_written() {
                poll_fn(|cx| self.poll_write(cx)).await?;
            }
            if let Some(abort) = abort {
                tokio::io::AsyncWriteExt::write_all(&mut self.io, &abort).await?;
            }
            tokio::io::AsyncWriteExt::shutdown(&mut self.io).await
        };
        // The link may be gone: then the peer finds out by itself.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, part).await;
        self.count_wire();
    }
}
