//! Idle lanes: connections whose bundle has ended in order. The next bundle on the same path is carried at once, without a
//! handshake and with the congestion window that the one before has earned. Pure: time comes as an argument.

use std::time::Duration;

use crate::limits::{IDLE_LANE_TIMEOUT, IDLE_LANES_MAX};
use crate::options::PathSpec;

struct Idle<L> {
    path: PathSpec,
    since: Duration,
    lane: L,
}

/// The idle lanes of a session, oldest first.
pub struct IdleLanes<L> {
    lanes: Vec<Idle<L>>,
}

impl<L> Default for IdleLanes<L> {
    fn default() -> Self {
        IdleLanes { lanes: Vec::new() }
    }
}

impl<L> IdleLanes<L> {
    /// Keeps a lane; returns those that have to go for it.
    #[must_use]
    pub fn put(&mut self, path: PathSpec, lane: L, now: Duration) -> Vec<L> {
        let mut gone = self.expire(now);
        self.lanes.push(Idle { path, since: now, lane });
        while self.lanes.len() > IDLE_LANES_MAX {
            gone.push(self.lanes.remove(0).lane);
        }
        gone
    }

    /// The lane on this path that was in use last.
    pub fn take(&mut self, path: &PathSpec) -> Option<L> {
        let at = self.lanes.iter().rposition(|idle| idle.path == *path)?;
        Some(self.lanes.remove(at).lane)
    }

    /// Those that have waited too long.
    #[must_use]
    pub fn expire(&mut self, now: Duration) -> Vec<L> {
        let old = |idle: &Idle<L>| now >= idle.since + IDLE_LANE_TIMEOUT;
        let (gone, stay) = std::mem::take(&mut self.lanes).into_iter().partition(old);
        self.lanes = stay;
        gone.into_iter().map(|idle: Idle<L>| idle.lane).collect()
    }

    /// When the next one has waited too long.
    pub fn next_expiry(&self) -> Option<Duration> {
        self.lanes.first().map(|idle| idle.since + IDLE_LANE_TIMEOUT)
    }

    /// How many there are on a path.
    pub fn number(&self, path: &PathSpec) -> usize {
        self.lanes.iter().filter(|idle| idle.path == *path).count()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lanes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_time_are_bounded_and_the_warmest_goes_first() {
        let path = |name: &str| PathSpec { local: None, remote: format!("{name}:1") };
        let second = |n: u64| Duration::from_secs(n);
        let mut pool = IdleLanes::default();
        for n in 0..IDLE_LANES_MAX {
            assert!(pool.put(path("x"), n, second(n as u64)).is_empty());
        }
        assert_eq!(pool.put(path("y"), 100, second(50)), [0], "the oldest goes");
        assert_eq!(pool.count(), IDLE_LANES_MAX);
        assert_eq!(pool.take(&path("x")), Some(IDLE_LANES_MAX - 1));
        assert_eq!(pool.take(&path("y")), Some(100));
        assert_eq!(pool.take(&path("y")), None);
        assert_eq!(pool.next_expiry(), Some(second(1) + IDLE_LANE_TIMEOUT));
        assert!(pool.expire(IDLE_LANE_TIMEOUT).is_empty());
        assert_eq!(pool.expire(second(2) + IDLE_LANE_TIMEOUT), [1, 2]);
        assert_eq!(pool.expire(10 * IDLE_LANE_TIMEOUT).len(), IDLE_LANES_MAX - 4);
        assert_eq!((pool.count(), pool.next_expiry()), (0, None));
    }
}
