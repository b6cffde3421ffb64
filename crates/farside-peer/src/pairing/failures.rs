//! Failed pairings of late: whoever goes on failing waits longer each time. Pure.
//!
//! A token of 128 bits is not guessed; what is bounded here is work, log lines and the life of an invitation. So that nobody
//! can keep an honest joiner away by failing, an origin that has not failed of late always has its tries.

use std::collections::HashMap;
use std::time::Duration;

use crate::error::Refusal;
use crate::limits::{
    PAIRING_BACKOFF_MAX, PAIRING_BACKOFF_MIN, PAIRING_FAILURES_FREE, PAIRING_FAILURES_MAX,
    PAIRING_FAILURES_WITHIN, PAIRING_ORIGINS_MAX,
};

/// By origin, and of all together. `now` is always the monotonic clock's.
#[derive(Default)]
pub(crate) struct Failures {
    of: HashMap<String, Failed>,
    window: Window,
}

#[derive(Clone, Copy)]
struct Failed {
    times: u32,
    last: Duration,
}

#[derive(Default)]
struct Window {
    since: Duration,
    failures: usize,
}

impl Failed {
    /// How long after its last failure the next try is looked at.
    fn pause(&self) -> Duration {
        let over = self.times.saturating_sub(PAIRING_FAILURES_FREE);
        if over == 0 {
            return Duration::ZERO;
        }
        PAIRING_BACKOFF_MIN.saturating_mul(1 << (over - 1).min(16)).min(PAIRING_BACKOFF_MAX)
    }
}

impl Failures {
    /// Whether one more attempt from `origin` may be made.
    pub(crate) fn admit(&mut self, origin: &str, now: Duration) -> Result<(), Refusal> {
        self.of.retain(|_, failed| now.saturating_sub(failed.last) < 2 * PAIRING_BACKOFF_MAX);
        let Some(failed) = self.of.get(origin) else { return Ok(()) };
        let mut wait = (failed.last + failed.pause()).saturating_sub(now);
        if self.window.failures >= PAIRING_FAILURES_MAX {
            wait = wait.max((self.window.since + PAIRING_FAILURES_WITHIN).saturating_sub(now));
        }
        if wait.is_zero() {
            return Ok(());
        }
        let message = format!(
            "too many failed pairings from this address; try again in {} s",
            wait.as_secs_f64().ceil()
        );
        Err(Refusal { code: "busy".to_owned(), message })
    }

    pub(crate) fn note(&mut self, origin: &str, now: Duration) {
        if now.saturating_sub(self.window.since) >= PAIRING_FAILURES_WITHIN {
            self.window = Window { since: now, failures: 0 };
        }
        self.window.failures = self.window.failures.saturating_add(1);
        if !self.of.contains_key(origin) && self.of.len() >= PAIRING_ORIGINS_MAX {
            let oldest =
                self.of.iter().min_by_key(|(_, failed)| failed.last).map(|(origin, _)| origin.clone());
            oldest.and_then(|oldest| self.of.remove(&oldest));
        }
        let failed = self.of.entry(origin.to_owned()).or_insert(Failed { times: 0, last: now });
        *failed = Failed { times: failed.times.saturating_add(1), last: now };
    }

    /// Whoever has proved a token is nobody who guesses.
    pub(crate) fn forgive(&mut self, origin: &str) {
        self.of.remove(origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    #[test]
    fn whoever_goes_on_failing_waits_longer_and_nobody_else_does() {
        let mut failures = Failures::default();
        let (mut now, mut pauses) = (NOW, Vec::new());
        for _ in 0..40 {
            while failures.admit("guesser", now).is_err() {
                now += Duration::from_secs(1);
            }
            failures.note("guesser", now);
            let begun = now;
            while failures.admit("guesser", now).is_err() {
                now += Duration::from_secs(1);
            }
            pauses.push((now - begun).as_secs());
            assert!(failures.admit("joiner", now).is_ok());
        }
        assert!(pauses[..PAIRING_FAILURES_FREE as usize].iter().all(|p| *p == 0), "{pauses:?}");
        assert!(pauses.is_sorted() && pauses[39] == PAIRING_BACKOFF_MAX.as_secs(), "{pauses:?}");
    }

    #[test]
    fn many_origins_together_have_a_limit_and_a_clean_one_its_first_try() {
        let mut failures = Failures::default();
        for n in 0..PAIRING_FAILURES_MAX {
            failures.note(&format!("bot-{n}"), NOW);
        }
        assert_eq!(failures.admit("bot-0", NOW).unwrap_err().code, "busy");
        assert!(failures.admit("joiner", NOW).is_ok());
        assert!(failures.admit("bot-0", NOW + PAIRING_FAILURES_WITHIN).is_ok());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_passes() {
        let mut failures = Failures::default();
        for n in 0..3 * PAIRING_ORIGINS_MAX {
            failures.note(&format!("bot-{n}"), NOW + Duration::from_nanos(n as u64));
        }
        assert_eq!(failures.of.len(), PAIRING_ORIGINS_MAX);
        failures.forgive(&format!("bot-{}", 3 * PAIRING_ORIGINS_MAX - 1));
        assert_eq!(failures.of.len(), PAIRING_ORIGINS_MAX - 1);
        assert!(failures.admit("anybody", NOW + 3 * PAIRING_BACKOFF_MAX).is_ok());
        assert!(failures.of.is_empty());
    }
}
