//! A whole site for tests: storage, sessions, both sides of mirroring; and a pair of them with a model of the data.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use farside_engine::{BLOCK_BYTES, Engine, SnapshotOwner, SnapshotSpec, VolumeName};
use farside_link::{ByteStream, LinkSettings, SimulatedNetwork};
use farside_mirror::{
    Destination, DestinationParts, Ending, Endings, LogEntry, MemoryStore, Mirror, MirrorError, Relationship,
    RelationshipStore, ReplicaLimits, Reversal, ReverseAccepted, ReverseOffer, ReverseRights, Schedule,
    SourceRights, SourceService, TransferQueue, retention::KeptPoint,
};
use farside_peer::{
    DataStream, Identity, MemoryPeerRegistry, Node, NodeConfig, NodeParts, PeerId, PeerLink, PeerService,
    Refusal,
};
use farside_platform::{Clock, ManualCores, SeededRandomness, Timestamp};
use farside_transfer::going_back::{GoingBack, go_back};
use farside_transfer::protocol::{
    Acknowledge, Begin, Body, PROTOCOL_VERSION, Request, StreamHeader, Swapped,
};
use farside_transfer::{
    TransferReport, TransferResult,
    source::{EncoderSettings, MemorySimilarityStore, Similarity},
};
use parking_lot::Mutex;
use prost::Message;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::PollSemaphore;
use uuid::Uuid;

use super::memory_engine::MemoryEngine;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Simulated: a dial that was under way when the first session came about has ended by then, on every link of these tests.
const SETTLES_WITHIN: Duration = Duration::from_secs(5);

/// The storage of a site, with what hosts and power failures do to it.
pub(crate) trait Storage: Clone + Send + Sync + 'static {
    /// A new pool.
    fn create(name: &str, clock: Arc<TokioClock>, seed: u64) -> Self;
    fn engine(&self) -> Arc<dyn Engine>;
    fn host_writes(&self, volume: &VolumeName, offset: u64, bytes: &[u8]);
    fn host_trims(&self, volume: &VolumeName, offset: u64, length: u64);
    fn resize(&self, volume: &VolumeName, size_bytes: u64);
    /// What hosts wrote so far survives a crash.
    fn flush(&self) {}
    /// Power fails: this handle works no more, the new one has what was durable. `crash_seed` decides over the rest.
    fn crash(&self, crash_seed: u64) -> Self;
    fn has_staged(&self, volume: &VolumeName) -> bool;
    /// Who hears what peers ask of this site.
    fn call_observer(&self) -> Option<Arc<dyn CallObserver>> {
        None
    }
}

/// Hears what peers ask of a site before it is done and after; may change it, or refuse in the site's place.
pub(crate) trait CallObserver: Send + Sync {
    fn asked(&self, request: Bytes) -> Result<Bytes, Refusal>;
    fn answered(&self, request: &Bytes);
    fn opened(&self, header: Bytes, stream: DataStream) -> (Bytes, DataStream);
}

/// Follows tokio's clock, so that paused time stands still for records too. One for each site: its wall clock can be
/// stepped.
pub(crate) struct TokioClock {
    started: Instant,
    stepped_seconds: AtomicI64,
    passed_seconds: AtomicU64,
}

