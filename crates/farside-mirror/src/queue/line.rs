//! Whose turn it is. Pure: no I/O, no clock.
//!
//! * Whoever a person waits for goes first.
//! * Then peers take turns: next is of the peer with the fewest transfers under way, so that one that is slow, or holds on to its
//!   places, keeps no other waiting; of equals the one that began a transfer longest ago.
//! * Within a peer, whose data gets too old first: by its objective, or one interval after the snapshot that it shows. Who has neither
//!   is due when it comes, and nobody later than [`DUE_WITHIN`] after it came. So who came first goes first among equals, a short
//!   objective goes before a long one, and nobody starves: whatever comes later is due later. A mirror is in line once.
//! * A first copy lasts long, and may be cut and gone on with at little cost. While somebody waits it gives its place away after
//!   [`FIRST_COPY_TURN`]; if only other first copies of as busy a peer wait, after [`FIRST_COPY_LONG_TURN`].
//! * How long whoever comes will wait is known from how long the last updates kept their places ([`Line::wait_of`]).
//! * While another peer waits, a peer keeps no more than 3/4 of the places: beyond that its updates give way too, but for those that
//!   a person waits for. A role change is one of them, and hosts stand still meanwhile.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use farside_peer::PeerId;
use uuid::Uuid;

#[cfg(doc)]
use crate::limits::DUE_WITHIN;
use crate::limits::{FIRST_COPY_LONG_TURN, FIRST_COPY_TURN};

/// What a transfer waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BeforeIt {
    /// Transfers under way, by the peer they come from, most first.
    pub under_way: Vec<(PeerId, usize)>,
    /// Others that wait and came before it or go first.
    pub waiting: usize,
}

/// One transfer's place in the line or among those under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Ticket(u64);

/// What is known of a transfer that wants to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Claim {
    /// Its source's site.
    pub(crate) peer: PeerId,
    /// Its relationship.
    pub(crate) mirror: Uuid,
    /// It is a first copy: long, and easily gone on with.
    pub(crate) is_first_copy: bool,
    /// A person waits for it.
    pub(crate) is_for_person: bool,
    /// By when it has to be published, milliseconds on the line's own time; what is overdue since before that began is below zero.
    pub(crate) due: i64,
}

/// Of how many updates it is remembered how long they kept their places.
const KEPT_MAX: usize = 32;

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    ticket: Ticket,
    claim: Claim,
    since: Duration,
    is_asked: bool,
}

/// The line and those under way.
#[derive(Debug)]
pub(crate) struct Line {
    size: usize,
    tickets: u64,
    /// In the order in which they came.
    waiting: Vec<(Ticket, Claim)>,
    under_way: Vec<UnderWay>,
    /// How long the last updates kept their places.
    kept: VecDeque<Duration>,
    /// Which beginning was the last of each peer; of those that are in line or under way.
    began: HashMap<PeerId, u64>,
    beginnings: u64,
}

