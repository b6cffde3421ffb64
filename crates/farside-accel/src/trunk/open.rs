//! The side of a trunk that has the clients: it opens the trunk, and flows on it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use farside_link::StreamOptions;
use farside_peer::{Node, PeerId, PeerLink, SessionError};
use farside_platform::Randomness;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::header::{Stream, StreamHeader};
use super::holdings::tell_holdings;
use super::io::{halves, read, write};
use super::state::{Answer, Closing, Entry, FLOWS_MAX, Trunk, TrunkParts, other_version};
use crate::flow::Flow;
use crate::protocol::{Frame, Hello, Kind, Open, Opened, Refused, VERSION};

/// How a peer without a session is waited for: its node dials it all the while.
const WAIT_FOR_LINK: Duration = Duration::from_secs(3600);
/// Until a trunk that failed is opened anew on a session that is still there.
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// For the other side's first frame.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);

/// What became of an opening.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The server has accepted.
    Opened(Arc<Flow>, Opened),
    /// There is no connection.
    Refused(Refused),
    /// Nobody has answered in time.
    Silence,
    /// The trunk is over, or full.
    Unusable,
}

impl Trunk {
    /// Has the peer's box connect to a server, and waits so long for its answer. A flow that was not opened is over on both sides.
    pub(crate) async fn open_flow(self: &Arc<Self>, mut open: Open, patience: Duration) -> Outcome {
        if self.closed.is_cancelled() || self.flows() >= FLOWS_MAX {
            return Outcome::Unusable;
        }
        let id = self.next_flow.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let flow = Flow::new(id, &self.parts.windows);
        open.window = flow.initial_window();
        let (sender, answer) = oneshot::channel();
        self.flows.lock().insert(id, Entry { flow: Arc::clone(&flow), answer: Some(sender) });
        self.waits();
        self.send(open.frame(id));
        let answer = tokio::select! {
            answer = tokio::time::timeout(patience, answer) => answer,
            () = self.closed.cancelled() => {
                self.remove(id);
                return Outcome::Unusable;
            }
        };
        match answer {
            Ok(Ok(Answer::Opened(opened))) => Outcome::Opened(flow, opened),
            Ok(Ok(Answer::Refused(refused))) => Outcome::Refused(refused),
            Ok(Err(_)) => Outcome::Unusable,
            Err(_) => {
                self.abandon(id);
                Outcome::Silence
            }
        }
    }

    /// An opening is answered. Whether the peer keeps to the protocol.
    pub(super) fn answered(&self, frame: &Frame) -> bool {
        let answer = match frame.kind {
            Kind::Opened => Opened::parse(&frame.body).map(Answer::Opened),
            _ => Refused::parse(&frame.body).map(Answer::Refused),
        };
        let Some(answer) = answer else { return false };
        let mut flows = self.flows.lock();
        let Some(entry) = flows.get_mut(&frame.flow) else {
            // Given up meanwhile; the other side hears of it.
            return true;
        };
        let Some(waiting) = entry.answer.take() else { return false };
        match &answer {
            Answer::Opened(opened) => {
                if !entry.flow.add_credit(u64::from(opened.window)) {
                    return false;
                }
            }
            Answer::Refused(_) => {
                flows.remove(&frame.flow);
            }
        }
        drop(flows);
        if waiting.send(answer).is_err() {
            self.abandon(frame.flow);
        }
        true
    }
}

/// What a trunk's owner is told.
pub(crate) trait TrunkEvents: Send + Sync + 'static {
    /// A trunk to this peer can be used.
    fn opened(&self, trunk: &Arc<Trunk>);
    /// It can no longer be used.
    fn closed(&self, trunk: &Arc<Trunk>, why: &str);
    /// The peer's box saw a probe.
    fn probed(&self, peer: PeerId, nonce: &crate::protocol::Nonce);
}