impl TokioClock {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(TokioClock {
            started: Instant::now(),
            stepped_seconds: AtomicI64::new(0),
            passed_seconds: AtomicU64::new(0),
        })
    }

    /// Moves the wall clock by so many seconds; what runs with it does not notice.
    pub(crate) fn step_wall(&self, seconds: i64) {
        self.stepped_seconds.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Lets time pass on both clocks of the site at once: days of a session's pings would take long.
    pub(crate) fn pass(&self, seconds: u64) {
        self.passed_seconds.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let stepped = 1_800_000_000 + self.stepped_seconds.load(Ordering::SeqCst);
        Timestamp(stepped as u64 * 1_000_000_000).plus(self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed() + Duration::from_secs(self.passed_seconds.load(Ordering::SeqCst))
    }
}

/// Everything of a mind to the administrator of the source.
#[derive(Default)]
pub(crate) struct Rights {
    pub(crate) denied: Mutex<bool>,
    pub(crate) no_way_back: Mutex<bool>,
    pub(crate) fences: Mutex<bool>,
    pub(crate) granted: Mutex<Vec<(PeerId, VolumeName)>>,
    /// No right can be recorded.
    pub(crate) is_full: Mutex<bool>,
}

impl SourceRights for Rights {
    fn may_read(&self, _: PeerId, volume: &VolumeName) -> bool {
        !*self.denied.lock() && volume.volume != "secret"
    }

    fn may_reverse(&self, _: PeerId, _: &VolumeName) -> bool {
        !*self.no_way_back.lock()
    }

    fn is_fenced_when_overtaken(&self, _: PeerId, _: &VolumeName) -> bool {
        *self.fences.lock()
    }
}

#[async_trait]
impl ReverseRights for Rights {
    async fn grant_reverse(&self, peer: PeerId, volume: &VolumeName) -> Result<(), MirrorError> {
        if *self.is_full.lock() {
            return Err(MirrorError::Store("the disk is full".into()));
        }
        self.granted.lock().push((peer, volume.clone()));
        Ok(())
    }
}

/// Stands in for a site's service: passes everything through, or plays a source that forges its stream.
pub(crate) struct FaultInjector {
    inner: Arc<SourceService>,
    call_observer: Option<Arc<dyn CallObserver>>,
    /// What to send on the next data streams instead of the truth.
    pub(crate) forged_stream: Mutex<Option<Vec<u8>>>,
    /// Play a source that says for ever that it is working.
    pub(crate) hangs: AtomicBool,
    /// Play a source that speaks only the version of the protocol before this one.
    pub(crate) is_older: AtomicBool,
    /// Play a source that answers as if it had heard of no role change.
    pub(crate) numbers_nothing: AtomicBool,
    /// Play a source that knows nothing of points in common; its destinations go on as with one.
    pub(crate) shares_nothing: AtomicBool,
    /// Play a source that lets all snapshots travel, however many its destination takes.
    pub(crate) names_all: AtomicBool,
    /// Whoever holds the permit keeps what the source writes on data streams from leaving.
    stall: Arc<Semaphore>,
    /// Calls that shall not be handled yet when they come.
    gates: Mutex<Vec<(Matches, watch::Sender<Passage>)>>,
    /// Calls whose answers shall not leave yet.
    answer_gates: Mutex<Vec<(Matches, watch::Sender<Passage>)>>,
}

type Matches = fn(&Body) -> bool;

/// Where a call is that meets a gate.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Passage {
    Awaited,
    Held,
    Released,
    Handled,
}

/// Holds the first call that matches, as a site does that is slow about it: the caller's session may end meanwhile.
pub(crate) struct Gate(watch::Sender<Passage>);

impl Gate {
    async fn reached(&self, passage: Passage) {
        let mut seen = self.0.subscribe();
        let reached = seen.wait_for(|at| *at >= passage);
        tokio::time::timeout(10 * PATIENCE, reached).await.expect("the call comes").unwrap();
    }

    /// Waits for the call to come.
    pub(crate) async fn held(&self) {
        self.reached(Passage::Held).await;
    }

    /// Lets it go on, if its caller has not given it up.
    pub(crate) fn open(&self) {
        self.0.send_replace(Passage::Released);
    }

    /// Lets it go on, and waits until it has been handled.
    pub(crate) async fn release(&self) {
        self.0.send_replace(Passage::Released);
        self.reached(Passage::Handled).await;
    }
}

/// A data stream whose bytes leave while nobody stalls it.
struct Stallable {
    io: Box<dyn ByteStream>,
    stall: PollSemaphore,
}

