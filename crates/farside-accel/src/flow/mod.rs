//! A connection that is taken, as its trunk and the tasks that carry it ([`crate::carry`]) see it: what has arrived, in order; what
//! may be sent; what the far side may still ask for.

mod inbox;
mod state;
mod window;

pub use inbox::{Arrived, Part};
pub(crate) use state::ASKS_MAX;
pub use state::{Asked, Flow};
pub use window::Windows;
