//! Keeps what is kept for destinations within the budgets: releases what is too old, too large, or in the way of hosts.
//!
//! Who loses a base keeps its relationship: its next update finds what both sides still hold in common, or else is compared
//! as a whole, where what the destination has is asked for and does not travel (`known.rs`).

use std::collections::BTreeMap;

use farside_engine::{Capacity, Engine, SnapshotOwner, VolumeName};
use farside_peer::PeerId;
use farside_platform::Timestamp;
use farside_transfer::bases::{common_of, release, release_all};
use uuid::Uuid;

use super::registry::{Expected, Tables};
use super::service::SourceService;
use super::shared::Shared;
use crate::budgets::{self, Budget, Budgets, Kept};
use crate::error::{MirrorError, blocking};
use crate::limits::{
    BUDGET_CHECK_EVERY, BUDGET_REST, BUDGETS_MEASURED_EVERY, FREED_WITHIN, FREED_WITHIN_IN_NEED,
};
use crate::schedule::ClockReading;
use crate::store::{Released, SourceRelationship};

/// How much of its budgets a peer uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BudgetUse {
    /// Transfers that are being served.
    pub transfers: usize,
    /// Mirrors.
    pub mirrors: usize,
    /// Snapshots that are kept; as far as they are known since the start.
    pub pins: usize,
    /// Snapshots of the last minute's worth.
    pub snapshots: u32,
}

impl SourceService {
    /// The budgets, from now on.
    pub fn set_budgets(&self, budgets: Budgets) {
        self.shared.tables().budgets = budgets;
    }

    /// The budgets.
    pub fn budgets(&self) -> Budgets {
        self.shared.tables().budgets
    }

    /// How much of them `peer` uses.
    pub fn budget_use(&self, peer: PeerId) -> BudgetUse {
        let now = self.shared.clock.monotonic();
        let tables = self.shared.tables();
        let of_peer = || tables.relationships.values().filter(|r| r.peer == peer);
        BudgetUse {
            transfers: self.shared.transfers.serving().iter().filter(|s| s.peer == peer).count(),
            mirrors: of_peer().count(),
            pins: of_peer().map(|r| tables.pins_of(r)).sum(),
            snapshots: tables.rates.snapshots_of(&tables.budgets, peer, now),
        }
    }

    /// Looks again and again, for as long as the site lives.
    pub async fn keep_within_budgets(&self) {
        loop {
            self.check_budgets().await;
            tokio::time::sleep(BUDGET_CHECK_EVERY).await;
        }
    }

