//! `farside mirror swap --group`: one role change after the other.
//!
//! Each loses nothing by itself. Hosts that need several of the volumes are to be stopped before the first: the sources take no more writes
//! from then on, one by one.

use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode, Mirror, Operation, OperationState, Plan, Role, StartTransfer};
use reqwest::Method;
use serde::Serialize;

use super::members::{Group, Member, Step, consent, members};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::progress;

/// What came of it.
#[derive(Serialize)]
struct Swapped {
    group: String,
    operations: Vec<Operation>,
    /// The update that has brought the new replicas to one moment; none if it could not be asked for from here.
    common: Option<Operation>,
}

pub(crate) async fn swap(
    context: &Context,
    group: &str,
    timeout: Duration,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let of_group = members(context, group).await?;
    let Group { members, .. } = &of_group;
    // What has changed its role already is followed by its former source. What a person has broken off is not.
    let broken_off: Vec<&Member> = members.iter().filter(|m| m.is_broken_off() && !m.is_original()).collect();
    if !broken_off.is_empty() {
        return Err(refused(context, group, &broken_off).await?);
    }
    let left: Vec<&Member> = members.iter().filter(|m| !m.is_broken_off()).collect();
    let names: Vec<&str> = members.iter().map(|m| m.mirror.name.as_str()).collect();
    if left.is_empty() {
        let done = Swapped { group: group.to_owned(), operations: Vec::new(), common: None };
        let text = format!(
            "group {group}: the roles have changed already: hosts may write to {}, their former sources follow them\n",
            names.join(", ")
        );
        context.show(&done, |_| text);
        return Ok(());
    }
    let request = StartTransfer { timeout_seconds: Some(timeout.as_secs_f64()) };
    let mut steps = Vec::new();
    for member in &left {
        steps.push(Step { path: member.path("swap")?.to_vec(), body: Some(request.clone()) });
    }
    let headline = format!(
        "group {group}: {} mirrors change roles with their sources, one after the other; then one update brings the new replicas to \
         one moment\n{}",
        left.len(),
        of_group.note(group)
    );
    of_group.note_aside(context, group);
    let command = format!("farside mirror swap --group {group} ");
    if !consent(context, &command, &headline, &steps, destructive).await? {
        return Ok(());
    }
    let mut operations = Vec::new();
    for (at, (step, member)) in steps.iter().zip(&left).enumerate() {
        let done = async {
            let started: Operation = context.client.post(&step.path, &step.body).await?;
            let ended = progress::watch(&context.client, started).await?;
            let unknown = || ErrorBody::new(ErrorCode::Failed, "the role change failed");
            match ended.state {
                OperationState::Failed => Err(ended.error.clone().unwrap_or_else(unknown)),
                _ => Ok(ended),
            }
        };
        let done = done.await.map_err(|error| {
            let message = format!(
                "{} of {} mirrors of group {group} have changed roles; {} has not: {}",
                members.len() - left.len() + at,
                members.len(),
                member.mirror.name,
                error.message
            );
            ErrorBody::new(error.code, message).hint(
                "the same command goes on with the others; farside mirror swap POOL/VOL at the other site takes one back",
            )
        })?;
        operations.push(done);
    }
    let sources: Vec<&str> = members.iter().map(|m| m.mirror.source.as_str()).collect();
    let common = to_one_moment(context, group, &sources, timeout).await;
    let done = Swapped { group: group.to_owned(), operations, common: common.as_ref().ok().cloned() };
    let then = match &common {
        Ok(_) => format!("{} show one moment since\n", sources.join(", ")),
        Err(why) => without_moment(group, &sources, why),
    };
    if common.is_err() && context.json {
        then.lines().for_each(|line| eprintln!("farside: {line}"));
    }
    context.show(&done, |_| {
        let turned = format!(
            "the roles have changed: hosts may write to {}, their former sources follow them\n",
            names.join(", ")
        );
        turned + &then + &of_group.note(group)
    });
    Ok(())
}

