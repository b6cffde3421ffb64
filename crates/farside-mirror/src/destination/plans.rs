//! What break, resync and rollback would set aside and bring: figures from metadata. They change nothing.

use std::time::Duration;

use farside_engine::{ChangedBytes, Engine, EngineError, SnapshotInfo, SnapshotOwner, VolumeName};
use farside_peer::PeerId;
use farside_platform::Timestamp;
use farside_transfer::bases::{RESCUE, rotates};
use uuid::Uuid;

use super::resync::check_no_role_change;
use super::service::Destination;
use crate::error::{MirrorError, blocking};
use crate::relationship::{Comparing, common_base, drop_probe, handed_over, no_room, would_let_go_then};
use crate::rescues;
use crate::schedule::Schedule;
use crate::shown::holder;
use crate::state::State;
use crate::store::Relationship;

/// A point in time that a plan names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanPoint {
    /// The snapshot's name here.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// When the data was so.
    pub created_at: Timestamp,
}

impl PlanPoint {
    fn of(snapshot: &SnapshotInfo) -> PlanPoint {
        PlanPoint { name: snapshot.name.clone(), uuid: snapshot.uuid, created_at: snapshot.created_at }
    }
}

/// What would happen to a volume.
#[derive(Clone, PartialEq, Debug)]
pub struct RoleChangePlan {
    /// Where it would stand afterwards (break, rollback), or what the transfer would start from (resync); none if a
    /// replica that holds no version yet is broken off.
    pub base: Option<PlanPoint>,
    /// The newest snapshot on its main line now; none if there is none.
    pub current: Option<PlanPoint>,
    /// What hosts see now and would not see any more; it stays as a side branch.
    pub set_aside: ChangedBytes,
    /// The span of time of what is set aside, seconds: from the base to the newest state here. Zero if nothing is.
    pub set_aside_seconds: f64,
    /// Names of old side branches that go for the new one (resync): a volume keeps so many.
    pub lets_go: Vec<String>,
    /// The name of a person's snapshot that holds all of what hosts see now: it stays as it is called, whatever rotates.
    pub held_by: Option<String>,
    /// The source has what hosts see now on a side branch, and shows something else (resync): here it stays beside the line, too.
    pub is_left: bool,
    /// Why a resync is refused: what it brings does not fit.
    pub no_room: Option<String>,
    /// Points that retention lets go as soon as the volume follows again, oldest first (resync of what was broken off).
    pub retention_lets_go: Vec<PlanPoint>,
    /// What the source would bring; none if nothing is brought.
    pub incoming: Option<ChangedBytes>,
    /// What the source follows itself, if it is no original (resync).
    pub follows: Option<VolumeName>,
    /// How old the state is that hosts would find, seconds; none if nobody knows.
    pub age_seconds: Option<f64>,
}

/// So many points come with a resync: its own, and where a group was asked for as one that of the update that brings it to one moment.
fn comes(with_group: bool) -> usize {
    if with_group { 2 } else { 1 }
}

impl Destination {
    /// What [`Mirror::break_off`](crate::Mirror::break_off) would do.
    pub async fn plan_break(
        &self,
        volume: &VolumeName,
        at: Option<Uuid>,
    ) -> Result<RoleChangePlan, MirrorError> {
        let current = self.mirror(volume)?.status().current.map(|c| c.uuid);
        let (plan, _) = self.plan_move(volume, at.or(current), None).await?;
        Ok(plan)
    }

    /// What a rollback to `snapshot` would do ([`Branches::move_main`](farside_engine::Branches::move_main)).
    pub async fn plan_rollback(
        &self,
        volume: &VolumeName,
        snapshot: Uuid,
    ) -> Result<RoleChangePlan, MirrorError> {
        let (plan, _) = self.plan_move(volume, Some(snapshot), None).await?;
        Ok(plan)
    }

    /// What [`Mirror::resync`](crate::Mirror::resync) would do, or [`Destination::resync_from`] that volume of that peer.
    /// Asks the peer for the common base; an error says why it would be refused.
    pub async fn plan_resync(
        &self,
        volume: &VolumeName,
        from: Option<(PeerId, VolumeName)>,
        link_wait: Duration,
    ) -> Result<RoleChangePlan, MirrorError> {
        self.plan_resync_comparing(volume, from, Comparing::CommonPoint, false, link_wait).await
    }

