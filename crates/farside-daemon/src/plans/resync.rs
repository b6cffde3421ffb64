//! `mirror resync`. Pure.

use std::time::Duration;

use farside_api::{ErrorBody, Plan, Timestamp};
use farside_engine::VolumeName;
use farside_mirror::CROSSED_WITH;

use super::parts::{blocks, keep, lose, old_side_branch, plan};
use super::retention::points_that_go;
use crate::convert::roughly;

/// That somebody has asked for a resync which has not begun.
pub(crate) fn resync_waits(volume: &VolumeName, peer: &str) -> String {
    format!(
        "a resync that was asked for waits for {peer}: when that answers, {volume} becomes a replica and shows what is there. Until then nothing is changed, and farside mirror abort {volume} gives it up"
    )
}

/// What of a volume that follows goes back to it: a rollback is refused there.
fn taken_back(facts: &ResyncFacts<'_>, what: &str) -> String {
    let back = match facts.with_group {
        // What the others of it are called by only the command knows that works on all.
        Some(_) => String::from("the answer of the group's resync ends with the line that goes back to it"),
        None => format!("farside mirror break {} --at that name goes back to it", facts.volume),
    };
    format!("{what}; it opens read-only over NBD under that name, and {back}")
}

/// That what is planned begins only with a session, which there is none of now.
pub(crate) fn waits_for_session(peer: &str, patience: Duration) -> String {
    format!(
        "there is no session with {peer} now: this would wait up to {} for one, and then begin; if none comes, nothing is changed",
        roughly(patience.as_secs_f64())
    )
}

/// `mirror resync`.
pub(crate) struct ResyncFacts<'a> {
    pub(crate) volume: &'a VolumeName,
    /// `PEER:POOL/VOL`.
    pub(crate) from: &'a str,
    /// The newest snapshot here that the peer holds too; None: not known.
    pub(crate) base: Option<&'a str>,
    /// What the peer has written since; None: not known.
    pub(crate) incoming_bytes: Option<u64>,
    /// Of it, what was data and is empty there by now.
    pub(crate) emptied_bytes: u64,
    /// In which the volume differs from the base, and over which time; None: not known.
    pub(crate) diverged_bytes: Option<u64>,
    pub(crate) diverged_seconds: Option<f64>,
    /// A person's snapshot that holds all of what the volume shows now.
    pub(crate) held_by: Option<&'a str>,
    /// `PEER:POOL/VOL` of a mirror of this volume that ends by it.
    pub(crate) ends: Option<&'a str>,
    /// `PEER:POOL/VOL` that the volume follows, or followed, instead until now.
    pub(crate) replaces: Option<&'a str>,
    /// `PEER:POOL/VOL` that have taken the volume over, and that it is not to follow.
    pub(crate) taken_over_by: &'a [String],
    /// Nothing is in common, and everything is compared; `base` is what is here.
    pub(crate) compares: bool,
    /// What the volume shows is what the source has on a side branch: nothing is written here beyond it, and it stays.
    pub(crate) is_left: bool,
    /// The group that the volume is in, and what of that is in use here: it would not go along.
    pub(crate) in_use: Option<(&'a str, &'a [String])>,
    /// What that volume follows itself, if it is no original.
    pub(crate) follows: Option<&'a str>,
    /// Old side branches of the volume that go for the new one.
    pub(crate) lets_go: &'a [String],
    /// Points, with their moments, that retention lets go as soon as the volume follows again, oldest first.
    /// The group that is asked to follow as one.
    pub(crate) with_group: Option<&'a str>,
    pub(crate) retention_lets_go: &'a [(String, Timestamp)],
}

