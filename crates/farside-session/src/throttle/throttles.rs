//! The limits of a site: its own and those of its peers, both ways, with what was contracted for the link to a peer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::{Bucket, Limits, Rate};
use crate::link::PeerId;

/// Which way bytes go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From a peer to this site.
    In,
    /// From this site to a peer.
    Out,
}

/// The limits of one stream: of what this side sends on it, and of what it receives. Clones are the same stream.
#[derive(Clone, Debug, Default)]
pub struct StreamLimits {
    /// To be asked before bytes are sent.
    pub sent: Limits,
    /// To be asked before bytes are received, or the peer is allowed to send them.
    pub received: Limits,
}

/// The limits of a site and of its peers. All are open at first, and every one can be changed at any time: streams that are
/// under way heed it at once. What is counted is what goes over the sockets of the sessions, TLS included. Data streams
/// wait; the calls of a session do not, but are counted, and the streams make up for it.
#[derive(Debug, Default)]
pub struct Throttles {
    site: Gates,
    peers: Mutex<BTreeMap<PeerId, Peer>>,
}

/// A peer's limits, and what the one on what is sent comes of.
#[derive(Debug, Default)]
struct Peer {
    gates: Gates,
    throttle_out: Rate,
    contracted: Rate,
}

impl Peer {
    /// What is sent keeps to both: a contract is no leave to pass a throttle, nor the other way round.
    fn set_outward(&self, now: Duration) {
        self.gates.outward.set_rate(now, self.throttle_out.lower(self.contracted));
    }
}

#[derive(Clone, Debug)]
struct Gates {
    inward: Arc<Bucket>,
    outward: Arc<Bucket>,
}

impl Default for Gates {
    fn default() -> Self {
        let open = || Arc::new(Bucket::new(Rate::Unlimited));
        Gates { inward: open(), outward: open() }
    }
}

impl Gates {
    fn of(&self, direction: Direction) -> &Arc<Bucket> {
        match direction {
            Direction::In => &self.inward,
            Direction::Out => &self.outward,
        }
    }
}

impl Throttles {
    /// Sets what the whole site may send or receive from `now` on.
    pub fn set_site(&self, now: Duration, direction: Direction, rate: Rate) {
        self.site.of(direction).set_rate(now, rate);
    }

    /// What the whole site may send or receive.
    pub fn site(&self, direction: Direction) -> Rate {
        self.site.of(direction).rate()
    }

    /// Sets what may be sent to or received from one peer, from `now` on. Of what may be sent, this and what was
    /// [contracted](crate::LinkTerms::rate) hold, so the lower of the two.
    pub fn set_peer(&self, now: Duration, peer: PeerId, direction: Direction, rate: Rate) {
        let mut peers = self.peers.lock();
        let peer = peers.entry(peer).or_default();
        match direction {
            Direction::In => peer.gates.inward.set_rate(now, rate),
            Direction::Out => {
                peer.throttle_out = rate;
                peer.set_outward(now);
            }
        }
    }

    /// Sets what was contracted for the link to one peer, from `now` on: all that is sent to it keeps below, over however
    /// many connections and paths it goes.
    pub(crate) fn set_contracted(&self, now: Duration, peer: PeerId, rate: Rate) {
        let mut peers = self.peers.lock();
        let peer = peers.entry(peer).or_default();
        peer.contracted = rate;
        peer.set_outward(now);
    }

    /// What holds now for what is sent to or received from one peer.
    pub fn peer(&self, peer: PeerId, direction: Direction) -> Rate {
        self.peers.lock().get(&peer).map_or(Rate::Unlimited, |peer| peer.gates.of(direction).rate())
    }

    /// Forgets a peer that is no longer one.
    pub(crate) fn forget(&self, peer: PeerId) {
        self.peers.lock().remove(&peer);
    }

    /// For a new stream with a peer; what comes on it is also under `own`.
    pub(crate) fn limits(&self, peer: PeerId, own: Option<Arc<Bucket>>) -> StreamLimits {
        let gates = self.gates(peer);
        let both = |direction| [&self.site, &gates].map(|gates| Arc::clone(gates.of(direction)));
        StreamLimits {
            sent: Limits::chain(both(Direction::Out)),
            received: Limits::chain(both(Direction::In).into_iter().chain(own)),
        }
    }

    fn gates(&self, peer: PeerId) -> Gates {
        self.peers.lock().entry(peer).or_default().gates.clone()
    }
}