impl AsyncRead for Stallable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl AsyncWrite for Stallable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let _permit = ready!(self.stall.poll_acquire(context));
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl FaultInjector {
    /// Until the answer is dropped nothing more leaves on data streams; calls do.
    pub(crate) async fn stall(&self) -> OwnedSemaphorePermit {
        self.stall.clone().acquire_owned().await.unwrap()
    }

    /// The first call that comes from now on and matches is held.
    pub(crate) fn hold(&self, matches: Matches) -> Gate {
        let gate = watch::Sender::new(Passage::Awaited);
        self.gates.lock().push((matches, gate.clone()));
        Gate(gate)
    }

    /// The answer to the first call that comes from now on and matches is held, when it is made.
    pub(crate) fn hold_answer(&self, matches: Matches) -> Gate {
        let gate = watch::Sender::new(Passage::Awaited);
        self.answer_gates.lock().push((matches, gate.clone()));
        Gate(gate)
    }

    /// What a source of an older version says to a version that it does not know.
    fn check_version(&self, version: u32) -> Result<(), Refusal> {
        let older = PROTOCOL_VERSION - 1;
        if version == older || !self.is_older.load(Ordering::SeqCst) {
            return Ok(());
        }
        let message =
            format!("mirror protocol versions differ: the source speaks {older}, the destination {version}");
        Err(Refusal { code: "version".into(), message })
    }
}

fn gate_of(
    gates: &Mutex<Vec<(Matches, watch::Sender<Passage>)>>,
    body: &Body,
) -> Option<watch::Sender<Passage>> {
    let mut gates = gates.lock();
    let at = gates.iter().position(|(matches, _)| matches(body))?;
    Some(gates.remove(at).1)
}

#[async_trait]
impl PeerService for FaultInjector {
    async fn call(&self, link: &Arc<dyn PeerLink>, mut request: Bytes) -> Result<Bytes, Refusal> {
        let mut is_swap = false;
        if self.shares_nothing.load(Ordering::SeqCst)
            && let Ok(Request { version, body: Some(Body::Begin(begin)) }) = Request::decode(request.clone())
        {
            let body = Some(Body::Begin(Begin { keeps_common: false, further: Vec::new(), ..begin }));
            request = Request { version, body }.encode_to_vec().into();
        }
        if self.shares_nothing.load(Ordering::SeqCst)
            && let Ok(Request { version, body: Some(Body::Acknowledge(told)) }) =
                Request::decode(request.clone())
        {
            let body = Some(Body::Acknowledge(Acknowledge { further: Vec::new(), ..told }));
            request = Request { version, body }.encode_to_vec().into();
        }
        if self.names_all.load(Ordering::SeqCst)
            && let Ok(Request { version, body: Some(Body::Begin(begin)) }) = Request::decode(request.clone())
        {
            let body = Some(Body::Begin(Begin { named_max: None, ..begin }));
            request = Request { version, body }.encode_to_vec().into();
        }
        if let Ok(Request { version, body: Some(body) }) = Request::decode(request.clone()) {
            self.check_version(version)?;
            is_swap = matches!(body, Body::Swap(_));
            if let Some(gate) = gate_of(&self.answer_gates, &body) {
                let answer = self.inner.call(link, request).await;
                gate.send_replace(Passage::Held);
                gate.subscribe().wait_for(|at| *at == Passage::Released).await.unwrap();
                return answer;
            }
            if let Some(gate) = gate_of(&self.gates, &body) {
                gate.send_replace(Passage::Held);
                gate.subscribe().wait_for(|at| *at == Passage::Released).await.unwrap();
                let answer = self.inner.call(link, request).await;
                gate.send_replace(Passage::Handled);
                return answer;
            }
        }
        if is_swap && self.numbers_nothing.load(Ordering::SeqCst) {
            let answer = Swapped::decode(self.inner.call(link, request).await?).unwrap();
            return Ok(Swapped { newest: 0, reverse_role_change: 0, ..answer }.encode_to_vec().into());
        }
        let Some(call_observer) = &self.call_observer else { return self.inner.call(link, request).await };
        let request = call_observer.asked(request)?;
        let answer = self.inner.call(link, request.clone()).await;
        call_observer.answered(&request);
        answer
    }

