//! Where a chunk may be that resembles another, by the hashes of its sketch: a table in memory in which the newer takes the place of
//! the older. What it says is looked at before it is used.

use crate::index::Location;
use crate::sketch::SKETCH;

/// Entries at most: 32 MiB.
const ENTRIES_MAX: u64 = 1 << 22;

pub(super) struct Similar {
    /// Twice as many bits of the hash as make the place, and the location.
    entries: Vec<(u32, u32)>,
}

impl Similar {
    /// For so many chunks.
    pub(super) fn with_capacity(chunks: u64) -> Similar {
        let entries = (chunks * SKETCH as u64).next_power_of_two().clamp(1 << 10, ENTRIES_MAX);
        Similar { entries: vec![(0, 0); entries as usize] }
    }

    fn place(&self, hash: u64) -> (usize, u32) {
        (hash as usize & (self.entries.len() - 1), (hash >> 32) as u32 | 1)
    }

    pub(super) fn insert(&mut self, sketch: &[u64; SKETCH], location: Location) {
        for hash in sketch.iter().filter(|hash| **hash != 0) {
            let (place, tag) = self.place(*hash);
            self.entries[place] = (tag, location.pack());
        }
    }

    /// Chunks that share a hash, each once for each.
    pub(super) fn find<'a>(&'a self, sketch: &'a [u64; SKETCH]) -> impl Iterator<Item = Location> + 'a {
        sketch.iter().filter(|hash| **hash != 0).filter_map(|hash| {
            let (place, tag) = self.place(*hash);
            let (has, location) = self.entries[place];
            (has == tag).then(|| Location::unpack(location))
        })
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        (self.entries.len() * size_of::<(u32, u32)>()) as u64
    }
}
