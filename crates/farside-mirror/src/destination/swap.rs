//! A planned role change: the replica becomes the original, the original its replica, and nothing is lost.
//!
//! Asked for at the replica (site B, mirror R); the original is at site A, R' is the mirror the other way round. What each
//! line leaves if everything stops after it, and how it goes on:
//!
//! ```text
//!   B  update R, so that the next one is short
//!   B  row of R: swapping                       A writable   B, when it has a session again: tells A to cancel
//!   A  prepare: p/db is read-only, its last     none         B tells A to cancel; or the swap is asked for again
//!      snapshot taken and pinned for R and R'
//!   B  update R to exactly that snapshot, and   none         the same
//!      ask once more whether A is prepared
//!   B  that snapshot is pinned for R'           none         the same
//!   B  record of R: broken off  = TAKEOVER      B writable   B tells A that it is done, or, if that pin is gone by
//!                                                            then, only that it is overtaken
//!   B  row of R: taken over                     B writable   B tells A that it is done
//!   A  done: R' is a mirror like any other,     B writable   over
//!      the bases of R are released
//! ```
//!
//! B says *cancel* only while its pool has R as a replica, or where the row says that a person has broken R off (*given up*).
//! A row that says *swapping* of a mirror that is broken off tells neither: A stays read-only then, until it learns that B stands
//! on its last snapshot, or a person there decides.
//!
//! Another attempt begins only when A has learnt that the last one was given up. Each has a number, which every message of it
//! carries: A may still be busy with a message when its session has died, and that word has no effect once A has learnt of a
//! newer attempt (`source/role_changes.rs`). At no moment are both writable (M5), unless a person at A breaks p/db in the round
//! trip between A's last answer and the takeover: a break waits for nobody. Both sides are told then; before that, B
//! does not take over.

use std::time::Duration;

use crate::schedule::Schedule;
use async_trait::async_trait;
use farside_engine::VolumeName;
use farside_peer::PeerId;
use farside_transfer::protocol::convert::{self, CandidateBase};
use farside_transfer::protocol::{Body, SwapPhase, Swapped};
use farside_transfer::report::{TransferReport, TransferResult};
use prost::Message;
use uuid::Uuid;

use super::resync::other_source;
use super::service::{Destination, ReservedSlot};
use crate::error::{MirrorError, blocking};
use crate::links::ask;
use crate::relationship::{Mirror, Parts, RoleChangeCommand, already_a_replica, newest_in, swap_message};
use crate::source::{Reversal, ReverseAccepted, ReverseOffer};
use crate::state::State;
use crate::store::{Relationship, SwapMark};

/// How a role change went.
#[derive(Clone, PartialEq, Debug)]
pub struct SwapReport {
    /// The mirror in the new direction.
    pub reverse: Uuid,
    /// The update that brought the last snapshot.
    pub last: TransferReport,
    /// Why the former source does not know yet that it is done; it is told at the next session, and is read-only
    /// until then. None if it knows.
    pub not_notified: Option<String>,
}

impl Destination {
    /// Changes the roles of `volume` and its source. Refused, with everything as it was, while a host has the source open
    /// for writing, and by a peer whose administrator does not allow the way back. An error after that says what the peer
    /// was told; what it did not learn it learns at the next session. Goes on to its end even if nobody waits for it.
    pub async fn swap(&self, volume: &VolumeName, link_wait: Duration) -> Result<SwapReport, MirrorError> {
        let mirror = self.mirror(volume)?;
        let peer = mirror.status().relationship.peer;
        let proposed = self.new_id();
        let (parts, stop) = (self.driver_parts(), self.stop.clone());
        let (rights, of) = (self.parts.reverse.clone(), volume.clone());
        // The former source will have to read what is written here. Given when nothing but the takeover is left to do: a role
        // change that is refused gives no right.
        let grant = async move { rights.grant_reverse(peer, &of).await };
        let swapping = tokio::spawn(async move {
            // Most of what has changed travels while the source can still be written to.
            arrive(&mirror, link_wait).await?;
            begin(&mirror, proposed, link_wait).await?;
            let result = tokio::select! {
                result = change_roles(&mirror, &parts, proposed, link_wait, grant) => result,
                () = stop.cancelled() => Err(MirrorError::aborted()),
            };
            let finished = mirror.change_roles(|done| RoleChangeCommand::Finish { done }).await;
            // What has become of the roles stays so, even if the driver has ended since.
            if let Err(error) = finished {
                tracing::warn!(relationship = %mirror.status().relationship.id, "the roles have changed, but a step after it failed: {error}");
            }
            result
        });
        swapping.await?
    }