    async fn stream(&self, link: &Arc<dyn PeerLink>, mut header: Bytes, mut stream: DataStream) {
        if let Ok(header) = StreamHeader::decode(header.clone()) {
            self.check_version(header.version).expect("a stream in a version that was refused");
        }
        if let Some(call_observer) = &self.call_observer {
            (header, stream) = call_observer.opened(header, stream);
        }
        stream.io = Box::new(Stallable { io: stream.io, stall: PollSemaphore::new(self.stall.clone()) });
        while self.hangs.load(Ordering::SeqCst) {
            if stream.io.write_all(&[7, 0, 0, 0, 0]).await.is_err() || stream.io.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        let forged_stream = self.forged_stream.lock().clone();
        match forged_stream {
            None => self.inner.stream(link, header, stream).await,
            Some(bytes) => {
                let _ = stream.io.write_all(&bytes).await;
                let _ = stream.io.shutdown().await;
            }
        }
    }
}

/// What every site here encodes with: on simulated time no link is slow and no encoder busy.
pub(crate) fn encoders() -> EncoderSettings {
    EncoderSettings::new(Arc::new(ManualCores::new(2.0)))
}

/// What of a site survives its process.
#[derive(Clone)]
pub(crate) struct Disk<S> {
    pub(crate) engine: S,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) similarity: Arc<MemorySimilarityStore>,
    pub(crate) limits: ReplicaLimits,
    pub(crate) identity: Identity,
    pub(crate) registry: Arc<MemoryPeerRegistry>,
}

/// A site's database as its mirrors see it.
pub(crate) struct Database {
    store: Arc<MemoryStore>,
    /// Nothing can be written.
    pub(crate) is_full: AtomicBool,
    /// A row can be written over, and nothing can be added: as a disk is that has just become full.
    pub(crate) takes_rows_only: AtomicBool,
}

impl Database {
    fn writable(&self) -> Result<&MemoryStore, MirrorError> {
        if self.is_full.load(Ordering::SeqCst) {
            return Err(MirrorError::Store("the disk is full".into()));
        }
        Ok(&self.store)
    }
}

#[async_trait]
impl RelationshipStore for Database {
    async fn relationships(&self) -> Result<Vec<Relationship>, MirrorError> {
        self.store.relationships().await
    }

    async fn save(&self, relationship: &Relationship) -> Result<(), MirrorError> {
        self.writable()?.save(relationship).await
    }

    async fn knows(&self, id: Uuid) -> Result<bool, MirrorError> {
        self.store.knows(id).await
    }

    async fn forget(&self, id: Uuid) -> Result<(), MirrorError> {
        if self.takes_rows_only.load(Ordering::SeqCst) {
            return Err(MirrorError::Store("the disk is full".into()));
        }
        self.writable()?.forget(id).await
    }

    async fn end(&self, ending: &Ending) -> Result<(), MirrorError> {
        if self.takes_rows_only.load(Ordering::SeqCst) {
            return Err(MirrorError::Store("the disk is full".into()));
        }
        self.writable()?.end(ending).await
    }

    async fn kept_points(&self, id: Uuid) -> Result<Vec<KeptPoint>, MirrorError> {
        self.store.kept_points(id).await
    }

    async fn note_kept(&self, id: Uuid, noted: &[KeptPoint]) -> Result<(), MirrorError> {
        self.writable()?.note_kept(id, noted).await
    }

    async fn forget_kept(&self, id: Uuid, gone: &[Uuid]) -> Result<(), MirrorError> {
        self.writable()?.forget_kept(id, gone).await
    }

    async fn forget_all_kept(&self, id: Uuid) -> Result<(), MirrorError> {
        self.writable()?.forget_all_kept(id).await
    }

    async fn append_history(&self, id: Uuid, report: &TransferReport) -> Result<(), MirrorError> {
        self.writable()?.append_history(id, report).await
    }

    async fn history(&self, id: Uuid, limit: usize) -> Result<Vec<TransferReport>, MirrorError> {
        self.store.history(id, limit).await
    }

    async fn append_log(&self, entry: &LogEntry) -> Result<(), MirrorError> {
        self.writable()?.append_log(entry).await
    }

    async fn log(&self, volume: &VolumeName, limit: usize) -> Result<Vec<LogEntry>, MirrorError> {
        self.store.log(volume, limit).await
    }
}

