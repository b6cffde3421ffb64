//! What a transfer has sent, by fingerprint: a block that it has sent before need not be sent again. Pure.

use std::collections::HashMap;

use farside_engine::Fingerprint;

use crate::limits::REPEATS_PER_GENERATION;

/// Where the blocks lie that the stream has carried: the newest of them, in two generations, of which the older goes when
/// the newer is full.
#[derive(Default)]
pub(super) struct Carried {
    newer: HashMap<Fingerprint, u64>,
    older: HashMap<Fingerprint, u64>,
}

impl Carried {
    /// The block at `position` has this fingerprint, and an earlier frame brings it.
    pub(super) fn enter(&mut self, fingerprint: Fingerprint, position: u64) {
        if self.newer.len() >= REPEATS_PER_GENERATION {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(fingerprint, position);
    }

    /// Where such a block lies.
    pub(super) fn find(&self, fingerprint: &Fingerprint) -> Option<u64> {
        self.newer.get(fingerprint).or_else(|| self.older.get(fingerprint)).copied()
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
        carried.enter(fingerprint(REPEATS_PER_GENERATION), 7);
        assert_eq!(carried.find(&fingerprint(REPEATS_PER_GENERATION)), Some(7), "where it was sent last");
        assert!(carried.newer.len() <= REPEATS_PER_GENERATION);
    }
}
