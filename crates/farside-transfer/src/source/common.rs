//! Points in common of the destinations of one volume. Pure.
//!
//! Each destination has bases of its own, taken for it at its own moments. If the source is lost, one destination must be able to
//! follow another with a difference, so they must hold a snapshot in common. Therefore a transfer also carries what the source
//! keeps for the others: a further step on the way from base to incremental. It costs what was overwritten in between, and the
//! destination keeps it for as long as the source keeps it for the other.
//!
//! That is enough. Whatever a destination shows, its source keeps for it (invariant M3). So of two destinations the one
//! whose transfer began last has got, or had before, what the other one shows. That holds also while transfers run: what is on
//! its way to one is kept for it, too, and goes to the other.

use farside_engine::SnapshotOwner;
use uuid::Uuid;

use super::choose::{Base, Beside, Rooted};
use crate::limits::COMMON_MAX;
use crate::protocol::convert::CandidateBase;

/// What a destination is to have in common with others.
#[derive(Default, Debug)]
pub(crate) struct Common<'a> {
    /// Of that, what it has not: it travels. Oldest first.
    pub(crate) travels: Vec<&'a Rooted>,
    /// All of it, as the destination calls it, or will.
    pub(crate) keeps: Vec<Uuid>,
}

fn same_content(one: &Rooted, other: &Rooted) -> bool {
    one.root == other.root && one.info.size_bytes == other.info.size_bytes
}

/// What the destination calls a snapshot of the source: by its identity, else its newest of the same content.
fn known_as(rooted: &Rooted, candidates: &[CandidateBase]) -> Option<Uuid> {
    let is_same =
        |c: &&CandidateBase| c.content_root == rooted.root && c.size_bytes == rooted.info.size_bytes;
    let by_identity = candidates.iter().find(|c| c.uuid == rooted.info.uuid).filter(is_same);
    by_identity.or(candidates.iter().rev().find(is_same)).map(|c| c.uuid)
}

/// What is kept for the relationships `others`, the newest [`COMMON_MAX`] of it: what the destination has, and what can come to it
/// from `base` on. With what a person made it is not concerned: that travels anyway, and only a person decides how long it
/// stays. Of a transfer that was cut the snapshot `staged` comes first, because only the first can use what there is of it.
pub(crate) fn in_common<'a>(
    line: &'a [Rooted],
    beside: &'a [Beside],
    base: Option<&Base<'_>>,
    candidates: &[CandidateBase],
    others: &[Uuid],
    staged: Option<Uuid>,
) -> Common<'a> {
    let first = base.map_or(0, |b| b.from);
    let first = line.iter().position(|s| Some(s.info.uuid) == staged).map_or(first, |at| first.max(at + 1));
    let is_for_others = |s: &Rooted| {
        s.info.owner != SnapshotOwner::Person && s.info.pinned_by.iter().any(|pin| others.contains(pin))
    };
    let mut common = Common::default();
    let on_line = line.iter().enumerate().rev().map(|(at, s)| (s, at >= first));
    let all = on_line.chain(beside.iter().rev().map(|b| (&b.rooted, false)));
    for (snapshot, can_travel) in all.filter(|(s, _)| is_for_others(s)) {
        if common.keeps.len() >= COMMON_MAX {
            break;
        }
        match known_as(snapshot, candidates) {
            Some(known) if common.keeps.contains(&known) => {}
            Some(known) => common.keeps.push(known),
            None if can_travel => {
                common.keeps.push(snapshot.info.uuid);
                common.travels.push(snapshot);
            }
            None => {}
        }
    }
    common.travels.reverse();
    common
}

impl<'a> Common<'a> {
    /// No more than `most` of it travels: the newest.
    pub(crate) fn limit(&mut self, most: usize) {
        let too_many = self.travels.len().saturating_sub(most);
        for left in self.travels.drain(..too_many) {
            self.keeps.retain(|uuid| *uuid != left.info.uuid);
        }
    }

    /// One of what travels is gone.
    pub(crate) fn forget(&mut self, gone: Uuid) {
        self.travels.retain(|s| s.info.uuid != gone);
        self.keeps.retain(|uuid| *uuid != gone);
    }

