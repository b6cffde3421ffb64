//! From a frame's new blocks to the regions that resemble them.

use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::anchors::{Anchor, Anchors};
use super::carried::Carried;
use super::dense::{Dense, Place};
use super::gear;
use super::index::SimilarityIndex;
use crate::effort::Effort;
use crate::layout::BLOCK_BYTES;
use crate::noise::looks_random;
use crate::plan::FramePlan;
use crate::prefix::{Region, Regions};
use crate::run::{Origin, RunKind};

/// Blocks of a segment: 1 MiB, what is read to look closer.
const SEGMENT_BLOCKS: u64 = 256;
const SEGMENT_BYTES: u64 = SEGMENT_BLOCKS * BLOCK_BYTES as u64;
/// Segments read for one frame at most: with 4 a tenth more travels, with 16 as much.
const READS_PER_FRAME: usize = 8;
/// A frame that changes so many blocks of a segment rewrites it; with fewer, change is scattered.
const DENSE_CHANGE: usize = 32;
/// Votes of sampled anchors that make a segment worth reading.
const VOTES_TO_READ: u32 = 2;
/// How many sampled anchors of a frame that looks like noise must agree before anything is read for it: one in so many, and two. An
/// index keeps eight bits of a hash, so one in twenty anchors of new noise names some place; four of 64 that agree are rarer
/// than one frame in 500, even in a volume of 64 MiB.
const KNOWN_PART: usize = 16;
const KNOWN_MIN: usize = 2;
/// Blocks that win votes together: 8 KiB.
const REGION_BLOCKS: u64 = 2;
const REGIONS_PER_SEGMENT: u64 = SEGMENT_BLOCKS / REGION_BLOCKS;
/// Blocks taken on both sides of a region that won: what moved does not end where an anchor stands. Against regions of
/// 16 KiB by themselves a db update is 3 % smaller and one of replaced files 8 %.
const MARGIN_BLOCKS: u64 = 2;
/// Regions so close to each other are joined.
const GAP_BLOCKS: u64 = 8;
/// Blocks of the base taken on both sides of each run of noise that moved by little, if the frame has few runs: 64 KiB, a place of an
/// index. What moved by more has anchors that name other places. Without them a CD image's update is 3 % larger.
const EDGE_BLOCKS: u64 = 16;
const EDGED_RUNS_MAX: usize = 8;
/// Regions for one frame are at most as many as its data blocks: at most six times its bytes, two to three in practice.
const REGIONS_PER_DATA_BLOCK: u64 = 1;
/// After so many frames whose reading brought next to nothing, only every eighth reads.
const FRUITLESS_MAX: u32 = 4;
const FRUITLESS_RETRY: u32 = 8;
/// Places at which new and old bytes of a block are compared, and bytes compared.
const SPOTS_PER_BLOCK: usize = 4;
const SPOT_BYTES: usize = 16;
/// Anchors that a segment that was read must give a frame to count as having been of use.
const ANCHORS_PER_READ: u32 = 8;
/// What a stream carried last, as far as it is worth its time to what follows: 512 KiB at *thorough*.
const RECENT_BLOCKS_THOROUGH: u64 = 128;
/// And 4 MiB at *strong*.
const RECENT_BLOCKS_STRONG: u64 = 1024;
/// Memory for the sampled anchors of what a stream carried: those of 190 GiB, of more the latest.
const SENT_BUDGET_BYTES: u64 = 8 << 20;

/// Regions found in another volume at a frame's own places that make it one of the same layout.
const ALIKE_MIN: u32 = 8;

