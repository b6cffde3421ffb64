//! Where content of a given fingerprint may lie: a bounded table in memory, and only ever a hint.
//!
//! It maps the first bytes of a fingerprint to *volume and leaf*, never to a place: a place would be stale once its
//! version is reaped, and a version once the next one is published, while most content stays at its position of its volume
//! for ever. Whoever asks looks there, in versions that live, and believes only bytes that it read and hashed.
//!
//! Two tables of 8 bytes an entry (36 bits of the fingerprint, 28 of where), probed linearly, at most 3/4 full:
//! * *leaves*: the fingerprint of each leaf node, one per 512 KiB, 22 MiB per TiB of data; a quarter of the budget at most;
//! * *blocks*: every block while that fits; when the table is full it drops half of them, those whose fingerprint has one bit
//!   more that is not zero, and so on. So which blocks it knows follows from the fingerprint alone, and the side that asks
//!   can choose by the same bits: of a run of n known blocks one at least is found with a chance of `1 - (1 - 1/k)^n`
//!   where 1 in k is kept. The hit tells the leaf, and the leaf all its 128 blocks.
//!
//! With 128 MiB, 9.4 million blocks are kept: every block of 36 GiB, 1 in 32 of 1 TiB, where a run of 128 KiB is then found
//! with 64 %, of 512 KiB with 98 %. 36 bits say "maybe" wrongly once in some 200 questions about the sample at worst, which costs the look
//! at one leaf. Of a content that lies in several places two are kept.
//! Pure: no I/O, no clock.

use std::collections::HashMap;

use farside_format::Fingerprint;

#[cfg(test)]
mod tests;

/// A leaf node by position: 128 blocks of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct LeafAt {
    /// The volume's number in its pool.
    pub(crate) volume: u64,
    /// The leaf's number in the volume.
    pub(crate) leaf: u64,
}

/// Low bits of an entry: the number of a leaf. The others are the fingerprint's.
const NUMBER_BITS: u32 = 28;
/// Bits of the fingerprint in an entry.
const TAG_BITS: u32 = 64 - NUMBER_BITS;
/// Leaves that get their numbers together: 512 MiB of a volume.
const SEGMENT_LEAVES: u64 = 1024;
/// Segments that can be named: 128 TiB of data, some 12 MiB of memory if all are in use. Number 0 would make an entry
/// of nothing but zeros.
const SEGMENTS_MAX: usize = (1 << NUMBER_BITS) / SEGMENT_LEAVES as usize - 1;
/// Slots of a table that is new: 8 KiB.
const SLOTS_MIN: usize = 1024;
/// Slots looked at for one entry. At 3/4 full a search ends after 9 on average if there is nothing; whoever chooses
/// contents so that they crowd loses entries, and nobody waits for it.
const PROBES_MAX: usize = 128;

/// The first 8 bytes of a fingerprint, big endian.
pub(crate) fn short(fingerprint: Fingerprint) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = fingerprint.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// Where content of one scope may lie.
pub(crate) struct FingerprintIndex {
    leaves: Table,
    blocks: Table,
    /// Segment of a volume to its number, from 1.
    numbers: HashMap<(u64, u64), u32>,
    segments: Vec<(u64, u64)>,
}

impl FingerprintIndex {
    /// An index that takes at most `budget_bytes` in the long run, half as much again while a table grows.
    pub(crate) fn new(budget_bytes: u64) -> FingerprintIndex {
        let (leaves, blocks) = slots(budget_bytes);
        FingerprintIndex {
            leaves: Table::new(leaves),
            blocks: Table::new(blocks),
            numbers: HashMap::new(),
            segments: Vec::new(),
        }
    }

    /// Gives it another budget; what does not fit any more is forgotten.
    pub(crate) fn set_budget(&mut self, budget_bytes: u64) {
        let (leaves, blocks) = slots(budget_bytes);
        self.leaves.set_slots_max(leaves);
        self.blocks.set_slots_max(blocks);
    }