    /// What has the content of the last snapshot of the transfer need not travel before it: that one stands for it.
    pub(crate) fn end_with(&mut self, last: &Rooted) {
        let (stood_for, travels): (Vec<_>, Vec<_>) =
            self.travels.drain(..).partition(|s| s.info.uuid == last.info.uuid || same_content(s, last));
        self.travels = travels;
        if !stood_for.is_empty() {
            self.keeps.retain(|uuid| stood_for.iter().all(|s| s.info.uuid != *uuid));
            self.keeps.push(last.info.uuid);
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_engine::{ContentRoot, SnapshotInfo};
    use farside_platform::Timestamp;

    use super::*;

    /// Relationships of this side's destinations: the one that asks, and two others.
    const OURS: Uuid = Uuid::from_u128(101);
    const B: Uuid = Uuid::from_u128(102);
    const D: Uuid = Uuid::from_u128(103);

    fn snapshot(id: u128, content: u8, pinned_by: &[Uuid]) -> Rooted {
        Rooted {
            info: SnapshotInfo {
                name: format!("s{id}"),
                uuid: Uuid::from_u128(id),
                created_at: Timestamp(id as u64),
                size_bytes: 4096,
                owner: SnapshotOwner::Relationship(Uuid::from_u128(99)),
                held: false,
                pinned_by: pinned_by.to_vec(),
                sequence: 0,
            },
            root: ContentRoot([content; 16]),
        }
    }

    fn candidate(id: u128, content: u8) -> CandidateBase {
        CandidateBase {
            uuid: Uuid::from_u128(id),
            content_root: ContentRoot([content; 16]),
            size_bytes: 4096,
        }
    }

    fn base(line: &[Rooted], at: usize) -> Base<'_> {
        let rooted = &line[at];
        let id = rooted.info.uuid.as_u128();
        Base { rooted, candidate: candidate(id, rooted.root.0[0]), from: at + 1, is_beside: false }
    }

    fn ids(uuids: impl IntoIterator<Item = Uuid>) -> Vec<u128> {
        uuids.into_iter().map(|uuid| uuid.as_u128()).collect()
    }

    fn travels(common: &Common<'_>) -> Vec<u128> {
        ids(common.travels.iter().map(|s| s.info.uuid))
    }

    #[test]
    fn what_is_kept_for_others_and_newer_than_the_base_travels_oldest_first() {
        let line = [
            snapshot(1, 1, &[B]),
            snapshot(2, 2, &[OURS]),
            snapshot(3, 3, &[D, OURS]),
            snapshot(4, 4, &[]),
            snapshot(5, 5, &[B]),
        ];
        let base = base(&line, 1);
        let common = in_common(&line, &[], Some(&base), &[candidate(2, 2)], &[B, D], None);
        assert_eq!((travels(&common), ids(common.keeps.iter().copied())), (vec![3, 5], vec![5, 3]));
        let common = in_common(&line, &[], Some(&base), &[candidate(2, 2)], &[], None);
        assert!(common.travels.is_empty() && common.keeps.is_empty(), "nobody else");
        let common = in_common(&line, &[], None, &[], &[B], None);
        assert_eq!(travels(&common), [1, 5], "a first copy");
    }

    #[test]
    fn what_is_there_by_identity_or_content_is_kept_and_does_not_travel() {
        let line =
            [snapshot(1, 1, &[B]), snapshot(2, 2, &[OURS]), snapshot(3, 2, &[B]), snapshot(4, 4, &[D])];
        let beside = [Beside { rooted: snapshot(6, 6, &[D]), from: 1 }];
        let base = base(&line, 1);
        let candidates = [candidate(1, 1), candidate(6, 6), candidate(2, 2)];
        let common = in_common(&line, &beside, Some(&base), &candidates, &[B, D], None);
        assert_eq!((travels(&common), ids(common.keeps)), (vec![4], vec![4, 2, 1, 6]));
    }

    #[test]
    fn what_a_person_made_travels_by_itself() {
        let mut line = [snapshot(1, 1, &[OURS]), snapshot(2, 2, &[B])];
        line[1].info.owner = SnapshotOwner::Person;
        let common = in_common(&line, &[], Some(&base(&line, 0)), &[candidate(1, 1)], &[B], None);
        assert!(common.keeps.is_empty());
    }

    #[test]
    fn what_was_cut_is_taken_up_first() {
        let line =
            [snapshot(1, 1, &[OURS]), snapshot(2, 2, &[B]), snapshot(3, 3, &[OURS]), snapshot(4, 4, &[B])];
        let base = base(&line, 0);
        let staged = Some(Uuid::from_u128(3));
        let common = in_common(&line, &[], Some(&base), &[candidate(1, 1)], &[B], staged);
        assert_eq!(travels(&common), [4]);
    }

    #[test]
    fn the_last_snapshot_stands_for_what_is_equal_and_no_more_than_may_be_pinned_travels() {
        let line = [snapshot(1, 1, &[OURS]), snapshot(2, 2, &[B]), snapshot(3, 3, &[D])];
        let base = base(&line, 0);
        let all = || in_common(&line, &[], Some(&base), &[candidate(1, 1)], &[B, D], None);
        let mut common = all();
        common.end_with(&snapshot(7, 3, &[]));
        assert_eq!((travels(&common), ids(common.keeps)), (vec![2], vec![2, 7]));
        let mut common = all();
        common.end_with(&snapshot(7, 7, &[]));
        common.limit(1);
        assert_eq!((travels(&common), ids(common.keeps)), (vec![3], vec![3]));
        // A volume that is itself a replica: what it shows is kept for another.
        let mut common = all();
        common.end_with(&line[2]);
        assert_eq!((travels(&common), ids(common.keeps)), (vec![2], vec![2, 3]));
        let many: Vec<Rooted> = (1..100).map(|id| snapshot(id, id as u8, &[B])).collect();
        let common = in_common(&many, &[], None, &[], &[B], None);
        assert_eq!(common.keeps.len(), COMMON_MAX);
        assert_eq!(common.travels.last().map(|s| s.info.uuid.as_u128()), Some(99));
    }
}
