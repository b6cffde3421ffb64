//! What one peer may cost this site as a source, and what becomes of its bases when that is too much. Pure: no I/O, no clock.
//!
//! A destination makes a source take snapshots, keep them, and read metadata. Honest ones do so at the pace of their
//! schedules; one that is broken or hostile must not fill the source's pool or keep its disks busy. So calls and snapshots
//! have a rate per peer, transfers and what is kept have a number, and what is kept for a peer is released when it becomes too
//! old or too large, or when the pool runs short: before writes of hosts would fail.

use std::collections::HashMap;
use std::time::Duration;

use farside_engine::Capacity;
use farside_peer::PeerId;
use farside_platform::Timestamp;
use uuid::Uuid;

use crate::limits::{PRESSED_PART_MIN, RELATIONSHIPS_PER_PEER_MAX, SERVED_PER_PEER_MAX};

/// The budgets of a site: the same for each peer. As provided, mirrors that update every second do not meet them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// Transfers that a peer may begin, and comparisons it may ask for, in a minute: each takes a snapshot or walks metadata.
    /// Beside these, as many role changes may be prepared, each of which takes a snapshot too.
    pub snapshots_per_minute: u32,
    /// Calls and data streams of a peer in a minute.
    pub calls_per_minute: u32,
    /// Transfers that are served for a peer at the same time.
    pub transfers: usize,
    /// Mirrors that a peer may have of volumes here.
    pub mirrors: usize,
    /// Snapshots that are kept for a peer.
    pub pins: usize,
    /// Bytes that are kept for a peer and that hosts have replaced; none: as much as the pool has above its reserve.
    pub pinned_bytes: Option<u64>,
    /// Age of what is kept for a mirror that does not update; none: any.
    pub pin_age: Option<Duration>,
    /// Part of a pool, in percent, that is held free for hosts by releasing what is kept for mirrors; 0: no such thing.
    pub reserve_percent: u8,
}

impl Default for Budgets {
    fn default() -> Self {
        Budgets {
            // 16 mirrors, each every second, and a quarter more.
            snapshots_per_minute: 1200,
            // An update makes four calls and opens a stream; a resumed one some more.
            calls_per_minute: 12_000,
            transfers: SERVED_PER_PEER_MAX,
            mirrors: RELATIONSHIPS_PER_PEER_MAX,
            // Twice what a single transfer of everything may pin, for each of four.
            pins: 16_384,
            pinned_bytes: None,
            pin_age: Some(Duration::from_secs(366 * 86_400)),
            // Staging stops at 1/32 of a pool for the sake of hosts; this begins before.
            reserve_percent: 5,
        }
    }
}

impl Budgets {
    /// Whether what is kept `since` then is over its age.
    pub(crate) fn is_old(&self, since: Timestamp, now: Timestamp) -> bool {
        self.pin_age.is_some_and(|age| since.plus(age) < now)
    }
}

/// Which budget a peer has gone over. Its names are those of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Budget {
    /// See [`Budgets::pinned_bytes`].
    PinnedBytes,
    /// See [`Budgets::pin_age`].
    PinAge,
    /// See [`Budgets::reserve_percent`].
    Reserve,
}

impl Budget {
    /// Why something is released, for people at both sites; at most `bytes` were kept.
    pub(crate) fn why(self, budgets: &Budgets, bytes: u64) -> String {
        let kept = format!(
            "up to {:.1} MiB that hosts have replaced were kept for it",
            bytes as f64 / f64::from(1 << 20)
        );
        match self {
            Budget::PinnedBytes => format!(
                "{kept}, and all that is kept for this peer was over its budget (budgets.pinned_bytes = {})",
                budgets.pinned_bytes.unwrap_or(u64::MAX)
            ),
            Budget::PinAge => format!(
                "it was older than the budget allows (budgets.pin_age_days = {}); {kept}",
                budgets.pin_age.unwrap_or_default().as_secs() / 86_400
            ),
            Budget::Reserve => format!(
                "the pool had less free than is held for hosts (budgets.reserve_percent = {}); {kept}",
                budgets.reserve_percent
            ),
        }
    }
}

/// So many a minute, and a minute's worth at once.
#[derive(Clone, Copy, Default, Debug)]
struct Rate {
    /// When everything taken so far would have been earned.
    earned_at: Duration,
}

const MINUTE: Duration = Duration::from_secs(60);

impl Rate {
    /// Takes one, or says how long to wait for it.
    fn take(&mut self, per_minute: u32, now: Duration) -> Result<(), Duration> {
        let each = MINUTE / per_minute.max(1);
        let earned_at = self.earned_at.max(now) + each;
        if earned_at > now + MINUTE {
            return Err(earned_at - now - MINUTE);
        }
        self.earned_at = earned_at;
        Ok(())
    }

