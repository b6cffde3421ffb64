//! What plans are made of: what is lost, what is kept and how it is opened. Pure.

use farside_api::Plan;
use farside_engine::{BLOCK_BYTES, VolumeName};

/// A plan that loses and keeps nothing yet.
pub(crate) fn plan(action: String) -> Plan {
    Plan { action, lost_blocks: Some(0), lost_bytes: Some(0), lost_seconds: Some(0.0), ..Plan::default() }
}

/// What goes for good; None where it is unknown.
pub(super) fn lose(plan: &mut Plan, what: String, bytes: Option<u64>, seconds: Option<f64>) {
    plan.lost.push(what);
    plan.lost_bytes = bytes;
    plan.lost_blocks = bytes.map(blocks);
    plan.lost_seconds = seconds;
}

/// What becomes a side branch; None where it is unknown.
pub(super) fn keep(plan: &mut Plan, what: String, bytes: Option<u64>, seconds: Option<f64>) {
    plan.kept_as = Some(what);
    plan.kept_bytes = bytes;
    plan.kept_blocks = bytes.map(blocks);
    plan.kept_seconds = seconds;
}

/// How many blocks hold so many bytes.
pub(crate) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// What becomes of a transfer under way.
pub(super) fn dropped_transfer(arrived_bytes: u64) -> String {
    format!("the running transfer ends; the {arrived_bytes} bytes of it that have arrived are dropped")
}

/// How a side branch is used.
pub(super) fn opens(name: &str) -> String {
    format!(
        "{name}; it opens read-only over NBD under that name, and farside snapshot rollback goes back to it"
    )
}

/// The name of a rescue snapshot before it is given.
pub(super) fn rescue(volume: &VolumeName) -> String {
    opens(&format!("a side branch {volume}@rescue-TIME (its name is printed when it is done)"))
}

/// One that goes for a new one.
pub(super) fn old_side_branch(volume: &VolumeName, old: &str) -> String {
    format!(
        "the old side branch {volume}@{old}: a volume keeps its newest, and the first of each of as many days (replicas.rescues). \
         To keep it: farside snapshot hold {volume}@{old}"
    )
}
