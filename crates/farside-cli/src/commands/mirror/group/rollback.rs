//! `farside snapshot rollback --group`: volumes of mirrors that are broken off go back to one moment.

use farside_api::{ErrorBody, ErrorCode, Mirror, Role, Rollback, StartRollback, Timestamp};
use reqwest::Method;
use serde::Serialize;

use super::members::{Group, Member, members, volumes_of};
use super::moments::{Line, instant_of};
use super::named::Verb;
use super::nothing_newer;
use super::set_aside::{kept, one_name};
use super::steps::{Step, consent, gone_since, refuse_losses};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::confirm::{DestructiveRequest, Impact, carry_out, is_interactive};
use crate::quantities::time;

/// What came of it.
#[derive(Serialize)]
struct RolledBack {
    group: String,
    created_at: Timestamp,
    volumes: Vec<Rollback>,
}

pub(crate) async fn roll_back(
    context: &Context,
    group: &str,
    at: &str,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let of_group = members(context, group, Verb::Rollback).await?;
    let Group { members, .. } = &of_group;
    if let Some(follows) = members.iter().find(|m| !m.is_broken_off()) {
        let message = format!(
            "group {group}: {} still follows its source, which alone decides what it shows. Nothing was changed",
            follows.mirror.name
        );
        return Err(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
            "farside mirror break --group {group} makes all of them writable; with --at at an earlier moment"
        )));
    }
    let originals: Vec<&str> =
        members.iter().filter(|m| m.is_original()).map(|m| m.mirror.name.as_str()).collect();
    need_word(group, &originals, destructive, is_interactive())?;
    let (instant, unmoved) = match instant_of(group, members, Some(at), None, Line::Any) {
        Ok(instant) => (instant, String::new()),
        Err(error) => nothing_newer::look(context, group, members, at).await?.ok_or(error)?,
    };
    let mut steps: Vec<Step<'_, StartRollback>> = Vec::new();
    // What all show has one name from now on, by which it can be gone back to.
    let body = Some(StartRollback { set_aside_at: Some(Timestamp::now()) });
    for (member, name) in members.iter().zip(&instant.names) {
        let (pool, volume) = member.split()?;
        let path = vec!["volumes", pool, volume, "snapshots", name, "rollback"];
        steps.push(Step { path, body: body.clone() });
    }
    let moment = time(instant.created_at);
    let others = others_there(group, members, &context.client.get::<Vec<Mirror>>(&["mirrors"]).await?);
    let headline = format!(
        "group {group}: {} back to {moment}\n{}{unmoved}{}",
        match members.len() {
            1 => "1 volume goes".to_owned(),
            count => format!("{count} volumes go, all that are known here,"),
        },
        of_originals(&originals) + &others,
        of_group.note(group)
    );
    of_group.note_aside(context, group);
    context.aside(&unmoved);
    let command = format!("farside snapshot rollback --group {group} ");
    refuse_losses(context, members.iter(), &steps, destructive).await?;
    if !consent(context, &command, &headline, &steps, destructive).await? {
        return Ok(());
    }
    let mut volumes: Vec<Rollback> = Vec::new();
    let mut delayed = Vec::new();
    for (at, (step, member)) in steps.iter().zip(members).enumerate() {
        let (path, impact) = (&step.path[..], Impact::Service);
        let one = DestructiveRequest { method: Method::POST, path, body: step.body.as_ref(), impact };
        let done =
            carry_out::<Rollback>(&context.client, one, Destructive { plan: false, yes: true }, context.json);
        let done = match done.await {
            // All of them wait, or the group would be torn.
            Err(error) if error.code == ErrorCode::Delayed => {
                delayed.push(error);
                continue;
            }
            done => done,
        };
        let done = done.map_err(|error| {
            let message = format!(
                "{at} of {} of group {group} {} back at {moment}; {} is not: {}",
                volumes_of(members.len()),
                if at == 1 { "is" } else { "are" },
                member.mirror.name,
                error.message
            );
            ErrorBody::new(error.code, message)
                .hint("the same command goes on; what each volume held stays as a side branch, see farside snapshot list")
        })?;
        volumes.extend(done);
    }
    if let Some(last) = delayed.pop() {
        let hints: Vec<String> =
            delayed.into_iter().chain([last.clone()]).filter_map(|one| one.hint).collect();
        return Err(ErrorBody::new(last.code, format!("all volumes of group {group}: {}", last.message))
            .hint(hints.join("; ")));
    }
    let done = RolledBack { group: group.to_owned(), created_at: instant.created_at, volumes };
    let gone = gone_since(context, members.iter()).await;
    context.aside(&gone);
    context.show(&done, |done| {
        let names: Vec<&str> = members.iter().map(|m| m.mirror.name.as_str()).collect();
        let kept_as = || done.volumes.iter().map(|volume| volume.kept_as.as_deref());
        let kept = match one_name(kept_as()) {
            Some(name) => format!(
                "what {} showed until then stays as {name}{}, which opens read-only; to take this back: farside snapshot rollback --group {group} --at {name}\n",
                if names.len() == 1 { "it" } else { "they" },
                if names.len() == 1 { "" } else { " of each" },
            ),
            None => kept(kept_as()),
        };
        let are = if names.len() == 1 { "is" } else { "are" };
        format!(
            "{} {are} as of {}\n{others}{unmoved}{kept}{gone}{}",
            names.join(", "),
            time(done.created_at),
            of_group.note(group)
        )
    });
    Ok(())
}

