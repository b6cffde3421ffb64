//! From the trunk to the socket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use farside_chunks::StreamDecoder;
use farside_chunks::stream::DecodeError;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

use super::content::Content;
use super::cores::on_a_core;
use crate::connections::Record;
use crate::flow::{Arrived, Flow, Part};
use crate::protocol::{Frame, Kind, ask_body};
use crate::trunk::Trunk;

/// Blocks that stand for less are decoded where they are: a thread of its own costs more.
const DECODED_HERE: usize = 16 << 10;

/// The far side is told after so many parts, however small they are.
const TELL_PARTS: u64 = 1024;

/// Delivers all that comes, and then the end.
pub(super) async fn receive(
    trunk: &Trunk,
    flow: &Flow,
    socket: &TcpStream,
    record: &Record,
) -> io::Result<()> {
    let mut inward = Inward::default();
    let mut content = Content::new(record.negotiated());
    let (mut delivered, mut told) = (0, 0);
    while let Arrived::Part(sequence, part) = flow.next().await {
        record.wire_bytes.fetch_add(flow.wire_received.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        let bytes = part.bytes();
        match part {
            Part::Plain(plain) => {
                content.looks_at(&plain);
                deliver(socket, &plain).await?;
            }
            Part::Block { block, bytes, is_alone } => {
                content.measures(bytes, block.len());
                let decoded = inward.decode(trunk, flow, sequence, block, bytes, is_alone).await?;
                deliver(socket, &decoded).await?;
            }
            Part::Rest => inward.rest(),
        }
        record.original_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        record.content.inward.shows(bytes, content.verdict());
        delivered += 1;
        let credit = flow.window.lock().consumed(bytes, trunk.rtt_seconds());
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
        result => result?,
    }
    trunk.send(Frame::bare(Kind::Done, flow.id));
    Ok(())
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
#[derive(Default)]
struct Inward {
    decoder: Option<StreamDecoder>,
    /// It has a history of literals: megabytes.
    history: Option<OwnedSemaphorePermit>,
}

impl Inward {
    fn rest(&mut self) {
        if let Some(decoder) = &mut self.decoder {
            decoder.drop_history();
        }
        self.history = None;
    }

    /// The bytes that a block stands for; asks the far side for them if they cannot be made of what is here.
    async fn decode(
        &mut self,
        trunk: &Trunk,
        flow: &Flow,
        sequence: u64,
        block: Bytes,
        bytes: usize,
        is_alone: bool,
    ) -> io::Result<Vec<u8>> {
        let Some(store) = trunk.store() else {
            return Err(io::Error::other("a block, and there is no chunk store here"));
        };
        if !is_alone && self.history.is_none() {
            self.history = Some(trunk.received_history()?);
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
        let (decoder, result, decoded) = on_a_core(store, bytes, DECODED_HERE, work).await?;
        let result = match result {
            Ok(()) => Ok(decoded),
            Err(DecodeError::Malformed(what)) => Err(io::Error::other(format!("a malformed block: {what}"))),
            Err(DecodeError::Again { missing, wanted }) => {
                flow.asks();
                trunk.send(Frame { kind: Kind::Ask, flow: flow.id, body: ask_body(sequence, missing) });
                let (answered, answer) = flow.next_answer().await;
                if answered != sequence {
                    return Err(io::Error::other("an answer to what was not asked"));
                }
                let mut decoded = Vec::with_capacity(wanted.stream_bytes());
                let result = decoder.decode_answer(&answer, &wanted, &mut decoded);
                result.map(|()| decoded).map_err(|error| io::Error::other(error.to_string()))
            }
        };
        self.decoder = Some(decoder);
        result
    }
}
