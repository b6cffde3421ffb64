//! The moments that volumes of a group have in common, and what is said where they have none. Pure.

use std::collections::BTreeSet;

use farside_api::{ErrorBody, ErrorCode, MadeBy, Snapshot, Timestamp};

use super::members::Member;
use super::set_aside::{left_as, moment_of_name};

/// What all members have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Instant {
    pub(super) created_at: Timestamp,
    /// What it is called in each member, in their order.
    pub(super) names: Vec<String>,
}

/// The moment at which members of the group are broken off already, if some are.
pub(super) fn decided(members: &[Member]) -> Result<Option<Timestamp>, String> {
    let shows = |m: &Member| {
        let current = m.mirror.current_snapshot.as_deref()?;
        m.snapshots.iter().find(|s| s.name == current).map(|s| s.created_at)
    };
    let mut broken = members.iter().filter(|m| m.is_broken_off());
    let Some(first) = broken.next() else { return Ok(None) };
    let at = shows(first);
    match broken.find(|m| shows(m) != at) {
        None => Ok(at),
        Some(other) => Err(format!(
            "{} and {} are broken off already, at different points",
            first.mirror.name, other.mirror.name
        )),
    }
}

/// Where a moment may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Line {
    /// On what each volume shows, or has shown on the way there.
    Main,
    /// Also on side branches: what a break or a rollback has set aside.
    Any,
}

/// The newest instant that all members have: the one that a member calls `named`, or that is `decided`, where one is.
pub(super) fn choose(
    members: &[Member],
    named: Option<&str>,
    decided: Option<Timestamp>,
    line: Line,
) -> Result<Instant, String> {
    let (Some(first), rest) = (members.first(), members.get(1..).unwrap_or_default()) else {
        return Err("it has no mirrors".into());
    };
    // A name can be given again: the moment says whether it is the same. What mirrors took is named by each.
    let is_same = |a: &Snapshot, b: &Snapshot| {
        // What was set aside of them by one command after the other has other names, and is of one moment still.
        let is_of_mirror = |s: &Snapshot| s.made_by != MadeBy::Person || s.taken_by.is_some();
        let are_mirrors = is_of_mirror(a) && is_of_mirror(b);
        // What one command set aside has one name. Of what hosts wrote that is all it has in common: each was frozen in its turn.
        let is_one_rescue = a.name == b.name && moment_of_name(&a.name).is_some();
        is_one_rescue || a.created_at == b.created_at && (a.name == b.name || are_mirrors)
    };
    let is_shown = |s: &&Snapshot| s.on_main_line || line == Line::Any;
    let in_member = |m: &Member, wanted: &Snapshot| {
        m.snapshots.iter().filter(is_shown).find(|s| is_same(s, wanted)).map(|s| s.name.clone())
    };
    let is_called = |at: Timestamp, name: &str| {
        members.iter().flat_map(|m| &m.snapshots).any(|s| s.created_at == at && s.name == name)
    };
    // What a resync has set aside may lie on the line, below what came since: nobody means that who names nothing.
    let is_aside = |s: &Snapshot| {
        named.is_none() && decided.is_none() && line == Line::Main && moment_of_name(&s.name).is_some()
    };
    let is_wanted = |s: &&Snapshot| {
        !is_aside(s)
            && decided.is_none_or(|at| s.created_at == at)
            && named.is_none_or(|name| is_called(s.created_at, name))
    };
    let instant = |s: &Snapshot| {
        let others: Option<Vec<String>> = rest.iter().map(|m| in_member(m, s)).collect();
        let names = std::iter::once(s.name.clone()).chain(others?).collect();
        Some(Instant { created_at: s.created_at, names })
    };
    let common = first.snapshots.iter().filter(is_shown).filter(is_wanted).filter_map(instant);
    common.max_by_key(|instant| instant.created_at).ok_or_else(|| match (named, decided) {
        (Some(named), Some(at)) => {
            format!("one is broken off already, as of {at}, and that is not the moment of {named}")
        }
        (Some(named), None) => format!("not all of its mirrors have a snapshot of the moment of {named}"),
        (None, Some(at)) => {
            format!("one is broken off already, as of {at}, and not all of the others have a snapshot of that moment")
        }
        (None, None) => "its mirrors have no snapshot of one moment in common".into(),
    })
}

