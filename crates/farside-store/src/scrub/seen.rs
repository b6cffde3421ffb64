//! Which places a scrub has read, a bit each; bounded. Pure.

use std::collections::HashMap;

/// Words of one page: 4 KiB, for 128 MiB of the pool.
const PAGE_WORDS: usize = 512;
const PAGE_PLACES: u64 = PAGE_WORDS as u64 * 64;
/// Pages at most: 64 MiB of memory, for 2 TiB of the pool.
const PAGES_MAX: usize = 16_384;

/// See the module's head.
#[derive(Default)]
pub(super) struct Seen {
    pages: HashMap<u64, Box<[u64; PAGE_WORDS]>>,
}

impl Seen {
    /// Whether it was seen; false as well where there is no room to remember it.
    pub(super) fn contains(&self, place: u64) -> bool {
        let (word, bit) = at(place);
        self.pages.get(&(place / PAGE_PLACES)).is_some_and(|page| page[word] & bit != 0)
    }

    /// Remembers it, if there is room.
    pub(super) fn insert(&mut self, place: u64) {
        let page = place / PAGE_PLACES;
        if self.pages.len() >= PAGES_MAX && !self.pages.contains_key(&page) {
            return;
        }
        let (word, bit) = at(place);
        self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE_WORDS]))[word] |= bit;
    }
}

impl Seen {
    /// It is to be read after all.
    pub(super) fn remove(&mut self, place: u64) {
        let (word, bit) = at(place);
        if let Some(page) = self.pages.get_mut(&(place / PAGE_PLACES)) {
            page[word] &= !bit;
        }
    }
}

fn at(place: u64) -> (usize, u64) {
    ((place % PAGE_PLACES / 64) as usize, 1 << (place % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_known_and_memory_is_bounded() {
        let mut seen = Seen::default();
        for place in [0, 63, 64, PAGE_PLACES - 1, PAGE_PLACES, 1 << 47] {
            assert!(!seen.contains(place));
            seen.insert(place);
            assert!(seen.contains(place) && !seen.contains(place ^ 1));
        }
        for page in 0..PAGES_MAX as u64 + 100 {
            seen.insert(page * PAGE_PLACES + 5);
        }
        assert_eq!(seen.pages.len(), PAGES_MAX);
        // Beyond, nothing is remembered, and nothing is taken for seen.
        assert!(!seen.contains((PAGES_MAX as u64 + 99) * PAGE_PLACES + 5));
        assert!(seen.contains(5));
    }
}
