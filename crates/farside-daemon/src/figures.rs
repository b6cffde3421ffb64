//! How much data versions hold, for listings and for the plans of destructive requests. Metadata is compared, data never read.
//!
//! What hosts write meanwhile may be counted or not: a figure is of about now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_platform::BLOCK_BYTES;
use farside_store::{Difference, DifferenceKind, InLine, Pool, SnapshotStatus, StoreError, Version};
use farside_transfer::bases::rotates;
use parking_lot::Mutex;
use uuid::Uuid;

/// How long a plan may count. A volume of many terabytes whose every leaf changed takes longer; then the plan says that
/// the figure is unknown rather than keep a person waiting in an emergency.
const COUNT_MAX: Duration = Duration::from_secs(10);

/// How long a listing may count, all its volumes and snapshots together: a leaf of 128 blocks costs a metadata read of 4 KiB
/// if it is not cached. What is not counted by then is listed without the figure.
pub(crate) const LISTING_MAX: Duration = Duration::from_secs(2);

/// What takes longer to count is remembered: lists are asked for again and again, and a volume of terabytes changes little meanwhile.
const REMEMBERED_FROM: Duration = Duration::from_millis(5);
/// For so many times as long as the counting took, so that counting takes a four hundredth of a processor at most…
const REMEMBERED_TIMES: u32 = 400;
/// …and no longer than this.
const REMEMBERED_MAX: Duration = Duration::from_secs(60);
/// So many figures; then all are forgotten.
const REMEMBERED_COUNT: usize = 16_384;

/// What a figure is of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Of {
    pool: Uuid,
    volume: String,
    /// None: what hosts see.
    snapshot: Option<Uuid>,
    /// What it holds alone, not what it refers to.
    is_alone: bool,
}

/// Figures of listings that took long to count. Those that could not be counted in time are among them.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    until: Mutex<HashMap<Of, (Option<u64>, Instant)>>,
}

impl Remembered {
    fn or_count<E>(&self, of: Of, count: impl FnOnce() -> Result<Option<u64>, E>) -> Result<Option<u64>, E> {
        let now = Instant::now();
        if let Some((figure, until)) = self.until.lock().get(&of)
            && now < *until
        {
            return Ok(*figure);
        }
        let figure = count()?;
        let took = now.elapsed();
        // Where the others of a list had used up the time, the next question may have more of it.
        if took >= REMEMBERED_FROM && (figure.is_some() || took >= LISTING_MAX / 2) {
            let mut known = self.until.lock();
            if known.len() >= REMEMBERED_COUNT {
                known.clear();
            }
            let holds = took.saturating_mul(REMEMBERED_TIMES).min(REMEMBERED_MAX);
            known.insert(of, (figure, Instant::now() + holds));
        }
        Ok(figure)
    }
}

/// Ranges of blocks with other data, `[first, end)`, in ascending order.
type Ranges = Box<dyn Iterator<Item = Result<(u64, u64), StoreError>>>;

/// Counts within one allowance of time.
pub(crate) struct Counter {
    pool: Arc<Pool>,
    volume: String,
    until: Instant,
    /// A listing's; a plan counts anew.
    remembered: Option<Arc<Remembered>>,
}

impl Counter {
    pub(crate) fn new(pool: Arc<Pool>, volume: &str) -> Counter {
        Counter { pool, volume: volume.to_owned(), until: Instant::now() + COUNT_MAX, remembered: None }
    }

    /// For a listing, whose counters share the moment at which they give up.
    pub(crate) fn until(
        pool: Arc<Pool>,
        volume: &str,
        until: Instant,
        remembered: &Arc<Remembered>,
    ) -> Counter {
        Counter { pool, volume: volume.to_owned(), until, remembered: Some(Arc::clone(remembered)) }
    }

    fn or_remembered(
        &self,
        snapshot: Option<Uuid>,
        is_alone: bool,
        count: impl FnOnce() -> Result<Option<u64>, StoreError>,
    ) -> Result<Option<u64>, StoreError> {
        let Some(remembered) = &self.remembered else { return count() };
        let of = Of { pool: self.pool.status().id, volume: self.volume.clone(), snapshot, is_alone };
        remembered.or_count(of, count)
    }

