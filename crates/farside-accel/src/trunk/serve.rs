//! The side of a trunk that has the servers: it takes trunks, and connects for the flows that are opened on them.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use farside_peer::{DataStream, PeerId, PeerLink, PeerService, Refusal as CallRefusal};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::effort::Cores;
use super::header::{Stream, StreamHeader};
use super::io::{halves, read, write};
use super::state::{Closing, Entry, FLOWS_MAX, Trunk, TrunkParts, other_version};
use crate::carry::{self, End};
use crate::connections::{Connections, Record};
use crate::flow::{Flow, Windows};
use crate::kernel::Kept;
use crate::policy::{Action, Ends};
use crate::protocol::{Frame, Hello, Kind, Nonce, Open, OpenTarget, Opened, Refusal, Refused, VERSION};
use crate::store::Store;

/// For the second stream of a trunk.
const SECOND_STREAM_PATIENCE: Duration = Duration::from_secs(30);
/// Trunks of all peers whose second stream has not come yet.
const HALF_OPEN_MAX: usize = 256;
/// How long a server may take to answer: one lost SYN is sent again after a second. The client's box does not wait longer, and lets
/// the client try for itself.
const CONNECT_PATIENCE: Duration = Duration::from_millis(1300);
/// The same for one that a forward names: its client has no other way.
const CONNECT_PATIENCE_NAMED: Duration = Duration::from_secs(10);
/// How often what lies behind this box is looked at.
const SUBNETS_EVERY: Duration = Duration::from_secs(10);

/// What this box does for the flows of its peers.
#[async_trait]
pub(crate) trait Serving: Send + Sync + 'static {
    /// Connects, if policy and rights allow it.
    async fn connect(&self, peer: PeerId, open: &Open) -> Result<Connected, Refused>;
    /// What a peer is called here.
    fn name_of(&self, peer: PeerId) -> String;
    /// What lies behind this box.
    fn subnets(&self) -> Vec<ipnet::IpNet>;
    /// A trunk of the peer is there, or no longer.
    fn trunk(&self, trunk: &Arc<Trunk>, is_there: bool);
}

/// A server has accepted.
pub(crate) struct Connected {
    /// The connection.
    pub(crate) socket: TcpStream,
    /// Its ends, as they are shown.
    pub(crate) ends: Ends,
    /// The application that the policy names.
    pub(crate) application: String,
    /// What this site would do for it: something that optimises.
    pub(crate) policy: Action,
    /// What its server sends, if that is on this box.
    pub(crate) kept: Option<Kept>,
}

/// Serves the trunks of all peers.
pub(crate) struct TrunkService {
    /// See [`Serving`].
    pub(crate) serving: Arc<dyn Serving>,
    /// Where flows are listed.
    pub(crate) connections: Arc<Connections>,
    /// The budget of what waits.
    pub(crate) windows: Arc<Windows>,
    /// The chunk store, if there is one.
    pub(crate) store: Option<Arc<Store>>,
    /// Processor time.
    pub(crate) cores: Arc<Cores>,
    half_open: Mutex<HashMap<(PeerId, Nonce), oneshot::Sender<DataStream>>>,
    /// One has come.
    is_half_open: Notify,
}

impl TrunkService {
    pub(crate) fn new(
        serving: Arc<dyn Serving>,
        connections: Arc<Connections>,
        windows: Arc<Windows>,
        store: Option<Arc<Store>>,
        cores: Arc<Cores>,
    ) -> TrunkService {
        TrunkService {
            serving,
            connections,
            windows,
            store,
            cores,
            half_open: Mutex::default(),
            is_half_open: Notify::new(),
        }
    }

    /// Waits for the second stream of a trunk and carries it until it ends.
    async fn serve(&self, link: &Arc<dyn PeerLink>, id: Nonce, urgent: DataStream) -> io::Result<()> {
        let key = (link.peer(), id);
        let (sender, second) = oneshot::channel();
        {
            let mut half_open = self.half_open.lock();
            half_open.retain(|_, waiting| !waiting.is_closed());
            if half_open.len() >= HALF_OPEN_MAX || half_open.contains_key(&key) {
                return Err(io::Error::other("too many trunks are half open"));
            }
            half_open.insert(key, sender);
        }
        self.is_half_open.notify_waiters();
        let bulk = tokio::time::timeout(SECOND_STREAM_PATIENCE, second).await;
        self.half_open.lock().remove(&key);
        let bulk = bulk
            .ok()
            .and_then(Result::ok)
            .ok_or_else(|| io::Error::other("its second stream did not come"))?;
        self.run(link, urgent, bulk).await
    }

