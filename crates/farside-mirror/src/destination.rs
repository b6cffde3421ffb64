//! All mirrors whose replica is at this site. `service.rs` makes and ends them; `resync.rs` makes a volume follow a peer's from what
//! both hold, `swap.rs` changes the roles, `plans.rs` tells what either would set aside,
//! `upstream.rs` asks a source where it stands.

mod endings;
mod plans;
mod resync;
mod service;
mod swap;
mod upstream;

pub use endings::Endings;
pub use plans::{PlanPoint, RoleChangePlan};
pub use service::{Destination, DestinationParts, MadeMirror, NewMirror};
pub use swap::SwapReport;
