//! One client in transmission: its commands in, their answers out.
//!
//! A single task reads the socket and pumps replies; calls run on the threads of [`CallPool`], but for small writes that wait for nothing. The task stops
//! reading, and so lets the client feel it, as soon as the room for commands or payload bytes in flight is taken.
//! However the conversation ends, the connection waits for its calls under way; only then is the export released.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::buffer_pool::{BufferPool, PayloadBuffer};
use crate::call_pool::{CallPanicked, CallPool};
use crate::command::{perform, read_reply};
use crate::context::Context;
use crate::conversation::{ConnectionError, Ending, read_or_end};
use crate::error::{ErrorKind, NbdError};
use crate::export::{Export, Write};
use crate::joined::{Batch, Joined, JoinedRead, JoinedWrite};
use crate::limits::{
    AT_ONCE_BYTES_MAX, CONTEXTS_MAX, ERRORS_LOGGED_MAX, JOINED_REQUEST_BYTES_MAX, Limits, REQUEST_BYTES_MAX,
    SOCKET_BUFFER_BYTES, STATUS_REPLY_BYTES,
};
use crate::negotiation::Agreed;
use crate::protocol::REQUEST_HEADER_BYTES;
use crate::protocol::reply;
use crate::protocol::request::{Action, Command, Request, TransmissionParameters, parse_request, validate};
use crate::reply_queue::{Reply, ReplyQueue};
use crate::room::{Reservation, Room, ServerRoom};

/// What all connections of a server share.
pub(crate) struct Common {
    pub(crate) limits: Limits,
    pub(crate) calls: CallPool,
    pub(crate) buffers: Arc<BufferPool>,
    pub(crate) room: Arc<ServerRoom>,
}

/// A client in transmission.
pub(crate) struct Connection<W> {
    common: Arc<Common>,
    export: Arc<dyn Export>,
    export_name: String,
    parameters: TransmissionParameters,
    contexts: Vec<Context>,
    replies: ReplyQueue<W, Reservation>,
    room: Room,
    calls_under_way: TaskTracker,
    client_gone: CancellationToken,
    span: tracing::Span,
    errors: AtomicU32,
}

