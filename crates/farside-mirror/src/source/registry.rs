//! What a source knows of the relationships of its volumes, in memory: who holds which base, what each peer has asked for, and
//! which role change was seen last. Transfers ask it who may read what, and which bases are kept.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farside_engine::VolumeName;
use farside_peer::PeerId;
use farside_platform::Timestamp;
use farside_transfer::log_limit::LogLimit;
use farside_transfer::protocol::convert::{Place, Upstream};
use farside_transfer::source::{KeptBase, SourceRelationships};
use uuid::Uuid;

use super::age::Ages;
use super::rights::SourceRights;
use super::role_changes::{RoleChangeMessage, RoleChangesSeen};
use crate::budgets::{Budgets, Rates};
use crate::directions::Settled;
use crate::limits::ROLE_CHANGES_SEEN_MAX;
use crate::store::{SourceRelationship, place};

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
    /// When all volumes were looked through last (monotonic).
    pub(super) searched_at: Option<Duration>,
    pub(super) budgets: Budgets,
    pub(super) rates: Rates,
    /// By relationship: how many snapshots are kept for it, as far as that was seen since the start.
    pub(super) pins: HashMap<Uuid, usize>,
    /// The snapshot that was taken for a transfer that has not begun.
    pub(super) reserved: HashMap<Uuid, Uuid>,
    pub(super) keeping: Keeping,
    pub(super) ages: Ages,
    /// By relationship: which transfer was begun last. As many as of [`RoleChangesSeen`], and as long.
    pub(super) begun: HashMap<Uuid, Begun>,
    /// Beginnings of transfers that have arrived.
    arrivals: u64,
    /// Ids that peers have offered for ways back, while their mirrors are made: two at once must not take the same.
    pub(super) offered: HashSet<Uuid>,
    /// By mirror of this site: the way back that its takeover has left, as long as the former source has not learnt of it.
    pub(super) ways_back: HashMap<Uuid, Uuid>,
    /// By relationship: what its destination has said last that follows with it, without those that have asked for an update of their
    /// own since. Said again in each session.
    pub(super) lines_said: HashMap<Uuid, Vec<Place>>,
    /// Whose being overtaken is in force and not in the database yet.
    pub(super) unsaved: HashSet<Uuid>,
    /// By volume here that is itself a replica: where its source stands, as that said last.
    pub(super) upstreams: HashMap<VolumeName, Upstream>,
    /// Volumes here that hosts may not write to, since their pool was set back, with the reason.
    pub(super) set_back: BTreeMap<VolumeName, String>,
    /// At most about [`ROLE_CHANGES_SEEN_MAX`] besides those in `relationships`.
    pub(super) role_changes_seen: HashMap<Uuid, RoleChangesSeen>,
}

/// What is known of the beginnings of a relationship's transfers. A call goes on here when its session has died or its
/// destination has given it up, so that of two the one that was asked for first may come to its work last.
#[derive(Default)]
pub(super) struct Begun {
    /// The newest that has arrived.
    arrival: u64,
    /// The newest that has come to its work; also when it is over.
    transfer: Option<Uuid>,
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

    /// Notes that the beginning of a transfer has arrived, and gives it its number.
    pub(super) fn begin_arrives(&self, relationship: Uuid) -> u64 {
        let mut tables = self.tables();
        tables.arrivals += 1;
        let Tables { begun, arrivals, relationships, .. } = &mut *tables;
        if begun.len() >= ROLE_CHANGES_SEEN_MAX && !begun.contains_key(&relationship) {
            begun.retain(|id, _| relationships.contains_key(id));
        }
        begun.entry(relationship).or_default().arrival = *arrivals;
        *arrivals
    }

    /// A beginning comes to its work, under the relationship's lock; false if another has arrived since.
    pub(super) fn begin_counts(&self, relationship: Uuid, arrival: u64, transfer: Uuid) -> bool {
        let mut tables = self.tables();
        // Forgotten, if thousands of others have come since.
        let Some(begun) = tables.begun.get_mut(&relationship).filter(|begun| begun.arrival == arrival) else {
            return false;
        };
        begun.transfer = Some(transfer);
        true
    }

    /// Whether `transfer` is none but the newest that this process has begun.
    pub(super) fn is_newest_transfer(&self, relationship: Uuid, transfer: Uuid) -> bool {
        let newest = self.tables().begun.get(&relationship).and_then(|begun| begun.transfer);
        // What was begun before this process can only be told by one that its destination has not followed up.
        newest.is_none_or(|newest| newest == transfer)
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

    /// The volume here follows the destination of the relationship, which says so by its role change with this number.
    pub(super) fn follows(&self, relationship: Uuid, role_change: u64) {
        self.tables().seen(relationship).follows(role_change);
    }

    /// Whether it did.
    pub(super) fn has_followed(&self, relationship: Uuid, role_change: u64) -> bool {
        let tables = self.tables();
        tables.role_changes_seen.get(&relationship).is_some_and(|seen| seen.has_followed(role_change))
    }

    /// Notes a message; false if it is late, and must have no effect.
    pub(super) fn accept(&self, relationship: Uuid, role_change: u64, message: RoleChangeMessage) -> bool {
        self.tables().seen(relationship).accept(role_change, message)
    }
}

impl Tables {
    /// What follows a volume here, as far as it has said: nothing that was broken off, by whatever mirror.
    pub(super) fn line(&self, volume: &VolumeName) -> Vec<Place> {
        self.line_since(volume, None)
    }

