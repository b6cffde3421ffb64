//! What hosts do at this site, and how long transfers rest for it.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::share::{HeldBack, Precedence, Share, WINDOW, Window};

/// The longest rest before one piece: none is stopped for good, and a person who looks sees it go on.
const REST_MAX: Duration = Duration::from_millis(200);
/// A host that has said nothing for so long is none: a database between two transactions still is one.
const SILENT: Duration = Duration::from_secs(1);

/// What hosts do at this site, and what transfers make of it.
#[derive(Debug)]
pub struct Hosts {
    began: Instant,
    precedence: AtomicU8,
    /// Operations of hosts since the daemon began, and how long they took together, ns.
    operations: AtomicU64,
    taken: AtomicU64,
    /// How long transfers have worked, ns.
    worked: AtomicU64,
    /// Until when they rest, ns since `began`.
    rest_until: AtomicU64,
    /// When the window ends that is under way, ns since `began`.
    window_ends: AtomicU64,
    /// When hosts were last seen, ns since `began`, 0 for never.
    seen: AtomicU64,
    control: Mutex<Control>,
}

#[derive(Debug, Default)]
struct Control {
    share: Share,
    /// What the counters were when the last window ended.
    at: u64,
    operations: u64,
    taken: u64,
    worked: u64,
}

impl Default for Hosts {
    fn default() -> Hosts {
        Hosts::new(Precedence::default())
    }
}

impl Hosts {
    /// None has been seen.
    pub fn new(precedence: Precedence) -> Hosts {
        Hosts {
            began: Instant::now(),
            precedence: AtomicU8::new(precedence as u8),
            operations: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            worked: AtomicU64::new(0),
            rest_until: AtomicU64::new(0),
            window_ends: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            control: Mutex::default(),
        }
    }

    /// How far they go before transfers, from now on.
    pub fn set_precedence(&self, precedence: Precedence) {
        self.precedence.store(precedence as u8, Ordering::Relaxed);
    }

    /// How far they go before transfers.
    pub fn precedence(&self) -> Precedence {
        Precedence::from_number(self.precedence.load(Ordering::Relaxed))
    }

    /// `operations` of hosts were answered, after `took` each.
    pub fn served(&self, operations: u64, took: Duration) {
        self.operations.fetch_add(operations, Ordering::Relaxed);
        self.taken.fetch_add(operations * nanoseconds(took), Ordering::Relaxed);
    }

    /// Whether transfers are held back now, and why.
    pub fn held_back(&self) -> Option<HeldBack> {
        self.decide(self.now());
        self.control().share.held_back(self.precedence())
    }

    /// Whether hosts do something, or did a moment ago, and go before transfers.
    pub(crate) fn come_first(&self) -> bool {
        let now = self.now();
        self.decide(now);
        let seen = self.seen.load(Ordering::Relaxed);
        self.precedence() != Precedence::Off && seen > 0 && now < seen + nanoseconds(SILENT)
    }

    /// Does a piece of a transfer's work, after as long a rest as is due. It blocks.
    pub(crate) fn piece<T>(&self, work: impl FnOnce() -> T) -> T {
        self.rest();
        let began = self.now();
        let done = work();
        self.worked(Duration::from_nanos(self.now() - began));
        done
    }

    /// Rests as long as is due before more work is done behind hosts. It blocks.
    pub fn rest(&self) {
        let rest = Duration::from_nanos(self.rest_until.load(Ordering::Relaxed).saturating_sub(self.now()));
        if !rest.is_zero() {
            std::thread::sleep(rest.min(REST_MAX));
        }
    }

    /// So long was worked behind hosts just now: a rest may be due after it.
    pub fn worked(&self, took: Duration) {
        let ended = self.now();
        self.worked.fetch_add(nanoseconds(took), Ordering::Relaxed);
        self.decide(ended);
        let rest = self.control().share.rest_after(took, self.precedence());
        if !rest.is_zero() {
            let latest = ended + nanoseconds(REST_MAX);
            let add = |until: u64| Some((until.max(ended) + nanoseconds(rest)).min(latest));
            let _ = self.rest_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.began.elapsed())
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the window that is under way, if it is long enough.
    fn decide(&self, now: u64) {
        if now < self.window_ends.load(Ordering::Relaxed) {
            return;
        }
        let mut control = self.control();
        self.window_ends.store(now + nanoseconds(WINDOW), Ordering::Relaxed);
        let counters = [&self.operations, &self.taken, &self.worked].map(|c| c.load(Ordering::Relaxed));
        let [operations, taken, worked] = counters;
        let window = Window {
            length: Duration::from_nanos(now.saturating_sub(control.at)),
            operations: operations - control.operations,
            taken: Duration::from_nanos(taken - control.taken),
            worked: Duration::from_nanos(worked - control.worked),
        };
        if window.length < WINDOW / 2 {
            return;
        }
        if window.has_hosts() {
            self.seen.store(now.max(1), Ordering::Relaxed);
        }
        *control = Control {
            share: control.share.after(&window, self.precedence()),
            at: now,
            operations,
            taken,
            worked,
        };
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encoders run with idle time alone only then: beside a compiler, and without hosts, updates were ten times as large.
    #[test]
    fn hosts_come_first_while_they_do_something() {
        let hosts = Hosts::new(Precedence::High);
        std::thread::sleep(2 * WINDOW);
        assert!(!hosts.come_first(), "none was seen");
        hosts.served(100, Duration::from_micros(50));
        std::thread::sleep(2 * WINDOW);
        assert!(hosts.come_first());
        std::thread::sleep(2 * WINDOW);
        assert!(hosts.come_first(), "a moment ago");
        hosts.set_precedence(Precedence::Off);
        assert!(!hosts.come_first());
        hosts.set_precedence(Precedence::Fair);
        std::thread::sleep(SILENT + 2 * WINDOW);
        assert!(!hosts.come_first(), "they have gone");
    }
}
