//! `farside mirror resync --group` at a former source. What another site has taken over follows nothing here yet: which group it is in, that
//! site has said.

use farside_api::split::{group_of, overtaken};
use farside_api::{ErrorBody, ErrorCode, Mirror, Snapshot};

use super::members::{Group, Member, members};
use super::named::Verb;
use super::set_aside::left_as;
use crate::commands::context::Context;

/// The mirrors of the group, and volumes that were taken over by the site that they are of.
///
/// # Errors
/// If there are neither.
pub(super) async fn members_and_taken_over(context: &Context, group: &str) -> Result<Group, ErrorBody> {
    let of_group = members(context, group, Verb::Resync).await;
    let all: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let (mut of_group, known) = match of_group {
        Err(error) if error.code == ErrorCode::NotFound => {
            let empty =
                Group { members: Vec::new(), left_out: Vec::new(), originals: Vec::new(), split: None };
            (empty, Some(error))
        }
        of_group => (of_group?, None),
    };
    let key = of_group
        .members
        .first()
        .and_then(|m| group_of(&m.mirror))
        .map(|(_, site, pool)| (site.to_owned(), pool.to_owned()));
    let taken = of_site(group, &all, key.as_ref().map(|(site, pool)| (site.as_str(), pool.as_str())));
    for mirror in taken.unwrap_or_default() {
        if of_group.members.iter().any(|m| m.mirror.name == mirror.name) {
            continue;
        }
        let Some((pool, volume)) = mirror.name.split_once('/') else { continue };
        let snapshots: Vec<Snapshot> = context.client.get(&["volumes", pool, volume, "snapshots"]).await?;
        of_group.members.push(Member::taken_over(mirror, group, snapshots));
    }
    if let Some(error) = a_part(group, &of_group, &all) {
        return Err(error);
    }
    match known {
        Some(error) if of_group.members.is_empty() => Err(of_former_source(group, &all).unwrap_or(error)),
        _ => Ok(of_group),
    }
}

/// Why the group of `members` cannot be taken over here as a whole: others of it were taken over from here, follow nothing yet, and are as
/// hosts here left them. `at` fits if it is what each of `members` was left as. None if there are no others, or it fits.
pub(super) async fn left_behind(
    context: &Context,
    group: &str,
    members: &[Member],
    at: Option<&str>,
) -> Result<Option<ErrorBody>, ErrorBody> {
    let all: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    Ok(unfit(group, &all, members, at))
}

fn unfit(group: &str, all: &[Mirror], members: &[Member], at: Option<&str>) -> Option<ErrorBody> {
    let follow: Vec<&Member> = members.iter().filter(|member| !member.is_broken_off()).collect();
    let (_, site, pool) = group_of(&follow.first()?.mirror)?;
    let taken = of_site(group, all, Some((site, pool)))?;
    let left: Vec<&Mirror> =
        taken.into_iter().filter(|m| members.iter().all(|member| member.mirror.name != m.name)).collect();
    let began = left.iter().filter_map(|m| Some(m.overtaken.as_ref()?.since)).max()?;
    let left_as =
        |member: &&Member| Some((member.mirror.name.clone(), left_as(&member.mirror, began)?.to_owned()));
    let back: Option<Vec<(String, String)>> = follow.iter().map(left_as).collect();
    if at.is_some() && back.as_ref().is_some_and(|back| back.iter().all(|(_, name)| Some(&**name) == at)) {
        return None;
    }
    let names = |all: Vec<&str>| all.join(", ");
    let of_left = names(left.iter().map(|m| m.name.as_str()).collect());
    let of_follow = names(follow.iter().map(|member| member.mirror.name.as_str()).collect());
    let message = format!(
        "{of_left} of group {group} {was} taken over by {site}, {does} not follow there, and {is} as hosts here left {it}: {of_follow} as of any \
         moment of {site} would not fit. Nothing was changed",
        was = if left.len() == 1 { "was" } else { "were" },
        does = if left.len() == 1 { "does" } else { "do" },
        is = if left.len() == 1 { "is" } else { "are" },
        it = if left.len() == 1 { "it" } else { "them" },
    );
    let back = back.map_or_else(String::new, |back| {
        let lines = back.iter().map(|(volume, name)| format!("farside mirror break {volume} --at {name}"));
        format!("to have all as hosts here left them: {}. ", lines.collect::<Vec<_>>().join("; "))
    });
    Some(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "{back}To have all of it follow {site}: farside mirror resync --group {group}. One volume by itself, whatever becomes of the others: \
         farside mirror break POOL/VOL"
    )))
}

/// That the other site has taken over a part of the group alone: what follows it would not fit to the rest, which hosts here go on with.
fn a_part(group: &str, of_group: &Group, all: &[Mirror]) -> Option<ErrorBody> {
    let is_taken =
        |m: &&Mirror| of_group.members.iter().any(|of| of.is_taken_over() && of.mirror.name == m.name);
    let taken: Vec<&Mirror> = all.iter().filter_map(overtaken).filter(is_taken).collect();
    let rest =
        taken.iter().filter_map(|m| m.overtaken.as_ref()?.group_rest).max().filter(|rest| *rest > 0)?;
    let site = taken.first()?.destination.split_once(':').map_or("the other site", |(site, _)| site);
    let names = taken.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", ");
    let back: Vec<String> = taken
        .iter()
        .filter_map(|m| Some(format!("farside mirror resync {}", m.destination.split_once(':')?.1)))
        .collect();
    let message = format!(
        "of group {group} {site} has taken over {names} alone; {} of it {} not taken over from here. Volumes that hosts write to at two sites \
         do not fit together. Nothing was changed",
        if rest == 1 { "one volume".to_owned() } else { format!("{rest} volumes") },
        if rest == 1 { "was" } else { "were" },
    );
    Some(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "decide for all of it, at {site}: farside mirror break --group {group} takes over the rest, then this again; or {} gives back what was \
         taken over. One volume by itself, whatever becomes of the others: farside mirror resync POOL/VOL --from PEER:POOL/VOL",
        back.join(" and ")
    )))
}

