//! From the socket to the trunk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use farside_chunks::stream::BLOCK_BYTES_MAX;
use farside_chunks::{StreamEncoder, StreamSettings};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::cores::on_a_core;
use crate::connections::Record;
use crate::flow::Flow;
use crate::policy::Action;
use crate::protocol::{Frame, Kind, PLAIN_MAX};
use crate::store::PeerStore;
use crate::trunk::{Encoded, Stream, Trunk};

/// A flow that has sent more than this without a pause has much to send: it leaves the stream of those that must not wait.
const BURST: usize = 64 << 10;
/// What counts as a pause: half a round trip, between these. Who waits for an answer each time has little to send.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// How long a flow that has much to send is waited for, so that its chunks end where its content says so. One that says little
/// is not waited for at all.
const GATHER_FOR: Duration = Duration::from_millis(2);
/// Bytes that a block stands for at first. Where blocks get small they grow, up to a MiB: fewer are cheaper; where they do not,
/// others would have to wait for them.
const GATHER_FIRST: usize = 64 << 10;
/// Blocks on the wire are made to be between these, bytes.
const ON_THE_WIRE: (usize, usize) = (16 << 10, 96 << 10);
/// Blocks that stand for less are encoded where they are: a thread of its own costs more.
const ENCODED_HERE: usize = 8 << 10;
/// So many blocks are encoded with the same settings.
const SETTINGS_EVERY: u64 = 32;
/// A history of literals that has not been used for so long ends: it takes megabytes at both sides.
const HISTORY_FOR: Duration = Duration::from_secs(2);

/// What one direction is encoded with.
pub(super) struct Sender {
    /// None: bytes go as they are.
    coder: Option<Coder>,
}

#[derive(Clone)]
struct Coder {
    store: Arc<PeerStore>,
    encoder: Arc<Mutex<StreamEncoder>>,
    action: Action,
}

impl Sender {
    /// For what is done for the connection.
    pub(super) fn new(trunk: &Trunk, action: Action) -> Sender {
        let coder = trunk.store().filter(|_| action.compresses() || action.refers()).map(|store| {
            let settings = settings(trunk, action);
            let encoder = StreamEncoder::new(store.realm.clone(), Arc::clone(&store.known), settings);
            Coder { store: Arc::clone(store), encoder: Arc::new(Mutex::new(encoder)), action }
        });
        Sender { coder }
    }

    /// Answers what the far side asks for, as long as the flow lives.
    pub(super) async fn answer(&self, trunk: &Trunk, flow: &Flow, record: &Record) -> io::Result<()> {
        loop {
            let asked = flow.next_asked().await;
            let Some(Coder { store, encoder, .. }) = self.coder.clone() else {
                return Err(io::Error::other("a block is asked for where there was none"));
            };
            let kept = flow.kept.lock().blocks.get(&asked.sequence).cloned();
            let Some(bytes) = kept else {
                return Err(io::Error::other("a block is asked for that is not kept"));
            };
            let answer = on_a_core(&store, bytes.len(), ENCODED_HERE, move || {
                let mut encoder = encoder.lock();
                encoder.heed_missing(asked.missing);
                let mut answer = Vec::new();
                encoder.answer(&bytes, &mut answer);
                answer
            });
            let frame = Frame::with_bytes(Kind::Answer, flow.id, asked.sequence, &answer.await?);
            record.wire_bytes.fetch_add(frame.wire_bytes(), Ordering::Relaxed);
            record.sent.add(0, frame.wire_bytes());
            trunk.send_answer(frame).await?;
        }
    }
}

fn pause_of(trunk: &Trunk) -> Duration {
    let half = Duration::from_secs_f64(trunk.rtt_seconds().unwrap_or(0.0).clamp(0.0, 10.0) / 2.0);
    half.clamp(PAUSE.0, PAUSE.1)
}

fn settings(trunk: &Trunk, action: Action) -> StreamSettings {
    StreamSettings { refers: action.refers(), compresses: action.compresses(), ..trunk.stream_settings() }
}

