//! Connections that have not yet shown a known key: how many there may be, which make way, what is logged about them.
//!
//! Slots are counted by *origin*: an IPv4 address, or the first 64 bits of an IPv6 one (whoever has one has them all). When
//! all slots are taken, a newcomer displaces the oldest connection of the origin that holds most, so whoever holds
//! connections open without a word (slow loris) pushes out its own, and a peer gets in. An origin from which a
//! pinned peer has come of late may hold more at once, and its connections are not displaced for unauthenticated ones.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use farside_link::split_address;
use farside_platform::Clock;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::id::PeerId;
use crate::limits::{
    ORIGINS_KNOWN_MAX, UNAUTHENTICATED_LINES_MAX, UNAUTHENTICATED_LINES_WITHIN, UNAUTHENTICATED_MAX,
    UNAUTHENTICATED_PER_KNOWN_ORIGIN_MAX, UNAUTHENTICATED_PER_ORIGIN_MAX,
};

/// Bits of an IPv6 address that one subscriber cannot choose.
const V6_PREFIX: u128 = !0 << 64;

/// Who is counted together with whoever comes from `address` (`HOST:PORT`).
pub(super) fn origin_of(address: &str) -> String {
    let host = split_address(address).map_or(address, |(host, _)| host);
    // A neighbour's address names its interface.
    let host = host.split_once('%').map_or(host, |(host, _)| host);
    match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(IpAddr::V6(ip)) => format!("{}/64", Ipv6Addr::from(u128::from(ip) & V6_PREFIX)),
        Ok(IpAddr::V4(ip)) => ip.to_string(),
        Err(_) => host.to_owned(),
    }
}

/// The connections that are not authenticated yet.
pub(super) struct Unauthenticated {
    slots: Mutex<Slots>,
    lines: Mutex<Lines>,
    clock: Arc<dyn Clock>,
}

/// An unauthenticated connection's slot; given back when dropped.
pub(super) struct Slot {
    unauthenticated: Arc<Unauthenticated>,
    number: u64,
    displaced: CancellationToken,
}

impl Slot {
    /// Resolves when another connection needs the slot.
    pub(super) fn displaced(&self) -> CancellationToken {
        self.displaced.clone()
    }

    /// The connection has shown the key of a pinned peer: it is authenticated, and where it comes from is remembered.
    pub(super) fn becomes_known(self) {
        self.unauthenticated.slots.lock().note_known(self.number);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.unauthenticated.slots.lock().leave(self.number);
    }
}

impl Unauthenticated {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Unauthenticated { slots: Mutex::default(), lines: Mutex::default(), clock })
    }

    /// A slot for a connection from `origin`, if it gets one.
    pub(super) fn admit(self: &Arc<Unauthenticated>, origin: &str) -> Option<Slot> {
        let (number, displaced) = self.slots.lock().admit(origin)?;
        Some(Slot { unauthenticated: Arc::clone(self), number, displaced })
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn inside(&self) -> usize {
        self.slots.lock().held.len()
    }

    /// Writes a line about an unauthenticated connection, unless there were too many of late: whoever knocks all day must not fill
    /// the disk.
    pub(super) fn log(&self, from: &str, key: Option<PeerId>, why: &str) {
        let now = self.clock.monotonic();
        let mut lines = self.lines.lock();
        if now.saturating_sub(lines.since) >= UNAUTHENTICATED_LINES_WITHIN {
            if lines.left_out > 0 {
                let left_out = lines.left_out;
                tracing::warn!("{left_out} further refused connections were not logged in the last minute");
            }
            *lines = Lines { since: now, ..Lines::default() };
        }
        if lines.written >= UNAUTHENTICATED_LINES_MAX {
            lines.left_out += 1;
            return;
        }
        lines.written += 1;
        let key = key.map(|k| k.to_string());
        tracing::warn!(from, key, "refused a connection: {why}");
    }
}

#[derive(Default)]
struct Lines {
    since: Duration,
    written: usize,
    left_out: u64,
}

/// Who holds which slot. Pure; all costs are bounded by [`UNAUTHENTICATED_MAX`].
#[derive(Default)]
struct Slots {
    /// By number: the smallest is the oldest.
    held: BTreeMap<u64, Held>,
    next: u64,
    /// Origins of pinned peers, latest last.
    known: VecDeque<String>,
}

struct Held {
    origin: String,
    displaced: CancellationToken,
}

impl Slots {
    fn admit(&mut self, origin: &str) -> Option<(u64, CancellationToken)> {
        let is_known = self.known.iter().any(|k| k == origin);
        let most =
            if is_known { UNAUTHENTICATED_PER_KNOWN_ORIGIN_MAX } else { UNAUTHENTICATED_PER_ORIGIN_MAX };
        let here = self.held.values().filter(|h| h.origin == origin).count();
        if here >= most {
            return None;
        }
        if self.held.len() >= UNAUTHENTICATED_MAX {
            let displaced = self.held.remove(&self.whoever_makes_way(here, is_known)?)?;
            displaced.displaced.cancel();
        }
        let (number, displaced) = (self.next, CancellationToken::new());
        self.next += 1;
        self.held.insert(number, Held { origin: origin.to_owned(), displaced: displaced.clone() });
        Some((number, displaced))
    }

