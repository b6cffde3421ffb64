//! Which peer's box is on the way to a server. Pure: time is handed in.
//!
//! In this order:
//!
//! 1. What the administrator said lies behind a peer.
//! 2. What was found before: a probe that a box told of, or a connection that came about.
//! 3. What exactly one peer's box says lies behind it. The first connection is the proof: a server's answer reaches that box
//!    only if it is on the way.
//! 4. Nothing is known: the connection goes its plain way at once, and a probe looks for a box meanwhile.
//!
//! Where a box did not get through to a server, that server is left alone for a minute, then for two, up to an hour.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use farside_peer::PeerId;
use ipnet::IpNet;

use crate::policy::Demotion;
use crate::protocol::Nonce;

/// How long what a probe found is believed.
pub const FOUND_FOR: Duration = Duration::from_secs(600);
/// How long nobody asks again after the first failure; it doubles with each.
pub const FAILED_FOR: Duration = Duration::from_secs(60);
/// The longest such pause.
pub const FAILED_FOR_MAX: Duration = Duration::from_secs(3600);
/// A probe of which nobody has told after so long has found nothing: two round trips by satellite.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(2);
/// Most addresses that are remembered, of each kind; of more, all are forgotten that are over, and then all.
const REMEMBERED_MAX: usize = 16_384;
/// Most probes that are under way.
const PROBES_MAX: usize = 1024;

/// What lies behind a peer's box.
#[derive(Clone, Debug)]
pub struct Behind {
    /// The peer.
    pub peer: PeerId,
    /// Where it can be reached.
    pub subnets: Vec<IpNet>,
    /// Whether the administrator said so; otherwise its box did.
    pub is_configured: bool,
}

/// What becomes of a connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over this peer's box.
    Peer(PeerId),
    /// Plainly.
    Plain,
    /// Plainly, since the server is left alone after a connection over a peer's box failed; why that was.
    LeftAlone(Demotion),
    /// Plainly, and a probe with this nonce goes to the server's address.
    PlainAndProbe(Nonce),
}

#[derive(Debug)]
struct Failure {
    until: Duration,
    pause: Duration,
}

#[derive(Debug)]
struct Probe {
    server: IpAddr,
    since: Duration,
}

/// What is known of servers.
#[derive(Debug, Default)]
pub struct Discovery {
    found: HashMap<IpAddr, (PeerId, Duration)>,
    /// A port behind a firewall says nothing of the other ports.
    failed: HashMap<SocketAddr, (Failure, Demotion)>,
    /// Addresses whose probes found nothing.
    absent: HashMap<IpAddr, Failure>,
    probes: HashMap<Nonce, Probe>,
}

impl Discovery {
    /// The way to `server`. `draw` makes a nonce.
    pub fn way(
        &mut self,
        now: Duration,
        server: SocketAddr,
        behind: &[Behind],
        draw: impl FnOnce() -> Nonce,
    ) -> Way {
        self.end_probes(now);
        if let Some((failure, why)) = self.failed.get(&server)
            && now < failure.until
        {
            return Way::LeftAlone(*why);
        }
        let address = server.ip().to_canonical();
        if let Some(peer) = nearest(address, behind.iter().filter(|b| b.is_configured)) {
            return Way::Peer(peer);
        }
        if let Some((peer, until)) = self.found.get(&address)
            && now < *until
            // Of two boxes at a site the other one may be on the way since this one was lost.
            && behind.iter().any(|behind| behind.peer == *peer)
        {
            return Way::Peer(*peer);
        }
        if let Some(peer) = nearest(address, behind.iter().filter(|b| !b.is_configured)) {
            return Way::Peer(peer);
        }
        if behind.is_empty() {
            return Way::Plain;
        }
        self.probe(now, address, draw).map_or(Way::Plain, Way::PlainAndProbe)
    }

    /// A peer's box saw a probe.
    pub fn probed(&mut self, now: Duration, peer: PeerId, nonce: &Nonce) {
        if let Some(probe) = self.probes.remove(nonce) {
            make_room(&mut self.found, |(_, until)| now < *until);
            self.found.insert(probe.server, (peer, now + FOUND_FOR));
            self.absent.remove(&probe.server);
            // It may connect there now.
            self.failed.retain(|failed, _| failed.ip().to_canonical() != probe.server);
        }
    }

    /// A connection came about over the peer's box.
    pub fn connected(&mut self, now: Duration, server: SocketAddr) {
        self.failed.remove(&server);
        if let Some((_, until)) = self.found.get_mut(&server.ip().to_canonical()) {
            *until = now + FOUND_FOR;
        }
    }

    /// The peer's box did not get through to the server, or may not.
    pub fn failed(&mut self, now: Duration, server: SocketAddr, why: Demotion) {
        make_room(&mut self.failed, |(failure, _)| now < failure.until + FAILED_FOR_MAX);
        let (failure, known) = self.failed.entry(server).or_insert((NEVER, why));
        *known = why;
        fail(failure, now);
        self.found.remove(&server.ip().to_canonical());
    }