/// What of a flow is on its way out.
struct Outward {
    /// Gathered and not sent.
    pending: BytesMut,
    is_ended: bool,
    /// Sent without a pause.
    burst: usize,
    /// How much is gathered before it is sent.
    wanted: usize,
    sequence: u64,
    /// A history of literals is at the far side.
    history: Option<OwnedSemaphorePermit>,
    /// The far side keeps memory for what was sent since the last rest.
    is_fresh: bool,
}

/// Sends all that comes, and then the end.
pub(super) async fn send(
    trunk: &Trunk,
    flow: &Flow,
    socket: &TcpStream,
    record: &Record,
    sender: &Sender,
) -> io::Result<()> {
    let mut out = Outward {
        pending: BytesMut::new(),
        is_ended: false,
        burst: 0,
        wanted: if sender.coder.is_some() { GATHER_FIRST } else { PLAIN_MAX },
        sequence: 0,
        history: None,
        is_fresh: false,
    };
    loop {
        let slot = Arc::clone(&flow.slot).acquire_owned().await.map_err(io::Error::other)?;
        let is_flush = gather(trunk, flow, socket, sender, &mut out).await?;
        if out.pending.is_empty() {
            break;
        }
        let room = usize::try_from(flow.room(out.sequence).await).unwrap_or(usize::MAX);
        let taken = out.pending.len().min(room).min(BLOCK_BYTES_MAX);
        // What there is no room for yet must not keep what comes before it.
        let is_flush = is_flush || taken < out.pending.len();
        let bytes = out.pending.split_to(taken).freeze();
        let (frame, encoded, sent) = match &sender.coder {
            None => (Frame::with_bytes(Kind::Data, flow.id, out.sequence, &bytes), None, taken),
            Some(coder) => encode(trunk, flow, coder, &mut out, bytes, is_flush).await?,
        };
        if sent == 0 {
            continue;
        }
        flow.spend(sent);
        record.original_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        record.wire_bytes.fetch_add(frame.wire_bytes(), Ordering::Relaxed);
        record.sent.add(sent as u64, frame.wire_bytes());
        out.burst = out.burst.saturating_add(sent);
        out.sequence += 1;
        let stream = if out.burst > BURST { Stream::Bulk } else { Stream::Urgent };
        trunk.send_part(stream, frame, encoded, slot).await?;
    }
    trunk.send(Frame::number(Kind::Fin, flow.id, out.sequence));
    Ok(())
}

/// Reads until there is as much as is wanted, or nothing more comes for now. Whether what is there is to be sent to its last byte.
async fn gather(
    trunk: &Trunk,
    flow: &Flow,
    socket: &TcpStream,
    sender: &Sender,
    out: &mut Outward,
) -> io::Result<bool> {
    let pause = pause_of(trunk);
    let mut until = Instant::now();
    while !out.is_ended && out.pending.len() < out.wanted {
        let read = if out.pending.is_empty() {
            // Only the time in which the client says nothing is a pause of the flow's: the wait for a turn or for credit is not.
            let since = Instant::now();
            let read = match tokio::time::timeout(HISTORY_FOR, read(socket, out)).await {
                Ok(read) => read?,
                Err(_) => {
                    rest(trunk, flow, sender, out);
                    read(socket, out).await?
                }
            };
            if since.elapsed() > pause {
                out.burst = 0;
            }
            // From the first byte on: who writes a little all the time does not wait for all of it.
            until = Instant::now() + GATHER_FOR;
            read
        } else {
            // A timer takes a millisecond at least: who says little is not to wait for one.
            let read = match read_now(socket, out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && out.burst <= BURST => {
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match tokio::time::timeout_at(until, read(socket, out)).await {
                        Ok(read) => read,
                        Err(_) => return Ok(true),
                    }
                }
                read => read,
            };
            read?
        };
        out.is_ended = read == 0;
    }
    Ok(out.is_ended)
}

