//! What is looked up of a volume's side branches before a command, and after it.

use farside_api::{Snapshot, TakenBy};

use crate::arguments::names::VolumeName;
use crate::commands::context::Context;

/// Whether the side branch that a resync or a rollback makes may push an old one out. Without one there is nothing to ask for.
pub(crate) async fn has_side_branches(context: &Context, volume: &VolumeName) -> bool {
    !side_branches(context, volume).await.is_empty()
}

/// Names of the side branches that a volume has of what was set aside; none if it cannot be asked.
pub(crate) async fn side_branches(context: &Context, volume: &VolumeName) -> Vec<String> {
    listed(context, volume).await.unwrap_or_default()
}

/// A line for each of those that a volume had `before` the command and has no more.
pub(crate) async fn gone_since(context: &Context, volume: &VolumeName, before: &[String]) -> String {
    if before.is_empty() {
        return String::new();
    }
    match listed(context, volume).await {
        Some(now) => before.iter().filter(|old| !now.contains(old)).map(|old| deleted(volume, old)).collect(),
        None => String::new(),
    }
}

/// That an old one has gone for a new one.
pub(crate) fn deleted(volume: &impl std::fmt::Display, old: &str) -> String {
    format!("the old side branch {volume}@{old} was deleted: a volume keeps its newest (replicas.rescues)\n")
}

async fn listed(context: &Context, volume: &VolumeName) -> Option<Vec<String>> {
    let path = ["volumes", &volume.pool, &volume.volume, "snapshots"];
    let all: Vec<Snapshot> = context.client.get(&path).await.ok()?;
    Some(names_of(&all))
}

/// Those of a volume's snapshots that hold what was set aside.
pub(crate) fn names_of(all: &[Snapshot]) -> Vec<String> {
    all.iter().filter(|s| s.taken_by == Some(TakenBy::Rescue)).map(|s| s.name.clone()).collect()
}