    /// How many of a minute's worth are taken.
    fn taken(&self, per_minute: u32, now: Duration) -> u32 {
        let each = MINUTE / per_minute.max(1);
        let ahead = self.earned_at.saturating_sub(now);
        u32::try_from(ahead.as_nanos().div_ceil(each.as_nanos().max(1))).unwrap_or(u32::MAX)
    }
}

/// What a peer has asked for of late.
#[derive(Clone, Copy, Default, Debug)]
struct Asked {
    calls: Rate,
    snapshots: Rate,
    /// Role changes, which take a snapshot too. By themselves, so that the updates right before one do not refuse it.
    swaps: Rate,
}

/// By peer. Peers are those that are paired, which a person bounds; who has asked for nothing of late is forgotten
/// ([`Rates::forget_idle`]), removed or not.
#[derive(Default, Debug)]
pub(crate) struct Rates {
    of: HashMap<PeerId, Asked>,
}

impl Rates {
    /// One more call or stream of `peer` at `now` (monotonic). The error is for the peer.
    pub(crate) fn call(&mut self, budgets: &Budgets, peer: PeerId, now: Duration) -> Result<(), String> {
        let most = budgets.calls_per_minute;
        self.of.entry(peer).or_default().calls.take(most, now).map_err(|wait| {
            format!(
                "more than {most} calls a minute (budgets.calls_per_minute of the source); ask again in {:.1} s",
                wait.as_secs_f64()
            )
        })
    }

    /// One more transfer or comparison.
    pub(crate) fn snapshot(&mut self, budgets: &Budgets, peer: PeerId, now: Duration) -> Result<(), String> {
        let most = budgets.snapshots_per_minute;
        self.of.entry(peer).or_default().snapshots.take(most, now).map_err(|wait| {
            format!(
                "more than {most} snapshots a minute (budgets.snapshots_per_minute of the source); ask again in \
                 {:.1} s",
                wait.as_secs_f64()
            )
        })
    }

    /// One more role change that shall be prepared: as many as transfers and comparisons, beside them.
    pub(crate) fn swap(&mut self, budgets: &Budgets, peer: PeerId, now: Duration) -> Result<(), String> {
        let most = budgets.snapshots_per_minute;
        self.of.entry(peer).or_default().swaps.take(most, now).map_err(|wait| {
            format!(
                "more than {most} role changes a minute (budgets.snapshots_per_minute of the source). Nothing was \
                 changed: no role, and no volume was made read-only; ask again in {:.1} s",
                wait.as_secs_f64()
            )
        })
    }

    /// Forgets who has earned all that it took by `now`: it is as if it had never asked.
    pub(crate) fn forget_idle(&mut self, now: Duration) {
        let is_idle = |rate: &Rate| rate.earned_at <= now;
        self.of.retain(|_, of_it| ![of_it.calls, of_it.snapshots, of_it.swaps].iter().all(is_idle));
    }

    /// Snapshots of the last minute's worth.
    pub(crate) fn snapshots_of(&self, budgets: &Budgets, peer: PeerId, now: Duration) -> u32 {
        self.of.get(&peer).map_or(0, |asked| asked.snapshots.taken(budgets.snapshots_per_minute, now))
    }
}

/// What is kept for one relationship.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    pub(crate) relationship: Uuid,
    pub(crate) peer: PeerId,
    /// Since when.
    pub(crate) since: Timestamp,
    /// Bytes that hosts have replaced, at most: of each snapshot by itself, added. What several share counts for each. It is
    /// what counts against a budget, which must not be passed.
    pub(crate) bytes: u64,
    /// Bytes that hosts have replaced, at least: of the snapshot that keeps most. It is what releasing is expected to give
    /// back: what is waited for in vain, hosts lack.
    pub(crate) frees: u64,
    /// It is what a way back stands on: the destination went on without this site, *and* may ask for this volume to become its
    /// replica. That it went on is only its own claim, and must not be enough to be out of the budgets.
    pub(crate) way_back: bool,
}

