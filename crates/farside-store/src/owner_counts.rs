//! How many owners data blocks have beyond the first (invariant S8): in memory while the pool is open, and in the
//! tables of its points.
//!
//! Every free of a data block asks here first. A pool in which nothing is shared answers from one integer. Else a place costs a
//! bit (a roaring bitmap: at most one bit for each block of the pool, as the allocator's own map; two bytes where shared
//! blocks lie far apart), and a place with three owners or more about 32 bytes besides, of which there are at most
//! [`MANY_OWNERS_MAX`].

use std::collections::BTreeMap;

use farside_format::fingerprint::FAN_OUT;
use farside_format::node::copies;
use farside_format::owner_counts::{PLACES_PER_BLOCK, set_extra_owners, shared_places, table_blocks};
use farside_format::{FormatError, Place};
use roaring::RoaringTreemap;

/// Most owners beyond the first that a block gets: one that rots takes no more than 256 others with it.
pub(crate) const EXTRA_OWNERS_MAX: u32 = 255;
/// Most places with three owners or more: 32 MiB of memory.
const MANY_OWNERS_MAX: usize = 1 << 20;

/// The counts. See the module's head.
#[derive(Clone, Default)]
pub(crate) struct OwnerCounts {
    /// Places with more than one owner.
    shared: RoaringTreemap,
    /// Of those with more than two: owners beyond the second.
    more: BTreeMap<u64, u32>,
    /// Owners beyond the first, of all places together.
    extra: u64,
    /// Blocks of the table that are not all zeros.
    table_blocks: u64,
    /// Blocks of the table that became all zeros: since the last capture, between it and the one before, and between the two
    /// before. A journal replayed from the older point may have to write them.
    emptied: [u64; 3],
    /// Blocks of the table that differ from what the last captured point wrote.
    changed: RoaringTreemap,
}

impl OwnerCounts {
    /// Places with several owners.
    pub(crate) fn shared_places(&self) -> u64 {
        self.shared.len()
    }

    /// Owners beyond the first, of all places together: blocks that need no place of their own.
    pub(crate) fn extra_owners(&self) -> u64 {
        self.extra
    }

    /// Blocks of the table that the next point may have to write at most, be it after a replay, in which what was reaped
    /// since the older point is not reaped. It becomes less with points only.
    pub(crate) fn table_blocks(&self) -> u64 {
        self.table_blocks + self.emptied.iter().sum::<u64>()
    }

    /// Owners of `place` beyond the first.
    pub(crate) fn extra(&self, place: Place) -> u32 {
        if self.extra == 0 || !self.shared.contains(place.0) {
            return 0;
        }
        1 + self.more.get(&place.0).copied().unwrap_or(0)
    }

    /// One owner more, if the limits allow it; false if they do not: then the asker copies.
    #[must_use]
    pub(crate) fn raise_within_limits(&mut self, place: Place) -> bool {
        let extra = self.extra(place);
        if extra >= EXTRA_OWNERS_MAX || (extra == 1 && self.more.len() >= MANY_OWNERS_MAX) {
            return false;
        }
        self.raise(place);
        true
    }

    /// One owner more. Replay comes here: it can find owners that the running pool had freed, and stays above no limit.
    pub(crate) fn raise(&mut self, place: Place) {
        let table_block = place.0 / PLACES_PER_BLOCK;
        self.changed.insert(table_block);
        self.extra += 1;
        if self.shared.contains(place.0) {
            *self.more.entry(place.0).or_default() += 1;
            return;
        }
        if self.is_zero(table_block) {
            self.table_blocks += 1;
        }
        self.shared.insert(place.0);
    }

    /// One owner less; false if there was only one: the place has none now, and is free.
    #[must_use]
    pub(crate) fn lower(&mut self, place: Place) -> bool {
        // The whole cost where nothing is shared.
        if self.extra == 0 || !self.lower_with_the_point(place) {
            return false;
        }
        self.changed.insert(place.0 / PLACES_PER_BLOCK);
        true
    }