pub(crate) fn resync(facts: &ResyncFacts<'_>) -> Plan {
    let ResyncFacts { volume, from, .. } = facts;
    let mut plan = plan(format!("resync {volume} from {from}"));
    if !facts.taken_over_by.is_empty() {
        let by = facts.taken_over_by.join(" and ");
        plan.would.push(format!("{volume} was taken over by {by}, and this follows {from} instead"));
        lose(
            &mut plan,
            format!(
                "for the hosts here: what {by} holds that {from} does not. {by} still has it; to follow that: farside mirror resync {volume} \
                 --from {}",
                facts.taken_over_by[0]
            ),
            None,
            None,
        );
    }
    plan.would
        .push(format!("{volume} becomes the replica of {from}: hosts may not write to it from then on"));
    plan.would.push(match facts.base {
        Some(_) if facts.compares => format!(
            "the two have no point in common: all of {volume} is compared with {from} (8 bytes travel for each block of 4 KiB \
             that is here), and what differs travels; until all of it is here, {volume} shows what it shows now, \
             which stays as {volume}@{}",
            facts.held_by.unwrap_or("rescue-TIME (its name is printed when it is done)")
        ),
        Some(base) => {
            let amount = match facts.incoming_bytes {
                Some(bytes) => format!(" ({} blocks of 4 KiB)", blocks(bytes)),
                None => String::new(),
            };
            format!(
                "what {from} wrote since {base}{amount} travels; until all of it is here, {volume} shows what it shows now"
            )
        }
        None => format!(
            "{from} is asked for the newest point that both hold; only what differs from it travels, and until all of \
             it is here, {volume} shows what it shows now"
        ),
    });
    if facts.compares {
        plan.would.push(format!(
            "where {from} is empty, {volume} is empty too from then on: all of it, if {from} was made anew or holds nothing any more"
        ));
    } else if facts.emptied_bytes > 0 {
        plan.would.push(format!(
            "of that, {} blocks of 4 KiB held data at {base} and are empty at {from} by now: {volume} shows nothing there from then on",
            blocks(facts.emptied_bytes),
            base = facts.base.unwrap_or("the common point"),
        ));
    }
    if let Some(follows) = facts.follows {
        plan.would.push(format!(
            "{from} is itself a replica, of {follows}; hosts write there only after farside mirror break at its site"
        ));
    }
    if let Some((group, used)) = facts.in_use {
        plan.would.push(format!(
            "{volume} is in group {group}, of which {} {} in use here as before: volumes that hosts write to at two sites do not fit together. \
             farside mirror resync --group {group} has all of it follow",
            used.join(", "),
            if used.len() == 1 { "stays" } else { "stay" },
        ));
    }
    if let Some(ends) = facts.ends {
        plan.would.push(format!(
            "the mirror of {volume} at {ends} is over, or stays broken off, until that side is resynced again"
        ));
    }
    if let Some(replaces) = facts.replaces {
        plan.would.push(format!(
            "the mirror of {volume} with {replaces} is over: its last base stays here as {volume}@base-TIME, unless a named \
             snapshot holds the same, and {replaces} is told"
        ));
    }
    // Where everything is compared nobody has counted yet what differs.
    let diverged_bytes = if facts.compares || facts.is_left { None } else { facts.diverged_bytes };
    if diverged_bytes != Some(0) {
        let newer = match facts.held_by {
            Some(held_by) => {
                taken_back(facts, &format!("{volume}@{held_by}, a snapshot that is here already"))
            }
            None => taken_back(
                facts,
                &format!("a side branch {volume}@rescue-TIME (its name is printed when it is done)"),
            ),
        };
        let seconds = facts.diverged_seconds.filter(|_| !facts.compares && !facts.is_left);
        keep(&mut plan, newer, diverged_bytes, seconds);
    }
    for old in facts.lets_go {
        lose(&mut plan, old_side_branch(volume, old), None, None);
    }
    if !facts.retention_lets_go.is_empty() {
        let points = points_that_go(facts.retention_lets_go);
        lose(
            &mut plan,
            format!(
                "retention goes on once {volume} follows again, and lets go what it keeps no more: {points}; more if several points come \
                 at once. farside snapshot hold keeps one"
            ),
            None,
            None,
        );
    }
    plan
}

/// Whether a resync was given up for one in the other direction, by what it ended with: then its volume is what it was before, and the
/// reason says so.
pub(crate) fn has_crossed(reason: &str) -> bool {
    reason.contains(CROSSED_WITH)
}

/// What a resync that failed after the volume had become a replica leaves behind.
pub(crate) fn after_role_change(
    error: ErrorBody,
    volume: &impl std::fmt::Display,
    is_replica: bool,
) -> ErrorBody {
    // It has given way to another resync, or somebody has broken it off: hosts may write to it, and the error says why.
    if !is_replica {
        return error;
    }
    let left = format!(
        "{volume} is a read-only replica again, and no host writes to it; farside mirror break {volume} undoes that, farside mirror \
         update {volume} tries again"
    );
    let hint = match &error.hint {
        Some(hint) => format!("{left}. {hint}"),
        None => left,
    };
    error.hint(hint)
}
