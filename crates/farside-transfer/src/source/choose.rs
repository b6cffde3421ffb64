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

/// A snapshot of the source that lies beside its main line, and where it left it.
#[derive(Clone, Debug)]
pub(crate) struct Beside {
    pub(crate) rooted: Rooted,
    /// Snapshots of the main line from this index on are not below it.
    pub(crate) from: usize,
}

/// The base: a snapshot of the source, and what the destination calls it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base<'a> {
    pub(crate) rooted: &'a Rooted,
    pub(crate) candidate: CandidateBase,
    /// Snapshots of the main line from this index on are newer than it.
    pub(crate) from: usize,
    /// It lies beside the main line.
    pub(crate) is_beside: bool,
}

/// Which of two common bases of one kind is nearer to what the source shows now.
fn nearness(base: &Base<'_>) -> (usize, bool) {
    (base.from, !base.is_beside)
}

/// The nearest common base, on whatever branch it lies at either side: of those that agree in identity and content the newest
/// on the source's main line, or one beside it that left the line later; else of those that agree in content alone. Identity
/// goes first because a snapshot whose content happens to equal a later one's must not hide the named snapshots in between: they
/// travel too. With `content_is_enough` a nearer one that agrees in content alone goes before it, unless it hides one of these:
/// so two replicas of one volume, whose snapshots of it have other identities, find that they hold the same.
///
/// The same identity with another content is an alarm, whatever else is common.
pub(crate) fn choose_base<'a>(
    line: &'a [Rooted],
    beside: &'a [Beside],
    candidates: &[CandidateBase],
    content_is_enough: bool,
) -> Result<Option<Base<'a>>, TransferError> {
    let (mut by_identity, mut by_content) = (None::<Base<'a>>, None::<Base<'a>>);
    let on_line = line.iter().enumerate().map(|(index, rooted)| (rooted, index + 1, false));
    let all = on_line.chain(beside.iter().map(|b| (&b.rooted, b.from, true)));
    for (rooted, from, is_beside) in all {
        // The destination lists oldest first; of equals its newest is the best base.
        for candidate in candidates {
            let same_content =
                candidate.content_root == rooted.root && candidate.size_bytes == rooted.info.size_bytes;
            let same_identity = candidate.uuid == rooted.info.uuid;
            if same_identity && !same_content {
                return Err(TransferError::IdentityClash {
                    uuid: candidate.uuid,
                    ours: rooted.root,
                    theirs: candidate.content_root,
                });
            }
            let base = Base { rooted, candidate: *candidate, from, is_beside };
            let is_nearer = |than: &Option<Base<'_>>| than.is_none_or(|t| nearness(&t) <= nearness(&base));
            if same_content && is_nearer(&by_content) {
                by_content = Some(base);
            }
            if same_identity && is_nearer(&by_identity) {
                by_identity = Some(base);
            }
        }
    }
    let (Some(identity), Some(content)) = (by_identity, by_content) else { return Ok(by_content) };
    let hides_none = || {
        let hidden = line.get(identity.from..content.from);
        hidden.is_some_and(|hidden| hidden.iter().all(|s| s.info.owner != SnapshotOwner::Person))
    };
    Ok(Some(if content_is_enough && hides_none() { content } else { identity }))
}

