//! What a source knows of the relationships of its volumes, in memory: who holds which base, what each peer has asked for, and
//! which role change was seen last. Transfers ask it who may read what, and which bases are kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_engine::VolumeName;
use farside_peer::PeerId;
use farside_transfer::source::{KeptBase, SourceRelationships};
use uuid::Uuid;

use super::log_limit::LogLimit;
use super::rights::SourceRights;
use super::role_changes::{RoleChangeMessage, RoleChangesSeen};
use crate::budgets::{Budgets, Rates};
use crate::limits::ROLE_CHANGES_SEEN_MAX;
use crate::store::SourceRelationship;

/// The relationships of a site's volumes, and who may read what.
pub(super) struct Registry {
    pub(super) rights: Arc<dyn SourceRights>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
pub(super) struct Tables {
    pub(super) relationships: HashMap<Uuid, SourceRelationship>,
    /// By relationship: one change of its snapshots at a time, however its calls overtake each other.
    pub(super) locks: HashMap<Uuid, Arc<tokio::sync::Mutex<()>>>,
    pub(super) refusals_logged: LogLimit<PeerId>,
    /// Of messages that hosts went on elsewhere, by relationship: no flood of others hides one.
    pub(super) alarms: LogLimit<Uuid>,
    pub(super) budgets: Budgets,
    pub(super) rates: Rates,
    /// By relationship: how many snapshots are kept for it, as far as that was seen since the start.
    pub(super) pins: HashMap<Uuid, usize>,
    pub(super) keeping: Keeping,
    /// At most about [`ROLE_CHANGES_SEEN_MAX`](crate::limits::ROLE_CHANGES_SEEN_MAX) besides those in `relationships`.
    pub(super) role_changes_seen: HashMap<Uuid, RoleChangesSeen>,
}

impl Tables {
    /// How many snapshots are kept for a relationship: before its first transfer since the start, what is known for sure.
    pub(super) fn pins_of(&self, relationship: &SourceRelationship) -> usize {
        self.pins.get(&relationship.id).copied().unwrap_or(usize::from(relationship.base.is_some()))
    }
}

/// When what was measured last, and what is about to come free. In memory only.
#[derive(Default)]
pub(super) struct Keeping {
    /// When everything is measured again (monotonic).
    pub(super) due: Duration,
    /// By pool: what was released there last and is not free yet.
    pub(super) expected: HashMap<String, Expected>,
}

/// What will come free: the store gives it back in steps, in the background.
pub(super) struct Expected {
    /// When it was released (monotonic).
    pub(super) at: Duration,
    /// What was free then.
    pub(super) free_then: u64,
    /// What is still to come, bytes.
    pub(super) bytes: u64,
    /// What was to come in all.
    pub(super) of: u64,
}

impl Registry {
    pub(super) fn new(
        rights: Arc<dyn SourceRights>,
        relationships: impl IntoIterator<Item = SourceRelationship>,
    ) -> Registry {
        let relationships = relationships.into_iter().map(|r| (r.id, r)).collect();
        Registry { rights, tables: Mutex::new(Tables { relationships, ..Tables::default() }) }
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        // Every change is one insertion or removal: a panic in between leaves nothing half done.
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held while a relationship's snapshots change: one change at a time.
    pub(super) fn lock(&self, relationship: Uuid) -> Arc<tokio::sync::Mutex<()>> {
        let mut tables = self.tables();
        let Tables { locks, relationships, .. } = &mut *tables;
        // Of relationships that never came about nothing is kept.
        locks.retain(|id, lock| relationships.contains_key(id) || Arc::strong_count(lock) > 1);
        locks.entry(relationship).or_default().clone()
    }

    /// Held while a message about this relationship is acted on. Never by a mirror's driver: who holds it may wait for one.
    pub(super) fn order(&self, relationship: Uuid) -> Arc<tokio::sync::Mutex<()>> {
        self.tables().seen(relationship).order()
    }

    /// The newest role change that was seen; 0 if none was.
    pub(super) fn newest_role_change(&self, relationship: Uuid) -> u64 {
        self.tables().role_changes_seen.get(&relationship).map_or(0, RoleChangesSeen::newest)
    }

    /// Whether a message is of an earlier role change than the newest, or begins one that has ended.
    pub(super) fn is_late(&self, relationship: Uuid, role_change: u64, message: RoleChangeMessage) -> bool {
        self.tables()
            .role_changes_seen
            .get(&relationship)
            .is_some_and(|seen| seen.is_late(role_change, message))
    }

    /// Notes a message; false if it is late, and must have no effect.
    pub(super) fn accept(&self, relationship: Uuid, role_change: u64, message: RoleChangeMessage) -> bool {
        self.tables().seen(relationship).accept(role_change, message)
    }
}

impl Tables {
    fn seen(&mut self, relationship: Uuid) -> &mut RoleChangesSeen {
        let Tables { role_changes_seen, relationships, .. } = self;
        if role_changes_seen.len() >= ROLE_CHANGES_SEEN_MAX && !role_changes_seen.contains_key(&relationship)
        {
            role_changes_seen.retain(|id, of_it| relationships.contains_key(id) || of_it.is_in_use());
        }
        role_changes_seen.entry(relationship).or_default()
    }
}

impl SourceRelationships for Registry {
    fn may_read(&self, peer: PeerId, volume: &VolumeName) -> bool {
        self.rights.may_read(peer, volume)
    }

    fn is_kept(&self, relationship: Uuid) -> bool {
        self.tables().relationships.contains_key(&relationship)
    }

    fn base_of(&self, relationship: Uuid) -> Option<Uuid> {
        self.tables().relationships.get(&relationship)?.base
    }

    fn bases_of(&self, peer: PeerId) -> Vec<KeptBase> {
        let tables = self.tables();
        let of_peer = tables.relationships.values().filter(|r| r.peer == peer);
        let base = |r: &SourceRelationship| {
            Some(KeptBase { relationship: r.id, volume: r.source.clone(), snapshot: r.base? })
        };
        of_peer.filter_map(base).collect()
    }
}
