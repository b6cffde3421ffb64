//! Groups whose volumes show different moments: after a role change or first copies, until their next update. Pure.
//!
//! The lag of each is of what it shows. What `break --group` takes over is older: the newest moment that all hold, if there is
//! one. Of volumes that are all broken off, the point that each went on from counts.

use std::collections::{BTreeMap, HashMap};

use farside_api::Timestamp;
use farside_engine::VolumeName;
use farside_mirror::{MirrorStatus, SourceHeard, State, WentOnBy};
use uuid::Uuid;

use crate::convert;

/// What is to be said of the members of such groups. `overtaken`: volumes here from which another site has taken over.
///
/// `common` tells whether replicas hold an earlier moment in common; none if that cannot be seen.
pub(super) fn without(
    statuses: &[MirrorStatus],
    overtaken: &[VolumeName],
    common: &dyn Fn(&[VolumeName]) -> Option<bool>,
) -> HashMap<Uuid, Without> {
    let mut groups: BTreeMap<_, Vec<&MirrorStatus>> = BTreeMap::new();
    for status in statuses {
        let of = &status.relationship;
        if let Some(group) = &of.group {
            groups.entry((group.as_str(), of.peer, &of.destination.pool)).or_default().push(status);
        }
    }
    groups
        .into_iter()
        .flat_map(|((group, ..), members)| of_group(group, &members, overtaken, common))
        .collect()
}

/// What a group is without.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Without {
    pub(super) why: String,
    /// There is no moment at which all could be taken over.
    pub(super) is_of_no_use: bool,
}

fn of_group(
    group: &str,
    members: &[&MirrorStatus],
    overtaken: &[VolumeName],
    common: &dyn Fn(&[VolumeName]) -> Option<bool>,
) -> Vec<(Uuid, Without)> {
    let all = |is_of_no_use: bool, why: &str| -> Vec<(Uuid, Without)> {
        let of =
            |member: &&MirrorStatus| (member.relationship.id, Without { why: why.to_owned(), is_of_no_use });
        members.iter().map(of).collect()
    };
    if let Some((oldest, newest)) = moments(members) {
        let (oldest, newest) = in_words(convert::time(oldest), convert::time(newest));
        let volumes: Vec<VolumeName> =
            followers(members).map(|member| member.relationship.destination.clone()).collect();
        let common = common(&volumes);
        let until_then = match common {
            Some(true) => {
                format!("until then farside mirror break --group {group} takes over an earlier one")
            }
            Some(false) => format!(
                "until then they have no moment in common, and farside mirror break --group {group} takes over nothing"
            ),
            None => format!(
                "until then farside mirror break --group {group} takes over an earlier one, if there is one that all of them hold"
            ),
        };
        return all(
            common == Some(false),
            &format!(
                "the volumes of group {group} show different moments, from {oldest} to {newest}: farside mirror update --group {group} \
                 brings them to one; {until_then}"
            ),
        );
    }
    if let Some((oldest, newest)) = points(members, overtaken) {
        let (oldest, newest) = in_words(convert::time(oldest), convert::time(newest));
        return all(
            false,
            &format!(
                "the volumes of group {group} went on from different points, from {oldest} to {newest}, and may not fit together: farside \
                 snapshot rollback --group {group} --at SNAP takes all of them to one that all have; what each holds now stays as a side \
                 branch"
            ),
        );
    }
    Vec::new()
}

/// The oldest and the newest point that the members of a group went on from, all of which are writable here, if these differ. Where all
/// have changed their roles each has done so in its turn, while hosts rested; where one was overtaken that is said of it, and counts.
fn points(
    members: &[&MirrorStatus],
    overtaken: &[VolumeName],
) -> Option<(farside_platform::Timestamp, farside_platform::Timestamp)> {
    let is_broken_off = |member: &&MirrorStatus| member.state == State::BrokenOff;
    // One that has changed its role is that also where the other site has ended what followed it.
    let is_original = |member: &&MirrorStatus| {
        let turned = member.relationship.past.went_on_by == Some(WentOnBy::RoleChange);
        member.source_heard == Some(SourceHeard::Follows)
            || (turned && member.source_heard == Some(SourceHeard::Released))
    };
    let is_overtaken = |member: &&MirrorStatus| overtaken.contains(&member.relationship.destination);
    if !members.iter().all(is_broken_off)
        || members.iter().all(is_original)
        || members.iter().any(is_overtaken)
    {
        return None;
    }
    let from = || members.iter().filter_map(|member| member.went_on_from);
    // Each has shown the same for some time before its point: they fit if there is a moment in the time of all of them. But beside one
    // that is in use already as an original the point of another says little: hosts may have gone on there before that was broken off.
    // Unless those are back at what hosts had written to them before.
    let is_in_use = members.iter().any(is_original)
        && !members
            .iter()
            .filter(|m| !is_original(m))
            .all(|m| m.went_on_from.is_some_and(|from| from.is_own));
    let fits = !is_in_use && from().map(|from| from.since).max()? <= from().map(|from| from.at).min()?;
    let (oldest, newest) = (from().map(|from| from.at).min()?, from().map(|from| from.at).max()?);
    (!fits && oldest < newest).then_some((oldest, newest))
}

