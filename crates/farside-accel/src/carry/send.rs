//! From the socket to the trunk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use farside_chunks::cut::CHUNK_MAX;
use farside_chunks::stream::BLOCK_BYTES_MAX;
use farside_chunks::{ChunkName, StreamEncoder, StreamSettings};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::content::{Content, SAMPLE, Way};
use super::cores::unless_slow;
use crate::connections::Record;
use crate::flow::Flow;
use crate::policy::Action;
use crate::protocol::{Frame, Kind, PLAIN_MAX};
use crate::store::PeerStore;
use crate::trunk::{Encoded, History, Stream, Trunk};

/// A flow that has sent more than this without a pause has much to send: it leaves the stream of those that must not wait.
const BURST: usize = 64 << 10;
/// What counts as a pause: half a round trip, between these. Who waits for an answer each time has little to send.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// How long a flow that has much to send is waited for, so that its chunks end where its content says so. One that says little
/// is not waited for at all.
const GATHER_FOR: Duration = Duration::from_millis(2);
/// More than two packets at once are seldom all: a flow that begins so is waited for too, so that its beginning is cut by its
/// content and not by how its packets came.
const BEGINS_WITH_MUCH: usize = 2 * 1460;
/// But only where this share of a round trip is a millisecond or more, and the wait is hardly seen.
const GATHER_SHARE: f64 = 1.0 / 16.0;
/// Bytes that a block stands for at first. Where blocks get small they grow, up to a MiB: fewer are cheaper; where they do not,
/// others would have to wait for them.
const GATHER_FIRST: usize = 64 << 10;
/// Blocks on the wire are made to be between these, bytes.
const ON_THE_WIRE: (usize, usize) = (16 << 10, 96 << 10);
/// What the far side has found missing and the encoder was not told yet.
const MISSING_MAX: usize = 64;
/// So many blocks are encoded with the same settings.
const SETTINGS_EVERY: u64 = 32;
/// A flow that has sent so much without a pause may have a long history of literals.
const LONG_AFTER: usize = 1 << 20;
/// A history of literals that has not been used for so long ends: it takes megabytes at both sides.
const HISTORY_FOR: Duration = Duration::from_secs(2);

/// What one direction is encoded with.
pub(super) struct Sender {
    /// None: bytes go as they are.
    coder: Option<Coder>,
}

struct Coder {
    store: Arc<PeerStore>,
    action: Action,
    /// What the far side has found missing since the last block was encoded.
    missing: Mutex<Vec<Option<ChunkName>>>,
}

impl Coder {
    fn encoder(&self, settings: StreamSettings) -> StreamEncoder {
        StreamEncoder::new(self.store.realm.clone(), Arc::clone(&self.store.known), settings)
    }
}

impl Sender {
    /// For what is done for the connection.
    pub(super) fn new(trunk: &Trunk, action: Action) -> Sender {
        let store = trunk.store().filter(|_| action.compresses() || action.refers());
        let coder = store.map(|store| Coder { store: Arc::clone(store), action, missing: Mutex::default() });
        Sender { coder }
    }

    /// What its bytes are worth: nothing where there is no store.
    fn action(&self) -> Action {
        self.coder.as_ref().map_or(Action::Transport, |coder| coder.action)
    }

