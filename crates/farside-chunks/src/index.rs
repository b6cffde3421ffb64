//! Where a chunk may be, by its fingerprint: a cuckoo table of short tags (Fan et al., *Cuckoo Filter*, CoNEXT 2014, with
//! a location beside each tag, as ChunkStash, USENIX ATC 2010, has it).
//!
//! An entry is a tag of 16 bits and a location of 32: a bucket of ten fills a cache line. That is 6.4 bytes for an entry
//! and 7 for each chunk that is to find room. Whoever asks gets every location whose tag fits and reads the fingerprint
//! there; of 3,000 questions for what is not here one names a location in vain. What finds no room is forgotten.

use crate::fingerprint::Fingerprint;

/// Entries of a bucket: ten tags, ten locations and four bytes to spare are 64 bytes.
const BUCKET: usize = 10;
/// Share of the entries that can be filled with two buckets to choose from.
const FILL: f64 = 0.92;
/// Entries that may be moved to make room for one.
const MOVES_MAX: usize = 256;
/// Entries with one tag in the same two buckets: a chunk that came from the peer and was kept once more here. Two other chunks
/// look the same in one case of ten million.
const COPIES_MAX: usize = 2;
/// Bits of a location that say the place in a container.
const PLACE_BITS: u32 = 12;
/// Containers that locations can tell apart.
pub const SLOTS_MAX: u32 = 1 << (32 - PLACE_BITS);

/// Where a chunk may be: a container's slot in the store, and a place in the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// Less than [`SLOTS_MAX`].
    pub slot: u32,
    /// Less than [`CHUNKS_PER_CONTAINER`](crate::container::CHUNKS_PER_CONTAINER).
    pub place: u16,
}

impl Location {
    pub(crate) fn pack(self) -> u32 {
        debug_assert!(self.slot < SLOTS_MAX && u32::from(self.place) < 1 << PLACE_BITS);
        self.slot << PLACE_BITS | u32::from(self.place)
    }

    pub(crate) fn unpack(packed: u32) -> Location {
        let place = packed & ((1 << PLACE_BITS) - 1);
        Location { slot: packed >> PLACE_BITS, place: place as u16 }
    }
}

#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    /// 0: no entry.
    tags: [u16; BUCKET],
    locations: [u32; BUCKET],
}

/// The table.
pub struct Index {
    buckets: Vec<Bucket>,
    entries: u64,
    forgotten: u64,
    /// Chooses what moves; any sequence does.
    next_move: u32,
}

impl Index {
    /// For so many chunks; 64 bytes for nine of them.
    pub fn with_capacity(chunks: u64) -> Index {
        let buckets = (chunks as f64 / FILL / BUCKET as f64).ceil().max(1.0) as usize;
        Index { buckets: vec![Bucket::default(); buckets], entries: 0, forgotten: 0, next_move: 0 }
    }

    /// Chunks that find room.
    pub fn capacity(&self) -> u64 {
        ((self.buckets.len() * BUCKET) as f64 * FILL) as u64
    }

    /// Chunks that are in it.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Chunks that found no room since the beginning.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Of the table, bytes.
    pub fn memory_bytes(&self) -> u64 {
        (self.buckets.len() * size_of::<Bucket>()) as u64
    }

    /// Where the chunk may be; `is_there` looks, and ends the search when it is. At most twenty are named.
    pub fn find<T>(
        &self,
        fingerprint: &Fingerprint,
        mut is_there: impl FnMut(Location) -> Option<T>,
    ) -> Option<T> {
        let (tag, first) = self.hash(fingerprint);
        let second = self.other(first, tag);
        let both = if first == second { [Some(first), None] } else { [Some(first), Some(second)] };
        for bucket in both.into_iter().flatten().map(|bucket| &self.buckets[bucket]) {
            for (own, location) in bucket.tags.iter().zip(bucket.locations) {
                if *own == tag
                    && let Some(found) = is_there(Location::unpack(location))
                {
                    return Some(found);
                }
            }
        }
        None
    }

    /// Enters a chunk. Where there is no room another is forgotten.
    pub fn insert(&mut self, fingerprint: &Fingerprint, location: Location) {
        let (mut tag, first) = self.hash(fingerprint);
        let mut location = location.pack();
        let second = self.other(first, tag);
        if self.replace(first, second, tag, location) {
            self.forgotten += 1;
            return;
        }
        if self.put(first, tag, location) || self.put(second, tag, location) {
            self.entries += 1;
            return;
        }
        let mut bucket = second;
        for _ in 0..MOVES_MAX {
            // A cheap sequence that meets all places: what it does is not to move the same two to and fro.
            self.next_move = self.next_move.wrapping_mul(0x9E37_79B1).wrapping_add(1);
            let place = (self.next_move >> 16) as usize % BUCKET;
            let entry = &mut self.buckets[bucket];
            std::mem::swap(&mut entry.tags[place], &mut tag);
            std::mem::swap(&mut entry.locations[place], &mut location);
            bucket = self.other(bucket, tag);
            if self.put(bucket, tag, location) {
                self.entries += 1;
                return;
            }
        }
        self.forgotten += 1;
    }

    /// Takes a chunk out, if it is in it at that location.
    pub fn remove(&mut self, fingerprint: &Fingerprint, location: Location) -> bool {
        let (tag, first) = self.hash(fingerprint);
        let location = location.pack();
        for bucket in [first, self.other(first, tag)] {
            let bucket = &mut self.buckets[bucket];
            let is_it = |place: &usize| bucket.tags[*place] == tag && bucket.locations[*place] == location;
            if let Some(place) = (0..BUCKET).find(is_it) {
                bucket.tags[place] = 0;
                self.entries -= 1;
                return true;
            }
        }
        false
    }

    /// A chunk that is entered again and again, as a peer may make it, would fill both its buckets and push out others: of
    /// [`COPIES_MAX`] that look the same one is replaced.
    fn replace(&mut self, first: usize, second: usize, tag: u16, location: u32) -> bool {
        let both = if first == second { &[first][..] } else { &[first, second] };
        let mut copies = 0;
        for bucket in both {
            for place in 0..BUCKET {
                copies += usize::from(self.buckets[*bucket].tags[place] == tag);
                if copies == COPIES_MAX {
                    self.buckets[*bucket].locations[place] = location;
                    return true;
                }
            }
        }
        false
    }

    fn put(&mut self, bucket: usize, tag: u16, location: u32) -> bool {
        let bucket = &mut self.buckets[bucket];
        let Some(place) = bucket.tags.iter().position(|tag| *tag == 0) else { return false };
        bucket.tags[place] = tag;
        bucket.locations[place] = location;
        true
    }

    /// The tag, which is never 0, and the first bucket.
    fn hash(&self, fingerprint: &Fingerprint) -> (u16, usize) {
        let word = fingerprint.word();
        ((word as u16).max(1), self.bucket_of(word >> 16))
    }

    /// A bucket for 48 bits that are as good as random.
    fn bucket_of(&self, bits: u64) -> usize {
        ((bits as u128 * self.buckets.len() as u128) >> 48) as usize
    }

    /// The other bucket that an entry may be in. It only needs the tag, and leads back.
    fn other(&self, bucket: usize, tag: u16) -> usize {
        // A multiplication spreads neighbouring tags over the table.
        let bits = (u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 16;
        let (sum, buckets) = (self.bucket_of(bits), self.buckets.len());
        (sum + buckets - bucket) % buckets
    }
}
