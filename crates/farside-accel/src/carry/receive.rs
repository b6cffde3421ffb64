//! From the trunk to the socket.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use farside_chunks::stream::{DecodeError, WINDOW_LOG_ALONE, Wanted, window_log_of};
use farside_chunks::{ChunkName, StreamDecoder};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::content::Content;
use super::cores::on_a_core;
use crate::connections::Record;
use crate::flow::{ASKS_MAX, Arrived, Flow, Part};
use crate::protocol::{Frame, Kind, ask_body};
use crate::store::PeerStore;
use crate::trunk::Trunk;

/// The far side is told after so many parts, however small they are.
const TELL_PARTS: u64 = 1024;

/// Why a direction ends before its end.
pub(super) enum Failure {
    /// The socket was reset, or failed.
    Socket(io::Error),
    /// The far side, or this one, cannot go on.
    Flow(io::Error),
}

/// How a direction ended.
pub(super) enum Received {
    /// With an end, which was delivered.
    All,
    /// With a reset that is still to be delivered.
    Reset,
}

/// A part that is not delivered yet.
struct Ahead {
    /// Bytes of the flow.
    bytes: usize,
    /// Of its window.
    cost: u64,
    what: What,
}

enum What {
    Nothing,
    Plain(Bytes),
    Decoded(Vec<u8>),
    /// It was asked for.
    Asked(u64, Wanted),
}

/// Delivers all that comes, and then the end. What is asked for holds up what comes after it, but not its decoding, so that many
/// blocks are asked for in one round trip. All of it is within the flow's window.
pub(super) async fn receive(
    trunk: &Trunk,
    flow: &Flow,
    socket: &TcpStream,
    record: &Record,
) -> Result<Received, Failure> {
    let mut inward = Inward::new(record);
    let mut ahead: VecDeque<Ahead> = VecDeque::new();
    let (mut delivered, mut told) = (0, 0);
    let mut end = None;
    loop {
        let Some(first) = ahead.front() else {
            match &end {
                Some(Arrived::Reset) => return Ok(Received::Reset),
                Some(_) => break,
                None => {}
            }
            match flow.next().await {
                Arrived::Part(sequence, part) => {
                    record
                        .wire_bytes
                        .fetch_add(flow.wire_received.swap(0, Ordering::Relaxed), Ordering::Relaxed);
                    ahead.push_back(inward.part(trunk, flow, sequence, part).await.map_err(Failure::Flow)?);
                }
                over => end = Some(over),
            }
            continue;
        };
        let (bytes, cost) = (first.bytes, first.cost);
        match &first.what {
            What::Nothing => {}
            What::Plain(plain) => deliver(socket, plain).await.map_err(Failure::Socket)?,
            What::Decoded(decoded) => deliver(socket, decoded).await.map_err(Failure::Socket)?,
            What::Asked(sequence, wanted) => {
                let (sequence, wanted) = (*sequence, *wanted);
                let answer = tokio::select! {
                    biased;
                    answer = flow.answer_to(sequence) => answer,
                    next = flow.next(), if end.is_none() && ahead.len() < ASKS_MAX => {
                        match next {
                            Arrived::Part(sequence, part) => {
                                let part = inward.part(trunk, flow, sequence, part).await;
                                ahead.push_back(part.map_err(Failure::Flow)?);
                            }
                            over => end = Some(over),
                        }
                        continue;
                    }
                };
                let decoded = decode_answer(trunk, answer, wanted).await.map_err(Failure::Flow)?;
                deliver(socket, &decoded).await.map_err(Failure::Socket)?;
            }
        }
        ahead.pop_front();
        record.original_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        record.content.inward.shows(bytes, inward.content.verdict());
        delivered += 1;
        let credit = flow.window.lock().consumed(cost, trunk.rtt_seconds());
        // Also of many small parts, and of a rest: the far side keeps something until then.
        if credit.is_some() || bytes == 0 || delivered - told >= TELL_PARTS {
            let credit = credit.unwrap_or(0);
            flow.inbox.lock().allow(credit);
            trunk.send(Frame::numbers(Kind::Credit, flow.id, &[credit, delivered]));
            told = delivered;
        }
    }
    match SockRef::from(socket).shutdown(std::net::Shutdown::Write) {
        // The client has gone meanwhile; all that it wanted to have, it has.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
        result => result.map_err(Failure::Socket)?,
    }
    trunk.send(Frame::bare(Kind::Done, flow.id));
    Ok(Received::All)
}

