//! The state database: `DIR/farside.db`, SQLite.
//!
//! Guarantees: what a call has stored is on disk when it returns (WAL, `synchronous = FULL`), and writers never wait
//! for one another's locks (one connection writes). Log and history have a connection of their own that does not sync: the last
//! lines before a power failure may be missing. After a full disk it is written again by itself. Holds what the daemon needs to go on by itself: which pools to
//! open, pairings and rights, relationships, history. Holds nothing that data depends on.

mod access;
mod alarms;
mod audit;
mod database;
mod dedups;
mod drills;
mod ended_transfers;
mod hosts;
mod kept_points;
mod lines;
mod log;
mod peers;
mod pools;
mod relationships;
mod replaced_peers;
mod rights;
mod rows;
mod scrubs;
mod settings;
mod snapshot_schedules;
mod transfers;

pub(crate) use access::TokenRow;
pub(crate) use alarms::AlarmRow;
pub(crate) use audit::{AuditRow, AuditWanted};
pub(crate) use database::StateError;
pub(crate) use database::{SCHEMA, State};
pub(crate) use dedups::DedupRow;
pub(crate) use ended_transfers::EndedTransfer;
pub(crate) use hosts::{HostRightRow, NewHost};
pub(crate) use log::LOST_LINES;
pub(crate) use pools::PoolRow;
pub(crate) use relationships::PoolRelationships;
pub(crate) use rights::{Recorded, RightRow};
pub(crate) use scrubs::ScrubRow;
pub(crate) use snapshot_schedules::SnapshotScheduleRow;
