//! What interception needs of Linux: rules, routes, the queue of held SYNs, transparent sockets. Everything that must be taken
//! back is a value that takes it back when it is dropped, and the rules go with the process, however it ends.
//!
//! It takes CAP_NET_ADMIN. No program is run.
//!
//! In this order, so that no SYN waits for anybody who is not there, and that a second accelerator in this network namespace fails at
//! the queue, before it touches the routes of the first:
//!
//! ```text
//! start: listeners, queue, routes, table         stop: queue (what waits goes plainly), table, routes, listeners
//! ```

mod bridges;
mod carried;
mod error;
pub mod interfaces;
mod lookup;
mod netfilter;
mod netlink;
mod queue;
mod routes;
pub mod transparent;

pub use bridges::bridge_of;
pub use carried::{Carried, Kept};
pub use error::KernelError;
pub use lookup::{Leads, Lookup};
pub use netfilter::{OwnedTable, TableOwner, table_owner};
pub use queue::{Decision, Held, Origin, QUEUE_LENGTH, SynQueue};
pub use routes::MarkRoutes;