    /// The oldest of the origin that holds most, known ones aside; none if that holds no more than whoever asks, who has `here`.
    fn whoever_makes_way(&self, here: usize, is_known: bool) -> Option<u64> {
        let mut by_origin: HashMap<&str, (usize, u64)> = HashMap::new();
        for (number, held) in &self.held {
            if !self.known.contains(&held.origin) {
                by_origin.entry(&held.origin).or_insert((0, *number)).0 += 1;
            }
        }
        let (count, oldest) =
            by_origin.into_values().max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)))?;
        (is_known || count > here).then_some(oldest)
    }

    fn note_known(&mut self, number: u64) {
        let Some(Held { origin, .. }) = self.held.remove(&number) else { return };
        self.known.retain(|k| *k != origin);
        if self.known.len() >= ORIGINS_KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(origin);
    }

    fn leave(&mut self, number: u64) {
        self.held.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_subscriber_is_one_origin() {
        assert_eq!(origin_of("10.0.0.1:5"), "10.0.0.1");
        assert_eq!(origin_of("[::ffff:10.0.0.1]:5"), "10.0.0.1", "a v4 address seen by a v6 socket");
        assert_eq!(origin_of("[2001:db8:1:2::1]:5"), origin_of("[2001:db8:1:2:ffff:1:2:3]:9"));
        assert_ne!(origin_of("[2001:db8:1:2::1]:5"), origin_of("[2001:db8:1:3::1]:5"));
        assert_eq!(
            origin_of("[fe80::1%eth0]:5"),
            origin_of("[fe80::2%eth0]:9"),
            "one neighbour has many addresses"
        );
        assert_eq!(origin_of("host:7440"), "host");
    }

    #[test]
    fn one_origin_has_few_places() {
        let mut slots = Slots::default();
        for _ in 0..UNAUTHENTICATED_PER_ORIGIN_MAX {
            assert!(slots.admit("x").is_some());
        }
        assert!(slots.admit("x").is_none());
        slots.leave(0);
        assert!(slots.admit("x").is_some());
    }

    /// Fills every slot, `each` for an origin.
    fn full(slots: &mut Slots, each: usize) -> Vec<CancellationToken> {
        let admit = |n: usize| slots.admit(&format!("attacker-{}", n / each)).expect("a free slot").1;
        (0..UNAUTHENTICATED_MAX).map(admit).collect()
    }

    #[test]
    fn whoever_holds_most_makes_way_and_nobody_passes_the_limit() {
        for each in [1, 5, UNAUTHENTICATED_PER_ORIGIN_MAX] {
            let mut slots = Slots::default();
            let attackers = full(&mut slots, each);
            let (_, peer) = slots.admit("peer").expect("a newcomer with no slot displaces the oldest");
            assert!(
                attackers[0].is_cancelled() && attackers.iter().filter(|a| a.is_cancelled()).count() == 1
            );
            assert_eq!(slots.held.len(), UNAUTHENTICATED_MAX);
            // The attackers come again: they push out one another, as often as each origin has more than one slot.
            for n in 0..each * 100 {
                slots.admit(&format!("attacker-{}", n % (UNAUTHENTICATED_MAX / each).max(1)));
                assert!(slots.held.len() <= UNAUTHENTICATED_MAX);
            }
            assert!(each == 1 || !peer.is_cancelled(), "{each} each");
        }
    }

    #[test]
    fn an_origin_of_a_pinned_peer_is_not_displaced_by_any_number_of_unknown_peers() {
        let mut slots = Slots::default();
        let (number, _) = slots.admit("peer").unwrap();
        slots.note_known(number);
        let _attackers = full(&mut slots, 1);
        let lanes: Vec<_> = (0..UNAUTHENTICATED_PER_KNOWN_ORIGIN_MAX).map(|_| slots.admit("peer")).collect();
        assert!(lanes.iter().all(Option::is_some), "a peer dials many lanes at once");
        assert!(slots.admit("peer").is_none());
        for n in 0..10_000 {
            slots.admit(&format!("another-{n}"));
        }
        assert!(lanes.iter().flatten().all(|(_, displaced)| !displaced.is_cancelled()));
        assert_eq!(slots.held.len(), UNAUTHENTICATED_MAX);
    }

    #[test]
    fn known_origins_are_bounded_and_the_latest_stay() {
        let mut slots = Slots::default();
        for n in 0..2 * ORIGINS_KNOWN_MAX {
            let (number, _) = slots.admit(&format!("site-{n}")).unwrap();
            slots.note_known(number);
        }
        assert_eq!((slots.known.len(), slots.held.len()), (ORIGINS_KNOWN_MAX, 0));
        assert_eq!(slots.known.back().unwrap(), &format!("site-{}", 2 * ORIGINS_KNOWN_MAX - 1));
    }
}
