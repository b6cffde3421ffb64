//! How full a pool is: when it is said, and when it is over.
//!
//! What is left for hosts is divided by the pool's size. A level begins when it is sure: what was written since the last
//! consistency point may have replaced something, so it counts as left until that point tells. A level ends once 2 % of the pool
//! more are left than at its beginning. So a pool whose hosts overwrite the same data, or that stands at a limit, is told of once.

use std::time::{Duration, Instant};

use farside_api::PoolRoom;
use farside_store::{Pool, Room, WRITE_NEEDS_BYTES};
use parking_lot::Mutex;

/// How often it is looked at.
pub(super) const LOOK_AT_ROOM_EVERY: Duration = Duration::from_secs(1);
/// A consistency point is asked for at most so often: one costs two syncs of the device, which hosts feel.
pub(super) const SETTLE_EVERY: Duration = Duration::from_secs(10);
/// What is left of a pool that is *filling*, at most: a fifth of it.
const FILLING: u64 = 5;
/// And of one that is *nearly full*: a twentieth.
const NEARLY_FULL: u64 = 20;
/// How much more must be left before a level ends: a fiftieth, 2 %.
const SLACK: u64 = 50;

/// The level of so much that is left.
fn level_of(size_bytes: u64, left_bytes: u64) -> PoolRoom {
    if left_bytes < WRITE_NEEDS_BYTES {
        PoolRoom::Full
    } else if left_bytes <= size_bytes / NEARLY_FULL {
        PoolRoom::NearlyFull
    } else if left_bytes <= size_bytes / FILLING {
        PoolRoom::Filling
    } else {
        PoolRoom::Enough
    }
}

/// The level that follows one.
pub(super) fn next_level(before: PoolRoom, room: &Room) -> PoolRoom {
    let Room { size_bytes, for_hosts_bytes, unsettled_bytes, refuses_hosts, .. } = *room;
    let surely = level_of(size_bytes, for_hosts_bytes.saturating_add(unsettled_bytes).min(size_bytes));
    let still = level_of(size_bytes, for_hosts_bytes.saturating_sub(size_bytes / SLACK));
    // Somebody was refused. Where much is left it was a room in pieces, which the next write may find.
    let surely = if refuses_hosts && still >= PoolRoom::NearlyFull { PoolRoom::Full } else { surely };
    before.min(still).max(surely)
}

/// Whether a consistency point may change the level.
pub(super) fn may_change(level: PoolRoom, room: &Room) -> bool {
    room.may_settle && (level > PoolRoom::Enough || level_of(room.size_bytes, room.for_hosts_bytes) > level)
}

/// What was seen.
pub(super) struct Seen {
    pub(super) level: PoolRoom,
    pub(super) room: Room,
    pub(super) is_raw_device: bool,
}

/// What makes a pool larger. A file needs its new size, of which it is known perhaps how many bytes that is; a raw device is made larger
/// before.
pub(crate) fn grow_command(name: &str, is_raw_device: bool, size_bytes: Option<u64>) -> String {
    const GIB: u64 = 1 << 30;
    match (is_raw_device, size_bytes) {
        (true, _) => format!("make its device larger (for example lvextend), then farside pool grow {name}"),
        (false, Some(bytes)) => format!("farside pool grow {name} --size {}G", bytes.div_ceil(GIB)),
        (false, None) => format!("farside pool grow {name} --size SIZE"),
    }
}

/// The size of a pool in which so many bytes more have room, with what the pool keeps for its metadata and for hosts.
pub(super) fn size_with(size_bytes: u64, more_bytes: u64) -> u64 {
    size_bytes.saturating_add(more_bytes.saturating_add(more_bytes / 8))
}

impl Seen {
    /// What it means and what to do, in words.
    pub(super) fn warning(&self, name: &str) -> Option<String> {
        let Room { size_bytes, for_hosts_bytes, .. } = self.room;
        let taken = size_bytes.saturating_sub(for_hosts_bytes);
        let percent = (u128::from(taken) * 100).checked_div(u128::from(size_bytes)).unwrap_or(100);
        let left = format!("{:.1} MiB", for_hosts_bytes as f64 / f64::from(1 << 20));
        let what = match self.level {
            PoolRoom::Enough => return None,
            PoolRoom::Filling => format!("{percent} % of it are taken, and {left} are left for hosts"),
            PoolRoom::NearlyFull => format!(
                "{percent} % of it are taken, and {left} are left for hosts. Transfers that bring data here wait for room, or will \
                 soon. When nothing is left, hosts' writes fail with \"no space\""
            ),
            PoolRoom::Full => format!(
                "{left} are left for hosts: their writes fail with \"no space\". What was flushed is safe; reads, trims and \
                 deletions go on"
            ),
        };
        Some(format!(
            "{what}. What to do: {}; or delete snapshots that nobody needs, or trim in the hosts",
            grow_command(name, self.is_raw_device, None)
        ))
    }
}

/// The level of a pool, as it was told last.
#[derive(Default)]
pub(super) struct RoomWatch {
    told: Mutex<Option<PoolRoom>>,
    settled: Mutex<Option<Instant>>,
    is_raw_device: bool,
}

impl RoomWatch {
    pub(super) fn of(is_raw_device: bool) -> RoomWatch {
        RoomWatch { is_raw_device, ..RoomWatch::default() }
    }

    /// Looks, and writes to the log when the level is another one than before.
    pub(super) fn look(&self, name: &str, pool: &Pool) -> Seen {
        let mut told = self.told.lock();
        let room = pool.room();
        let before = told.unwrap_or(PoolRoom::Enough);
        let level = next_level(before, &room);
        *told = Some(level);
        drop(told);
        let seen = Seen { level, room, is_raw_device: self.is_raw_device };
        match seen.warning(name) {
            Some(warning) if level > before => tracing::warn!(pool = name, "the pool fills up: {warning}"),
            Some(_) if level < before => {
                tracing::info!(pool = name, "the pool has more room again, and still not much");
            }
            None if level < before => tracing::info!(pool = name, "the pool has enough room again"),
            _ => {}
        }
        seen
    }

