//! The state database: `DIR/farside.db`, SQLite, or a database of a PostgreSQL server.
//!
//! Guarantees: what a call has stored is on disk when it returns (WAL, `synchronous = FULL`; in PostgreSQL `synchronous_commit`),
//! and writers never wait for one another's locks (one connection writes). Log and history have a connection of their own that does
//! not sync: the last lines before a power failure may be missing. After a full disk, or a server that was away, it is written again
//! by itself. One daemon has it: in PostgreSQL the one that leads the site (`postgres/desk.rs`). Holds what the daemon needs to go on by itself: which pools to open, pairings and rights,
//! relationships, history. Holds nothing that data depends on.
//!
//! `statement.rs` and `connections.rs` make one of both databases; `sqlite.rs` and `postgres/` open them; `moving.rs` carries a
//! state from one to the other. A table that is added goes into both migrations and into `tables.rs`.

mod access;
mod address;
mod alarms;
mod audit;
mod cluster_clients;
mod connections;
mod database;
mod dedups;
mod drills;
mod ended_transfers;
mod error;
mod hosts;
mod kept_points;
mod lead;
mod lines;
#[cfg(test)]
mod load;
mod log;
mod moving;
mod peers;
mod pools;
mod postgres;
mod relationships;
mod replaced_peers;
mod rights;
mod rows;
mod scrubs;
mod settings;
mod snapshot_schedules;
mod sqlite;
mod statement;
mod tables;
#[cfg(test)]
pub(crate) mod test_databases;
mod transfers;

pub(crate) use access::TokenRow;
pub(crate) use address::{DatabaseAddress, DatabaseChoice, Password, ServerAddress};
pub(crate) use alarms::AlarmRow;
pub(crate) use audit::{AuditRow, AuditWanted};
pub(crate) use database::State;
pub(crate) use dedups::DedupRow;
pub(crate) use ended_transfers::EndedTransfer;
pub(crate) use error::StateError;
pub(crate) use hosts::{HostRightRow, NewHost};
pub(crate) use log::LOST_LINES;
pub(crate) use moving::MovedTable;
pub(crate) use pools::PoolRow;
pub(crate) use postgres::desk::{Card, Common, DaemonRow, Desk, Leader, Leading, Renewal, Turn, Unchanged};
pub(crate) use relationships::PoolRelationships;
pub(crate) use rights::{Recorded, RightRow};
pub(crate) use scrubs::ScrubRow;
pub(crate) use snapshot_schedules::SnapshotScheduleRow;
pub(crate) use sqlite::SCHEMA;