    /// What [`Destination::resync_as_asked`] would do; `with_group` if that is asked to keep what the volume shows by a moment.
    pub async fn plan_resync_comparing(
        &self,
        volume: &VolumeName,
        from: Option<(PeerId, VolumeName)>,
        comparing: Comparing,
        with_group: bool,
        link_wait: Duration,
    ) -> Result<RoleChangePlan, MirrorError> {
        let status = self.mirror(volume).ok().map(|mirror| mirror.status());
        let is_broken_off = status.as_ref().is_some_and(|status| status.state == State::BrokenOff);
        let known = status.map(|status| status.relationship);
        let relationship = match (known, from) {
            (Some(known), None) => known,
            (Some(known), Some((peer, source))) if known.peer == peer && known.source == source => known,
            (Some(known), Some((peer, source))) => {
                check_no_role_change(&known)?;
                Relationship::new(self.new_id(), peer, source, volume.clone(), Schedule::OnRequest)
            }
            (None, Some((peer, source))) => {
                self.to_follow(peer, source, volume.clone(), Schedule::OnRequest).await?
            }
            (None, None) => return Err(MirrorError::NotFound(volume.clone())),
        };
        let common = common_base(&self.driver_parts(), &relationship, comparing, link_wait).await?;
        let plan = self.plan_move(volume, Some(common.base.uuid), Some(relationship.id)).await;
        drop_probe(&self.driver_parts(), &relationship, common.probe).await;
        let (plan, stays) = plan?;
        let retention = relationship.retention;
        let retention_lets_go = match is_broken_off && !retention.is_none() {
            true => {
                would_let_go_then(&self.driver_parts(), &relationship, &retention, stays, comes(with_group))
                    .await?
                    .0
            }
            false => Vec::new(),
        };
        let retention_lets_go = retention_lets_go.iter().map(PlanPoint::of).collect();
        let compares = common.incoming.is_none();
        let held_by = plan.held_by.clone().filter(|_| !with_group);
        let differs = compares || plan.set_aside != ChangedBytes::default();
        let is_left = common.is_beside && !differs;
        let lets_go = match with_group || (held_by.is_none() && (differs || is_left)) {
            true => self.would_let_go(volume).await?,
            false => Vec::new(),
        };
        let follows = common.follows.into_iter().next().map(|place| place.volume);
        let no_room = no_room(&self.driver_parts(), &relationship, common.incoming).await;
        Ok(RoleChangePlan {
            no_room,
            incoming: common.incoming,
            is_left,
            follows,
            age_seconds: None,
            held_by,
            lets_go,
            retention_lets_go,
            ..plan
        })
    }

    /// What a resync of a volume lets go as soon as it follows again, as far as that can be told without its source: points of its
    /// retention, and old side branches for the one that it may make.
    ///
    /// # Errors
    /// If the pool or the state database cannot be asked.
    pub async fn plan_resync_alone(
        &self,
        volume: &VolumeName,
        with_group: bool,
    ) -> Result<(Vec<PlanPoint>, Vec<String>), MirrorError> {
        let branches = self.would_let_go(volume).await?;
        let Ok(status) = self.mirror(volume).map(|mirror| mirror.status()) else {
            return Ok((Vec::new(), branches));
        };
        let relationship = status.relationship;
        let retention = relationship.retention;
        let points = match status.state == State::BrokenOff && !retention.is_none() {
            true => {
                would_let_go_then(&self.driver_parts(), &relationship, &retention, None, comes(with_group))
                    .await?
                    .0
            }
            false => Vec::new(),
        };
        Ok((points.iter().map(PlanPoint::of).collect(), branches))
    }

