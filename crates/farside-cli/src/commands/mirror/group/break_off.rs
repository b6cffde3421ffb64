//! `farside mirror break --group`.

use farside_api::{BreakMirror, ErrorBody, Mirror, Timestamp};
use reqwest::Method;
use serde::Serialize;

use super::members::{Member, Step, consent, decided, instant_of, members};
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
    let members = members(context, group).await?;
    // What was broken off already decides.
    let before = decided(&members).map_err(|why| {
        ErrorBody::new(farside_api::ErrorCode::Refused, format!("group {group}: {why}. Nothing was changed"))
            .hint(format!("farside snapshot rollback --group {group} --at SNAP takes volumes that are broken off to one moment"))
    })?;
    let instant = instant_of(group, &members, at.as_deref(), before)?;
    let left: Vec<(&Member, &String)> =
        members.iter().zip(&instant.names).filter(|(m, _)| !m.is_broken_off()).collect();
    let mut steps = Vec::new();
    for (member, name) in &left {
        let body = Some(BreakMirror { at: Some((*name).clone()) });
        steps.push(Step { path: member.path("break")?.to_vec(), body });
    }
    let moment = time(instant.created_at);
    let headline = format!("group {group}: {} mirrors to break off, all as of {moment}\n", left.len());
    if !consent(context, &headline, &steps, destructive).await? {
        return Ok(());
    }
    let mut mirrors = Vec::new();
    for (at, (step, (member, _))) in steps.iter().zip(&left).enumerate() {
        let (path, impact) = (&step.path[..], Impact::Service);
        let one = DestructiveRequest { method: Method::POST, path, body: step.body.as_ref(), impact };
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
        format!("{} are writable, all as of {}\n", names.join(", "), time(done.created_at))
    });
    Ok(())
}
