//! Which blocks of a volume its index has not seen: those that were known at the destination, so that nobody read them here.
//!
//! Kept as runs, so that rebuilding reads just these: of a resync of terabytes of which one block was known, one block.

use std::collections::VecDeque;
use std::ops::Range;

use crate::limits::MISSING_RUNS_MAX;

/// Runs of blocks that an index lacks, ascending and apart. At most [`MISSING_RUNS_MAX`]: past it the shorter half is
/// forgotten, which costs bytes on the wire only, and less of them than any other half.
#[derive(Default, Debug)]
pub(crate) struct MissingRuns {
    runs: VecDeque<Range<u64>>,
}

impl MissingRuns {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds a run. It is cheap where runs come in ascending order.
    pub(crate) fn add(&mut self, run: Range<u64>) {
        match self.runs.back_mut() {
            _ if run.is_empty() => {}
            Some(last) if last.end == run.start => last.end = run.end,
            Some(last) if last.end > run.start => self.merge(MissingRuns { runs: [run].into() }),
            _ => {
                self.runs.push_back(run);
                self.bound();
            }
        }
    }

    /// Adds all of another.
    pub(crate) fn merge(&mut self, other: MissingRuns) {
        let mut all: Vec<Range<u64>> = std::mem::take(&mut self.runs).into();
        all.extend(other.runs);
        all.sort_unstable_by_key(|run| run.start);
        for run in all {
            match self.runs.back_mut() {
                Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
                _ => self.runs.push_back(run),
            }
        }
        self.bound();
    }

    /// Takes the first runs: of at most so many blocks together, and as many runs.
    pub(crate) fn take(&mut self, blocks_max: u64) -> MissingRuns {
        let (mut taken, mut left) = (VecDeque::new(), blocks_max);
        while let Some(first) = self.runs.front_mut()
            && left > 0
        {
            let end = first.end.min(first.start.saturating_add(left));
            taken.push_back(first.start..end);
            left -= end - first.start;
            first.start = end;
            if first.is_empty() {
                self.runs.pop_front();
            }
        }
        MissingRuns { runs: taken }
    }

    /// Them, ascending.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Range<u64>> {
        self.runs.iter()
    }

    /// Forgets the shorter half if there are too many; of runs of the same length those that come last.
    fn bound(&mut self) {
        if self.runs.len() <= MISSING_RUNS_MAX {
            return;
        }
        let length = |run: &Range<u64>| run.end - run.start;
        let mut lengths: Vec<u64> = self.runs.iter().map(length).collect();
        let kept = MISSING_RUNS_MAX / 2;
        let (longer, shortest, _) = lengths.select_nth_unstable_by(kept, |a, b| b.cmp(a));
        let shortest = *shortest;
        let mut as_short = kept - longer.iter().filter(|length| **length > shortest).count();
        self.runs.retain(|run| {
            let is_kept = length(run) > shortest || (length(run) == shortest && as_short > 0);
            as_short -= usize::from(is_kept && length(run) == shortest);
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(runs: &[Range<u64>]) -> MissingRuns {
        let mut missing = MissingRuns::default();
        runs.iter().for_each(|run| missing.add(run.clone()));
        missing
    }

    fn all(missing: &MissingRuns) -> Vec<Range<u64>> {
        missing.runs().cloned().collect()
    }

    #[test]
    fn runs_are_joined_in_whatever_order_they_come() {
        assert_eq!(all(&of(&[3..5, 5..9, 20..20, 12..13])), [3..9, 12..13]);
        assert_eq!(all(&of(&[12..13, 3..5, 4..9, 13..20])), [3..9, 12..20]);
        let mut missing = of(&[0..4, 100..200]);
        missing.merge(of(&[4..6, 50..120, 300..301]));
        assert_eq!(all(&missing), [0..6, 50..200, 300..301]);
    }

    #[test]
    fn they_are_taken_from_the_front_and_what_was_taken_can_come_back() {
        let mut missing = of(&[0..4, 10..12, 100..1000]);
        let first = missing.take(10);
        assert_eq!(all(&first), [0..4, 10..12, 100..104]);
        assert_eq!((missing.runs.len(), &missing.runs[0]), (1, &(104..1000)));
        missing.merge(first);
        assert_eq!(all(&missing), [0..4, 10..12, 100..1000]);
        assert_eq!(all(&missing.take(u64::MAX)), [0..4, 10..12, 100..1000]);
        assert!(missing.is_empty() && missing.take(1).is_empty());
    }

    #[test]
    fn of_too_many_the_longer_half_stays() {
        let max = MISSING_RUNS_MAX as u64;
        let scattered: Vec<Range<u64>> = (0..max).map(|n| 10 * n..10 * n + 1 + n % 4).collect();
        let mut missing = of(&scattered);
        assert_eq!(all(&missing), scattered);
        missing.add(1 << 40..1 << 41);
        let longer = scattered.iter().filter(|run| run.end - run.start > 2);
        // One less of the shorter ones, for the long one.
        let mut expected: Vec<_> = longer.cloned().collect();
        expected.push(1 << 40..1 << 41);
        let last = expected.iter().rposition(|run| run.end - run.start == 3).unwrap();
        expected.remove(last);
        assert_eq!(all(&missing), expected);
        // Where none is longer than another the first stay.
        let mut alike = of(&(0..max + 1).map(|n| 2 * n..2 * n + 1).collect::<Vec<_>>());
        assert_eq!(all(&alike), (0..max / 2).map(|n| 2 * n..2 * n + 1).collect::<Vec<_>>());
        alike.merge(of(&scattered));
        assert!(alike.runs.len() <= MISSING_RUNS_MAX);
    }
}
