//! What every engine does, as tests: one suite for all of them. What of it is about a [capability](crate::Capability) is passed over
//! where the engine has none.
//!
//! An engine hands over a [`Fixture`]: its storage, what hosts do to it, and how its process dies. One line in
//! `tests/conformance.rs` then runs everything here on it:
//!
//! ```text
//! farside_engine::conformance! { embedded: farside_engine::embedded::fixture::Embedded }
//! ```
//!
//! What it asks is what the traits' comments promise, and no more: differences may be larger than they need be, an engine may have
//! room for one staged version at a time, names that it gives are its own affair. What it does not ask: speed, and how damage of the
//! medium is found, which each engine tests for itself.

#![allow(clippy::unwrap_used, reason = "a suite that cannot go on has failed")]

pub mod across;
pub mod branches;
pub mod content;
pub mod crashes;
pub mod differences;
mod fixture;
pub mod known;
pub mod owners;
pub mod publication;
mod reference;
pub mod snapshots;
pub mod staging;
pub mod together;
mod world;

pub use fixture::{Fixture, POOL};

/// Runs the suite on a fixture, in a module of its own: `NAME: FIXTURE`, or `NAME: FIXTURE, where CONDITION` for one that needs what is
/// not everywhere; the condition says on stderr what is missing, and each test passes then.
#[macro_export]
macro_rules! conformance {
    ($name:ident: $fixture:ty) => {
        $crate::conformance! { $name: $fixture, where true }
    };
    ($name:ident: $fixture:ty, where $is_there:expr) => {
        $crate::conformance! { @tests $name: $fixture, $is_there;
            snapshots: snapshots_hold_what_hosts_had, what_is_taken_is_taken_once,
                a_pinned_snapshot_stays, a_snapshot_changes_hands, an_open_snapshot_outlives_its_deletion,
                a_volume_goes_with_its_snapshots;
            differences: differences_hold_all_that_differs, the_present_differs_just_if_it_does;
            content: fingerprints_are_those_of_the_blocks, zeros_are_holes_however_they_came,
                subtrees_are_those_of_the_blocks_below;
            staging: a_staged_version_is_its_base_and_what_was_written, what_is_staged_is_found_again,
                a_staged_version_changes_its_size, a_staged_version_outlives_its_base,
                what_is_not_whole_blocks_inside_is_refused;
            publication: a_commit_shows_all_of_it_at_once, what_hosts_wrote_stays_at_a_commit,
                a_break_in_mid_transfer_shows_the_last_moment, a_commit_is_for_the_mirror_alone,
                a_refused_commit_changes_nothing, a_record_ends_only_for_its_own_mirror;
            branches: a_volume_goes_back_and_keeps_what_it_showed, a_branch_says_where_it_left_the_line,
                only_its_own_mirror_moves_a_replica, what_rotates_keeps_nothing_for_good;
            together: several_volumes_change_in_one_moment_or_not_at_all;
            known: what_the_peer_sent_is_found_and_nothing_else;
            crashes: changes_of_volumes_survive_whole, changes_of_snapshots_survive_whole,
                changes_of_staged_versions_survive_whole, publications_survive_whole,
                a_checkpoint_keeps_what_it_covered;
            owners: whoever_lost_the_storage_changes_nothing;
        }
    };
    (@tests $name:ident: $fixture:ty, $is_there:expr; $($area:ident: $($test:ident),+;)+) => {
        mod $name {
            $($(
                #[test]
                fn $test() {
                    if $is_there {
                        $crate::conformance::$area::$test::<$fixture>();
                    }
                }
            )+)+
        }
    };
}
