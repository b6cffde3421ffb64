//! The calls of a transfer, as far as its relationship is concerned: rights, budgets, and which base is kept for whom. What
//! travels is `farside-transfer`'s.

use std::collections::HashSet;
use std::sync::Arc;

use farside_engine::{ReplicaRecord, SnapshotOwner, VolumeName};
use farside_peer::{PeerId, PeerLink, Refusal};
use farside_transfer::TransferKind;
use farside_transfer::bases::{common_of, is_kept_for, release_all};
use farside_transfer::limits::HOPS_MAX;
use farside_transfer::protocol::{
    Acknowledge, Begin, Describe, Description, End, Nothing, Plan, Release, Reserve,
};
use farside_transfer::protocol::{convert, group};
use farside_transfer::refusal::{over_budget, refusal};
use farside_transfer::source::{Acknowledged, Asked, Wanted, reserve};
use uuid::Uuid;

use super::refusal::to_refusal;
use super::shared::Shared;
use crate::budgets::Budgets;
use crate::directions::Request;
use crate::error::{MirrorError, blocking};
use crate::store::{SourceRelationship, place};

/// Whether the session has ended: then its destination has given up whatever it asked for over it.
async fn is_closed(link: &dyn PeerLink) -> bool {
    tokio::select! {
        biased;
        () = link.closed() => true,
        () = std::future::ready(()) => false,
    }
}

