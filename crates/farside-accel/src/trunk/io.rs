//! The tasks of a trunk's streams.

use std::io;

use bytes::BytesMut;
use farside_peer::DataStream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::state::{Outgoing, Trunk};
use crate::protocol::{Frame, FrameReader};

type Io = Box<dyn farside_link::ByteStream>;

/// What is written at once. More waits in the queue, where what is urgent still overtakes it.
const WRITTEN_AT_ONCE: usize = 128 << 10;
/// A buffer that a large block has made larger than this is not kept.
const BUFFER_KEPT: usize = 4 * WRITTEN_AT_ONCE;
/// What is read at once.
const READ_AT_ONCE: usize = 64 << 10;

/// Both halves of a stream.
pub(super) fn halves(stream: DataStream) -> (ReadHalf<Io>, WriteHalf<Io>) {
    tokio::io::split(stream.io)
}

/// Writes what is queued, until the stream fails or the trunk is dropped.
pub(super) async fn write(
    trunk: &Trunk,
    mut to: WriteHalf<Io>,
    mut queue: mpsc::UnboundedReceiver<Outgoing>,
) -> io::Result<()> {
    let mut buffer = BytesMut::with_capacity(WRITTEN_AT_ONCE);
    loop {
        let since = Instant::now();
        let Some(first) = queue.recv().await else { break };
        let waited = since.elapsed();
        let mut next = Some(first);
        // The places of these parts are kept until they are written.
        let mut written = Vec::new();
        while let Some(outgoing) = next {
            buffer.extend_from_slice(&outgoing.frame.head());
            buffer.extend_from_slice(&outgoing.frame.body);
            written.push(outgoing);
            next = if buffer.len() < WRITTEN_AT_ONCE { queue.try_recv().ok() } else { None };
        }
        let since = Instant::now();
        to.write_all(&buffer).await?;
        to.flush().await?;
        trunk.written(&written, buffer.len(), waited, since.elapsed());
        buffer.clear();
        if buffer.capacity() > BUFFER_KEPT {
            buffer = BytesMut::with_capacity(WRITTEN_AT_ONCE);
        }
    }
    to.shutdown().await
}

/// Hands every frame that arrives to `take`, until the stream ends or `take` says that the peer broke the protocol.
pub(super) async fn read(
    trunk: &Trunk,
    mut from: ReadHalf<Io>,
    mut take: impl FnMut(Frame) -> bool,
) -> io::Result<()> {
    let mut reader = FrameReader::default();
    loop {
        // A peer that never stops must not keep this task from writing, nor from seeing that the trunk is over.
        tokio::task::consume_budget().await;
        while !trunk.closed.is_cancelled()
            && let Some(frame) = reader.next_frame().map_err(io::Error::other)?
        {
            let kind = frame.kind;
            if !take(frame) {
                return Err(io::Error::other(format!("the peer's {kind:?} frame breaks the protocol")));
            }
        }
        if trunk.closed.is_cancelled() {
            return Err(io::Error::other("the trunk was closed"));
        }
        let buffer = reader.buffer();
        buffer.reserve(READ_AT_ONCE);
        if from.read_buf(buffer).await? == 0 {
            return Ok(());
        }
    }
}