/// To the second, or as exactly as it takes to see that they differ.
fn in_words(oldest: Timestamp, newest: Timestamp) -> (String, String) {
    let (whole_oldest, whole_newest) = (format!("{oldest:.0}"), format!("{newest:.0}"));
    match whole_oldest == whole_newest {
        true => (oldest.to_string(), newest.to_string()),
        false => (whole_oldest, whole_newest),
    }
}

/// Whether they show different moments; none while one of them is under way.
pub(super) fn differ(members: &[&MirrorStatus]) -> Option<bool> {
    let is_under_way = |member: &&MirrorStatus| {
        matches!(member.state, State::Transferring | State::Initializing) || member.is_swapping
    };
    (!members.iter().any(is_under_way)).then(|| moments(members).is_some())
}

/// Those that show a version of their source. What a resync has not brought yet nobody shows.
fn followers<'a>(members: &'a [&MirrorStatus]) -> impl Iterator<Item = &'a MirrorStatus> {
    members.iter().copied().filter(|m| m.state != State::BrokenOff && !m.shows_own_state)
}

/// The oldest and the newest moment that members of a group show, if these differ. While one of them is under way nothing is said:
/// what is published for all is noted by one after the other.
fn moments(members: &[&MirrorStatus]) -> Option<(farside_platform::Timestamp, farside_platform::Timestamp)> {
    if members.iter().any(|member| matches!(member.state, State::Transferring | State::Initializing)) {
        return None;
    }
    let shown = || followers(members).filter_map(|member| Some(member.current.as_ref()?.created_at));
    let (oldest, newest) = (shown().min()?, shown().max()?);
    (oldest < newest).then_some((oldest, newest))
}

#[cfg(test)]
mod tests {
    use farside_engine::ContentRoot;
    use farside_format::Fingerprint;
    use farside_mirror::{Published, Relationship, Schedule, WentBack, WentOnFrom};
    use farside_peer::PeerId;
    use farside_platform::Timestamp as Instant;

    use super::*;

    fn without(statuses: &[MirrorStatus], overtaken: &[VolumeName]) -> HashMap<Uuid, String> {
        let all = super::without(statuses, overtaken, &|_| Some(true));
        all.into_iter().map(|(id, without)| (id, without.why)).collect()
    }

    fn member(id: u128, group: Option<&str>, state: State, shows: Option<u64>) -> MirrorStatus {
        let (source, volume) = ("p/v".parse().unwrap(), format!("q/v{id}").parse().unwrap());
        let relationship =
            Relationship::new(Uuid::from_u128(id), PeerId([1; 32]), source, volume, Schedule::OnRequest);
        let published = |seconds: u64| Published {
            name: "mirror-1".into(),
            uuid: Uuid::nil(),
            created_at: Instant(seconds * 1_000_000_000),
            size_bytes: 4096,
            content_root: ContentRoot::new(Fingerprint::HOLE, 4096),
        };
        MirrorStatus {
            relationship: Relationship { group: group.map(str::to_owned), ..relationship },
            state,
            why: None,
            is_for_swap: false,
            is_swapping: false,
            stopped: None,
            session_why: None,
            current: shows.map(published),
            shows_own_state: false,
            went_on_from: None,
            newest_rescue: None,
            left_as: None,
            forecast: None,
            queue_position: None,
            progress: None,
            source_heard: None,
            source_heard_at: None,
            went_back: WentBack::Unknown,
        }
    }

    #[test]
    fn moments_of_one_second_are_told_apart() {
        let (oldest, newest): (Timestamp, Timestamp) =
            ("2026-11-26T01:39:18.25Z".parse().unwrap(), "2026-11-26T01:39:18.5Z".parse().unwrap());
        let said = in_words(oldest, newest);
        assert_eq!(said, ("2026-11-26T01:39:18.25Z".to_owned(), "2026-11-26T01:39:18.5Z".to_owned()));
    }

    #[test]
    fn members_that_show_different_moments_say_so() {
        let shop = Some("shop");
        let a = || member(1, shop, State::Mirrored, Some(100));
        let b = |state, shows| member(2, shop, state, shows);
        let said =
            without(&[a(), b(State::Mirrored, Some(107)), member(3, None, State::Mirrored, Some(5))], &[]);
        assert_eq!(said.len(), 2);
        let why = &said[&Uuid::from_u128(1)];
        assert!(why.contains("from 1970-01-01T00:01:40Z to 1970-01-01T00:01:47Z"), "{why}");
        assert!(why.contains("farside mirror update --group shop"), "{why}");
        let nothing = [
            b(State::Mirrored, Some(100)),
            b(State::Uninitialized, None),
            b(State::BrokenOff, Some(90)),
            // What is published together is noted by one after the other.
            b(State::Transferring, Some(90)),
            member(2, Some("other"), State::Mirrored, Some(90)),
        ];
        for other in nothing {
            assert!(without(&[a(), other], &[]).is_empty());
        }
    }