/// What one site has taken over into one group of this name, of volumes in one pool: of the site and pool of `key`, if that is given. None
/// where it is not one.
fn of_site<'a>(group: &str, all: &'a [Mirror], key: Option<(&str, &str)>) -> Option<Vec<&'a Mirror>> {
    let place = |m: &'a Mirror| Some((m.destination.split_once(':')?.0, m.name.split_once('/')?.0));
    let is_of_it = |m: &&Mirror| {
        m.overtaken.as_ref().is_some_and(|o| {
            o.group.as_deref() == Some(group) && !o.ended && o.beyond.is_none() && o.follows.is_none()
        })
    };
    let taken: Vec<&Mirror> = all.iter().filter_map(overtaken).filter(is_of_it).collect();
    let first = key.or_else(|| place(taken.first()?))?;
    match key {
        Some(key) => Some(taken.into_iter().filter(|m| place(m) == Some(key)).collect()),
        None => taken.iter().all(|m| place(m) == Some(first)).then_some(taken),
    }
}

/// Where the other site has not said in which group each is: what was taken over is named, with what to type. None if nothing was.
fn of_former_source(group: &str, all: &[Mirror]) -> Option<ErrorBody> {
    let taken: Vec<&Mirror> = all.iter().filter_map(overtaken).collect();
    let first = taken.first()?;
    let lines: Vec<String> =
        taken.iter().map(|m| format!("farside mirror resync {} --from {}", m.name, m.destination)).collect();
    let site = first.destination.split_once(':').map_or("the other site", |(site, _)| site);
    let which = match taken.len() {
        1 => format!("if it is of group {group} there, to have it follow {site}: "),
        _ => format!("of these only those that are of group {group} there, to have them follow {site}: "),
    };
    let message = format!(
        "no mirror here is in a group {group} yet. These volumes here were taken over by another site, where farside mirror status shows \
         their groups: {}",
        taken.iter().map(|m| m.name.as_str()).collect::<Vec<_>>().join(", ")
    );
    Some(ErrorBody::new(ErrorCode::NotFound, message).hint(format!(
        "{which}{}; then farside mirror set POOL/VOL --group {group} for each that is",
        lines.join("; ")
    )))
}

#[cfg(test)]
mod tests {
    use farside_api::{MirrorState, Role};
    use serde_json::json;

    use super::super::members::tests::member;
    use super::*;

    fn taken(name: &str, by: &str, group: Option<&str>) -> Mirror {
        let mut taken = member(name, "mirrored", None, &[]).mirror;
        (taken.role, taken.destination) = (Role::Source, by.into());
        taken.overtaken = serde_json::from_value(json!({
            "since": "2026-11-26T12:00:00Z", "reported_at": "2026-11-26T12:00:00Z", "fenced": false, "snapshot": null,
            "diverged_bytes": null, "diverged_blocks": null, "group": group
        }))
        .ok();
        taken
    }

    #[test]
    fn what_one_site_has_taken_over_into_a_group_is_of_it() {
        let names = |all: &[Mirror], key| {
            of_site("shop", all, key).map(|of| of.iter().map(|m| m.name.clone()).collect::<Vec<_>>())
        };
        let (a, b) = (taken("p/a", "south:q/a", Some("shop")), taken("p/b", "south:q/b", Some("shop")));
        let other = taken("p/c", "south:q/c", None);
        assert_eq!(names(&[a.clone(), b.clone(), other], None), Some(vec!["p/a".into(), "p/b".into()]));
        // Of two sites it is no one group, unless one of them is meant.
        let west = taken("p/d", "west:q/d", Some("shop"));
        assert_eq!(names(&[a.clone(), west.clone()], None), None);
        assert_eq!(names(&[a.clone(), west], Some(("south", "p"))), Some(vec!["p/a".into()]));
        assert_eq!(names(&[], None), None);
        let member = Member::taken_over(&a, "shop", Vec::new());
        assert!(member.is_taken_over() && member.is_broken_off() && !member.is_valid_original());
        assert_eq!(
            (member.mirror.source.as_str(), member.mirror.group.as_deref()),
            ("south:q/a", Some("shop"))
        );
    }

    #[test]
    fn a_former_source_is_told_what_to_type() {
        let mut taken = member("p/a", "mirrored", None, &[]).mirror;
        taken.role = farside_api::Role::Source;
        taken.destination = "south:q/a".into();
        taken.state = MirrorState::Mirrored;
        assert!(of_former_source("shop", std::slice::from_ref(&taken)).is_none(), "nobody has taken it over");
        taken.overtaken = serde_json::from_value(json!({
            "since": "2026-11-26T12:00:00Z", "reported_at": "2026-11-26T12:00:00Z", "fenced": false, "snapshot": null, "diverged_bytes": null, "diverged_blocks": null
        }))
        .ok();
        assert!(taken.overtaken.is_some());
        let said = of_former_source("shop", &[taken]).unwrap();
        assert_eq!(said.code, ErrorCode::NotFound);
        let hint = said.hint.unwrap();
        assert!(hint.contains("farside mirror resync p/a --from south:q/a"), "{hint}");
        assert!(hint.contains("farside mirror set POOL/VOL --group shop"), "{hint}");
    }
}