    /// Remembers where a leaf of this fingerprint lies.
    pub(crate) fn enter_leaf(&mut self, at: LeafAt, fingerprint: Fingerprint) {
        if let (false, Some(number)) = (fingerprint.is_hole(), self.number(at)) {
            self.leaves.enter(short(fingerprint), number);
        }
    }

    /// Remembers where blocks of these fingerprints lie, those of the sample. Holes are left out.
    pub(crate) fn enter_blocks(&mut self, at: LeafAt, fingerprints: impl Iterator<Item = Fingerprint>) {
        let Some(number) = self.number(at) else { return };
        for fingerprint in fingerprints.filter(|f| !f.is_hole()) {
            self.blocks.enter(short(fingerprint), number);
        }
    }

    /// Where a leaf of this short fingerprint may lie, the likeliest first.
    pub(crate) fn leaf(&self, short: u64) -> impl Iterator<Item = LeafAt> {
        self.leaves.find(short).into_iter().flatten().filter_map(|number| self.place(number))
    }

    /// In which leaves a block of this short fingerprint may lie, the likeliest first.
    pub(crate) fn block(&self, short: u64) -> impl Iterator<Item = LeafAt> {
        self.blocks.find(short).into_iter().flatten().filter_map(|number| self.place(number))
    }

    /// No leaf of this short fingerprint lies there any more.
    pub(crate) fn leaf_is_stale(&mut self, short: u64, at: LeafAt) {
        if let Some(number) = self.number(at) {
            self.leaves.demote(short, number);
        }
    }

    /// No block of this short fingerprint lies there any more.
    pub(crate) fn block_is_stale(&mut self, short: u64, at: LeafAt) {
        if let Some(number) = self.number(at) {
            self.blocks.demote(short, number);
        }
    }

    /// Trailing zero bits that a block's short fingerprint needs to be kept.
    pub(crate) fn sampling_bits(&self) -> u32 {
        self.blocks.sampling_bits
    }

    /// Entries: leaves and blocks.
    pub(crate) fn entries(&self) -> (usize, usize) {
        (self.leaves.entries, self.blocks.entries)
    }

    /// Memory of the tables, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        8 * (self.leaves.slots.len() + self.blocks.slots.len()) as u64
    }

    fn number(&mut self, at: LeafAt) -> Option<u32> {
        let key = (at.volume, at.leaf / SEGMENT_LEAVES);
        let segment = match self.numbers.get(&key) {
            Some(known) => *known,
            None if self.segments.len() == SEGMENTS_MAX => return None,
            None => {
                self.segments.push(key);
                let new = self.segments.len() as u32;
                self.numbers.insert(key, new);
                new
            }
        };
        Some(segment * SEGMENT_LEAVES as u32 + (at.leaf % SEGMENT_LEAVES) as u32)
    }

    fn place(&self, number: u32) -> Option<LeafAt> {
        let (segment, leaf) = (number / SEGMENT_LEAVES as u32, u64::from(number) % SEGMENT_LEAVES);
        let (volume, in_volume) = *self.segments.get(segment as usize - 1)?;
        Some(LeafAt { volume, leaf: in_volume * SEGMENT_LEAVES + leaf })
    }
}

/// How a budget is shared out: slots for leaves, for blocks.
fn slots(budget_bytes: u64) -> (usize, usize) {
    let all = (budget_bytes / 8) as usize;
    ((all / 4).max(SLOTS_MIN), (all / 4 * 3).max(SLOTS_MIN))
}

/// Fingerprint bits to number, in open addressing.
struct Table {
    /// `tag << NUMBER_BITS | number`; 0 is free. Grows by doubling up to `slots_max`.
    slots: Vec<u64>,
    entries: usize,
    slots_max: usize,
    /// Only fingerprints with this many trailing zero bits are kept.
    sampling_bits: u32,
}

impl Table {
    fn new(slots_max: usize) -> Table {
        Table { slots: Vec::new(), entries: 0, slots_max, sampling_bits: 0 }
    }

    fn is_sampled(&self, short: u64) -> bool {
        short.trailing_zeros() >= self.sampling_bits
    }

