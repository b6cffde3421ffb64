//! One client in transmission: its commands in, their answers out.
//!
//! A single task reads the socket and pumps replies; calls run on the threads of [`CallPool`]. The task stops
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
use crate::command::perform;
use crate::conversation::{ConnectionError, Ending, read_or_end};
use crate::error::{ErrorKind, NbdError};
use crate::export::Export;
use crate::limits::{ERRORS_LOGGED_MAX, Limits, REQUEST_BYTES_MAX, SOCKET_BUFFER_BYTES, STATUS_REPLY_BYTES};
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
    ) -> Result<Ending, ConnectionError> {
        let client_gone = CancellationToken::new();
        let connection = Arc::new(Connection {
            export: agreed.export,
            export_name: agreed.name,
            parameters: agreed.parameters,
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
            () = export_closed.cancelled() => Ok(Ending::ExportClosed),
            () = connection.client_gone.cancelled() => Ok(Ending::HungUp),
            () = connection.replies.pump(stall_max) => Err(ConnectionError::Stalled(stall_max)),
            ended = connection.read_requests(reader) => ended,
        };
        let stalled = matches!(ended, Err(ConnectionError::Stalled(_)));
        let all_sent = connection.finish(shutdown, &export_closed, stalled).await;
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
        loop {
            let Some(header) = read_header(reader).await? else { return Ok(Ending::HungUp) };
            let request = parse_request(&header)?;
            if request.command == Command::Disconnect {
                return Ok(Ending::Disconnected);
            }
            match validate(&request, &self.parameters) {
                Ok(action) => {
                    let reservation = self.room.reserve(payload_bytes(&action)).await;
                    let payload = match action {
                        Action::Write { range, .. } => {
                            let mut payload = self.common.buffers.take(range.length);
                            self.receive(reader, &mut payload).await?;
                            Some(payload)
                        }
                        _ => None,
                    };
                    self.submit(request, action, payload, reservation);
                }
                Err(refusal) => {
                    let reservation = self.room.reserve(0).await;
                    self.answer(&request, Err(refusal), reservation);
                    if request.command == Command::Write {
                        self.skip(reader, request.length).await?;
                    }
                }
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

    fn submit(
        self: &Arc<Self>,
        request: Request,
        action: Action,
        payload: Option<PayloadBuffer>,
        reservation: Reservation,
    ) {
        let under_way = self.calls_under_way.token();
        let connection = Arc::clone(self);
        self.common.calls.submit(move || {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let structured = connection.parameters.structured_replies;
                let buffers = &connection.common.buffers;
                perform(&*connection.export, structured, request.cookie, action, payload, buffers)
            }));
            // What a panic left half done, nobody knows: to the client the medium failed.
            let outcome = outcome.unwrap_or_else(|_| Err(NbdError::new(ErrorKind::Io, CallPanicked)));
            connection.answer(&request, outcome, reservation);
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
        let pieces = outcome.unwrap_or_else(|error| {
            self.log_error(request, &error);
            reply::failed(request.cookie, self.parameters.structured_replies, &error)
        });
        self.replies.push(Reply::new(pieces, reservation));
    }

    /// Waits for calls under way, then until their answers are sent; says whether they all were. A client that does
    /// not fetch them is waited for only so long.
    async fn finish(
        &self,
        shutdown: &CancellationToken,
        export_closed: &CancellationToken,
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

/// What a command counts in the limits on bytes.
fn payload_bytes(action: &Action) -> u32 {
    match action {
        Action::Read { range, .. } | Action::Write { range, .. } => range.length,
        Action::BlockStatus { .. } => STATUS_REPLY_BYTES,
        Action::Flush | Action::Trim { .. } | Action::WriteZeroes { .. } => 0,
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
