//! Whether the chunk store keeps up: its disk may not answer for a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A store is slow while some work on it has taken longer. A block of a MiB takes half a second with the greatest effort.
const SLOW_AFTER: Duration = Duration::from_millis(1500);

/// What is being done on the store.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    running: Mutex<BTreeMap<u64, Instant>>,
    next: AtomicU64,
}

/// Some of it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    number: u64,
    of: Arc<Pace>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.of.running.lock().remove(&self.number);
    }
}

impl Pace {
    /// Some work begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.running.lock().insert(number, Instant::now());
        Running { number, of: Arc::clone(self) }
    }

    fn oldest(&self) -> Option<Instant> {
        self.running.lock().first_key_value().map(|(_, began)| *began)
    }

    /// Whether it is slow now.
    pub(crate) fn is_slow(&self) -> bool {
        self.oldest().is_some_and(|began| began.elapsed() > SLOW_AFTER)
    }

    /// Until it is slow.
    pub(crate) async fn slow(&self) {
        while !self.is_slow() {
            let soonest = self.oldest().unwrap_or_else(Instant::now) + SLOW_AFTER;
            tokio::time::sleep_until(soonest + Duration::from_millis(1)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_store_is_slow_while_something_takes_long() {
        let pace = Arc::new(Pace::default());
        for _ in 0..10 {
            let running = pace.begin();
            tokio::time::advance(SLOW_AFTER / 2).await;
            drop(running);
        }
        assert!(!pace.is_slow());
        let stuck = pace.begin();
        let began = Instant::now();
        pace.slow().await;
        assert!(pace.is_slow() && began.elapsed() <= SLOW_AFTER + Duration::from_millis(2));
        let _other = pace.begin();
        drop(stuck);
        assert!(!pace.is_slow());
    }
}
