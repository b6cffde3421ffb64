//! The destination's side of a transfer: asks, receives, stages, verifies and publishes.

mod cross_volume;
mod held;
mod known;
mod named;
mod progress;
mod publish;
mod receive;
mod resume;
mod run;
mod together;
mod transfer;

pub use progress::ProgressSender;
pub use run::run;
pub use together::{Brought, Together, publish_together};
pub use transfer::{NoRoom, Outcome, Transfer};