    /// Makes the volume of `offer` read-only, takes its last snapshot, and keeps it for the mirror that is to come.
    pub async fn accept_reverse(&self, offer: &ReverseOffer) -> Result<ReverseAccepted, MirrorError> {
        let ReverseOffer { of, peer, volume, source, schedule, .. } = offer;
        let prepare = |done| RoleChangeCommand::Prepare { of: *of, schedule: schedule.clone(), done };
        if let Ok(mirror) = self.mirror(volume) {
            let known = mirror.status().relationship;
            if known.peer == *peer && known.source == *source {
                return mirror.change_roles(prepare).await;
            }
            // What it remembers of a change of roles with another site makes room; what it follows does not.
            if mirror.status().state != State::BrokenOff {
                return Err(other_source(volume, &known.source.to_string()));
            }
            if self.parts.store.knows(offer.reverse).await? {
                return Err(is_another(offer.reverse));
            }
            let schedule = schedule.clone();
            let relationship =
                Relationship::new(offer.reverse, *peer, source.clone(), volume.clone(), schedule);
            let (_, accepted) =
                self.replace(relationship, None, async |mirror| mirror.change_roles(prepare).await).await?;
            return Ok(accepted);
        }
        let _reserved = ReservedSlot::take(self, volume)?;
        let relationship = self.to_follow(*peer, source.clone(), volume.clone(), schedule.clone()).await?;
        let (engine, at) = (self.parts.engine.clone(), volume.clone());
        let record = blocking(move || engine.replica_record(&at)).await?;
        let is_remembered = record.is_some_and(|r| !self.parts.endings.is_over(r.relationship));
        let id = if is_remembered { relationship.id } else { offer.reverse };
        // A row is replaced by its id.
        if !is_remembered && self.parts.store.knows(id).await? {
            return Err(is_another(id));
        }
        // Prepared from the beginning: the pool, which does not know of it yet, must not look as if it was set back.
        let swap = (!is_remembered).then_some(SwapMark::Prepared { of: *of, is_new: true });
        let relationship = Relationship { id, swap, ..relationship };
        self.parts.store.save(&relationship).await?;
        let slot = self.start(relationship, false);
        self.slots().insert(volume.clone(), slot);
        let mirror = self.mirror(volume)?;
        mirror.is_known().await;
        let accepted = mirror.change_roles(prepare).await;
        if accepted.is_err()
            && !is_remembered
            && let Err(error) = self.delete(volume).await
        {
            tracing::warn!(%volume, "cannot remove the record of a mirror whose creation failed; remove it with \
                 farside mirror delete {volume}: {error}");
        }
        accepted
    }

    /// Whether [`Destination::swap`] would be refused now: what this side knows, and what the source says. Changes nothing.
    pub async fn plan_swap(&self, volume: &VolumeName, link_wait: Duration) -> Result<(), MirrorError> {
        let mirror = self.mirror(volume)?;
        mirror.change_roles(|done| RoleChangeCommand::Look { done }).await?;
        let relationship = mirror.status().relationship;
        let look = Body::Swap(swap_message(&relationship, self.new_id(), SwapPhase::Look));
        ask(&*self.parts.links, relationship.peer, look, link_wait).await.map(drop)
    }