    fn enter(&mut self, short: u64, number: u32) {
        if !self.is_sampled(short) {
            return;
        }
        if is_full(self.entries + 1, self.slots.len()) {
            self.make_room();
            if !self.is_sampled(short) {
                return;
            }
        }
        self.put(short << NUMBER_BITS | u64::from(number));
    }

    /// Puts an entry into a free slot near its own. Two of a tag are kept, the first and the last: the first is mostly
    /// what is there to stay, the last is there surely.
    fn put(&mut self, entry: u64) {
        let mut first = None;
        for at in self.probes(entry) {
            let found = self.slots[at];
            if found == 0 {
                self.entries += 1;
                self.slots[at] = entry;
                return;
            }
            if found == entry {
                return;
            }
            if has_tag(found, entry) && first.replace(at).is_some() {
                self.slots[at] = entry;
                return;
            }
        }
        // No room for a second one.
        if let Some(first) = first {
            self.slots[first] = entry;
        }
    }

    fn find(&self, short: u64) -> [Option<u32>; 2] {
        let number = |at: usize| (self.slots[at] & ((1 << NUMBER_BITS) - 1)) as u32;
        let [first, second] = self.of_tag(short);
        [first.map(number), second.map(number).filter(|second| first.map(number) != Some(*second))]
    }

    /// Drops the first entry of a tag, if it leads to `number` and there is another.
    fn demote(&mut self, short: u64, number: u32) {
        let stale = short << NUMBER_BITS | u64::from(number);
        if let [Some(first), Some(second)] = self.of_tag(short)
            && self.slots[first] == stale
        {
            self.slots[first] = self.slots[second];
        }
    }

    /// The slots of a tag.
    fn of_tag(&self, short: u64) -> [Option<usize>; 2] {
        if self.slots.is_empty() || !self.is_sampled(short) {
            return [None; 2];
        }
        let tag = short << NUMBER_BITS;
        let probed = self.probes(tag).take_while(|at| self.slots[*at] != 0);
        let mut found = probed.filter(|at| has_tag(self.slots[*at], tag));
        [found.next(), found.next()]
    }

    /// Slots to look at: from the one that the tag, as a fraction, points to. The tag's high bits decide, which sampling
    /// leaves alone.
    fn probes(&self, entry: u64) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots.len();
        let tag = entry >> NUMBER_BITS << NUMBER_BITS;
        let own = ((u128::from(tag) * slots as u128) >> 64) as usize;
        (0..PROBES_MAX.min(slots)).map(move |step| (own + step) % slots)
    }

    /// Grows, or keeps fewer.
    fn make_room(&mut self) {
        let larger = (2 * self.slots.len()).max(SLOTS_MIN).min(self.slots_max);
        if larger == self.slots.len() {
            self.sampling_bits += 1;
        }
        self.rebuild(larger);
    }

    fn set_slots_max(&mut self, slots_max: usize) {
        self.slots_max = slots_max;
        if self.slots.len() > slots_max {
            self.rebuild(slots_max);
        }
    }

    /// Makes a table of `slots` slots, sampling as coarsely as it takes to fill it three quarters at most.
    fn rebuild(&mut self, slots: usize) {
        let mut kept = std::mem::take(&mut self.slots);
        loop {
            let tag_bits = |entry: u64| (entry >> NUMBER_BITS).trailing_zeros();
            kept.retain(|entry| *entry != 0 && tag_bits(*entry) >= self.sampling_bits);
            if !is_full(kept.len(), slots) || self.sampling_bits == TAG_BITS {
                break;
            }
            self.sampling_bits += 1;
        }
        kept.shrink_to_fit();
        self.slots = vec![0; slots];
        self.entries = 0;
        for entry in kept {
            self.put(entry);
        }
    }
}

fn has_tag(entry: u64, tag: u64) -> bool {
    entry >> NUMBER_BITS == tag >> NUMBER_BITS
}

fn is_full(entries: usize, slots: usize) -> bool {
    entries > slots / 4 * 3
}