    async fn run(&self, link: &Arc<dyn PeerLink>, urgent: DataStream, bulk: DataStream) -> io::Result<()> {
        let name = self.serving.name_of(link.peer());
        let store = self.store.as_ref().map(|store| store.of(link.peer(), &self.cores.free));
        let parts = TrunkParts {
            windows: Arc::clone(&self.windows),
            store,
            cores: Arc::clone(&self.cores),
            figures: Arc::clone(&self.connections.figures),
        };
        let (trunk, queues) = Trunk::new(Arc::clone(link), name, parts);
        let _closing = Closing(Arc::clone(&trunk));
        let ((urgent_in, urgent_out), (bulk_in, bulk_out)) = (halves(urgent), halves(bulk));
        let take = |frame: Frame| {
            trunk.heard();
            match frame.kind {
                Kind::Hello => {
                    let is_ours = Hello::parse(&frame.body).is_some_and(|hello| hello.version == VERSION);
                    if !is_ours {
                        tracing::warn!(peer = trunk.peer_name, "{}", other_version(&frame));
                    }
                    if is_ours {
                        // What the peer holds it says anew on each trunk that it opens.
                        if let Some(store) = trunk.store() {
                            store.known.lock().clear();
                        }
                        self.serving.trunk(&trunk, true);
                    }
                    is_ours
                }
                Kind::Holdings => trunk.store().is_none_or(|store| store.heed(&frame.body)),
                Kind::Open => self.open(&trunk, frame),
                _ => trunk.take(frame),
            }
        };
        let ended = tokio::select! {
            ended = read(&trunk, urgent_in, &take) => ended,
            ended = read(&trunk, bulk_in, &take) => ended,
            ended = write(&trunk, urgent_out, queues.urgent) => ended,
            ended = write(&trunk, bulk_out, queues.bulk) => ended,
            () = self.tell_subnets(&trunk) => Ok(()),
            () = link.closed() => Err(io::Error::other("the session was lost")),
            () = trunk.closed.cancelled() => Err(io::Error::other("the trunk was closed")),
        };
        trunk.close();
        self.serving.trunk(&trunk, false);
        ended
    }

    /// Tells what lies behind this box, at first and whenever it changes.
    async fn tell_subnets(&self, trunk: &Trunk) {
        let mut told = None;
        loop {
            let subnets = self.serving.subnets();
            if told.as_ref() != Some(&subnets) {
                trunk.send(Hello { version: VERSION, subnets: subnets.clone() }.frame());
                told = Some(subnets);
            }
            tokio::time::sleep(SUBNETS_EVERY).await;
        }
    }

    /// A flow is opened. Whether the peer keeps to the protocol.
    fn open(&self, trunk: &Arc<Trunk>, frame: Frame) -> bool {
        let Some(open) = Open::parse(&frame.body) else { return false };
        let id = frame.flow;
        let refuse = |refusal, text: &str| {
            trunk.send(Refused { refusal, text: text.to_owned() }.frame(id));
        };
        let flow = {
            let mut flows = trunk.flows.lock();
            if flows.contains_key(&id) {
                return false;
            }
            if flows.len() >= FLOWS_MAX {
                drop(flows);
                refuse(Refusal::Overload, "it has as many connections as it takes");
                return true;
            }
            let flow = Flow::new(id, &self.windows);
            if !flow.add_credit(u64::from(open.window)) {
                return false;
            }
            flows.insert(id, Entry { flow: Arc::clone(&flow), answer: None });
            flow
        };
        let serving = Arc::clone(&self.serving);
        let connections = Arc::clone(&self.connections);
        let trunk = Arc::clone(trunk);
        tokio::spawn(async move { serve_flow(&*serving, &connections, trunk, flow, open).await });
        true
    }
}

