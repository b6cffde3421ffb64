//! What destructive requests would do, in words and figures. Pure: whoever asks has looked the facts up.
//!
//! Each plan tells first what happens, then what would be lost for good, then what stays and where. Figures of data are in
//! fields; the client puts them into the units its reader likes.

mod access;
mod break_off;
mod mirrors;
mod overtaken;
mod parts;
mod peers;
mod pools;
mod resync;
mod retention;
mod snapshots;
mod volumes;

pub(crate) use self::access::{remove_account, remove_host, revoke_token};
pub(crate) use self::break_off::{BreakAt, BreakFacts, FenceAfter, Heard, break_off, give_up_resync};
pub(crate) use self::mirrors::{
    DeleteFacts, beside_swap, delete_mirror, initialize, left_by_swap, release, swap, swap_of_a_part,
    unasked_swap,
};
pub(crate) use self::overtaken::{OvertakenFacts, fence, fence_lifted, overtaken, stays_fenced};
pub(crate) use self::parts::{blocks, plan};
pub(crate) use self::peers::{
    RemoveFacts, ReplaceFacts, not_denied, not_followed, remove_peer, replace_peer, right_unseen,
};
pub(crate) use self::pools::{
    STOP_TRANSFER, add_clustered, create_pool, delete_pool, drop_staged, forget_pool, import_pool,
};
pub(crate) use self::resync::{
    ResyncFacts, after_role_change, has_crossed, resync, resync_waits, waits_for_session,
};
pub(crate) use self::retention::{rotate_otherwise, rotate_otherwise_then, rotates_so_already};
pub(crate) use self::snapshots::{Frees, RollbackFacts, delete_snapshot, rollback};
pub(crate) use self::volumes::{busy, delete_volume, resize};

#[cfg(test)]
mod tests;
