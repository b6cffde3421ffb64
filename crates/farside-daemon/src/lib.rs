//! Wires the rooms together: HTTP API, state database, metrics.
//!
//! [`run()`] is the whole daemon: it locks its data directory, opens the state database and the pools, serves the API
//! on the control socket, meets peers, and stops cleanly when told to. What a disaster needs is in the pools; the
//! state database can be deleted and costs pairings, schedules and history, never data.
//!
//! Read in this order:
//!
//! * [`options`]: arguments and file, merged.
//! * `run`: start to stop in one function. `known_pools`, `known_clusters`: the pools that it begins with. `pool_marks`: whether one is
//!   an older copy of itself. `check`: whether the daemon would start.
//! * `pools`, `exports`, `hosts`, `peers`, `mirrors`: the seam of each crate below, one file.
//! * `accelerator`: the process of the accelerator.
//! * `alarms`: what is wrong, told once. `events`: what changes, told as it changes.
//! * `operations`, `scrubs`, `dedups`: long work, `pace`: how fast. `plans`, `figures`: what a destructive request would do, and how much that is.
//! * `state`: the database. `daemons`: several daemons that are one site.
//! * `http`: the API, one file per noun, and `/metrics`, `/healthz` and `/readyz`.
//!
//! * `access`: who may use the API over HTTPS; `api_certificate`: what it shows there.
//!
//! Not guarded against: whoever may write to the control socket (its file mode says who) can do everything the
//! daemon can.

mod accelerator;
mod access;
mod alarms;
mod api_certificate;
mod blocking;
mod certificate_end;
mod changed;
mod check;
mod commands;
mod convert;
mod daemons;
mod damage;
mod data_dir;
mod dedups;
mod delays;
mod drills;
mod durations;
mod error;
mod events;
mod export_failure;
mod exports;
mod failure;
mod figures;
mod hosts;
mod http;
mod known_clusters;
mod known_pools;
mod listen;
mod logging;
mod metrics;
mod mirrors;
mod operations;
pub mod options;
mod pace;
mod peers;
mod plans;
mod pool_marks;
mod pools;
mod rights;
mod run;
mod schedules;
mod scrubs;
mod service;
mod signals;
mod similarity;
mod site;
mod sites;
mod snapshot_schedules;
mod staged;
mod state;
mod throttles;
mod volume_ids;
mod whereabouts;

pub use check::check;
pub use error::DaemonError;
pub use options::{Listen, Options};
pub use run::run;
