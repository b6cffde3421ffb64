//! Which blocks a stream has carried.

/// Runs remembered at most (1 MiB of memory); of scattered change the oldest are forgotten, and not referred to any more.
const RUNS_MAX: usize = 1 << 16;

/// Blocks of the incremental that earlier frames of a stream brought: ascending runs, as first and end.
#[derive(Debug, Default)]
pub(super) struct Carried {
    runs: Vec<(u64, u64)>,
}

impl Carried {
    /// Adds a run. One that does not stand behind all others begins anew: frames of a stream ascend.
    pub(super) fn add(&mut self, first: u64, blocks: u64) {
        match self.runs.last_mut() {
            Some(last) if last.1 == first => {
                last.1 += blocks;
                return;
            }
            Some(last) if last.1 > first => self.runs.clear(),
            _ => {}
        }
        if self.runs.len() >= RUNS_MAX {
            self.runs.drain(..RUNS_MAX / 2);
        }
        self.runs.push((first, first + blocks));
    }

    /// The last `blocks` of them, ascending.
    pub(super) fn last(&self, blocks: u64) -> Vec<u64> {
        let backwards = self.runs.iter().rev().flat_map(|(first, end)| (*first..*end).rev());
        let mut last: Vec<u64> = backwards.take(blocks as usize).collect();
        last.reverse();
        last
    }

    /// Whether the stream has brought this block.
    pub(super) fn has(&self, position: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 <= position);
        self.runs.get(at).is_some_and(|run| run.0 <= position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_and_the_oldest_forgotten() {
        let mut carried = Carried::default();
        carried.add(5, 3);
        carried.add(8, 2);
        carried.add(20, 1);
        assert_eq!(carried.runs, [(5, 10), (20, 21)]);
        let has: Vec<u64> = (0..30).filter(|p| carried.has(*p)).collect();
        assert_eq!(has, [5, 6, 7, 8, 9, 20]);
        assert_eq!(carried.last(3), [8, 9, 20]);
        for n in 0..RUNS_MAX as u64 {
            carried.add(100 + 2 * n, 1);
        }
        assert!(
            carried.runs.len() <= RUNS_MAX && !carried.has(5) && carried.has(100 + 2 * (RUNS_MAX as u64 - 1))
        );
        carried.add(0, 1);
        assert!(carried.has(0) && !carried.has(1 << 17));
    }
}
