//! Which session, between whom, and what it uses of its node. Plain data.

use std::sync::Arc;

use farside_link::{PathSpec, Reach, SocketOptions, Throttles, WindowBudget, WireCounters};
use farside_platform::{Clock, Randomness};
use tokio::sync::{Semaphore, watch};
use tokio_util::task::TaskTracker;

use super::packet_limits::PacketLimits;
use crate::dial::Dialler;
use crate::id::PeerId;
use crate::service::PeerService;

/// Which session, and between whom.
#[derive(Clone)]
pub(crate) struct SessionInfo {
    pub(crate) peer: PeerId,
    /// For log lines.
    pub(crate) peer_name: String,
    pub(crate) id: [u8; 16],
    /// Of the peer's process.
    pub(crate) instance: [u8; 16],
    pub(crate) version: u16,
    /// Where we dialled; `None` if the peer did.
    pub(crate) dialled: Option<PathSpec>,
    /// The addresses of the connection that the session began with.
    pub(crate) first: PathSpec,
}

/// What a session uses of its node.
#[derive(Clone)]
pub(crate) struct SessionContext {
    pub(crate) dialler: Dialler,
    pub(crate) service: Arc<dyn PeerService>,
    pub(crate) random: Arc<dyn Randomness>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tasks: TaskTracker,
    /// Everything this peer's sockets have carried since the node started.
    pub(crate) peer_wire: Arc<WireCounters>,
    /// The limits of this site and its peers.
    pub(crate) throttles: Arc<Throttles<PeerId>>,
    /// Calls of this peer that services are working on; outlives sessions, as the calls do.
    pub(crate) peer_calls: Arc<Semaphore>,
    /// How the peer is reached, as its record says now.
    pub(crate) reach: watch::Receiver<Reach>,
    /// Where full packets do not pass; outlives sessions.
    pub(crate) packets: Arc<PacketLimits>,
    /// What the windows of all bundles of this site share.
    pub(crate) budget: Arc<WindowBudget>,
}

impl SessionContext {
    /// What is asked of a connection that is dialled over `path` now.
    pub(crate) fn socket(&self, path: &PathSpec) -> SocketOptions {
        SocketOptions { mss: self.packets.mss(path), ..self.reach.borrow().socket(path) }
    }
}