    /// Looks once, and releases what has to. Answers of whom. Free space is looked at each time; what is kept is measured,
    /// which reads metadata, where space is short, and otherwise as seldom as it takes long.
    pub async fn check_budgets(&self) -> Vec<Uuid> {
        let shared = &self.shared;
        let (budgets, begun, is_due, aged_at) = {
            let mut tables = shared.tables();
            let reading = ClockReading::of(&*shared.clock);
            let now = reading.monotonic;
            tables.rates.forget_idle(now);
            let Tables { ages, relationships, .. } = &mut *tables;
            ages.keep(|id| relationships.contains_key(id) || relationships.contains_key(&first_of(*id)));
            let aged_at = ages.now(reading);
            (tables.budgets, now, now >= tables.keeping.due, aged_at)
        };
        let mut by_pool: BTreeMap<String, Vec<SourceRelationship>> = BTreeMap::new();
        for relationship in self.destinations() {
            by_pool.entry(relationship.source.pool.clone()).or_default().push(relationship);
        }
        let (mut all, mut goes) = (Vec::new(), Vec::new());
        for (pool, relationships) in by_pool {
            let capacity = shared
                .capacity(&pool, &budgets)
                .await
                .filter(|capacity| budgets::is_pressed(&budgets, *capacity));
            if !is_due && capacity.is_none() {
                continue;
            }
            let mut kept = Vec::new();
            // Where only age counts, what is young need not be measured; of a first copy its snapshots tell, and of what is kept for
            // those that follow a destination.
            let matters = |r: &SourceRelationship| {
                let is_old = || r.since.is_none_or(|since| budgets.is_old(since, aged_at));
                capacity.is_some() || budgets.pinned_bytes.is_some() || is_old()
            };
            for relationship in relationships {
                let all_matters = matters(&relationship);
                let is_measured = move |is_base: bool, created_at| {
                    all_matters || (!is_base && budgets.is_old(created_at, aged_at))
                };
                kept.extend(shared.kept(relationship, is_measured).await);
            }
            all.extend(kept.iter().copied());
            if let Some(capacity) = capacity {
                let freed = budgets::to_make_room(&budgets, capacity, kept);
                if !freed.is_empty() {
                    let bytes = freed.iter().fold(0_u64, |sum, k| sum.saturating_add(k.frees));
                    let free_then = capacity.free_bytes;
                    let expected = Expected { at: begun, free_then, bytes, of: bytes };
                    shared.tables().keeping.expected.insert(pool, expected);
                }
                goes.extend(freed.into_iter().map(|k| (k, Budget::Reserve)));
            }
        }
        if is_due {
            let is_going =
                |k: &Kept| goes.iter().any(|(g, _): &(Kept, Budget)| g.relationship == k.relationship);
            all.retain(|k| !is_going(k));
            let old: Vec<Uuid> = {
                let mut tables = shared.tables();
                let mut is_over = |k: &&Kept| {
                    let is_old = budgets.is_old(k.since, aged_at);
                    tables.ages.is_over(k.relationship, is_old, begun)
                };
                all.iter().filter(|k| is_over(k)).map(|k| k.relationship).collect()
            };
            goes.extend(budgets::over(&budgets, &all, &old));
            let now = shared.clock.monotonic();
            let rest = (now.saturating_sub(begun) * BUDGET_REST).max(BUDGETS_MEASURED_EVERY);
            shared.tables().keeping.due = now + rest;
        }
        let mut gone = Vec::new();
        for (kept, budget) in goes {
            let why = budget.why(&budgets, kept.bytes);
            let is_base = shared.tables().relationships.contains_key(&kept.relationship);
            let released = match is_base {
                true => shared.release_base(kept, why).await,
                false => shared.release_further(first_of(kept.relationship), kept, &why).await,
            };
            match released {
                Ok(()) => gone.push(kept.relationship),
                Err(error) => {
                    tracing::error!(relationship = %kept.relationship, peer = %kept.peer, "cannot release a base \
                         that is over its budget; it keeps its space and the release is tried again: {error}");
                }
            }
        }
        gone
    }
}

impl Shared {
    /// What a pool has free, with what releasing will give back soon.
    async fn capacity(&self, pool: &str, budgets: &Budgets) -> Option<Capacity> {
        let (engine, of) = (self.engine.clone(), pool.to_owned());
        // A pool that is not open has nothing to run short of.
        let capacity = blocking(move || engine.capacity(&of)).await.ok().flatten()?;
        let now = self.clock.monotonic();
        let patience =
            if budgets::is_in_need(budgets, capacity) { FREED_WITHIN_IN_NEED } else { FREED_WITHIN };
        let mut tables = self.tables();
        let expected = &mut tables.keeping.expected;
        expected.retain(|_, e| now.saturating_sub(e.at) < FREED_WITHIN);
        let soon = expected.get_mut(pool).filter(|e| now.saturating_sub(e.at) < patience).map_or(0, |e| {
            // What has come free is seen, unless hosts took it at once: then time ends the wait.
            e.bytes = e.bytes.min(e.of.saturating_sub(capacity.free_bytes.saturating_sub(e.free_then)));
            e.bytes
        });
        Some(Capacity { free_bytes: capacity.free_bytes.saturating_add(soon), ..capacity })
    }

