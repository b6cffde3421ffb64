//! Resync: the volume follows its source again, from the newest point that both hold.
//!
//! The order, and what a crash after each line leaves:
//!
//! 1. the source is asked for the newest common base; nothing is changed
//! 2. the row says that a resync is pending: still broken off; asked again, it goes on from here
//! 3. the base is pinned here: as 2
//! 4. the pool's record says *replica* (refused while a host has the volume open for writing): read-only, shows what it
//!    showed; the next start goes on with the resync
//! 5. the first commit (as of every transfer): the source's version; what was written here is a side branch

use std::time::Duration;

use farside_engine::{ChangedBytes, ContentRoot, Engine, ReplicaRecord, SnapshotInfo, VolumeName};
use prost::Message;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::driver::Driver;
use super::{Asked, Command, Ended, Mirror, Parts, gone};
use crate::error::{MirrorError, blocking};
use crate::limits::{BREAK_PATIENCE, CANDIDATES_MAX};
use crate::log::{LogEvent, RequestedBy};
use crate::protocol::convert::{self, CandidateBase};
use crate::protocol::{Body, Compare, Comparison};
use crate::state::{Event, TransferKind, Work};
use crate::store::{Relationship, SwapMark};
use crate::transfer;

/// The newest point that both sides hold, and what lies beyond it at the source.
#[derive(Clone, Debug)]
pub(crate) struct CommonBase {
    pub(crate) base: CandidateBase,
    /// What the source has written since.
    pub(crate) incoming: ChangedBytes,
}

/// Asks the source. Changes nothing on either side.
pub(crate) async fn common_base(
    parts: &Parts,
    relationship: &Relationship,
    link_wait: Duration,
) -> Result<CommonBase, MirrorError> {
    let (engine, volume) = (parts.engine.clone(), relationship.destination.clone());
    let candidates = blocking(move || candidates(&*engine, &volume)).await?;
    let compare = Compare {
        relationship: relationship.id.as_bytes().to_vec(),
        volume: relationship.source.to_string(),
        destination: relationship.destination.to_string(),
        candidates: candidates.iter().map(|c| c.to_message()).collect(),
    };
    let answer = transfer::ask(&*parts.links, relationship.peer, Body::Compare(compare), link_wait).await?;
    let answer = Comparison::decode(answer)
        .map_err(|e| MirrorError::Protocol(format!("a comparison that cannot be read: {e}")))?;
    let Some(base) = answer.base.as_ref().map(CandidateBase::from_message).transpose()? else {
        let Relationship { source, destination, .. } = relationship;
        return Err(MirrorError::State(format!(
            "no snapshot of {destination} is also at the peer's {source}: there is no point to go on from. Nothing was \
             changed. To copy everything, `farside mirror create` to a new volume; {destination} stays as it is"
        )));
    };
    if !candidates.contains(&base) {
        return Err(MirrorError::Protocol("the source chose a base that this side never named".into()));
    }
    convert::size(answer.size_bytes)?;
    Ok(CommonBase {
        base,
        incoming: ChangedBytes { data_bytes: answer.data_bytes, hole_bytes: answer.hole_bytes },
    })
}

/// Every snapshot here that may serve as base, side branches included, oldest first, [`CANDIDATES_MAX`] at most: those that
/// a mirror keeps (a common base is among them however many were taken since), and the newest.
pub(crate) fn candidates(
    engine: &dyn Engine,
    volume: &VolumeName,
) -> Result<Vec<CandidateBase>, MirrorError> {
    let mut snapshots = engine.all_snapshots(volume)?;
    let mut too_many = snapshots.len().saturating_sub(CANDIDATES_MAX);
    snapshots.retain(|s| {
        let is_dropped = too_many > 0 && s.pinned_by.is_empty();
        too_many -= usize::from(is_dropped);
        !is_dropped
    });
    let newest = &snapshots[snapshots.len().saturating_sub(CANDIDATES_MAX)..];
    let candidate = |s: &SnapshotInfo| {
        let content_root: ContentRoot = engine.content_root(volume, s.uuid)?;
        Ok(CandidateBase { uuid: s.uuid, content_root, size_bytes: s.size_bytes })
    };
    newest.iter().map(candidate).collect()
}

impl Relationship {
    /// What the pool remembers of it.
    pub(crate) fn record(&self, broken_off: bool) -> ReplicaRecord {
        ReplicaRecord {
            relationship: self.id,
            peer: self.peer.0,
            source: self.source.to_string(),
            broken_off,
        }
    }
}

impl Mirror {
    /// Makes a mirror that was broken off follow its source again, from the newest snapshot that both hold; what hosts have
    /// written here since stays as a side branch. Waits for a session for at most `link_wait` to ask for that snapshot:
    /// without one nothing is changed. Refused while a host has the volume open for writing. From the moment this
    /// returns the volume is read-only; it shows its own last state until the transfer has brought the source's. Should
    /// that fail it is tried again by the schedule, or by asking again; `break` gives the volume back as it was.
    pub async fn resync(&self, link_wait: Duration) -> Result<Asked, MirrorError> {
        let relationship = self.status().relationship;
        let common = common_base(&self.parts, &relationship, link_wait).await?;
        self.resync_onto(common.base, link_wait).await
    }

