//! What a transfer has sent, by fingerprint: a block that it has sent before need not be sent again. Pure.

use std::collections::HashMap;

use farside_engine::Fingerprint;

use crate::limits::REPEATS_PER_GENERATION;

/// Where the blocks lie that the stream has carried: the newest of them, in two generations, of which the older goes when
/// the newer is full.
#[derive(Default)]
pub(crate) struct Carried {
    newer: HashMap<Fingerprint, u64>,
    older: HashMap<Fingerprint, u64>,
}

impl Carried {
    /// The block at `position` has this fingerprint, and an earlier frame brings it. Of several the first stays: what follows
    /// it was sent, too.
    pub(crate) fn enter(&mut self, fingerprint: Fingerprint, position: u64) {
        if self.newer.len() >= REPEATS_PER_GENERATION {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.entry(fingerprint).or_insert(position);
    }

    /// Where such a block lies. It counts as new again.
    pub(crate) fn find(&mut self, fingerprint: &Fingerprint) -> Option<u64> {
        if let Some(position) = self.newer.get(fingerprint) {
            return Some(*position);
        }
        let position = self.older.remove(fingerprint)?;
        self.enter(*fingerprint, position);
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(n: usize) -> Fingerprint {
        Fingerprint((n as u128).to_be_bytes())
    }

    #[test]
    fn the_newest_are_found_and_the_oldest_forgotten() {
        let mut carried = Carried::default();
        for n in 0..2 * REPEATS_PER_GENERATION + 1 {
            carried.enter(fingerprint(n), 3 * n as u64);
        }
        assert_eq!(carried.find(&fingerprint(0)), None);
        for n in [REPEATS_PER_GENERATION, 2 * REPEATS_PER_GENERATION] {
            assert_eq!(carried.find(&fingerprint(n)), Some(3 * n as u64));
        }
        let again = fingerprint(2 * REPEATS_PER_GENERATION);
        carried.enter(again, 7);
        assert_eq!(carried.find(&again), Some(6 * REPEATS_PER_GENERATION as u64), "where it was sent first");
        for n in 0..REPEATS_PER_GENERATION {
            carried.enter(fingerprint(usize::MAX - n), 1);
        }
        // It was found, so it is not among the oldest.
        assert!(carried.find(&fingerprint(REPEATS_PER_GENERATION)).is_some());
        assert!(carried.newer.len() <= REPEATS_PER_GENERATION);
    }
}
