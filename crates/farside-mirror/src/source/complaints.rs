//! How much of the log a peer may fill with calls that are refused: a few lines a minute, then a count.

use std::collections::HashMap;
use std::time::Duration;

use farside_session::PeerId;

use crate::limits::{REFUSALS_LOGGED_EVERY, REFUSALS_LOGGED_MAX};

/// What may be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Admitted {
    /// A line; so many before it were left out.
    Line {
        /// Since the last line of this peer.
        suppressed: u64,
    },
    /// Not now.
    Nothing,
}

/// By peer. Peers are those that are paired, which a person bounds.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    of: HashMap<PeerId, Window>,
}

#[derive(Debug)]
struct Window {
    since: Duration,
    lines: u32,
    suppressed: u64,
}

impl Complaints {
    /// Whether a refusal of `peer` is logged at `now` (monotonic).
    pub(super) fn admit(&mut self, peer: PeerId, now: Duration) -> Admitted {
        let window = self.of.entry(peer).or_insert(Window { since: now, lines: 0, suppressed: 0 });
        if now.saturating_sub(window.since) >= REFUSALS_LOGGED_EVERY {
            (window.since, window.lines) = (now, 0);
        }
        if window.lines >= REFUSALS_LOGGED_MAX {
            window.suppressed += 1;
            return Admitted::Nothing;
        }
        window.lines += 1;
        Admitted::Line { suppressed: std::mem::take(&mut window.suppressed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_hides_no_other_peer() {
        let mut complaints = Complaints::default();
        let (loud, quiet) = (PeerId([1; 32]), PeerId([2; 32]));
        let at = Duration::from_secs;
        let mut lines = 0;
        for _ in 0..1000 {
            lines += u32::from(complaints.admit(loud, at(1)) != Admitted::Nothing);
        }
        assert_eq!(lines, REFUSALS_LOGGED_MAX);
        assert_eq!(complaints.admit(quiet, at(1)), Admitted::Line { suppressed: 0 });
        let later = at(1) + REFUSALS_LOGGED_EVERY;
        let suppressed = 1000 - u64::from(REFUSALS_LOGGED_MAX);
        assert_eq!(complaints.admit(loud, later), Admitted::Line { suppressed });
        assert_eq!(complaints.admit(loud, later), Admitted::Line { suppressed: 0 });
    }
}