    /// Whether [`Destination::accept_reverse`] would be refused. Changes nothing.
    async fn look_reverse(&self, offer: &ReverseOffer) -> Result<(), MirrorError> {
        let ReverseOffer { peer, volume, source, .. } = offer;
        match self.mirror(volume) {
            Ok(mirror) => {
                let known = mirror.status().relationship;
                if known.peer != *peer || known.source != *source {
                    if mirror.status().state != State::BrokenOff {
                        return Err(other_source(volume, &known.source.to_string()));
                    }
                    super::resync::check_no_role_change(&known)?;
                }
            }
            Err(_) => drop(self.to_follow(*peer, source.clone(), volume.clone(), Schedule::OnRequest).await?),
        }
        let (engine, at) = (self.parts.engine.clone(), volume.clone());
        match blocking(move || engine.replica_record(&at)).await? {
            Some(record) if !record.broken_off => Err(already_a_replica(volume, &record.source)),
            _ => Ok(()),
        }
    }

    /// Makes a volume that was prepared what it was before.
    pub async fn cancel_reverse(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError> {
        let mirror = match self.mirror(volume) {
            Ok(mirror) => mirror,
            // Perhaps by the very message that is taken back: it must not come after.
            Err(_) if self.slots().contains_key(volume) => {
                return Err(MirrorError::State(format!(
                    "a mirror of {volume} is being created at this moment; try \
                     again"
                )));
            }
            Err(_) => return Ok(()),
        };
        if mirror.change_roles(|done| RoleChangeCommand::Cancel { of, done }).await? {
            self.delete(volume).await?;
        }
        Ok(())
    }

    /// The peer has taken over: the volume follows it from now on, and what was kept here for `of` is released.
    pub async fn activate_reverse(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError> {
        self.mirror(volume)?.change_roles(|done| RoleChangeCommand::Activate { of, done }).await
    }
}

#[async_trait]
impl Reversal for Destination {
    async fn prepare(&self, offer: &ReverseOffer) -> Result<ReverseAccepted, MirrorError> {
        self.accept_reverse(offer).await
    }

    async fn look(&self, offer: &ReverseOffer) -> Result<(), MirrorError> {
        self.look_reverse(offer).await
    }

    fn name_of(&self, peer: PeerId) -> Option<String> {
        self.parts.links.name_of(peer)
    }

    async fn prepared(&self, volume: &VolumeName, of: Uuid) -> Result<Option<Uuid>, MirrorError> {
        let Ok(mirror) = self.mirror(volume) else { return Ok(None) };
        match mirror.change_roles(|done| RoleChangeCommand::Prepared { of, done }).await {
            // It was deleted meanwhile.
            Err(_) if self.mirror(volume).is_err() => Ok(None),
            prepared => prepared,
        }
    }

    async fn is_changing(&self, volume: &VolumeName, of: Uuid) -> Result<bool, MirrorError> {
        let Ok(mirror) = self.mirror(volume) else { return Ok(false) };
        mirror.change_roles(|done| RoleChangeCommand::Changing { of, done }).await
    }

    async fn awaits_first(&self, volume: &VolumeName) -> bool {
        self.mirror(volume).is_ok_and(|mirror| mirror.status().relationship.resync_pending)
    }

    async fn give_way(&self, volume: &VolumeName, of: Uuid) -> Result<bool, MirrorError> {
        match self.mirror(volume) {
            Ok(mirror) => mirror.change_roles(|done| RoleChangeCommand::GiveWay { of, done }).await,
            Err(_) => Ok(false),
        }
    }

    async fn released(&self, volume: &VolumeName, peer: PeerId, destination: &VolumeName) {
        let Ok(mirror) = self.mirror(volume) else { return };
        let known = mirror.status().relationship;
        if known.peer == peer && known.source == *destination {
            // One whose driver has ended has nothing to tell.
            let _ = mirror.change_roles(|done| RoleChangeCommand::Released { done }).await;
        }
    }

    async fn look_upstream(&self, volume: &VolumeName, hops: usize) {
        self.look_upstream_of(volume, hops).await;
    }

    async fn cancel(&self, volume: &VolumeName, of: Uuid) -> Result<(), MirrorError> {
        self.cancel_reverse(volume, of).await
    }

    /// Which groups there are, and whether this one fits, the whole site knows: whoever sees all pools puts it there.
    async fn done(&self, volume: &VolumeName, of: Uuid, _group: Option<String>) -> Result<(), MirrorError> {
        self.activate_reverse(volume, of).await
    }
}

fn is_another(id: Uuid) -> MirrorError {
    MirrorError::State(format!("relationship {id} is another one here; it cannot be the way back"))
}

/// Begins, once the source has learnt that an attempt before was given up; waits for that for at most `link_wait`.
async fn begin(mirror: &Mirror, reverse: Uuid, link_wait: Duration) -> Result<(), MirrorError> {
    let mut changes = mirror.changes();
    let deadline = tokio::time::Instant::now() + link_wait;
    while !mirror.change_roles(|done| RoleChangeCommand::Begin { reverse, done }).await? {
        let is_over = changes.wait_for(|status| status.relationship.swap.is_none());
        match tokio::time::timeout_at(deadline, is_over).await {
            Ok(is_over) => drop(is_over.map_err(|_| MirrorError::aborted())?),
            Err(_) => {
                return Err(MirrorError::State(
                    "the source has not heard yet that the last role change was cancelled; it is told at the next \
                     session. No role was changed. Check the session with farside peer list, then run farside mirror \
                     swap again"
                        .into(),
                ));
            }
        }
    }
    Ok(())
}

/// From the first message to the last. What has begun and not ended when this fails is the divergence notice's to end.
async fn change_roles(
    mirror: &Mirror,
    parts: &Parts,
    mut reverse: Uuid,
    link_wait: Duration,
    grant: impl Future<Output = Result<(), MirrorError>>,
) -> Result<SwapReport, MirrorError> {
    let (relationship, answer) = prepare(mirror, parts, reverse, link_wait).await?;
    let (peer, role_change) = (relationship.peer, relationship.role_change);
    let message = |reverse, phase| Body::Swap(swap_message(&relationship, reverse, phase));
    let send = async |reverse, phase| {
        let answer = ask(&*parts.links, peer, message(reverse, phase), link_wait).await?;
        let newest = newest_in(&answer, |answer: Swapped| answer.newest)?;
        if newest != role_change {
            // After the takeover the roles have changed, whatever the source makes of it.
            let next = match phase {
                SwapPhase::Prepare | SwapPhase::Confirm => {
                    ". No role was changed. Run farside mirror swap again"
                }
                SwapPhase::Cancel | SwapPhase::Done | SwapPhase::Look => "",
            };
            return Err(MirrorError::State(format!(
                "the source ignored this role change because it has seen a newer one (number {newest}){next}"
            )));
        }
        Ok(())
    };
    let last = answer.snapshot.as_ref().map(CandidateBase::from_message).transpose()?;
    let last = last.ok_or_else(|| MirrorError::protocol("the source did not name its last snapshot"))?;
    let named = convert::uuid(&answer.reverse)?;
    // Pins are given and taken by this id: it must not be one that stands for another base here.
    let is_of_another = parts.source.is_of_another(named, peer, &relationship.destination);
    if is_of_another || parts.store.knows(named).await? {
        return Err(MirrorError::protocol(format!(
            "the source named {named} as the reverse mirror, and that is another mirror"
        )));
    }
    if named != reverse {
        reverse = named;
        mirror.change_roles(|done| RoleChangeCommand::Agree { reverse, done }).await?;
    }
    let report = arrive(mirror, link_wait).await?;
    let shown = mirror.status().current.map(|c| (c.uuid, c.content_root, c.size_bytes));
    if shown != Some((last.uuid, last.content_root, last.size_bytes)) {
        return Err(MirrorError::State(format!(
            "{} was written to after its last snapshot was taken, so it was broken off at the source. The roles stay \
             as they are",
            relationship.source
        )));
    }
    // A person there may have taken the volume back while this side was busy; a break waits for nobody.
    send(reverse, SwapPhase::Confirm).await?;
    grant.await?;
    let reverse_role_change = convert::role_change(answer.reverse_role_change)?;
    mirror
        .change_roles(|done| RoleChangeCommand::TakeOver { last, role_change: reverse_role_change, done })
        .await?;
    // From here on it is done, whoever knows it.
    let not_notified = match send(reverse, SwapPhase::Done).await {
        Ok(()) => {
            let acknowledged = |done| RoleChangeCommand::Acknowledged { role_change, done };
            if let Err(error) = mirror.change_roles(acknowledged).await {
                // Its row does not know that it is over: the source is told once more, and nothing else.
                tracing::warn!(relationship = %relationship.id, "the roles have changed; that the former source has learnt of it is not remembered: {error}");
            }
            None
        }
        Err(error) => {
            tracing::warn!(relationship = %relationship.id, "the roles have changed; the former source has not been \
                 told yet and stays read-only until the next session: {error}");
            Some(error.to_string())
        }
    };
    Ok(SwapReport { reverse, last: report, not_notified })
}

/// Asks the source to prepare; answers also as what the attempt is told. With the database the count of attempts may have
/// been lost: then once more, above what the source remembers.
async fn prepare(
    mirror: &Mirror,
    parts: &Parts,
    reverse: Uuid,
    link_wait: Duration,
) -> Result<(Relationship, Swapped), MirrorError> {
    for _ in 0..2 {
        let relationship = mirror.status().relationship;
        let message = Body::Swap(swap_message(&relationship, reverse, SwapPhase::Prepare));
        let answer = ask(&*parts.links, relationship.peer, message, link_wait).await?;
        let newest = newest_in(&answer, |answer: Swapped| answer.newest)?;
        if newest < relationship.role_change {
            return Err(MirrorError::protocol(
                "the source answered the role change without counting it. No role was changed at this site",
            ));
        }
        let answer =
            Swapped::decode(answer).map_err(|e| MirrorError::protocol(format!("malformed answer: {e}")))?;
        // Without a snapshot the source has seen the end of an attempt with this number, and did nothing.
        if newest == relationship.role_change && answer.snapshot.is_some() {
            return Ok((relationship, answer));
        }
        mirror.change_roles(|done| RoleChangeCommand::Raise { newest, done }).await?;
    }
    Err(MirrorError::State(
        "the source ignored this role change because it has seen newer ones. No role was changed. Run farside mirror \
         swap again".into(),
    ))
}

/// An update that has arrived whole.
async fn arrive(mirror: &Mirror, link_wait: Duration) -> Result<TransferReport, MirrorError> {
    let asked = mirror.update_alone(link_wait).await?;
    let ended = tokio::select! {
        biased;
        ended = asked.ended() => ended,
        () = mirror.out_of_reach(link_wait) => Err(MirrorError::NoSession(String::from(
            "nothing has reached the source in the time given",
        ))),
    };
    if ended.is_err() {
        // What the schedule wants goes on, and is not to promise a change of roles. A driver that has ended promises nothing.
        let _ = mirror.change_roles(|done| RoleChangeCommand::Forgo { done }).await;
    }
    let report = match ended {
        Err(MirrorError::NoSession(why)) => {
            return Err(MirrorError::NoSession(format!(
                "{why}; no role was changed, and none will be by itself"
            )));
        }
        ended => ended?,
    };
    match report.result {
        TransferResult::Ok => Ok(report),
        TransferResult::Failed | TransferResult::Aborted => {
            let reason = report.reason.unwrap_or_default();
            Err(MirrorError::State(format!(
                "the update before the role change failed; no role was changed: {reason}"
            )))
        }
    }
}
