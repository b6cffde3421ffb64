//! `farside mirror break --group`.

use farside_api::{BreakMirror, ErrorBody, Mirror, Timestamp};
use reqwest::Method;
use serde::Serialize;

use super::members::{Group, Line, Member, Step, consent, decided, instant_of, known, members};
use super::set_aside::{kept, moment_of};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::confirm::{DestructiveRequest, Impact, carry_out};
use crate::quantities::time;

/// What came of it.
#[derive(Serialize)]
struct Broken {
    group: String,
    created_at: Timestamp,
    mirrors: Vec<Mirror>,
}

pub(crate) async fn break_off(
    context: &Context,
    group: &str,
    at: Option<String>,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let of_group = members(context, group).await?.replicas(group)?;
    let Group { members, .. } = &of_group;
    // What was broken off already decides.
    let before = decided(members).map_err(|why| {
        ErrorBody::new(farside_api::ErrorCode::Refused, format!("group {group}: {why}. Nothing was changed"))
            .hint(format!("farside snapshot rollback --group {group} --at SNAP takes volumes that are broken off to one moment"))
    })?;
    if let Some(at) = &at {
        known(group, members, at)?;
    }
    if let Some(at) = &at
        && members.iter().all(Member::is_broken_off)
        && instant_of(group, members, Some(at), before, Line::Main).is_err()
    {
        return Err(already(group, at));
    }
    let instant = instant_of(group, members, at.as_deref(), before, Line::Main)?;
    let left: Vec<(&Member, &String)> =
        members.iter().zip(&instant.names).filter(|(m, _)| !m.is_broken_off()).collect();
    let mut steps = Vec::new();
    for (member, name) in &left {
        let body = Some(BreakMirror { at: Some((*name).clone()), set_aside_at: None });
        steps.push(Step { path: member.path("break")?.to_vec(), body });
    }
    let moment = time(instant.created_at);
    let headline = format!(
        "group {group}: {} mirrors to break off, all as of {moment}\n{}",
        left.len(),
        of_group.note(group)
    );
    of_group.note_aside(context, group);
    let command = format!("farside mirror break --group {group} ");
    if !consent(context, &command, &headline, &steps, destructive).await? {
        return Ok(());
    }
    let mut mirrors: Vec<Mirror> = Vec::new();
    for (at, (step, (member, _))) in steps.iter().zip(&left).enumerate() {
        let (path, impact) = (&step.path[..], Impact::Service);
        // All that this command sets aside has one moment, by which it can be gone back to.
        let set_aside_at = mirrors.iter().find_map(|mirror| moment_of(mirror.kept_as.as_deref()?));
        let body = step.body.clone().map(|body| BreakMirror { set_aside_at, ..body });
        let one = DestructiveRequest { method: Method::POST, path, body: body.as_ref(), impact };
        let done =
            carry_out::<Mirror>(&context.client, one, Destructive { plan: false, yes: true }, context.json);
        let done = done.await.map_err(|error| {
            let message = format!(
                "{} of {} mirrors of group {group} are broken off, as of {moment}; {} is not: {}",
                members.len() - left.len() + at,
                members.len(),
                member.mirror.name,
                error.message
            );
            ErrorBody::new(error.code, message)
                .hint("the same command goes on with the others, at the same instant")
        })?;
        mirrors.extend(done);
    }
    let done = Broken { group: group.to_owned(), created_at: instant.created_at, mirrors };
    context.show(&done, |done| {
        let names: Vec<&str> = members.iter().map(|m| m.mirror.name.as_str()).collect();
        let kept = kept(done.mirrors.iter().map(|mirror| mirror.kept_as.as_deref()));
        let refused: Vec<&Mirror> = done.mirrors.iter().filter(|m| m.hosts_refused.is_some()).collect();
        let are = if refused.is_empty() { "writable" } else { "broken off" };
        let writable = format!("{} are {are}, all as of {}\n", names.join(", "), time(done.created_at));
        let refused: String = refused
            .iter()
            .filter_map(|m| {
                Some(format!("but hosts' writes to {} fail for now: {}\n", m.name, m.hosts_refused.as_ref()?))
            })
            .collect();
        writable + &refused + &kept + &of_group.note(group)
    });
    Ok(())
}

/// All of the group are broken off, at another moment than the one that is wanted.
fn already(group: &str, at: &str) -> ErrorBody {
    let message = format!("group {group} is broken off already. Nothing was changed");
    ErrorBody::new(farside_api::ErrorCode::Refused, message).hint(format!(
        "farside snapshot rollback --group {group} --at {at} takes its volumes to that moment; what they hold now stays"
    ))
}
