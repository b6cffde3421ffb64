//! One movement of one difference: from the source's snapshots to the destination's next version.
//!
//! ```text
//!   destination::run ── begin ──────────────────────► source::TransferSource: snapshot, pin, choose the base
//!                    ◄─ frames ── (link) ─── source/send: difference, read changed blocks, encode
//!   destination/receive: decode, verify, write aside
//!   destination/publish: checkpoint, content root = the source's?  commit (atomic), pin
//!                    ── acknowledge ────────────────► source: the new base is pinned, the old one goes
//! ```
//!
//! What this crate guarantees (numbers as in `ARCHITECTURE.md`): a replica always shows one whole snapshot of its source,
//! whatever fails when (M1); nothing is published whose content root was not computed here and found equal (M2); the source
//! reads the blocks that changed, and those of the base it codes against, and no others (M4). What a transfer that was cut has
//! staged stays in the pool, and the next one goes on with it ([`TransferReport::resumed`]).
//!
//! What it does not: it knows no schedule, no state of a mirror and no role but source and destination, which `farside-mirror`
//! keeps; it asks them through [`SourceRelationships`](source::SourceRelationships) at the source, and is given a [`Replica`]
//! at the destination. It knows no engine by name and opens no sockets: it has [`Engine`](farside_engine::Engine) and
//! [`PeerLink`](farside_peer::PeerLink) for that.

pub mod bases;
pub mod calls;
pub mod destination;
pub mod error;
pub mod fuzz;
pub mod going_back;
pub mod kind;
pub mod limits;
pub mod log_limit;
pub mod precedence;
pub mod protocol;
pub mod quiet;
pub mod refusal;
pub mod replica;
pub mod report;
pub mod source;

pub use error::TransferError;
pub use farside_wire::Effort;
pub use kind::TransferKind;
pub use replica::{Replica, Replicas};
pub use report::{Level, LevelKind, Levels, Phase, Progress, TransferReport, TransferResult};
