//! What hosts wrote to those of a group that have changed roles and are the originals here: with the others, taken over as of a moment of
//! the past, they fit only if they are as they were then.

use farside_api::{ErrorBody, ErrorCode, Timestamp};

use super::members::Member;
use super::moments::Instant;
use super::since::{Since, since};
use crate::commands::context::Context;
use crate::quantities::{size, time};

/// An original here, and what it holds since a moment.
pub(super) struct Turned<'a> {
    name: &'a str,
    /// The site of its former source.
    site: &'a str,
    since: Since,
}

/// What each of the originals holds that it did not at a moment. Of one that has no snapshot of then or before nobody knows.
pub(super) async fn look<'a>(
    context: &Context,
    originals: &'a [Member],
    at: Timestamp,
) -> Result<Vec<Turned<'a>>, ErrorBody> {
    let mut turned = Vec::new();
    for member in originals {
        let since = match member.newest_by(at) {
            Some(snapshot) => match since(context, member, snapshot).await? {
                // What differs from an older one may have been written before.
                Since::Written(_) if member.created_at(snapshot) != Some(at) => Since::Unknown,
                since => since,
            },
            None => Since::Unknown,
        };
        let site = member.mirror.source.split_once(':').map_or("the other site", |(site, _)| site);
        turned.push(Turned { name: &member.mirror.name, site, since });
    }
    Ok(turned)
}

/// That others are not broken off as of a moment which the originals do not show (any more); none if all do. `left`: those others, and what
/// the moment is called in each; `whole`: the newest moment that all of the group have, what it is called there, and what it is in `left`.
pub(super) fn refused(
    group: &str,
    at: Timestamp,
    turned: &[Turned<'_>],
    left: &[(&str, &str)],
    whole: Option<&Whole>,
) -> Option<ErrorBody> {
    let (first_left, _) = left.first()?;
    let written: Vec<&Turned<'_>> = turned.iter().filter(|one| one.since != Since::Nothing).collect();
    let site = written.first()?.site;
    let each: Vec<String> = written
        .iter()
        .map(|Turned { name, since, .. }| match since {
            Since::Written(bytes) => format!(
                "{name} is the original here already, and hosts have written to it since {} ({} differ)",
                time(at),
                size(*bytes)
            ),
            _ => format!(
                "{name} is the original here already, and hosts may have written to it since {}",
                time(at)
            ),
        })
        .collect();
    let others: Vec<&str> = left.iter().map(|(name, _)| *name).collect();
    let message = format!(
        "group {group}: {}. {} as of then would not fit. Nothing was changed",
        each.join("; "),
        others.join(", ")
    );
    let back = match whole {
        Some(whole) => whole.way_back(group),
        None => String::from("there is no moment that all of the group have"),
    };
    Some(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "{back}. If {site} comes back, farside mirror swap --group {group} brings the rest here without a loss. Whoever goes without one \
         moment breaks {first_left} off by itself: farside mirror break {first_left}"
    )))
}

/// A moment that all of a group have, originals and others.
pub(super) struct Whole {
    at: Timestamp,
    /// What one of them calls it.
    name: String,
    /// Those that are to be broken off, and what each calls it.
    left: Vec<(String, String)>,
}

impl Whole {
    /// `names`: of which members the instant is, in its order; of these `is_left` are to be broken off.
    pub(super) fn of(
        instant: &Instant,
        members: &[Member],
        is_left: impl Fn(&Member) -> bool,
    ) -> Option<Whole> {
        let all = members.iter().zip(&instant.names);
        let left = all.filter(|(member, _)| is_left(member));
        let left = left.map(|(member, name)| (member.mirror.name.clone(), name.clone())).collect();
        Some(Whole { at: instant.created_at, name: instant.names.first()?.clone(), left })
    }

    /// What takes all of the group to it.
    pub(super) fn way_back(&self, group: &str) -> String {
        let break_of = |(name, at): &(String, String)| format!("farside mirror break {name} --at {at}");
        format!(
            "to have all of it as of {}: {}, then farside snapshot rollback --group {group} --at {}; what each holds beyond that stays as a \
             side branch",
            time(self.at),
            self.left.iter().map(break_of).collect::<Vec<_>>().join("; "),
            self.name
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::members::tests::{member, original};
    use super::*;

    #[test]
    fn an_original_that_was_written_keeps_the_others() {
        let at: Timestamp = "2026-11-26T12:00:00Z".parse().unwrap();
        let left = [("q/log", "mirror-2")];
        let of = |since| [Turned { name: "q/data", site: "a", since }];
        let members = [original("q/data"), member("q/log", "mirrored", None, &[])];
        let instant = Instant { created_at: at, names: vec!["kept-1".into(), "kept-2".into()] };
        let whole = Whole::of(&instant, &members, |m| !m.is_broken_off());
        let said = refused("shop", at, &of(Since::Written(4096)), &left, whole.as_ref()).unwrap();
        assert!(said.message.contains("q/data is the original here already"), "{said:?}");
        assert!(said.message.contains("(4.0 KiB differ). q/log as of then would not fit"), "{said:?}");
        let hint = said.hint.unwrap();
        assert!(
            hint.contains(
                "farside mirror break q/log --at kept-2, then farside snapshot rollback --group shop --at kept-1"
            ),
            "{hint}"
        );
        assert!(hint.contains("If a comes back, farside mirror swap --group shop"), "{hint}");
        assert!(hint.ends_with("by itself: farside mirror break q/log"), "{hint}");
        let said = refused("shop", at, &of(Since::Unknown), &left, None).unwrap();
        assert!(said.message.contains("may have written"), "{said:?}");
        assert!(said.hint.unwrap().starts_with("there is no moment"));
        assert!(refused("shop", at, &of(Since::Nothing), &left, None).is_none());
        assert!(refused("shop", at, &of(Since::Written(1)), &[], None).is_none(), "nothing is left");
    }

    #[test]
    fn what_an_original_held_at_a_moment_is_in_the_newest_of_its_snapshots_by_then() {
        let all = [("s1", "10:00"), ("s2", "11:00"), ("s3", "12:00")];
        let original = member("q/a", "broken-off", None, &all);
        assert_eq!(original.newest_by("2026-11-26T11:30:00Z".parse().unwrap()), Some("s2"));
        assert_eq!(original.newest_by("2026-11-26T09:00:00Z".parse().unwrap()), None);
    }
}
