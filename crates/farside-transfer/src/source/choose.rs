//! Which snapshot both sides hold, and what travels from there. Pure.

use farside_engine::{ContentRoot, SnapshotInfo, SnapshotOwner};
use uuid::Uuid;

use crate::error::TransferError;
use crate::protocol::convert::CandidateBase;

/// A snapshot of the source with its content root.
#[derive(Clone, Debug)]
pub(crate) struct Rooted {
    pub(crate) info: SnapshotInfo,
    pub(crate) root: ContentRoot,
}

/// The base: an index into the source's snapshots, and what the destination calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Base {
    pub(crate) index: usize,
    pub(crate) candidate: CandidateBase,
}

/// The newest common base: of those that agree in identity and content the newest at the source; else of those that
/// agree in content alone. Identity goes first because a snapshot whose content happens to equal a later one's must
/// not hide the named snapshots in between: they travel too.
///
/// The same identity with another content is an alarm, whatever else is common.
pub(crate) fn choose_base(
    snapshots: &[Rooted],
    candidates: &[CandidateBase],
) -> Result<Option<Base>, TransferError> {
    let (mut by_identity, mut by_content) = (None, None);
    for (index, snapshot) in snapshots.iter().enumerate() {
        // The destination lists oldest first; of equals its newest is the best base.
        for candidate in candidates {
            let same_content =
                candidate.content_root == snapshot.root && candidate.size_bytes == snapshot.info.size_bytes;
            let same_identity = candidate.uuid == snapshot.info.uuid;
            if same_identity && !same_content {
                return Err(TransferError::IdentityClash {
                    uuid: candidate.uuid,
                    ours: snapshot.root,
                    theirs: candidate.content_root,
                });
            }
            if same_content {
                by_content = Some(Base { index, candidate: *candidate });
            }
            if same_identity {
                by_identity = Some(Base { index, candidate: *candidate });
            }
        }
    }
    Ok(by_identity.or(by_content))
}

/// Snapshots that travel before the incremental: those a person made after the base, or all of them without one. Before
/// them the one that the destination has a part of: if it comes later in the line it would not be the first to arrive, and
/// only the first can use that part.
pub(crate) fn travelling<'a>(
    snapshots: &'a [Rooted],
    base: Option<&Base>,
    staged_transfer: Option<Uuid>,
) -> impl Iterator<Item = &'a Rooted> {
    let from = base.map_or(0, |b| b.index + 1);
    let mut is_first = true;
    snapshots[from..].iter().filter(move |s| {
        let travels =
            s.info.owner == SnapshotOwner::Person || (is_first && staged_transfer == Some(s.info.uuid));
        is_first &= !travels;
        travels
    })
}

#[cfg(test)]
mod tests {
    use farside_platform::Timestamp;

    use super::*;

    fn snapshot(id: u128, content: u8, owner: SnapshotOwner) -> Rooted {
        Rooted {
            info: SnapshotInfo {
                name: format!("s{id}"),
                uuid: Uuid::from_u128(id),
                created_at: Timestamp(id as u64),
                size_bytes: 4096,
                owner,
                held: false,
                pinned_by: Vec::new(),
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

    const PERSON: SnapshotOwner = SnapshotOwner::Person;
    const OTHER: SnapshotOwner = SnapshotOwner::Relationship(Uuid::from_u128(99));

    fn names(snapshots: &[Rooted], base: Option<&Base>) -> Vec<String> {
        travelling(snapshots, base, None).map(|s| s.info.name.clone()).collect()
    }

    #[test]
    fn without_a_common_base_all_that_persons_made_travels() {
        let source = [snapshot(1, 1, PERSON), snapshot(2, 2, OTHER), snapshot(3, 3, PERSON)];
        assert_eq!(choose_base(&source, &[candidate(7, 7)]).unwrap(), None);
        assert_eq!(names(&source, None), ["s1", "s3"]);
    }

    #[test]
    fn identity_and_content_beats_a_later_equal_content() {
        // s3 happens to hold what s1 held; it must still travel by its name.
        let source = [snapshot(1, 1, OTHER), snapshot(2, 2, PERSON), snapshot(3, 1, PERSON)];
        let base = choose_base(&source, &[candidate(1, 1)]).unwrap();
        assert_eq!(base.map(|b| b.index), Some(0));
        assert_eq!(names(&source, base.as_ref()), ["s2", "s3"]);
    }

    #[test]
    fn what_was_cut_is_taken_up_first_or_not_at_all() {
        let source =
            [snapshot(1, 1, PERSON), snapshot(2, 2, OTHER), snapshot(3, 3, PERSON), snapshot(4, 4, OTHER)];
        let base = choose_base(&source, &[candidate(1, 1)]).unwrap();
        let names = |staged_transfer: u128| {
            let travelling = travelling(&source, base.as_ref(), Some(Uuid::from_u128(staged_transfer)));
            travelling.map(|s| s.info.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(2), ["s2", "s3"]);
        assert_eq!(names(3), ["s3"], "a person's travels anyway, once");
        assert_eq!(names(4), ["s3"], "something else arrives before it");
        assert_eq!(names(1), ["s3"], "the base does not travel");
        assert_eq!(names(9), ["s3"], "gone at the source");
    }

    #[test]
    fn content_alone_is_enough_and_size_is_part_of_it() {
        let source = [snapshot(1, 1, PERSON), snapshot(2, 2, PERSON)];
        let base = choose_base(&source, &[candidate(8, 1), candidate(9, 1)]).unwrap();
        assert_eq!(base.map(|b| (b.index, b.candidate.uuid)), Some((0, Uuid::from_u128(9))));
        let larger = CandidateBase { size_bytes: 8192, ..candidate(8, 1) };
        assert_eq!(choose_base(&source, &[larger]).unwrap(), None);
    }

    #[test]
    fn one_identity_with_two_contents_is_an_alarm() {
        let source = [snapshot(1, 1, PERSON), snapshot(2, 2, PERSON)];
        let clash = choose_base(&source, &[candidate(1, 5), candidate(2, 2)]);
        assert!(
            matches!(clash, Err(TransferError::IdentityClash { uuid, .. }) if uuid == Uuid::from_u128(1))
        );
    }
}
