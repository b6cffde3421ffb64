//! Cuts the runs of a step into frames, and names the blocks that an earlier frame of the stream brings instead of carrying
//! them again. Reads fingerprints, never data.

use std::collections::VecDeque;

use farside_engine::{EngineError, Fingerprint};
use farside_wire::{FramePlan, Origin, REPEAT_BLOCKS_MAX, RUNS_MAX, Run, RunKind, TARGET_BLOCKS};

use super::repeats::Carried;
use crate::limits::FINGERPRINTS_PER_LOOKUP;

/// Fingerprints of so many blocks of the incremental from a block on.
type Lookup = Box<dyn Fn(u64, u64) -> Result<Vec<Fingerprint>, EngineError> + Send>;

/// What a frame will carry.
#[derive(Default, PartialEq, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: FramePlan,
    /// Of its data and repeated blocks, in order.
    pub(crate) fingerprints: Vec<Fingerprint>,
}

impl Planned {
    fn is_full(&self) -> bool {
        self.plan.runs.len() >= RUNS_MAX as usize
            || self.plan.data_blocks >= TARGET_BLOCKS.into()
            || self.plan.repeat_blocks >= REPEAT_BLOCKS_MAX.into()
    }

    fn push_block(&mut self, position: u64, fingerprint: Fingerprint, carried_at: Option<u64>) {
        let kind = match carried_at {
            Some(from) => {
                self.plan.repeat_blocks += 1;
                RunKind::Repeat { origin: Origin::Incremental, from }
            }
            None => {
                self.plan.data_blocks += 1;
                RunKind::Data
            }
        };
        self.fingerprints.push(fingerprint);
        if let Some(last) = self.plan.runs.last_mut().filter(|last| last.end() == position) {
            let goes_on = match (last.kind, kind) {
                (RunKind::Data, RunKind::Data) => true,
                (RunKind::Repeat { from: first, .. }, RunKind::Repeat { from, .. }) => {
                    first + last.blocks == from
                }
                _ => false,
            };
            if goes_on {
                last.blocks += 1;
                return;
            }
        }
        self.plan.runs.push(Run { position, blocks: 1, kind });
    }
}

/// Makes frames of runs that come bit by bit.
pub(crate) struct Planner {
    lookup: Lookup,
    waiting: VecDeque<Run>,
    /// The front of the blocks of data under way, whose fingerprints are known.
    next: u64,
    known: VecDeque<Fingerprint>,
    frame: Planned,
    /// None if nothing may be named.
    carried: Option<Carried>,
    /// Some blocks of the incremental, from the first of them on.
    behind: (u64, Vec<Fingerprint>),
}

impl Planner {
    /// `names_repeats`: whether blocks that the stream has carried may be named.
    pub(crate) fn new(lookup: Lookup, names_repeats: bool) -> Planner {
        Planner {
            lookup,
            waiting: VecDeque::new(),
            next: 0,
            known: VecDeque::new(),
            frame: Planned::default(),
            carried: names_repeats.then(Carried::default),
            behind: (0, Vec::new()),
        }
    }

    /// More runs of data and holes, above all that were given before.
    pub(crate) fn add(&mut self, runs: Vec<Run>) {
        self.waiting.extend(runs);
    }

    /// Whether it cannot fill a frame for certain without more runs.
    pub(crate) fn needs_runs(&self) -> bool {
        self.waiting.is_empty() && self.known.is_empty()
    }

    /// The next frame; none before it is full. Once no more runs come (`ended`) the last one need not be.
    pub(crate) fn next(&mut self, ended: bool) -> Result<Option<Planned>, EngineError> {
        while !self.frame.is_full() {
            if let Some(fingerprint) = self.known.pop_front() {
                let carried_at = self.carried_at(&fingerprint)?;
                self.frame.push_block(self.next, fingerprint, carried_at);
                self.next += 1;
                continue;
            }
            let Some(run) = self.waiting.pop_front() else { break };
            match run.kind {
                RunKind::Data => {
                    let blocks = run.blocks.min(FINGERPRINTS_PER_LOOKUP);
                    let found = (self.lookup)(run.position, blocks)?;
                    if found.len() as u64 != blocks {
                        return Err(EngineError::Invalid(format!(
                            "the engine answered {} fingerprints of {blocks} blocks",
                            found.len()
                        )));
                    }
                    (self.next, self.known) = (run.position, found.into());
                    if blocks < run.blocks {
                        self.waiting.push_front(run.after(blocks));
                    }
                }
                _ => self.frame.plan.runs.push(run),
            }
        }
        let is_due = self.frame.is_full() || (ended && self.needs_runs() && !self.frame.plan.runs.is_empty());
        if !is_due {
            return Ok(None);
        }
        let frame = std::mem::take(&mut self.frame);
        // Only now: a frame cannot refer to itself.
        self.remember(&frame);
        Ok(Some(frame))
    }

