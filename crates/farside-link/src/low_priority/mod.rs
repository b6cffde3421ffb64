//! Low priority: a stream that gives way to whatever else uses the path; see [`cap`].

mod cap;
#[cfg(test)]
mod packets;
#[cfg(test)]
mod simulation;

pub(crate) use cap::{Allowed, Flow, LowPriority, PathSeen};