impl<W: AsyncWrite + Unpin + Send + 'static> Connection<W> {
    /// Talks to a client until it leaves, misbehaves, or `shutdown` or the export's owner ends it.
    pub(crate) async fn run<R: AsyncRead + Unpin>(
        reader: &mut BufReader<R>,
        writer: W,
        agreed: Agreed,
        room: Room,
        common: Arc<Common>,
        shutdown: &CancellationToken,
        revoked: &CancellationToken,
    ) -> Result<Ending, ConnectionError> {
        let client_gone = CancellationToken::new();
        let connection = Arc::new(Connection {
            export: agreed.export,
            export_name: agreed.name,
            parameters: agreed.parameters,
            contexts: agreed.contexts,
            replies: ReplyQueue::new(writer, client_gone.clone()),
            room,
            calls_under_way: TaskTracker::new(),
            client_gone,
            span: tracing::Span::current(),
            errors: AtomicU32::new(0),
            common,
        });
        let export_closed = connection.export.closed();
        let stall_max = connection.common.limits.reply_stall_max;
        let ended = tokio::select! {
            biased;
            () = shutdown.cancelled() => Ok(Ending::Shutdown),
            () = revoked.cancelled() => Ok(Ending::Revoked),
            () = export_closed.cancelled() => Ok(Ending::ExportClosed),
            () = connection.client_gone.cancelled() => Ok(Ending::HungUp),
            () = connection.replies.pump(stall_max) => Err(ConnectionError::Stalled(stall_max)),
            ended = connection.read_requests(reader) => ended,
        };
        let stalled = matches!(ended, Err(ConnectionError::Stalled(_)));
        let all_sent = connection.finish([shutdown, revoked, &export_closed], stalled).await;
        connection.log_errors();
        match (ended, all_sent) {
            (Ok(_), false) if !connection.client_gone.is_cancelled() => {
                Err(ConnectionError::Stalled(stall_max))
            }
            (ended, _) => ended,
        }
    }

    /// Receives commands and hands them to threads.
    async fn read_requests<R: AsyncRead + Unpin>(
        self: &Arc<Self>,
        reader: &mut BufReader<R>,
    ) -> Result<Ending, ConnectionError> {
        let mut joined = Joined::default();
        let ended = self.read_joining(reader, &mut joined).await;
        // What came whole is carried out, whatever came after it.
        self.submit_joined(&mut joined);
        ended
    }

    /// Small reads and writes that arrive together stay in `joined` as long as what comes next is there without waiting.
    async fn read_joining<R: AsyncRead + Unpin>(
        self: &Arc<Self>,
        reader: &mut BufReader<R>,
        joined: &mut Joined,
    ) -> Result<Ending, ConnectionError> {
        let overlaps_reads = self.export.overlaps_reads();
        loop {
            let header = self.submitting_while_it_waits(joined, read_header(reader)).await?;
            let Some(header) = header else { return Ok(Ending::HungUp) };
            let request = parse_request(&header)?;
            if request.command == Command::Disconnect {
                return Ok(Ending::Disconnected);
            }
            match validate(&request, &self.parameters) {
                Ok(Action::Write { range, fua }) => {
                    let reserving = self.room.reserve(range.length);
                    let reservation = self.submitting_while_it_waits(joined, reserving).await;
                    let mut payload = self.common.buffers.take(range.length);
                    self.submitting_while_it_waits(joined, self.receive(reader, &mut payload)).await?;
                    let write = JoinedWrite { request, offset: range.offset, fua, payload, reservation };
                    self.join(joined, |joined| &mut joined.writes, write, range.length);
                }
                Ok(Action::Read { range, .. })
                    if overlaps_reads && range.length <= JOINED_REQUEST_BYTES_MAX =>
                {
                    let reserving = self.room.reserve(range.length);
                    let reservation = self.submitting_while_it_waits(joined, reserving).await;
                    let read = JoinedRead { request, range, reservation };
                    self.join(joined, |joined| &mut joined.reads, read, range.length);
                }
                Ok(action) => {
                    self.submit_joined(joined);
                    let reservation = self.room.reserve(payload_bytes(&action, self.contexts.len())).await;
                    self.submit(request, action, reservation);
                }
                Err(refusal) => {
                    self.submit_joined(joined);
                    let reservation = self.room.reserve(0).await;
                    self.answer(&request, Err(refusal), reservation);
                    if request.command == Command::Write {
                        self.skip(reader, request.length).await?;
                    }
                }
            }
        }
    }

    /// Puts a command to those of its kind that came with it.
    fn join<T>(
        self: &Arc<Self>,
        joined: &mut Joined,
        batch: impl Fn(&mut Joined) -> &mut Batch<T>,
        command: T,
        length: u32,
    ) {
        if !batch(joined).has_room_for(length) {
            self.submit_joined(joined);
        }
        batch(joined).push(command, length);
        if batch(joined).is_full() {
            self.submit_joined(joined);
        }
    }

    /// Nothing that has arrived waits for what has not, nor for the room that it holds itself.
    async fn submitting_while_it_waits<F: Future>(
        self: &Arc<Self>,
        joined: &mut Joined,
        next: F,
    ) -> F::Output {
        let mut next = std::pin::pin!(next);
        match at_once(next.as_mut()).await {
            Some(output) => output,
            None => {
                self.submit_joined(joined);
                next.await
            }
        }
    }

    /// Fills `payload`. A client that sends not one byte of it for a while is given up: what it holds is wanted elsewhere.
    async fn receive<R: AsyncRead + Unpin>(
        &self,
        reader: &mut R,
        payload: &mut [u8],
    ) -> Result<(), ConnectionError> {
        let mut filled = 0;
        while filled < payload.len() {
            filled += self.receive_some(reader, &mut payload[filled..]).await?;
        }
        Ok(())
    }

    /// Passes over the payload of a write that was refused, to find the next command.
    async fn skip<R: AsyncRead + Unpin>(&self, reader: &mut R, length: u32) -> Result<(), ConnectionError> {
        if length > REQUEST_BYTES_MAX {
            return Err(ConnectionError::WriteTooLong { length });
        }
        let mut left = length as usize;
        let mut skipped = vec![0; left.min(SOCKET_BUFFER_BYTES)];
        while left > 0 {
            let piece = left.min(skipped.len());
            left -= self.receive_some(reader, &mut skipped[..piece]).await?;
        }
        Ok(())
    }

    async fn receive_some<R: AsyncRead + Unpin>(
        &self,
        reader: &mut R,
        into: &mut [u8],
    ) -> Result<usize, ConnectionError> {
        let broke = ConnectionError::broke("the payload of a write");
        let stall_max = self.common.limits.payload_stall_max;
        let mut reading = std::pin::pin!(reader.read(into));
        // Mostly it is there already; who waits for it is worth a note only if it is not.
        let read = match at_once(reading.as_mut()).await {
            Some(read) => read,
            None => {
                self.room.payload_awaited(true);
                let read = tokio::time::timeout(stall_max, reading).await;
                self.room.payload_awaited(false);
                read.map_err(|_| ConnectionError::PayloadStalled(stall_max))?
            }
        };
        match read {
            Ok(0) => Err(broke(io::ErrorKind::UnexpectedEof.into())),
            Ok(read) => Ok(read),
            Err(error) => Err(broke(error)),
        }
    }

    fn submit(self: &Arc<Self>, request: Request, action: Action, reservation: Reservation) {
        self.on_a_thread(move |connection| {
            let outcome = guarded(|| {
                let structured = connection.parameters.structured_replies;
                let buffers = &connection.common.buffers;
                perform(
                    &*connection.export,
                    &connection.contexts,
                    structured,
                    request.cookie,
                    action,
                    buffers,
                )
            });
            connection.answer(&request, outcome, reservation);
        });
    }

    fn submit_joined(self: &Arc<Self>, joined: &mut Joined) {
        if let Some(reads) = joined.reads.take() {
            let (done, others) = self.read_at_once(reads);
            if !done.is_empty() {
                self.replies.push_all(done);
            }
            if !others.is_empty() {
                self.on_a_thread(move |connection| {
                    connection.replies.push_all(connection.read_joined(others))
                });
            }
        }
        if let Some(writes) = joined.writes.take() {
            match self.write_at_once(&writes) {
                Some(outcomes) => self.replies.push_all(self.written(writes, outcomes)),
                None => self.on_a_thread(move |connection| {
                    let all: Vec<Write<'_>> = writes.iter().map(JoinedWrite::as_write).collect();
                    let outcomes = one_for_each(all.len(), || connection.export.write_many(&all));
                    drop(all);
                    connection.replies.push_all(connection.written(writes, outcomes));
                }),
            }
        }
    }

    /// Carries writes out here where a thread would cost more than what it had to do.
    fn write_at_once(&self, writes: &[JoinedWrite]) -> Option<Vec<Result<(), NbdError>>> {
        let bytes: usize = writes.iter().map(|write| write.payload.len()).sum();
        if bytes > AT_ONCE_BYTES_MAX {
            return None;
        }
        let all: Vec<Write<'_>> = writes.iter().map(JoinedWrite::as_write).collect();
        let outcomes = guarded(|| Ok(self.export.write_many_at_once(&all)));
        let outcomes = outcomes.unwrap_or_else(|error| Some(vec![Err(error); all.len()]))?;
        assert_eq!(outcomes.len(), all.len(), "an export tells of each command what became of it");
        Some(outcomes)
    }

    fn written(
        &self,
        writes: Vec<JoinedWrite>,
        outcomes: Vec<Result<(), NbdError>>,
    ) -> Vec<Reply<Reservation>> {
        writes
            .into_iter()
            .zip(outcomes)
            .map(|(write, outcome)| {
                let pieces = outcome.map(|()| reply::done(write.request.cookie));
                self.reply(&write.request, pieces, write.reservation)
            })
            .collect()
    }

    /// Carries out here those reads that a thread would cost more than what it had to do; their replies, and the others.
    fn read_at_once(&self, mut reads: Vec<JoinedRead>) -> (Vec<Reply<Reservation>>, Vec<JoinedRead>) {
        let mut bytes = 0;
        let is_little = |read: &&JoinedRead| {
            bytes += read.range.length as usize;
            bytes <= AT_ONCE_BYTES_MAX
        };
        let mut others = reads.split_off(reads.iter().take_while(is_little).count());
        let (buffers, done) = self.read_into_buffers(&reads, |all| {
            guarded(|| Ok(self.export.read_at_once(all))).unwrap_or_else(|_| vec![false; all.len()])
        });
        let mut replies = Vec::new();
        for ((read, buffer), done) in reads.into_iter().zip(buffers).zip(done) {
            match done {
                true => replies.push(self.read_reply(read, Ok(buffer))),
                false => others.push(read),
            }
        }
        (replies, others)
    }

    fn read_joined(&self, reads: Vec<JoinedRead>) -> Vec<Reply<Reservation>> {
        let (buffers, outcomes) =
            self.read_into_buffers(&reads, |all| one_for_each(all.len(), || self.export.read_many(all)));
        let read = reads.into_iter().zip(buffers).zip(outcomes);
        read.map(|((read, buffer), outcome)| self.read_reply(read, outcome.map(|()| buffer))).collect()
    }

    /// A buffer for each read, and what became of it.
    fn read_into_buffers<T>(
        &self,
        reads: &[JoinedRead],
        read_all: impl FnOnce(&mut [(u64, &mut [u8])]) -> Vec<T>,
    ) -> (Vec<PayloadBuffer>, Vec<T>) {
        let mut buffers: Vec<PayloadBuffer> =
            reads.iter().map(|read| self.common.buffers.take(read.range.length)).collect();
        let mut all: Vec<(u64, &mut [u8])> = reads
            .iter()
            .zip(&mut buffers)
            .map(|(read, buffer)| (read.range.offset, &mut buffer[..]))
            .collect();
        let outcomes = read_all(&mut all);
        assert_eq!(outcomes.len(), reads.len(), "an export tells of each command what became of it");
        (buffers, outcomes)
    }

    fn read_reply(&self, read: JoinedRead, outcome: Result<PayloadBuffer, NbdError>) -> Reply<Reservation> {
        let pieces = outcome.map(|buffer| {
            let structured = self.parameters.structured_replies;
            read_reply(structured, read.request.cookie, read.range, buffer.into_bytes())
        });
        self.reply(&read.request, pieces, read.reservation)
    }

    /// Makes a call on a thread that may block; the connection does not end before it has.
    fn on_a_thread(self: &Arc<Self>, call: impl FnOnce(&Self) + Send + 'static) {
        let under_way = self.calls_under_way.token();
        let connection = Arc::clone(self);
        self.common.calls.submit(move || {
            call(&connection);
            // The connection's task waits for `under_way`; by then this thread must not hold the export.
            drop(connection);
            drop(under_way);
        });
    }

    fn answer(
        &self,
        request: &Request,
        outcome: Result<Vec<bytes::Bytes>, NbdError>,
        reservation: Reservation,
    ) {
        self.replies.push(self.reply(request, outcome, reservation));
    }

    fn reply(
        &self,
        request: &Request,
        outcome: Result<Vec<bytes::Bytes>, NbdError>,
        reservation: Reservation,
    ) -> Reply<Reservation> {
        let pieces = outcome.unwrap_or_else(|error| {
            self.log_error(request, &error);
            reply::failed(request.cookie, self.parameters.structured_replies, &error)
        });
        Reply::new(pieces, reservation)
    }

    /// Waits for calls under way, then until their answers are sent; says whether they all were. A client that does
    /// not fetch them is waited for only so long.
    async fn finish(
        &self,
        [shutdown, revoked, export_closed]: [&CancellationToken; 3],
        stalled: bool,
    ) -> bool {
        let limits = &self.common.limits;
        self.calls_under_way.close();
        tokio::select! {
            biased;
            () = self.calls_under_way.wait() => {}
            () = async { loop { self.replies.pump(limits.reply_stall_max).await } } => {}
        }
        let out_of_grace = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = revoked.cancelled() => {}
                () = export_closed.cancelled() => {}
            }
            tokio::time::sleep(limits.shutdown_grace).await;
        };
        let all_sent = tokio::select! {
            biased;
            () = self.room.all_free() => true,
            () = std::future::ready(()), if stalled => false,
            () = self.client_gone.cancelled() => false,
            () = self.replies.pump(limits.reply_stall_max) => false,
            () = out_of_grace => false,
        };
        if let Some(mut writer) = self.replies.end() {
            // All that can be lost here is the good manner of closing.
            let _ = tokio::time::timeout(limits.shutdown_grace, writer.shutdown()).await;
        }
        all_sent
    }

    fn log_error(&self, request: &Request, error: &NbdError) {
        if self.errors.fetch_add(1, Ordering::Relaxed) >= ERRORS_LOGGED_MAX {
            return;
        }
        let Request { command, offset, length, .. } = *request;
        let export = &self.export_name;
        self.span.in_scope(|| match error.kind {
            ErrorKind::Io => {
                tracing::error!(export, ?command, offset, length, %error, "NBD command failed")
            }
            ErrorKind::NoSpace => {
                tracing::warn!(export, ?command, offset, length, %error, "NBD command failed")
            }
            _ => tracing::info!(export, ?command, offset, length, %error, "NBD command refused"),
        });
    }

    fn log_errors(&self) {
        let suppressed = self.errors.load(Ordering::Relaxed).saturating_sub(ERRORS_LOGGED_MAX);
        if suppressed > 0 {
            tracing::warn!(
                export = self.export_name,
                suppressed,
                "further NBD commands failed or were refused"
            );
        }
    }
}

