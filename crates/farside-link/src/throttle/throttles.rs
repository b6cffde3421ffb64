//! The limits of a site: its own and those of its peers, both ways, with the committed rate of the link to a peer. What tells the
//! peers apart is the caller's: any key that can be ordered.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::bucket::Bucket;
use super::chain::Limits;
use super::rate::Rate;

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
#[derive(Debug)]
pub struct Throttles<K> {
    site: Buckets,
    peers: Mutex<BTreeMap<K, Peer>>,
}

impl<K> Default for Throttles<K> {
    fn default() -> Self {
        Throttles { site: Buckets::default(), peers: Mutex::default() }
    }
}

/// A peer's limits, and what the one on what is sent comes of.
#[derive(Debug, Default)]
struct Peer {
    buckets: Buckets,
    throttle_out: Rate,
    committed_rate: Rate,
}

impl Peer {
    /// What is sent keeps to both: a committed rate is no leave to pass a throttle, nor the other way round.
    fn set_outward(&self, now: Duration) {
        self.buckets.outward.set_rate(now, self.throttle_out.lower(self.committed_rate));
    }
}

#[derive(Clone, Debug)]
struct Buckets {
    inward: Arc<Bucket>,
    outward: Arc<Bucket>,
}

impl Default for Buckets {
    fn default() -> Self {
        let open = || Arc::new(Bucket::new(Rate::Unlimited));
        Buckets { inward: open(), outward: open() }
    }
}

impl Buckets {
    fn of(&self, direction: Direction) -> &Arc<Bucket> {
        match direction {
            Direction::In => &self.inward,
            Direction::Out => &self.outward,
        }
    }
}

impl<K: Ord> Throttles<K> {
    /// Sets what the whole site may send or receive from `now` on.
    pub fn set_site(&self, now: Duration, direction: Direction, rate: Rate) {
        self.site.of(direction).set_rate(now, rate);
    }

    /// What the whole site may send or receive.
    pub fn site(&self, direction: Direction) -> Rate {
        self.site.of(direction).rate()
    }

    /// Sets what may be sent to or received from one peer, from `now` on. Of what may be sent, this and what was
    /// [committed rate](crate::options::LinkOptions::rate) hold, so the lower of the two.
    pub fn set_peer(&self, now: Duration, peer: K, direction: Direction, rate: Rate) {
        let mut peers = self.peers.lock();
        let peer = peers.entry(peer).or_default();
        match direction {
            Direction::In => peer.buckets.inward.set_rate(now, rate),
            Direction::Out => {
                peer.throttle_out = rate;
                peer.set_outward(now);
            }
        }
    }

    /// Sets the committed rate of the link to one peer, from `now` on: all that is sent to it keeps below, over however
    /// many connections and paths it goes.
    pub fn set_committed_rate(&self, now: Duration, peer: K, rate: Rate) {
        let mut peers = self.peers.lock();
        let peer = peers.entry(peer).or_default();
        peer.committed_rate = rate;
        peer.set_outward(now);
    }

    /// What holds now for what is sent to or received from one peer.
    pub fn peer(&self, peer: &K, direction: Direction) -> Rate {
        self.peers.lock().get(peer).map_or(Rate::Unlimited, |peer| peer.buckets.of(direction).rate())
    }

    /// Forgets a peer that is no longer one.
    pub fn forget(&self, peer: &K) {
        self.peers.lock().remove(peer);
    }

    /// For a new stream with a peer; what comes on it is also under `own`.
    pub fn limits(&self, peer: K, own: Option<Arc<Bucket>>) -> StreamLimits {
        let buckets = self.buckets(peer);
        let both = |direction| [&self.site, &buckets].map(|buckets| Arc::clone(buckets.of(direction)));
        StreamLimits {
            sent: Limits::chain(both(Direction::Out)),
            received: Limits::chain(both(Direction::In).into_iter().chain(own)),
        }
    }

    fn buckets(&self, peer: K) -> Buckets {
        self.peers.lock().entry(peer).or_default().buckets.clone()
    }
}
