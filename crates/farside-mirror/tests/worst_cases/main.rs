//! The worst-case table: every step of every operation on a mirror, with everything that can go wrong just there. What
//! must be so afterwards is stated (`table.rs` and the operations), printed in the manual, and asserted here.
//!
//! Each cell runs once for each seed, at a point of its step that the seed chooses. `FARSIDE_SEED` and `FARSIDE_SEEDS` say
//! which seeds; `FARSIDE_CELL` runs only cells whose name (operation / step / fault) contains it; `FARSIDE_NAME_RUNS`
//! prints each; `FARSIDE_WRITE_PAGE` writes the manual's page anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod break_off;
mod inflict;
mod page;
mod resync;
mod run;
#[path = "../support/mod.rs"]
mod support;
mod swap;
mod table;
mod update;
mod watch;
mod world;

use run::every_cell;
use support::{embedded_storage, site};

#[test]
fn initialize() {
    every_cell::<update::Initialize>(site::seeds(1, 1));
}

#[test]
fn update() {
    every_cell::<update::Update>(site::seeds(1, 1));
}

#[test]
fn break_off() {
    every_cell::<break_off::Break>(site::seeds(1, 1));
}

#[test]
fn resync() {
    every_cell::<resync::Resync>(site::seeds(1, 1));
}

#[test]
fn swap() {
    every_cell::<swap::Swap>(site::seeds(1, 1));
}