/// Snapshots that travel before the incremental: those of the main line that a person made after the base, or all of them
/// without one. Before them the one that the destination has a part of: if it comes later in the line it would not be the first
/// to arrive, and only the first can use that part.
pub(crate) fn travelling<'a>(
    line: &'a [Rooted],
    base: Option<&Base<'_>>,
    staged_transfer: Option<Uuid>,
) -> impl Iterator<Item = &'a Rooted> {
    let from = base.map_or(0, |b| b.from);
    let mut is_first = true;
    line[from..].iter().filter(move |s| {
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

    const PERSON: SnapshotOwner = SnapshotOwner::Person;
    const OTHER: SnapshotOwner = SnapshotOwner::Relationship(Uuid::from_u128(99));

    fn choose<'a>(
        line: &'a [Rooted],
        candidates: &[CandidateBase],
    ) -> Result<Option<Base<'a>>, TransferError> {
        choose_base(line, &[], candidates, false)
    }

    fn beside(id: u128, content: u8, from: usize) -> Beside {
        Beside { rooted: snapshot(id, content, OTHER), from }
    }

    fn names(snapshots: &[Rooted], base: Option<&Base<'_>>) -> Vec<String> {
        travelling(snapshots, base, None).map(|s| s.info.name.clone()).collect()
    }

    #[test]
    fn without_a_common_base_all_that_persons_made_travels() {
        let source = [snapshot(1, 1, PERSON), snapshot(2, 2, OTHER), snapshot(3, 3, PERSON)];
        assert!(choose(&source, &[candidate(7, 7)]).unwrap().is_none());
        assert_eq!(names(&source, None), ["s1", "s3"]);
    }

    #[test]
    fn identity_and_content_beats_a_later_equal_content() {
        // s3 happens to hold what s1 held; it must still travel by its name.
        let source = [snapshot(1, 1, OTHER), snapshot(2, 2, PERSON), snapshot(3, 1, PERSON)];
        let base = choose(&source, &[candidate(1, 1)]).unwrap();
        assert_eq!(base.map(|b| b.from), Some(1));
        assert_eq!(names(&source, base.as_ref()), ["s2", "s3"]);
    }

    #[test]
    fn what_was_cut_is_taken_up_first_or_not_at_all() {
        let source =
            [snapshot(1, 1, PERSON), snapshot(2, 2, OTHER), snapshot(3, 3, PERSON), snapshot(4, 4, OTHER)];
        let base = choose(&source, &[candidate(1, 1)]).unwrap();
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
        let base = choose(&source, &[candidate(8, 1), candidate(9, 1)]).unwrap();
        assert_eq!(base.map(|b| (b.from, b.candidate.uuid)), Some((1, Uuid::from_u128(9))));
        let larger = CandidateBase { size_bytes: 8192, ..candidate(8, 1) };
        assert!(choose(&source, &[larger]).unwrap().is_none());
    }

    #[test]
    fn one_identity_with_two_contents_is_an_alarm() {
        let source = [snapshot(1, 1, PERSON), snapshot(2, 2, PERSON)];
        let clash = choose(&source, &[candidate(1, 5), candidate(2, 2)]);
        assert!(
            matches!(clash, Err(TransferError::IdentityClash { uuid, .. }) if uuid == Uuid::from_u128(1))
        );
    }

    #[test]
    fn a_base_beside_the_line_serves_where_the_line_has_none_as_near() {
        let line = [snapshot(1, 1, PERSON), snapshot(2, 2, PERSON), snapshot(3, 3, PERSON)];
        let side = [beside(8, 8, 2)];
        let of = |candidates: &[CandidateBase]| {
            let base = choose_base(&line, &side, candidates, false).unwrap().unwrap();
            (base.rooted.info.uuid.as_u128(), base.is_beside, names(&line, Some(&base)))
        };
        assert_eq!(
            of(&[candidate(8, 8)]),
            (8, true, vec!["s3".into()]),
            "what is newer than the fork travels"
        );
        assert_eq!(of(&[candidate(1, 1), candidate(8, 8)]), (8, true, vec!["s3".into()]));
        assert_eq!(of(&[candidate(2, 2), candidate(8, 8)]), (2, false, vec!["s3".into()]), "the fork itself");
        assert_eq!(of(&[candidate(3, 3), candidate(8, 8)]), (3, false, vec![]));
        assert_eq!(of(&[candidate(9, 8)]), (8, true, vec!["s3".into()]), "by content");
        assert!(choose_base(&line, &side, &[candidate(8, 5)], false).is_err(), "an alarm wherever it lies");
    }

    #[test]
    fn equal_content_goes_before_an_older_identity_where_it_hides_no_named_snapshot() {
        let line = [snapshot(1, 1, PERSON), snapshot(2, 2, OTHER), snapshot(3, 3, OTHER)];
        let candidates = [candidate(1, 1), candidate(9, 3)];
        let base = |line, content| choose_base(line, &[], &candidates, content).unwrap().unwrap().from;
        assert_eq!((base(&line, false), base(&line, true)), (1, 3));
        let line = [snapshot(1, 1, PERSON), snapshot(2, 2, PERSON), snapshot(3, 3, OTHER)];
        assert_eq!(base(&line, true), 1);
    }
}