    /// The peer's box may not connect there. What a probe found once is asked again: that box may have forgotten the probe. For
    /// what is only said to be behind it a probe with this nonce goes now: an inline box knows of nothing else that is. `draw` makes a
    /// nonce.
    pub fn not_allowed(
        &mut self,
        now: Duration,
        server: SocketAddr,
        draw: impl FnOnce() -> Nonce,
    ) -> Option<Nonce> {
        let address = server.ip().to_canonical();
        if self.found.remove(&address).is_some() {
            return None;
        }
        self.failed(now, server, Demotion::NoPeer);
        self.end_probes(now);
        self.probe(now, address, draw)
    }

    /// Remembers a probe, unless the address has been asked for not long ago.
    fn probe(&mut self, now: Duration, address: IpAddr, draw: impl FnOnce() -> Nonce) -> Option<Nonce> {
        let is_asked = self.probes.values().any(|probe| probe.server == address);
        let is_absent = self.absent.get(&address).is_some_and(|failure| now < failure.until);
        if is_asked || is_absent || self.probes.len() >= PROBES_MAX {
            return None;
        }
        let nonce = draw();
        self.probes.insert(nonce, Probe { server: address, since: now });
        Some(nonce)
    }

    /// A peer is gone: what was found of it is forgotten.
    pub fn forget(&mut self, peer: PeerId) {
        self.found.retain(|_, (found, _)| *found != peer);
    }

    fn end_probes(&mut self, now: Duration) {
        let over = |probe: &Probe| now >= probe.since + PROBE_PATIENCE;
        let ended: Vec<IpAddr> = self.probes.values().filter(|p| over(p)).map(|p| p.server).collect();
        self.probes.retain(|_, probe| !over(probe));
        for address in ended {
            make_room(&mut self.absent, |failure| now < failure.until + FAILED_FOR_MAX);
            fail(self.absent.entry(address).or_insert(NEVER), now);
        }
    }
}

const NEVER: Failure = Failure { until: Duration::ZERO, pause: Duration::ZERO };

fn fail(failure: &mut Failure, now: Duration) {
    failure.pause = (failure.pause * 2).clamp(FAILED_FOR, FAILED_FOR_MAX);
    failure.until = now + failure.pause;
}

/// The peer behind which the smallest subnet with this address lies; none if two have one of the same size.
fn nearest<'a>(address: IpAddr, behind: impl Iterator<Item = &'a Behind>) -> Option<PeerId> {
    let mut best: Option<(u8, Option<PeerId>)> = None;
    for Behind { peer, subnets, .. } in behind {
        let size = subnets.iter().filter(|net| net.contains(&address)).map(IpNet::prefix_len).max();
        let Some(size) = size else { continue };
        best = match best {
            Some((known, _)) if known > size => best,
            Some((known, _)) if known == size => Some((size, None)),
            _ => Some((size, Some(*peer))),
        };
    }
    best?.1
}

