//! The anchors of one frame.

use super::gear;
use crate::layout::BLOCK_BYTES;
use crate::noise::looks_random;
use crate::plan::FramePlan;

/// A dense anchor of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) hash: u64,
    /// Block of the volume in which it ends.
    pub(super) position: u64,
    pub(super) is_sampled: bool,
}

/// The anchors of one frame's data, and whether the data looks like noise. To find them is most of what a search costs
/// where nothing is found, so they are found once: the search, the memory of what the stream carried and the volume's index
/// all use the same. Keeps its memory from frame to frame.
#[derive(Debug, Default)]
pub struct Anchors {
    /// Each once, where it stands first, by position.
    all: Vec<Anchor>,
    /// The sampled ones as they come, hash and position, as often as they stand there: in an index the last counts.
    sampled: Vec<(u64, u64)>,
    is_noise: bool,
}

impl Anchors {
    /// Those of no frame yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces them by those of `data`, the bytes of the data runs of `plan`.
    pub fn find(&mut self, plan: &FramePlan, data: &[u8]) {
        self.is_noise = looks_random(data);
        self.all.clear();
        self.sampled.clear();
        let mut rest = data;
        for run in plan.data_runs() {
            let (bytes, after) = rest.split_at((run.blocks as usize * BLOCK_BYTES).min(rest.len()));
            rest = after;
            gear::anchors(bytes, |at, hash, is_sampled| {
                let position = run.position + (at as u64 - 1) / BLOCK_BYTES as u64;
                self.all.push(Anchor { hash, position, is_sampled });
                if is_sampled {
                    self.sampled.push((hash, position));
                }
            });
        }
        self.all.sort_unstable_by_key(|a| (a.hash, a.position));
        self.all.dedup_by_key(|a| a.hash);
        self.all.sort_unstable_by_key(|a| a.position);
    }

    /// All of them, each once, by position.
    pub(super) fn all(&self) -> &[Anchor] {
        &self.all
    }

    /// The sampled ones, hash and block, as often as they stand there.
    pub(super) fn every_sampled(&self) -> &[(u64, u64)] {
        &self.sampled
    }

    /// The sampled ones, each once, with its number among all.
    pub(super) fn sampled(&self) -> impl Iterator<Item = (u32, &Anchor)> {
        (0..).zip(&self.all).filter(|(_, anchor)| anchor.is_sampled)
    }

    /// The data looks like noise.
    pub(super) fn is_noise(&self) -> bool {
        self.is_noise
    }
}
