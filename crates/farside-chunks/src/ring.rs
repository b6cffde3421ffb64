//! In which order containers go when room is needed: the one that came first goes first, unless it was asked for since
//! it was last looked at (the second chance of clock page replacement). Pure.

use std::collections::VecDeque;

/// The containers of a realm, by slot, in the order in which they go.
#[derive(Debug, Default)]
pub struct Ring {
    order: VecDeque<u32>,
}

impl Ring {
    /// One that has just come: it goes last.
    pub fn push(&mut self, slot: u32) {
        self.order.push_back(slot);
    }

    /// One that has gone.
    pub fn remove(&mut self, slot: u32) {
        // Most often it is the one that was to go.
        if self.order.front() == Some(&slot) {
            self.order.pop_front();
        } else {
            self.order.retain(|other| *other != slot);
        }
    }

    /// Which one goes next. `take_mark` says whether that slot was asked for since, and forgets it; such a one comes last
    /// again, once. None if the ring is empty.
    pub fn next_to_go(&mut self, mut take_mark: impl FnMut(u32) -> bool) -> Option<u32> {
        // All of them marked: then it is the first after all.
        for _ in 0..self.order.len() {
            let slot = *self.order.front()?;
            if !take_mark(slot) {
                return Some(slot);
            }
            self.order.rotate_left(1);
        }
        self.order.front().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}
