//! A mirror as others see it at its destination: a handle on its driver, and its status.
//!
//! The driver (`driver.rs`) is a task that owns the mirror's state. What survives a restart is not there: configuration is in
//! the [`RelationshipStore`](crate::store::RelationshipStore), whether there is a base and whether it is broken off in the pool.

mod announcements;
mod command;
mod common_base;
mod dissolve;
mod divergence_notice;
mod driver;
mod inspect;
mod late_acknowledgement;
mod log;
mod mirror;
mod notify;
mod resync;
mod role_change;
mod room_wait;
mod rotation;
mod source_wait;
mod status;
mod timing;
mod upstream;

pub(crate) use announcements::{newest_in, swap_message};
pub(crate) use command::{Parts, Replaced, Replacing, RoleChangeCommand};
pub use common_base::{Comparing, ResyncRequest};
pub(crate) use common_base::{base_to_begin_from, common_base, drop_probe, no_room};
pub use dissolve::dissolve_in_pool;
pub(crate) use dissolve::handed_over;
pub use mirror::{Asked, Mirror};
pub(crate) use role_change::already_a_replica;
pub(crate) use rotation::would_let_go_then;
pub use status::{
    CROSSED_WITH, MirrorStatus, NOT_RESYNCED, Published, SourceHeard, Stopped, WentBack, WentOnFrom,
};
