//! What the tasks of a node share: its parts, and the pinned peers in memory with the one session of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use farside_link::{Reach, Throttles, WindowBudget, WireCounters};
use farside_platform::{Clock, Randomness};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::status::PeerState;
use super::unauthenticated::Unauthenticated;
use crate::dial::Dialler;
use crate::id::PeerId;
use crate::identity::Identity;
use crate::instances::Instances;
use crate::pairing::{Failures, Invites, Reachable};
use crate::registry::{PeerRecord, PeerRegistry};
use crate::service::PeerService;
use crate::session::{PacketLimits, Session};

/// A running node.
pub(super) struct Inner {
    pub(super) identity: Identity,
    pub(super) acceptor: TlsAcceptor,
    pub(super) dialler: Dialler,
    pub(super) registry: Arc<dyn PeerRegistry>,
    /// One change of the registry at a time, so that registry and memory agree.
    pub(super) registry_lock: tokio::sync::Mutex<()>,
    pub(super) service: Arc<dyn PeerService>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Randomness>,
    pub(super) peers: Mutex<Peers>,
    pub(super) invites: Mutex<Invites>,
    pub(super) failures: Mutex<Failures>,
    pub(super) unauthenticated: Arc<Unauthenticated>,
    pub(super) throttles: Arc<Throttles<PeerId>>,
    pub(super) listen_address: Option<String>,
    /// Nobody is dialled.
    pub(super) isolated: bool,
    /// What a pairing tells the other side.
    pub(super) reachable: Reachable,
    /// What the windows of all bundles share.
    pub(super) budget: Arc<WindowBudget>,
    pub(super) started: Instant,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

/// By id.
pub(super) type Peers = BTreeMap<PeerId, Peer>;

pub(super) struct Peer {
    pub(super) record: PeerRecord,
    pub(super) session: Option<Arc<Session>>,
    /// The processes that came with its key.
    pub(super) instances: Instances,
    /// Held while its session is asked whether it lives.
    pub(super) asking: Arc<tokio::sync::Mutex<()>>,
    /// When it was last said that another living site has its key.
    pub(super) other_site_said: Option<Duration>,
    /// How often it refused this site because another has this site's key.
    pub(super) refused_for_its_key: AtomicU64,
    pub(super) state: watch::Sender<PeerState>,
    pub(super) wire: Arc<WireCounters>,
    pub(super) calls: Arc<Semaphore>,
    pub(super) reach: watch::Sender<Reach>,
    /// Where full packets do not pass.
    pub(super) packets: Arc<PacketLimits>,
    /// Stops the task that dials.
    pub(super) redial: CancellationToken,
    /// Ends its pause: somebody waits for the session.
    pub(super) wanted: Arc<Notify>,
}