/// What is over the budgets of its peer, each with the budget; those in `old` are over their age. What costs nothing may be of any
/// age, and what a way back stands on is a person's to release.
pub(crate) fn over(budgets: &Budgets, kept: &[Kept], old: &[Uuid]) -> Vec<(Kept, Budget)> {
    let is_old = |k: &Kept| old.contains(&k.relationship) && k.bytes > 0;
    let kept = || kept.iter().filter(|k| !k.way_back);
    let mut over: Vec<_> = kept().filter(|k| is_old(k)).map(|k| (*k, Budget::PinAge)).collect();
    let Some(most) = budgets.pinned_bytes else { return over };
    let mut of_peer: HashMap<PeerId, Vec<Kept>> = HashMap::new();
    for k in kept().filter(|k| !is_old(k)) {
        of_peer.entry(k.peer).or_default().push(*k);
    }
    for mut all in of_peer.into_values() {
        // The fewest mirrors lose their base if the largest goes first.
        all.sort_by_key(|k| (k.bytes, k.relationship));
        let mut sum = all.iter().fold(0_u64, |sum, k| sum.saturating_add(k.bytes));
        while sum > most
            && let Some(largest) = all.pop()
        {
            sum = sum.saturating_sub(largest.bytes);
            over.push((largest, Budget::PinnedBytes));
        }
    }
    over
}

/// Whether a pool runs short.
pub(crate) fn is_pressed(budgets: &Budgets, capacity: Capacity) -> bool {
    capacity.free_bytes < reserve(budgets, capacity)
}

/// Whether half of the reserve is used too.
pub(crate) fn is_in_need(budgets: &Budgets, capacity: Capacity) -> bool {
    capacity.free_bytes < reserve(budgets, capacity) / 2
}

fn reserve(budgets: &Budgets, capacity: Capacity) -> u64 {
    capacity.capacity_bytes / 100 * u64::from(budgets.reserve_percent.min(100))
}

