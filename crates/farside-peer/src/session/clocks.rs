//! What a pong tells: how long the way there and back is, and how far the clocks of the two sites are apart. Pure.
//!
//! The age of a replica's data is counted from a moment that the source's clock named, so a wrong clock at either site is worth
//! a word.

use std::time::Duration;

use farside_platform::Timestamp;

/// Clocks that are further apart than this, and than a round trip, are told. Both sites of an ordinary set-up follow NTP to
/// some milliseconds, and lag is read in seconds.
const APART_MAX: f64 = 2.0;

/// What was measured last.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Measured {
    /// Round-trip time, seconds.
    pub(crate) rtt_seconds: f64,
    /// By how much the peer's clock is ahead of this site's, seconds, wrong by half of a round trip at most; negative if it is
    /// behind. None from a peer that does not say.
    pub(crate) ahead_seconds: Option<f64>,
}

/// From a pong that came `rtt` after its ping, at `now`, and said that the peer's clock was at `theirs` milliseconds since 1970.
pub(super) fn measure(rtt: Duration, theirs: u64, now: Timestamp) -> Measured {
    let rtt_seconds = rtt.as_secs_f64();
    // Both as floating point: any number may come from outside. A quarter of a microsecond is what an f64 holds of today.
    let ahead = |theirs: u64| theirs as f64 / 1e3 + rtt_seconds / 2.0 - now.0 as f64 / 1e9;
    Measured { rtt_seconds, ahead_seconds: (theirs > 0).then(|| ahead(theirs)) }
}

/// What `ahead_seconds` are worth a word; less may be the way there and back.
pub(crate) fn apart(ahead_seconds: Option<f64>, rtt_seconds: Option<f64>) -> Option<f64> {
    ahead_seconds.filter(|ahead| ahead.abs() > APART_MAX + rtt_seconds.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_where_the_way_there_and_back_does_not_explain_it() {
        let second = Duration::from_secs(1);
        let at = |seconds: u64| Timestamp(seconds * 1_000_000_000);
        let day = 86_400;
        for (rtt, theirs, now, ahead, is_told) in [
            (second, 1_000_000, 1_000, 0.5, false),
            (second, 1_003_000, 1_000, 3.5, true),
            (second, 996_000, 1_000, -3.5, true),
            (5 * second, 1_003_000, 1_000, 5.5, false),
            (second, 365 * day * 1000, 1, 365.0 * 86_400.0 - 0.5, true),
            (second, u64::MAX, 1, u64::MAX as f64 / 1e3 - 0.5, true),
        ] {
            let measured = measure(rtt, theirs, at(now));
            assert!((measured.ahead_seconds.unwrap() - ahead).abs() < 1e-3, "{measured:?}");
            assert_eq!(
                apart(measured.ahead_seconds, Some(measured.rtt_seconds)).is_some(),
                is_told,
                "{measured:?}"
            );
        }
        assert_eq!(measure(second, 0, at(1)).ahead_seconds, None);
        assert_eq!(apart(None, None), None);
    }
}
