//! What the accelerator shall be, and what it is. Handed between those who ask and the supervisor; no I/O.

use std::os::fd::OwnedFd;

use farside_accel::control::{Command, Forward, Interception, Peer, Secret, Settings, Status, StorePlace};
use farside_accel::policy::{Action, WrittenPolicy};
use serde_json::Value;
use tokio::sync::oneshot;

/// What a process shall do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Desired {
    /// Another number: another process. Peers, forwards and policies change under the same.
    pub(super) number: u64,
    pub(super) site_name: String,
    pub(super) listen: String,
    pub(super) interception: Option<Interception>,
    pub(super) store: StorePlace,
    pub(super) forward_to: Vec<String>,
    pub(super) policies: Vec<WrittenPolicy>,
    pub(super) otherwise: Action,
    pub(super) peers: Vec<Peer>,
    pub(super) forwards: Vec<Forward>,
}

impl Desired {
    /// Whether a process that does this can do `next` without being started anew.
    pub(super) fn is_same_process(&self, next: &Desired) -> bool {
        let (peers, forwards) = (next.peers.clone(), next.forwards.clone());
        let (policies, otherwise) = (next.policies.clone(), next.otherwise);
        Desired { number: next.number, peers, forwards, policies, otherwise, ..self.clone() } == *next
    }

    /// As a new process is told. Of forwards it hears once it works: a port that is taken must not keep it from that.
    pub(super) fn settings(&self, identity: Secret) -> Settings {
        Settings {
            release: env!("CARGO_PKG_VERSION").to_owned(),
            site_name: self.site_name.clone(),
            identity,
            listen: self.listen.clone(),
            interception: self.interception.clone(),
            store: Some(self.store.clone()),
            forward_to: self.forward_to.clone(),
            policies: self.policies.clone(),
            otherwise: self.otherwise,
            peers: self.peers.clone(),
            forwards: Vec::new(),
        }
    }
}

/// How far the process is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Phase {
    /// There shall be none.
    #[default]
    Off,
    /// It has been started and does not work yet.
    Starting,
    /// It works.
    Running(Box<Status>),
    /// There is none, and one is started again.
    Down {
        /// Why.
        why: String,
    },
}

/// What is known of the accelerator.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// Of which [`Desired`] this is.
    pub(super) number: u64,
    pub(super) phase: Phase,
    /// How often a process has said how it goes.
    pub(super) reports: u64,
    /// Processes that had to be started again.
    pub(super) restarts: u64,
    /// Why not every forward works.
    pub(super) forwards_error: Option<String>,
    /// What processes before this one counted.
    pub(super) before: Totals,
}

impl Seen {
    /// What was counted since the daemon started.
    pub(super) fn totals(&self) -> Totals {
        match &self.phase {
            Phase::Running(status) => self.before.and(status),
            Phase::Off | Phase::Starting | Phase::Down { .. } => self.before,
        }
    }
}

/// What processes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) passed_through: u64,
    pub(super) taken: u64,
    pub(super) reset: u64,
    pub(super) original_bytes: u64,
    pub(super) wire_bytes: u64,
    pub(super) prepositioned_original_bytes: u64,
    pub(super) prepositioned_wire_bytes: u64,
}

impl Totals {
    /// With what a process says of itself.
    pub(super) fn and(self, status: &Status) -> Totals {
        Totals {
            passed_through: self.passed_through.saturating_add(status.passed_through_connections),
            taken: self.taken.saturating_add(status.taken_connections),
            reset: self.reset.saturating_add(status.reset_connections),
            original_bytes: self.original_bytes.saturating_add(status.original_bytes),
            wire_bytes: self.wire_bytes.saturating_add(status.wire_bytes),
            prepositioned_original_bytes: self
                .prepositioned_original_bytes
                .saturating_add(status.prepositioned.original_bytes),
            prepositioned_wire_bytes: self
                .prepositioned_wire_bytes
                .saturating_add(status.prepositioned.wire_bytes),
        }
    }

    /// With what a process last said that is no more: the connections it had went with it.
    pub(super) fn after(self, status: &Status) -> Totals {
        let totals = self.and(status);
        Totals { reset: totals.reset.saturating_add(status.optimized_connections), ..totals }
    }
}

/// A question for the process.
pub(super) struct Ask {
    pub(super) command: Command,
    /// Goes with it.
    pub(super) descriptor: Option<OwnedFd>,
    /// Dropped if there is no process to ask.
    pub(super) answer: oneshot::Sender<Result<Value, String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_survives_the_process() {
        let status = Status {
            optimized_connections: 3,
            taken_connections: 10,
            reset_connections: 1,
            original_bytes: 1000,
            ..Status::default()
        };
        let mut seen = Seen { phase: Phase::Running(Box::new(status.clone())), ..Seen::default() };
        assert_eq!((seen.totals().taken, seen.totals().reset), (10, 1));
        seen.before = seen.before.after(&status);
        seen.phase = Phase::Starting;
        assert_eq!((seen.totals().taken, seen.totals().reset), (10, 4), "three went with it");
        seen.phase = Phase::Running(Box::new(status));
        assert_eq!((seen.totals().original_bytes, seen.totals().reset), (2000, 5));
    }
}
