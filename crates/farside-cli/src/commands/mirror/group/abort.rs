//! `farside mirror abort --group`, and what other commands have of it.

use farside_api::{ErrorBody, ErrorCode, Mirror};

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
    let (mut stopped, mut said) = (Vec::new(), String::new());
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
            }
            Err(error) => return Err(error),
        }
    }
    context.show(&stopped, |_| said);
    Ok(())
}

/// Has no resync begin later that waits for its source. A line for each that was given up.
pub(super) async fn give_up_waiting(context: &Context, members: &[Member]) -> String {
    let mut given_up = String::new();
    for name in members.iter().map(|member| &member.mirror.name) {
        if progress::give_up(&context.client, name).await {
            given_up += &format!("{name}: the resync that waited is given up\n");
        }
    }
    given_up
}