/// The search of one stream. Takes 5 MiB of memory, up to 8 more for the segments that it reads, and up to 8
/// more as the stream carries on.
///
/// It gives up by itself where it brings nothing. Where several frames in a row had no use of the segments read for them
/// (scattered change), few are read. For data that looks like noise nothing is read before the anchors in memory say that it is
/// known: of compressed files that moved they know most anchors, of new ones none but by chance.
#[derive(Debug)]
pub struct Search {
    dense: Dense,
    carried: Carried,
    /// Of all that the stream carried.
    sent: SimilarityIndex,
    /// Slot of the segment that the stream is carrying.
    current: Option<(u64, usize)>,
    segments_read: u64,
    /// Frames in a row whose reading was of no use.
    fruitless_reads: u32,
    /// The latest frame looks like noise.
    is_noise: bool,
    /// The latest frame looks like noise, and has anchors of what stood at its own places: it moved by little.
    is_at_own_places: bool,
    /// Frames in a row that look like noise and are nowhere what they were.
    fruitless_places: u32,
    /// By number of another volume: regions found there at a frame's own places, and elsewhere.
    layouts: BTreeMap<u8, Layout>,
    /// Read for a frame.
    segments: Vec<u8>,
}

/// Where what another volume resembles stands there.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    same_place: u32,
    elsewhere: u32,
}

/// The indexes of what a frame may be coded against, besides what its stream has carried.
pub trait Indexes {
    /// Calls `look` for each, with what it is of.
    fn each(&self, look: &mut dyn FnMut(Origin, &SimilarityIndex));
}

/// That of the base, and nothing else.
impl Indexes for SimilarityIndex {
    fn each(&self, look: &mut dyn FnMut(Origin, &SimilarityIndex)) {
        look(Origin::Base, self);
    }
}

impl Default for Search {
    fn default() -> Self {
        Self::new()
    }
}

impl Search {
    /// Of a stream that has carried nothing yet.
    pub fn new() -> Self {
        Search {
            dense: Dense::new(),
            carried: Carried::default(),
            sent: SimilarityIndex::new(SENT_BUDGET_BYTES),
            current: None,
            segments_read: 0,
            fruitless_reads: 0,
            is_noise: false,
            is_at_own_places: false,
            fruitless_places: 0,
            layouts: BTreeMap::new(),
            segments: Vec::new(),
        }
    }

    /// Segments (1 MiB) read so far.
    pub fn segments_read(&self) -> u64 {
        self.segments_read
    }

    /// Regions that resemble the data of a frame with these `anchors`, for [`crate::Prefix::add_regions`]; blocks of the
    /// base at the frame's own positions are not among them. What cannot be read is left out.
    pub fn regions(
        &mut self,
        plan: &FramePlan,
        anchors: &Anchors,
        indexes: &dyn Indexes,
        regions: &mut dyn Regions,
    ) -> Vec<Region> {
        (self.is_noise, self.is_at_own_places) = (anchors.is_noise(), false);
        let read_before = self.segments_read;
        if !is_skipped(&mut self.fruitless_reads) {
            self.load_segments(plan, anchors, indexes, regions);
        }
        let (chosen, gained) = self.choose(plan, anchors.all());
        let read = (self.segments_read - read_before) as u32;
        if read > 0 {
            count_fruitless(&mut self.fruitless_reads, gained < read * ANCHORS_PER_READ);
        }
        self.count_layouts(plan, &chosen);
        self.emit(plan, chosen)
    }

    /// Reads the segments that the frame's sampled anchors name, as far as it pays.
    fn load_segments(
        &mut self,
        plan: &FramePlan,
        anchors: &Anchors,
        indexes: &dyn Indexes,
        regions: &mut dyn Regions,
    ) {
        let changes = Changes::of(plan);
        let votes = self.votes(&changes, anchors, indexes);
        let is_covered = self.covered(anchors.all());
        if self.is_noise && !votes.are_more_than_chance(&is_covered, anchors) {
            return;
        }
        self.is_at_own_places = self.is_noise && votes.at_own_places >= VOTES_TO_READ;
        let mut wanted = Vec::new();
        for ((origin, number), anchors) in votes.of_segments {
            if self.dense.slot(origin, number).is_some() {
                continue;
            }
            let is_near = self.dense.slot(origin, number + 1).is_some()
                || (number > 0 && self.dense.slot(origin, number - 1).is_some())
                || (!is_other(origin) && changes.of_segment(number) >= DENSE_CHANGE);
            wanted.push(Wanted { origin, number, anchors, is_near });
        }
        let mut wanting = Wanting { is_covered, wanted };
        let mut left = READS_PER_FRAME;
        while left > 0 {
            let chosen = wanting.take(left);
            if chosen.is_empty() || self.load(&chosen, regions) {
                break;
            }
            left -= chosen.len();
            // What could not be read covers nothing.
            wanting.is_covered = self.covered(anchors.all());
        }
    }

