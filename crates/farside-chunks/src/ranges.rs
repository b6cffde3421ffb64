//! Places of a container, as few ranges. Pure.

/// Ranges of a container that are told to a peer at most; what is beyond them is sent again one day.
pub const RANGES_MAX: usize = 16;

/// Places: disjoint ranges, ascending, from the first place to the one after the last. Most containers are one range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(Vec<(u16, u16)>);

impl Ranges {
    /// Those of `places`, ascending.
    pub fn of(places: impl IntoIterator<Item = u16>) -> Ranges {
        let mut ranges = Ranges::default();
        for place in places {
            ranges.insert(place);
        }
        ranges
    }

    /// None unless they are disjoint, ascending, with a gap between them, and [`RANGES_MAX`] at most.
    pub fn from_pairs(pairs: Vec<(u16, u16)>) -> Option<Ranges> {
        let are_ascending = pairs.windows(2).all(|two| two[0].1 < two[1].0);
        let are_ranges = pairs.iter().all(|(first, end)| first < end);
        (are_ascending && are_ranges && pairs.len() <= RANGES_MAX).then_some(Ranges(pairs))
    }

    /// Adds a place.
    pub fn insert(&mut self, place: u16) {
        let after = self.0.partition_point(|(first, _)| *first <= place);
        // The last number of all has none after it; no container has such a place.
        if place == u16::MAX || (after > 0 && place < self.0[after - 1].1) {
            return;
        }
        let joins_before = after > 0 && self.0[after - 1].1 == place;
        let joins_after = self.0.get(after).is_some_and(|(first, _)| *first == place + 1);
        match (joins_before, joins_after) {
            (true, true) => {
                self.0[after - 1].1 = self.0[after].1;
                self.0.remove(after);
            }
            (true, false) => self.0[after - 1].1 += 1,
            (false, true) => self.0[after].0 -= 1,
            (false, false) => self.0.insert(after, (place, place + 1)),
        }
    }

    /// Takes out a place, and what comes after it without a gap.
    pub fn cut(&mut self, place: u16) {
        for range in &mut self.0 {
            if range.0 <= place && place < range.1 {
                range.1 = place;
            }
        }
        self.0.retain(|(first, end)| first < end);
    }

    /// Whether a place is in them.
    pub fn has(&self, place: u16) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= place);
        after > 0 && place < self.0[after - 1].1
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many places.
    pub fn places(&self) -> usize {
        self.0.iter().map(|(first, end)| usize::from(end - first)).sum()
    }

    /// The ranges, [`RANGES_MAX`] at most.
    pub fn pairs(&self) -> &[(u16, u16)] {
        &self.0[..self.0.len().min(RANGES_MAX)]
    }
}
