//! One moment of several volumes, for a destination that mirrors them as a group.

use farside_engine::VolumeName;
use farside_peer::{PeerId, Refusal};
use farside_transfer::TransferKind;
use farside_transfer::protocol::group::{self, Reservation};
use farside_transfer::protocol::{ReserveTogether, ReservedTogether};
use farside_transfer::refusal::{over_budget, refusal};
use farside_transfer::source::reserve_together;
use uuid::Uuid;

use super::refusal::to_refusal;
use super::shared::Shared;
use crate::error::blocking;

impl Shared {
    /// What a greedy destination can keep this way is one snapshot for each relationship, beside its base and one of those pinned for it
    /// already that it says it shows: what else it had reserved before goes first.
    pub(super) async fn reserve_together(
        &self,
        peer: PeerId,
        message: ReserveTogether,
    ) -> Result<ReservedTogether, Refusal> {
        let members = group::reservations(&message).map_err(to_refusal)?;
        for Reservation { relationship, volume, .. } in &members {
            self.check_rights(peer, volume)?;
            self.check_owner(*relationship, peer, volume)?;
            self.check_open(volume)?;
            self.check_not_own(*relationship, volume).await?;
        }
        self.admit_snapshot(peer)?;
        // In one order, whoever asks: two such calls must not wait for each other.
        let mut order: Vec<_> = members.iter().map(|member| member.relationship).collect();
        order.sort();
        let mut held = Vec::with_capacity(order.len());
        for relationship in order {
            held.push(self.registry.lock(relationship).lock_owned().await);
        }
        for member in &members {
            self.check_reservation(peer, member).await?;
        }
        for Reservation { relationship, volume, shows, .. } in &members {
            let base = self.tables().relationships.get(relationship).and_then(|known| known.base);
            self.keep_only(*relationship, volume, base.into_iter().chain(*shows).collect()).await;
        }
        let (engine, clock) = (self.engine.clone(), self.clock.clone());
        let wanted = members.clone();
        let moments =
            blocking(move || reserve_together(&*engine, &*clock, &wanted)).await.map_err(to_refusal)?;
        let mut tables = self.tables();
        for (member, moment) in members.iter().zip(&moments) {
            *tables.pins.entry(member.relationship).or_default() += 1;
            tables.reserved.insert(member.relationship, moment.snapshot);
        }
        drop(tables);
        tracing::debug!(%peer, volumes = members.len(), "one moment of a group is taken for its update");
        Ok(ReservedTogether {
            created_at: moments.first().map_or(0, |moment| moment.created_at.0),
            snapshots: moments.iter().map(|moment| moment.snapshot.as_bytes().to_vec()).collect(),
        })
    }

    /// Whether the pool has kept what the destination shows: a base outlives the database that knew of it.
    async fn is_pinned(
        &self,
        relationship: Uuid,
        volume: &VolumeName,
        shows: Option<Uuid>,
    ) -> Result<bool, Refusal> {
        let Some(shows) = shows else { return Ok(false) };
        let (engine, of) = (self.engine.clone(), volume.clone());
        let all = blocking(move || engine.all_snapshots(&of)).await.map_err(to_refusal)?;
        Ok(all.iter().any(|s| s.uuid == shows && s.pinned_by.contains(&relationship)))
    }

    /// Under the relationship's lock.
    async fn check_reservation(&self, peer: PeerId, member: &Reservation) -> Result<(), Refusal> {
        let Reservation { relationship, transfer, volume, role_change, shows } = member;
        self.check_rights(peer, volume)?;
        self.check_overtaken(*relationship, volume, TransferKind::Update, *role_change).await?;
        let has_base = self.tables().relationships.get(relationship).is_some_and(|r| r.base.is_some());
        if !has_base && !self.is_pinned(*relationship, volume, *shows).await? {
            return Err(refusal(
                "state",
                format!(
                    "the source keeps no base of {volume} for the group. At the destination, for each volume of the group: farside \
                     mirror set POOL/VOL --group none; then farside mirror update POOL/VOL; then farside mirror set POOL/VOL --group NAME"
                ),
            ));
        }
        if self.transfers.is_serving(*relationship) {
            return Err(refusal("state", format!("a transfer of {volume} is under way")));
        }
        let (_, pins_left) = self.left_for(peer, *relationship);
        if pins_left < 3 {
            return Err(over_budget("no more snapshots may be kept for the asking site".into()));
        }
        self.check_unused(*transfer, *relationship, volume).await
    }
}