    /// Where an earlier frame has brought a block with this fingerprint: where what was repeated last goes on, if it does, so
    /// that it stays one run; else where it was sent first.
    fn carried_at(&mut self, fingerprint: &Fingerprint) -> Result<Option<u64>, EngineError> {
        let Some(found) = self.carried.as_mut().and_then(|c| c.find(fingerprint)) else { return Ok(None) };
        let last = self.frame.plan.runs.last().filter(|last| last.end() == self.next);
        let Some(Run { kind: RunKind::Repeat { from, .. }, blocks, .. }) = last else {
            return Ok(Some(found));
        };
        let next = from + blocks;
        // All that lies before the frame the destination has, as it is in the incremental.
        let begins = self.frame.plan.runs.first().map_or(0, |first| first.position);
        if next == found || next >= begins {
            return Ok(Some(found));
        }
        let (first, known) = &self.behind;
        if !(*first..*first + known.len() as u64).contains(&next) {
            // As far ahead as the run has come: where each block was sent somewhere else, each would read for a thousand.
            let blocks = (*blocks).min(FINGERPRINTS_PER_LOOKUP).min(begins - next);
            self.behind = (next, (self.lookup)(next, blocks)?);
        }
        let (first, known) = &self.behind;
        let goes_on = known.get((next - first) as usize) == Some(fingerprint);
        Ok(Some(if goes_on { next } else { found }))
    }