    /// The same for an owner that the running point ends: its own table says so, so that nothing is left to write.
    pub(crate) fn lower_with_the_point(&mut self, place: Place) -> bool {
        if let Some(more) = self.more.get_mut(&place.0) {
            *more -= 1;
            if *more == 0 {
                self.more.remove(&place.0);
            }
        } else if self.shared.remove(place.0) {
            if self.is_zero(place.0 / PLACES_PER_BLOCK) {
                self.table_blocks -= 1;
                self.emptied[0] += 1;
            }
        } else {
            return false;
        }
        self.extra -= 1;
        true
    }

    fn is_zero(&self, table_block: u64) -> bool {
        let first = table_block * PLACES_PER_BLOCK;
        self.shared.range_cardinality(first..first + PLACES_PER_BLOCK) == 0
    }

    /// Begins a consistency point: what its table shall say. Nothing has changed since.
    pub(crate) fn capture(&mut self) -> OwnerCounts {
        let captured = self.clone();
        self.changed.clear();
        let [since, before, _] = self.emptied;
        // Until the point is on the medium the older one counts.
        self.emptied = [0, since, before + self.emptied[2]];
        captured
    }

    /// The captured point is on the medium.
    pub(crate) fn installed(&mut self) {
        self.emptied[2] = 0;
    }

    /// Blocks of the table that differ from the last point's, ascending.
    pub(crate) fn changed_blocks(&self) -> Vec<u64> {
        self.changed.iter().collect()
    }

    /// Takes over one block of the table on the medium.
    pub(crate) fn load_block(
        &mut self,
        table_block: u64,
        bytes: &[u8],
        pool_blocks: u64,
    ) -> Result<(), FormatError> {
        for (index, extra) in shared_places(bytes) {
            let place = table_block * PLACES_PER_BLOCK + index;
            if place >= pool_blocks {
                return Err(FormatError::Field { what: "owner counts", field: "place past the end" });
            }
            self.shared.insert(place);
            if extra > 1 {
                self.more.insert(place, extra - 1);
            }
            self.extra += u64::from(extra);
        }
        self.table_blocks += 1;
        Ok(())
    }

    /// Encodes one block of the table.
    pub(crate) fn encode_block(&self, table_block: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        let first = table_block * PLACES_PER_BLOCK;
        let mut places = self.shared.iter();
        places.advance_to(first);
        for place in places.take_while(|place| *place < first + PLACES_PER_BLOCK) {
            set_extra_owners(bytes, place - first, self.extra(Place(place)));
        }
    }
}