    /// What the frame's sampled anchors name.
    fn votes(&self, changes: &Changes<'_>, anchors: &Anchors, indexes: &dyn Indexes) -> Votes {
        let mut votes = Votes::default();
        indexes.each(&mut |origin, index| {
            for (n, anchor) in anchors.sampled() {
                index.places(anchor.hash, |offset, bytes| {
                    let is_base = origin == Origin::Base;
                    if is_base && anchors.is_noise() && changes.is_own(offset, bytes, anchor.position) {
                        votes.at_own_places += 1;
                    } else if !is_base || !changes.is_scattered_at(offset, bytes) {
                        votes.of_segments.entry((origin, offset / SEGMENT_BYTES)).or_default().push(n);
                    }
                });
            }
        });
        for (n, anchor) in anchors.sampled() {
            self.sent.places(anchor.hash, |offset, _| {
                let segment = (Origin::Incremental, offset / SEGMENT_BYTES);
                votes.of_segments.entry(segment).or_default().push(n);
            });
        }
        votes
    }

    /// Which anchors are in a segment that is held: what was read for an earlier frame counts as well.
    fn covered(&self, anchors: &[Anchor]) -> Vec<bool> {
        let is_covered =
            |anchor: &Anchor| anchor.is_sampled && self.dense.places(anchor.hash).next().is_some();
        anchors.iter().map(is_covered).collect()
    }

    /// Reads segments, all at once if whoever reads them can. Whether all could be read.
    fn load(&mut self, chosen: &[(Origin, u64)], regions: &mut dyn Regions) -> bool {
        self.segments_read += chosen.len() as u64;
        let blocks = SEGMENT_BLOCKS as u32;
        let segment = |(origin, number): &(Origin, u64)| Region {
            origin: *origin,
            position: number * SEGMENT_BLOCKS,
            blocks,
        };
        let list: Vec<Region> = chosen.iter().map(segment).collect();
        self.segments.resize(chosen.len() * SEGMENT_BYTES as usize, 0);
        let all_read = regions.read_all(&list, &mut self.segments).is_ok();
        for ((origin, number), bytes) in
            chosen.iter().zip(self.segments.chunks_exact_mut(SEGMENT_BYTES as usize))
        {
            if !all_read && regions.read(*origin, number * SEGMENT_BLOCKS, bytes).is_err() {
                continue;
            }
            let slot = self.dense.take_slot(*origin, *number);
            gear::anchors(bytes, |at, hash, _| {
                self.dense.insert(hash, Place { slot, block: (at as u64 - 1) / BLOCK_BYTES as u64 });
            });
        }
        all_read
    }

