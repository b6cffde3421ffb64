//! A trunk, as its own tasks and the flows on it share it.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use farside_chunks::StreamSettings;
use farside_chunks::stream::stream_bytes_of;
use farside_peer::{PeerId, PeerLink};
use farside_wire::Effort;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::background::Background;
use super::effort::{Cores, Efforts, Encoded, History};
use super::header::Stream;
use crate::figures::Figures;
use crate::flow::{Asked, Flow, Part, Windows};
use crate::policy::Demotion;
use crate::protocol::{Frame, Hello, Kind, Opened, PLAIN_MAX, Refused, VERSION, parse_ask};
use crate::store::PeerStore;

/// Parts of all flows that may be queued for a trunk, bytes. Each flow has one at most.
const QUEUED_MAX: usize = 8 << 20;
/// Flows of a trunk.
pub(crate) const FLOWS_MAX: usize = 20_000;
/// Small frames that may wait for a peer that does not read: three for each flow, and some. More come only of one that asks for
/// answers and does not take them.
pub(super) const SMALL_MAX: usize = 4 * FLOWS_MAX;
/// Hints are not queued behind more small frames than this.
const HINTS_BELOW: usize = 1024;
/// How often a peer that says nothing is asked whether it is there, while somebody waits for it.
const PING_EVERY: Duration = Duration::from_millis(500);

/// A frame on its way out. What it holds of bounds goes with it.
pub(super) struct Outgoing {
    pub(super) frame: Frame,
    pub(super) encoded: Option<Encoded>,
    /// When it was queued, less what its encoding took; none for what is no part of a flow.
    since: Option<Instant>,
    /// The flow's own place in the queue.
    _slot: Option<OwnedSemaphorePermit>,
    /// Its bytes in the queue.
    _queued: Option<OwnedSemaphorePermit>,
    /// The turn of what gives way.
    _turn: Option<OwnedSemaphorePermit>,
    /// Counted among the small frames that wait.
    small: Option<Arc<AtomicUsize>>,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(small) = &self.small {
            small.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Two data streams of a session that carry the flows which one of the two boxes opens.
pub struct Trunk {
    /// The box at the other end.
    pub peer: PeerId,
    /// What it is called here.
    pub peer_name: String,
    link: Arc<dyn PeerLink>,
    urgent: mpsc::UnboundedSender<Outgoing>,
    bulk: mpsc::UnboundedSender<Outgoing>,
    /// Bytes of bulk parts in the queue, and of urgent ones and answers.
    queued: [Arc<Semaphore>; 2],
    small: Arc<AtomicUsize>,
    background: Background,
    pub(super) flows: Mutex<HashMap<u32, Entry>>,
    pub(super) next_flow: AtomicU32,
    pub(super) parts: TrunkParts,
    efforts: Efforts,
    pub(super) subnets: Mutex<Vec<IpNet>>,
    since: Instant,
    /// When something was asked first that nothing was heard since, milliseconds after `since`; zero: nothing.
    waits: AtomicU64,
    /// The trunk is over.
    pub closed: CancellationToken,
}

/// A flow among those of a trunk.
pub(super) struct Entry {
    pub(super) flow: Arc<Flow>,
    /// Who waits for the far side's answer to its opening.
    pub(super) answer: Option<oneshot::Sender<Answer>>,
}

/// The answer to an opening.
pub(crate) enum Answer {
    Opened(Opened),
    Refused(Refused),
}

impl std::fmt::Debug for Trunk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trunk").field("peer", &self.peer_name).finish_non_exhaustive()
    }
}

/// What the trunks of a box share.
#[derive(Clone)]
pub(crate) struct TrunkParts {
    /// The budget of what waits.
    pub(crate) windows: Arc<Windows>,
    /// What is kept of what passed, if there is a store.
    pub(crate) store: Option<Arc<PeerStore>>,
    /// Processor time.
    pub(crate) cores: Arc<Cores>,
    /// How long parts wait.
    pub(crate) figures: Arc<Figures>,
}