/// Hands role changes on to the site's destination, as soon as its pool is open.
pub(crate) struct Starting {
    destination: Arc<Destination>,
    /// Questions that are still refused because the pool is not open yet.
    pub(crate) refuses: AtomicU32,
}

impl Starting {
    fn destination(&self) -> Result<&Destination, MirrorError> {
        let less = |left: u32| left.checked_sub(1);
        match self.refuses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
            Ok(_) => Err(MirrorError::State("pool p is not open here".into())),
            Err(_) => Ok(&self.destination),
        }
    }
}

#[async_trait]
impl Reversal for Starting {
    async fn prepare(&self, offer: &ReverseOffer) -> Result<ReverseAccepted, MirrorError> {
        self.destination()?.prepare(offer).await
    }

    async fn look(&self, offer: &ReverseOffer) -> Result<(), MirrorError> {
        self.destination()?.look(offer).await
    }

    async fn look_upstream(&self, volume: &VolumeName, hops: usize) {
        self.destination.look_upstream(volume, hops).await;
    }

    async fn prepared(&self, volume: &VolumeName, of: Uuid) -> Result<Option<Uuid>, MirrorError> {
        self.destination()?.prepared(volume, of).await
    }

    async fn is_changing(&self, volume: &VolumeName, of: Uuid) -> Result<bool, MirrorError> {
        self.destination()?.is_changing(volume, of).await
    }

    async fn awaits_first(&self, volume: &VolumeName) -> bool {
        self.destination.awaits_first(volume).await
    }

    async fn give_way(&self, volume: &VolumeName, of: Uuid) -> Result<bool, MirrorError> {
        self.destination()?.give_way(volume, of).await
    }

    async fn released(&self, volume: &VolumeName, peer: PeerId, destination: &VolumeName) {
        self.destination.released(volume, peer, destination).await;
    }

    async fn cancel(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError> {
        self.destination()?.cancel(volume, of).await
    }

    async fn done(&self, volume: &VolumeName, of: Uuid, group: Option<String>) -> Result<(), MirrorError> {
        self.destination()?.done(volume, of, group).await
    }
}

pub(crate) struct Site<S = MemoryEngine> {
    pub(crate) disk: Disk<S>,
    pub(crate) database: Arc<Database>,
    pub(crate) node: Node,
    pub(crate) source: Arc<SourceService>,
    pub(crate) fault_injector: Arc<FaultInjector>,
    pub(crate) destination: Arc<Destination>,
    pub(crate) starting: Arc<Starting>,
    pub(crate) rights: Arc<Rights>,
    pub(crate) queue: TransferQueue,
}

impl<S: Storage> Disk<S> {
    pub(crate) fn new(name: &str, clock: &Arc<TokioClock>, seed: u64) -> Self {
        Disk {
            engine: S::create(name, clock.clone(), seed),
            store: Arc::default(),
            similarity: Arc::default(),
            limits: ReplicaLimits::default(),
            identity: Identity::generate().unwrap(),
            registry: Arc::default(),
        }
    }
}

impl<S: Storage> Site<S> {
    pub(crate) async fn start(
        network: &SimulatedNetwork,
        name: &'static str,
        disk: Disk<S>,
        clock: Arc<TokioClock>,
        seed: u64,
    ) -> Self {
        let rights = Arc::new(Rights::default());
        let engine = disk.engine.engine();
        let source = SourceService::open(
            engine.clone(),
            rights.clone(),
            disk.store.clone(),
            clock.clone(),
            Similarity { store: disk.similarity.clone(), ..Similarity::default() },
            encoders(),
        )
        .await
        .unwrap();
        let source = Arc::new(source);
        let call_observer = disk.engine.call_observer();
        let fault_injector = Arc::new(FaultInjector {
            inner: source.clone(),
            call_observer,
            forged_stream: Mutex::new(None),
            hangs: AtomicBool::new(false),
            is_older: AtomicBool::new(false),
            numbers_nothing: AtomicBool::new(false),
            shares_nothing: AtomicBool::new(false),
            names_all: AtomicBool::new(false),
            stall: Arc::new(Semaphore::new(1)),
            gates: Mutex::default(),
            answer_gates: Mutex::default(),
        });
        let randomness = Arc::new(SeededRandomness::new(seed));
        let mut config = NodeConfig::new(name);
        config.listen = Some(format!("{name}:7440"));
        let parts = NodeParts {
            identity: disk.identity.clone(),
            transport: network.host(name),
            registry: disk.registry.clone(),
            service: fault_injector.clone(),
            clock: clock.clone(),
            random: randomness.clone(),
        };
        let node = Node::start(config, parts).await.unwrap();
        let links = Arc::new(node.clone());
        let database = Arc::new(Database {
            store: disk.store.clone(),
            is_full: AtomicBool::new(false),
            takes_rows_only: AtomicBool::new(false),
        });
        let (store, queue, limits) = (database.clone(), TransferQueue::default(), disk.limits);
        let (of_source, reverse, of_site) = (source.clone(), rights.clone(), queue.clone());
        let endings =
            Arc::new(Endings::open(links.clone(), source.clone(), disk.store.clone()).await.unwrap());
        let parts = DestinationParts {
            engine,
            links,
            store,
            source: of_source,
            reverse,
            clock,
            randomness,
            queue,
            endings,
            limits,
        };
        let destination = Arc::new(Destination::open(parts).await.unwrap());
        let starting = Arc::new(Starting { destination: destination.clone(), refuses: AtomicU32::new(0) });
        let as_reversal: Arc<dyn Reversal> = starting.clone();
        source.set_reversal(Arc::downgrade(&as_reversal));
        Site { disk, database, node, source, fault_injector, destination, starting, rights, queue: of_site }
    }

