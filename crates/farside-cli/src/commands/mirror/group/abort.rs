//! `farside mirror abort --group`.

use farside_api::{ErrorBody, ErrorCode, Mirror, Role};

use crate::commands::context::Context;
use crate::commands::mirror::answers;

/// Stops what runs or waits of each member; where nothing does, that is no failure.
pub(crate) async fn abort(context: &Context, group: &str) -> Result<(), ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get(&["mirrors"]).await?;
    let of_group = |m: &&Mirror| m.role == Role::Destination && m.group.as_deref() == Some(group);
    let members: Vec<&Mirror> = mirrors.iter().filter(of_group).collect();
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
