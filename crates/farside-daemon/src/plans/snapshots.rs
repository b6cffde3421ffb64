//! What snapshots are rolled back to, or lose. Pure.

use farside_api::{Plan, Timestamp};
use farside_engine::VolumeName;

use super::parts::{keep, lose, old_side_branch, opens, plan, rescue};
use super::volumes::leave_clones;

/// `snapshot rollback`.
pub(crate) struct RollbackFacts<'a> {
    pub(crate) volume: &'a VolumeName,
    pub(crate) snapshot: &'a str,
    pub(crate) created_at: Timestamp,
    pub(crate) on_main_line: bool,
    /// Size of the volume, and of the snapshot, bytes.
    pub(crate) size_bytes: u64,
    pub(crate) snapshot_size_bytes: u64,
    /// In which the volume differs from the snapshot; None: unknown.
    pub(crate) changed_bytes: Option<u64>,
    /// A person's snapshot that holds all of what the volume shows, and does not go by itself.
    pub(crate) held_by: Option<&'a str>,
    pub(crate) age_seconds: f64,
    /// `PEER:POOL/VOL` that follow it.
    pub(crate) followed_by: &'a [String],
    /// `PEER:POOL/VOL` that were broken off from it: hosts went on there.
    pub(crate) broken_off: &'a [String],
    /// Why hosts may not write to it, if it is fenced.
    pub(crate) fence: Option<&'a str>,
    /// The group that its mirror is in with others.
    pub(crate) group: Option<&'a str>,
    /// Old side branches of the volume that go for the new one.
    pub(crate) lets_go: &'a [String],
}

pub(crate) fn rollback(facts: &RollbackFacts<'_>) -> Plan {
    let RollbackFacts { volume, snapshot, .. } = facts;
    let mut plan = plan(format!("roll {volume} back to {snapshot}"));
    plan.would
        .push(format!("hosts find {volume} as it was at {:.0}, when {snapshot} was taken", facts.created_at));
    if facts.size_bytes != facts.snapshot_size_bytes {
        plan.would.push(format!(
            "its size becomes {} bytes instead of {}",
            facts.snapshot_size_bytes, facts.size_bytes
        ));
    }
    if !facts.on_main_line {
        plan.would.push(format!("{snapshot} lies on a side branch, which becomes the main line"));
    }
    if let Some(why) = facts.fence {
        plan.would.push(format!("hosts may read it, and not write, as before: {why}"));
    }
    plan.would.extend(
        facts
            .followed_by
            .iter()
            .map(|by| {
                let (site, replica) = by.split_once(':').unwrap_or(("that site", by));
                format!(
                    "{by} follows at its next update. What is newer there stays as a side branch, and the alarm source-went-back \
                     is raised there, as nobody at {site} knows that it is meant: farside mirror update {replica} there ends it"
                )
            }),
    );
    plan.would.extend(
        facts
            .broken_off
            .iter()
            .map(|by| format!("{by} stays as it is: it was broken off from {volume}, and follows nothing")),
    );
    // Whoever goes back with all of them finds the command's name in it.
    plan.would.extend(facts.group.map(|group| {
        format!(
            "the other volumes of group {group} stay where they are: unless they show that moment too, the group shows no moment in common \
             then; farside snapshot rollback --group {group} --at {snapshot} takes all of them to it, if all have it"
        )
    }));
    match (facts.changed_bytes, facts.held_by) {
        (Some(0), _) => {}
        (changed, Some(held_by)) => {
            keep(&mut plan, opens(&format!("{volume}@{held_by}")), changed, Some(facts.age_seconds));
        }
        (changed, None) => keep(&mut plan, rescue(volume), changed, Some(facts.age_seconds)),
    }
    for old in facts.lets_go {
        lose(&mut plan, old_side_branch(volume, old), None, None);
    }
    plan
}

/// What deleting a snapshot gives back to its pool.
#[derive(Clone, Copy, Default)]
pub(crate) struct Frees<'a> {
    /// About; while several versions go on from it, at most. None: unknown.
    pub(crate) bytes: Option<u64>,
    /// How many versions go on from it. While there are several it stays on the medium, and nothing comes back.
    pub(crate) heirs: usize,
    /// The side branches that begin at it, if several do, each by its oldest snapshot.
    pub(crate) branches: &'a [String],
}

/// `snapshot delete`.
pub(crate) fn delete_snapshot(
    volume: &VolumeName,
    snapshot: &str,
    created_at: Timestamp,
    on_main_line: bool,
    only_here_bytes: Option<u64>,
    frees: Frees<'_>,
    clones: &[String],
) -> Plan {
    let mut plan = plan(format!("delete snapshot {volume}@{snapshot}"));
    plan.would
        .push(format!("{volume}@{snapshot} is deleted; the volume and its other snapshots stay as they are"));
    leave_clones(&mut plan, clones);
    if let Some(bytes) = frees.bytes.filter(|_| clones.is_empty()) {
        plan.would.push(match frees.heirs {
            2.. => {
                let why = match frees.branches {
                    [] => String::from("several versions go on from it, one of which a transfer may be bringing"),
                    branches => format!("a side branch that begins at it is there ({})", branches.join(", ")),
                };
                format!(
                    "nothing comes back in the pool while {why}; after that at most {bytes} bytes do, as far as nothing else uses them"
                )
            }
            1 if bytes == 0 => {
                String::from("nothing comes back in the pool: what goes on from it, or what it began as, holds the same")
            }
            1 => format!("about {bytes} bytes come back in the pool; what deduplication shares stays in use"),
            // With it goes what it alone shows of the points below, and what lies there that nothing shows any more.
            0 => format!(
                "about {} bytes come back in the pool, or more where nothing else shows what lies below it; what deduplication shares stays \
                 in use",
                bytes.max(only_here_bytes.unwrap_or_default())
            ),
        });
    }
    let what = if on_main_line {
        format!(
            "the state of {volume} at {created_at:.0}; at most the data that no other version of it holds:"
        )
    } else {
        format!(
            "the overtaken state of {volume} at {created_at:.0}, a side branch; at most the data that no other version \
             of it holds:"
        )
    };
    lose(&mut plan, what, only_here_bytes, None);
    plan
}