/// # Errors
/// If no member has a snapshot of this name.
pub(super) fn known(group: &str, members: &[Member], named: &str) -> Result<(), ErrorBody> {
    if members.iter().flat_map(|m| &m.snapshots).any(|s| s.name == named) {
        return Ok(());
    }
    let first = members.first().map_or("POOL/VOL", |m| m.mirror.name.as_str());
    let message = format!("no replica of group {group} has a snapshot {named}. Nothing was changed");
    Err(ErrorBody::new(ErrorCode::Refused, message)
        .hint(format!("farside snapshot list {first} shows what is there")))
}

/// The same, with what to do where there is none.
pub(super) fn instant_of(
    group: &str,
    members: &[Member],
    named: Option<&str>,
    decided: Option<Timestamp>,
    line: Line,
) -> Result<Instant, ErrorBody> {
    if let Some(named) = named {
        known(group, members, named)?;
    }
    choose(members, named, decided, line).map_err(|why| {
        let lack = lacking(members, named, decided, line);
        let lack = if lack.is_empty() { lack } else { format!("; {lack}") };
        ErrorBody::new(ErrorCode::Refused, format!("group {group}: {why}{lack}. Nothing was changed"))
            .hint(instead(group, members, decided, line))
    })
}

/// Which members lack the moment that was asked for; nothing if none was, or it is not one.
fn lacking(members: &[Member], named: Option<&str>, decided: Option<Timestamp>, line: Line) -> String {
    let all = || members.iter().flat_map(|m| &m.snapshots);
    let moments: BTreeSet<Timestamp> = match (named, decided) {
        (Some(named), _) => all().filter(|s| s.name == named).map(|s| s.created_at).collect(),
        (None, Some(at)) => BTreeSet::from([at]),
        (None, None) => return String::new(),
    };
    let Some(at) = moments.first().filter(|_| moments.len() == 1) else { return String::new() };
    // What lies beside the line of one is not gone: who names it is not to believe that.
    let has = |m: &&Member| {
        let counts = |s: &Snapshot| s.on_main_line || line == Line::Any || named.is_some();
        m.snapshots.iter().any(|s| s.created_at == *at && counts(s))
    };
    let lack: Vec<&str> = members.iter().filter(|m| !has(m)).map(|m| m.mirror.name.as_str()).collect();
    match lack[..] {
        [] => String::new(),
        [one] => format!("{one} lacks it"),
        _ => format!("{} lack it", lack.join(", ")),
    }
}

/// What can be had instead: the newest moments that all have, by what to type.
pub(super) fn instead(group: &str, members: &[Member], decided: Option<Timestamp>, line: Line) -> String {
    let common = match newest_common(members, line) {
        // A rollback of all gets there.
        none if none.is_empty() && decided.is_some() => newest_common(members, Line::Any),
        common => common,
    };
    if common.is_empty() && decided.is_some() {
        let left: Vec<&Member> = members.iter().filter(|m| !m.is_broken_off()).collect();
        return match left.is_empty() {
            true => "farside mirror status shows what each holds".into(),
            false => each_alone(&left),
        };
    }
    if common.is_empty() {
        return "an update brings all mirrors of a group to one moment, while their sources are there: farside mirror update POOL/VOL; \
                without --group each command works on one mirror by itself"
            .into();
    }
    let each: Vec<String> = named_first(members, &common)
        .into_iter()
        .filter_map(|instant| Some(format!("--at {} ({})", instant.names.first()?, instant.created_at)))
        .collect();
    let more = common.len() - each.len();
    let more = match (more, members.first()) {
        (0, _) | (_, None) => String::new(),
        (more, Some(first)) => format!(", and {more} more (farside snapshot list {})", first.mirror.name),
    };
    let have = format!("what all of them have, the newest first: {}{more}", each.join(", "));
    match decided {
        None => have,
        // Where one is broken off already, another moment is to be had for all only afterwards.
        Some(at) => {
            as_hosts_left(members).or_else(|| by_themselves(members, at)).unwrap_or_default()
                + &format!(
                    "{have}: farside mirror break POOL/VOL breaks off each of the others, then farside snapshot rollback --group {group} with \
             one of these takes all of them to it"
                )
        }
    }
}