fn make_room<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, keep: impl Fn(&V) -> bool) {
    if map.len() >= REMEMBERED_MAX {
        map.retain(|_, value| keep(value));
        if map.len() >= REMEMBERED_MAX {
            map.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORTH: PeerId = PeerId([1; 32]);
    const SOUTH: PeerId = PeerId([2; 32]);

    fn behind(peer: PeerId, subnets: &[&str], is_configured: bool) -> Behind {
        Behind { peer, subnets: subnets.iter().map(|net| net.parse().unwrap()).collect(), is_configured }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn server(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn nonce() -> Nonce {
        [7; 16]
    }

    #[test]
    fn what_the_administrator_says_comes_first_then_the_smallest_subnet() {
        let mut discovery = Discovery::default();
        let behind =
            [behind(NORTH, &["10.2.0.0/16"], true), behind(SOUTH, &["10.2.3.0/24", "10.3.0.0/16"], false)];
        let mut way = |to: &str| discovery.way(seconds(0), server(to), &behind, nonce);
        assert_eq!(way("10.2.3.4:80"), Way::Peer(NORTH));
        assert_eq!(way("10.3.3.4:80"), Way::Peer(SOUTH));
        assert_eq!(way("[::ffff:10.3.3.4]:80"), Way::Peer(SOUTH));
    }

    #[test]
    fn two_peers_that_say_the_same_are_asked_by_a_probe() {
        let mut discovery = Discovery::default();
        let behind = [behind(NORTH, &["10.0.0.0/24"], false), behind(SOUTH, &["10.0.0.0/24"], false)];
        let to = server("10.0.0.9:80");
        assert_eq!(discovery.way(seconds(0), to, &behind, nonce), Way::PlainAndProbe(nonce()));
        assert_eq!(discovery.way(seconds(1), to, &behind, nonce), Way::Plain, "one probe at a time");
        discovery.probed(seconds(1), SOUTH, &nonce());
        assert_eq!(discovery.way(seconds(1), to, &behind, nonce), Way::Peer(SOUTH));
        discovery.forget(SOUTH);
        assert_eq!(discovery.way(seconds(1), to, &behind, nonce), Way::PlainAndProbe(nonce()));
    }

    #[test]
    fn another_box_takes_over_from_one_that_is_lost() {
        let mut discovery = Discovery::default();
        let both = [behind(NORTH, &["10.0.0.0/24"], false), behind(SOUTH, &["10.0.0.0/24"], false)];
        let to = server("10.0.0.9:80");
        assert_eq!(discovery.way(seconds(0), to, &both, nonce), Way::PlainAndProbe(nonce()));
        discovery.probed(seconds(1), SOUTH, &nonce());
        assert_eq!(discovery.way(seconds(1), to, &both, nonce), Way::Peer(SOUTH));
        assert_eq!(discovery.way(seconds(2), to, &both[..1], nonce), Way::Peer(NORTH));
        // It is back, and what the probe found still holds.
        assert_eq!(discovery.way(seconds(3), to, &both, nonce), Way::Peer(SOUTH));
    }

    #[test]
    fn an_address_without_a_box_costs_a_probe_a_minute_then_fewer() {
        let mut discovery = Discovery::default();
        let behind = [behind(NORTH, &["10.0.0.0/24"], false)];
        let to = server("192.0.2.1:443");
        let mut probes = Vec::new();
        for second in 0..20_000 {
            if let Way::PlainAndProbe(_) = discovery.way(seconds(second), to, &behind, nonce) {
                probes.push(second);
            }
        }
        let pauses: Vec<u64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(pauses, [62, 122, 242, 482, 962, 1922, 3602, 3602, 3602, 3602]);
    }

    #[test]
    fn nobody_asks_where_there_is_no_peer() {
        assert_eq!(Discovery::default().way(seconds(0), server("192.0.2.1:443"), &[], nonce), Way::Plain);
    }

    #[test]
    fn a_server_that_a_box_does_not_reach_is_left_alone_port_by_port() {
        let mut discovery = Discovery::default();
        let behind = [behind(NORTH, &["10.2.0.0/16"], true)];
        let (closed, open) = (server("10.2.0.1:1"), server("10.2.0.1:2"));
        discovery.failed(seconds(0), closed, Demotion::NoAnswer);
        // Whoever looks is told why.
        let left_alone = Way::LeftAlone(Demotion::NoAnswer);
        assert_eq!(discovery.way(seconds(59), closed, &behind, nonce), left_alone);
        assert_eq!(discovery.way(seconds(59), open, &behind, nonce), Way::Peer(NORTH));
        assert_eq!(discovery.way(seconds(60), closed, &behind, nonce), Way::Peer(NORTH));
        discovery.failed(seconds(60), closed, Demotion::NoAnswer);
        assert_eq!(discovery.way(seconds(179), closed, &behind, nonce), left_alone);
        discovery.connected(seconds(180), closed);
        discovery.failed(seconds(200), closed, Demotion::NoAnswer);
        assert_eq!(discovery.way(seconds(260), closed, &behind, nonce), Way::Peer(NORTH), "it began anew");
    }

    #[test]
    fn a_box_that_has_forgotten_a_probe_is_probed_again() {
        let mut discovery = Discovery::default();
        let behind = [behind(NORTH, &["10.0.0.0/24"], false)];
        let to = server("192.0.2.1:443");
        assert_eq!(discovery.way(seconds(0), to, &behind, nonce), Way::PlainAndProbe(nonce()));
        discovery.probed(seconds(1), NORTH, &nonce());
        assert_eq!(discovery.not_allowed(seconds(2), to, nonce), None);
        assert_eq!(discovery.way(seconds(3), to, &behind, nonce), Way::PlainAndProbe(nonce()));
        // What no probe had found is left alone.
        discovery.probed(seconds(3), NORTH, &nonce());
        let near = server("10.0.0.9:1");
        assert_eq!(discovery.not_allowed(seconds(4), near, || [8; 16]), Some([8; 16]));
        assert_eq!(discovery.not_allowed(seconds(4), near, nonce), None, "one probe at a time");
        assert_eq!(discovery.way(seconds(5), near, &behind, nonce), Way::LeftAlone(Demotion::NoPeer));
        // Unless the probe finds that it is allowed now.
        discovery.probed(seconds(5), NORTH, &[8; 16]);
        assert_eq!(discovery.way(seconds(5), near, &behind, nonce), Way::Peer(NORTH));
    }

    #[test]
    fn a_probe_that_nobody_sent_finds_nothing() {
        let mut discovery = Discovery::default();
        discovery.probed(seconds(0), NORTH, &nonce());
        assert!(discovery.found.is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut discovery = Discovery::default();
        let behind = [behind(NORTH, &["10.0.0.0/24"], false)];
        for n in 0..100_000u32 {
            let address = SocketAddr::new(std::net::Ipv4Addr::from(0x0b00_0000 + n).into(), 80);
            let mut drawn = [0; 16];
            drawn[..4].copy_from_slice(&n.to_le_bytes());
            discovery.way(seconds(u64::from(n) / 100), address, &behind, || drawn);
            discovery.failed(seconds(0), address, Demotion::NoAnswer);
        }
        assert!(discovery.absent.len() <= REMEMBERED_MAX && discovery.failed.len() <= REMEMBERED_MAX);
        assert!(discovery.probes.len() <= PROBES_MAX);
    }
}
