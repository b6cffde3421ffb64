//! How fast work in the background reads: within its rate, and behind hosts.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farside_transfer::precedence::Hosts;

/// What it may be late by, and catch up with: more would be a burst.
const BEHIND_MAX: Duration = Duration::from_millis(100);
/// The longest sleep before it looks whether it is to end, or may go faster.
const SLEEP_MAX: Duration = Duration::from_millis(50);

pub(crate) struct Pace<'a> {
    hosts: &'a Hosts,
    /// Bytes per second; 0: no limit.
    limit: &'a AtomicU64,
    stop: &'a AtomicBool,
    /// Since when it works.
    began: Instant,
    /// When the next read may begin.
    due: Instant,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(hosts: &'a Hosts, limit: &'a AtomicU64, stop: &'a AtomicBool) -> Pace<'a> {
        let now = Instant::now();
        Pace { hosts, limit, stop, began: now, due: now }
    }

    /// So many bytes were read: waits until more may be.
    pub(crate) fn after(&mut self, bytes: u64) {
        let now = Instant::now();
        self.hosts.worked(now - self.began);
        self.due = due_after(self.due, now, bytes, self.limit.load(Ordering::Relaxed));
        while !self.stop.load(Ordering::Relaxed) {
            let left = self.due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(SLEEP_MAX));
            // A rate that was raised counts at once.
            if self.limit.load(Ordering::Relaxed) == 0 {
                break;
            }
        }
        if !self.stop.load(Ordering::Relaxed) {
            self.hosts.rest();
        }
        self.began = Instant::now();
    }
}

/// When the next read may begin after one of so many bytes.
fn due_after(due: Instant, now: Instant, bytes: u64, limit: u64) -> Instant {
    if limit == 0 {
        return now;
    }
    let earliest = now.checked_sub(BEHIND_MAX).unwrap_or(now);
    // An hour at most: a rate of a byte a second must not be waited for for ever once it is raised.
    let takes = (bytes as f64 / limit as f64).min(3600.0);
    due.max(earliest) + Duration::from_secs_f64(takes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_its_rate_and_catches_up_with_little() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        // 1 MiB at 1 MiB/s is due after a second, whatever the read took.
        assert_eq!(due_after(start, at(10), 1 << 20, 1 << 20), at(1000));
        assert_eq!(due_after(at(1000), at(1010), 1 << 20, 1 << 20), at(2000));
        // After a pause of ten seconds it makes up for a tenth of one.
        assert_eq!(due_after(at(1000), at(11_000), 1 << 20, 1 << 20), at(11_900));
        assert_eq!(due_after(at(1000), at(2000), 1 << 20, 0), at(2000));
    }
}
