//! Backoff between attempts: they double, and are drawn from their upper half so that two sites do not stay in step. Pure.

use std::time::Duration;

use farside_platform::Randomness;

use crate::limits::{REDIAL_MAX, REDIAL_MIN};

/// Draws the pauses of one who tries again and again; a new one begins with the shortest.
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::new()
    }
}

impl Backoff {
    /// Before the first failure.
    pub fn new() -> Self {
        Backoff { next: REDIAL_MIN }
    }

    /// The pause after one more failure.
    pub fn next_delay(&mut self, random: &dyn Randomness) -> Duration {
        let pause = self.next;
        self.next = (self.next * 2).min(REDIAL_MAX);
        pause.mul_f64(0.5 + 0.5 * (random.next_u64() as f64 / u64::MAX as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farside_platform::SeededRandomness;

    #[test]
    fn pauses_grow_to_their_limit() {
        let random = SeededRandomness::new(5);
        let mut backoff = Backoff::new();
        let drawn: Vec<_> = (0..12).map(|_| backoff.next_delay(&random)).collect();
        assert!(drawn[0] >= REDIAL_MIN / 2 && drawn[0] <= REDIAL_MIN);
        assert!(drawn.iter().all(|p| *p <= REDIAL_MAX));
        assert!(drawn[11] >= REDIAL_MAX / 2);
    }
}
