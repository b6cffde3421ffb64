//! What the calls of a source share, and the checks that several of them make.

use std::sync::{Arc, MutexGuard, OnceLock, Weak};

use farside_engine::{Engine, VolumeName};
use farside_peer::{PeerId, Refusal};
use farside_platform::Clock;
use farside_transfer::refusal::{not_open, over_budget, refusal};
use farside_transfer::source::TransferSource;
use tokio::sync::watch;
use uuid::Uuid;

use super::refusal::to_refusal;
use super::registry::{Registry, Tables};
use super::reversal::Reversal;
use crate::error::blocking;
use crate::store::SourceStore;

pub(super) struct Shared {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) registry: Arc<Registry>,
    pub(super) transfers: TransferSource,
    pub(super) store: Arc<dyn SourceStore>,
    pub(super) clock: Arc<dyn Clock>,
    /// How often what is overtaken has changed.
    pub(super) overtaken_changes: watch::Sender<u64>,
    /// The destination side of this site, for a role change; it holds this side, so not the other way round too.
    pub(super) reversal: OnceLock<Weak<dyn Reversal>>,
}

impl Shared {
    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        self.registry.tables()
    }

    /// Counts a call or a stream of `peer` against its budget.
    pub(super) fn admit(&self, peer: PeerId) -> Result<(), Refusal> {
        let now = self.clock.monotonic();
        let mut tables = self.tables();
        let Tables { rates, budgets, .. } = &mut *tables;
        rates.call(budgets, peer, now).map_err(over_budget)
    }

    /// The same for what takes a snapshot or walks through metadata.
    pub(super) fn admit_snapshot(&self, peer: PeerId) -> Result<(), Refusal> {
        let now = self.clock.monotonic();
        let mut tables = self.tables();
        let Tables { rates, budgets, .. } = &mut *tables;
        rates.snapshot(budgets, peer, now).map_err(over_budget)
    }

    /// The same for what takes the last snapshot of a role change.
    pub(super) fn admit_swap(&self, peer: PeerId) -> Result<(), Refusal> {
        let now = self.clock.monotonic();
        let mut tables = self.tables();
        let Tables { rates, budgets, .. } = &mut *tables;
        rates.swap(budgets, peer, now).map_err(over_budget)
    }

    /// Rights first, existence second: who may not read a volume does not learn whether it is there.
    pub(super) fn check_rights(&self, peer: PeerId, volume: &VolumeName) -> Result<(), Refusal> {
        if self.registry.rights.may_read(peer, volume) {
            return Ok(());
        }
        let message = format!(
            "the source does not allow the asking site to read {volume}, or has no volume of that name. No replica was changed. At the source: \
             farside peer allow {} {volume} --reverse",
            self.name_of(peer)
        );
        Err(refusal("forbidden", message))
    }

    /// What needs the volume's pool comes again: after its rights, as nobody else is to learn which pools there are.
    pub(super) fn check_open(&self, volume: &VolumeName) -> Result<(), Refusal> {
        if self.engine.has_pool(&volume.pool) { Ok(()) } else { Err(not_open(&volume.pool)) }
    }

    /// A relationship is its peer's and its volume's alone.
    pub(super) fn check_owner(
        &self,
        relationship: Uuid,
        peer: PeerId,
        volume: &VolumeName,
    ) -> Result<(), Refusal> {
        match self.tables().relationships.get(&relationship) {
            Some(known) if known.peer != peer || known.source != *volume => Err(refusal(
                "forbidden",
                format!("relationship {relationship} belongs to another site or volume at the source"),
            )),
            _ => Ok(()),
        }
    }

    /// The relationship that this volume is itself a replica of belongs to its destination, which is this site: a peer
    /// that named it could have the replica's own base released.
    pub(super) async fn check_not_own(&self, relationship: Uuid, volume: &VolumeName) -> Result<(), Refusal> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        match blocking(move || engine.replica_record(&of)).await {
            Ok(Some(record)) if record.relationship == relationship => Err(refusal(
                "forbidden",
                format!(
                    "relationship {relationship} is the one by which {volume} at the source is itself a replica; the \
                     asking site cannot use it"
                ),
            )),
            // A volume that is gone has nothing to protect; what needs it will say so.
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(to_refusal(error)),
        }
    }
}