    /// Bytes of data that `version` refers to, whoever else does.
    pub(crate) fn referenced(&self, version: Version) -> Result<Option<u64>, StoreError> {
        let snapshot = match version {
            Version::Head => None,
            Version::Snapshot(snapshot) => Some(snapshot),
        };
        self.or_remembered(snapshot, false, || self.sum(self.data(None, version)?))
    }

    /// Bytes in which `newer` differs from `older`, holes included. None: not counted in time.
    pub(crate) fn changed(&self, older: Version, newer: Version) -> Result<Option<u64>, StoreError> {
        let difference = self.pool.difference(&self.volume, Some(older), newer)?;
        // A range of holes reaches over blocks that were holes before.
        self.sum(Box::new(difference.map(|range| range.map(|r| (r.block, r.block + r.changed)))))
    }

    /// Bytes of data of `snapshot` that what hosts see has replaced or dropped: about what keeping it costs.
    pub(crate) fn replaced_since(&self, snapshot: Uuid) -> Result<Option<u64>, StoreError> {
        self.sum(self.data(Some(Version::Head), Version::Snapshot(snapshot))?)
    }

    /// Bytes of data that only `snapshot` holds, at most: what its nearest neighbours hold at the same places is not
    /// counted, what only a version further away holds is.
    pub(crate) fn only_in(&self, snapshot: Uuid) -> Result<Option<u64>, StoreError> {
        self.or_remembered(Some(snapshot), true, || {
            let all = self.pool.snapshots(&self.volume)?;
            let neighbours = neighbours(&all, snapshot);
            let ranges =
                neighbours.into_iter().map(|other| self.data(Some(other), Version::Snapshot(snapshot)));
            self.sum(common(ranges.collect::<Result<Vec<_>, _>>()?))
        })
    }

    /// Bytes of data that only `snapshot` holds on its line, which is what its deletion frees of it: what differs from the version before
    /// it and from each that goes on from it.
    pub(crate) fn only_in_line(&self, of: InLine) -> Result<Option<u64>, StoreError> {
        self.sum(common(of.differences.into_iter().map(data_of).collect()))
    }

    /// Bytes of data that lie past `size_bytes` in what hosts see, and in no snapshot of the main line that stays. What a mirror takes for
    /// its updates goes with the next one, here and at the replica, and what a timetable or retention keeps when it is its turn.
    pub(crate) fn only_beyond(&self, size_bytes: u64) -> Result<Option<u64>, StoreError> {
        let all = self.pool.snapshots(&self.volume)?;
        let of = self.pool.volume(&self.volume)?;
        let mirror = of.replica.map(|replica| replica.relationship);
        let goes = |s: &SnapshotStatus| !s.held && rotates(of.uuid, mirror, s.pinned_by.iter().copied());
        let stays = |s: &&SnapshotStatus| s.on_main_line && s.relationship.is_none() && !goes(s);
        let newest = all.iter().rev().find(stays).map(|s| Version::Snapshot(s.uuid));
        let first = size_bytes.div_ceil(BLOCK_BYTES as u64);
        let ranges = self.data(newest, Version::Head)?;
        self.sum(Box::new(
            ranges.map(move |range| range.map(|(from, end)| (from.max(first), end.max(first)))),
        ))
    }

    /// Bytes of data in the volume and its snapshots; what several hold alike counts once.
    pub(crate) fn everything(&self) -> Result<Option<u64>, StoreError> {
        let all = self.pool.snapshots(&self.volume)?;
        let (mut bytes, mut line) = (0, None);
        for snapshot in &all {
            let version = Version::Snapshot(snapshot.uuid);
            let Some(added) = self.sum(self.data(line, version)?)? else { return Ok(None) };
            bytes += added;
            if snapshot.on_main_line {
                line = Some(version);
            }
        }
        Ok(self.sum(self.data(line, Version::Head)?)?.map(|added| bytes + added))
    }

    /// What `newer` holds and `older` does not.
    fn data(&self, older: Option<Version>, newer: Version) -> Result<Ranges, StoreError> {
        Ok(data_of(self.pool.difference(&self.volume, older, newer)?))
    }

    fn sum(&self, ranges: Ranges) -> Result<Option<u64>, StoreError> {
        let mut blocks = 0;
        for range in ranges {
            let (first, end) = range?;
            blocks += end.saturating_sub(first);
            if Instant::now() > self.until {
                return Ok(None);
            }
        }
        Ok(Some(blocks * BLOCK_BYTES as u64))
    }
}

