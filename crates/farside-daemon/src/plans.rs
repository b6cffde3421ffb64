//! What destructive requests would do, in words and figures. Pure: whoever asks has looked the facts up.
//!
//! Each plan tells first what happens, then what would be lost for good, then what stays and where. Figures of data are in
//! fields; the client puts them into the units its reader likes.

use farside_api::Plan;
use farside_engine::{BLOCK_BYTES, VolumeName};

mod access;
mod break_off;
mod mirrors;
mod overtaken;
mod peers;
mod pools;
mod resync;
mod retention;
mod snapshots;
mod volumes;

pub(crate) use self::access::{remove_account, remove_host, revoke_token};
pub(crate) use self::break_off::{BreakAt, BreakFacts, FenceAfter, Heard, break_off, give_up_resync};
pub(crate) use self::mirrors::{
    DeleteFacts, beside_swap, delete_mirror, initialize, left_by_swap, release, swap, unasked_swap,
};
pub(crate) use self::overtaken::{OvertakenFacts, fence, fence_lifted, overtaken, stays_fenced};
pub(crate) use self::peers::{
    RemoveFacts, ReplaceFacts, not_denied, not_followed, remove_peer, replace_peer, right_unseen,
};
pub(crate) use self::pools::{
    STOP_TRANSFER, add_clustered, create_pool, delete_pool, drop_staged, forget_pool, import_pool,
};
pub(crate) use self::resync::{ResyncFacts, after_role_change, resync, resync_waits, waits_for_session};
pub(crate) use self::retention::{rotate_otherwise, rotate_otherwise_then, rotates_so_already};
pub(crate) use self::snapshots::{RollbackFacts, delete_snapshot, rollback};
pub(crate) use self::volumes::{busy, delete_volume, resize};

/// A plan that loses and keeps nothing yet.
pub(crate) fn plan(action: String) -> Plan {
    Plan { action, lost_blocks: Some(0), lost_bytes: Some(0), lost_seconds: Some(0.0), ..Plan::default() }
}

/// What goes for good; None where it is unknown.
fn lose(plan: &mut Plan, what: String, bytes: Option<u64>, seconds: Option<f64>) {
    plan.lost.push(what);
    plan.lost_bytes = bytes;
    plan.lost_blocks = bytes.map(blocks);
    plan.lost_seconds = seconds;
}

/// What becomes a side branch; None where it is unknown.
fn keep(plan: &mut Plan, what: String, bytes: Option<u64>, seconds: Option<f64>) {
    plan.kept_as = Some(what);
    plan.kept_bytes = bytes;
    plan.kept_blocks = bytes.map(blocks);
    plan.kept_seconds = seconds;
}

/// How many blocks hold so many bytes.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// How a side branch is used.
fn opens(name: &str) -> String {
    format!(
        "{name}; it opens read-only over NBD under that name, and farside snapshot rollback goes back to it"
    )
}

/// The name of a rescue snapshot before it is given.
fn rescue(volume: &VolumeName) -> String {
    opens(&format!("a side branch {volume}@rescue-TIME (its name is printed when it is done)"))
}

/// One that goes for a new one.
fn old_side_branch(volume: &VolumeName, old: &str) -> String {
    format!(
        "the old side branch {volume}@{old}: a volume keeps its newest, and the first of each of as many days (replicas.rescues). \
         To keep it: farside snapshot hold {volume}@{old}"
    )
}

#[cfg(test)]
mod tests;