impl Line {
    pub(crate) fn new(size: usize) -> Line {
        Line {
            size,
            tickets: 0,
            waiting: Vec::new(),
            under_way: Vec::new(),
            kept: VecDeque::new(),
            began: HashMap::new(),
            beginnings: 0,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn set_size(&mut self, size: usize) {
        self.size = size;
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Comes last into the line.
    pub(crate) fn come(&mut self, claim: Claim) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.push((ticket, claim));
        ticket
    }

    /// Leaves the line, or its place.
    pub(crate) fn leave(&mut self, ticket: Ticket) {
        self.waiting.retain(|(of, _)| *of != ticket);
        self.under_way.retain(|u| u.ticket != ticket);
    }

    /// The same of one that was under way, from which the line learns how long places are kept.
    pub(crate) fn end(&mut self, ticket: Ticket, now: Duration) {
        let of = self.under_way.iter().find(|u| u.ticket == ticket && !u.claim.is_first_copy);
        if let Some(kept) = of.map(|u| now.saturating_sub(u.since)) {
            if self.kept.len() == KEPT_MAX {
                self.kept.pop_front();
            }
            self.kept.push_back(kept);
        }
        self.leave(ticket);
    }

    /// How long this mirror's transfer will wait for its turn, if it is in line; if not, how long it would if it came now. As others
    /// of the same peer do that come when it does.
    pub(crate) fn wait_of(&self, mirror: Uuid) -> Duration {
        if self.waiting.is_empty() && self.under_way.len() < self.size {
            return Duration::ZERO;
        }
        let before = self.before(mirror).map_or(self.waiting.len(), |before| before.waiting);
        let kept = self.kept.iter().sum::<Duration>() / u32::try_from(self.kept.len()).unwrap_or(1).max(1);
        kept.mul_f64((before + 1) as f64 / self.size.max(1) as f64)
    }

    /// A person waits for this mirror's transfer from now on.
    pub(crate) fn is_for_a_person(&mut self, mirror: Uuid) {
        for (_, claim) in &mut self.waiting {
            claim.is_for_person |= claim.mirror == mirror;
        }
    }

    /// Lets the next one begin, if there is a place for it.
    pub(crate) fn begin_next(&mut self, now: Duration) -> Option<Ticket> {
        if self.under_way.len() >= self.size {
            return None;
        }
        let (ticket, claim) = self.waiting.remove(self.next()?);
        self.beginnings += 1;
        self.began.insert(claim.peer, self.beginnings);
        self.under_way.push(UnderWay { ticket, claim, since: now, is_asked: false });
        // Peers are bounded by who is paired, but who is gone need not be remembered.
        let (waiting, under_way) = (&self.waiting, &self.under_way);
        self.began.retain(|peer, _| {
            waiting.iter().any(|(_, c)| c.peer == *peer) || under_way.iter().any(|u| u.claim.peer == *peer)
        });
        Some(ticket)
    }

    /// The same, with what it claimed.
    #[cfg(test)]
    pub(crate) fn begin_next_claim(&mut self, now: Duration) -> Option<(Ticket, Claim)> {
        let ticket = self.begin_next(now)?;
        self.under_way.iter().find(|u| u.ticket == ticket).map(|u| (ticket, u.claim))
    }

    fn next(&self) -> Option<usize> {
        let order = |(at, (ticket, claim)): &(usize, &(Ticket, Claim))| {
            let turn = if claim.is_for_person {
                (0, 0)
            } else {
                (self.places_of(claim.peer), self.began.get(&claim.peer).copied().unwrap_or(0))
            };
            (!claim.is_for_person, turn, claim.due, *ticket, *at)
        };
        self.waiting.iter().enumerate().min_by_key(order).map(|(at, _)| at)
    }

    fn places_of(&self, peer: PeerId) -> usize {
        self.under_way.iter().filter(|u| u.claim.peer == peer).count()
    }

    /// Who is to give way now, each told once: as many as wait and have nothing to hope for from those that were told before.
    pub(crate) fn ask_to_give_way(&mut self, now: Duration) -> Vec<Ticket> {
        if self.under_way.len() < self.size {
            return Vec::new();
        }
        let mut places = self.under_way.iter().filter(|u| u.is_asked).count();
        let mut asked = Vec::new();
        while places < self.waiting.len() {
            // The peer with the most places first, its copies before its updates, the longest first.
            let may = |u: &&UnderWay| {
                !u.is_asked && self.turn_of(&u.claim).is_some_and(|turn| now.saturating_sub(u.since) >= turn)
            };
            let most = |u: &&UnderWay| {
                (Reverse(self.places_of(u.claim.peer)), !u.claim.is_first_copy, u.since, u.ticket)
            };
            let Some(ticket) = self.under_way.iter().filter(may).min_by_key(most).map(|u| u.ticket) else {
                break;
            };
            self.under_way.iter_mut().filter(|u| u.ticket == ticket).for_each(|u| u.is_asked = true);
            asked.push(ticket);
            places += 1;
        }
        asked
    }

    /// How long a transfer keeps its place while those wait that wait now; none if to its end.
    fn turn_of(&self, claim: &Claim) -> Option<Duration> {
        let is_behind = |other: &Claim| {
            other.peer != claim.peer && self.places_of(other.peer) + 1 < self.places_of(claim.peer)
        };
        if claim.is_first_copy {
            let presses = |(_, other): &(Ticket, Claim)| !other.is_first_copy || is_behind(other);
            let is_pressed = self.waiting.iter().any(presses);
            return Some(if is_pressed { FIRST_COPY_TURN } else { FIRST_COPY_LONG_TURN });
        }
        let of_peer = |u: &&UnderWay| u.claim.peer == claim.peer && !u.is_asked;
        let is_over = self.under_way.iter().filter(of_peer).count() > (self.size * 3 / 4).max(1);
        let is_awaited = self.waiting.iter().any(|(_, other)| is_behind(other));
        (is_over && is_awaited && !claim.is_for_person).then_some(FIRST_COPY_TURN)
    }

    /// What the transfer of this mirror waits for.
    pub(crate) fn before(&self, mirror: Uuid) -> Option<BeforeIt> {
        let (ticket, claim) = self.waiting.iter().find(|(_, claim)| claim.mirror == mirror)?;
        let goes_first = |(of, other): &&(Ticket, Claim)| {
            let is_earlier =
                (other.due, *of) < (claim.due, *ticket) && other.is_for_person == claim.is_for_person;
            (is_earlier && other.peer == claim.peer) || (other.is_for_person && !claim.is_for_person)
        };
        let mut of_peer: HashMap<PeerId, usize> = HashMap::new();
        for u in &self.under_way {
            *of_peer.entry(u.claim.peer).or_default() += 1;
        }
        let mut under_way: Vec<(PeerId, usize)> = of_peer.into_iter().collect();
        under_way.sort_by_key(|(peer, count)| (Reverse(*count), peer.0));
        Some(BeforeIt { under_way, waiting: self.waiting.iter().filter(goes_first).count() })
    }
}

#[cfg(test)]
mod tests;
