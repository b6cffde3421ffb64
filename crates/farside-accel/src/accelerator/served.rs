//! The trunks that peers have opened, and where their probes went.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use farside_peer::PeerId;
use parking_lot::Mutex;

use crate::protocol::{Frame, Kind, ProbeDatagram};
use crate::trunk::Trunk;

/// How long a peer may connect to where its probe went.
const PROBED_FOR: Duration = Duration::from_secs(1200);
/// Addresses probed that are remembered.
const PROBED_MAX: usize = 16_384;

/// The trunks that peers have opened, and where their probes went.
#[derive(Default)]
pub(super) struct Served {
    pub(super) trunks: Mutex<Vec<Arc<Trunk>>>,
    probed: Mutex<HashMap<(PeerId, IpAddr), Duration>>,
}

impl Served {
    /// Tells the peer whose probe this is, if there is a trunk to it.
    pub(super) fn saw_probe(&self, probe: &ProbeDatagram, server: IpAddr, now: Duration) -> bool {
        let trunk = self.trunks.lock().iter().find(|trunk| probe.is_of(trunk.peer)).map(Arc::clone);
        let Some(trunk) = trunk else { return false };
        let mut probed = self.probed.lock();
        if probed.len() >= PROBED_MAX {
            probed.retain(|_, until| now < *until);
            if probed.len() >= PROBED_MAX {
                probed.clear();
            }
        }
        probed.insert((trunk.peer, server.to_canonical()), now + PROBED_FOR);
        drop(probed);
        let body = bytes::Bytes::copy_from_slice(&probe.nonce);
        trunk.send_hint(Frame { kind: Kind::Probed, flow: 0, body });
        true
    }

    /// A connection to where the peer's probe went has come about: it may go on.
    pub(super) fn connected(&self, peer: PeerId, server: IpAddr, now: Duration) {
        if let Some(until) = self.probed.lock().get_mut(&(peer, server.to_canonical())) {
            *until = now + PROBED_FOR;
        }
    }

    pub(super) fn is_probed(&self, peer: PeerId, server: IpAddr, now: Duration) -> bool {
        self.probed.lock().get(&(peer, server.to_canonical())).is_some_and(|until| now < *until)
    }
}