    /// The same from a base that was found before.
    pub(crate) async fn resync_onto(
        &self,
        base: CandidateBase,
        link_wait: Duration,
    ) -> Result<Asked, MirrorError> {
        let (accepted, is_accepted) = oneshot::channel();
        let (ended_tx, ended) = oneshot::channel();
        self.send(Command::Resync { base: base.uuid, link_wait, accepted, ended: ended_tx }).await?;
        is_accepted.await.unwrap_or_else(|_| Err(gone()))?;
        Ok(Asked { ended })
    }
}

impl Driver {
    pub(super) async fn resync(
        &mut self,
        base: Uuid,
        link_wait: Duration,
        ended: Ended,
    ) -> Result<(), MirrorError> {
        // A resync that stopped between row and record has left a volume that the pool knows as nobody's replica.
        let is_follower = self.check_probed().is_ok();
        let before = self.relationship.clone();
        // The source has compared itself with this volume, which it refuses while it is the replica: a change of roles that
        // was prepared here has turned there, and a source that lost its database forgot to say so.
        let swap = before.swap.filter(|mark| !matches!(mark, SwapMark::Prepared { .. }));
        if is_follower {
            if swap == before.swap {
                self.check_ready()?;
            }
            self.standing.step(Event::AskResync)?;
        }
        let turn = self.next_turn();
        let pending =
            Relationship { resync_pending: true, broken_off_at: None, swap, turn, ..before.clone() };
        self.parts.store.save(&pending).await?;
        if !is_follower || self.standing.work == Work::BrokenOff {
            self.herald = None;
            let (engine, relationship) = (self.parts.engine.clone(), pending.clone());
            if let Err(error) = blocking(move || follow(&*engine, &relationship, base)).await {
                if let Err(error) = self.parts.store.save(&before).await {
                    tracing::warn!(relationship = %before.id, "the row still says that a resync is pending: {error}");
                }
                self.probe().await;
                return Err(error);
            }
            self.relationship = pending;
            self.probe().await;
            self.check_probed()?;
            tracing::info!(
                relationship = %self.relationship.id, volume = %self.relationship.destination,
                source = %self.relationship.source, "a replica again: read-only; a resync brings the source's version"
            );
            self.log(LogEvent::Resync, Some(TransferKind::Resync), None).await;
        } else {
            self.relationship = pending;
        }
        let (next, action) = self.standing.step(Event::AskResync)?;
        self.why = None;
        self.log(LogEvent::Request { by: RequestedBy::Person }, Some(TransferKind::Resync), None).await;
        self.join(next, action, TransferKind::Resync, link_wait, ended).await
    }

    /// Keeps in the row what the standing says of a pending resync.
    pub(super) async fn keep_pending(&mut self) {
        if self.relationship.resync_pending == self.standing.resync_pending {
            return;
        }
        self.relationship.resync_pending = self.standing.resync_pending;
        if let Err(error) = self.parts.store.save(&self.relationship).await {
            tracing::warn!(relationship = %self.relationship.id, "the row does not say how its resync ended: {error}");
        }
    }

    /// Something of the source is published here: what this site kept as the source of that very volume, before the
    /// direction changed, has a successor. Repeated after every transfer, so that a crash in between is made good.
    pub(super) async fn drop_other_direction(&self) {
        let Relationship { destination, peer, source, .. } = self.relationship.clone();
        let (of_source, at) = (self.parts.source.clone(), destination.clone());
        // In a task of its own: it waits for the other mirror's turn, and a break must not wait for that.
        let dropped = tokio::spawn(async move { of_source.overwritten(&at, peer, &source).await });
        let dropped = match tokio::time::timeout(BREAK_PATIENCE, dropped).await {
            Ok(ended) => ended.unwrap_or_else(|error| Err(error.into())),
            Err(_) => {
                tracing::warn!(volume = %destination, "letting go of the mirror in the other direction takes its time");
                return;
            }
        };
        match dropped {
            Ok(0) => {}
            Ok(_) => {
                tracing::info!(volume = %destination, "the mirror in the other direction is over; its bases are let go")
            }
            Err(error) => tracing::warn!(
                volume = %destination, "bases of the mirror in the other direction stay until the next update: {error}"
            ),
        }
    }
}

/// Pins the base and makes the volume a replica, in this order: nothing relies on what is not kept.
fn follow(engine: &dyn Engine, relationship: &Relationship, base: Uuid) -> Result<(), MirrorError> {
    let volume = &relationship.destination;
    let record = engine.replica_record(volume)?;
    if let Some(other) = record.filter(|r| r.relationship != relationship.id) {
        return Err(MirrorError::State(format!(
            "{volume} is the replica of another volume, {}; `farside mirror delete {volume}` ends that mirror, the \
             volume stays",
            other.source
        )));
    }
    let pinned_before = engine
        .all_snapshots(volume)?
        .iter()
        .any(|s| s.uuid == base && s.pinned_by.contains(&relationship.id));
    engine.pin(volume, base, relationship.id)?;
    if let Err(error) = engine.set_replica_record(volume, Some(relationship.record(false))) {
        if !pinned_before && let Err(error) = engine.unpin(volume, base, relationship.id) {
            tracing::warn!(%volume, "a base stays pinned: {error}");
        }
        return Err(error.into());
    }
    Ok(())
}
