//! Volumes here that another site has taken over, and that belong to a group there of which a part follows here already. In a group here
//! they are again only once somebody says so.

use farside_api::split::{group_of, overtaken};
use farside_api::{ErrorBody, ErrorCode, Mirror, Role};

use super::members::Member;
use crate::commands::context::Context;

/// One that was overtaken, at a site that a member of the group follows.
#[derive(Clone)]
pub(super) struct Overtaken {
    name: String,
    /// `PEER:POOL/VOL`.
    by: String,
    /// Whether it is of the group there; none if that cannot be asked.
    is_of_group: Option<bool>,
}

/// Those that are of the group, or may be.
pub(super) async fn of(context: &Context, group: &str, members: &[Member]) -> Vec<Overtaken> {
    let Ok(here) = context.client.get::<Vec<Mirror>>(&["mirrors"]).await else { return Vec::new() };
    let mut found = Vec::new();
    for (name, by) in candidates(&here, members) {
        let there = match by.split_once(':').and_then(|(site, _)| context.client.of_peer(site)) {
            Some(there) => there.get::<Vec<Mirror>>(&["mirrors"]).await.ok(),
            None => None,
        };
        let is_of_group = is_of(group, &name, &by, &here, there.as_deref());
        if is_of_group != Some(false) {
            found.push(Overtaken { name, by, is_of_group });
        }
    }
    found
}

/// What was overtaken at a site that a member follows: the volume here, and the one there. A member itself is none of them.
fn candidates(here: &[Mirror], members: &[Member]) -> Vec<(String, String)> {
    let site = |name: &str| name.split_once(':').map(|(site, _)| site.to_owned());
    let followed: Vec<String> = members.iter().filter_map(|m| site(&m.mirror.source)).collect();
    // One that holds nothing that can be used, as its pool was set back, is a member all the same.
    let in_group = |name: &str| {
        let groups: Vec<_> = members.iter().filter_map(|m| group_of(&m.mirror)).collect();
        let is_it = |m: &Mirror| m.role == Role::Destination && m.name == name;
        here.iter().filter(|m| is_it(m)).filter_map(group_of).any(|group| groups.contains(&group))
    };
    let is_candidate = |m: &&Mirror| {
        let is_member = members.iter().any(|member| member.mirror.name == m.name) || in_group(&m.name);
        !is_member && site(&m.destination).is_some_and(|site| followed.contains(&site))
    };
    let all = here.iter().filter_map(overtaken).filter(is_candidate);
    all.map(|m| (m.name.clone(), m.destination.clone())).collect()
}

/// Whether it is of the group: by what is known here of a way back, by what its site has told, else by what that answers.
fn is_of(group: &str, name: &str, by: &str, here: &[Mirror], there: Option<&[Mirror]>) -> Option<bool> {
    let in_group = |m: &Mirror| m.role == Role::Destination && m.group.as_deref() == Some(group);
    if here.iter().any(|m| m.name == name && in_group(m)) {
        return Some(true);
    }
    let is_it = |m: &&Mirror| m.name == name && m.destination == by;
    if let Some(told) =
        here.iter().filter_map(overtaken).find(is_it).and_then(|m| m.overtaken.as_ref()?.group.as_ref())
    {
        return Some(told == group);
    }
    let (_, volume) = by.split_once(':')?;
    Some(there?.iter().any(|m| m.name == volume && in_group(m)))
}

/// That some are of the group and would be left behind; none if none is.
pub(super) fn refused(group: &str, all: &[Overtaken]) -> Option<ErrorBody> {
    let of_group: Vec<&Overtaken> = all.iter().filter(|one| one.is_of_group == Some(true)).collect();
    if of_group.is_empty() {
        return None;
    }
    let message = format!(
        "group {group}: {}. No role was changed",
        of_group.iter().map(|one| one.said(group)).collect::<Vec<_>>().join("; ")
    );
    let lines: Vec<String> = of_group.iter().map(|one| one.line(group)).collect();
    Some(ErrorBody::new(ErrorCode::Refused, message).hint(format!("{}; then this again", lines.join("; "))))
}