    fn remember(&mut self, frame: &Planned) {
        let Some(carried) = &mut self.carried else { return };
        let mut fingerprints = frame.fingerprints.iter();
        for run in frame.plan.runs.iter().filter(|r| r.kind != RunKind::Hole) {
            for position in run.position..run.end() {
                let Some(fingerprint) = fingerprints.next() else { return };
                if run.kind == RunKind::Data {
                    carried.enter(*fingerprint, position);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn fingerprint(content: u64) -> Fingerprint {
        Fingerprint(u128::from(content).to_be_bytes())
    }

    fn data(position: u64, blocks: u64) -> Run {
        Run { position, blocks, kind: RunKind::Data }
    }

    fn repeat(position: u64, blocks: u64, from: u64) -> Run {
        Run { position, blocks, kind: RunKind::Repeat { origin: Origin::Incremental, from } }
    }

    /// Feeds `runs` two at a time; block `p` holds content `content(p)`.
    fn planned(content: fn(u64) -> u64, runs: &[Run], names_repeats: bool) -> Vec<Planned> {
        let lookup =
            move |first: u64, count| Ok((first..first + count).map(|p| fingerprint(content(p))).collect());
        let mut planner = Planner::new(Box::new(lookup), names_repeats);
        let mut frames = Vec::new();
        for some in runs.chunks(2) {
            planner.add(some.to_vec());
            while let Some(frame) = planner.next(false).unwrap() {
                frames.push(frame);
            }
            assert!(planner.needs_runs());
        }
        while let Some(frame) = planner.next(true).unwrap() {
            frames.push(frame);
        }
        frames
    }

    #[test]
    fn frames_are_full_and_what_an_earlier_one_brings_is_named() {
        // From block 600 on everything is there once more, one block later.
        let content = |p: u64| if p < 600 { p } else { p - 600 };
        let frames = planned(content, &[data(0, 300), data(300, 300), data(600, 700)], true);
        let runs: Vec<&[Run]> = frames.iter().map(|f| &f.plan.runs[..]).collect();
        assert_eq!(runs[0], [data(0, 256)]);
        assert_eq!(runs[1], [data(256, 256)]);
        // Blocks 512 to 599 are in this very frame: it cannot name them.
        assert_eq!(runs[2], [data(512, 88), repeat(600, 512, 0), data(1112, 168)]);
        assert_eq!(runs[3], [data(1280, 20)]);
        for frame in &frames {
            let blocks = frame.plan.runs.iter().flat_map(|r| r.position..r.end());
            let expected: Vec<Fingerprint> = blocks.map(|p| fingerprint(content(p))).collect();
            assert_eq!(frame.fingerprints, expected);
            assert!(frame.plan.data_blocks <= 256);
        }
        assert_eq!(frames.iter().map(|f| f.plan.repeat_blocks).collect::<Vec<_>>(), [0, 0, 512, 0]);
    }

    #[test]
    fn repeats_that_do_not_follow_each_other_are_runs_of_their_own() {
        let content = |p: u64| if p < 256 { p } else { (511 - p) * 2 % 256 };
        let frames = planned(content, &[data(0, 256), data(256, 4)], true);
        let expected: Vec<Run> = (256..260).map(|p| repeat(p, 1, (511 - p) * 2 % 256)).collect();
        assert_eq!(frames[1].plan.runs, expected);
    }

    #[test]
    fn repeats_that_do_not_follow_each_other_read_next_to_no_fingerprints() {
        let looked_up = Arc::new(AtomicU64::new(0));
        let counted = looked_up.clone();
        let content = |p: u64| if p < 512 { p } else { (p - 512) * 37 % 512 };
        let lookup = move |first: u64, count| {
            counted.fetch_add(count, Ordering::Relaxed);
            Ok((first..first + count).map(|p| fingerprint(content(p))).collect())
        };
        let mut planner = Planner::new(Box::new(lookup), true);
        planner.add(vec![data(0, 1024)]);
        while planner.next(true).unwrap().is_some() {}
        // Each of its own, and for each repeat the one that would follow it.
        assert!(looked_up.load(Ordering::Relaxed) <= 1024 + 512);
    }

    #[test]
    fn what_is_the_same_everywhere_is_repeated_in_long_runs() {
        let frames = planned(|p| p % 2, &[data(10, 256), data(266, 4096)], true);
        assert_eq!(frames.len(), 2);
        let runs = &frames[1].plan.runs;
        assert_eq!(frames[1].plan.repeat_blocks, 4096);
        assert!(runs.len() < 20, "{} runs", runs.len());
        assert_eq!(frames[1].plan.data_blocks, 0);
        for run in runs {
            let RunKind::Repeat { from, .. } = run.kind else { panic!("{run:?}") };
            assert_eq!(from % 2, run.position % 2);
            assert!(from + run.blocks <= 266, "it names nothing of its own frame: {run:?}");
        }
    }

    #[test]
    fn without_leave_to_refer_everything_is_data_and_holes_stay_whole() {
        let hole = Run { position: 300, blocks: 1 << 30, kind: RunKind::Hole };
        let frames = planned(|_| 7, &[data(0, 300), hole], false);
        let runs: Vec<Run> = frames.iter().flat_map(|f| f.plan.runs.clone()).collect();
        assert_eq!(runs, [data(0, 256), data(256, 44), hole]);
        assert!(planned(|_| 7, &[], true).is_empty());
    }

    #[test]
    fn many_small_runs_and_many_repeats_respect_their_limits() {
        let holes: Vec<Run> =
            (0..5000).map(|p| Run { position: 2 * p, blocks: 1, kind: RunKind::Hole }).collect();
        let frames = planned(|_| 7, &holes, true);
        assert_eq!(frames.iter().map(|f| f.plan.runs.len()).collect::<Vec<_>>(), [2048, 2048, 904]);
        let content = |p: u64| if p < 256 { p } else { 7 };
        let frames = planned(content, &[data(0, 256), data(256, 5000)], true);
        let repeats: Vec<u64> = frames.iter().map(|f| f.plan.repeat_blocks).collect();
        assert!(repeats.iter().all(|r| *r <= u64::from(REPEAT_BLOCKS_MAX)), "{repeats:?}");
        assert_eq!((repeats.iter().sum::<u64>(), frames[0].plan.data_blocks), (5000, 256));
    }
}