/// The newest moments that all members have.
fn newest_common(members: &[Member], line: Line) -> Vec<Instant> {
    let Some(first) = members.first() else { return Vec::new() };
    let is_shown = |s: &&Snapshot| s.on_main_line || line == Line::Any;
    let moments: BTreeSet<Timestamp> =
        first.snapshots.iter().filter(is_shown).map(|s| s.created_at).collect();
    let instants = moments.into_iter().rev().filter_map(|at| choose(members, None, Some(at), line).ok());
    instants.take(COMMON_MAX).collect()
}

/// So many are looked for.
const COMMON_MAX: usize = 256;
/// So many of them are named, and as many of those that a person has named.
const NEWEST_COMMON: usize = 3;

/// Which of the moments, the newest first, are named: the newest, and those to which a person has given a name.
fn named_first<'a>(members: &[Member], common: &'a [Instant]) -> Vec<&'a Instant> {
    let is_of_person = |instant: &&Instant| {
        let of_first = members.first().zip(instant.names.first());
        of_first.is_some_and(|(first, name)| {
            first
                .snapshots
                .iter()
                .any(|s| s.name == *name && s.made_by == MadeBy::Person && s.taken_by.is_none())
        })
    };
    let (newest, rest) = common.split_at(common.len().min(NEWEST_COMMON));
    newest.iter().chain(rest.iter().filter(is_of_person).take(NEWEST_COMMON)).collect()
}

/// Where hosts went on with one, and others were in use with it and follow again since: what has all as hosts here left them; none if it is
/// not so of each of the others.
fn as_hosts_left(members: &[Member]) -> Option<String> {
    let began = members.iter().filter(|m| m.is_broken_off()).filter_map(|m| m.mirror.broken_off_at).max()?;
    let lines: Vec<String> = members
        .iter()
        .filter(|m| !m.is_broken_off())
        .map(|m| Some(format!("farside mirror break {} --at {}", m.mirror.name, left_as(&m.mirror, began)?)))
        .collect::<Option<_>>()?;
    if lines.is_empty() {
        return None;
    }
    Some(format!("to have all as hosts here left them: {}. Or ", lines.join("; ")))
}

/// Where what one went on from was set aside of it by itself, so was what the others would go on from, under other names: what to type for
/// each; none if it was not.
fn by_themselves(members: &[Member], decided: Timestamp) -> Option<String> {
    let is_rescue = |s: &Snapshot| s.created_at == decided && s.name.starts_with("rescue-");
    let is_it = |m: &&Member| m.is_broken_off() && m.snapshots.iter().any(&is_rescue);
    members.iter().find(is_it)?;
    let lines: Vec<String> = members
        .iter()
        .filter(|m| !m.is_broken_off())
        .map(|m| {
            Some(format!("farside mirror break {} --at {}", m.mirror.name, m.mirror.set_aside.as_ref()?.name))
        })
        .collect::<Option<_>>()?;
    Some(format!("to go on from what was set aside of each by itself: {}. Or ", lines.join("; ")))
}