/// The queues of a trunk, for its writers.
pub(super) struct Queues {
    pub(super) urgent: mpsc::UnboundedReceiver<Outgoing>,
    pub(super) bulk: mpsc::UnboundedReceiver<Outgoing>,
}

impl Trunk {
    pub(super) fn new(link: Arc<dyn PeerLink>, peer_name: String, parts: TrunkParts) -> (Arc<Trunk>, Queues) {
        let (urgent, urgent_queue) = mpsc::unbounded_channel();
        let (bulk, bulk_queue) = mpsc::unbounded_channel();
        let trunk = Trunk {
            peer: link.peer(),
            peer_name,
            efforts: Efforts::new(link.rtt_seconds()),
            link,
            urgent,
            bulk,
            queued: [QUEUED_MAX, QUEUED_MAX].map(|bytes| Arc::new(Semaphore::new(bytes))),
            small: Arc::default(),
            background: Background::default(),
            flows: Mutex::default(),
            next_flow: AtomicU32::new(1),
            parts,
            subnets: Mutex::default(),
            since: Instant::now(),
            waits: AtomicU64::new(0),
            closed: CancellationToken::new(),
        };
        (Arc::new(trunk), Queues { urgent: urgent_queue, bulk: bulk_queue })
    }

    /// What lies behind the box at the other end, as it says.
    pub fn subnets(&self) -> Vec<IpNet> {
        self.subnets.lock().clone()
    }

    /// Round trip, seconds.
    pub fn rtt_seconds(&self) -> Option<f64> {
        self.link.rtt_seconds()
    }

    /// What is kept of what passed; none where there is no store.
    pub(crate) fn store(&self) -> Option<&Arc<PeerStore>> {
        self.parts.store.as_ref()
    }

    /// Why less can be done here than was agreed.
    pub(crate) fn demotion(&self) -> Option<Demotion> {
        self.parts.store.is_none().then_some(Demotion::StoreUnusable)
    }