    /// A new state database, which has what the pool knows of the replica `volume`, if it is one.
    async fn lose_database(&mut self, volume: &VolumeName) {
        self.disk.store = Arc::default();
        let Some(record) = self.disk.engine.engine().replica_record(volume).unwrap() else { return };
        let (id, source) = (record.relationship, record.source.parse().unwrap());
        let found = Relationship::new(id, PeerId(record.peer), source, volume.clone(), Schedule::OnRequest);
        self.disk.store.save(&Relationship { schedule_lost: true, ..found }).await.unwrap();
    }
}

/// Site `a` holds the original, site `b` the replica; `model` is what each snapshot of the original holds.
pub(crate) struct Pair<S = MemoryEngine> {
    pub(crate) network: SimulatedNetwork,
    /// Of the site `a`.
    pub(crate) clock: Arc<TokioClock>,
    pub(crate) clock_b: Arc<TokioClock>,
    pub(crate) a: Site<S>,
    pub(crate) b: Site<S>,
    pub(crate) original: VolumeName,
    pub(crate) replica: VolumeName,
    pub(crate) live: Vec<u8>,
    pub(crate) model: BTreeMap<Uuid, Vec<u8>>,
    pub(crate) rng: SmallRng,
    starts: u64,
}

/// Seeds of a test that draws at random: `default` of them from `first`; `FARSIDE_SEEDS` and `FARSIDE_SEED` say otherwise.
pub(crate) fn seeds(first: u64, default: u64) -> std::ops::Range<u64> {
    let from = |name| std::env::var(name).ok().and_then(|s| s.parse().ok());
    let first = from("FARSIDE_SEED").unwrap_or(first);
    assert!(
        first < 1 << 48,
        "FARSIDE_SEED {first} leaves no room for the seeds that are made of it: below 2^48"
    );
    first..first + from("FARSIDE_SEEDS").unwrap_or(default)
}

/// A person has the volume show one of its snapshots again, as the daemon does it.
pub(crate) fn roll_back(engine: &dyn Engine, volume: &VolumeName, snapshot: Uuid) {
    go_back(engine, volume, snapshot, GoingBack::OfPerson, None).unwrap();
}

pub(crate) fn volume(name: &str) -> VolumeName {
    name.parse().unwrap()
}

/// Waits until a session stays: after pairing both sites dial, and one of two sessions gives way to the other.
pub(crate) async fn settled(node: &Node, peer: PeerId) {
    loop {
        let session = node.wait_link(peer, PATIENCE).await.unwrap();
        if tokio::time::timeout(SETTLES_WITHIN, session.closed()).await.is_err() {
            return;
        }
    }
}

fn log_to_test() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_test_writer()
        .try_init();
}