/// What a panic left half done, nobody knows: to the client the medium failed.
fn guarded<T>(call: impl FnOnce() -> Result<T, NbdError>) -> Result<T, NbdError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(NbdError::new(ErrorKind::Io, CallPanicked)))
}

/// What became of each of `count` commands that an export has carried out together.
fn one_for_each(count: usize, call: impl FnOnce() -> Vec<Result<(), NbdError>>) -> Vec<Result<(), NbdError>> {
    let outcomes = guarded(|| Ok(call())).unwrap_or_else(|error| vec![Err(error); count]);
    assert_eq!(outcomes.len(), count, "an export tells of each command what became of it");
    outcomes
}

/// What a command counts in the limits on bytes.
fn payload_bytes(action: &Action, contexts: usize) -> u32 {
    match action {
        Action::Read { range, .. } | Action::Write { range, .. } => range.length,
        Action::BlockStatus { .. } => STATUS_REPLY_BYTES * contexts.min(CONTEXTS_MAX) as u32,
        Action::Flush | Action::Cache { .. } | Action::Trim { .. } | Action::WriteZeroes { .. } => 0,
    }
}

/// The next command's header, or `None` if the client closed its side before it.
async fn read_header<R: AsyncRead + Unpin>(
    reader: &mut R,
) -> Result<Option<[u8; REQUEST_HEADER_BYTES]>, ConnectionError> {
    read_or_end(reader).await.map_err(ConnectionError::broke("the header of a command"))
}

/// What a future has to say at once.
async fn at_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
