//! What of a step still has to travel: its difference, less what the destination holds of it. Pure but for the
//! fingerprints it asks for.
//!
//! Two ascending lists are merged, so that neither is ever in memory as a whole:
//!
//! * in the difference and not held: travels;
//! * in the difference and held: travels only if it is another kind, or (where the list carries fingerprints) other
//!   content than the incremental's;
//! * held and not in the difference: there the incremental is as the base is, and what is held is something else. It is
//!   put right: what the incremental has there travels.
//!
//! The held list comes bit by bit: where it is not known yet the merge pauses.

use std::collections::VecDeque;

use farside_engine::{BLOCK_BYTES, EngineError, Fingerprint};
use farside_wire::{Run, RunKind};

use crate::limits::{HELD_BLOCKS_PER_CHUNK, MERGE_STEPS};
use crate::protocol::held::{Held, HeldRun, short};

/// The ascending runs of a difference.
pub(crate) type Runs = Box<dyn Iterator<Item = Result<Run, EngineError>> + Send>;
/// Fingerprints of so many blocks of the incremental from a block on.
pub(crate) type Fingerprints = Box<dyn Fn(u64, u64) -> Result<Vec<Fingerprint>, EngineError> + Send>;

/// The merge. As an iterator it gives the runs that travel; `None` is the end if [`Remaining::is_done`], else a pause:
/// for more of the held list, if [`Remaining::needs_held`], or to let the caller look up from a long stretch of which
/// nothing travels.
pub(crate) struct Remaining {
    difference: Runs,
    /// The front of the difference.
    ahead: Option<Run>,
    difference_ended: bool,
    kind: Held,
    held: VecDeque<HeldRun>,
    held_ended: bool,
    fingerprints: Fingerprints,
    found: VecDeque<Run>,
    /// Bytes of data in the difference that need not travel.
    resumed_bytes: u64,
}

impl Remaining {
    pub(crate) fn new(difference: Runs, kind: Held, fingerprints: Fingerprints) -> Remaining {
        Remaining {
            difference,
            ahead: None,
            difference_ended: false,
            kind,
            held: VecDeque::new(),
            held_ended: kind == Held::None,
            fingerprints,
            found: VecDeque::new(),
            resumed_bytes: 0,
        }
    }

    /// Whether it cannot go on without more of the held list.
    pub(crate) fn needs_held(&self) -> bool {
        self.found.is_empty() && self.held.is_empty() && !self.held_ended
    }

    /// Whether everything was given.
    pub(crate) fn is_done(&self) -> bool {
        self.found.is_empty()
            && self.held.is_empty()
            && self.held_ended
            && self.ahead.is_none()
            && self.difference_ended
    }

    /// More of the held list, above all that was given before.
    pub(crate) fn add_held(&mut self, runs: Vec<HeldRun>) {
        self.held.extend(runs);
    }

    /// The held list was given whole.
    pub(crate) fn end_held(&mut self) {
        self.held_ended = true;
    }

