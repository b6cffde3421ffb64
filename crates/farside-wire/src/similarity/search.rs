//! From a frame's new blocks to the regions that resemble them.

use std::collections::{HashMap, HashSet};

use super::gear;
use super::index::SimilarityIndex;
use crate::layout::BLOCK_BYTES;
use crate::plan::FramePlan;
use crate::prefix::{Origin, Region, Regions};

/// Blocks of a segment: 1 MiB, what is read to look closer.
const SEGMENT_BLOCKS: u64 = 256;
/// Blocks of a region: 16 KiB, what becomes part of a prefix.
const REGION_BLOCKS: u64 = 4;
/// Segments of the base whose dense anchors are kept.
const SEGMENTS_MAX: usize = 256;
/// Segments of the incremental whose dense anchors are kept: the last 64 MiB that the stream carried.
const CARRIED_SEGMENTS_MAX: usize = 64;
/// Segments read for one frame at most.
const READS_PER_FRAME: usize = 8;
/// Votes that make a segment worth reading.
const VOTES_TO_READ: u32 = 2;
/// Blocks of regions per data block of a frame, at most.
const PREFIX_PER_DATA: u64 = 2;

/// Where something lies: a version and the number of a segment or region in it.
type Place = (Origin, u64);

/// The search of one stream. Takes at most about 10 MiB of memory.
#[derive(Debug, Default)]
pub struct Search {
    /// Regions by dense anchor.
    dense: HashMap<u64, Vec<Place>>,
    /// Segments whose anchors are in `dense`, oldest first.
    loaded: Vec<(Place, Vec<u64>)>,
    segments_read: u64,
}

impl Search {
    /// Of a stream that has carried nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Segments (1 MiB) read so far.
    pub fn segments_read(&self) -> u64 {
        self.segments_read
    }

    /// Regions that resemble the `data` (of the data runs) of a frame, best last, for [`crate::Prefix::add_regions`];
    /// blocks of the base at the frame's own positions are not among them. `index` is of the base; what cannot be read
    /// is left out.
    pub fn regions(
        &mut self,
        plan: &FramePlan,
        data: &[u8],
        index: &SimilarityIndex,
        regions: &mut dyn Regions,
    ) -> Vec<Region> {
        let mut anchors = HashSet::new();
        let mut votes: HashMap<u64, u32> = HashMap::new();
        let segment_bytes = SEGMENT_BLOCKS * BLOCK_BYTES as u64;
        for (_, bytes) in pieces(plan, data) {
            gear::anchors(bytes, |_, hash, is_sampled| {
                if anchors.insert(hash) && is_sampled {
                    index.places(hash, |offset| *votes.entry(offset / segment_bytes).or_default() += 1);
                }
            });
        }
        let mut wanted: Vec<(u32, u64)> =
            votes.into_iter().filter(|(_, n)| *n >= VOTES_TO_READ).map(|(s, n)| (n, s)).collect();
        wanted.sort_unstable_by(|a, b| b.cmp(a));
        wanted.retain(|(_, segment)| !self.loaded.iter().any(|(l, _)| *l == (Origin::Base, *segment)));
        let mut buffer = vec![0; segment_bytes as usize];
        for (_, segment) in wanted.into_iter().take(READS_PER_FRAME) {
            self.segments_read += 1;
            if regions.read(Origin::Base, segment * SEGMENT_BLOCKS, &mut buffer).is_ok() {
                self.load((Origin::Base, segment), segment * SEGMENT_BLOCKS, &buffer);
            }
        }
        let mut votes: HashMap<Place, u32> = HashMap::new();
        for place in anchors.iter().filter_map(|a| self.dense.get(a)).flatten() {
            *votes.entry(*place).or_default() += 1;
        }
        let mut best: Vec<(u32, Place)> = votes.into_iter().map(|(place, n)| (n, place)).collect();
        best.sort_unstable_by(|a, b| b.cmp(a));
        best.truncate((plan.data_blocks * PREFIX_PER_DATA / REGION_BLOCKS) as usize);
        let mut places: Vec<Place> = best.into_iter().map(|(_, place)| place).collect();
        places.sort_unstable();
        let mut out = Vec::new();
        for (origin, region) in places {
            for position in region * REGION_BLOCKS..(region + 1) * REGION_BLOCKS {
                if origin == Origin::Base && is_among(plan, position) {
                    continue;
                }
                match out.last_mut() {
                    Some(last @ Region { .. }) if last.origin == origin && last.end() == position => {
                        last.blocks += 1;
                    }
                    _ => out.push(Region { origin, position, blocks: 1 }),
                }
            }
        }
        out
    }

    /// The frame was made: later frames of the stream may refer to its blocks. Frames must come in the order in which
    /// they are sent.
    pub fn carried(&mut self, plan: &FramePlan, data: &[u8]) {
        for (position, bytes) in pieces(plan, data) {
            // Whole regions only: of the others not all was carried.
            let first = position.next_multiple_of(REGION_BLOCKS);
            let end = (position + (bytes.len() / BLOCK_BYTES) as u64) / REGION_BLOCKS * REGION_BLOCKS;
            if first < end {
                let range =
                    (first - position) as usize * BLOCK_BYTES..(end - position) as usize * BLOCK_BYTES;
                self.load((Origin::Incremental, first / SEGMENT_BLOCKS), first, &bytes[range]);
            }
        }
    }

    fn load(&mut self, segment: Place, position: u64, bytes: &[u8]) {
        let max = if segment.0 == Origin::Base { SEGMENTS_MAX } else { CARRIED_SEGMENTS_MAX };
        if self.loaded.iter().filter(|(l, _)| l.0 == segment.0).count() >= max
            && let Some(oldest) = self.loaded.iter().position(|(l, _)| l.0 == segment.0)
        {
            let (gone, anchors) = self.loaded.remove(oldest);
            for anchor in anchors {
                if let Some(places) = self.dense.get_mut(&anchor) {
                    places.retain(|p| (p.0, p.1 * REGION_BLOCKS / SEGMENT_BLOCKS) != gone);
                    if places.is_empty() {
                        self.dense.remove(&anchor);
                    }
                }
            }
        }
        let mut anchors = Vec::new();
        gear::anchors(bytes, |at, hash, _| {
            let region = (position + ((at - 1) / BLOCK_BYTES) as u64) / REGION_BLOCKS;
            let places = self.dense.entry(hash).or_default();
            if places.len() < 4 && !places.contains(&(segment.0, region)) {
                places.push((segment.0, region));
                anchors.push(hash);
            }
        });
        self.loaded.push((segment, anchors));
    }
}

/// Each data run's first block and bytes.
fn pieces<'a>(plan: &'a FramePlan, data: &'a [u8]) -> impl Iterator<Item = (u64, &'a [u8])> {
    let mut rest = data;
    plan.data_runs().map(move |run| {
        let (bytes, after) = rest.split_at((run.blocks as usize * BLOCK_BYTES).min(rest.len()));
        rest = after;
        (run.position, bytes)
    })
}

/// Whether `position` is among the frame's data blocks.
fn is_among(plan: &FramePlan, position: u64) -> bool {
    let at = plan.runs.partition_point(|run| run.end() <= position);
    plan.runs.get(at).is_some_and(|r| r.position <= position && r.kind == crate::RunKind::Data)
}
