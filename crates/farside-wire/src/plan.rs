//! Cuts a difference into frames.

use crate::layout::{REPEAT_BLOCKS_MAX, RUNS_MAX, TARGET_BLOCKS};
use crate::run::{Run, RunKind};

/// What one frame will carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramePlan {
    /// Its runs, ascending.
    pub runs: Vec<Run>,
    /// Data blocks among them.
    pub data_blocks: u64,
    /// Repeated blocks among them.
    pub repeat_blocks: u64,
}

impl FramePlan {
    /// Bytes of the data runs.
    pub fn data_bytes(&self) -> u64 {
        self.data_blocks * crate::BLOCK_BYTES as u64
    }

    /// Blocks of the hole runs.
    pub fn hole_blocks(&self) -> u64 {
        self.runs.iter().filter(|r| r.kind == RunKind::Hole).map(|r| r.blocks).sum()
    }

    /// The data runs.
    pub fn data_runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|r| r.kind == RunKind::Data)
    }
}

/// Frames of at most [`TARGET_BLOCKS`] data blocks, [`REPEAT_BLOCKS_MAX`] repeated ones and [`RUNS_MAX`] runs from ascending runs of any length. Lazy:
/// it draws from the difference only what the next frame needs.
#[derive(Debug)]
pub struct FramePlans<I> {
    runs: I,
    rest: Option<Run>,
}

impl<I> FramePlans<I> {
    /// Over `runs`, which must ascend without overlap.
    pub fn new(runs: I) -> Self {
        FramePlans { runs, rest: None }
    }

    /// What it draws from: runs that come bit by bit can be added to. After they have paused (answered `None`) the
    /// next frame goes on where they do.
    pub fn runs_mut(&mut self) -> &mut I {
        &mut self.runs
    }
}

impl<E, I: Iterator<Item = Result<Run, E>>> Iterator for FramePlans<I> {
    type Item = Result<FramePlan, E>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut plan = FramePlan::default();
        while plan.runs.len() < RUNS_MAX as usize
            && plan.data_blocks < TARGET_BLOCKS.into()
            && plan.repeat_blocks < REPEAT_BLOCKS_MAX.into()
        {
            let run = match self.rest.take().map(Ok).or_else(|| self.runs.next()) {
                None => break,
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(run)) if run.blocks == 0 => continue,
                Some(Ok(run)) => run,
            };
            let fits = match run.kind {
                RunKind::Hole => run.blocks,
                RunKind::Data => run.blocks.min(u64::from(TARGET_BLOCKS) - plan.data_blocks),
                RunKind::Repeat { .. } => run.blocks.min(u64::from(REPEAT_BLOCKS_MAX) - plan.repeat_blocks),
            };
            if fits < run.blocks {
                self.rest = Some(run.after(fits));
            }
            match run.kind {
                RunKind::Hole => {}
                RunKind::Data => plan.data_blocks += fits,
                RunKind::Repeat { .. } => plan.repeat_blocks += fits,
            }
            plan.runs.push(Run { blocks: fits, ..run });
        }
        (!plan.runs.is_empty()).then_some(Ok(plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plans(runs: Vec<Run>) -> Vec<FramePlan> {
        FramePlans::new(runs.into_iter().map(Ok::<_, ()>)).map(Result::unwrap).collect()
    }

    #[test]
    fn a_long_run_is_cut_and_nothing_is_lost_or_doubled() {
        let runs = vec![
            Run { position: 0, blocks: 3, kind: RunKind::Hole },
            Run { position: 10, blocks: 1000, kind: RunKind::Data },
            Run { position: 2000, blocks: 1 << 30, kind: RunKind::Hole },
            Run { position: 1 << 31, blocks: 5, kind: RunKind::Data },
        ];
        let frames = plans(runs);
        assert_eq!(frames.iter().map(|f| f.data_blocks).collect::<Vec<_>>(), [256, 256, 256, 237]);
        let mut joined: Vec<Run> = Vec::new();
        for run in frames.iter().flat_map(|f| &f.runs) {
            match joined.last_mut() {
                Some(last) if last.kind == run.kind && last.end() == run.position => {
                    last.blocks += run.blocks
                }
                _ => joined.push(*run),
            }
        }
        assert_eq!(joined.len(), 4);
        assert_eq!((joined[1].position, joined[1].blocks), (10, 1000));
        assert_eq!((joined[2].position, joined[2].blocks), (2000, 1 << 30));
    }

    #[test]
    fn many_small_holes_respect_the_limit_of_runs() {
        let runs = (0..5000).map(|i| Run { position: i * 2, blocks: 1, kind: RunKind::Hole }).collect();
        let frames = plans(runs);
        assert_eq!(frames.iter().map(|f| f.runs.len()).collect::<Vec<_>>(), [2048, 2048, 904]);
        assert!(plans(Vec::new()).is_empty());
    }

    #[test]
    fn an_error_of_the_difference_comes_through() {
        let mut frames = FramePlans::new([Err("damaged node")].into_iter());
        assert_eq!(frames.next(), Some(Err("damaged node")));
    }
}
