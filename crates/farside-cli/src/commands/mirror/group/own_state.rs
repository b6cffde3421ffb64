//! `farside mirror break --group` of what is to be resynced and shows its own state until then: the resync is given up, and each stays as
//! it is. As hosts here left it is newer than any moment that its source has.

use farside_api::{BreakMirror, ErrorBody, ErrorCode, Mirror};
use reqwest::Method;
use serde::Serialize;

use super::abort::{give_up, lines, names, refused_break, with_given_up};
use super::members::{Group, Member, mirrors_of};
use super::moments::{Line, instead};
use super::steps::{Step, consent};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::confirm::{DestructiveRequest, Impact, carry_out};

/// What came of it.
#[derive(Serialize)]
struct GivenBack {
    group: String,
    mirrors: Vec<Mirror>,
}

/// Those that are to be resynced.
pub(super) fn pending(members: &[Member]) -> Vec<&Member> {
    members.iter().filter(|member| member.shows_own_state()).collect()
}

pub(super) async fn give_back(
    context: &Context,
    group: &str,
    of_group: &Group,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let pending = pending(&of_group.members);
    if let Some(error) = refused(group, &of_group.members) {
        let names = names(&of_group.members);
        return Err(refused_break(context, &names, destructive.plan, error).await);
    }
    let mut steps = Vec::new();
    for member in &pending {
        let body = Some(BreakMirror { at: None, set_aside_at: None });
        steps.push(Step { path: member.path("break")?.to_vec(), body });
    }
    let note = of_group.note(group);
    let headline = format!(
        "group {group}: {} to break off: the resync that is pending is given up, and each stays as hosts here left it\n{note}",
        mirrors_of(pending.len())
    );
    context.aside(&note);
    let command = format!("farside mirror break --group {group} ");
    if !consent(context, &command, &headline, &steps, destructive).await? {
        return Ok(());
    }
    let given_up = give_up(context, &names(&of_group.members)).await;
    context.aside(&lines(&given_up));
    let mut mirrors: Vec<Mirror> = Vec::new();
    for (step, member) in steps.iter().zip(&pending) {
        let (path, impact) = (&step.path[..], Impact::Service);
        let one = DestructiveRequest { method: Method::POST, path, body: step.body.as_ref(), impact };
        let done =
            carry_out::<Mirror>(&context.client, one, Destructive { plan: false, yes: true }, context.json);
        let done = done.await.map_err(|error| {
            let message = format!(
                "group {group}: {} {} broken off; {} is not: {}",
                mirrors_of(mirrors.len()),
                if mirrors.len() == 1 { "is" } else { "are" },
                member.mirror.name,
                error.message
            );
            let error = ErrorBody::new(error.code, message).hint("the same command goes on with the others");
            with_given_up(error, &given_up)
        })?;
        mirrors.extend(done);
    }
    let done = GivenBack { group: group.to_owned(), mirrors };
    if context.json {
        faster(&done.mirrors).lines().for_each(|line| eprintln!("farside: {line}"));
    }
    context
        .show(&done, |done| given_back(&done.mirrors) + &faster(&done.mirrors) + &note + &lines(&given_up));
    Ok(())
}

/// That one of the group shows a version of its source already, which what the others show does not fit.
fn refused(group: &str, members: &[Member]) -> Option<ErrorBody> {
    let names = |is_it: &dyn Fn(&&Member) -> bool| {
        let named = members.iter().filter(is_it).map(|m| m.mirror.name.as_str());
        named.collect::<Vec<_>>().join(", ")
    };
    let follows = members.iter().find(|m| !m.is_broken_off() && !m.shows_own_state())?;
    let own = members.iter().find(|m| m.shows_own_state())?;
    let message = format!(
        "group {group}: a resync is pending of {}, which shows its own state until then; {} shows a version of its source already. As they \
         are they do not fit. Nothing was changed",
        names(&|m| m.shows_own_state()),
        names(&|m| !m.is_broken_off() && !m.shows_own_state()),
    );
    let (own, follows) = (&own.mirror.name, &follows.mirror.name);
    Some(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "to let it end: farside mirror resync --group {group} goes on. To have what hosts here left: farside mirror break {own}, and farside \
         mirror break {follows} --at rescue-TIME, by the name under which farside snapshot list {follows} has what the resync set aside. To \
         have an earlier moment with farside mirror break --group {group} --at: {}",
        instead(group, members, None, Line::Main)
    )))
}

/// What hosts find.
fn given_back(mirrors: &[Mirror]) -> String {
    let names: Vec<&str> = mirrors.iter().filter(|m| m.shows_own_state).map(|m| m.name.as_str()).collect();
    let refused = mirrors.iter().filter_map(|m| {
        Some(format!("but hosts' writes to {} fail for now: {}\n", m.name, m.hosts_refused.as_ref()?))
    });
    let refused: String = refused.collect();
    match names.len() {
        0 => refused,
        count => format!(
            "{} {} writable, as hosts here left {}: the resync is given up, and nothing of {} was brought\n{refused}",
            names.join(", "),
            if count == 1 { "is" } else { "are" },
            if count == 1 { "it" } else { "them" },
            if count == 1 { "its source" } else { "their sources" },
        ),
    }
}

/// Those whose resync had ended meanwhile.
fn faster(mirrors: &[Mirror]) -> String {
    let had_ended = mirrors.iter().filter(|m| !m.shows_own_state);
    had_ended
        .map(|m| {
            format!(
                "{} is writable, and shows a version of {}: its resync was faster than this; what it showed before stays as a side branch \
                 (farside snapshot list {})\n",
                m.name, m.source, m.name
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::members::tests::member;
    use super::*;

    fn own(name: &str) -> Member {
        let mut member = member(name, "queued", None, &[]);
        member.mirror.shows_own_state = true;
        member
    }

    #[test]
    fn what_was_resynced_already_keeps_what_was_not() {
        let follows = || member("q/log", "mirrored", None, &[]);
        let broken = || member("q/log", "broken-off", None, &[]);
        let said = refused("shop", &[own("q/data"), follows()]).unwrap();
        assert!(said.message.contains("q/data, which shows its own state"), "{}", said.message);
        assert!(said.message.contains("q/log shows a version of its source already"), "{}", said.message);
        assert!(said.hint.unwrap().contains("farside mirror break q/log --at rescue-TIME"));
        // What was not asked to follow yet is as hosts left it, too.
        assert!(refused("shop", &[own("q/data"), broken()]).is_none());
        assert!(refused("shop", &[own("q/data"), own("q/log")]).is_none());
    }

    #[test]
    fn what_stays_as_it_is_is_called_so() {
        let mirrors = [own("q/data").mirror, own("q/log").mirror];
        let said = given_back(&mirrors);
        assert!(said.starts_with("q/data, q/log are writable, as hosts here left them"), "{said}");
        assert_eq!(faster(&mirrors), "");
        let late = [own("q/data").mirror, member("q/log", "broken-off", None, &[]).mirror];
        assert!(given_back(&late).starts_with("q/data is writable, as hosts here left it"));
        assert!(faster(&late).starts_with("q/log is writable, and shows a version of a:p/v"));
    }
}
