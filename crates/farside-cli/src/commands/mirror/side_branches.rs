//! What is looked up of a volume's side branches before a command.

use farside_api::{Snapshot, TakenBy};

use crate::arguments::names::VolumeName;
use crate::commands::context::Context;

/// Whether the side branch that a resync makes may push an old one out. Without one there is nothing to ask the source for.
pub(super) async fn has_side_branches(context: &Context, volume: &VolumeName) -> bool {
    let path = ["volumes", &volume.pool, &volume.volume, "snapshots"];
    let all: Result<Vec<Snapshot>, _> = context.client.get(&path).await;
    all.is_ok_and(|all| all.iter().any(|snapshot| snapshot.taken_by == Some(TakenBy::Rescue)))
}