    /// Queues a small frame, before all blocks. Never waits: there are few for each flow.
    pub fn send(&self, frame: Frame) {
        if self.small.fetch_add(1, Ordering::Relaxed) > SMALL_MAX {
            if !self.closed.is_cancelled() {
                tracing::warn!(peer = self.peer_name, "the peer's box takes no answers; its flows are reset");
                self.close();
            }
            self.small.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let small = Some(Arc::clone(&self.small));
        let _ = self.urgent.send(Outgoing {
            frame,
            encoded: None,
            since: None,
            _slot: None,
            _queued: None,
            _turn: None,
            small,
        });
    }

    /// Small frames that wait for the peer.
    pub(super) fn waiting(&self) -> usize {
        self.small.load(Ordering::Relaxed)
    }

    /// Queues what may as well not be said: nothing, where much waits already.
    pub fn send_hint(&self, frame: Frame) {
        if self.waiting() < HINTS_BELOW {
            self.send(frame);
        }
    }

    /// Queues a part of a flow. `slot` is the flow's place, free again once the part is written.
    pub(crate) async fn send_part(
        &self,
        stream: Stream,
        frame: Frame,
        encoded: Option<Encoded>,
        slot: OwnedSemaphorePermit,
    ) -> io::Result<()> {
        let queue = match stream {
            Stream::Urgent => &self.urgent,
            Stream::Bulk => &self.bulk,
        };
        let is_empty = || self.queued[0].available_permits() == QUEUED_MAX;
        let encoding = encoded.map_or(Duration::ZERO, |encoded| encoded.encoding);
        let now = Instant::now();
        let since = now.checked_sub(encoding).unwrap_or(now);
        let turn = match stream {
            Stream::Urgent => None,
            Stream::Bulk => self.background.turn(frame.flow, frame.body.len(), is_empty).await?,
        };
        // What gives way waits on purpose.
        let since = turn.is_none().then_some(since);
        let queued = Some(self.place_for(&frame, stream).await?);
        // What must not wait says nothing of how full the link is.
        let encoded = encoded.filter(|_| stream == Stream::Bulk);
        let outgoing =
            Outgoing { frame, encoded, since, _slot: Some(slot), _queued: queued, _turn: turn, small: None };
        queue.send(outgoing).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    /// Queues what was asked for.
    pub(crate) async fn send_answer(&self, frame: Frame) -> io::Result<()> {
        let queued = Some(self.place_for(&frame, Stream::Urgent).await?);
        let outgoing = Outgoing {
            frame,
            encoded: None,
            since: None,
            _slot: None,
            _queued: queued,
            _turn: None,
            small: None,
        };
        self.urgent.send(outgoing).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }

    async fn place_for(&self, frame: &Frame, stream: Stream) -> io::Result<OwnedSemaphorePermit> {
        let bytes = u32::try_from(frame.body.len()).unwrap_or(u32::MAX);
        Arc::clone(&self.queued[usize::from(stream == Stream::Urgent)])
            .acquire_many_owned(bytes)
            .await
            .map_err(io::Error::other)
    }

    fn flow(&self, id: u32) -> Option<Arc<Flow>> {
        self.flows.lock().get(&id).map(|entry| Arc::clone(&entry.flow))
    }

    /// A flow gives way to all others, until it is removed.
    pub(crate) fn gives_way(&self, id: u32) {
        self.background.add(id);
    }

    /// The flow is over; frames that still come for it are nobody's.
    pub(crate) fn remove(&self, id: u32) {
        self.background.remove(id);
        self.flows.lock().remove(&id);
    }

    /// A flow that was opened and that nobody wants: both sides forget it.
    pub(crate) fn abandon(&self, id: u32) {
        self.remove(id);
        self.send(Frame::bare(Kind::Reset, id));
    }

    /// Flows that are open.
    pub fn flows(&self) -> usize {
        self.flows.lock().len()
    }

    /// Whether the peer has not been heard although somebody waits for it: what is opened now would have to wait too.
    pub fn is_silent(&self, patience: Duration) -> bool {
        let waits = self.waits.load(Ordering::Relaxed);
        waits != 0 && self.now() > waits + u64::try_from(patience.as_millis()).unwrap_or(u64::MAX)
    }

    fn now(&self) -> u64 {
        // One more than the truth, so that zero means never.
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Somebody waits for the peer. It is asked at once whether it is there: how long a server takes says nothing of the peer.
    pub(super) fn waits(&self) {
        let first = self.waits.compare_exchange(0, self.now(), Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.ping();
        }
    }

    fn ping(&self) {
        self.send(Frame { kind: Kind::Ping, flow: 0, body: Bytes::from_static(&[0; 8]) });
    }

    pub(super) fn heard(&self) {
        self.waits.store(0, Ordering::Relaxed);
    }

    /// Ends the trunk and all its flows.
    pub(super) fn close(&self) {
        self.closed.cancel();
        let flows: Vec<Entry> = self.flows.lock().drain().map(|(_, entry)| entry).collect();
        for entry in flows {
            entry.flow.over.cancel();
        }
    }

    /// Asks a peer that is waited for whether it is there, until the trunk is over.
    pub(super) async fn ping_when_silent(&self) {
        loop {
            tokio::time::sleep(PING_EVERY).await;
            if self.waits.load(Ordering::Relaxed) != 0 {
                self.ping();
            }
        }
    }

    /// What both sides do with a frame that belongs to a flow that is open. Whether the peer keeps to the protocol.
    pub(super) fn take(&self, frame: Frame) -> bool {
        match frame.kind {
            Kind::Rest => {
                let wire_bytes = frame.wire_bytes();
                let Some([sequence, returned]) = frame.as_numbers() else { return false };
                let rest = Part::Rest(returned);
                self.flow(frame.flow).is_none_or(|flow| flow.put(sequence, rest, wire_bytes))
            }
            Kind::Data | Kind::Block | Kind::BlockAlone => {
                let wire_bytes = frame.wire_bytes();
                let Some((sequence, body)) = frame.split_number() else { return false };
                let part = match frame.kind {
                    Kind::Data if body.len() <= PLAIN_MAX => Part::Plain(body),
                    Kind::Data => return false,
                    _ => {
                        let Some(bytes) = stream_bytes_of(&body) else { return false };
                        Part::Block { block: body, bytes, is_alone: frame.kind == Kind::BlockAlone }
                    }
                };
                self.flow(frame.flow).is_none_or(|flow| flow.put(sequence, part, wire_bytes))
            }
            Kind::Ask => {
                let Some((sequence, missing)) = parse_ask(&frame) else { return false };
                self.flow(frame.flow).is_none_or(|flow| flow.ask(Asked { sequence, missing }))
            }
            Kind::Answer => {
                let wire_bytes = frame.wire_bytes();
                let Some((sequence, block)) = frame.split_number() else { return false };
                self.flow(frame.flow).is_none_or(|flow| flow.put_answer(sequence, block, wire_bytes))
            }
            Kind::Done => {
                if let Some(flow) = self.flow(frame.flow) {
                    flow.put_done();
                }
                true
            }
            Kind::Fin => {
                let Some((blocks, _)) = frame.split_number() else { return false };
                self.flow(frame.flow).is_none_or(|flow| flow.put_end(blocks))
            }
            Kind::Credit => {
                let Some([bytes, parts]) = frame.as_numbers() else { return false };
                self.flow(frame.flow).is_none_or(|flow| {
                    flow.delivered(parts);
                    flow.add_credit(bytes)
                })
            }
            Kind::Reset if !frame.body.is_empty() => {
                let Some([parts]) = frame.as_numbers() else { return false };
                self.flow(frame.flow).is_none_or(|flow| flow.put_reset(parts))
            }
            Kind::Reset => {
                if let Some(entry) = self.flows.lock().remove(&frame.flow) {
                    entry.flow.over.cancel();
                }
                true
            }
            Kind::Ping => {
                self.send(Frame { kind: Kind::Pong, flow: 0, body: frame.body });
                true
            }
            Kind::Pong => true,
            _ => false,
        }
    }
}

impl Trunk {
    /// What is spent now on a block of a flow that has such a history.
    pub(crate) fn effort(&self, history: Option<&History>) -> Effort {
        self.efforts.effort_of(history)
    }

    /// What zstd is told now of a flow that has such a history.
    pub(crate) fn stream_settings(&self, history: Option<&History>) -> StreamSettings {
        self.efforts.stream_settings(history)
    }

    /// A history of literals for a flow that sends; none if too many flows have one.
    pub(crate) fn history(&self) -> Option<History> {
        self.efforts.history()
    }

    /// A longer one for a flow that has much to send.
    pub(crate) fn lengthen(&self, history: &mut History) {
        self.efforts.lengthen(history);
    }

    /// The same for one that receives, of a history of 2^`window_log` bytes in place of what it had.
    ///
    /// # Errors
    /// If the peer has more than any sender makes.
    pub(crate) fn received_history(
        &self,
        before: Option<OwnedSemaphorePermit>,
        window_log: u32,
    ) -> io::Result<OwnedSemaphorePermit> {
        self.efforts.received_history(before, window_log)
    }

    /// These were written together, after there had been nothing to write for `waited`.
    pub(super) fn written(&self, parts: &[Outgoing], bytes: usize, waited: Duration, writing: Duration) {
        self.background.written(bytes);
        for since in parts.iter().filter_map(|part| part.since) {
            self.parts.figures.block_wait.observe(since.elapsed());
        }
        let encoded = parts.iter().filter_map(|part| Some((part.encoded?, part.frame.body.len())));
        self.efforts.written(encoded, bytes, waited, writing, &self.parts.cores);
    }
}

/// What a person is told of a hello that this box does not take.
pub(super) fn other_version(frame: &Frame) -> String {
    match Hello::parse(&frame.body) {
        Some(Hello { version, .. }) if version != VERSION => format!(
            "the peer's accelerator speaks version {version}, this one version {VERSION}: connections go their plain way until \
             both sites have the same release"
        ),
        _ => "the peer's first words are no hello".to_owned(),
    }
}

/// Closes a trunk when it is dropped: also if the task that carries it is cancelled or lost.
pub(super) struct Closing(pub(super) Arc<Trunk>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}