    /// Asks for a consistency point if one may change what is told, so that a pool at rest does not stay at a level that is over.
    pub(super) fn settle_if_it_helps(&self, pool: &Pool) {
        let level = self.told.lock().unwrap_or(PoolRoom::Enough);
        let mut settled = self.settled.lock();
        if settled.is_none_or(|at| at.elapsed() >= SETTLE_EVERY) && may_change(level, &pool.room()) {
            *settled = Some(Instant::now());
            pool.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000 << 20;

    fn room(left_percent: f64, unsettled_percent: f64) -> Room {
        let of = |percent: f64| (SIZE as f64 * percent / 100.0) as u64;
        Room {
            size_bytes: SIZE,
            for_hosts_bytes: of(left_percent),
            unsettled_bytes: of(unsettled_percent),
            refuses_hosts: false,
            may_settle: unsettled_percent > 0.0,
        }
    }

    fn levels(of: &[(f64, f64)]) -> Vec<PoolRoom> {
        let mut level = PoolRoom::Enough;
        let step = |(left, unsettled): &(f64, f64)| {
            level = next_level(level, &room(*left, *unsettled));
            level
        };
        of.iter().map(step).collect()
    }

    #[test]
    fn levels_begin_at_80_and_95_percent_and_where_a_write_does_not_fit() {
        use PoolRoom::{Enough, Filling, Full, NearlyFull};
        let course = [(20.1, 0.0), (20.0, 0.0), (5.1, 0.0), (5.0, 0.0), (0.2, 0.0), (0.1, 0.0), (0.0, 0.0)];
        assert_eq!(levels(&course), [Enough, Filling, Filling, NearlyFull, NearlyFull, Full, Full]);
        // At once from nothing to full, and back.
        assert_eq!(levels(&[(0.0, 0.0), (100.0, 0.0)]), [Full, Enough]);
        assert_eq!(level_of(SIZE, WRITE_NEEDS_BYTES), NearlyFull);
        assert_eq!(level_of(SIZE, WRITE_NEEDS_BYTES - 1), Full);
        // In a pool of a few MiB a write does not fit before 95 % are taken.
        assert_eq!(level_of(16 << 20, (16 << 20) / NEARLY_FULL), Full);
        assert_eq!(level_of(0, 0), Full);
    }

    #[test]
    fn a_level_ends_two_percent_later() {
        use PoolRoom::{Enough, Filling, Full, NearlyFull};
        let course = [(20.0, 0.0), (21.9, 0.0), (22.1, 0.0), (21.9, 0.0), (20.0, 0.0)];
        assert_eq!(levels(&course), [Filling, Filling, Enough, Enough, Filling]);
        let course = [(5.0, 0.0), (6.9, 0.0), (7.1, 0.0), (0.0, 0.0), (2.0, 0.0), (2.2, 0.0), (22.1, 0.0)];
        assert_eq!(levels(&course), [NearlyFull, NearlyFull, Filling, Full, Full, NearlyFull, Enough]);
    }

    #[test]
    fn what_may_have_replaced_something_is_no_reason_to_warn() {
        use PoolRoom::{Enough, Filling};
        // A host overwrites: up to an eighth of the pool looks used until the next point.
        let course: Vec<_> = (0..1000).map(|i| f64::from(i % 13)).map(|w| (25.0 - w, w)).collect();
        assert!(levels(&course).iter().all(|level| *level == Enough));
        // It was new data: the point says so.
        assert_eq!(levels(&[(15.0, 10.0), (15.0, 0.0), (15.0, 10.0)]), [Enough, Filling, Filling]);
        assert!(may_change(Enough, &room(15.0, 10.0)) && !may_change(Enough, &room(15.0, 0.0)));
        assert!(may_change(Filling, &room(15.0, 1.0)) && !may_change(Enough, &room(50.0, 10.0)));
    }

    #[test]
    fn whoever_was_refused_makes_the_pool_full_if_little_is_left() {
        let refused = |left| Room { refuses_hosts: true, ..room(left, 3.0) };
        assert_eq!(next_level(PoolRoom::Filling, &refused(0.5)), PoolRoom::Full);
        assert_eq!(next_level(PoolRoom::Full, &room(0.5, 0.0)), PoolRoom::Full, "a small write found room");
        assert_eq!(next_level(PoolRoom::Enough, &refused(50.0)), PoolRoom::Enough);
    }

    #[test]
    fn a_warning_says_how_much_is_left_and_what_to_do() {
        let warning =
            |level, left| Seen { level, room: room(left, 0.0), is_raw_device: false }.warning("tank");
        assert_eq!(warning(PoolRoom::Enough, 50.0), None);
        let filling = warning(PoolRoom::Filling, 18.0).unwrap();
        assert!(filling.starts_with("82 %") && filling.contains("180.0 MiB"), "{filling}");
        for (level, left) in [(PoolRoom::NearlyFull, 5.0), (PoolRoom::Full, 0.0)] {
            let text = warning(level, left).unwrap();
            assert!(
                text.contains("no space") && text.contains("farside pool grow tank --size SIZE"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_file_is_made_larger_by_naming_its_size_and_a_device_without() {
        assert_eq!(grow_command("p", false, Some((3 << 30) + 1)), "farside pool grow p --size 4G");
        assert!(grow_command("p", true, Some(1)).ends_with("then farside pool grow p"));
        assert_eq!(size_with(10 << 30, 8 << 30), 19 << 30);
    }
}