    /// The same for `of`, which has gone on, and follows `nearest` since: without itself, of whose mirror nobody may have heard that
    /// it is over; and if `nearest` is among them, with what that has said to follow with it.
    pub(super) fn line_with(&self, volume: &VolumeName, of: &Place, nearest: &Place) -> Vec<Place> {
        let mut line = self.line(volume);
        line.retain(|place| place != of);
        if line.contains(nearest) {
            let is_nearest =
                |r: &&SourceRelationship| r.source == *volume && place(r.peer, &r.destination) == *nearest;
            let said = |r: &SourceRelationship| self.lines_said.get(&r.id).cloned().unwrap_or_default();
            line.extend(self.relationships.values().filter(is_nearest).flat_map(said));
        }
        line
    }

    /// A destination asks for an update of its own: what another has said before, that it follows with that, is over.
    pub(super) fn follows_itself(&mut self, volume: &VolumeName, destination: &Place) {
        let Tables { lines_said, relationships, .. } = self;
        for (id, said) in lines_said {
            if relationships.get(id).is_some_and(|r| r.source == *volume) {
                said.retain(|place| place != destination);
            }
        }
    }

    /// Whether who went on by a relationship of a volume that follows `chain` is of no concern to it any more. `further` follow it,
    /// besides those that are known to.
    pub(super) fn is_settled(&self, of: &SourceRelationship, chain: &[Place], further: &[Place]) -> bool {
        // What nobody says again is not given up for a destination that may have left without a word by now.
        let noted = of.overtaken.as_ref().filter(|o| o.ended).map(|o| o.reported_at);
        let mut line = self.line_since(&of.source, noted);
        line.extend(further.iter().cloned());
        of.overtaken.is_some() && of.gone_on().settled(chain, &line) != Settled::No
    }

    /// What follows a volume here, and, where `since` is named, has had an update since then.
    fn line_since(&self, volume: &VolumeName, since: Option<Timestamp>) -> Vec<Place> {
        let of_volume = || self.relationships.values().filter(|r| r.source == *volume);
        // One that has followed another since may have come back, by a mirror of its own.
        let has_gone_on = |r: &SourceRelationship| {
            r.overtaken.as_ref().is_some_and(|o| o.beyond.is_none() && (!o.ended || o.follows.is_empty()))
        };
        let is_same = |one: &SourceRelationship, other: &SourceRelationship| {
            one.peer == other.peer && one.destination == other.destination
        };
        let follows = |r: &&SourceRelationship| {
            let is_over = r.overtaken.as_ref().is_some_and(|o| o.ended);
            let is_updated = r.base.is_some() && since.is_none_or(|since| r.since >= Some(since));
            is_updated && !is_over && !of_volume().any(|other| is_same(other, r) && has_gone_on(other))
        };
        of_volume().filter(follows).map(|r| place(r.peer, &r.destination)).collect()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    struct Everything;

    impl SourceRights for Everything {
        fn may_read(&self, _: PeerId, _: &VolumeName) -> bool {
            true
        }

        fn may_reverse(&self, _: PeerId, _: &VolumeName) -> bool {
            true
        }

        fn is_fenced_when_overtaken(&self, _: PeerId, _: &VolumeName) -> bool {
            false
        }
    }

    #[test]
    fn of_two_beginnings_the_one_that_arrived_last_counts_in_whatever_order_they_come_to_their_work() {
        let registry = Registry::new(Arc::new(Everything), []);
        let [one, other] = [1, 2].map(Uuid::from_u128);
        let [aborted, newer, of_other] = [11, 12, 13].map(Uuid::from_u128);
        assert!(
            registry.is_newest_transfer(one, aborted),
            "begun before this process, for all that is known"
        );
        let first = registry.begin_arrives(one);
        // A person aborts it while it hangs here, in the same session, and asks again.
        let second = registry.begin_arrives(one);
        let beside = registry.begin_arrives(other);
        assert!(registry.begin_counts(one, second, newer));
        assert!(registry.begin_counts(other, beside, of_other));
        assert!(!registry.begin_counts(one, first, aborted), "it would take the newer one's base away");
        assert!(registry.is_newest_transfer(one, newer) && registry.is_newest_transfer(other, of_other));
        assert!(!registry.is_newest_transfer(one, aborted), "nor does an acknowledgement of it count");
    }

    #[test]
    fn what_is_remembered_of_beginnings_is_bounded() {
        let registry = Registry::new(Arc::new(Everything), []);
        for n in 0..2 * ROLE_CHANGES_SEEN_MAX as u128 {
            registry.begin_arrives(Uuid::from_u128(n));
        }
        assert!(registry.tables().begun.len() <= ROLE_CHANGES_SEEN_MAX);
    }
}
