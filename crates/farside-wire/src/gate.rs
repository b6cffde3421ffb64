//! Keeps data that no compressor helps from costing one.

use crate::noise::looks_random;
use crate::prefix::Prefix;

/// Of the frames that look hopeless one in so many is tried all the same: noise may repeat within a frame.
const TRY_EVERY: u32 = 16;
/// So many follow where that paid.
const FOLLOW: u32 = 16;
/// It paid if it took off one part in so many.
const WORTH: usize = 32;

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
    /// Whether the compressor should see the frame. One that has a prefix has it because it resembles that.
    pub(crate) fn lets_through(&mut self, data: &[u8], prefix: &Prefix) -> bool {
        self.is_trial = false;
        if !prefix.bytes().is_empty() || !looks_random(data) {
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
