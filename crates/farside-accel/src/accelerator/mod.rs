//! The accelerator while it runs.
//!
//! ```text
//! SYN held ─ Accelerator::begin ─► plain, or open over a trunk ─► verdict ─► listener ─► flow        intercept.rs
//! port of a forward ─────────────────────────────► open over a trunk ─────────────────► flow        forward.rs
//! `farsided` hands over a socket ────────────────► open over a trunk ─────────────────► flow        preposition.rs
//! a peer's box opens ─► may it, which policy ─► connect as the client ────────────────► flow        serving.rs
//! ```

mod forward;
mod intercept;
mod placement;
mod preposition;
mod probes;
mod served;
mod serving;
mod start;
mod state;
mod under_way;

pub use start::{Running, StartError, plan};
pub use state::Accelerator;
