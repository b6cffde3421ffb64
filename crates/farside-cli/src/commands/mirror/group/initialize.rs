//! `farside mirror initialize --group`: the first copy of each member that has none.
//!
//! All are begun before the first is waited for. What has a copy is left as it is, so the same command again goes on with the others.

use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode, Mirror, Operation, OperationState, StartTransfer};
use serde::Serialize;

use super::named::{Verb, is_empty, of_name};
use super::one_moment;
use super::steps::{Step, consent};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::commands::mirror::outcomes::outcome;
use crate::progress;

/// What came of it.
#[derive(Serialize)]
struct Initialized {
    group: String,
    /// Members that had their first copy before.
    existed: Vec<String>,
    operations: Vec<Operation>,
}

/// How it is asked for.
pub(crate) struct Asked {
    /// How long to wait for a lost session.
    pub(crate) timeout: Duration,
    pub(crate) no_wait: bool,
    /// That all have their first copy is no failure.
    pub(crate) if_absent: bool,
    pub(crate) plan: bool,
}

pub(crate) async fn initialize(context: &Context, group: &str, asked: Asked) -> Result<(), ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let members = of_name(mirrors, group, Verb::Initialize)?;
    if members.is_empty() {
        let message = format!("no mirror here is in a group {group}");
        return Err(
            ErrorBody::new(ErrorCode::NotFound, message).hint("farside mirror status shows the groups")
        );
    }
    let (left, existed): (Vec<Mirror>, Vec<Mirror>) = members.into_iter().partition(is_empty);
    let existed: Vec<String> = existed.into_iter().map(|mirror| mirror.name).collect();
    if left.is_empty() {
        return nothing_to_do(context, group, existed, asked.if_absent);
    }
    let request = StartTransfer { timeout_seconds: Some(asked.timeout.as_secs_f64()) };
    let mut steps = Vec::new();
    for mirror in &left {
        let Some((pool, volume)) = mirror.name.split_once('/') else { continue };
        steps.push(Step {
            path: ["mirrors", pool, volume, "initialize"].to_vec(),
            body: Some(request.clone()),
        });
    }
    if asked.plan {
        let headline = format!("group {group}: the first copy of {}\n", count(left.len()));
        let destructive = Destructive { plan: true, yes: false };
        consent(context, "", &headline, &steps, destructive).await?;
        return Ok(());
    }
    let mut begun = Vec::new();
    for step in &steps {
        begun.push(context.client.post::<Operation>(&step.path, &step.body).await);
    }
    let all: Vec<&str> = left.iter().map(|mirror| mirror.name.as_str()).collect();
    let (mut operations, mut failed) = (Vec::new(), Vec::new());
    for (name, started) in all.iter().zip(begun) {
        let ended = async {
            match asked.no_wait {
                true => started,
                false => progress::watch_among(&context.client, started?, &all).await,
            }
        };
        let unknown = || ErrorBody::new(ErrorCode::Failed, "the first copy failed");
        match ended.await {
            Ok(ended) if ended.state == OperationState::Failed => {
                failed.push((*name, ended.error.clone().unwrap_or_else(unknown)));
            }
            Ok(ended) => operations.push(ended),
            Err(error) => failed.push((*name, error)),
        }
    }
    let said: String = match asked.no_wait {
        true => operations
            .iter()
            .map(|o| format!("{}: started; farside mirror wait {} waits for it\n", o.volume, o.volume))
            .collect(),
        false => operations.iter().map(outcome).collect(),
    };
    if !failed.is_empty() {
        said.lines().for_each(|line| eprintln!("farside: {line}"));
        return Err(not_all(group, &failed));
    }
    let there: String = existed.iter().map(|name| format!("the first copy of {name} is there\n")).collect();
    let is_several = existed.len() + operations.len() > 1;
    let moment = match (asked.no_wait, &steps.first()) {
        (false, Some(first)) if is_several => to_one_moment(context, group, &first.path, asked.timeout).await,
        _ => String::new(),
    };
    let done = Initialized { group: group.to_owned(), existed, operations };
    context.show(&done, |_| there + &said + &moment);
    Ok(())
}

/// Until one update takes all of them to one moment, nothing of the group can be taken over as a whole. `path`: of the first copy of one.
async fn to_one_moment(context: &Context, group: &str, path: &[&str], timeout: Duration) -> String {
    let [_, pool, volume, _] = path else { return String::new() };
    match one_moment::update(context, pool, volume, Some(timeout)).await {
        Ok(_) => format!("all of group {group} show one moment since\n"),
        Err(error) => format!(
            "each shows a moment of its own until farside mirror update --group {group}: {}\n",
            error.message
        ),
    }
}

fn nothing_to_do(
    context: &Context,
    group: &str,
    existed: Vec<String>,
    if_absent: bool,
) -> Result<(), ErrorBody> {
    let message = format!("group {group}: the first copies of {} are there", existed.join(", "));
    if !if_absent {
        return Err(ErrorBody::new(ErrorCode::Exists, format!("{message}. Nothing was done"))
            .hint(format!("farside mirror update --group {group} brings it to its sources' state of now")));
    }
    let done = Initialized { group: group.to_owned(), existed, operations: Vec::new() };
    context.show(&done, |_| format!("{message}\n"));
    Ok(())
}

fn count(first_copies: usize) -> String {
    if first_copies == 1 { "1 volume".to_owned() } else { format!("{first_copies} volumes") }
}

fn not_all(group: &str, failed: &[(&str, ErrorBody)]) -> ErrorBody {
    let each: Vec<String> = failed.iter().map(|(name, error)| format!("{name}: {}", error.message)).collect();
    let hints =
        failed.iter().filter_map(|(name, error)| error.hint.as_ref().map(|hint| format!("{name}: {hint}")));
    let then = format!("the same command goes on with those of group {group} that have no copy yet");
    let hints: Vec<String> = hints.chain([then]).collect();
    let code = failed.first().map_or(ErrorCode::Failed, |(_, error)| error.code);
    ErrorBody::new(code, format!("group {group}: {}", each.join("; "))).hint(hints.join("; "))
}
