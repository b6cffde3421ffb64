//! What came of a transfer, and what is to be done next, in words.

use farside_api::{Mirror, Operation, OperationKind, TransferRecord};

use super::side_branches::deleted;
use crate::output::or_dash;
use crate::progress;
use crate::quantities::{duration, size};

/// What the new replica lacks, with the lines to type.
pub(super) fn advice_after_resync(follower: &Mirror) -> String {
    let name = &follower.name;
    let mut advice = String::new();
    if follower.schedule.is_none() {
        advice += &format!(
            "{name} has no schedule: it is updated only when you ask; farside mirror set {name} --every 10s gives it one\n"
        );
    }
    if follower.retention.is_none() {
        advice += &format!(
            "{name} keeps its newest point and every snapshot that the other side takes by name or timetable, and nothing rotates; farside mirror \
             set {name} --keep last=10,hourly=24,daily=7 keeps more points, and lets old ones go\n"
        );
    }
    advice
}

/// That a part of its group is used here still; nothing if none is. `is_split`: status says so, with what helps.
pub(super) fn group_in_use(follower: &Mirror, used: &[String], is_split: bool) -> String {
    let Some(group) = follower.group.as_ref().filter(|_| !used.is_empty()) else { return String::new() };
    let then = match is_split {
        true => "farside mirror status says what helps".to_owned(),
        false => format!("to have all of it follow: farside mirror resync --group {group}"),
    };
    format!(
        "{} {} in use here, and {} of the same group ({group}) follows: what hosts write at two sites does not fit together; {then}\n",
        used.join(", "),
        if used.len() == 1 { "is" } else { "are" },
        follower.name
    )
}

/// That a failback would be refused, as the rights are here.
pub(super) fn no_right_back(peer: &str, name: &str) -> String {
    format!(
        "no way back yet: after a failover {peer} could not follow {name}, to which it has no right here. For failback: farside peer allow \
         {peer} {name} --reverse\n"
    )
}

/// What its former source keeps from now on is said there: it may remember that from an earlier time. Only what was asked for here is known
/// here, and a line that sets it must not make less of what is kept there.
pub(super) fn advice_after_swap(before: &Mirror) -> Option<String> {
    let (site, volume) = before.source.split_once(':')?;
    let keep = before.retention.as_ref()?;
    Some(format!(
        "of {}, the retention ({keep}) does not go along: {} has what it had there before, if anything. Once the roles have changed, at {site}: \
         farside mirror status {volume} says what that is; if it keeps only its newest point: farside mirror set {volume} --keep {keep}\n",
        before.name, before.source
    ))
}

/// What an operation that has ended did.
pub(super) fn outcome(operation: &Operation) -> String {
    let turned = match operation.kind {
        OperationKind::Swap => {
            format!(
                "the roles have changed: hosts may write to {}, its former source follows it\n",
                operation.volume
            )
        }
        _ => String::new(),
    };
    let Some(record) = &operation.record else {
        return if turned.is_empty() { format!("{} done\n", operation.volume) } else { turned };
    };
    let wire = record.wire_bytes_sent + record.wire_bytes_received;
    let last = record.set_aside.last();
    let set_aside = record.set_aside.iter().rev().map(|name| {
        let of = &operation.volume;
        // What hosts had last is set aside last.
        if operation.kind == OperationKind::Resync && Some(name) != last {
            return format!("an older point of that stays as {of}@{name}\n");
        }
        // From its source, before that went back: of equal content, perhaps.
        let then = match name.starts_with("rescue-source-") {
            true => format!("; farside mirror status {of} says why, and whether it differs"),
            false => String::new(),
        };
        format!("what it showed before stays as {of}@{name}; it opens read-only{then}\n")
    });
    let let_go = record.let_go.iter().map(|name| deleted(&operation.volume, name));
    let set_aside: String = set_aside.chain(let_go).collect();
    let (changed, here) = changed_and_here(record);
    format!(
        "{turned}{} holds {}: {} changed{}{}, {} on the wire{}, {}\n{set_aside}",
        operation.volume,
        or_dash(record.incremental.clone(), |s| s),
        size(changed),
        if here > 0 { format!(", of which {} was here already", size(here)) } else { String::new() },
        // Nothing travels for it, and it may be all that there was.
        if record.deallocated_bytes > 0 {
            format!(", {} became empty", size(record.deallocated_bytes))
        } else {
            String::new()
        },
        size(wire),
        progress::reduction(changed, wire).map(|r| format!(" ({r})")).unwrap_or_default(),
        duration(record.duration_seconds),
    )
}

/// The same of one that was asked for by itself: what a resync has set aside can be had back.
pub(super) fn outcome_and_way_back(operation: &Operation) -> String {
    let set_aside = operation.record.as_ref().and_then(|record| record.set_aside.last());
    let is_resync = operation.kind == OperationKind::Resync;
    let back = set_aside.filter(|_| is_resync).map_or_else(String::new, |name| {
        format!(
            "to take this back, with what hosts wrote here: farside mirror break {} --at {name}\n",
            operation.volume
        )
    });
    outcome(operation) + &back
}

/// Bytes of data that the volume got, and how many of these did not travel: they were known here, or an earlier transfer that was
/// cut had brought them.
pub(super) fn changed_and_here(record: &TransferRecord) -> (u64, u64) {
    let known = record.levels.map_or(0, |levels| levels.known.in_bytes);
    let here = known.saturating_add(record.resumed_bytes);
    (record.changed_bytes.saturating_add(here), here)
}

/// A value as JSON names it.
pub(super) fn name_of(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}
