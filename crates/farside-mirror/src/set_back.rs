//! A pool that was set back behind its site's state database: a backup, or a snapshot of the storage below it, was put in its
//! place. A volume that became a replica since is an ordinary one there, and hosts would write to it while those of the site
//! that it follows write on: two originals, and nobody is told. Decided here, without I/O.
//!
//! The other way round a database that was restored is older than its pool. What the pool itself says of a volume
//! therefore always counts; the database counts only where the pool says nothing.

use farside_engine::VolumeName;

use crate::store::{Relationship, SwapMark};

/// What the pool shows of a volume that the state database has a mirror for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolShows {
    /// No volume of that name.
    Nothing,
    /// A volume that is, and was, nobody's replica.
    Ordinary,
    /// Somebody's replica: hosts cannot write.
    Replica,
    /// One that was broken off: hosts may write, and its source is told.
    BrokenOff,
}

impl PoolShows {
    /// By the volume's replica record, if it has one: whether it was broken off.
    pub fn volume(broken_off: Option<bool>) -> PoolShows {
        match broken_off {
            None => PoolShows::Ordinary,
            Some(false) => PoolShows::Replica,
            Some(true) => PoolShows::BrokenOff,
        }
    }
}

/// What the state database says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Row {
    /// It follows its source: its pool had a record of that before the database said so.
    Follows,
    /// A change is under way that the database knows before the pool does.
    Changing,
    /// Hosts may write to it.
    Original,
}

impl Row {
    pub(crate) fn of(relationship: &Relationship) -> Row {
        match relationship.swap {
            Some(SwapMark::Prepared { .. }) => Row::Changing,
            Some(SwapMark::TakenOver { .. } | SwapMark::GivenUp { .. }) => Row::Original,
            Some(SwapMark::Swapping { .. }) | None if relationship.resync_pending => Row::Changing,
            Some(SwapMark::Swapping { .. }) | None if relationship.broken_off_at.is_some() => Row::Original,
            Some(SwapMark::Swapping { .. }) | None => Row::Follows,
        }
    }

    /// Whether hosts must not write to what the pool shows.
    pub(crate) fn is_behind(self, pool: PoolShows) -> bool {
        self == Row::Follows && pool == PoolShows::Ordinary
    }
}

/// Whether hosts must not write to the destination of `row`, of which the pool shows this: it was set back.
pub fn is_set_back(row: &Relationship, pool: PoolShows) -> bool {
    Row::of(row).is_behind(pool)
}

/// What is said of it: `source` is `PEER:POOL/VOL`.
pub fn why(volume: &VolumeName, source: &str) -> String {
    format!(
        "the pool shows {volume} as an ordinary volume, and this site's state database knows it as the replica of {source}: the \
         pool is an older copy (a backup, or a snapshot of the storage below it) from before {volume} became a replica. \
         {source} is the original, and whole. Hosts may read {volume}, and not write. To make it follow again: farside \
         mirror resync {volume} --from {source} (what {volume} shows now stays as a side branch). Only if hosts shall go on \
         here, without what was written at {source} since: farside mirror break {volume}, and {source} is told"
    )
}

#[cfg(test)]
mod tests {
    use farside_peer::PeerId;
    use farside_platform::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::schedule::Schedule;

    const POOLS: [PoolShows; 4] =
        [PoolShows::Nothing, PoolShows::Ordinary, PoolShows::Replica, PoolShows::BrokenOff];

    #[test]
    fn only_a_plain_follower_that_the_pool_knows_nothing_of_is_fenced() {
        for row in [Row::Follows, Row::Changing, Row::Original] {
            for pool in POOLS {
                let expected = (row, pool) == (Row::Follows, PoolShows::Ordinary);
                assert_eq!(row.is_behind(pool), expected, "{row:?} {pool:?}");
            }
        }
    }

    #[test]
    fn every_row_that_says_more_than_following_is_told_from_one_that_follows() {
        let name = |text: &str| text.parse().unwrap();
        let plain = Relationship::new(
            Uuid::from_u128(1),
            PeerId([1; 32]),
            name("q/v"),
            name("p/v"),
            Schedule::OnRequest,
        );
        let of = Uuid::from_u128(2);
        let swaps = [
            (None, None),
            (Some(SwapMark::Swapping { reverse: of }), None),
            (Some(SwapMark::TakenOver { reverse: of }), Some(Row::Original)),
            (Some(SwapMark::GivenUp { reverse: of }), Some(Row::Original)),
            (Some(SwapMark::Prepared { of, is_new: true }), Some(Row::Changing)),
        ];
        for (swap, decided) in swaps {
            for (resync_pending, broken_off_at, otherwise) in [
                (false, None, Row::Follows),
                (true, None, Row::Changing),
                (false, Some(Timestamp(1)), Row::Original),
                (true, Some(Timestamp(1)), Row::Changing),
            ] {
                let row = Relationship { swap, resync_pending, broken_off_at, ..plain.clone() };
                assert_eq!(Row::of(&row), decided.unwrap_or(otherwise), "{row:?}");
            }
        }
    }
}