/// Appends what the socket has, up to what is wanted; zero at its end.
async fn read(socket: &TcpStream, out: &mut Outward) -> io::Result<usize> {
    loop {
        socket.readable().await?;
        match read_now(socket, out) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// The same without waiting. A buffer is there only once there is something to read: ten thousand idle connections have none.
fn read_now(socket: &TcpStream, out: &mut Outward) -> io::Result<usize> {
    let room = out.wanted.saturating_sub(out.pending.len()).max(1);
    // A chat of single bytes does not take 64 KiB for each.
    out.pending.reserve(if out.burst == 0 { room.min(4096) } else { room });
    let free = room.min(out.pending.capacity() - out.pending.len());
    socket.try_read_buf(&mut (&mut out.pending).limit(free))
}

/// The flow says nothing: what is kept in memory for it ends, at both sides.
fn rest(trunk: &Trunk, flow: &Flow, sender: &Sender, out: &mut Outward) {
    out.pending = BytesMut::new();
    let Some(coder) = &sender.coder else { return };
    {
        let mut encoder = coder.encoder.lock();
        // Its place in the store too: a directory and a file.
        encoder.drop_history();
        encoder.set(settings(trunk, coder.action));
    }
    let permit = out.history.take();
    if std::mem::take(&mut out.is_fresh) {
        trunk.send(Frame::number(Kind::Rest, flow.id, out.sequence));
        // The far side has its history until then.
        flow.rests_at(out.sequence, permit);
        out.sequence += 1;
    }
}

/// Makes a block of as much of `bytes` as makes whole chunks; the rest is put back.
async fn encode(
    trunk: &Trunk,
    flow: &Flow,
    coder: &Coder,
    out: &mut Outward,
    bytes: Bytes,
    is_flush: bool,
) -> io::Result<(Frame, Option<Encoded>, usize)> {
    if out.history.is_none() && coder.action.compresses() {
        out.history = trunk.history_permit();
    }
    let is_alone = out.history.is_none();
    out.is_fresh |= !is_alone || !coder.action.compresses();
    // With other settings its history begins anew: not with every block.
    let anew = out.sequence.is_multiple_of(SETTINGS_EVERY).then(|| settings(trunk, coder.action));
    let effort = trunk.effort();
    let began = Instant::now();
    let (encoder, input) = (Arc::clone(&coder.encoder), bytes.clone());
    let work = move || {
        let mut encoder = encoder.lock();
        if let Some(anew) = anew {
            encoder.set(anew);
        }
        let mut block = Vec::new();
        let encoded = encoder.encode(&input, is_flush, &mut block);
        if is_alone {
            encoder.drop_history();
        }
        (encoded, block)
    };
    let (encoded, block) = on_a_core(&coder.store, bytes.len(), ENCODED_HERE, work).await?;
    let sent = encoded.consumed;
    if sent < bytes.len() {
        let mut rest = BytesMut::with_capacity(bytes.len() - sent + out.pending.len());
        rest.put_slice(&bytes[sent..]);
        rest.put_slice(&out.pending);
        out.pending = rest;
    }
    if sent == bytes.len() && sent >= out.wanted && block.len() < ON_THE_WIRE.0 {
        out.wanted = (2 * out.wanted).min(BLOCK_BYTES_MAX);
    } else if block.len() > ON_THE_WIRE.1 {
        out.wanted = (out.wanted / 2).max(GATHER_FIRST);
    }
    if encoded.may_be_asked_for() {
        flow.keep(out.sequence, bytes.slice(..sent))?;
    }
    let literals = sent - encoded.referred;
    let shown = Encoded { effort, literal_bytes: literals as u64, encoding: began.elapsed() };
    let kind = if is_alone { Kind::BlockAlone } else { Kind::Block };
    let frame = Frame::with_bytes(kind, flow.id, out.sequence, &block);
    Ok((frame, Some(shown), sent))
}
