//! How many connections carry a stream; see [`count`] for the rule and [`watch`] for what it is fed with.

mod count;
#[cfg(test)]
mod simulation;
mod watch;

pub use count::lanes_of_bulk;
pub use watch::{LaneWatch, min_rtt};