    /// Bytes of data in the difference so far that the destination holds.
    pub(crate) fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes
    }

    fn fill_ahead(&mut self) -> Result<(), EngineError> {
        while self.ahead.is_none() && !self.difference_ended {
            match self.difference.next().transpose()? {
                Some(run) => self.ahead = Some(run).filter(|r| r.blocks > 0),
                None => self.difference_ended = true,
            }
        }
        Ok(())
    }

    /// Takes the front of the difference up to block `to`, of which it has some.
    fn take_ahead(&mut self, to: u64) -> Option<Run> {
        let run = self.ahead.take()?;
        let blocks = (to - run.position).min(run.blocks);
        let rest = Run { position: run.position + blocks, blocks: run.blocks - blocks, ..run };
        self.ahead = Some(rest).filter(|r| r.blocks > 0);
        Some(Run { blocks, ..run })
    }

    /// Takes the front of what is held up to block `to`, of which it has some.
    fn take_held(&mut self, to: u64) -> Option<HeldRun> {
        let mut run = self.held.pop_front()?;
        let blocks = (to - run.position).min(run.blocks);
        if blocks < run.blocks {
            let rest = HeldRun {
                position: run.position + blocks,
                blocks: run.blocks - blocks,
                kind: run.kind,
                fingerprints: run.fingerprints.split_off(run.fingerprints.len().min(blocks as usize)),
            };
            self.held.push_front(rest);
        }
        Some(HeldRun { blocks, ..run })
    }

    /// Goes on by one piece. Answers whether there was one.
    fn step(&mut self) -> Result<bool, EngineError> {
        let Some(held) = self.held.front() else {
            if !self.held_ended {
                return Ok(false);
            }
            let travels = self.ahead.take();
            self.found.extend(travels);
            return Ok(travels.is_some());
        };
        let held = held.position..held.end();
        match self.ahead {
            Some(ahead) if ahead.position < held.start => {
                let travels = self.take_ahead(held.start);
                self.found.extend(travels);
            }
            Some(ahead) if ahead.position == held.start => {
                let to = ahead.end().min(held.end);
                if let (Some(ahead), Some(held)) = (self.take_ahead(to), self.take_held(to)) {
                    self.compare(ahead, &held)?;
                }
            }
            other => {
                // Fingerprints of a piece are looked up at once.
                let piece = held.end.min(held.start + HELD_BLOCKS_PER_CHUNK);
                let to = other.map_or(piece, |ahead| ahead.position.min(piece));
                if let Some(held) = self.take_held(to) {
                    self.put_right(&held)?;
                }
            }
        }
        Ok(true)
    }

    /// Both are of the same blocks.
    fn compare(&mut self, ahead: Run, held: &HeldRun) -> Result<(), EngineError> {
        if ahead.kind != held.kind {
            self.found.push_back(ahead);
        } else if ahead.kind == RunKind::Hole {
            // Nothing to do, and nothing that counts as data.
        } else if self.kind == Held::Positions {
            self.resumed_bytes += ahead.blocks * BLOCK_BYTES;
        } else {
            let ours = (self.fingerprints)(ahead.position, ahead.blocks)?;
            let is_same = |at: usize| held.fingerprints.get(at) == ours.get(at).map(short).as_ref();
            for at in 0..ahead.blocks {
                if is_same(at as usize) {
                    self.resumed_bytes += BLOCK_BYTES;
                } else {
                    self.push_block(ahead.position + at, RunKind::Data);
                }
            }
        }
        Ok(())
    }

    /// There the incremental is as the base is, and what is held is not.
    fn put_right(&mut self, held: &HeldRun) -> Result<(), EngineError> {
        let ours = (self.fingerprints)(held.position, held.blocks)?;
        for (at, fingerprint) in ours.iter().enumerate() {
            let kind = if fingerprint.is_hole() { RunKind::Hole } else { RunKind::Data };
            // A hole on both sides: what is held as a hole may reach over blocks that were none of the base's.
            if kind == RunKind::Hole && held.kind == RunKind::Hole {
                continue;
            }
            self.push_block(held.position + at as u64, kind);
        }
        Ok(())
    }

    fn push_block(&mut self, position: u64, kind: RunKind) {
        match self.found.back_mut() {
            Some(last) if last.kind == kind && last.end() == position => last.blocks += 1,
            _ => self.found.push_back(Run { position, blocks: 1, kind }),
        }
    }
}

impl Iterator for Remaining {
    type Item = Result<Run, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        for _ in 0..MERGE_STEPS {
            if let Some(run) = self.found.pop_front() {
                return Some(Ok(run));
            }
            match self.fill_ahead().and_then(|()| self.step()) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Content of each block; 0 is a hole.
    type Image = Vec<u8>;

    fn fingerprint(content: u8) -> Fingerprint {
        Fingerprint([content; 16])
    }

    /// Where `now` is not as `base`, and what it is there.
    fn runs(base: &Image, now: &Image) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (position, (old, new)) in base.iter().zip(now).enumerate() {
            if old == new {
                continue;
            }
            let (position, kind) = (position as u64, if *new == 0 { RunKind::Hole } else { RunKind::Data });
            match runs.last_mut() {
                Some(last) if last.kind == kind && last.end() == position => last.blocks += 1,
                _ => runs.push(Run { position, blocks: 1, kind }),
            }
        }
        runs
    }

    fn held_runs(base: &Image, staged: &Image, kind: Held) -> Vec<HeldRun> {
        let with = |run: Run| HeldRun {
            position: run.position,
            blocks: run.blocks,
            kind: run.kind,
            fingerprints: match (kind, run.kind) {
                (Held::Fingerprints, RunKind::Data) => {
                    (run.position..run.end()).map(|p| short(&fingerprint(staged[p as usize]))).collect()
                }
                _ => Vec::new(),
            },
        };
        runs(base, staged).into_iter().map(with).collect()
    }

    /// Feeds the merge `per_chunk` held runs at a time and answers what travels, and the bytes that need not.
    fn merged(base: &Image, now: &Image, staged: &Image, kind: Held, per_chunk: usize) -> (Vec<Run>, u64) {
        let difference = Box::new(runs(base, now).into_iter().map(Ok));
        let ours = now.clone();
        let fingerprints = Box::new(move |first: u64, count: u64| {
            Ok((first..first + count).map(|p| fingerprint(ours[p as usize])).collect())
        });
        let mut remaining = Remaining::new(difference, kind, fingerprints);
        let held = if kind == Held::None { Vec::new() } else { held_runs(base, staged, kind) };
        let mut chunks = held.chunks(per_chunk);
        let mut travels = Vec::new();
        loop {
            match remaining.next() {
                Some(run) => travels.push(run.unwrap()),
                None if remaining.is_done() => return (travels, remaining.resumed_bytes()),
                None if !remaining.needs_held() => {}
                None => match chunks.next() {
                    Some(chunk) => remaining.add_held(chunk.to_vec()),
                    None => remaining.end_held(),
                },
            }
        }
    }