/// Keeps a trunk to a peer for as long as it is pinned, until `stop`.
pub(crate) async fn keep_trunk(
    node: Node,
    peer: PeerId,
    name: String,
    parts: TrunkParts,
    random: Arc<dyn Randomness>,
    events: Arc<dyn TrunkEvents>,
    stop: CancellationToken,
) {
    let keep = async {
        loop {
            match node.wait_link(peer, WAIT_FOR_LINK).await {
                Ok(link) => {
                    let run = run(link, &name, &parts, &*random, &events);
                    if let Err(error) = run.await {
                        tracing::warn!(peer = name, %error, "no flows to the peer's box");
                    }
                    tokio::time::sleep(OPEN_AGAIN_AFTER).await;
                }
                Err(SessionError::NotAuthenticated(_)) => return,
                Err(_) => {}
            }
        }
    };
    stop.run_until_cancelled(keep).await;
}

/// Opens a trunk and carries it until it ends.
async fn run(
    link: Arc<dyn PeerLink>,
    name: &str,
    parts: &TrunkParts,
    random: &dyn Randomness,
    events: &Arc<dyn TrunkEvents>,
) -> Result<(), SessionError> {
    let id = random.uuid_bytes();
    let header = |stream| StreamHeader { stream, trunk: id }.encode();
    let urgent = link.open_stream(header(Stream::Urgent), StreamOptions::default()).await?;
    let options = StreamOptions { bulk: true, ..StreamOptions::default() };
    let bulk = link.open_stream(header(Stream::Bulk), options).await?;
    let (trunk, queues) = Trunk::new(Arc::clone(&link), name.to_owned(), parts.clone());
    let _closing = Closing(Arc::clone(&trunk));
    let ((urgent_in, urgent_out), (bulk_in, bulk_out)) = (halves(urgent), halves(bulk));
    trunk.send(Hello { version: VERSION, subnets: Vec::new() }.frame());

    // Opened only once the other side has said that it speaks the same.
    let is_greeted = CancellationToken::new();
    let refused = parking_lot::Mutex::new(None);
    let refuse_hello = |why: &str| *refused.lock() = Some(why.to_owned());
    let take = |frame: Frame| {
        trunk.heard();
        match frame.kind {
            Kind::Hello => {
                let Some(hello) = Hello::parse(&frame.body).filter(|hello| hello.version == VERSION) else {
                    refuse_hello(&other_version(&frame));
                    return false;
                };
                *trunk.subnets.lock() = hello.subnets;
                if !is_greeted.is_cancelled() {
                    is_greeted.cancel();
                    events.opened(&trunk);
                }
                true
            }
            Kind::Opened | Kind::Refused => trunk.answered(&frame),
            Kind::Probed => match frame.body[..].try_into() {
                Ok(nonce) => {
                    events.probed(trunk.peer, &nonce);
                    true
                }
                Err(_) => false,
            },
            _ => trunk.take(frame),
        }
    };
    let greeted = async {
        if tokio::time::timeout(HELLO_PATIENCE, is_greeted.cancelled()).await.is_err() {
            return Err(io::Error::other("the peer's box does not answer"));
        }
        std::future::pending().await
    };
    let holdings = async {
        // A hello comes before everything else.
        is_greeted.cancelled().await;
        match trunk.store() {
            Some(store) => tell_holdings(Arc::clone(store), &trunk).await,
            None => std::future::pending().await,
        }
    };
    let ended: io::Result<()> = tokio::select! {
        ended = read(&trunk, urgent_in, &take) => ended,
        ended = read(&trunk, bulk_in, &take) => ended,
        ended = write(&trunk, urgent_out, queues.urgent) => ended,
        ended = write(&trunk, bulk_out, queues.bulk) => ended,
        ended = greeted => ended,
        () = trunk.ping_when_silent() => Ok(()),
        () = holdings => Ok(()),
        () = link.closed() => Err(io::Error::other("the session was lost")),
        () = trunk.closed.cancelled() => Err(io::Error::other("the trunk was closed")),
    };
    trunk.close();
    let why = refused.lock().take().unwrap_or_else(|| {
        ended.err().map_or_else(|| "the peer's box has closed it".to_owned(), |error| error.to_string())
    });
    events.closed(&trunk, &why);
    Err(SessionError::Lost(why))
}
