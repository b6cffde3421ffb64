//! The source's side: what this site does for destinations that mirror its volumes.
//!
//! A destination asks; nothing happens here unasked. What is kept for a relationship is its base and, while a
//! transfer runs, the snapshots that travel; each is pinned in the pool, so that neither a person nor a crash takes it
//! away, and each goes when the destination has acknowledged a newer one, at the latest at the next transfer. A
//! relationship belongs to the peer that began it: nobody else can move or release its bases. Rights are asked at
//! every call, every stream and every frame.
//!
//! It never learns what state the relationship is in: that is the destination's.

mod age;
mod compare;
mod further;
mod overtaken;
mod pins;
mod refusal;
mod registry;
mod retention;
mod reversal;
mod rights;
mod role_changes;
mod service;
mod shared;
mod swap;
mod together;
mod transfers;
mod upstream;

pub use pins::{PinnedSnapshot, UnexplainedPin};
pub use retention::BudgetUse;
pub use reversal::{Reversal, ReverseAccepted, ReverseOffer, ReverseRights};
pub use rights::SourceRights;
pub use service::SourceService;
pub(crate) use upstream::{Overtaker, Stands};
