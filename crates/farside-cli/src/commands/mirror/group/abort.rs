//! `farside mirror abort --group`, and what other commands have of it.

use farside_api::{ErrorBody, ErrorCode, Mirror, Operation, OperationKind, OperationState};

use super::members::Member;
use super::named::{Verb, of_name};
use crate::commands::context::Context;
use crate::commands::mirror::answers;
use crate::progress;

/// Stops what runs or waits of each member; where nothing does, that is no failure.
pub(crate) async fn abort(context: &Context, group: &str) -> Result<(), ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let members = of_name(mirrors, group, Verb::Abort)?;
    if members.is_empty() {
        let message = format!("no mirror here is in a group {group}");
        return Err(
            ErrorBody::new(ErrorCode::NotFound, message).hint("farside mirror status shows the groups")
        );
    }
    let (mut stopped, mut said, mut hint) = (Vec::new(), String::new(), None);
    for member in members {
        let Some((pool, volume)) = member.name.split_once('/') else { continue };
        let path = ["mirrors", pool, volume, "abort"];
        match context.client.post::<Mirror>(&path, &serde_json::json!({})).await {
            Ok(mirror) => {
                said += &answers::aborted(&mirror);
                stopped.push(mirror);
            }
            Err(error) if error.code == ErrorCode::Refused => {
                said += &format!("{}: {}\n", member.name, error.message);
                hint = hint.or(error.hint);
            }
            Err(error) => return Err(error),
        }
    }
    // Where something was stopped, that was what was meant.
    if let Some(hint) = hint.filter(|_| stopped.is_empty()) {
        said += &format!("{hint}\n");
    }
    context.show(&stopped, |_| said);
    Ok(())
}

/// A line for each of which a resync was given up.
pub(super) fn lines(given_up: &[String]) -> String {
    given_up.iter().map(|name| format!("{}\n", said(name))).collect()
}

fn said(name: &str) -> String {
    format!("{name}: the resync that waited is given up")
}

pub(super) fn names(members: &[Member]) -> Vec<String> {
    members.iter().map(|member| member.mirror.name.clone()).collect()
}

/// Has no resync begin later that waits for its source. Those of which one did.
pub(super) async fn give_up(context: &Context, names: &[String]) -> Vec<String> {
    let mut given_up = Vec::new();
    for name in names {
        if progress::give_up(&context.client, name).await {
            given_up.push(name.clone());
        }
    }
    given_up
}

/// A break that is refused: whoever has typed it wants no volume of the group to follow later, once a dead site is back. What waits to is
/// given up all the same, as it has changed nothing; a plan gives nothing up, and says what waits.
pub(super) async fn refused_break(
    context: &Context,
    names: &[String],
    is_plan: bool,
    refused: ErrorBody,
) -> ErrorBody {
    if !is_plan {
        return with_given_up(refused, &give_up(context, names).await);
    }
    // What cannot be asked is left out: it is said by the command itself.
    let operations: Vec<Operation> = context.client.get(&["operations"]).await.unwrap_or_default();
    with_waiting(refused, &waiting(&operations, names))
}

/// Those of which a resync waits to begin.
fn waiting(operations: &[Operation], names: &[String]) -> Vec<String> {
    let waits = |name: &&String| {
        operations.iter().any(|operation| {
            operation.kind == OperationKind::Resync
                && operation.state == OperationState::Running
                && operation.waits_to_begin
                && operation.volume == **name
        })
    };
    names.iter().filter(waits).cloned().collect()
}

/// A refusal, or a failure half way, and what was given up all the same.
pub(super) fn with_given_up(mut refused: ErrorBody, given_up: &[String]) -> ErrorBody {
    for name in given_up {
        refused.message += &format!("; {}", said(name));
    }
    refused
}

fn with_waiting(refused: ErrorBody, waiting: &[String]) -> ErrorBody {
    if waiting.is_empty() {
        return refused;
    }
    let each: Vec<String> = waiting
        .iter()
        .map(|name| {
            format!("the resync of {name} waits still, and begins once its source is there: farside mirror abort {name} gives it up")
        })
        .collect();
    let hint = refused.hint.clone().into_iter().chain(each).collect::<Vec<_>>().join("; ");
    refused.hint(hint)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refused_break_says_what_becomes_of_the_resync_that_waits() {
        let of = |kind, state, waits, volume| {
            let document = json!({
                "id": uuid::Uuid::nil(), "kind": kind, "volume": volume, "state": state, "started_at": "2026-11-26T12:00:00Z",
                "ended_at": null, "transfer": null, "session_lost_seconds": null, "record": null, "error": null,
                "waits_to_begin": waits,
            });
            serde_json::from_value::<Operation>(document).unwrap()
        };
        let operations = [
            of("resync", "running", true, "q/data"),
            of("resync", "running", false, "q/log"),
            of("resync", "failed", true, "q/log"),
            of("resync", "running", true, "q/other"),
        ];
        let names = ["q/data", "q/log"].map(str::to_owned);
        let waits = waiting(&operations, &names);
        assert_eq!(waits, ["q/data"]);
        let refused = || {
            ErrorBody::new(ErrorCode::Refused, "group shop: they differ. Nothing was changed")
                .hint("roll back")
        };
        let said = with_waiting(refused(), &waits);
        let hint = said.hint.unwrap();
        assert!(hint.starts_with("roll back; the resync of q/data waits still"), "{hint}");
        assert!(hint.contains("farside mirror abort q/data"), "{hint}");
        assert_eq!(with_waiting(refused(), &[]), refused());
        let said = with_given_up(refused(), &waits);
        assert!(
            said.message.ends_with("Nothing was changed; q/data: the resync that waited is given up"),
            "{}",
            said.message
        );
    }
}
