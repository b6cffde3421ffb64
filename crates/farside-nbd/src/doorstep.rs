//! Network connections that have not proved yet whose they are: how many there may be, who makes way, what is logged.
//!
//! They are counted by *origin*: an IPv4 address, or the first 64 bits of an IPv6 one (whoever has one has them all). A
//! newcomer always gets a place. When all are taken it displaces the oldest connection of the origin that holds most. So
//! whoever holds connections open without a word pushes out its own, and a known host needs a place for a few round
//! trips only.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::limits::{STRANGER_LINES_MAX, STRANGER_LINES_WITHIN};

/// Bits of an IPv6 address that one subscriber cannot choose.
const V6_PREFIX: u128 = !0 << 64;

/// Who is counted together with whoever comes from `address`.
fn origin_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & V6_PREFIX)),
        v4 => v4,
    }
}

/// The connections that nobody knows yet.
pub(crate) struct Doorstep {
    most: usize,
    places: Mutex<Places>,
    lines: Mutex<Lines>,
}

/// One connection's place; given back when dropped.
pub(crate) struct Place {
    doorstep: Arc<Doorstep>,
    number: u64,
    displaced: CancellationToken,
}

impl Place {
    /// Cancelled when a newer connection needs the place.
    pub(crate) fn displaced(&self) -> &CancellationToken {
        &self.displaced
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.doorstep.places.lock().leave(self.number);
    }
}

impl Doorstep {
    pub(crate) fn new(most: usize) -> Arc<Doorstep> {
        Arc::new(Doorstep { most, places: Mutex::default(), lines: Mutex::new(Lines::new(Instant::now())) })
    }

    /// A place for a connection from there.
    pub(crate) fn admit(self: &Arc<Doorstep>, from: IpAddr) -> Place {
        let (number, displaced) = self.places.lock().admit(origin_of(from), self.most);
        Place { doorstep: Arc::clone(self), number, displaced }
    }

    /// Writes a line about a connection that was not let in, unless there were too many of late: whoever knocks all day must
    /// not fill the disk.
    pub(crate) fn log(&self, from: &str, why: &dyn std::fmt::Display) {
        match self.lines.lock().next(Instant::now()) {
            Line::Write { left_out } => {
                if left_out > 0 {
                    tracing::warn!("{left_out} further network clients that NBD refused were not logged");
                }
                tracing::warn!(from, "NBD client over the network refused: {why}");
            }
            Line::LeaveOut => {}
        }
    }
}

/// Who has which place. Pure.
#[derive(Default)]
struct Places {
    /// By number: the smallest is the oldest.
    held: BTreeMap<u64, (IpAddr, CancellationToken)>,
    by_origin: HashMap<IpAddr, usize>,
    next: u64,
}

impl Places {
    fn admit(&mut self, origin: IpAddr, most: usize) -> (u64, CancellationToken) {
        while self.held.len() >= most {
            let fullest = self.by_origin.values().copied().max().unwrap_or(0);
            let oldest =
                self.held.iter().find(|(_, (origin, _))| self.by_origin.get(origin) == Some(&fullest));
            let Some(number) = oldest.map(|(number, _)| *number) else { break };
            if let Some(displaced) = self.leave(number) {
                displaced.cancel();
            }
        }
        let (number, displaced) = (self.next, CancellationToken::new());
        self.next += 1;
        self.held.insert(number, (origin, displaced.clone()));
        *self.by_origin.entry(origin).or_default() += 1;
        (number, displaced)
    }

    fn leave(&mut self, number: u64) -> Option<CancellationToken> {
        let (origin, displaced) = self.held.remove(&number)?;
        if let Some(count) = self.by_origin.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.by_origin.remove(&origin);
            }
        }
        Some(displaced)
    }
}

/// Which lines are written. Pure.
struct Lines {
    since: Instant,
    written: u32,
    left_out: u64,
}

#[derive(PartialEq, Eq, Debug)]
enum Line {
    /// Write it, and that so many were left out before it.
    Write {
        left_out: u64,
    },
    LeaveOut,
}

impl Lines {
    fn new(now: Instant) -> Lines {
        Lines { since: now, written: 0, left_out: 0 }
    }

    fn next(&mut self, now: Instant) -> Line {
        let mut left_out = 0;
        if now.saturating_duration_since(self.since) >= STRANGER_LINES_WITHIN {
            left_out = self.left_out;
            *self = Lines::new(now);
        }
        if self.written >= STRANGER_LINES_MAX {
            self.left_out += 1;
            return Line::LeaveOut;
        }
        self.written += 1;
        Line::Write { left_out }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + last).into())
    }

    #[test]
    fn one_subscriber_is_one_origin() {
        let origin = |text: &str| origin_of(text.parse().unwrap());
        assert_eq!(origin("::ffff:10.0.0.1"), origin("10.0.0.1"));
        assert_eq!(origin("2001:db8:1:2::1"), origin("2001:db8:1:2:ffff::9"));
        assert_ne!(origin("2001:db8:1:2::1"), origin("2001:db8:1:3::1"));
    }

    #[test]
    fn the_oldest_of_who_holds_most_makes_way() {
        let mut places = Places::default();
        let (_, host) = places.admit(address(1), 4);
        let flood: Vec<_> = (0..3).map(|_| places.admit(address(2), 4).1).collect();
        for _ in 0..1000 {
            places.admit(address(2), 4);
        }
        assert!(!host.is_cancelled(), "another's flood does not reach it");
        assert!(flood.iter().all(CancellationToken::is_cancelled));
        assert_eq!((places.held.len(), places.by_origin[&address(2)]), (4, 3));
        for number in 3..1000 {
            places.admit(address(number), 4);
        }
        assert!(host.is_cancelled(), "where everybody holds one, the oldest goes");
        assert_eq!((places.held.len(), places.by_origin.len()), (4, 4));
        let numbers: Vec<u64> = places.held.keys().copied().collect();
        numbers.into_iter().for_each(|number| drop(places.leave(number)));
        assert!(places.by_origin.is_empty());
    }

    #[test]
    fn lines_are_counted_when_there_are_too_many() {
        let start = Instant::now();
        let mut lines = Lines::new(start);
        for _ in 0..STRANGER_LINES_MAX {
            assert_eq!(lines.next(start), Line::Write { left_out: 0 });
        }
        assert_eq!((lines.next(start), lines.next(start)), (Line::LeaveOut, Line::LeaveOut));
        assert_eq!(lines.next(start + STRANGER_LINES_WITHIN), Line::Write { left_out: 2 });
    }
}
