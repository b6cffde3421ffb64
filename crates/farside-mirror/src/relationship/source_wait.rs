//! When a scheduled update comes again that found the volume's pool not open at the source. Pure.
//!
//! Such a pool is opened in a moment, as a rule: by a daemon that has just begun, or has taken over from another. Until the next tick
//! it may be an hour.

use std::time::Duration;

use crate::limits::{SOURCE_RETRY_MAX, SOURCE_RETRY_MIN};

/// What is known of the last attempt that found it so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SourceWait {
    /// It comes again then (monotonic).
    again_at: Duration,
    /// Time from the attempt to then.
    rest: Duration,
}

impl SourceWait {
    /// After one more attempt in a row, at `now` (monotonic).
    pub(super) fn after(before: Option<SourceWait>, now: Duration) -> SourceWait {
        let rest = before.map_or(SOURCE_RETRY_MIN, |before| (before.rest * 2).min(SOURCE_RETRY_MAX));
        SourceWait { again_at: now + rest, rest }
    }

    /// How long it still rests.
    pub(super) fn left(&self, now: Duration) -> Duration {
        self.again_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_again_soon_and_then_ever_less_often() {
        let (mut now, mut wait) = (Duration::from_secs(7), None);
        let mut rests = Vec::new();
        for _ in 0..6 {
            let failed = SourceWait::after(wait, now);
            rests.push(failed.left(now).as_secs());
            now += failed.left(now);
            assert_eq!(failed.left(now), Duration::ZERO);
            wait = Some(failed);
        }
        assert_eq!(rests, [5, 10, 20, 40, 60, 60]);
    }
}
