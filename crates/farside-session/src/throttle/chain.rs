//! What one stream asks: the chain of limits that it is under.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::bucket::{Booking, Bucket, State};
use crate::limits::{THROTTLE_LOOK_AGAIN, THROTTLE_UNUSED_AFTER};

/// The answer to a stream that wants to move bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Granted {
    /// May go now; at most what was wanted.
    pub bytes: u64,
    /// If nothing may go: ask again after this time. It is short, since limits are changed while somebody waits.
    pub retry_after: Duration,
}

/// The limits of one stream. Clones are the same stream and share its place in the lines: give each stream its own, by
/// [`Limits::chain`] or [`Limits::and`], and its lanes clones of it. When the last clone goes, what was booked for it and
/// not used is the others'.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// None: nothing limits it, and asking costs nothing.
    chain: Option<Arc<Chain>>,
}

#[derive(Debug)]
struct Chain {
    gates: Vec<Arc<Bucket>>,
    turn: Mutex<Turn>,
}

#[derive(Debug)]
struct Turn {
    /// One for each gate.
    purses: Vec<Purse>,
    /// When this stream asked last.
    asked: Duration,
}

/// What a stream has at one gate. Each gate has its own size of a turn, and turns there are equal whatever the stream's
/// other gates are; what a turn brings is used up piece by piece.
#[derive(Debug, Default)]
struct Purse {
    generation: u64,
    collected: u64,
    booking: Option<Booking>,
}

impl Limits {
    /// None.
    pub fn unlimited() -> Limits {
        Limits::default()
    }

    /// For a new stream, under all of these.
    pub fn chain(gates: impl IntoIterator<Item = Arc<Bucket>>) -> Limits {
        let gates: Vec<_> = gates.into_iter().collect();
        if gates.is_empty() {
            return Limits::unlimited();
        }
        let purses = gates.iter().map(|_| Purse::default()).collect();
        let turn = Mutex::new(Turn { purses, asked: Duration::ZERO });
        Limits { chain: Some(Arc::new(Chain { gates, turn })) }
    }

    /// For a new stream, under all of these limits and `more`.
    pub fn and(&self, more: impl IntoIterator<Item = Arc<Bucket>>) -> Limits {
        let gates = self.chain.iter().flat_map(|chain| chain.gates.iter().map(Arc::clone));
        Limits::chain(gates.chain(more))
    }

    /// Asks to move `want` bytes at `now` (by [`clock`](super::clock)). What is granted counts as moved; what then does
    /// not go is to be [given back](Limits::give_back). A grant is smaller than `want` where that would be more than a
    /// turn: at low rates a few packets, so make the segment as small as the grant.
    pub fn take(&self, now: Duration, want: u64) -> Granted {
        let Some(chain) = &self.chain else { return Granted { bytes: want, retry_after: Duration::ZERO } };
        let mut turn = chain.turn.lock();
        if now.saturating_sub(turn.asked) > THROTTLE_UNUSED_AFTER {
            chain.return_unused(&mut turn);
        }
        turn.asked = now;
        let smallest = chain.gates.iter().filter_map(|gate| gate.lock().quantum()).min();
        let bytes = want.min(smallest.unwrap_or(u64::MAX));
        let wait = |(gate, purse): (&Arc<Bucket>, &mut Purse)| purse.fill(&mut gate.lock(), now, bytes);
        let longest = chain.gates.iter().zip(&mut turn.purses).map(wait).max().unwrap_or_default();
        if !longest.is_zero() {
            return Granted { bytes: 0, retry_after: longest.min(THROTTLE_LOOK_AGAIN) };
        }
        for (gate, purse) in chain.gates.iter().zip(&mut turn.purses) {
            purse.spend(&mut gate.lock(), bytes);
        }
        Granted { bytes, retry_after: Duration::ZERO }
    }

    /// The lowest rate of the chain as it is now, bytes per second; `None`: nothing limits.
    pub fn rate(&self) -> Option<u64> {
        let gates = self.chain.iter().flat_map(|chain| &chain.gates);
        gates.filter_map(|gate| gate.rate().bytes_per_second()).min()
    }

    /// Returns what was granted and has not gone.
    pub fn give_back(&self, bytes: u64) {
        let Some(chain) = &self.chain else { return };
        let mut turn = chain.turn.lock();
        for (gate, purse) in chain.gates.iter().zip(&mut turn.purses) {
            purse.refund(&mut gate.lock(), bytes);
        }
    }

    /// Counts bytes that went without being asked for (what could not be known or could not wait), at all limits.
    pub fn charge(&self, now: Duration, bytes: u64) {
        let Some(chain) = &self.chain else { return };
        for gate in &chain.gates {
            let mut state = gate.lock();
            state.advance(now);
            state.charge(bytes);
        }
    }
}

impl Purse {
    /// Sees to it that there are `bytes` for this gate; how long to wait until there are.
    fn fill(&mut self, gate: &mut State, now: Duration, bytes: u64) -> Duration {
        gate.advance(now);
        let Some(quantum) = gate.quantum() else {
            // The gate stands open; what was booked before it was opened is void.
            *self = Purse { generation: gate.generation(), ..Purse::default() };
            return Duration::ZERO;
        };
        if self.generation != gate.generation() {
            *self = Purse { generation: gate.generation(), ..Purse::default() };
        }
        while self.collected < bytes {
            let booking = *self.booking.get_or_insert_with(|| gate.book(quantum));
            let wait = gate.wait_for(booking);
            if !wait.is_zero() {
                return wait;
            }
            self.booking = None;
            self.collected += booking.bytes;
        }
        Duration::ZERO
    }

    fn spend(&mut self, gate: &mut State, bytes: u64) {
        // A limit that was changed just now has forgotten what it gave: nothing to settle.
        if self.generation == gate.generation() && gate.quantum().is_some() {
            self.collected = self.collected.saturating_sub(bytes);
            gate.used(bytes);
        }
    }

    fn refund(&mut self, gate: &mut State, bytes: u64) {
        if self.generation == gate.generation() && gate.quantum().is_some() {
            self.collected = self.collected.saturating_add(bytes);
            gate.not_used(bytes);
        }
    }

    /// Leaves what it has to the others.
    fn empty(&mut self, gate: &mut State) {
        let booked = self.booking.take().map_or(0, |booking| booking.bytes);
        let held = booked.saturating_add(std::mem::take(&mut self.collected));
        if self.generation == gate.generation() {
            gate.cancel(held);
        }
    }
}

impl Chain {
    fn return_unused(&self, turn: &mut Turn) {
        for (gate, purse) in self.gates.iter().zip(&mut turn.purses) {
            purse.empty(&mut gate.lock());
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let mut turn = self.turn.lock();
        for (gate, purse) in self.gates.iter().zip(&mut turn.purses) {
            purse.empty(&mut gate.lock());
        }
    }
}