/// What goes so that the pool has its reserve again, the largest first. Of the upper half of the reserve, only what gives back
/// a good part of the pool: an update a minute old is not worth a mirror's base. Of the lower half, all that gives
/// anything; what a way back stands on then last.
pub(crate) fn to_make_room(budgets: &Budgets, capacity: Capacity, mut kept: Vec<Kept>) -> Vec<Kept> {
    let reserve = reserve(budgets, capacity);
    let is_need = is_in_need(budgets, capacity);
    let least = if is_need { 1 } else { (capacity.capacity_bytes / PRESSED_PART_MIN).max(1) };
    kept.retain(|k| k.frees >= least && (is_need || !k.way_back));
    kept.sort_by_key(|k| (k.way_back, std::cmp::Reverse(k.frees), k.relationship));
    let mut free = capacity.free_bytes;
    kept.into_iter()
        .take_while(|k| {
            let is_short = free < reserve;
            free = free.saturating_add(k.frees);
            is_short
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: PeerId = PeerId([1; 32]);
    const B: PeerId = PeerId([2; 32]);
    const DAY: Duration = Duration::from_secs(86_400);

    fn kept(id: u128, peer: PeerId, since_day: u32, bytes: u64) -> Kept {
        let since = Timestamp(1).plus(DAY * since_day);
        Kept { relationship: Uuid::from_u128(id), peer, since, bytes, frees: bytes, way_back: false }
    }

    fn ids(kept: &[Kept]) -> Vec<u128> {
        kept.iter().map(|k| k.relationship.as_u128()).collect()
    }

    #[test]
    fn a_minute_s_worth_at_once_and_then_the_rate() {
        let budgets = Budgets { snapshots_per_minute: 60, ..Budgets::default() };
        let mut rates = Rates::default();
        let mut now = Duration::from_secs(1000);
        let mut admitted = 0;
        for _ in 0..10_000 {
            admitted += u32::from(rates.snapshot(&budgets, A, now).is_ok());
        }
        assert_eq!((admitted, rates.snapshots_of(&budgets, A, now)), (60, 60));
        let said = rates.snapshot(&budgets, A, now).unwrap_err();
        assert!(said.contains("snapshots_per_minute") && said.contains("in 1.0 s"), "{said}");
        assert!(rates.snapshot(&budgets, B, now).is_ok(), "another peer's is its own");
        for _ in 0..1_000_000 {
            now += Duration::from_millis(1);
            admitted += u32::from(rates.snapshot(&budgets, A, now).is_ok());
        }
        assert_eq!(admitted, 60 + 1000, "of a million questions");
    }

    #[test]
    fn role_changes_have_a_rate_that_updates_do_not_use_up() {
        let budgets = Budgets { snapshots_per_minute: 2, ..Budgets::default() };
        let (mut rates, now) = (Rates::default(), Duration::from_secs(1000));
        while rates.snapshot(&budgets, A, now).is_ok() {}
        assert!(rates.swap(&budgets, A, now).is_ok() && rates.swap(&budgets, A, now).is_ok());
        let said = rates.swap(&budgets, A, now).unwrap_err();
        for what in ["snapshots_per_minute", "Nothing was changed", "in 30.0 s"] {
            assert!(said.contains(what), "{said}");
        }
    }

    #[test]
    fn who_asks_no_more_is_forgotten_when_all_it_took_is_earned() {
        let (budgets, mut rates, now) = (Budgets::default(), Rates::default(), Duration::from_secs(1000));
        rates.call(&budgets, A, now).unwrap();
        for _ in 0..budgets.snapshots_per_minute {
            rates.snapshot(&budgets, B, now).unwrap();
        }
        rates.forget_idle(now);
        assert_eq!(rates.of.len(), 2, "a call is a call until it is earned");
        rates.forget_idle(now + Duration::from_secs(1));
        assert_eq!(rates.of.keys().collect::<Vec<_>>(), [&B]);
        assert!(rates.snapshot(&budgets, B, now).is_err(), "its rate is not given back");
        rates.forget_idle(now + MINUTE);
        assert!(rates.of.is_empty());
    }

    #[test]
    fn sixteen_mirrors_every_second_for_an_hour_meet_no_rate() {
        let (budgets, mut rates) = (Budgets::default(), Rates::default());
        for second in 0..3_600 {
            for mirror in 0..16 {
                // At the worst all at the same moment, each second.
                let now = Duration::from_secs(second);
                rates.snapshot(&budgets, A, now).unwrap_or_else(|e| panic!("{second} {mirror}: {e}"));
                for _ in 0..6 {
                    rates.call(&budgets, A, now).unwrap();
                }
            }
        }
    }

    #[test]
    fn what_is_old_goes_unless_it_costs_nothing() {
        let budgets = Budgets { pin_age: Some(30 * DAY), ..Budgets::default() };
        let all = [kept(1, A, 0, 5), kept(2, A, 0, 0), kept(3, A, 20, 5)];
        let now = Timestamp(1).plus(40 * DAY);
        let old = |budgets: &Budgets| -> Vec<Uuid> {
            all.iter().filter(|k| budgets.is_old(k.since, now)).map(|k| k.relationship).collect()
        };
        assert_eq!(over(&budgets, &all, &old(&budgets)), [(all[0], Budget::PinAge)]);
        assert!(old(&Budgets { pin_age: None, ..budgets }).is_empty());
    }

    #[test]
    fn of_too_many_bytes_the_largest_go_and_other_peers_are_left_alone() {
        let budgets = Budgets { pinned_bytes: Some(100), ..Budgets::default() };
        let all = [kept(1, A, 0, 60), kept(2, A, 0, 30), kept(3, A, 0, 50), kept(4, B, 0, 100)];
        let gone: Vec<_> = over(&budgets, &all, &[]).into_iter().map(|(k, _)| k).collect();
        assert_eq!(ids(&gone), [1]);
        let small = Budgets { pinned_bytes: Some(0), ..budgets };
        assert_eq!(over(&small, &all, &[]).len(), 4);
    }

    #[test]
    fn room_is_made_by_the_largest_and_not_more_than_needed() {
        let budgets = Budgets { reserve_percent: 10, ..Budgets::default() };
        let capacity = |free_bytes| Capacity { capacity_bytes: 10_000, free_bytes };
        let all = || vec![kept(1, A, 0, 200), kept(2, A, 0, 400), kept(3, B, 0, 300), kept(4, B, 0, 3)];
        assert!(!is_pressed(&budgets, capacity(1000)) && is_pressed(&budgets, capacity(999)));
        assert_eq!(ids(&to_make_room(&budgets, capacity(999), all())), [2]);
        assert_eq!(ids(&to_make_room(&budgets, capacity(500), all())), [2, 3], "not what is not worth it");
        assert_eq!(ids(&to_make_room(&budgets, capacity(0), all())), [2, 3, 1, 4], "everything, in need");
        assert_eq!(ids(&to_make_room(&budgets, capacity(1000), all())), []);
        assert!(!is_pressed(&Budgets { reserve_percent: 0, ..budgets }, capacity(0)));
        let with_way_back = || vec![Kept { way_back: true, ..kept(5, A, 0, 4000) }, kept(6, A, 0, 600)];
        assert_eq!(
            ids(&to_make_room(&budgets, capacity(999), with_way_back())),
            [6],
            "a way back is not given up lightly"
        );
        assert_eq!(ids(&to_make_room(&budgets, capacity(100), with_way_back())), [6, 5], "hosts come first");
        // What snapshots share counts for each against the peer, and once for what comes free.
        let shared = || vec![Kept { frees: 200, ..kept(1, A, 0, 900) }, kept(2, A, 0, 300)];
        assert_eq!(ids(&to_make_room(&budgets, capacity(600), shared())), [2, 1], "a guess is no room");
        let strict = Budgets { pinned_bytes: Some(0), pin_age: Some(DAY), ..budgets };
        assert_eq!(over(&strict, &with_way_back()[..1], &[Uuid::from_u128(5)]), []);
    }
}