    /// Answers what the far side asks for, as long as the flow lives.
    pub(super) async fn answer(&self, trunk: &Trunk, flow: &Flow, record: &Record) -> io::Result<()> {
        loop {
            let asked = flow.next_asked().await;
            let Some(coder) = &self.coder else {
                return Err(io::Error::other("a block is asked for where there was none"));
            };
            let kept = flow.kept.lock().blocks.get(&asked.sequence).cloned();
            let Some(bytes) = kept else {
                return Err(io::Error::other("a block is asked for that is not kept"));
            };
            {
                let mut missing = coder.missing.lock();
                if missing.len() == MISSING_MAX {
                    // That stands for all.
                    *missing = vec![None];
                }
                missing.push(asked.missing);
            }
            let settings = settings(trunk, coder.action, None);
            let answerer = |settings| {
                let (mut encoder, bytes) = (coder.encoder(settings), bytes.clone());
                move || {
                    encoder.heed_missing(asked.missing);
                    let mut answer = Vec::new();
                    encoder.answer(&bytes, &mut answer);
                    answer
                }
            };
            let answer = match unless_slow(&coder.store, bytes.len(), answerer(settings)).await? {
                Some(answer) => answer,
                // Without the store: nobody is to wait for a disk that has nothing to do with it.
                None => answerer(StreamSettings { refers: false, compresses: false, ..settings })(),
            };
            let frame = Frame::with_bytes(Kind::Answer, flow.id, asked.sequence, &answer);
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

fn settings(trunk: &Trunk, action: Action, history: Option<&History>) -> StreamSettings {
    StreamSettings {
        refers: action.refers(),
        compresses: action.compresses(),
        ..trunk.stream_settings(history)
    }
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
    /// What is worth doing for it.
    content: Content,
    /// Made when it is needed, and lost with a store that does not keep up.
    encoder: Option<StreamEncoder>,
    /// The far side has to decode anew.
    is_lost: bool,
    /// What the encoder was told last.
    told: StreamSettings,
    /// What it is told where literals are compressed with a history.
    settings: StreamSettings,
    /// A history of literals is at the far side.
    history: Option<History>,
    /// The far side keeps memory for what was sent since the last rest.
    is_fresh: bool,
}

/// Sends all that comes. How many parts that were; `broken` if they end with a reset.
pub(super) async fn send(
    trunk: &Trunk,
    flow: &Flow,
    socket: &TcpStream,
    record: &Record,
    sender: &Sender,
    broken: &CancellationToken,
) -> io::Result<u64> {
    let mut out = Outward {
        pending: BytesMut::new(),
        is_ended: false,
        burst: 0,
        wanted: if sender.coder.is_some() { GATHER_FIRST } else { PLAIN_MAX },
        sequence: 0,
        content: Content::new(sender.action()),
        encoder: None,
        is_lost: false,
        told: settings(trunk, sender.action(), None),
        settings: settings(trunk, sender.action(), None),
        history: None,
        is_fresh: false,
    };
    loop {
        let slot = Arc::clone(&flow.slot).acquire_owned().await.map_err(io::Error::other)?;
        let is_flush = gather(trunk, flow, socket, sender, &mut out).await.unwrap_or_else(|_| {
            // What has come before is sent.
            broken.cancel();
            out.is_ended = true;
            true
        });
        if out.pending.is_empty() {
            break;
        }
        let wanted = out.pending.len().min(CHUNK_MAX);
        let room = usize::try_from(flow.room(out.sequence, wanted as u64).await).unwrap_or(usize::MAX);
        out.content.looks_at(&out.pending);
        let is_slow = sender.coder.as_ref().is_some_and(|coder| coder.store.pace.is_slow());
        let way = if is_slow { Way::AsIs } else { out.content.way(out.burst == 0) };
        if out.is_lost && way != Way::AsIs {
            begin_anew(trunk, flow, sender, &mut out);
        }
        let most = match way {
            Way::AsIs => PLAIN_MAX,
            Way::Sample => SAMPLE,
            Way::Chunks | Way::Full => BLOCK_BYTES_MAX,
        };
        let taken = out.pending.len().min(room).min(most);
        // A chunk that ends where there is no room for more ends where its content does not say so, and is not found again.
        let is_cut = taken == room && taken < out.pending.len();
        let is_flush = is_flush && taken == out.pending.len();
        let bytes = out.pending.split_to(taken).freeze();
        let (frame, encoded, sent) = match &sender.coder {
            Some(coder) if way != Way::AsIs => {
                let mut encoded = encode(trunk, flow, coder, &mut out, way, &bytes, is_flush).await?;
                if is_cut && matches!(encoded, Some((_, _, 0))) {
                    // What there is no room for yet must not keep what comes before it.
                    out.pending.advance(taken);
                    encoded = encode(trunk, flow, coder, &mut out, way, &bytes, true).await?;
                }
                match encoded {
                    Some(encoded) => encoded,
                    None => {
                        put_back(&bytes, &mut out);
                        continue;
                    }
                }
            }
            _ => (Frame::with_bytes(Kind::Data, flow.id, out.sequence, &bytes), None, taken),
        };
        if sent == 0 {
            continue;
        }
        let literals = encoded.map_or(sent, |encoded| encoded.literal_bytes as usize);
        out.content.went(way, sent, literals, frame.body.len());
        record.content.outward.shows(sent, out.content.verdict());
        flow.spend(sent);
        record.original_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        record.wire_bytes.fetch_add(frame.wire_bytes(), Ordering::Relaxed);
        record.sent.add(sent as u64, frame.wire_bytes());
        out.burst = out.burst.saturating_add(sent);
        out.sequence += 1;
        let stream = if out.burst > BURST { Stream::Bulk } else { Stream::Urgent };
        trunk.send_part(stream, frame, encoded, slot).await?;
        if way == Way::Full && out.content.verdict().is_some() {
            // Its memory is of no more use, at both sides.
            begin_anew(trunk, flow, sender, &mut out);
        }
    }
    // The far side has its history until it has come to the end.
    flow.rests_at(out.sequence.saturating_sub(1), out.history.take());
    Ok(out.sequence)
}

/// How much is gathered: no more than the far side has room for, so that the hosts of connections that nobody reads fill no more memory
/// here than there. But what makes a chunk whatever it is.
fn gathered_most(wanted: usize, credit: u64) -> usize {
    wanted.min(usize::try_from(credit).unwrap_or(usize::MAX).max(CHUNK_MAX))
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
    // A timer takes a millisecond at least: on a near link nobody is waited for.
    let worth_waiting = trunk.rtt_seconds().unwrap_or(0.0) * GATHER_SHARE >= 1e-3;
    let mut until = Instant::now();
    let most = gathered_most(out.wanted, flow.credit());
    while !out.is_ended && out.pending.len() < most {
        let read = if out.pending.is_empty() {
            // Only the time in which the client says nothing is a pause of the flow's: the wait for a turn or for credit is not.
            let since = Instant::now();
            let read = match tokio::time::timeout(HISTORY_FOR, read(socket, most, out)).await {
                Ok(read) => read?,
                Err(_) => {
                    rest(trunk, flow, sender, out);
                    read(socket, most, out).await?
                }
            };
            if since.elapsed() > pause {
                out.burst = 0;
            }
            // From the first byte on: who writes a little all the time does not wait for all of it.
            until = Instant::now() + GATHER_FOR;
            read
        } else {
            // Who says little is not to wait for a timer.
            let is_little = out.burst <= BURST && !(worth_waiting && out.pending.len() > BEGINS_WITH_MUCH);
            let read = match read_now(socket, most, out) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_little => {
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match tokio::time::timeout_at(until, read(socket, most, out)).await {
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

/// Appends what the socket has, up to `most` in all; zero at its end.
async fn read(socket: &TcpStream, most: usize, out: &mut Outward) -> io::Result<usize> {
    loop {
        socket.readable().await?;
        match read_now(socket, most, out) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// The same without waiting. A buffer is there only once there is something to read: ten thousand idle connections have none.
fn read_now(socket: &TcpStream, most: usize, out: &mut Outward) -> io::Result<usize> {
    let room = most.saturating_sub(out.pending.len()).max(1);
    // A chat of single bytes does not take 64 KiB for each.
    out.pending.reserve(if out.burst == 0 { room.min(4096) } else { room });
    let free = room.min(out.pending.capacity() - out.pending.len());
    socket.try_read_buf(&mut (&mut out.pending).limit(free))
}

/// The flow says nothing: what is kept for it ends, at both sides.
fn rest(trunk: &Trunk, flow: &Flow, sender: &Sender, out: &mut Outward) {
    out.pending = BytesMut::new();
    let returned = flow.return_credit();
    if returned > 0 || out.is_fresh {
        say_rest(trunk, flow, sender, returned, out);
    }
}

/// What comes next is encoded and decoded anew.
fn begin_anew(trunk: &Trunk, flow: &Flow, sender: &Sender, out: &mut Outward) {
    if out.is_fresh {
        say_rest(trunk, flow, sender, 0, out);
    }
}

fn say_rest(trunk: &Trunk, flow: &Flow, sender: &Sender, returned: u64, out: &mut Outward) {
    // Its place in the store too: a directory and a file.
    (out.encoder, out.is_lost, out.is_fresh) = (None, false, false);
    // A block without a history before it must not have the window of a long one: the far side would refuse it.
    out.settings = settings(trunk, sender.action(), None);
    trunk.send(Frame::numbers(Kind::Rest, flow.id, &[out.sequence, returned]));
    // The far side has its history until then.
    flow.rests_at(out.sequence, out.history.take());
    out.sequence += 1;
}

/// What was not sent comes first again.
fn put_back(bytes: &[u8], out: &mut Outward) {
    let mut rest = BytesMut::with_capacity(bytes.len() + out.pending.len());
    rest.put_slice(bytes);
    rest.put_slice(&out.pending);
    out.pending = rest;
}

impl Outward {
    /// What the encoder is told for a part that goes that way.
    fn settings(&self, way: Way) -> StreamSettings {
        match way {
            Way::Full => self.settings,
            Way::Sample => StreamSettings { level: 1, compresses: true, ..self.settings },
            Way::Chunks | Way::AsIs => StreamSettings { compresses: false, ..self.settings },
        }
    }
}

/// Makes a block of as much of `bytes` as makes whole chunks; the rest is put back. None if the store does not keep up.
async fn encode(
    trunk: &Trunk,
    flow: &Flow,
    coder: &Coder,
    out: &mut Outward,
    way: Way,
    bytes: &Bytes,
    is_flush: bool,
) -> io::Result<Option<(Frame, Option<Encoded>, usize)>> {
    if out.history.is_none() && way == Way::Full {
        out.history = trunk.history();
    }
    let is_alone = out.history.is_none();
    // One that is not compressed has no history; its place in the store is worth keeping.
    let is_forgotten = is_alone && way != Way::Chunks;
    out.is_fresh = true;
    // With other settings its history begins anew: not with every block.
    let is_turn = out.sequence.is_multiple_of(SETTINGS_EVERY);
    if let Some(history) = out.history.as_mut().filter(|_| is_turn && out.burst > LONG_AFTER) {
        trunk.lengthen(history);
    }
    if is_turn {
        out.settings = settings(trunk, coder.action, out.history.as_ref());
    }
    let told = out.settings(way);
    let anew = (told != out.told).then_some(told);
    out.told = told;
    let effort = trunk.effort(out.history.as_ref());
    let began = Instant::now();
    let (mut encoder, input) = (out.encoder.take().unwrap_or_else(|| coder.encoder(told)), bytes.clone());
    let missing = std::mem::take(&mut *coder.missing.lock());
    let sequence = out.sequence;
    let work = move || {
        missing.into_iter().for_each(|missing| encoder.heed_missing(missing));
        if let Some(anew) = anew {
            encoder.set(anew);
        }
        // Behind the number of the part: it is not copied once more.
        let mut block = Frame::body_of(sequence);
        let encoded = encoder.encode(&input, is_flush, &mut block);
        if is_forgotten {
            encoder.drop_history();
        }
        (encoder, encoded, block)
    };
    let Some((encoder, encoded, block)) = unless_slow(&coder.store, bytes.len(), work).await? else {
        tracing::debug!("the chunk store does not keep up; a connection goes on without it");
        out.is_lost = true;
        return Ok(None);
    };
    out.encoder = Some(encoder);
    let sent = encoded.consumed;
    if sent < bytes.len() {
        put_back(&bytes[sent..], out);
    }
    // The last chunk of a block waits for its end in the next one, so that hardly any block takes all.
    if bytes.len() >= out.wanted && block.len() < ON_THE_WIRE.0 {
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
    let frame = Frame { kind, flow: flow.id, body: block.into() };
    Ok(Some((frame, Some(shown), sent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_gathered_than_the_far_side_has_room_for() {
        assert_eq!(gathered_most(1 << 20, 16 << 20), 1 << 20);
        assert_eq!(gathered_most(1 << 20, 100_000), 100_000);
        // What makes a chunk: less would end chunks where their content does not say so.
        assert_eq!(gathered_most(1 << 20, 0), CHUNK_MAX);
        assert_eq!(gathered_most(GATHER_FIRST, u64::MAX), GATHER_FIRST);
    }
}
