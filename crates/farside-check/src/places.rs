//! A set of places, one bit each, in chunks that match those of the free map.

use std::collections::BTreeMap;

use farside_format::free_map::BLOCKS_PER_CHUNK;

const WORDS: usize = (BLOCKS_PER_CHUNK / 64) as usize;

/// Places; memory is one bit per block of each chunk of 64 MiB that has any.
#[derive(Default)]
pub(crate) struct PlaceSet {
    chunks: BTreeMap<u64, Box<[u64; WORDS]>>,
    length: u64,
}

impl PlaceSet {
    /// Adds; false if it was there.
    pub(crate) fn insert(&mut self, place: u64) -> bool {
        let chunk = self.chunks.entry(place / BLOCKS_PER_CHUNK).or_insert_with(|| Box::new([0; WORDS]));
        let within = place % BLOCKS_PER_CHUNK;
        let (word, bit) = (&mut chunk[(within / 64) as usize], 1 << (within % 64));
        let fresh = *word & bit == 0;
        *word |= bit;
        self.length += u64::from(fresh);
        fresh
    }

    pub(crate) fn contains(&self, place: u64) -> bool {
        let within = place % BLOCKS_PER_CHUNK;
        self.chunks
            .get(&(place / BLOCKS_PER_CHUNK))
            .is_some_and(|chunk| chunk[(within / 64) as usize] >> (within % 64) & 1 == 1)
    }

    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Whether chunk `index` has any place at all.
    pub(crate) fn has_chunk(&self, index: u64) -> bool {
        self.chunks.contains_key(&index)
    }

    /// The places, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.chunks.iter().flat_map(|(&index, words)| {
            words.iter().enumerate().flat_map(move |(i, &word)| {
                let first = index * BLOCKS_PER_CHUNK + 64 * i as u64;
                (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
            })
        })
    }
}

/// Joins ascending places into runs (first, count), for messages.
pub(crate) fn runs(places: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, u64)> {
    let mut places = places.peekable();
    std::iter::from_fn(move || {
        let first = places.next()?;
        let mut count = 1;
        while places.next_if_eq(&(first + count)).is_some() {
            count += 1;
        }
        Some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_in_order_and_join_into_runs() {
        let mut set = PlaceSet::default();
        for place in [7, 5, 6, 1 << 40, BLOCKS_PER_CHUNK, BLOCKS_PER_CHUNK - 1, 9] {
            assert!(set.insert(place));
        }
        assert!(!set.insert(7));
        assert_eq!(set.len(), 7);
        assert!(set.contains(1 << 40) && !set.contains(8));
        let expected = [(5, 3), (9, 1), (BLOCKS_PER_CHUNK - 1, 2), (1 << 40, 1)];
        assert_eq!(runs(set.iter()).collect::<Vec<_>>(), expected);
    }
}
