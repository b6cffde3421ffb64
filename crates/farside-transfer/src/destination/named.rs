//! How many snapshots of persons a replica takes from its source. Pure.
//!
//! All replicas of a pool share one catalog, so no source may fill it. It is asked to leave the oldest out (`named_max`). What it sends
//! all the same arrives, and goes again: as a version of the mirror's, which the next one replaces.

use farside_engine::{SnapshotInfo, SnapshotOwner};

use crate::bases::rescue_moment;
use crate::protocol::convert::{CandidateBase, TravellingSnapshot};

/// How many a replica has already, on all its branches. Rescues are counted, and thinned, elsewhere.
pub(super) fn count(all: &[SnapshotInfo]) -> usize {
    all.iter().filter(|s| s.owner == SnapshotOwner::Person && rescue_moment(&s.name).is_none()).count()
}

/// Of those that travel and are not `here` the newest `most` stay for persons. Answers how many older ones do not.
pub(super) fn keep_newest(steps: &mut [TravellingSnapshot], here: &[CandidateBase], most: usize) -> usize {
    let is_new = |s: &TravellingSnapshot| s.made_by_person && here.iter().all(|h| h.uuid != s.uuid);
    let surplus = steps.iter().filter(|s| is_new(s)).count().saturating_sub(most);
    for step in steps.iter_mut().filter(|s| is_new(s)).take(surplus) {
        step.made_by_person = false;
    }
    surplus
}

#[cfg(test)]
mod tests {
    use farside_engine::ContentRoot;
    use farside_platform::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn step(number: u128, made_by_person: bool) -> TravellingSnapshot {
        TravellingSnapshot {
            uuid: Uuid::from_u128(number),
            name: format!("s{number}"),
            created_at: Timestamp(1),
            size_bytes: 4096,
            content_root: ContentRoot([0; 16]),
            made_by_person,
        }
    }

    fn kept(steps: &[TravellingSnapshot]) -> Vec<u128> {
        steps.iter().filter(|s| s.made_by_person).map(|s| s.uuid.as_u128()).collect()
    }

    #[test]
    fn the_newest_stay_and_what_is_here_already_takes_no_room() {
        let all = || -> Vec<_> { (0..6).map(|n| step(n, n != 3)).collect() };
        let mut steps = all();
        assert_eq!((keep_newest(&mut steps, &[], 5), kept(&steps)), (0, vec![0, 1, 2, 4, 5]));
        assert_eq!((keep_newest(&mut steps, &[], 2), kept(&steps)), (3, vec![4, 5]));
        let mut steps = all();
        let here = [CandidateBase {
            uuid: Uuid::from_u128(0),
            content_root: ContentRoot([0; 16]),
            size_bytes: 4096,
        }];
        assert_eq!((keep_newest(&mut steps, &here, 2), kept(&steps)), (2, vec![0, 4, 5]));
        let mut steps = all();
        assert_eq!((keep_newest(&mut steps, &[], 0), kept(&steps)), (5, vec![]));
    }
}