    /// The regions (by slot and number within the segment) that together have the most of the frame's anchors, and how
    /// many they have: time and again the one with most anchors that none before has.
    fn choose(&mut self, plan: &FramePlan, anchors: &[Anchor]) -> (Vec<(usize, u64)>, u32) {
        let (pairs, at_own_places) = self.pairs(plan, anchors);
        let of_region: Vec<&[(u32, u32)]> = pairs.chunk_by(|a, b| a.0 == b.0).collect();
        let mut heap: BinaryHeap<(u32, usize)> =
            of_region.iter().enumerate().map(|(n, pairs)| (pairs.len() as u32, n)).collect();
        let most = (plan.data_blocks * REGIONS_PER_DATA_BLOCK) as usize;
        let mut is_covered = vec![false; anchors.len()];
        let mut chosen = Vec::new();
        // Of noise the old bytes are left out unless they are known to be of use.
        let mut gained = if self.is_noise { at_own_places } else { 0 };
        self.is_at_own_places |= gained > 0;
        while chosen.len() < most
            && let Some((expected, n)) = heap.pop()
        {
            let pairs = of_region[n];
            let gain = pairs.iter().filter(|(_, anchor)| !is_covered[*anchor as usize]).count() as u32;
            // Others were chosen since it was put on the heap: it stands where it belongs now.
            if gain < expected {
                if gain > 0 {
                    heap.push((gain, n));
                }
                continue;
            }
            for (region, anchor) in pairs {
                is_covered[*anchor as usize] = true;
                if chosen.last() != Some(region) {
                    chosen.push(*region);
                }
            }
            gained += gain;
        }
        let split = |region: u32| {
            let region = u64::from(region);
            ((region / REGIONS_PER_SEGMENT) as usize, region % REGIONS_PER_SEGMENT)
        };
        (chosen.into_iter().map(split).collect(), gained)
    }