impl Shared {
    /// The incremental snapshot takes the transfer's identity, and pins and deletion go by identity: one that a
    /// snapshot has already must not be given again.
    pub(super) async fn check_unused(
        &self,
        transfer: Uuid,
        relationship: Uuid,
        volume: &VolumeName,
    ) -> Result<(), Refusal> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let all = blocking(move || engine.all_snapshots(&of)).await.map_err(to_refusal)?;
        match all.iter().find(|s| s.uuid == transfer) {
            None => Ok(()),
            // Taken while the transfer waited for its turn.
            Some(taken) if taken.owner == SnapshotOwner::Relationship(relationship) => Ok(()),
            Some(taken) => Err(refusal(
                "failed",
                format!(
                    "transfer {transfer} has the id of snapshot {volume}@{} at the source; start the transfer again",
                    taken.name
                ),
            )),
        }
    }

    pub(super) async fn describe(&self, peer: PeerId, message: Describe) -> Result<Description, Refusal> {
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        self.check_rights(peer, &volume)?;
        self.check_open(&volume)?;
        let hops = (message.hops as usize).min(HOPS_MAX);
        let origin = match hops.checked_sub(1) {
            Some(further) => {
                self.look_upstream(&volume, further).await;
                Some(self.upstream(&volume).await?.to_message())
            }
            // Whoever asks what it is means to copy it.
            None => {
                self.check_decided(&volume, Request::FirstCopy).await?;
                None
            }
        };
        let reverse = self.registry.rights.may_reverse(peer, &volume);
        let engine = self.engine.clone();
        let info = blocking(move || engine.volume(&volume)).await.map_err(to_refusal)?;
        Ok(Description { size_bytes: info.size_bytes, reverse, origin, occupied_bytes: info.occupied_bytes })
    }

    pub(super) async fn begin(
        self: &Arc<Self>,
        link: &Arc<dyn PeerLink>,
        message: Begin,
    ) -> Result<Plan, Refusal> {
        let follower = (message.kind, message.volume.clone(), message.destination.clone());
        let plan = self.begin_transfer(link, message).await?;
        if let (Ok(TransferKind::Resync), Ok(volume), Ok(destination)) =
            (convert::kind(follower.0), convert::volume(&follower.1), convert::volume(&follower.2))
        {
            // Whoever followed it until now follows with it.
            self.settle(&volume, &[place(link.peer(), &destination)]).await.map_err(to_refusal)?;
        }
        Ok(plan)
    }

    async fn begin_transfer(
        self: &Arc<Self>,
        link: &Arc<dyn PeerLink>,
        message: Begin,
    ) -> Result<Plan, Refusal> {
        let peer = link.peer();
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let transfer = convert::uuid(&message.transfer).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        let destination = convert::volume(&message.destination).map_err(to_refusal)?;
        let kind = convert::kind(message.kind).map_err(to_refusal)?;
        let candidates = convert::candidates(&message.candidates).map_err(to_refusal)?;
        let staged_transfer = convert::staged_transfer(message.staged.as_ref()).map_err(to_refusal)?;
        let change = convert::role_change(message.role_change).map_err(to_refusal)?;
        let left = convert::places(&message.left).map_err(to_refusal)?;
        let further = convert::further(&message.further).map_err(to_refusal)?;
        let until = group::optional(&message.until).map_err(to_refusal)?;
        self.check_rights(peer, &volume)?;
        self.check_owner(relationship, peer, &volume)?;
        self.check_open(&volume)?;
        self.admit_snapshot(peer)?;
        let arrival = self.registry.begin_arrives(relationship);
        if candidates.is_empty() {
            link.expect_bulk();
        }
        self.check_not_own(relationship, &volume).await?;
        match kind {
            TransferKind::Resync => {
                self.check_not_crossed(relationship, peer, &volume, &destination).await?;
            }
            TransferKind::Update => self.check_not_mutual(relationship, peer, &volume, &destination).await?,
            TransferKind::Initialize => {}
        }
        self.check_unused(transfer, relationship, &volume).await?;
        let served_for_peer_max = self.check_mirrors(peer, relationship)?;
        let wanted = Wanted { transfer, relationship, peer, volume: volume.clone(), served_for_peer_max };
        // From here on the slot is given back on every way out but success.
        let slot = self.transfers.enter(wanted)?;

        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        // What comes late must not take the place, or the base, of what was begun since.
        if slot.is_given_up() || is_closed(&**link).await {
            return Err(refusal("state", "this transfer was given up while it was waiting to begin"));
        }
        if !self.registry.begin_counts(relationship, arrival, transfer) {
            return Err(refusal("state", "a newer transfer of this relationship has begun"));
        }
        // Under the relationship's lock: an acknowledgement that comes late must not bring back what this clears.
        self.check_overtaken(relationship, &volume, kind, change).await?;
        let is_known = self.tables().relationships.contains_key(&relationship);
        if kind == TransferKind::Initialize && !is_known {
            self.check_decided(&volume, Request::FirstCopy).await?;
        }
        self.tables().follows_itself(&volume, &place(peer, &destination));
        // Remembered before anything is pinned: what is pinned can always be released by name.
        let is_new =
            self.remember(relationship, peer, &volume, destination.clone()).await.map_err(to_refusal)?;
        // It may have waited for the lock for long.
        self.check_rights(peer, &volume)?;
        let (released, pins_left) = self.left_for(peer, relationship);
        let others = match message.keeps_common {
            true => self.others_of(relationship, &volume).await.map_err(to_refusal)?,
            false => Vec::new(),
        };
        let asked = Asked {
            further,
            relationship,
            transfer,
            volume: volume.clone(),
            kind,
            candidates,
            staged_transfer,
            is_whole: released || message.whole,
            pins_left,
            named_max: message.named_max.map(|most| most as usize),
            others,
            until,
        };
        let prepared = match slot.prepare(asked).await {
            Ok(prepared) => prepared,
            Err(error) => {
                if is_new {
                    self.forget_unused(relationship, &volume).await;
                }
                return Err(to_refusal(error));
            }
        };

        {
            let mut tables = self.tables();
            tables.pins.insert(relationship, prepared.pins());
            tables.reserved.remove(&relationship);
        }
        // The right may have gone while the snapshot was taken: its frames would be refused.
        let upstream = async {
            self.check_rights(peer, &volume)?;
            if kind == TransferKind::Resync {
                // Only now: what an earlier mirror to the same place has left may be the base that was just chosen.
                self.comes_back(relationship, peer, &volume, &destination, left).await.map_err(to_refusal)?;
            }
            self.upstream(&volume).await
        };
        let upstream = upstream.await;
        let upstream = match upstream {
            Ok(upstream) => upstream,
            Err(refusal) => {
                let base = self.tables().relationships.get(&relationship).and_then(|known| known.base);
                self.keep_only(relationship, &volume, prepared.half_there(base)).await;
                if is_new {
                    self.forget_unused(relationship, &volume).await;
                }
                return Err(refusal);
            }
        };
        let shared = self.clone();
        let plan = slot.begin(link.clone(), prepared, move |ended| {
            // Its destination may not come back for long, and until then persons may delete what is theirs.
            tokio::spawn(async move {
                let known = shared.tables().relationships.get(&ended.relationship()).map(|known| known.base);
                if let Some(keep) = known.and_then(|base| ended.cut(base)) {
                    shared.loosen(ended.relationship(), ended.volume(), keep).await;
                }
            });
        });
        tracing::debug!(
            %transfer, %relationship, %peer, %volume, %kind, base = plan.base_name, snapshots = plan.steps.len(),
            "transfer begins"
        );
        Ok(Plan { origin: Some(upstream.to_message()), ..plan.to_message() })
    }

    /// The snapshot of a transfer that waits at its destination for its turn is taken now. One for each relationship, and only while
    /// nothing else is kept for it but its base: what a greedy destination can keep this way is one snapshot.
    pub(super) async fn reserve(&self, peer: PeerId, message: Reserve) -> Result<Nothing, Refusal> {
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let transfer = convert::uuid(&message.transfer).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        let change = convert::role_change(message.role_change).map_err(to_refusal)?;
        self.check_rights(peer, &volume)?;
        self.check_owner(relationship, peer, &volume)?;
        self.check_open(&volume)?;
        self.check_not_own(relationship, &volume).await?;
        self.admit_snapshot(peer)?;
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        self.check_overtaken(relationship, &volume, TransferKind::Update, change).await?;
        let has_base = self.tables().relationships.get(&relationship).is_some_and(|r| r.base.is_some());
        if !has_base || self.transfers.is_serving(relationship) {
            return Err(refusal(
                "state",
                "there is no base yet, or a transfer of this relationship is under way",
            ));
        }
        let (_, pins_left) = self.left_for(peer, relationship);
        if pins_left < 3 {
            return Err(over_budget("no more snapshots may be kept for the asking site".into()));
        }
        let (engine, of) = (self.engine.clone(), volume.clone());
        let all = blocking(move || engine.all_snapshots(&of)).await.map_err(to_refusal)?;
        let kept = all.iter().filter(|s| s.pinned_by.contains(&relationship)).count();
        if kept > 1 || all.iter().any(|s| s.uuid == transfer) {
            return Err(refusal("state", "a snapshot waits for this relationship already"));
        }
        self.check_rights(peer, &volume)?;
        let (engine, clock, of) = (self.engine.clone(), self.clock.clone(), volume.clone());
        blocking(move || reserve(&*engine, &*clock, &of, relationship, transfer))
            .await
            .map_err(to_refusal)?;
        {
            let mut tables = self.tables();
            tables.pins.insert(relationship, kept + 1);
            tables.reserved.insert(relationship, transfer);
        }
        tracing::debug!(%transfer, %relationship, %peer, %volume, "a transfer waits for its turn at its destination: its snapshot is taken");
        Ok(Nothing {})
    }

    /// Whether the peer may have one more mirror, if it is one more. Answers how many of its transfers may be served.
    pub(super) fn check_mirrors(&self, peer: PeerId, relationship: Uuid) -> Result<usize, Refusal> {
        let tables = self.tables();
        let of_peer = tables.relationships.values().filter(|r| r.peer == peer).count();
        let Budgets { mirrors, transfers, .. } = tables.budgets;
        if of_peer >= mirrors && !tables.relationships.contains_key(&relationship) {
            return Err(over_budget(format!(
                "{mirrors} mirrors of the asking site (budgets.mirrors of the source). Nothing was changed. Delete \
                 mirrors, or at the source: farside mirror release POOL/VOL PEER"
            )));
        }
        Ok(transfers)
    }

    /// Whether the relationship's base was released here, and how many snapshots may be kept for it.
    pub(super) fn left_for(&self, peer: PeerId, relationship: Uuid) -> (bool, usize) {
        let tables = self.tables();
        let of_peer = tables.relationships.values().filter(|r| r.peer == peer && r.id != relationship);
        let pins: usize = of_peer.map(|r| tables.pins_of(r)).sum();
        let released = tables.relationships.get(&relationship).is_some_and(|r| r.released.is_some());
        (released, tables.budgets.pins.saturating_sub(pins))
    }

    /// For whom the volume has snapshots that the destination of a relationship is to hold too: its other destinations; if it is
    /// itself a replica, those of its own source; and if it was one, until it was broken off, that source, which may follow by
    /// way of the destination.
    async fn others_of(&self, relationship: Uuid, volume: &VolumeName) -> Result<Vec<Uuid>, MirrorError> {
        let (engine, at) = (self.engine.clone(), volume.clone());
        let record = blocking(move || engine.replica_record(&at)).await?;
        let tables = self.tables();
        let of = tables.relationships.get(&relationship).map(|r| (r.peer, r.destination.clone()));
        // One that was over is of the same place, as long as nobody has decided.
        let is_other = |r: &&SourceRelationship| {
            r.source == *volume && r.id != relationship && Some((r.peer, r.destination.clone())) != of
        };
        let mut others: Vec<Uuid> = tables.relationships.values().filter(is_other).map(|r| r.id).collect();
        let is_itself = |r: &ReplicaRecord| {
            of.as_ref().is_some_and(|(peer, volume)| r.peer == peer.0 && r.source == volume.to_string())
        };
        match record {
            Some(record) if !record.broken_off => others.push(common_of(record.relationship)),
            Some(record) if !is_itself(&record) => others.push(record.relationship),
            _ => {}
        }
        Ok(others)
    }

    /// Forgets a relationship whose first transfer was refused, unless something is kept for it.
    async fn forget_unused(&self, relationship: Uuid, volume: &VolumeName) {
        let (engine, of) = (self.engine.clone(), volume.clone());
        let forgotten = async {
            if blocking(move || is_kept_for(&*engine, &of, relationship)).await? {
                return Ok(());
            }
            self.store.remove_source(relationship).await?;
            self.tables().relationships.remove(&relationship);
            Ok::<_, MirrorError>(())
        };
        if let Err(error) = forgotten.await {
            tracing::warn!(%relationship, %volume, "cannot remove the record of a destination that holds no base; \
                 farside mirror release {volume} PEER removes it: {error}");
        }
    }

    /// Answers whether it was not known before.
    async fn remember(
        &self,
        relationship: Uuid,
        peer: PeerId,
        volume: &VolumeName,
        destination: VolumeName,
    ) -> Result<bool, MirrorError> {
        let (engine, of) = (self.engine.clone(), volume.clone());
        blocking(move || engine.volume(&of)).await?;
        let known = self.tables().relationships.get(&relationship).cloned();
        let wanted = match known.clone() {
            Some(known) => SourceRelationship { destination, ..known },
            None => SourceRelationship::new(relationship, peer, volume.clone(), destination),
        };
        if known.as_ref() != Some(&wanted) {
            self.keep(wanted).await?;
        }
        Ok(known.is_none())
    }

    pub(super) async fn acknowledge(&self, peer: PeerId, message: Acknowledge) -> Result<Nothing, Refusal> {
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let transfer = convert::uuid(&message.transfer).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        let snapshot = convert::uuid(&message.snapshot).map_err(to_refusal)?;
        let content_root = convert::content_root(&message.content_root).map_err(to_refusal)?;
        let further = convert::further(&message.further).map_err(to_refusal)?;
        self.check_rights(peer, &volume)?;
        self.check_owner(relationship, peer, &volume)?;
        self.check_not_own(relationship, &volume).await?;
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        self.transfers.check_newest(relationship, transfer)?;
        if !self.registry.is_newest_transfer(relationship, transfer) {
            return Err(refusal("state", "a newer transfer of this relationship has begun since"));
        }
        let known = self.tables().relationships.get(&relationship).cloned();
        let Some(known) = known else {
            return Err(refusal(
                "not-found",
                format!("the source does not know relationship {relationship}"),
            ));
        };
        // What comes late must not take what was taken since for the next transfer.
        let reserved = self.tables().reserved.get(&relationship).copied();
        let told = Acknowledged { snapshot, content_root, reserved, further };
        let kept = self.transfers.acknowledge(relationship, transfer, &volume, told).await?;
        self.tables().pins.insert(relationship, kept);
        let known = SourceRelationship {
            base: Some(snapshot),
            since: Some(self.clock.now()),
            released: None,
            ..known
        };
        let replica = known.destination.clone();
        self.tables().follows_itself(&volume, &place(peer, &replica));
        let is_first =
            self.tables().relationships.get(&relationship).is_none_or(|before| before.base.is_none());
        self.keep(known).await.map_err(to_refusal)?;
        if is_first {
            // It is in line from now on: who follows this volume, and what that follows, may have to be told.
            self.overtaken_changes.send_modify(|changes| *changes += 1);
        }
        if let Err(error) = self.release_dormant(peer, &volume, &replica).await {
            tracing::warn!(%volume, "the old bases of the mirror in the other direction are kept until the next \
                 update: {error}");
        }
        tracing::debug!(%transfer, %relationship, %volume, %snapshot, %content_root, "the destination holds a new base");
        Ok(Nothing {})
    }

    pub(super) async fn end(&self, peer: PeerId, message: &End) -> Result<Nothing, Refusal> {
        let transfer = convert::uuid(&message.transfer).map_err(to_refusal)?;
        let unacknowledged = match message.unacknowledged.is_empty() {
            true => None,
            false => Some(convert::uuid(&message.unacknowledged).map_err(to_refusal)?),
        };
        if let Some(ended) = self.transfers.end(peer, transfer, &message.failure) {
            let known = self.tables().relationships.get(&ended.relationship()).map(|known| known.base);
            if !message.failure.is_empty()
                && let Some(keep) = known.and_then(|base| ended.half_there(base, unacknowledged))
            {
                self.loosen(ended.relationship(), ended.volume(), keep).await;
            }
        }
        Ok(Nothing {})
    }

    /// Releasing needs no right to read: a peer that was denied a volume may still free its space.
    pub(super) async fn release_for(&self, peer: PeerId, message: &Release) -> Result<Nothing, Refusal> {
        let relationship = convert::uuid(&message.relationship).map_err(to_refusal)?;
        let volume = convert::volume(&message.volume).map_err(to_refusal)?;
        self.check_owner(relationship, peer, &volume)?;
        self.check_not_own(relationship, &volume).await?;
        let known = self.tables().relationships.get(&relationship).cloned();
        // That hosts went on there is not for the destination to take back.
        if let Some(known) = known
            && !self.release_to_mark(relationship).await.map_err(to_refusal)?
        {
            self.release(relationship, volume.clone()).await.map_err(to_refusal)?;
            if let Some(reversal) = self.reversal() {
                reversal.released(&volume, peer, &known.destination).await;
            }
        }
        Ok(Nothing {})
    }

    pub(super) async fn release(&self, relationship: Uuid, volume: VolumeName) -> Result<(), MirrorError> {
        self.transfers.stop(relationship, false);
        let lock = self.registry.lock(relationship);
        let _lock = lock.lock().await;
        // First: a database that fails must leave the base where it is. What a crash leaves pinned behind it is listed as nobody's,
        // and is released by its id.
        self.store.remove_source(relationship).await?;
        let (engine, of) = (self.engine.clone(), volume.clone());
        match blocking(move || release_all(&*engine, &of, relationship)).await {
            // A volume that is gone has nothing pinned.
            Ok(()) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        let (released, is_last, peers) = {
            let mut tables = self.tables();
            let released = tables.relationships.remove(&relationship);
            tables.locks.remove(&relationship);
            tables.pins.remove(&relationship);
            tables.reserved.remove(&relationship);
            tables.begun.remove(&relationship);
            tables.lines_said.remove(&relationship);
            tables.unsaved.remove(&relationship);
            let peers: HashSet<PeerId> = tables.relationships.values().map(|other| other.peer).collect();
            let is_last = tables.relationships.values().all(|other| other.source != volume);
            (released, is_last, peers)
        };
        // Only now: a transfer that remembers something of the link from here on sees that its relationship is gone.
        self.transfers.forget_relationship(relationship, |peer| peers.contains(peer));
        if is_last {
            self.transfers.forget_volume(&volume).await;
        }
        if released.is_some_and(|released| released.overtaken.is_some()) {
            self.overtaken_changes.send_modify(|changes| *changes += 1);
        }
        tracing::info!(%relationship, %volume, "released: no base is kept for it any more");
        Ok(())
    }
}