impl Pair<MemoryEngine> {
    /// Paired sites with storage in memory; the original has `size_bytes` bytes of holes.
    pub(crate) async fn new(seed: u64, size_bytes: u64, link: LinkSettings) -> Self {
        Pair::with_storage(seed, size_bytes, link).await
    }
}

impl<S: Storage> Pair<S> {
    pub(crate) async fn with_storage(seed: u64, size_bytes: u64, link: LinkSettings) -> Self {
        println!("seed {seed}");
        log_to_test();
        let network = SimulatedNetwork::new(seed, link);
        let (clock, clock_b) = (TokioClock::new(), TokioClock::new());
        let disk_a = Disk::<S>::new("p", &clock, seed);
        let disk_b = Disk::<S>::new("q", &clock_b, seed + 1);
        let a = Site::start(&network, "a", disk_a, clock.clone(), seed).await;
        let b = Site::start(&network, "b", disk_b, clock_b.clone(), seed + 1).await;
        let invite = a.node.invite(Duration::from_secs(900)).unwrap();
        b.node.join(a.node.listen_address().unwrap(), &invite.code, None).await.unwrap();
        settled(&b.node, a.node.id()).await;
        let original = volume("p/v");
        a.disk.engine.engine().create_volume(&original, size_bytes).unwrap();
        let rng = SmallRng::seed_from_u64(seed);
        let live = vec![0; size_bytes as usize];
        let replica = volume("q/r");
        let model = BTreeMap::new();
        Pair { network, clock, clock_b, a, b, original, replica, live, model, rng, starts: seed + 2 }
    }

    /// The link is away until the session is given up, and comes back then. A moment without it costs connections, and neither
    /// session nor transfer.
    pub(crate) async fn lose_session(&self) {
        let session = self.b.node.wait_link(self.a.node.id(), PATIENCE).await.unwrap();
        self.network.cut("a", "b");
        tokio::time::timeout(PATIENCE, session.closed()).await.expect("the loss is noticed");
        self.network.heal("a", "b");
    }