    /// Pairs of a region and the number of an anchor it has, by region. Left out, and counted, are anchors that stand among the old
    /// bytes at the frame's own places: those are in the prefix anyway.
    fn pairs(&self, plan: &FramePlan, anchors: &[Anchor]) -> (Vec<(u32, u32)>, u32) {
        let (mut pairs, mut at_own_places) = (Vec::<(u32, u32)>::new(), 0);
        for (n, anchor) in anchors.iter().enumerate() {
            let before = pairs.len();
            for place in self.dense.places(anchor.hash) {
                let Some((origin, number)) = self.dense.segment(place.slot) else { continue };
                let position = number * SEGMENT_BLOCKS + place.block;
                match origin {
                    Origin::Base if is_among(plan, position) => {
                        pairs.truncate(before);
                        at_own_places += 1;
                        break;
                    }
                    Origin::Incremental if !self.carried.has(position) => continue,
                    _ => {}
                }
                let region = place.slot as u64 * REGIONS_PER_SEGMENT + place.block / REGION_BLOCKS;
                pairs.push((region as u32, n as u32));
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        (pairs, at_own_places)
    }

    fn count_layouts(&mut self, plan: &FramePlan, chosen: &[(usize, u64)]) {
        for (slot, region) in chosen {
            let Some((Origin::Other(of), number)) = self.dense.segment(*slot) else { continue };
            let layout = self.layouts.entry(of).or_default();
            let first = number * SEGMENT_BLOCKS + region * REGION_BLOCKS;
            match (first..first + REGION_BLOCKS).any(|position| is_among(plan, position)) {
                true => layout.same_place = layout.same_place.saturating_add(1),
                false => layout.elsewhere = layout.elsewhere.saturating_add(1),
            }
        }
    }

    /// In order of position, without what is in the prefix anyway and what the destination may not have.
    fn emit(&self, plan: &FramePlan, chosen: Vec<(usize, u64)>) -> Vec<Region> {
        let mut all: Vec<(Origin, u64, u64)> = chosen
            .into_iter()
            .filter_map(|(slot, region)| {
                let (origin, number) = self.dense.segment(slot)?;
                let first = number * SEGMENT_BLOCKS + region * REGION_BLOCKS;
                Some((origin, first.saturating_sub(MARGIN_BLOCKS), first + REGION_BLOCKS + MARGIN_BLOCKS))
            })
            .collect();
        if self.is_at_own_places && plan.runs.len() <= EDGED_RUNS_MAX {
            all.extend(plan.data_runs().flat_map(|run| {
                let before = (Origin::Base, run.position.saturating_sub(EDGE_BLOCKS), run.position);
                [before, (Origin::Base, run.end(), run.end() + EDGE_BLOCKS)]
            }));
        }
        all.sort_unstable();
        let mut spans: Vec<(Origin, u64, u64)> = Vec::new();
        for (origin, from, end) in all {
            match spans.last_mut() {
                Some(last) if last.0 == origin && last.2 + GAP_BLOCKS >= from => last.2 = last.2.max(end),
                _ => spans.push((origin, from, end)),
            }
        }
        let mut out: Vec<Region> = Vec::new();
        for (origin, first, end) in spans {
            for position in first..end {
                let is_wanted = match origin {
                    Origin::Base => !is_among(plan, position),
                    Origin::Incremental => self.carried.has(position),
                    Origin::Other(_) => true,
                };
                if !is_wanted {
                    continue;
                }
                extend(&mut out, origin, position);
            }
        }
        out
    }

    /// What the stream carried last, without what is in `found` already: behind the regions found, from
    /// [`Effort::Thorough`] up, for copies without a base, which it makes 2 to 3 % smaller. For updates it does nothing.
    /// Nor for noise that resembles nothing.
    pub fn recent(&self, found: &[Region], effort: Effort) -> Vec<Region> {
        let most = match effort {
            Effort::Raw | Effort::Fast | Effort::Standard => 0,
            Effort::Thorough => RECENT_BLOCKS_THOROUGH,
            Effort::Strong => RECENT_BLOCKS_STRONG,
        };
        if most == 0 || (self.is_noise && found.is_empty()) {
            return Vec::new();
        }
        let is_found = |position: u64| {
            let of_incremental = |r: &&Region| r.origin == Origin::Incremental;
            found.iter().filter(of_incremental).any(|r| r.position <= position && position < r.end())
        };
        let mut recent: Vec<Region> = Vec::new();
        for position in self.carried.last(most).into_iter().filter(|p| !is_found(*p)) {
            extend(&mut recent, Origin::Incremental, position);
        }
        recent
    }

    /// Other volumes that frames name no more.
    pub fn withdraw(&mut self, numbers: &[u8]) {
        self.layouts.retain(|of, _| !numbers.contains(of));
    }

    /// The frame's own places in the `most` volumes whose layout is most like that of the stream's volume, without what is in
    /// `found`: for copies without a base. Volumes that began as one have text by the same hand, tables of the same kind and
    /// half of a changed record at the same place, though nothing there is long enough to be found. What ten such volumes do
    /// not have in common is 2 to 4 % smaller with it. The most alike stands last.
    pub fn alike(&self, plan: &FramePlan, found: &[Region], most: usize) -> Vec<Region> {
        if self.is_noise && found.is_empty() {
            return Vec::new();
        }
        let is_alike = |l: &Layout| l.same_place >= ALIKE_MIN && l.same_place > l.elsewhere;
        let mut volumes: Vec<(u32, u8)> =
            self.layouts.iter().filter(|(_, l)| is_alike(l)).map(|(of, l)| (l.same_place, *of)).collect();
        volumes.sort_unstable_by(|a, b| b.cmp(a));
        volumes.truncate(most);
        let mut alike: Vec<Region> = Vec::new();
        for (_, of) in volumes.into_iter().rev() {
            let origin = Origin::Other(of);
            // Ascending, as the runs are.
            let mut found = found.iter().filter(|r| r.origin == origin).peekable();
            for position in plan.data_runs().flat_map(|run| run.position..run.end()) {
                while found.next_if(|r| r.end() <= position).is_some() {}
                if found.peek().is_none_or(|r| position < r.position) {
                    extend(&mut alike, origin, position);
                }
            }
        }
        alike
    }

    /// Whether the old bytes at the frame's own places are worth reading. Where data looks like noise and was nowhere what
    /// it had been for some frames, they are not, but for one frame in eight. They always are where [`Search::regions`] has just found
    /// the frame's content there, moved by some bytes.
    pub fn wants_old(&mut self, data: &[u8]) -> bool {
        self.is_at_own_places || !looks_random(data) || !is_skipped(&mut self.fruitless_places)
    }

    /// Whether those bytes, `old`, have anything in common with `data`. Of what does not look like noise that is taken for
    /// granted. An encrypted volume keeps its cipher's blocks of 16 bytes where they did not change.
    pub fn resembles_old(&mut self, data: &[u8], old: &[u8]) -> bool {
        if std::mem::take(&mut self.is_at_own_places) || !looks_random(data) {
            return true;
        }
        let blocks = data.chunks_exact(BLOCK_BYTES).zip(old.chunks_exact(BLOCK_BYTES));
        let mut spots = blocks.flat_map(|(new, old)| {
            let step = BLOCK_BYTES / SPOTS_PER_BLOCK;
            new.chunks_exact(step).zip(old.chunks_exact(step))
        });
        let resembles = spots.any(|(new, old)| new[..SPOT_BYTES] == old[..SPOT_BYTES]);
        count_fruitless(&mut self.fruitless_places, !resembles);
        resembles
    }

    /// The frame was made: later frames of the stream may refer to its blocks. Frames must come in the order in which
    /// they are sent.
    pub fn carried(&mut self, plan: &FramePlan, anchors: &Anchors) {
        for run in plan.runs.iter().filter(|r| r.kind == RunKind::Data) {
            self.carried.add(run.position, run.blocks);
        }
        for anchor in anchors.all() {
            let number = anchor.position / SEGMENT_BLOCKS;
            let slot = match self.current {
                Some((current, slot)) if current == number => slot,
                _ => self.dense.take_slot(Origin::Incremental, number),
            };
            self.current = Some((number, slot));
            self.dense.insert(anchor.hash, Place { slot, block: anchor.position % SEGMENT_BLOCKS });
            if anchor.is_sampled {
                self.sent.enter_anchor(anchor.position * BLOCK_BYTES as u64, anchor.hash);
            }
        }
    }
}

/// What a frame's sampled anchors name, by the indexes.
#[derive(Debug, Default)]
struct Votes {
    /// Segments, each with the numbers of the anchors that name it.
    of_segments: HashMap<(Origin, u64), Vec<u32>>,
    /// Of a frame that looks like noise, anchors that name places among its own.
    at_own_places: u32,
}

impl Votes {
    /// Whether more anchors agree than those of new noise would. Two that name the same segment agree, or the frame's own places; so
    /// does one that is in a segment that is held.
    fn are_more_than_chance(&self, is_covered: &[bool], anchors: &Anchors) -> bool {
        let agreeing = |votes: usize| if votes >= VOTES_TO_READ as usize { votes } else { 0 };
        let agree = self.of_segments.values().map(|anchors| agreeing(anchors.len())).sum::<usize>()
            + agreeing(self.at_own_places as usize)
            + is_covered.iter().filter(|is_covered| **is_covered).count();
        agree >= KNOWN_MIN && agree * KNOWN_PART >= anchors.sampled().count()
    }
}

/// A segment that sampled anchors of a frame name.
struct Wanted {
    origin: Origin,
    number: u64,
    /// Their numbers.
    anchors: Vec<u32>,
    /// More speaks for it than they do.
    is_near: bool,
}

/// Which segments to read for a frame: the volume's own first (with others before them an update was a tenth larger), those that
/// most anchors name before others. Of other volumes only anchors count that no segment before has: ten volumes that began
/// as one name the same segment ten times, and the frame's other anchors found nothing. A tenth such volume was 1.6 times as
/// large.
struct Wanting {
    wanted: Vec<Wanted>,
    /// By number of the anchor: it is in a segment that was read.
    is_covered: Vec<bool>,
}

impl Wanting {
    fn next(&mut self) -> Option<Wanted> {
        let votes = |w: &Wanted| {
            let counts = |anchor: &&u32| !is_other(w.origin) || !self.is_covered[**anchor as usize];
            w.anchors.iter().filter(counts).count() as u32 + u32::from(w.is_near)
        };
        self.wanted.retain(|w| votes(w) >= VOTES_TO_READ);
        let rank = |w: &Wanted| (!is_other(w.origin), votes(w), w.origin, w.number);
        let best = (0..self.wanted.len()).max_by_key(|n| rank(&self.wanted[*n]))?;
        Some(self.wanted.swap_remove(best))
    }

    /// The next `most`, each chosen as if those before it had been read.
    fn take(&mut self, most: usize) -> Vec<(Origin, u64)> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(next) = self.next()
        {
            for anchor in next.anchors {
                self.is_covered[anchor as usize] = true;
            }
            taken.push((next.origin, next.number));
        }
        taken
    }
}

fn is_other(origin: Origin) -> bool {
    matches!(origin, Origin::Other(_))
}

fn extend(list: &mut Vec<Region>, origin: Origin, position: u64) {
    match list.last_mut() {
        Some(last) if last.origin == origin && last.end() == position => last.blocks += 1,
        _ => list.push(Region { origin, position, blocks: 1 }),
    }
}

/// Whether a frame is one of those that are passed over after too many fruitless ones.
fn is_skipped(fruitless: &mut u32) -> bool {
    if *fruitless < FRUITLESS_MAX {
        return false;
    }
    *fruitless += 1;
    if *fruitless < FRUITLESS_MAX + FRUITLESS_RETRY {
        return true;
    }
    *fruitless = FRUITLESS_MAX;
    false
}

fn count_fruitless(fruitless: &mut u32, was_fruitless: bool) {
    match was_fruitless {
        true if *fruitless < FRUITLESS_MAX => *fruitless += 1,
        true => {}
        false => *fruitless = 0,
    }
}

/// How many data blocks a frame has of which segments and places.
struct Changes<'a> {
    plan: &'a FramePlan,
}

