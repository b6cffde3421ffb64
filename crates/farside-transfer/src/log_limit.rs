//! How much of the log a peer may fill with what is refused or fails: a few lines a minute, then a count.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::limits::{LINES_EVERY, LINES_MAX};

/// Long enough for the count of what was left out to be told with the next line.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3600);

/// What may be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admitted {
    /// A line; so many before it were left out.
    Line {
        /// Since the last line of the same.
        suppressed: u64,
    },
    /// Not now.
    Nothing,
}

/// By whom or what they are of: paired peers, or relationships that are kept, which both are bounded. Who has said nothing for a
/// while is forgotten.
#[derive(Debug)]
pub struct LogLimit<K> {
    of: HashMap<K, Window>,
}

impl<K> Default for LogLimit<K> {
    fn default() -> Self {
        LogLimit { of: HashMap::new() }
    }
}

#[derive(Debug)]
struct Window {
    since: Duration,
    lines: u32,
    suppressed: u64,
}

impl<K: Hash + Eq> LogLimit<K> {
    /// Whether one of `of` is logged at `now` (monotonic).
    pub fn admit(&mut self, of: K, now: Duration) -> Admitted {
        self.of.retain(|_, window| now.saturating_sub(window.since) < FORGOTTEN_AFTER);
        let window = self.of.entry(of).or_insert(Window { since: now, lines: 0, suppressed: 0 });
        if now.saturating_sub(window.since) >= LINES_EVERY {
            (window.since, window.lines) = (now, 0);
        }
        if window.lines >= LINES_MAX {
            window.suppressed += 1;
            return Admitted::Nothing;
        }
        window.lines += 1;
        Admitted::Line { suppressed: std::mem::take(&mut window.suppressed) }
    }
}

#[cfg(test)]
mod tests {
    use farside_peer::PeerId;

    use super::*;

    #[test]
    fn a_flood_is_counted_and_hides_no_other_peer() {
        let mut limit = LogLimit::default();
        let (loud, quiet) = (PeerId([1; 32]), PeerId([2; 32]));
        let at = Duration::from_secs;
        let mut lines = 0;
        for _ in 0..1000 {
            lines += u32::from(limit.admit(loud, at(1)) != Admitted::Nothing);
        }
        assert_eq!(lines, LINES_MAX);
        assert_eq!(limit.admit(quiet, at(1)), Admitted::Line { suppressed: 0 });
        let later = at(1) + LINES_EVERY;
        let suppressed = 1000 - u64::from(LINES_MAX);
        assert_eq!(limit.admit(loud, later), Admitted::Line { suppressed });
        assert_eq!(limit.admit(loud, later), Admitted::Line { suppressed: 0 });
    }
}