/// Blocks that a table of which `stored` blocks are not all zeros takes in a pool of `pool_blocks`, nodes included, at
/// most: each may have a path of its own.
pub(crate) fn table_cost(stored: u64, pool_blocks: u64) -> u64 {
    let (mut cost, mut width, mut level) = (stored, table_blocks(pool_blocks), 0);
    while width > 1 || level == 0 {
        level += 1;
        width = width.div_ceil(FAN_OUT as u64);
        cost += stored.min(width) * copies(level);
    }
    cost
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    const POOL_BLOCKS: u64 = 5 * PLACES_PER_BLOCK + 7;

    fn assert_is(counts: &OwnerCounts, model: &BTreeMap<u64, u32>) {
        for place in 0..POOL_BLOCKS {
            assert_eq!(counts.extra(Place(place)), model.get(&place).copied().unwrap_or(0), "{place}");
        }
        let tables: BTreeSet<u64> = model.keys().map(|p| p / PLACES_PER_BLOCK).collect();
        assert_eq!(counts.shared_places(), model.len() as u64);
        assert_eq!(counts.extra_owners(), model.values().map(|n| u64::from(*n)).sum::<u64>());
        assert_eq!(counts.table_blocks, tables.len() as u64);
    }

    #[test]
    fn counts_follow_a_model_and_come_back_from_their_table() {
        for seed in 0..60 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut counts = OwnerCounts::default();
            let mut model: BTreeMap<u64, u32> = BTreeMap::new();
            let mut touched = BTreeSet::new();
            for _ in 0..rng.random_range(1..400) {
                let place = rng.random_range(0..12) + rng.random_range(0..3) * 2 * PLACES_PER_BLOCK;
                if rng.random_bool(0.5) {
                    counts.raise(Place(place));
                    *model.entry(place).or_default() += 1;
                    touched.insert(place / PLACES_PER_BLOCK);
                } else {
                    assert_eq!(counts.lower(Place(place)), model.contains_key(&place), "seed {seed}");
                    if let Some(extra) = model.get_mut(&place) {
                        *extra -= 1;
                        touched.insert(place / PLACES_PER_BLOCK);
                    }
                    model.retain(|_, extra| *extra > 0);
                }
            }
            assert_is(&counts, &model);
            let captured = counts.capture();
            assert!(captured.changed_blocks().into_iter().eq(touched), "seed {seed}");
            assert!(counts.changed_blocks().is_empty());
            let mut loaded = OwnerCounts::default();
            for table_block in 0..table_blocks(POOL_BLOCKS) {
                let mut bytes = [0; 4096];
                captured.encode_block(table_block, &mut bytes);
                if bytes != [0; 4096] {
                    loaded.load_block(table_block, &bytes, POOL_BLOCKS).expect("within the pool");
                }
            }
            assert_is(&loaded, &model);
            assert!(loaded.changed_blocks().is_empty());
        }
    }

    #[test]
    fn limits_are_kept_and_replay_knows_none() {
        let mut counts = OwnerCounts::default();
        for _ in 0..EXTRA_OWNERS_MAX {
            assert!(counts.raise_within_limits(Place(9)));
        }
        assert!(!counts.raise_within_limits(Place(9)));
        assert_eq!(counts.extra(Place(9)), EXTRA_OWNERS_MAX);
        counts.raise(Place(9));
        assert_eq!(counts.extra(Place(9)), EXTRA_OWNERS_MAX + 1);
        assert!(counts.raise_within_limits(Place(8)));
        let many = 100..100 + MANY_OWNERS_MAX as u64;
        counts.shared.insert_range(many.clone());
        counts.more.extend(many.map(|place| (place, 1)));
        assert!(!counts.raise_within_limits(Place(8)), "a third owner of one more place");
        assert!(counts.raise_within_limits(Place(7)), "a second one costs next to nothing");
    }

    #[test]
    fn room_for_the_table_is_given_back_after_two_points() {
        let mut counts = OwnerCounts::default();
        let point = |counts: &mut OwnerCounts| {
            counts.capture();
            counts.installed();
            counts.table_blocks()
        };
        counts.raise(Place(1));
        counts.raise(Place(PLACES_PER_BLOCK));
        assert_eq!(counts.table_blocks(), 2);
        assert!(counts.lower(Place(1)));
        assert_eq!(counts.table_blocks(), 2);
        assert_eq!([point(&mut counts), point(&mut counts)], [2, 1]);
        counts.raise(Place(1));
        assert_eq!(counts.table_blocks(), 2);
    }

    #[test]
    fn a_place_past_the_pool_is_refused() {
        let mut bytes = [0; 4096];
        set_extra_owners(&mut bytes, 7, 1);
        assert!(OwnerCounts::default().load_block(5, &bytes, POOL_BLOCKS).is_err());
        assert!(OwnerCounts::default().load_block(5, &bytes, POOL_BLOCKS + 1).is_ok());
    }

    #[test]
    fn a_table_costs_its_blocks_and_their_paths() {
        // 13 MiB: one leaf. 8 GiB: 2048 table blocks, 16 leaves, one inner node.
        assert_eq!([0, 1, 3].map(|stored| table_cost(stored, 3328)), [0, 2, 4]);
        assert_eq!([0, 1, 2048].map(|stored| table_cost(stored, 2 << 20)), [0, 4, 2048 + 16 + 2]);
    }
}
