//! How much of a flow may wait here. A flow begins with a window of up to a MiB, which grows while it is what limits: where the
//! whole window was used within two round trips. A flow that rests gives back all but the least. All windows together have a budget, so that ten thousand readers that do not
//! read hold no more than that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The window that every flow has, whatever the budget.
pub(super) const WINDOW_MIN: u64 = 32 << 10;
/// The window that a flow begins with while there is budget enough: 300 ms of 27 Mb/s.
const WINDOW_FIRST: u64 = 1 << 20;
/// The largest: 1 Gb/s at 134 ms, on the side of the hosts.
const WINDOW_MAX: u64 = 16 << 20;
/// A window that was used up within so long grows, where the round trip is not known or shorter.
const USED_WITHIN: Duration = Duration::from_millis(100);

/// The budget of all windows of a box.
#[derive(Debug)]
pub struct Windows {
    budget: u64,
    granted: AtomicU64,
}

impl Windows {
    /// So many bytes for all flows together, besides 32 KiB for each.
    pub fn new(budget: u64) -> Arc<Windows> {
        Arc::new(Windows { budget, granted: AtomicU64::new(0) })
    }

    /// Takes `bytes` of the budget, if they are there.
    fn take(&self, bytes: u64) -> bool {
        let taken = self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |granted| {
            granted.checked_add(bytes).filter(|granted| *granted <= self.budget)
        });
        taken.is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.granted.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// What is in use of it.
    pub fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }
}

/// One flow's.
#[derive(Debug)]
pub(crate) struct Window {
    of: Arc<Windows>,
    size: u64,
    initial: u32,
    /// Taken out and not yet given as credit.
    owed: u64,
    used: u64,
    since: Instant,
}

impl Window {
    pub(crate) fn new(of: Arc<Windows>) -> Window {
        let free = of.budget.saturating_sub(of.granted());
        let first = (free / 16).clamp(WINDOW_MIN, WINDOW_FIRST);
        let size = if of.take(first - WINDOW_MIN) { first } else { WINDOW_MIN };
        let initial = u32::try_from(size).unwrap_or(u32::MAX);
        Window { of, size, initial, owed: 0, used: 0, since: Instant::now() }
    }

    pub(crate) fn initial(&self) -> u32 {
        self.initial
    }

    /// What takes so much of the window was taken out. What credit is to be given for it, if enough has come together.
    pub(crate) fn consumed(&mut self, bytes: u64, rtt: Option<f64>) -> Option<u64> {
        self.owed += bytes;
        self.used += bytes;
        let within = USED_WITHIN.max(Duration::from_secs_f64(2.0 * rtt.unwrap_or(0.0).clamp(0.0, 10.0)));
        if self.since.elapsed() > within {
            (self.used, self.since) = (bytes, Instant::now());
        } else if self.used >= self.size && self.size < WINDOW_MAX {
            // One that has rested is soon where it began.
            let more = if self.size < WINDOW_FIRST { 3 * self.size } else { self.size };
            let more = more.min(WINDOW_MAX - self.size);
            (self.used, self.since) = (0, Instant::now());
            // The budget is for those that come, too: an eighth of what is free at most.
            let is_free = self.of.budget.saturating_sub(self.of.granted()) / 8 >= more;
            if is_free && self.of.take(more) {
                self.size += more;
                self.owed += more;
            }
        }
        // A quarter of the window: few frames, and the sender never runs dry.
        (self.owed >= self.size / 4).then(|| std::mem::take(&mut self.owed))
    }
}

impl Window {
    /// The flow says nothing, and so many bytes of its window will not come: they are for others.
    pub(crate) fn rests(&mut self, returned: u64) {
        let returned = returned.min(self.size - WINDOW_MIN);
        self.size -= returned;
        self.of.give_back(returned);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.of.give_back(self.size - WINDOW_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_window_grows_while_it_is_what_limits() {
        let windows = Windows::new(256 << 20);
        let mut window = Window::new(Arc::clone(&windows));
        assert_eq!(u64::from(window.initial()), WINDOW_FIRST);
        let (mut credit, mut consumed) = (0, 0);
        for _ in 0..4000 {
            consumed += 16_384;
            credit += window.consumed(16_384, Some(0.3)).unwrap_or(0);
        }
        assert_eq!(window.size, WINDOW_MAX);
        // What the far side may have on its way is never more than the window.
        assert!(WINDOW_FIRST + credit - consumed <= WINDOW_MAX, "{credit} {consumed}");
        drop(window);
        assert_eq!(windows.granted(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_keeps_its_window() {
        let mut window = Window::new(Windows::new(256 << 20));
        for _ in 0..1000 {
            window.consumed(100_000, Some(0.05));
            tokio::time::advance(Duration::from_millis(200)).await;
        }
        assert_eq!(window.size, WINDOW_FIRST);
    }

    #[tokio::test(start_paused = true)]
    async fn what_rests_gives_back_and_begins_again() {
        let windows = Windows::new(64 << 20);
        let mut flows: Vec<Window> = (0..1000).map(|_| Window::new(Arc::clone(&windows))).collect();
        assert!(windows.granted() > 60 << 20, "{}", windows.granted());
        for flow in &mut flows {
            flow.rests(u64::MAX);
            assert_eq!(flow.size, WINDOW_MIN);
        }
        assert_eq!(windows.granted(), 0);
        let mut windows_seen = vec![flows[0].size];
        for _ in 0..10_000 {
            flows[0].consumed(16_384, Some(0.1));
            if flows[0].size != windows_seen[windows_seen.len() - 1] {
                windows_seen.push(flows[0].size);
            }
        }
        assert_eq!(windows_seen[..4], [32 << 10, 128 << 10, 512 << 10, 2 << 20]);
    }

    #[test]
    fn ten_thousand_flows_keep_within_the_budget() {
        let windows = Windows::new(64 << 20);
        let flows: Vec<Window> = (0..10_000).map(|_| Window::new(Arc::clone(&windows))).collect();
        let sum: u64 = flows.iter().map(|window| window.size).sum();
        assert!(sum <= (64 << 20) + 10_000 * WINDOW_MIN, "{sum}");
        assert!(flows.iter().all(|window| window.size >= WINDOW_MIN));
    }
}