async fn deliver(socket: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        socket.writable().await?;
        match socket.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What one direction is decoded with.
struct Inward {
    decoder: Option<StreamDecoder>,
    /// It has a history of literals: megabytes.
    history: Option<OwnedSemaphorePermit>,
    /// What is shown of it.
    content: Content,
}

impl Inward {
    fn new(record: &Record) -> Inward {
        Inward { decoder: None, history: None, content: Content::new(record.negotiated()) }
    }

    /// What comes next is decoded anew.
    fn rest(&mut self) {
        self.decoder = None;
        self.history = None;
    }

    /// A part, decoded, or asked for where that cannot be done with what is here.
    async fn part(&mut self, trunk: &Trunk, flow: &Flow, sequence: u64, part: Part) -> io::Result<Ahead> {
        let (bytes, cost) = (part.bytes(), part.cost());
        let what = match part {
            Part::Plain(plain) => {
                self.content.looks_at(&plain);
                What::Plain(plain)
            }
            Part::Block { block, bytes, is_alone } => {
                self.content.measures(bytes, block.len());
                match self.decode(trunk, block, bytes, is_alone).await? {
                    Ok(decoded) => What::Decoded(decoded),
                    Err((missing, wanted)) => {
                        flow.asks(sequence, wanted.stream_bytes());
                        trunk.send(Frame {
                            kind: Kind::Ask,
                            flow: flow.id,
                            body: ask_body(sequence, missing),
                        });
                        What::Asked(sequence, wanted)
                    }
                }
            }
            Part::Rest(returned) => {
                flow.window.lock().rests(returned);
                self.rest();
                What::Nothing
            }
        };
        Ok(Ahead { bytes, cost, what })
    }

    /// The bytes that a block stands for, or what is missing.
    async fn decode(
        &mut self,
        trunk: &Trunk,
        block: Bytes,
        bytes: usize,
        is_alone: bool,
    ) -> io::Result<Result<Vec<u8>, (Option<ChunkName>, Wanted)>> {
        let store = store_of(trunk)?;
        if let Some(window_log) = window_log_of(&block) {
            if is_alone && window_log > WINDOW_LOG_ALONE {
                return Err(io::Error::other("a block alone with more history than it can have"));
            }
            if !is_alone {
                self.history = Some(trunk.received_history(self.history.take(), window_log)?);
            }
        }
        let mut decoder = self
            .decoder
            .take()
            .unwrap_or_else(|| StreamDecoder::new(store.realm.clone()).telling(Arc::clone(&store.known)));
        let work = move || {
            let mut decoded = Vec::with_capacity(bytes);
            let result = decoder.decode(&block, &mut decoded);
            if is_alone {
                decoder.drop_history();
            }
            (decoder, result, decoded)
        };
        let (decoder, result, decoded) = on_a_core(store, bytes, work).await?;
        self.decoder = Some(decoder);
        match result {
            Ok(()) => Ok(Ok(decoded)),
            Err(DecodeError::Again { missing, wanted }) => Ok(Err((missing, wanted))),
            Err(DecodeError::Malformed(what)) => Err(io::Error::other(format!("a malformed block: {what}"))),
        }
    }
}

fn store_of(trunk: &Trunk) -> io::Result<&Arc<PeerStore>> {
    trunk.store().ok_or_else(|| io::Error::other("a block, and there is no chunk store here"))
}

/// The bytes that were asked for.
async fn decode_answer(trunk: &Trunk, answer: Bytes, wanted: Wanted) -> io::Result<Vec<u8>> {
    let store = store_of(trunk)?;
    let realm = store.realm.clone();
    let work = move || {
        let mut decoded = Vec::with_capacity(wanted.stream_bytes());
        let result = StreamDecoder::new(realm).decode_answer(&answer, &wanted, &mut decoded);
        result.map(|()| decoded)
    };
    let decoded = on_a_core(store, wanted.stream_bytes(), work).await?;
    decoded.map_err(|error| io::Error::other(error.to_string()))
}