fn data_of(difference: Difference) -> Ranges {
    Box::new(difference.filter_map(|range| match range {
        Ok(range) if range.kind == DifferenceKind::Data => Some(Ok((range.block, range.block + range.count))),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }))
}

/// The versions that most likely hold the same data: the main line's before and after, and those taken just before and
/// just after.
fn neighbours(all: &[SnapshotStatus], snapshot: Uuid) -> Vec<Version> {
    let Some(at) = all.iter().position(|s| s.uuid == snapshot) else { return vec![Version::Head] };
    let (before, after) = (&all[..at], &all[at + 1..]);
    let on_line = |s: &&SnapshotStatus| s.on_main_line;
    let candidates =
        [before.iter().rev().find(on_line), before.last(), after.iter().find(on_line), after.first()];
    let mut uuids: Vec<Uuid> = candidates.into_iter().flatten().map(|s| s.uuid).collect();
    uuids.sort_unstable();
    uuids.dedup();
    let mut found: Vec<Version> = uuids.into_iter().map(Version::Snapshot).collect();
    if !after.iter().any(|s| s.on_main_line) {
        found.push(Version::Head);
    }
    found
}

/// What lies in every one of several ascending sequences of ranges, of which there is at least one.
fn common(mut sequences: Vec<Ranges>) -> Ranges {
    let mut current: Vec<(u64, u64)> = Vec::new();
    let mut begun = false;
    Box::new(std::iter::from_fn(move || {
        loop {
            if !begun {
                begun = true;
                for sequence in &mut sequences {
                    match sequence.next()? {
                        Ok(range) => current.push(range),
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
            let first = current.iter().map(|r| r.0).max()?;
            let (ends_first, end) = current.iter().map(|r| r.1).enumerate().min_by_key(|(_, end)| *end)?;
            match sequences[ends_first].next() {
                Some(Ok(next)) => current[ends_first] = next,
                Some(Err(error)) => return Some(Err(error)),
                None => current.clear(),
            }
            if first < end {
                return Some(Ok((first, end)));
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use farside_platform::{OsRandomness, SystemClock, Timestamp};
    use farside_store::NewSnapshot;

    use super::*;
    use crate::pools::Pools;

    fn ranges(of: &[(u64, u64)]) -> Ranges {
        let of: Vec<_> = of.iter().copied().map(Ok).collect();
        Box::new(of.into_iter())
    }

    fn collected(ranges: Ranges) -> Vec<(u64, u64)> {
        ranges.map(Result::unwrap).collect()
    }

    #[test]
    fn what_is_common_to_all() {
        assert_eq!(collected(common(vec![ranges(&[(1, 3), (5, 9)])])), [(1, 3), (5, 9)]);
        let three =
            vec![ranges(&[(0, 10), (20, 30)]), ranges(&[(2, 4), (6, 25)]), ranges(&[(3, 7), (8, 22)])];
        assert_eq!(collected(common(three)), [(3, 4), (6, 7), (8, 10), (20, 22)]);
        assert_eq!(collected(common(vec![ranges(&[(0, 9)]), ranges(&[])])), []);
        assert_eq!(collected(common(vec![ranges(&[(0, 2)]), ranges(&[(2, 4)])])), []);
    }

    /// A pool with `v` of 1 MiB; `block` writes one block, `freeze` takes a snapshot.
    struct Bench {
        pool: Arc<Pool>,
        _pools: Pools,
        _directory: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Bench {
            let directory = tempfile::tempdir().unwrap();
            let pools = Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness), "test");
            let path = directory.path().join("p.pool");
            let pool = pools.create("p", path.to_str().unwrap(), Some(64 << 20), false).unwrap();
            pool.create_volume("v", 1 << 20).unwrap();
            Bench { pool, _pools: pools, _directory: directory }
        }

        fn block(&self, number: u64, fill: u8) {
            self.pool.open_volume("v").unwrap().write(number * 4096, &[fill; 4096]).unwrap();
        }

        fn freeze(&self, name: &str) -> Uuid {
            self.freeze_pinned(name, None)
        }

        fn freeze_for_timetable(&self, name: &str) -> Uuid {
            let of = self.pool.volume("v").unwrap().uuid;
            self.freeze_pinned(name, Some(farside_transfer::bases::kept_of(of)))
        }

        fn freeze_pinned(&self, name: &str, pin_for: Option<Uuid>) -> Uuid {
            let snapshot = NewSnapshot {
                name: name.into(),
                uuid: Uuid::new_v4(),
                created_at: Timestamp(1),
                relationship: None,
                pin_for,
            };
            self.pool.create_snapshots(&[("v".into(), snapshot)]).unwrap()[0].uuid
        }

        fn counter(&self) -> Counter {
            Counter::new(Arc::clone(&self.pool), "v")
        }
    }

    #[test]
    fn what_took_long_to_count_holds_for_a_while_and_what_did_not_is_counted_anew() {
        let remembered = Remembered::default();
        let of =
            |volume: &str| Of { pool: Uuid::nil(), volume: volume.into(), snapshot: None, is_alone: false };
        let ask = |volume: &str, figure, takes| {
            let count = || {
                std::thread::sleep(takes);
                Ok::<_, ()>(figure)
            };
            remembered.or_count(of(volume), count).unwrap()
        };
        assert_eq!(ask("quick", Some(1), Duration::ZERO), Some(1));
        assert_eq!(ask("quick", Some(2), Duration::ZERO), Some(2));
        assert_eq!(ask("slow", Some(1), 4 * REMEMBERED_FROM), Some(1));
        assert_eq!(ask("slow", Some(2), Duration::ZERO), Some(1));
        assert_eq!(ask("cut off", None, 4 * REMEMBERED_FROM), None);
        assert_eq!(ask("cut off", Some(1), Duration::ZERO), Some(1));
        for number in 0..REMEMBERED_COUNT {
            remembered.until.lock().insert(of(&number.to_string()), (None, Instant::now()));
        }
        ask("one more", Some(1), 4 * REMEMBERED_FROM);
        assert_eq!(remembered.until.lock().len(), 1, "no more than so many");
    }

    #[test]
    fn figures_of_snapshots_and_of_the_head() {
        let bench = Bench::new();
        bench.block(0, 1);
        bench.block(1, 1);
        let first = bench.freeze("first");
        bench.block(1, 2);
        bench.block(2, 2);
        let second = bench.freeze("second");
        bench.block(2, 3);
        bench.block(200, 3);
        bench.block(0, 0);
        let block = 4096;
        let referenced = |version| bench.counter().referenced(version).unwrap();
        assert_eq!(referenced(Version::Snapshot(first)), Some(2 * block));
        assert_eq!(referenced(Version::Snapshot(second)), Some(3 * block));
        assert_eq!(referenced(Version::Head), Some(3 * block));
        // Of the first, block 1 is nowhere else; of the second, block 2; block 0 is in both, block 1 in the head too.
        assert_eq!(bench.counter().only_in(first).unwrap(), Some(block));
        assert_eq!(bench.counter().only_in(second).unwrap(), Some(block));
        // Blocks 0 (a hole now), 2 and 200.
        assert_eq!(
            bench.counter().changed(Version::Snapshot(second), Version::Head).unwrap(),
            Some(3 * block)
        );
        let all = bench.counter().changed(Version::Snapshot(first), Version::Head).unwrap();
        assert_eq!(all, Some(4 * block));
        // Of the second, blocks 0 and 2 were replaced; 200 is new.
        assert_eq!(bench.counter().replaced_since(second).unwrap(), Some(2 * block));
        assert_eq!(bench.counter().only_beyond(100 * block).unwrap(), Some(block));
        bench.freeze("third");
        assert_eq!(bench.counter().only_beyond(100 * block).unwrap(), Some(0), "a snapshot holds it");
        // 0, 1; 1, 2; 2, 200.
        assert_eq!(bench.counter().everything().unwrap(), Some(6 * block));
        bench.block(201, 4);
        bench.freeze_for_timetable("auto-2027-01-15T08:00:00Z");
        assert_eq!(
            bench.counter().only_beyond(100 * block).unwrap(),
            Some(block),
            "what holds it goes one day"
        );
    }

    #[test]
    fn what_takes_too_long_is_unknown() {
        let bench = Bench::new();
        bench.block(0, 1);
        let past = Instant::now() - Duration::from_secs(1);
        let counter = Counter::until(Arc::clone(&bench.pool), "v", past, &Arc::default());
        assert_eq!(counter.everything().unwrap(), None);
        assert_eq!(counter.referenced(Version::Head).unwrap(), None);
    }
}