/// A line for those of which it is not known: a fleet has many, and each line would say the same.
pub(super) fn unknown(group: &str, all: &[Overtaken]) -> String {
    let unknown: Vec<&Overtaken> = all.iter().filter(|one| one.is_of_group.is_none()).collect();
    match unknown[..] {
        [] => String::new(),
        [one] => format!(
            "{} here was taken over by {}; whether that is of group {group} there cannot be asked from here: if it is, {}\n",
            one.name,
            one.by,
            one.line(group)
        ),
        [first, ..] => {
            let names: Vec<&str> = unknown.iter().map(|one| one.name.as_str()).collect();
            let site = first.by.split_once(':').map_or("another site", |(site, _)| site);
            format!(
                "{} here were taken over by {site}; which of them are of group {group} there cannot be asked from here, farside mirror status \
                 there shows it: of {}, if it is, {}; likewise of the others\n",
                names.join(", "),
                first.name,
                first.line(group)
            )
        }
    }
}

/// A line for each that is of the group, or may be.
pub(super) fn note(group: &str, all: &[Overtaken]) -> String {
    let of_group = all.iter().filter(|one| one.is_of_group == Some(true));
    let known: String = of_group.map(|one| format!("{}: {}\n", one.said(group), one.line(group))).collect();
    known + &unknown(group, all)
}

impl Overtaken {
    fn said(&self, group: &str) -> String {
        format!(
            "{} here was taken over by {}, which is of the group there, and is not in group {group} here",
            self.name, self.by
        )
    }

    /// What to type.
    fn line(&self, group: &str) -> String {
        let Overtaken { name, by, is_of_group } = self;
        if *is_of_group == Some(true) {
            return format!("farside mirror resync --group {group} has it follow with the rest");
        }
        format!("farside mirror resync {name} --from {by}, then farside mirror set {name} --group {group}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::members::tests::member;
    use super::*;

    #[test]
    fn who_was_taken_over_and_is_of_the_group_there_is_not_forgotten() {
        let mut log = member("p/log", "mirrored", None, &[]).mirror;
        log.role = Role::Source;
        log.destination = "a:q/log".into();
        log.overtaken = serde_json::from_value(json!({
            "since": "2026-11-26T12:00:00Z", "reported_at": "2026-11-26T12:00:00Z", "fenced": false, "snapshot": null,
            "diverged_bytes": null, "diverged_blocks": null
        }))
        .ok();
        let members = [member("p/data", "mirrored", None, &[])];
        let here = [log.clone(), members[0].mirror.clone()];
        let found = candidates(&here, &members);
        assert_eq!(found, [("p/log".to_owned(), "a:q/log".to_owned())]);
        let there = Mirror { group: Some("shop".into()), ..member("q/log", "broken-off", None, &[]).mirror };
        let of = |group, there: Option<&[Mirror]>| is_of(group, "p/log", "a:q/log", &here, there);
        assert_eq!(of("shop", Some(std::slice::from_ref(&there))), Some(true));
        assert_eq!(of("other", Some(&[there])), Some(false));
        assert_eq!(of("shop", None), None);
        // At another site than the one that is followed it is another matter.
        let mut told = log.clone();
        told.overtaken.as_mut().unwrap().group = Some("shop".into());
        assert_eq!(is_of("shop", "p/log", "a:q/log", &[told], None), Some(true));
        let elsewhere = Mirror { destination: "c:q/log".into(), ..log };
        assert!(candidates(&[elsewhere], &members).is_empty());

        let one = |is_of_group| [Overtaken { name: "p/log".into(), by: "a:q/log".into(), is_of_group }];
        let error = refused("shop", &one(Some(true))).unwrap();
        assert_eq!(error.code, ErrorCode::Refused);
        assert!(error.message.contains("p/log here was taken over by a:q/log"), "{}", error.message);
        let hint = error.hint.unwrap();
        assert!(hint.contains("farside mirror resync --group shop has it follow with the rest"), "{hint}");
        assert_eq!(refused("shop", &one(None)), None);
        let said = unknown("shop", &one(None));
        assert!(said.contains("cannot be asked from here"), "{said}");
        assert!(
            said.contains("resync p/log --from a:q/log, then farside mirror set p/log --group shop"),
            "{said}"
        );
        assert!(note("shop", &one(Some(true))).starts_with("p/log here was taken over"));
        let other = Overtaken { name: "p/www".into(), by: "a:q/www".into(), is_of_group: None };
        let said = unknown("shop", &[one(None), [other]].concat());
        assert!(
            said.starts_with("p/log, p/www here were taken over by a;") && said.lines().count() == 1,
            "{said}"
        );
    }
}
