//! Hosts come first: transfers work on threads of their own, at a lower priority, and rest when hosts become slower for them.
//!
//! Whoever serves hosts tells [`Hosts::served`] how long each operation took. Whoever does a piece of a transfer (about 1 MiB read,
//! searched, encoded or written) goes through [`Hosts::piece`]. How much of the time transfers may work is decided every 50 ms,
//! by comparing what operations take while they work with what they take while they rest ([`share`], pure).

mod hosts;
pub mod share;
mod threads;

pub use hosts::Hosts;
pub use share::{HeldBack, Precedence};
pub use threads::Threads;
pub(crate) use threads::{encode, move_data};