/// That other volumes here have a replica at the site that follows originals of the group: which group that is in only that site knows.
fn others_there(group: &str, members: &[Member], all: &[Mirror]) -> String {
    let Some(original) = members.iter().find(|member| member.is_original()) else { return String::new() };
    let Some((site, _)) = original.mirror.source.split_once(':') else { return String::new() };
    let is_other = |m: &&Mirror| {
        m.role == Role::Source
            && m.overtaken.is_none()
            && m.destination.split_once(':').is_some_and(|(of, _)| of == site)
            && members.iter().all(|member| member.mirror.name != m.name)
    };
    let others: Vec<&str> = all.iter().filter(is_other).map(|m| m.name.as_str()).collect();
    if others.is_empty() {
        return String::new();
    }
    let (is, it) = if others.len() == 1 { ("is", "it is") } else { ("are", "which of them are") };
    format!(
        "{} {is} mirrored to {site} as well, and {is} not taken back: whether {it} of group {group} there is not known here (farside mirror \
         status there shows it); what is of it goes back with farside snapshot rollback POOL/VOL@SNAP\n",
        others.join(", ")
    )
}

/// That volumes which go back are in use, a line; nothing if none is.
fn of_originals(originals: &[&str]) -> String {
    match originals {
        [] => String::new(),
        [one] => {
            format!("{one} is the original here: its hosts write to it, and its replica follows it back\n")
        }
        all => format!(
            "{} are the originals here: their hosts write to them, and their replicas follow them back\n",
            all.join(" and ")
        ),
    }
}

/// Originals do not go back without a word of a person: their hosts are at work.
fn need_word(
    group: &str,
    originals: &[&str],
    destructive: Destructive,
    is_interactive: bool,
) -> Result<(), ErrorBody> {
    if originals.is_empty() || destructive.plan || destructive.yes || is_interactive {
        return Ok(());
    }
    let message = format!(
        "group {group}: {}and there is no terminal on which to ask. Nothing was changed",
        of_originals(originals).replace('\n', ", ")
    );
    Err(ErrorBody::new(ErrorCode::WrongUsage, message)
        .hint("stop the hosts first; --plan shows what each volume would lose sight of; --yes goes ahead"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn originals_go_back_only_when_somebody_says_so() {
        let flags = |plan, yes| Destructive { plan, yes };
        let refused = need_word("g", &["p/a", "p/b"], flags(false, false), false).unwrap_err();
        assert!(refused.message.contains("p/a and p/b are the originals here"), "{}", refused.message);
        assert!(need_word("g", &["p/a"], flags(false, true), false).is_ok());
        assert!(need_word("g", &["p/a"], flags(true, false), false).is_ok());
        assert!(need_word("g", &["p/a"], flags(false, false), true).is_ok(), "it is asked later");
        assert!(need_word("g", &[], flags(false, false), false).is_ok());
    }
}