/// Connects and carries one flow.
async fn serve_flow(
    serving: &dyn Serving,
    connections: &Arc<Connections>,
    trunk: Arc<Trunk>,
    flow: Arc<Flow>,
    open: Open,
) {
    let patience = match open.target {
        OpenTarget::Transparent { .. } => CONNECT_PATIENCE,
        OpenTarget::Named(_) | OpenTarget::Keep => CONNECT_PATIENCE_NAMED,
    };
    let connect = tokio::time::timeout(patience, serving.connect(trunk.peer, &open));
    let connected = tokio::select! {
        biased;
        // Its opener has given up.
        () = flow.over.cancelled() => return,
        connected = connect => connected,
    };
    let silent = || Refused { refusal: Refusal::NoAnswer, text: "the server did not answer".to_owned() };
    let Connected { socket, ends, application, policy, kept: _kept } =
        match connected.unwrap_or_else(|_| Err(silent())) {
            Ok(connected) => connected,
            Err(refused) => {
                trunk.remove(flow.id);
                trunk.send(refused.frame(flow.id));
                return;
            }
        };
    let listed = connections.list(Record {
        ends,
        peer: trunk.peer_name.clone(),
        is_near: false,
        application,
        configured: policy,
        peer_policy: open.action,
        opened: Instant::now(),
        original_bytes: 0.into(),
        wire_bytes: 0.into(),
        sent: Default::default(),
        demotion: trunk.demotion(),
        content: Default::default(),
        is_preposition: open.target == OpenTarget::Keep,
        reset: CancellationToken::new(),
    });
    trunk.send(Opened { policy, window: flow.initial_window() }.frame(flow.id));
    let record = Arc::clone(listed.record());
    if carry::run(Arc::clone(&trunk), flow, socket, record).await == End::ResetThere
        && trunk.closed.is_cancelled()
    {
        connections.sums.reset.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Whether a peer's box may connect to `server` as `client`. `lan` is what lies at this side, `own` this box's addresses.
///
/// # Errors
/// A sentence for the peer's administrator.
pub(crate) fn may_connect(
    client: SocketAddr,
    server: SocketAddr,
    lan: &[ipnet::IpNet],
    own: &[std::net::IpAddr],
    is_probed: bool,
) -> Result<(), String> {
    let (client, server) = (client.ip().to_canonical(), server.ip().to_canonical());
    let is_here =
        |address: &std::net::IpAddr| lan.iter().any(|net| net.contains(address)) || own.contains(address);
    // Who could come as a host of this side would get past whatever trusts those.
    if is_here(&client) || client.is_loopback() || client.is_multicast() || client.is_unspecified() {
        return Err(format!("{client} cannot be a client at the other side: it is an address of this side"));
    }
    if server.is_loopback() || server.is_multicast() || server.is_unspecified() {
        return Err(format!("{server} is no server at this side"));
    }
    if !is_here(&server) && !is_probed {
        return Err(format!("{server} is not behind this box"));
    }
    Ok(())
}

#[async_trait]
impl PeerService for TrunkService {
    async fn call(&self, _: &Arc<dyn PeerLink>, _: Bytes) -> Result<Bytes, CallRefusal> {
        let message = "an accelerator answers no calls; mirrors have another port".to_owned();
        Err(CallRefusal { code: "not-found".to_owned(), message })
    }

    async fn stream(&self, link: &Arc<dyn PeerLink>, header: Bytes, stream: DataStream) {
        let Some(header) = StreamHeader::parse(&header) else {
            let peer = self.serving.name_of(link.peer());
            tracing::warn!(peer, "a stream of an unknown kind is refused");
            return;
        };
        match header.stream {
            Stream::Urgent => {
                if let Err(error) = self.serve(link, header.trunk, stream).await {
                    let peer = self.serving.name_of(link.peer());
                    tracing::info!(peer, %error, "the peer's box carries no connections here any more");
                }
            }
            Stream::Bulk => {
                // The first stream may be on its way still.
                let take = async {
                    loop {
                        let mut comes = pin!(self.is_half_open.notified());
                        // From now on, not from the first wait on.
                        comes.as_mut().enable();
                        if let Some(waiting) = self.half_open.lock().remove(&(link.peer(), header.trunk)) {
                            return waiting;
                        }
                        comes.await;
                    }
                };
                if let Ok(waiting) = tokio::time::timeout(SECOND_STREAM_PATIENCE, take).await {
                    let _ = waiting.send(stream);
                }
            }
        }
    }
}
