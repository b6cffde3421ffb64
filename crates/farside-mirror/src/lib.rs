//! Relationships: a destination volume that follows a peer's volume. States, schedule, and both sides of a transfer.
//!
//! A mirror belongs to its destination. The story of one update, and where it is told:
//!
//! ```text
//!   schedule::Ticker, or a person ─► relationship (driver) ─► state::RelationshipState::step: queued ─► transferring
//!   farside_transfer::destination ── begin ──────────► source::SourceService: rights, budgets, pins
//!                                 ◄─ frames ── (link) ─── farside_transfer::source
//!                                 ── acknowledge ────► source: the new base is pinned, the old one is released
//! ```
//!
//! What this crate guarantees (numbers as in `ARCHITECTURE.md`): a replica always shows one whole snapshot of its
//! source, whatever fails when (M1); nothing is published whose content root was not computed here and found equal (M2); a
//! base in use is pinned on both sides, the new one before the old one goes (M3); the source reads the blocks that
//! changed, and those of the base it codes against, and no others (M4). Break never asks the peer. Beyond the base in
//! use, only the snapshots a person made stay, on either side, and at the destination what its retention names.
//!
//! What it does not: it knows no engine by name, opens no sockets, owns no database; it has [`Engine`](farside_engine::Engine),
//! [`PeerLink`](farside_peer::PeerLink) and [`RelationshipStore`] for that. What a transfer that was
//! cut has staged stays in the pool, and the next one goes on with it ([`farside_transfer::TransferReport::resumed`]).

pub mod budgets;
pub mod destination;
mod directions;
pub mod error;
mod group;
pub mod limits;
pub mod links;
pub mod log;
pub mod objective;
pub mod options;
pub mod past;
pub mod queue;
pub mod relationship;
pub mod replica_limits;
mod replicas;
pub mod rescues;
pub mod retention;
pub mod schedule;
pub mod set_back;
pub mod shown;
pub mod source;
pub mod state;
pub mod store;

pub use budgets::Budgets;
pub use destination::{
    Destination, DestinationParts, Endings, MadeMirror, NewMirror, PlanPoint, RoleChangePlan, SwapReport,
};
pub use error::MirrorError;
pub use links::Links;
pub use log::{LogEntry, LogEvent, RequestedBy};
pub use options::MirrorOptions;
pub use past::{Past, Resynced, WentOnBy};
pub use queue::{QueueStatus, TransferQueue};
pub use relationship::{
    Asked, CROSSED_WITH, Comparing, Mirror, MirrorStatus, NOT_RESYNCED, Published, ResyncRequest,
    SourceHeard, Stopped, WentBack, WentOnFrom, dissolve_in_pool,
};
pub use replica_limits::ReplicaLimits;
pub use retention::Retention;
pub use schedule::{ClockReading, Schedule, Ticker, Timetable};
pub use source::{
    BudgetUse, PinnedSnapshot, Reversal, ReverseAccepted, ReverseOffer, ReverseRights, SourceRights,
    SourceService, UnexplainedPin,
};
pub use state::State;
pub use store::{
    Ending, EndingStore, MemoryStore, Overtaken, Relationship, RelationshipStore, Released,
    SourceRelationship, SourceStore, SwapMark,
};
