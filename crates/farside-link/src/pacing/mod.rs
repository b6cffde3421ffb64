//! How fast the lanes of one path may send together: [`rate`] decides, [`sockets`] looks at the sockets and tells the kernel.

mod rate;
#[cfg(test)]
mod simulation;
mod sockets;

pub(crate) use rate::is_queue;
pub use sockets::PacedLanes;
pub(crate) use sockets::is_near;
