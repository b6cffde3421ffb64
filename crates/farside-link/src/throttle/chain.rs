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
    buckets: Vec<Arc<Bucket>>,
    quota: Mutex<Quota>,
}

#[derive(Debug)]
struct Quota {
    /// One for each bucket.
    allowances: Vec<Allowance>,
    /// When this stream asked last.
    asked: Duration,
}

/// What a stream has at one bucket. Each bucket has its own size of a quota, and quotas there are equal whatever the stream's
/// other buckets are; what a quota brings is used up piece by piece.
#[derive(Debug, Default)]
struct Allowance {
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
    pub fn chain(buckets: impl IntoIterator<Item = Arc<Bucket>>) -> Limits {
        let buckets: Vec<_> = buckets.into_iter().collect();
        if buckets.is_empty() {
            return Limits::unlimited();
        }
        let allowances = buckets.iter().map(|_| Allowance::default()).collect();
        let quota = Mutex::new(Quota { allowances, asked: Duration::ZERO });
        Limits { chain: Some(Arc::new(Chain { buckets, quota })) }
    }

    /// For a new stream, under all of these limits and `more`.
    pub fn and(&self, more: impl IntoIterator<Item = Arc<Bucket>>) -> Limits {
        let buckets = self.chain.iter().flat_map(|chain| chain.buckets.iter().map(Arc::clone));
        Limits::chain(buckets.chain(more))
    }

    /// Asks to move `want` bytes at `now` (by [`clock()`](super::clock::clock())). What is granted counts as moved; what then does
    /// not go is to be [given back](Limits::give_back). A grant is smaller than `want` where that would be more than a
    /// quota: at low rates a few packets, so make the segment as small as the grant.
    pub fn take(&self, now: Duration, want: u64) -> Granted {
        let Some(chain) = &self.chain else { return Granted { bytes: want, retry_after: Duration::ZERO } };
        let mut quota = chain.quota.lock();
        if now.saturating_sub(quota.asked) > THROTTLE_UNUSED_AFTER {
            chain.return_unused(&mut quota);
        }
        quota.asked = now;
        let smallest = chain.buckets.iter().filter_map(|bucket| bucket.lock().quantum()).min();
        let bytes = want.min(smallest.unwrap_or(u64::MAX));
        let wait = |(bucket, allowance): (&Arc<Bucket>, &mut Allowance)| {
            allowance.fill(&mut bucket.lock(), now, bytes)
        };
        let longest = chain.buckets.iter().zip(&mut quota.allowances).map(wait).max().unwrap_or_default();
        if !longest.is_zero() {
            return Granted { bytes: 0, retry_after: longest.min(THROTTLE_LOOK_AGAIN) };
        }
        for (bucket, allowance) in chain.buckets.iter().zip(&mut quota.allowances) {
            allowance.spend(&mut bucket.lock(), bytes);
        }
        Granted { bytes, retry_after: Duration::ZERO }
    }

    /// The lowest rate of the chain as it is now, bytes per second; `None`: nothing limits.
    pub fn rate(&self) -> Option<u64> {
        let buckets = self.chain.iter().flat_map(|chain| &chain.buckets);
        buckets.filter_map(|bucket| bucket.rate().bytes_per_second()).min()
    }

    /// Returns what was granted and has not gone.
    pub fn give_back(&self, bytes: u64) {
        let Some(chain) = &self.chain else { return };
        let mut quota = chain.quota.lock();
        for (bucket, allowance) in chain.buckets.iter().zip(&mut quota.allowances) {
            allowance.refund(&mut bucket.lock(), bytes);
        }
    }

    /// Counts bytes that went without being asked for (what could not be known or could not wait), at all limits.
    pub fn charge(&self, now: Duration, bytes: u64) {
        let Some(chain) = &self.chain else { return };
        for bucket in &chain.buckets {
            let mut state = bucket.lock();
            state.advance(now);
            state.charge(bytes);
        }
    }
}

impl Allowance {
    /// Sees to it that there are `bytes` for this bucket; how long to wait until there are.
    fn fill(&mut self, bucket: &mut State, now: Duration, bytes: u64) -> Duration {
        bucket.advance(now);
        let Some(quantum) = bucket.quantum() else {
            // The bucket stands open; what was booked before it was opened is void.
            *self = Allowance { generation: bucket.generation(), ..Allowance::default() };
            return Duration::ZERO;
        };
        if self.generation != bucket.generation() {
            *self = Allowance { generation: bucket.generation(), ..Allowance::default() };
        }
        while self.collected < bytes {
            let booking = *self.booking.get_or_insert_with(|| bucket.book(quantum));
            let wait = bucket.wait_for(booking);
            if !wait.is_zero() {
                return wait;
            }
            self.booking = None;
            self.collected += booking.bytes;
        }
        Duration::ZERO
    }

    fn spend(&mut self, bucket: &mut State, bytes: u64) {
        // A limit that was changed just now has forgotten what it gave: nothing to settle.
        if self.generation == bucket.generation() && bucket.quantum().is_some() {
            self.collected = self.collected.saturating_sub(bytes);
            bucket.used(bytes);
        }
    }

    fn refund(&mut self, bucket: &mut State, bytes: u64) {
        if self.generation == bucket.generation() && bucket.quantum().is_some() {
            self.collected = self.collected.saturating_add(bytes);
            bucket.not_used(bytes);
        }
    }

    /// Leaves what it has to the others.
    fn empty(&mut self, bucket: &mut State) {
        let booked = self.booking.take().map_or(0, |booking| booking.bytes);
        let held = booked.saturating_add(std::mem::take(&mut self.collected));
        if self.generation == bucket.generation() {
            bucket.cancel(held);
        }
    }
}

impl Chain {
    fn return_unused(&self, quota: &mut Quota) {
        for (bucket, allowance) in self.buckets.iter().zip(&mut quota.allowances) {
            allowance.empty(&mut bucket.lock());
        }
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let mut quota = self.quota.lock();
        for (bucket, allowance) in self.buckets.iter().zip(&mut quota.allowances) {
            allowance.empty(&mut bucket.lock());
        }
    }
}
