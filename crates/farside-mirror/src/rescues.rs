//! Rescues: side branches `rescue-…` that a volume's earlier content became, and how many of them stay.
//!
//! A program that breaks and resyncs again and again leaves one each time, until the pool is full. So of each volume stay the
//! newest, and of what is older the first of each day: what was there before such a program began is what somebody may
//! want. No clock decides which are the newest: the pool's own order does; days are those of the rescues themselves. What a
//! source left behind is counted apart, so that one that goes back again and again deletes nothing that hosts wrote here. What a
//! person holds, a mirror needs or somebody has open stays and is not counted.

use farside_engine::{Engine, EngineError, SnapshotInfo, SnapshotOwner, VolumeName};
use farside_platform::Timestamp;
use farside_transfer::bases::{DAY, RESCUE, RESCUE_OF_SOURCE, rescue_moment};
use uuid::Uuid;

/// The rescues of a volume, as they are listed. The store names them by the moment in which they were set aside: a person's name
/// that begins alike is none.
pub fn of(all: &[SnapshotInfo]) -> impl Iterator<Item = &SnapshotInfo> {
    all.iter().filter(|s| s.owner == SnapshotOwner::Person && moment(&s.name).is_some())
}

/// Whether it is the name of a rescue, which persons give to nothing.
pub fn is_reserved(name: &str) -> bool {
    rescue_moment(name).is_some()
}

/// Whether the source left it behind.
pub(crate) fn is_of_source(name: &str) -> bool {
    rescue_moment(name).is_some_and(|(_, of_source)| of_source)
}

/// Its moment.
fn moment(name: &str) -> Option<&str> {
    rescue_moment(name).map(|(moment, _)| moment)
}

/// That of these which was set aside last of what hosts wrote here.
pub(crate) fn newest_of_hosts(rescues: &[(Uuid, String)]) -> Option<String> {
    let of_hosts = rescues.iter().filter(|(_, name)| !is_of_source(name));
    of_hosts.map(|(_, name)| name).max_by_key(|name| moment(name)).cloned()
}

/// Which of them go so that of each kind the newest `most` stay, and of the older ones the first of each of as many days; none if
/// `most` is 0.
pub(crate) fn to_go(all: &[SnapshotInfo], most: usize) -> Vec<(Uuid, String)> {
    let is_free = |s: &&SnapshotInfo| !s.held && s.pinned_by.is_empty();
    let (by_source, by_hosts): (Vec<_>, Vec<_>) =
        of(all).filter(is_free).partition(|s| is_of_source(&s.name));
    [by_source, by_hosts].into_iter().flat_map(|of_kind| to_go_of(of_kind, most)).collect()
}

/// Names of those that go as soon as somebody looks.
pub fn due(all: &[SnapshotInfo], most: usize) -> Vec<String> {
    to_go(all, most).into_iter().map(|(_, name)| name).collect()
}

/// Names of those that would go if one more was made now, which the source left behind or hosts wrote.
pub fn would_go(all: &[SnapshotInfo], most: usize, by_source: bool, now: Timestamp) -> Vec<String> {
    let stem = if by_source { RESCUE_OF_SOURCE } else { RESCUE };
    let newest = SnapshotInfo {
        name: format!("{stem}-{now:.0}"),
        uuid: Uuid::nil(),
        created_at: now,
        size_bytes: 0,
        owner: SnapshotOwner::Person,
        held: false,
        pinned_by: Vec::new(),
        sequence: u64::MAX,
    };
    let with_it: Vec<SnapshotInfo> = all.iter().cloned().chain([newest]).collect();
    due(&with_it, most)
}

fn to_go_of(mut free: Vec<&SnapshotInfo>, most: usize) -> Vec<(Uuid, String)> {
    // They are listed by the moment of their data, and named by what a clock said: what was set aside last may have the oldest of
    // both.
    free.sort_by_key(|s| s.sequence);
    if most == 0 || free.len() <= most {
        return Vec::new();
    }
    let mut days_left = most;
    let older = &free[..free.len() - most];
    let mut goes = Vec::new();
    // The newest days first; of each the first comes last.
    for (at, rescue) in older.iter().enumerate().rev() {
        let day = |s: &SnapshotInfo| moment(&s.name).map(|moment| moment[..DAY].to_owned());
        let is_first = at == 0 || day(older[at - 1]) != day(rescue);
        if is_first && days_left > 0 {
            days_left -= 1;
        } else {
            goes.push((rescue.uuid, rescue.name.clone()));
        }
    }
    goes
}