    /// What is kept for a relationship, and by itself what is kept for those that follow its destination (by its second id); of what
    /// is not there, or not to be measured, or if its volume is gone, nothing. What is to be measured is asked of bases and others by
    /// their time.
    async fn kept(
        &self,
        of: SourceRelationship,
        is_measured: impl Fn(bool, Timestamp) -> bool + Send + 'static,
    ) -> Vec<Kept> {
        let engine = self.engine.clone();
        let is_awaited = self.tables().ways_back.values().any(|reverse| *reverse == of.id);
        let of_it = of.clone();
        match blocking(move || measure(&*engine, &of_it, is_measured)).await {
            Ok((base, further)) => {
                let kept = |relationship, since, measured: Measured, way_back| Kept {
                    relationship,
                    peer: of.peer,
                    since,
                    bytes: measured.most,
                    frees: measured.least,
                    way_back,
                };
                let is_way_back = is_awaited
                    || (of.overtaken.is_some() && self.registry.rights.may_reverse(of.peer, &of.source));
                let base = base.map(|m| kept(of.id, of.since.unwrap_or(m.since), m, is_way_back));
                let further = further.map(|m| kept(common_of(of.id), m.since, m, false));
                base.into_iter().chain(further).collect()
            }
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) => {
                tracing::warn!(
                    "cannot measure the space that is kept for a mirror; it is measured again later: \
                     {error}"
                );
                Vec::new()
            }
        }
    }

    async fn release_base(&self, kept: Kept, why: String) -> Result<(), MirrorError> {
        let id = kept.relationship;
        self.transfers.stop(id, true);
        let lock = self.registry.lock(id);
        let _lock = lock.lock().await;
        let Some(known) = self.tables().relationships.get(&id).cloned() else { return Ok(()) };
        let (volume, peer) = (known.source.clone(), known.peer);
        // Remembered first: a base that is gone without a notice would be a riddle at the other side.
        let released = Released { at: self.clock.now(), why: why.clone() };
        self.keep(SourceRelationship { base: None, since: None, released: Some(released), ..known }).await?;
        let (engine, of) = (self.engine.clone(), volume.clone());
        blocking(move || release_all(&*engine, &of, id)).await?;
        self.tables().pins.insert(id, 0);
        tracing::warn!(
            relationship = %id, %peer, %volume,
            "released the base kept for this mirror: {why}. The mirror goes on: its next update compares the whole \
             volume, and what the destination already has is not sent again"
        );
        Ok(())
    }

    /// Of a transfer that has ended before its end, only `keep` stays, the base and what is half there: the other snapshots that were
    /// to travel are their owners' again.
    pub(super) async fn loosen(&self, relationship: Uuid, volume: &VolumeName, keep: Vec<Uuid>) {
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        if !self.transfers.is_serving(relationship) {
            let reserved = self.tables().reserved.get(&relationship).copied();
            self.keep_only(relationship, volume, keep.into_iter().chain(reserved).collect()).await;
        }
    }

    /// The same under the relationship's lock.
    pub(super) async fn keep_only(&self, relationship: Uuid, volume: &VolumeName, mut keep: Vec<Uuid>) {
        keep.sort();
        keep.dedup();
        let (engine, of) = (self.engine.clone(), volume.clone());
        let kept = keep.len();
        match blocking(move || release(&*engine, &of, relationship, &keep)).await {
            Ok(()) => drop(self.tables().pins.insert(relationship, kept)),
            Err(error) => {
                tracing::warn!(%relationship, %volume, "cannot release the snapshots of an abandoned transfer; they \
                     hold space until the next transfer: {error}");
            }
        }
    }
}

/// What is kept for a relationship.
struct Measured {
    since: Timestamp,
    /// Bytes of it that hosts have replaced, at least and at most.
    least: u64,
    most: u64,
}

/// Since when anything is kept, and how many bytes of it hosts have replaced: for the relationship, and for those that follow its
/// destination. What a person made is that person's: it counts with nothing, because releasing it would not free it.
fn measure(
    engine: &dyn Engine,
    of: &SourceRelationship,
    is_measured: impl Fn(bool, Timestamp) -> bool,
) -> Result<(Option<Measured>, Option<Measured>), MirrorError> {
    let (mut base, mut further) = (None, None);
    for snapshot in engine.all_snapshots(&of.source)? {
        let is_base = snapshot.pinned_by.contains(&of.id);
        let is_further = snapshot.pinned_by.contains(&common_of(of.id));
        if snapshot.owner == SnapshotOwner::Person
            || !(is_base || is_further)
            || !is_measured(is_base, snapshot.created_at)
        {
            continue;
        }
        let found = if is_base { &mut base } else { &mut further };
        let bytes = engine.kept_bytes(&of.source, snapshot.uuid)?;
        let Measured { since, least, most } =
            found.take().unwrap_or(Measured { since: snapshot.created_at, least: 0, most: 0 });
        // Two snapshots keep the same where hosts wrote after both, and each its own where they wrote after each.
        *found = Some(Measured {
            since: snapshot.created_at.min(since),
            least: bytes.max(least),
            most: bytes.saturating_add(most),
        });
    }
    Ok((base, further))
}

/// The relationship whose second id this is.
fn first_of(second: Uuid) -> Uuid {
    // Made by an exclusive or.
    common_of(second)
}
