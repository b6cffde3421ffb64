//! What is done with all mirrors of a group: `initialize`, `break`, `resync`, `swap`, `update` and `drill` with
//! `--group`, and `snapshot rollback --group`.
//!
//! The members of a group show one moment: their updates are published together, or their snapshots were taken together at the source.
//! What is done to each member is one request; whoever is interrupted in between runs the command again, and it goes on with the others.

pub(super) mod abort;
pub(super) mod break_off;
pub(super) mod drill;
mod forgotten;
mod former_source;
mod halves;
pub(super) mod initialize;
mod members;
mod moments;
mod named;
mod nothing_newer;
mod one_moment;
mod own_state;
mod rest;
pub(super) mod resync;
pub(crate) mod rollback;
mod set_aside;
mod since;
mod since_swap;
mod steps;
pub(super) mod swap;
mod told;
mod under_way;
mod whereabouts;

pub(super) use members::to_update;
pub(super) use rest::{in_use_beside, rest_after_break};