impl<'a> Changes<'a> {
    fn of(plan: &'a FramePlan) -> Self {
        Changes { plan }
    }

    fn within(&self, first: u64, end: u64) -> usize {
        let at = self.plan.runs.partition_point(|run| run.end() <= first);
        let runs = self.plan.runs[at..].iter().take_while(|run| run.position < end);
        runs.filter(|r| r.kind == RunKind::Data)
            .map(|run| (run.end().min(end) - run.position.max(first)) as usize)
            .sum()
    }

    fn of_segment(&self, number: u64) -> usize {
        self.within(number * SEGMENT_BLOCKS, (number + 1) * SEGMENT_BLOCKS)
    }

    /// Whether the old bytes at the frame's own places most likely have an anchor that an index names in this place, and that is now in
    /// block `position`: the frame changes all of the place, or the anchor is in the same place now.
    fn is_own(&self, offset: u64, bytes: u64, position: u64) -> bool {
        let (first, blocks) = (offset / BLOCK_BYTES as u64, bytes / BLOCK_BYTES as u64);
        (first..first + blocks).contains(&position) || self.within(first, first + blocks) as u64 == blocks
    }

    /// A place that the frame changes here and there is what it was: the old bytes at the same place say it all.
    fn is_scattered_at(&self, offset: u64, bytes: u64) -> bool {
        let first = offset / BLOCK_BYTES as u64;
        self.within(first, first + bytes / BLOCK_BYTES as u64) > 0
            && self.of_segment(first / SEGMENT_BLOCKS) < DENSE_CHANGE
    }
}

/// Whether `position` is among the frame's data blocks.
fn is_among(plan: &FramePlan, position: u64) -> bool {
    let at = plan.runs.partition_point(|run| run.end() <= position);
    plan.runs.get(at).is_some_and(|r| r.position <= position && r.kind == RunKind::Data)
}