    fn went_on(since: u64, at: u64) -> WentOnFrom {
        WentOnFrom { since: Instant(since * 1_000_000_000), at: Instant(at * 1_000_000_000), is_own: false }
    }

    #[test]
    fn a_volume_that_had_not_changed_for_a_while_fits_to_any_moment_of_that_while() {
        let broken = |id, since, at: u64| MirrorStatus {
            went_on_from: Some(went_on(since, at)),
            ..member(id, Some("shop"), State::BrokenOff, Some(at))
        };
        assert!(without(&[broken(1, 100, 100), broken(2, 90, 107)], &[]).is_empty());
        assert!(without(&[broken(1, 80, 100), broken(2, 90, 107)], &[]).is_empty());
        assert_eq!(without(&[broken(1, 80, 100), broken(2, 101, 107)], &[]).len(), 2);
        let in_use = MirrorStatus { source_heard: Some(SourceHeard::Follows), ..broken(2, 90, 107) };
        assert_eq!(without(&[broken(1, 100, 100), in_use.clone()], &[]).len(), 2);
        // Back at what hosts had written since the same point.
        let back = MirrorStatus {
            went_on_from: Some(WentOnFrom { is_own: true, ..went_on(100, 300) }),
            ..broken(1, 100, 300)
        };
        assert!(without(&[back.clone(), in_use], &[]).is_empty());
        assert_eq!(without(&[back, broken(2, 90, 99)], &[]).len(), 2);
    }

    #[test]
    fn what_no_group_could_be_taken_over_at_is_said() {
        let all = [
            member(1, Some("shop"), State::Mirrored, Some(100)),
            member(2, Some("shop"), State::Mirrored, Some(107)),
        ];
        for (common, words) in [
            (Some(true), "takes over an earlier one"),
            (Some(false), "they have no moment in common"),
            (None, "if there is one that all of them hold"),
        ] {
            let said = super::without(&all, &[], &|volumes| {
                assert_eq!(volumes.len(), 2);
                common
            });
            let said = &said[&Uuid::from_u128(1)];
            assert!(said.why.contains(words), "{said:?}");
            assert_eq!(said.is_of_no_use, common == Some(false));
        }
        let all: Vec<&MirrorStatus> = all.iter().collect();
        assert_eq!((differ(&all), differ(&all[..1])), (Some(true), Some(false)));
        let busy = member(2, Some("shop"), State::Transferring, Some(107));
        assert_eq!(differ(&[all[0], &busy]), None);
    }

    #[test]
    fn originals_whose_followers_were_deleted_fit_as_they_did() {
        let original = |id, at: u64| {
            let mut status = MirrorStatus {
                went_on_from: Some(went_on(at, at)),
                source_heard: Some(SourceHeard::Released),
                ..member(id, Some("shop"), State::BrokenOff, Some(at))
            };
            status.relationship.past.went_on_by = Some(WentOnBy::RoleChange);
            status
        };
        assert!(without(&[original(1, 100), original(2, 107)], &[]).is_empty());
        let mut by_person = original(2, 107);
        by_person.relationship.past.went_on_by = Some(WentOnBy::Break);
        assert_eq!(without(&[original(1, 100), by_person], &[]).len(), 2);
    }

    #[test]
    fn volumes_that_went_on_from_different_points_say_so() {
        let broken = |id, at: u64| MirrorStatus {
            went_on_from: Some(went_on(at, at)),
            ..member(id, Some("shop"), State::BrokenOff, Some(at))
        };
        let original = |id, at| MirrorStatus { source_heard: Some(SourceHeard::Follows), ..broken(id, at) };
        // Broken off as one, or changed their roles one after the other.
        assert!(without(&[broken(1, 100), broken(2, 100)], &[]).is_empty());
        assert!(without(&[original(1, 100), original(2, 107)], &[]).is_empty());
        // One of them was rolled back alone, or had changed its role before the other was taken over.
        for other in [broken(2, 107), original(2, 107)] {
            let said = without(&[broken(1, 100), other], &[]);
            assert_eq!(said.len(), 2);
            let why = &said[&Uuid::from_u128(1)];
            assert!(why.contains("went on from different points, from 1970-01-01T00:01:40Z"), "{why}");
            assert!(why.contains("farside snapshot rollback --group shop --at SNAP"), "{why}");
        }
        let overtaken = ["q/v2".parse().unwrap()];
        assert!(without(&[broken(1, 100), broken(2, 107)], &overtaken).is_empty());
    }
}
