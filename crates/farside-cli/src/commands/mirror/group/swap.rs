//! `farside mirror swap --group`: one role change after the other.
//!
//! Each loses nothing by itself. Hosts that need several of the volumes are to be stopped before the first: the sources take no more writes
//! from then on, one by one.

use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode, Operation, OperationState, StartTransfer};
use serde::Serialize;

use super::members::{Member, Step, consent, members};
use crate::arguments::destructive::Destructive;
use crate::commands::context::Context;
use crate::progress;

/// What came of it.
#[derive(Serialize)]
struct Swapped {
    group: String,
    operations: Vec<Operation>,
}

pub(crate) async fn swap(
    context: &Context,
    group: &str,
    timeout: Duration,
    destructive: Destructive,
) -> Result<(), ErrorBody> {
    let members = members(context, group).await?;
    // What has changed its role already is no replica any more.
    let left: Vec<&Member> = members.iter().filter(|m| !m.is_broken_off()).collect();
    let request = StartTransfer { timeout_seconds: Some(timeout.as_secs_f64()) };
    let mut steps = Vec::new();
    for member in &left {
        steps.push(Step { path: member.path("swap")?.to_vec(), body: Some(request.clone()) });
    }
    let headline = format!(
        "group {group}: {} mirrors change roles with their sources, one after the other\n",
        left.len()
    );
    if !consent(context, &headline, &steps, destructive).await? {
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
    let done = Swapped { group: group.to_owned(), operations };
    context.show(&done, |_| {
        let names: Vec<&str> = members.iter().map(|m| m.mirror.name.as_str()).collect();
        format!(
            "the roles have changed: hosts may write to {}, their former sources follow them\n",
            names.join(", ")
        )
    });
    Ok(())
}