    fn applied(staged: &Image, now: &Image, travels: &[Run]) -> Image {
        let mut staged = staged.clone();
        for run in travels {
            for p in run.position..run.end() {
                assert_eq!(
                    run.kind == RunKind::Hole,
                    now[p as usize] == 0,
                    "block {p} travels as what it is"
                );
                staged[p as usize] = now[p as usize];
            }
        }
        staged
    }

    #[test]
    fn what_was_staged_becomes_the_incremental_and_nothing_held_travels_again() {
        let mut rng = SmallRng::seed_from_u64(1);
        for round in 0..2000 {
            let blocks = rng.random_range(1..60);
            let mut image = |from: &Image, changes: usize| {
                let mut image = from.clone();
                for _ in 0..changes {
                    let first = rng.random_range(0..blocks);
                    let content = rng.random_range(0..4);
                    let end = rng.random_range(first..=blocks.min(first + 9));
                    image[first..end].fill(content);
                }
                image
            };
            let base = image(&vec![0; blocks], 5);
            let now = image(&base, 8);
            let other = image(&base, 8);
            let per_chunk = 1 + round % 4;

            // A part of the same incremental was staged.
            let cut = image(&vec![0; blocks], 6);
            let staged: Image = (0..blocks).map(|p| if cut[p] > 0 { now[p] } else { base[p] }).collect();
            let (travels, resumed_bytes) = merged(&base, &now, &staged, Held::Positions, per_chunk);
            assert_eq!(applied(&staged, &now, &travels), now, "round {round}");
            let expected: Vec<usize> = (0..blocks).filter(|p| staged[*p] != now[*p]).collect();
            let sent: Vec<usize> =
                travels.iter().flat_map(|r| r.position as usize..r.end() as usize).collect();
            assert_eq!(sent, expected, "round {round}");
            let held = (0..blocks).filter(|p| now[*p] != base[*p] && now[*p] != 0 && staged[*p] == now[*p]);
            assert_eq!(resumed_bytes, held.count() as u64 * BLOCK_BYTES, "round {round}");

            // Parts of two others were staged.
            let mixed: Image = (0..blocks).map(|p| if cut[p] > 1 { now[p] } else { other[p] }).collect();
            let (travels, _) = merged(&base, &now, &mixed, Held::Fingerprints, per_chunk);
            assert_eq!(applied(&mixed, &now, &travels), now, "round {round}");
            let sent: Vec<usize> =
                travels.iter().flat_map(|r| r.position as usize..r.end() as usize).collect();
            let expected: Vec<usize> = (0..blocks).filter(|p| mixed[*p] != now[*p]).collect();
            assert_eq!(sent, expected, "round {round}");

            let (travels, resumed_bytes) = merged(&base, &now, &base, Held::None, 1);
            assert_eq!((travels, resumed_bytes), (runs(&base, &now), 0));
        }
    }

    #[test]
    fn nothing_is_let_through_before_it_is_known_what_is_held() {
        let run = Run { position: 10, blocks: 5, kind: RunKind::Data };
        let fingerprints = Box::new(|_, count| Ok(vec![fingerprint(1); count as usize]));
        let mut remaining = Remaining::new(Box::new([Ok(run)].into_iter()), Held::Positions, fingerprints);
        assert!(remaining.next().is_none() && remaining.needs_held());
        let held = HeldRun { position: 11, blocks: 2, kind: RunKind::Data, fingerprints: Vec::new() };
        remaining.add_held(vec![held]);
        assert_eq!(remaining.next().unwrap().unwrap(), Run { blocks: 1, ..run });
        assert!(remaining.next().is_none() && remaining.needs_held());
        remaining.end_held();
        assert_eq!(remaining.next().unwrap().unwrap(), Run { position: 13, blocks: 2, ..run });
        assert!(remaining.next().is_none() && remaining.is_done());
    }

    #[test]
    fn an_error_of_the_difference_ends_it() {
        let failed = [Err(EngineError::Corrupt("node".into()))];
        let mut remaining =
            Remaining::new(Box::new(failed.into_iter()), Held::None, Box::new(|_, _| Ok(Vec::new())));
        assert!(remaining.next().unwrap().is_err());
    }
}
