//! Packets on their way, by when they are due.
//!
//! Those that do not overtake are due in the order in which they came, so a queue holds them; the few that are held back for
//! others to overtake them are in a heap.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use crate::link::{LineTime, Passage};

use super::pool::Packet;

/// What one direction holds.
#[derive(Debug, Default)]
pub(super) struct Kept {
    in_order: VecDeque<Held>,
    held_back: BinaryHeap<Reverse<Held>>,
    /// One more than the highest sequence number that came out.
    out: u64,
}

/// A packet that comes out.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) packet: Packet,
    pub(super) due: LineTime,
    /// A later packet came out before it.
    pub(super) overtaken: bool,
}

/// A packet and its way; ordered by when it is due, and by arrival where that is the same.
#[derive(Debug)]
struct Held {
    passage: Passage,
    packet: Packet,
}

impl Kept {
    pub(super) fn push(&mut self, passage: Passage, packet: Packet) {
        let held = Held { passage, packet };
        if passage.held_back {
            self.held_back.push(Reverse(held));
        } else {
            self.in_order.push_back(held);
        }
    }

    /// When the next packet is due.
    pub(super) fn next_due(&self) -> Option<LineTime> {
        let in_order = self.in_order.front().map(|held| held.passage.due);
        let held_back = self.held_back.peek().map(|Reverse(held)| held.passage.due);
        match (in_order, held_back) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes out the packet that is due first.
    pub(super) fn pop(&mut self) -> Option<Out> {
        let due = self.next_due()?;
        let held = if self.in_order.front().is_some_and(|held| held.passage.due == due) {
            self.in_order.pop_front()?
        } else {
            self.held_back.pop()?.0
        };
        let overtaken = held.passage.sequence < self.out;
        self.out = self.out.max(held.passage.sequence + 1);
        Some(Out { packet: held.packet, due, overtaken })
    }

    /// Lets `change` give new times to all.
    pub(super) fn retimed(&mut self, change: impl FnOnce(&mut dyn Iterator<Item = &mut Passage>)) {
        let mut held_back = std::mem::take(&mut self.held_back).into_vec();
        change(
            &mut self
                .in_order
                .iter_mut()
                .chain(held_back.iter_mut().map(|Reverse(held)| held))
                .map(|held| &mut held.passage),
        );
        self.held_back = held_back.into();
    }
}

impl Held {
    fn key(&self) -> (LineTime, u64) {
        (self.passage.due, self.passage.sequence)
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Held {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Held {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::emulator::pool::Pool;
    use crate::link::{Change, Line, LinkTerms, Verdict};

    #[test]
    fn packets_come_out_as_they_are_due_also_after_a_change_of_rate() {
        let link = LinkTerms {
            rate: Some(10_000_000),
            reorder: Some(0.2),
            queue: Some(1 << 20),
            ..LinkTerms::default()
        };
        let mut line = Line::new(&link.build("x").unwrap().forward, 3);
        let mut pool = Pool::new(1500);
        pool.allow(1 << 20);
        let mut scratch = pool.scratch();
        let mut kept = Kept::default();
        for number in 0..100_u8 {
            let Verdict::Passes(passage) = line.arrive(LineTime(0), 1000) else { panic!("it passes") };
            scratch[0] = number;
            kept.push(passage, pool.keep(&mut scratch, 1000).unwrap());
        }
        let (mut before, mut highest, mut overtaken) = (LineTime(0), None, 0);
        for count in 0..100 {
            if count == 30 {
                // Ten times slower: what is left takes ten times as long.
                let change = Change::Rate { rate_bits: 1_000_000 };
                kept.retimed(|passages| line.change(before, &change, passages));
            }
            let out = kept.pop().unwrap();
            assert!(out.due >= before, "{out:?}");
            before = out.due;
            let number = Some(out.packet.bytes()[0]);
            assert_eq!(out.overtaken, number < highest);
            overtaken += u32::from(out.overtaken);
            highest = highest.max(number);
        }
        // Only before the change: after it packets are further apart than these are held back.
        assert!((3..10).contains(&overtaken), "{overtaken}");
        assert!(kept.pop().is_none() && kept.next_due().is_none());
        // 100 packets of 0.8 ms; 69 or so of them at a tenth of the rate.
        assert!(before > LineTime::after(Duration::from_millis(500)), "{before:?}");
    }
}
