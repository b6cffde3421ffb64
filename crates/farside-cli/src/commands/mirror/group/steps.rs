//! Requests to each of the volumes of a group: their plans at once, one question for all, and what is gone after them.

use farside_api::{ErrorBody, ErrorCode, Plan};
use reqwest::Method;
use serde::Serialize;

use super::members::Member;
use crate::arguments::destructive::Destructive;
use crate::arguments::names::VolumeName;
use crate::commands::context::Context;
use crate::commands::mirror::side_branches;
use crate::commands::mirror::warnings::{warnings, warnings_of};
use crate::confirm::{ask, describe, is_interactive, refuse, refuse_loss};
use crate::output::{json, print};

/// A destructive request to one of the members.
pub(super) struct Step<'a, Q> {
    pub(super) path: Vec<&'a str>,
    pub(super) body: Option<Q>,
}

/// So many plans are asked for at once.
const PLANS_AT_ONCE: usize = 16;

/// What each of the steps would do, in their order. Several are asked at once: while a source does not answer each of them waits for it.
pub(super) async fn plans_of<'a, Q: Serialize + 'a>(
    context: &Context,
    steps: impl Iterator<Item = &'a Step<'a, Q>>,
) -> Vec<Result<Plan, ErrorBody>> {
    let failed = |error: String| ErrorBody::new(ErrorCode::Failed, error);
    let ask = |step: &&Step<'a, Q>| {
        let client = context.client.clone();
        let path: Vec<String> = step.path.iter().map(|&part| part.to_owned()).collect();
        let body = step.body.as_ref().map(serde_json::to_value).transpose();
        tokio::spawn(async move {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let body = body.map_err(|error| failed(error.to_string()))?;
            client.request::<Plan>(Method::POST, &path, &[("plan", "true")], body.as_ref()).await
        })
    };
    let steps: Vec<_> = steps.collect();
    let mut plans = Vec::new();
    for some in steps.chunks(PLANS_AT_ONCE) {
        let asked: Vec<_> = some.iter().map(ask).collect();
        for plan in asked {
            plans.push(plan.await.map_err(|error| failed(error.to_string())).flatten());
        }
    }
    plans
}

/// Shows the plans of all steps, and asks once. Answers whether they are to be carried out.
///
/// Of `command`, which works on the whole group, the plans of its parts speak in vain: that is what was typed.
pub(super) async fn consent<Q: Serialize>(
    context: &Context,
    command: &str,
    headline: &str,
    steps: &[Step<'_, Q>],
    destructive: Destructive,
) -> Result<bool, ErrorBody> {
    if !destructive.plan && (destructive.yes || !is_interactive()) {
        return Ok(true);
    }
    let plans: Result<Vec<Plan>, ErrorBody> = plans_of(context, steps.iter()).await.into_iter().collect();
    let mut plans: Vec<Plan> = plans?.into_iter().map(|plan| without_advice(plan, command)).collect();
    let of_group = command.strip_prefix("farside mirror break --group ").map(str::trim_end);
    let warned = of_group.map(|group| warnings_of(group, &plans)).unwrap_or_default();
    if of_group.is_some() {
        for plan in &mut plans {
            let said: Vec<String> = warnings(plan).cloned().collect();
            plan.would.retain(|line| !said.contains(line) || context.json);
        }
    }
    let all = headline.to_owned() + &warned + &plans.iter().map(describe).collect::<String>();
    if destructive.plan {
        if context.json {
            json(&plans)
        } else {
            print(&all)
        }
        return Ok(false);
    }
    plans.iter().try_for_each(refuse)?;
    match ask(&all) {
        true => Ok(true),
        false => Err(ErrorBody::new(ErrorCode::Failed, "cancelled; nothing was changed")),
    }
}

/// Where nobody can be asked, what one of the steps would destroy for good is refused: the side branch that it makes may push an old
/// one out. Each step is one of a member.
pub(super) async fn refuse_losses<'a, Q: Serialize>(
    context: &Context,
    members: impl Iterator<Item = &'a Member>,
    steps: &[Step<'_, Q>],
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    if destructive.plan || destructive.yes || is_interactive() {
        return Ok(());
    }
    // Old side branches, and points that retention has kept while nothing rotated.
    let may_lose = |member: &Member| !member.side_branches().is_empty() || member.mirror.retention.is_some();
    let those = steps.iter().zip(members).filter(|(_, member)| may_lose(member)).map(|(step, _)| step);
    plans_of(context, those).await.into_iter().try_for_each(|plan| refuse_loss(&plan?))
}

/// A line for each side branch that a member had before the command and has no more.
pub(super) async fn gone_since<'a>(context: &Context, members: impl Iterator<Item = &'a Member>) -> String {
    let mut gone = String::new();
    for member in members {
        if let Ok(name) = member.mirror.name.parse::<VolumeName>() {
            gone += &side_branches::gone_since(context, &name, &member.side_branches()).await;
        }
    }
    gone
}

/// A plan without what points to this command.
fn without_advice(mut plan: Plan, command: &str) -> Plan {
    plan.would.retain(|line| !line.contains(command));
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_of_a_part_does_not_advise_what_was_typed() {
        let would = vec![
            "hosts may write to q/a".to_owned(),
            "the others stay; farside mirror break --group shop takes all of them over".to_owned(),
        ];
        let plan = || Plan { would: would.clone(), ..Plan::default() };
        assert_eq!(without_advice(plan(), "farside mirror break --group shop ").would, would[..1]);
        assert_eq!(without_advice(plan(), "farside mirror break --group sh ").would, would);
    }
}