/// Deletes what is too many. One that somebody has open, or that cannot be deleted now, waits for the next time.
///
/// # Errors
/// If the snapshots cannot be listed.
pub fn thin(engine: &dyn Engine, volume: &VolumeName, most: usize) -> Result<Vec<String>, EngineError> {
    let mut gone = Vec::new();
    for (uuid, name) in to_go(&engine.all_snapshots(volume)?, most) {
        match engine.delete_snapshot(volume, uuid) {
            Ok(()) => {
                tracing::warn!(
                    %volume, rescue = name,
                    "deleted an old rescue: a volume keeps its {most} newest and the first of each of as many days \
                     (replicas.rescues). To keep one for good: farside snapshot hold"
                );
                gone.push(name);
            }
            Err(error) => tracing::debug!(%volume, rescue = name, "an old rescue stays for now: {error}"),
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farside_platform::Timestamp;

    use super::*;

    fn rescue(hour: u64) -> SnapshotInfo {
        let created_at = Timestamp(0).plus(Duration::from_secs(hour * 3600));
        SnapshotInfo {
            name: format!("rescue-{created_at}"),
            uuid: Uuid::from_u128(u128::from(hour)),
            created_at,
            size_bytes: 4096,
            owner: SnapshotOwner::Person,
            held: false,
            pinned_by: Vec::new(),
            sequence: hour,
        }
    }

    fn gone(all: &[SnapshotInfo], most: usize) -> Vec<u128> {
        let mut gone: Vec<u128> = to_go(all, most).iter().map(|(uuid, _)| uuid.as_u128()).collect();
        gone.sort_unstable();
        gone
    }

    #[test]
    fn the_newest_stay_and_of_older_ones_the_first_of_each_day() {
        let all: Vec<SnapshotInfo> = (0..60).map(rescue).collect();
        assert!(gone(&all, 0).is_empty() && gone(&all, 60).is_empty());
        // Of hours 0 to 56 the first of each day stays: 0, 24, 48.
        let expected: Vec<u128> = (1..57).filter(|h| ![24, 48].contains(h)).collect();
        assert_eq!(gone(&all, 3), expected);
        // With fewer days the oldest goes; never the newest of all.
        assert_eq!(gone(&all, 1), (0..59).filter(|h| *h != 48).collect::<Vec<u128>>());
        // A flood within an hour leaves what was there before it.
        let mut flood = vec![rescue(1)];
        flood.extend((0..500).map(|n| {
            let mut of_it = rescue(100);
            of_it.uuid = Uuid::from_u128(1000 + n);
            of_it.name = format!("{}-{}", of_it.name, n + 2);
            of_it.sequence += n as u64;
            of_it
        }));
        let left = flood.len() - gone(&flood, 16).len();
        assert_eq!(left, 16 + 2);
        assert!(!gone(&flood, 16).contains(&1) && !gone(&flood, 16).contains(&1499));
    }

    #[test]
    fn the_one_that_makes_room_for_one_more_is_known_before() {
        let all: Vec<SnapshotInfo> = (0..16).map(rescue).collect();
        let now = Timestamp(0).plus(Duration::from_secs(20 * 3600));
        // The oldest of 17 is the first of its day, and stays.
        assert!(would_go(&all, 16, false, now).is_empty());
        let all: Vec<SnapshotInfo> = (0..17).map(rescue).collect();
        assert_eq!(would_go(&all, 16, false, now), [all[1].name.clone()]);
        assert!(would_go(&all, 16, true, now).is_empty(), "it is counted apart");
        assert!(would_go(&all, 0, false, now).is_empty());
    }

    #[test]
    fn what_was_set_aside_last_stays_whatever_the_clock_said() {
        // 20 of a clock that was a year ahead; then it is right.
        let mut all: Vec<SnapshotInfo> = (9000..9020).map(rescue).collect();
        let mut last = rescue(24);
        last.sequence = 10_000;
        all.insert(0, last);
        assert_eq!(gone(&all, 16), [9001, 9002, 9003, 9004]);
        // What a source leaves behind pushes out nothing that hosts wrote, and the other way round.
        let mut all: Vec<SnapshotInfo> = (100..120).map(rescue).collect();
        for left in &mut all {
            left.name = left.name.replace("rescue-", "rescue-source-");
        }
        all.extend((1..4).map(rescue));
        assert_eq!(gone(&all, 3).iter().filter(|id| **id < 100).count(), 0);
        assert_eq!(gone(&all, 3).len(), 20 - 3 - 1);
    }

    #[test]
    fn what_is_held_needed_or_merely_called_so_stays() {
        let mut all: Vec<SnapshotInfo> = (0..10).map(rescue).collect();
        all[1].held = true;
        all[2].pinned_by = vec![Uuid::from_u128(77)];
        all[3].name = "rescue-me".into();
        assert!(!is_reserved("rescue-me") && !is_reserved(&format!("rescue-2027-01-15T{}Z", "0".repeat(60))));
        assert!(is_reserved(&all[4].name) && is_reserved("rescue-source-2027-01-15T08:00:00Z-2"));
        all[4].owner = SnapshotOwner::Relationship(Uuid::from_u128(77));
        assert_eq!(gone(&all, 2), [5, 6, 7]);
    }
}
