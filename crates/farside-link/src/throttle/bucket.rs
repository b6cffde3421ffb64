//! One limit, and the line of those who wait at it.
//!
//! A bucket is two counters of bytes. *Served* grows with time, by the rate. *Booked* grows with every booking, and whoever
//! books owns the bytes up to where it stood then: they may go when *served* has come that far. So places in the line are
//! counted in bytes, not in moments, and a rate that changes moves the whole line without renumbering it.
//!
//! ```text
//!            served ─►  (grows by the rate; at most `depth` above booked)
//! ───────────────┼────────────────────────────
//!   may go │ A's │ B's booking │ C's booking │ ◄─ booked
//! ```

use std::time::Duration;

use parking_lot::Mutex;

use super::rate::Rate;
use crate::limits::{
    THROTTLE_CATCH_UP, THROTTLE_DEBT_MAX, THROTTLE_DEPTH, THROTTLE_QUANTUM, THROTTLE_QUANTUM_MAX,
    THROTTLE_QUANTUM_MIN,
};

/// Counters are in byte-nanoseconds, so that a rate times a time is exact. 2^128 of them are a year at 10^13 GB/s.
const SCALE: u128 = 1_000_000_000;

/// One limit, shared by all who are under it.
///
/// Over any time `t` it lets through at most `rate x t` and [`THROTTLE_DEPTH`] worth more (after its users were kept from
/// asking: [`THROTTLE_CATCH_UP`] worth), and to those who keep asking not less than `rate x t` less one
/// [quantum](THROTTLE_QUANTUM): within 2 % over ten seconds for every rate a [`Rate`] can be. Those who wait take turns, a quantum each, so that
/// they get like shares however much each asks for. A changed rate counts from its moment on: what was saved up under
/// the old one is cut to what the new one allows, and what was booked under the old one is booked anew.
#[derive(Debug)]
pub struct Bucket {
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    rate: Rate,
    /// Changes with the rate: bookings of an earlier one are void.
    generation: u64,
    /// The latest moment handed in.
    at: Duration,
    served: u128,
    booked: u128,
    /// Of what is booked: what has not been used yet. While there is some, somebody waits, here or at another limit.
    unused: u128,
}

/// A place in the line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Booking {
    /// Goes when `served` is here.
    end: u128,
    pub(super) bytes: u64,
}

impl Bucket {
    /// A limit of this rate; full.
    pub fn new(rate: Rate) -> Bucket {
        let (generation, at) = (0, Duration::ZERO);
        Bucket { state: Mutex::new(State { rate, generation, at, served: 0, booked: 0, unused: 0 }) }
    }

    /// The rate as it is now.
    pub fn rate(&self) -> Rate {
        self.state.lock().rate
    }

    /// From `now` on another rate. Neither a burst nor a pause comes of it, for streams that are under way.
    pub fn set_rate(&self, now: Duration, rate: Rate) {
        let mut state = self.state.lock();
        if state.rate == rate {
            return;
        }
        state.advance(now);
        state.booked -= std::mem::take(&mut state.unused);
        state.generation += 1;
        state.rate = rate;
        state.served = state.served.min(state.booked + state.worth(THROTTLE_DEPTH));
    }

    pub(super) fn lock(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The bytes of one quota at this rate; none where there is no limit.
    pub(super) fn quantum(&self) -> Option<u64> {
        let quantum = self.bytes_in(THROTTLE_QUANTUM)?;
        Some(quantum.clamp(THROTTLE_QUANTUM_MIN, THROTTLE_QUANTUM_MAX))
    }

    fn bytes_in(&self, time: Duration) -> Option<u64> {
        let bytes = u128::from(self.rate.bytes_per_second()?) * time.as_nanos() / SCALE;
        Some(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// What a time is worth at this rate, but never less than one quota.
    fn worth(&self, time: Duration) -> u128 {
        let quantum = self.quantum().unwrap_or(0);
        u128::from(self.bytes_in(time).unwrap_or(0).max(quantum)) * SCALE
    }

    pub(super) fn advance(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let Some(rate) = self.rate.bytes_per_second() else {
            self.served = self.booked;
            return;
        };
        let depth = self.depth();
        let grown = self.served.saturating_add(u128::from(rate).saturating_mul(passed.as_nanos()));
        self.served = self.served.max(grown.min(self.booked + depth));
    }

    /// How far `served` may be ahead. Who waits may be late to collect, and loses nothing by it within reason; who does not
    /// ask saves up little.
    fn depth(&self) -> u128 {
        self.worth(if self.unused > 0 { THROTTLE_CATCH_UP } else { THROTTLE_DEPTH })
    }

    /// A place at the end of the line, for these bytes. What of them is not used is to be given back.
    pub(super) fn book(&mut self, bytes: u64) -> Booking {
        self.booked += u128::from(bytes) * SCALE;
        self.unused += u128::from(bytes) * SCALE;
        Booking { end: self.booked, bytes }
    }

    /// How long until a booking's bytes may be used; zero: now.
    pub(super) fn wait_for(&self, booking: Booking) -> Duration {
        let Some(rate) = self.rate.bytes_per_second() else { return Duration::ZERO };
        let nanos = booking.end.saturating_sub(self.served).div_ceil(u128::from(rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Bytes of a booking are moved.
    pub(super) fn used(&mut self, bytes: u64) {
        self.unused = self.unused.saturating_sub(u128::from(bytes) * SCALE);
    }

    /// Bytes that had been used have not moved after all; they may be used later.
    pub(super) fn not_used(&mut self, bytes: u64) {
        self.unused += u128::from(bytes) * SCALE;
    }

    /// Takes back what was booked and will not be used.
    pub(super) fn cancel(&mut self, bytes: u64) {
        let amount = (u128::from(bytes) * SCALE).min(self.unused);
        self.unused -= amount;
        self.booked -= amount;
        self.served = self.served.min(self.booked + self.depth());
    }

    /// Counts what went without having been asked for; those who ask make up for it.
    pub(super) fn charge(&mut self, bytes: u64) {
        if self.rate != Rate::Unlimited {
            let most = self.served + self.unused + self.worth(THROTTLE_DEBT_MAX);
            self.booked = (self.booked + u128::from(bytes) * SCALE).min(most.max(self.booked));
        }
    }
}
