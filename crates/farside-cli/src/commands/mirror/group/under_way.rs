//! Changes of roles of a group that are under way when another is asked for: the other direction, typed at the other site, would take back
//! one part while the rest still comes, and split the group.

use std::time::{Duration, Instant};

use farside_api::split::{Original, Split};
use farside_api::{ErrorBody, ErrorCode, Operation, OperationKind, OperationState};

use super::members::{Group, Member, members};
use super::named::Verb;
use crate::commands::context::Context;

/// How long an update that is fetched from here is waited for, where nobody can be asked what it is for.
const FETCHED_WITHIN: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// That this site knows of one; none if it does not.
pub(super) fn refused(group: &str, members: &[Member]) -> Option<ErrorBody> {
    let under_way: Vec<&Member> = members.iter().filter(|m| m.mirror.changes_roles).collect();
    let first = under_way.first()?;
    let each: Vec<String> = under_way
        .iter()
        .map(|m| {
            let why = m.mirror.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{} changes roles with {} at this moment{why}", m.mirror.name, m.mirror.source)
        })
        .collect();
    let (site, _) = first.mirror.source.split_once(':').unwrap_or(("the other site", ""));
    let message = format!("group {group}: {}. No role was changed", each.join("; "));
    Some(ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "wait until it has ended, and look where the originals are: farside mirror status. If it was asked for here, farside mirror wait \
         {} waits for it; if at {site}, it is steered there",
        first.mirror.name
    )))
}

/// Whether one is under way of which this site knows nothing yet: in a group that is split the other site may be about to fetch the rest.
/// Answers what is to be said of it in a plan.
///
/// # Errors
/// If there is one, or if there may be one and it does not end.
pub(super) async fn elsewhere(
    context: &Context,
    group: &str,
    of_group: &Group,
    is_plan: bool,
) -> Result<String, ErrorBody> {
    let Some(split) = &of_group.split else { return Ok(String::new()) };
    match asked_there(context, split.originals()).await {
        Some(running) => return running.map_or(Ok(String::new()), |one| Err(swaps_there(group, &one))),
        // Nobody there may be asked from here.
        None if is_plan => {
            let fetched = split.originals().iter().filter(|one| one.is_fetched);
            return Ok(fetched
                .map(|one| format!("{}: the command waits for its end\n", said(one)))
                .collect());
        }
        None => {}
    }
    if !split.originals().iter().any(|one| one.is_fetched) {
        return Ok(String::new());
    }
    let began = Instant::now();
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        let now = members(context, group, Verb::Swap).await?;
        let still = now.split.as_ref().map(Split::originals);
        let is_as_before = |still: &&[Original]| names(still) == names(split.originals());
        let Some(still) = still.filter(is_as_before) else {
            let message = format!(
                "group {group}: the roles have changed while this waited, by a command at the other site. No role was changed by this one"
            );
            return Err(ErrorBody::new(ErrorCode::Refused, message)
                .hint("farside mirror status shows where the originals are; if this is still wanted, the same command again"));
        };
        let Some(fetched) = still.iter().find(|one| one.is_fetched) else { return Ok(String::new()) };
        if began.elapsed() >= FETCHED_WITHIN {
            return Err(may_swap_there(group, fetched));
        }
    }
}

fn names(originals: &[Original]) -> Vec<&str> {
    originals.iter().map(|one| one.name.as_str()).collect()
}

/// One of the originals that the other site is taking over at this moment, if it says so; none if it cannot be asked.
async fn asked_there(context: &Context, originals: &[Original]) -> Option<Option<Original>> {
    let (site, _) = originals.first()?.follower.split_once(':')?;
    let there = context.client.of_peer(site)?;
    let operations: Vec<Operation> = there.get(&["operations"]).await.ok()?;
    Some(originals.iter().find(|one| is_swapped(one, &operations)).cloned())
}

fn is_swapped(original: &Original, operations: &[Operation]) -> bool {
    let volume = original.follower.split_once(':').map(|(_, volume)| volume);
    operations.iter().any(|operation| {
        operation.kind == OperationKind::Swap
            && operation.state == OperationState::Running
            && volume == Some(operation.volume.as_str())
    })
}

fn swaps_there(group: &str, one: &Original) -> ErrorBody {
    let Original { name, follower, .. } = one;
    let (site, volume) = follower.split_once(':').unwrap_or(("the other site", follower));
    let message = format!(
        "group {group}: at {site} a change of roles is under way that makes {follower} the original of {name}. No role was changed"
    );
    ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "wait until it has ended (at {site}: farside mirror wait {volume}), or give it up there (farside mirror abort {volume}); then look \
         where the originals are: farside mirror status"
    ))
}

fn may_swap_there(group: &str, one: &Original) -> ErrorBody {
    let (site, volume) = one.follower.split_once(':').unwrap_or(("the other site", &one.follower));
    let message = format!("group {group}: {}. No role was changed", said(one));
    ErrorBody::new(ErrorCode::Refused, message).hint(format!(
        "at {site}, farside mirror status {volume} shows what it is; once it has ended, this again. farside mirror swap POOL/VOL changes the \
         role of one volume all the same"
    ))
}

fn said(one: &Original) -> String {
    let Original { name, follower, .. } = one;
    format!(
        "{follower} fetches an update of {name} at this moment, and whether that is for a change of roles which was asked for there is \
         not known here"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::members::tests::member;
    use super::*;

    #[test]
    fn a_change_of_roles_that_is_under_way_keeps_the_other_direction() {
        let mut changes = member("q/b", "mirrored", None, &[]);
        let all = [member("q/a", "mirrored", None, &[]), changes.clone()];
        assert!(refused("shop", &all).is_none());
        changes.mirror.changes_roles = true;
        let said = refused("shop", &[member("q/a", "mirrored", None, &[]), changes]).unwrap();
        assert!(said.message.contains("q/b changes roles with a:p/v at this moment. No role"), "{said:?}");
    }

    #[test]
    fn what_the_other_site_does_is_told_from_other_work_there() {
        let of = |kind, state, volume| {
            let document = json!({
                "id": uuid::Uuid::nil(), "kind": kind, "volume": volume, "state": state, "started_at": "2026-11-26T12:00:00Z",
                "ended_at": null, "transfer": null, "session_lost_seconds": null, "record": null, "error": null
            });
            serde_json::from_value::<Operation>(document).unwrap()
        };
        let original = Original { name: "p/v".into(), follower: "b:q/v".into(), is_fetched: true };
        assert!(is_swapped(&original, &[of("swap", "running", "q/v")]));
        let others =
            [of("swap", "done", "q/v"), of("swap", "running", "q/w"), of("update", "running", "q/v")];
        assert!(!is_swapped(&original, &others));
        assert!(swaps_there("shop", &original).hint.unwrap().contains("at b: farside mirror wait q/v"));
        assert!(may_swap_there("shop", &original).message.contains("b:q/v fetches an update of p/v"));
    }
}
