//! Experiments: files, plan, runs, records.
//!
//! An experiment is a matrix: links × data × contenders × congestion control, each cell a few times. `farside-lab run`
//! reads the file ([`mod@file`]) and all that it names ([`setting`]), decides which runs are left ([`mod@plan`], against the
//! [`journal`]) and how long they take ([`estimate`]), makes them ([`conduct`], each one by [`mod@run`]), and sums up
//! ([`summary`], with [`stats`] and [`expect`]) what [`outputs`] writes. Deciding, estimating, judging and summing up are
//! pure; [`run`](mod@run) alone touches the test bed.

pub mod conduct;
pub mod digest;
pub mod estimate;
pub mod expect;
pub mod file;
pub mod journal;
pub mod machine;
pub mod outputs;
pub mod plan;
pub mod progress;
pub mod run;
pub mod setting;
pub mod slowness;
pub mod stats;
pub mod summary;