/// What takes over those that have no moment of the others.
pub(super) fn each_alone(left: &[&Member]) -> String {
    let lines: Vec<String> = left.iter().map(|m| format!("farside mirror break {}", m.mirror.name)).collect();
    format!(
        "The rest has no snapshot of that moment, and can be taken over only as of another: {}",
        lines.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use farside_api::TakenBy;

    use super::super::members::tests::member;
    use super::*;

    #[test]
    fn the_newest_instant_that_all_have() {
        let a = member(
            "q/a",
            "mirrored",
            None,
            &[("s1", "10:00"), ("s2", "11:00"), ("mirror-1", "11:30"), ("s3", "12:00")],
        );
        let b = member("q/b", "transferring", None, &[("s1", "10:00"), ("s2", "11:00"), ("s3", "12:07")]);
        let both = [a, b];
        let names = |named| choose(&both, named, None, Line::Main).unwrap().names;
        assert_eq!(names(None), ["s2", "s2"], "s3 is of another moment in each");
        assert_eq!(names(Some("s1")), ["s1", "s1"]);
        assert!(choose(&both, Some("s3"), None, Line::Main).unwrap_err().contains("s3"));
        let c = member("q/c", "mirrored", None, &[("mirror-2", "11:30")]);
        let [a, b] = both;
        assert!(
            choose(&[a, b, c], None, None, Line::Main).unwrap_err().contains("no snapshot of one moment")
        );
        assert!(choose(&[], None, None, Line::Main).is_err());
    }

    #[test]
    fn what_mirrors_took_is_the_same_by_its_moment_alone() {
        let both = [
            member("q/a", "mirrored", None, &[("s1", "10:00"), ("mirror-1", "11:30"), ("x", "12:00")]),
            member("q/b", "mirrored", None, &[("s1", "10:00"), ("mirror-2", "11:30"), ("y", "12:00")]),
        ];
        let names = |named| choose(&both, named, None, Line::Main).unwrap().names;
        assert_eq!(names(None), ["mirror-1", "mirror-2"], "of what persons made the name counts, too");
        assert_eq!(names(Some("mirror-2")), ["mirror-1", "mirror-2"], "whichever calls it so");
    }

    #[test]
    fn what_is_broken_off_already_decides() {
        let all = [("s1", "10:00"), ("s2", "11:00"), ("s3", "12:00")];
        let both = [member("q/a", "broken-off", Some("s2"), &all), member("q/b", "mirrored", None, &all)];
        let before = decided(&both).unwrap();
        assert_eq!(choose(&both, None, before, Line::Main).unwrap().names, ["s2", "s2"]);
        assert!(choose(&both, Some("s3"), before, Line::Main).is_err());
        let [a, b] = both;
        let other = member("q/c", "broken-off", Some("s3"), &all);
        assert!(decided(&[a, b, other]).unwrap_err().contains("different points"));
    }

    #[test]
    fn what_one_command_has_set_aside_is_of_one_moment() {
        let rescue = "rescue-2026-11-26T12:00:00.000000Z";
        let mut both = [
            member("q/a", "broken-off", None, &[("s1", "10:00"), (rescue, "12:00")]),
            member("q/b", "broken-off", None, &[("s1", "10:00"), (rescue, "12:01")]),
        ];
        both.iter_mut().for_each(|member| member.snapshots[1].on_main_line = false);
        assert_eq!(choose(&both, Some(rescue), None, Line::Any).unwrap().names, [rescue, rescue]);
        assert!(choose(&both, Some(rescue), None, Line::Main).is_err());
    }

    #[test]
    fn what_nobody_has_is_said_to_be_nowhere() {
        let both = [
            member("q/a", "mirrored", None, &[("s1", "10:00"), ("s2", "11:00")]),
            member("q/b", "mirrored", None, &[("s1", "10:00")]),
        ];
        let said = |named| instant_of("shop", &both, Some(named), None, Line::Main).unwrap_err();
        assert_eq!(said("s11").message, "no replica of group shop has a snapshot s11. Nothing was changed");
        assert!(said("s11").hint.unwrap().contains("farside snapshot list q/a"));
        let lacks = said("s2");
        assert!(
            lacks
                .message
                .contains("not all of its mirrors have a snapshot of the moment of s2; q/b lacks it")
        );
        let hint = lacks.hint.unwrap();
        assert!(hint.ends_with("the newest first: --at s1 (2026-11-26T10:00:00Z)"), "{hint}");
        assert!(!hint.contains("farside mirror update"), "{hint}");
    }

    #[test]
    fn what_was_set_aside_one_after_the_other_is_the_same_by_its_moment() {
        let (one, other) = ("rescue-2026-11-26T12:00:00.000000Z", "rescue-2026-11-26T12:05:00.000000Z");
        let mut both = [
            member("q/a", "broken-off", None, &[("s1", "10:00"), (one, "11:00")]),
            member("q/b", "broken-off", None, &[("s1", "10:00"), (other, "11:00")]),
        ];
        for member in &mut both {
            member.snapshots[1].on_main_line = false;
            member.snapshots[1].taken_by = Some(TakenBy::Rescue);
        }
        assert_eq!(choose(&both, Some(one), None, Line::Any).unwrap().names, [one, other]);
        // What hosts wrote was frozen in its turn, and is of no one moment.
        both[1].snapshots[1].created_at = both[1].snapshots[0].created_at;
        assert!(choose(&both, Some(one), None, Line::Any).is_err());
    }
}
