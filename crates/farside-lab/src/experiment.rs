//! Experiments: files, plan, runs, records.
//!
//! An experiment is a matrix: links × data × contenders × congestion control, each cell a few times. `farside-lab run`
//! reads the file ([`file`]), and everything else follows from it.

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
pub mod stats;
pub mod summary;