/// Why nothing was swapped: what the daemon says of each mirror that was broken off.
async fn refused(context: &Context, group: &str, broken_off: &[&Member]) -> Result<ErrorBody, ErrorBody> {
    let mut said = Vec::new();
    for member in broken_off {
        let request = StartTransfer { timeout_seconds: None };
        let path = member.path("swap")?;
        let plan: Result<Plan, ErrorBody> =
            context.client.request(Method::POST, &path, &[("plan", "true")], Some(&request)).await;
        let name = &member.mirror.name;
        said.push(match plan {
            Ok(plan) => plan.refused.unwrap_or_else(|| format!("{name} is broken off")),
            Err(error) if error.code == ErrorCode::Refused => error.message,
            Err(error) => return Err(error),
        });
    }
    let message = format!("group {group}: {}. No role was changed", said.join("; "));
    Ok(ErrorBody::new(ErrorCode::Refused, message))
}

/// The roles have changed one after the other, so the new replicas show a moment each: one update of their group, at their site and
/// where that lets this one ask for it, brings them to one again. The error says why there is none.
async fn to_one_moment(
    context: &Context,
    group: &str,
    sources: &[&str],
    timeout: Duration,
) -> Result<Operation, ErrorBody> {
    let not_named = || ErrorBody::new(ErrorCode::Failed, "the site of the new replicas is not known");
    let (site, _) = sources.first().and_then(|first| first.split_once(':')).ok_or_else(not_named)?;
    let there = context.client.of_peer(site).ok_or_else(not_named)?;
    let mirrors: Vec<Mirror> = there.get(&["mirrors"]).await?;
    let names: Vec<&str> = sources.iter().filter_map(|s| s.split_once(':').map(|(_, name)| name)).collect();
    let is_member = |name: &&str| {
        let in_group = |m: &&Mirror| m.group.as_deref() == Some(group) && m.role == Role::Destination;
        mirrors.iter().filter(in_group).any(|m| m.name == **name)
    };
    if let Some(outside) = names.iter().find(|name| !is_member(name)) {
        let message = format!("{outside} is not in group {group} at {site}");
        return Err(ErrorBody::new(ErrorCode::Refused, message));
    }
    let (pool, volume) = names.first().and_then(|name| name.split_once('/')).ok_or_else(not_named)?;
    let request = StartTransfer { timeout_seconds: Some(timeout.as_secs_f64()) };
    let started: Operation = there.post(&["mirrors", pool, volume, "update"], &request).await?;
    let ended = progress::watch(&there, started).await?;
    match &ended.error {
        Some(error) if ended.state == OperationState::Failed => Err(error.clone()),
        _ => Ok(ended),
    }
}

/// What is left to be done at the site of the new replicas.
fn without_moment(group: &str, sources: &[&str], why: &ErrorBody) -> String {
    let site =
        sources.first().and_then(|first| first.split_once(':')).map_or("the other site", |(site, _)| site);
    let names: Vec<&str> = sources.iter().map(|s| s.split_once(':').map_or(*s, |(_, name)| name)).collect();
    let first = names.first().copied().unwrap_or("POOL/VOL");
    let into_group: Vec<String> =
        names.iter().map(|name| format!("farside mirror set {name} --group {group}")).collect();
    format!(
        "the new replicas have no moment in common since then, and were not brought to one from here: {}\n\
         at {site}: farside mirror update {first} brings all of group {group} to one moment; what is not in the group there: {}\n",
        why.message,
        into_group.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_do_is_a_line_to_type() {
        let why = ErrorBody::new(ErrorCode::Refused, "nobody may ask there");
        let text = without_moment("shop", &["north:tank/a", "north:tank/b"], &why);
        assert!(text.contains("at north: farside mirror update tank/a"), "{text}");
        assert!(text.contains("farside mirror set tank/b --group shop"), "{text}");
        assert!(text.contains("nobody may ask there"), "{text}");
    }
}