    /// Names of old side branches that go if its mirror is broken off at `at`: what that sets aside counts with them.
    pub async fn plan_break_lets_go(
        &self,
        volume: &VolumeName,
        at: Uuid,
    ) -> Result<Vec<String>, MirrorError> {
        let id = self.mirror(volume)?.status().relationship.id;
        let (engine, of) = (self.parts.engine.clone(), volume.clone());
        let (most, now) = (self.parts.limits.rescues, self.parts.clock.now());
        blocking(move || {
            let main_line = engine.snapshots(&of)?;
            let aside: Vec<Uuid> = handed_over(&main_line, id, at).map(|(_, s)| s.uuid).collect();
            let mut all = engine.all_snapshots(&of)?;
            // What a person made at the source, and retention lets go, stays by another name as well.
            let newest = main_line.last().filter(|s| s.uuid != at && s.owner == SnapshotOwner::Person);
            let volume = engine.volume(&of)?.uuid;
            let rotating =
                newest.filter(|s| !s.held && rotates(volume, Some(id), s.pinned_by.iter().copied()));
            all.extend(rotating.map(|s| SnapshotInfo {
                name: format!("{RESCUE}-{now:.0}"),
                uuid: Uuid::nil(),
                pinned_by: Vec::new(),
                sequence: u64::MAX,
                ..s.clone()
            }));
            for snapshot in &mut all {
                if aside.contains(&snapshot.uuid) {
                    snapshot.owner = SnapshotOwner::Person;
                    snapshot.name = format!("{RESCUE}-{now:.0}");
                }
                // It is a base from then on.
                if snapshot.uuid == at {
                    snapshot.pinned_by.push(id);
                }
            }
            Ok::<_, EngineError>(rescues::due(&all, most))
        })
        .await
    }

    async fn would_let_go(&self, volume: &VolumeName) -> Result<Vec<String>, MirrorError> {
        let (engine, of) = (self.parts.engine.clone(), volume.clone());
        let (most, now) = (self.parts.limits.rescues, self.parts.clock.now());
        blocking(move || {
            Ok::<_, EngineError>(rescues::would_go(&engine.all_snapshots(&of)?, most, false, now))
        })
        .await
    }

    /// `mirror`: by which it follows from then on; none if by that of before. Besides: which snapshot does not rotate any more then.
    async fn plan_move(
        &self,
        volume: &VolumeName,
        to: Option<Uuid>,
        mirror: Option<Uuid>,
    ) -> Result<(RoleChangePlan, Option<Uuid>), MirrorError> {
        let (engine, of, now) = (self.parts.engine.clone(), volume.clone(), self.parts.clock.now());
        blocking(move || plan_move(&*engine, &of, to, mirror, now)).await
    }
}

fn plan_move(
    engine: &dyn Engine,
    volume: &VolumeName,
    to: Option<Uuid>,
    mirror: Option<Uuid>,
    now: Timestamp,
) -> Result<(RoleChangePlan, Option<Uuid>), MirrorError> {
    let current = engine.snapshots(volume)?.pop();
    let base = match to {
        None => None,
        Some(to) => {
            let absent = || EngineError::NotFound { what: format!("snapshot {to} of {volume}") };
            Some(engine.all_snapshots(volume)?.into_iter().find(|s| s.uuid == to).ok_or_else(absent)?)
        }
    };
    let set_aside = base.as_ref().map(|base| engine.changed_since(volume, base.uuid)).transpose()?;
    let set_aside = set_aside.unwrap_or_default();
    // A replica shows its newest snapshot; any other volume may have been written to until now.
    let newest = match &current {
        Some(current) if engine.volume(volume)?.is_replica => current.created_at,
        _ => now,
    };
    let mirror = match mirror {
        Some(mirror) => Some(mirror),
        None => engine.replica_record(volume)?.map(|record| record.relationship),
    };
    let held_by = to.map(|to| holder(engine, volume, to, mirror)).transpose()?.flatten();
    let stays = held_by.as_ref().filter(|_| set_aside != ChangedBytes::default()).map(|h| h.snapshot.uuid);
    let set_aside_seconds = match &base {
        Some(base) if set_aside != ChangedBytes::default() => newest.seconds_since(base.created_at).max(0.0),
        _ => 0.0,
    };
    let plan = RoleChangePlan {
        base: base.as_ref().map(PlanPoint::of),
        current: current.as_ref().map(PlanPoint::of),
        set_aside,
        set_aside_seconds,
        lets_go: Vec::new(),
        held_by: held_by.map(|holder| holder.snapshot.name),
        is_left: false,
        no_room: None,
        retention_lets_go: Vec::new(),
        incoming: None,
        follows: None,
        age_seconds: base.map(|base| now.seconds_since(base.created_at)),
    };
    Ok((plan, stays))
}