    pub(crate) async fn mirror(&self, schedule: Schedule) -> Mirror {
        let (peer, source, destination) = (self.a.node.id(), self.original.clone(), self.replica.clone());
        self.b.destination.create(peer, source, destination, schedule, PATIENCE, true).await.unwrap()
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.a.disk.engine.host_writes(&self.original, offset, bytes);
        self.live[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn discard(&mut self, offset: u64, length: u64) {
        self.a.disk.engine.host_trims(&self.original, offset, length);
        self.live[offset as usize..(offset + length) as usize].fill(0);
    }

    pub(crate) fn resize(&mut self, size_bytes: u64) {
        self.a.disk.engine.resize(&self.original, size_bytes);
        self.live.resize(size_bytes as usize, 0);
    }

    /// `count` writes and trims of up to 16 blocks, of bytes that compress about by half.
    pub(crate) fn scribble(&mut self, count: usize) {
        let blocks = self.live.len() as u64 / BLOCK_BYTES;
        for _ in 0..count {
            let length = self.rng.random_range(1..=16.min(blocks));
            let offset = self.rng.random_range(0..=blocks - length) * BLOCK_BYTES;
            if self.rng.random_bool(0.2) {
                self.discard(offset, length * BLOCK_BYTES);
            } else {
                let mut bytes = vec![0; (length * BLOCK_BYTES) as usize];
                for pair in bytes.chunks_mut(2) {
                    pair[0] = self.rng.random();
                }
                self.write(offset, &bytes);
            }
        }
    }

    /// A person's snapshot of the original.
    pub(crate) fn snapshot(&mut self, name: &str) -> Uuid {
        let uuid = Uuid::from_u128(self.rng.random());
        let spec = SnapshotSpec {
            name: name.into(),
            uuid,
            created_at: self.clock.now(),
            owner: SnapshotOwner::Person,
            pin_for: None,
        };
        self.a.disk.engine.engine().take_snapshot(&self.original, &spec).unwrap();
        self.model.insert(uuid, self.live.clone());
        uuid
    }

    /// Runs the transfer and remembers what its incremental snapshot must hold. Nothing may write meanwhile.
    pub(crate) async fn initialize(&mut self, mirror: &Mirror) -> TransferReport {
        let asked = mirror.initialize(PATIENCE).await.unwrap();
        let report = asked.ended().await.unwrap();
        self.model.insert(report.id, self.live.clone());
        report
    }

    pub(crate) async fn update(&mut self, mirror: &Mirror) -> TransferReport {
        let asked = mirror.update(PATIENCE).await.unwrap();
        let report = asked.ended().await.unwrap();
        self.model.insert(report.id, self.live.clone());
        report
    }

    /// What the replica's snapshots hold is what the model says of them, byte for byte; the newest is the published
    /// version. Returns their names.
    pub(crate) fn check_replica(&self) -> Vec<String> {
        let engine = self.b.disk.engine.engine();
        let snapshots = engine.snapshots(&self.replica).unwrap();
        for snapshot in &snapshots {
            let expected =
                self.model.get(&snapshot.uuid).unwrap_or_else(|| panic!("{} is unknown", snapshot.name));
            assert_eq!(snapshot.size_bytes, expected.len() as u64);
            let mut found = vec![0; expected.len()];
            engine.read_snapshot(&self.replica, snapshot.uuid, 0, &mut found).unwrap();
            assert!(found == *expected, "{} differs from its original", snapshot.name);
        }
        snapshots.into_iter().map(|s| s.name).collect()
    }

    /// The site `b` loses power and comes back, with its disks.
    pub(crate) async fn crash_b(&mut self, crash_seed: u64) {
        let engine = self.b.disk.engine.crash(crash_seed);
        self.network.kill("b");
        self.b.node.shutdown().await;
        self.b.destination.shut_down().await;
        self.network.revive("b");
        let disk = Disk { engine, ..self.b.disk.clone() };
        self.starts += 1;
        self.b = Site::start(&self.network, "b", disk, self.clock_b.clone(), self.starts).await;
    }

    /// The site `b` starts anew, with room for so many snapshots of persons in a replica.
    pub(crate) async fn limit_snapshots_b(&mut self, snapshots: usize) {
        self.b.disk.limits.snapshots = snapshots;
        self.crash_b(0).await;
    }

    /// The site `b` loses its state database; it starts anew with what its pool knows of `replica`, as a daemon does.
    pub(crate) async fn lose_database_b(&mut self) {
        self.b.lose_database(&self.replica).await;
        self.crash_b(0).await;
    }

    /// The same for the site `a` and `original`.
    pub(crate) async fn lose_database_a(&mut self) {
        self.a.lose_database(&self.original).await;
        self.crash_a(0).await;
    }

    /// The site `a` loses power and comes back, with its disks.
    pub(crate) async fn crash_a(&mut self, crash_seed: u64) {
        let engine = self.a.disk.engine.crash(crash_seed);
        self.network.kill("a");
        self.a.node.shutdown().await;
        self.a.destination.shut_down().await;
        self.network.revive("a");
        let disk = Disk { engine, ..self.a.disk.clone() };
        self.starts += 1;
        self.a = Site::start(&self.network, "a", disk, self.clock.clone(), self.starts).await;
    }
}

pub(crate) fn assert_ok(report: &TransferReport) {
    assert_eq!(report.result, TransferResult::Ok, "{:?}", report.reason);
}

/// A link of 20 ms one way and 1 MB/s: transfers take simulated seconds.
pub(crate) fn slow() -> LinkSettings {
    LinkSettings {
        latency: Duration::from_millis(20),
        jitter: Duration::ZERO,
        bytes_per_second: Some(1_000_000),
    }
}
