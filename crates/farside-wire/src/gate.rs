//! Keeps data that no compressor helps from costing one.

use crate::layout::BLOCK_BYTES;
use crate::noise::looks_random;
use crate::prefix::{Origin, Prefix};
use crate::{Run, RunKind};

/// Of the frames that look hopeless one in so many is tried all the same: noise may repeat within a frame.
const TRY_EVERY: u32 = 16;
/// So many follow where that paid.
const FOLLOW: u32 = 16;
/// It paid if it took off one part in so many.
const WORTH: usize = 32;
/// Places at which new and old bytes are compared, in each data block, and bytes compared.
const SPOTS_PER_BLOCK: usize = 4;
const SPOT_BYTES: usize = 16;

/// Decides whether a frame is worth compressing, from a glance at it and from how the frames before went.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// Hopeless frames until the next that is tried.
    until_try: u32,
    /// Hopeless frames that are tried because one before paid.
    following: u32,
    is_trial: bool,
}

impl Gate {
    /// Whether the compressor should see the frame.
    pub(crate) fn lets_through(&mut self, runs: &[Run], data: &[u8], prefix: &Prefix) -> bool {
        self.is_trial = false;
        if prefix.has_similar() || !looks_random(data) || resembles_same_place(runs, data, prefix) {
            return true;
        }
        self.is_trial = self.following > 0 || self.until_try == 0;
        self.following = self.following.saturating_sub(1);
        self.until_try = if self.until_try == 0 { TRY_EVERY - 1 } else { self.until_try - 1 };
        self.is_trial
    }

    /// What became of the frame that was let through last.
    pub(crate) fn was(&mut self, compressed: usize, data: usize) {
        if self.is_trial && compressed + data / WORTH < data {
            self.following = FOLLOW;
        }
    }
}

/// Whether some bytes of the data blocks are what they were.
fn resembles_same_place(runs: &[Run], data: &[u8], prefix: &Prefix) -> bool {
    let mut places = Vec::new();
    let mut at = 0;
    for range in prefix.ranges() {
        if range.origin == Origin::Base {
            places.push((range.position, range.end(), at));
        }
        at += range.bytes();
    }
    places.sort_unstable();
    let mut rest = data;
    for run in runs.iter().filter(|r| r.kind == RunKind::Data) {
        for position in run.position..run.end() {
            let Some((block, after)) = rest.split_at_checked(BLOCK_BYTES) else { return false };
            rest = after;
            let found = places.partition_point(|(_, end, _)| *end <= position);
            let Some((first, _, at)) = places.get(found).filter(|(first, ..)| *first <= position) else {
                continue;
            };
            let from = at + (position - first) as usize * BLOCK_BYTES;
            let old = &prefix.bytes()[from..from + BLOCK_BYTES];
            let is_same = |spot: usize| {
                let range = spot * (BLOCK_BYTES / SPOTS_PER_BLOCK)
                    ..spot * (BLOCK_BYTES / SPOTS_PER_BLOCK) + SPOT_BYTES;
                block[range.clone()] == old[range]
            };
            if (0..SPOTS_PER_BLOCK).any(is_same) {
                return true;
            }
        }
    }
    false
}
