//! In which order containers go when room is needed: the one that came first goes first, unless it was asked for since
//! it was last looked at (the second chance of clock page replacement). Pure.

use std::collections::{HashMap, VecDeque};

/// The containers of a realm, by slot, in the order in which they go.
#[derive(Debug, Default)]
pub struct Ring {
    /// Each with its turn; one whose turn is no longer that has gone.
    order: VecDeque<(u32, u64)>,
    turns: HashMap<u32, u64>,
    last_turn: u64,
}

impl Ring {
    /// One that has just come: it goes last.
    pub fn push(&mut self, slot: u32) {
        self.last_turn += 1;
        self.turns.insert(slot, self.last_turn);
        self.order.push_back((slot, self.last_turn));
    }

    /// One that has gone.
    pub fn remove(&mut self, slot: u32) {
        self.turns.remove(&slot);
        // What has gone is taken out once it is half of all: each costs the same, wherever it was.
        if self.order.len() > 2 * self.turns.len() {
            let turns = &self.turns;
            self.order.retain(|(slot, turn)| turns.get(slot) == Some(turn));
        }
    }

    /// Which one goes next. `take_mark` says whether that slot was asked for since, and forgets it; such a one comes last
    /// again, once. None if the ring is empty.
    pub fn next_to_go(&mut self, mut take_mark: impl FnMut(u32) -> bool) -> Option<u32> {
        // All of them marked: then it is the first after all.
        for _ in 0..self.order.len() {
            let (slot, turn) = *self.order.front()?;
            if self.turns.get(&slot) != Some(&turn) {
                self.order.pop_front();
            } else if take_mark(slot) {
                self.order.rotate_left(1);
            } else {
                return Some(slot);
            }
        }
        self.order.iter().find(|(slot, turn)| self.turns.get(slot) == Some(turn)).map(|(slot, _)| *slot)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_from_the_middle_does_not_go_again() {
        let mut ring = Ring::default();
        (0..100).for_each(|slot| ring.push(slot));
        (0..98).filter(|slot| slot % 3 > 0).for_each(|slot| ring.remove(slot));
        // A slot is given again: it goes last.
        ring.push(1);
        ring.remove(0);
        let mut order = Vec::new();
        while let Some(slot) = ring.next_to_go(|slot| slot == 6 && !order.contains(&3)) {
            ring.remove(slot);
            order.push(slot);
        }
        let expected: Vec<u32> = (1..33).map(|n| 3 * n).chain([98, 99, 1]).collect();
        assert_eq!(order, expected);
        assert!(ring.is_empty() && ring.order.is_empty());
    }
}
