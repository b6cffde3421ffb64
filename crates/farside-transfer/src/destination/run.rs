//! One transfer, seen from the destination: from the first question to the last acknowledgement.
//!
//! What a failure leaves behind: of the step that failed a staged version that nobody sees, for the next transfer to go on
//! with (`resume.rs`); steps before it are published, each a whole snapshot of the source. What a crash leaves behind: the
//! same, the staged version as it was at its last checkpoint. What did not add up is thrown away at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use farside_engine::{ChangeKind, EngineError, KnownDataScope, StagedFor, StagedVersion};
use farside_link::WireCounters;
use prost::Message;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::cross_volume::CrossVolume;
use super::publish::Proved;
use super::receive::Room;
use super::resume::{self, Fate, Kept, Opened};
use super::together::{Brought, Together};
use super::transfer::{NoRoom, Outcome, Transfer};
use super::{known, named, publish, receive};
use crate::bases::{RESCUE, RESCUE_OF_SOURCE, keep_common, kept_for_others};
use crate::calls::call;
use crate::error::{TransferError, blocking, piece};
use crate::kind::TransferKind;
use crate::limits::{CLOSE_TIMEOUT, NODES_PART, ROOM_WAIT, ROOM_WAITS_MAX};
use crate::protocol::convert::{self, CandidateBase, OF_SEVERAL, TransferPlan, TravellingSnapshot, Upstream};
use crate::protocol::group::GroupMoment;
use crate::protocol::held::Held;
use crate::protocol::{Acknowledge, Begin, Body, Candidate, End, Plan, StagedTransfer};
use crate::replica::Replica;
use crate::report::{Phase, TransferReport, TransferResult};

/// One attempt at a step.
struct Filling<'a> {
    index: usize,
    step: &'a TravellingSnapshot,
    base: Option<CandidateBase>,
    /// What it is staged upon: the base, or a snapshot of the same content.
    upon: Option<Uuid>,
    /// That is not a base, but what this side had of its own.
    is_compared: bool,
    /// The step holds what the base holds.
    is_unchanged: bool,
    without_base: bool,
    held: Held,
    /// Whether the source may ask for known data.
    known: bool,
    /// Whether something was taken as known.
    has_taken: bool,
    /// All of this site, as the step began: of those that are still there what they brought may be offered.
    mirrors: Vec<Replica>,
    /// What is offered of other volumes.
    cross_volume: Offer,
    /// Bytes of data that the step brings, once the source has counted them.
    found_bytes: Arc<AtomicU64>,
}

/// Where a step begins.
struct Stands {
    /// What both sides hold.
    base: Option<CandidateBase>,
    /// What it is staged upon: that, or a snapshot of the same content.
    upon: Option<Uuid>,
    /// What the source does not have any more, or never had: it is kept.
    gone: Option<Uuid>,
    /// What it is staged upon is not a base: the source is told what is in it.
    is_compared: bool,
    /// Other destinations hold it too.
    is_common: bool,
    /// It is published together with what the rest of this group brings.
    group: Option<Arc<dyn Together>>,
}

/// Of what this side holds of other volumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Offer {
    /// None of it serves as base (any more).
    Nothing,
    /// Whatever there is.
    All,
    /// Whatever there was; a frame has named what was deleted meanwhile.
    Outlived,
}

/// What came up on the way.
#[derive(Default)]
struct Told {
    waiting: u64,
    left_out: u64,
    unacknowledged: Option<Acknowledge>,
    upstream: Option<Upstream>,
}

/// Runs it to its end, whatever that is.
pub async fn run(mut transfer: Transfer) -> Outcome {
    let mut report = TransferReport::begun(transfer.id, transfer.kind, transfer.clock.now());
    let started = transfer.clock.monotonic();
    // Control messages of this transfer; each data stream counts its own and adds to it.
    let wire = Arc::new(WireCounters::default());
    let Replica { relationship, peer, source, destination, .. } = &transfer.replica;
    // Whoever started it logs how it ended: it knows which mirror it was for, and what an ordinary update is.
    tracing::debug!(
        transfer = %transfer.id, %relationship, %peer, %source, %destination, kind = %transfer.kind, "transfer begins"
    );
    let mut told = Told::default();
    let outcome = transfer.carry_out(&mut report, &wire, &mut told).await;
    if outcome.as_ref().is_err_and(TransferError::is_about_room) {
        // An update counts for more than a point in common with another replica.
        transfer.keep_common(&[]).await;
    }
    report.ended_at = transfer.clock.now();
    report.duration_seconds = transfer.clock.monotonic().saturating_sub(started).as_secs_f64();
    report.wire_bytes_sent = wire.sent();
    report.wire_bytes_received = wire.received();
    report.result = match &outcome {
        Ok(()) => TransferResult::Ok,
        Err(TransferError::Aborted) => TransferResult::Aborted,
        Err(_) => TransferResult::Failed,
    };
    report.reason = outcome.as_ref().err().map(ToString::to_string);
    if let Some(reason) = &report.reason {
        tracing::warn!(transfer = %report.id, "transfer stopped: {reason}");
    }
    transfer.close_at_source(report.reason.clone(), told.unacknowledged.as_ref());
    Outcome {
        report,
        lost_session: outcome.as_ref().is_err_and(TransferError::is_lost_session),
        crossed: outcome.as_ref().is_err_and(TransferError::is_crossed),
        forbidden: outcome.as_ref().is_err_and(TransferError::is_forbidden),
        no_original: outcome.as_ref().is_err_and(TransferError::has_no_original),
        not_open: outcome.as_ref().is_err_and(TransferError::is_not_open),
        no_room: outcome.err().and_then(|error| NoRoom::of(&error)),
        waiting: told.waiting,
        left_out: told.left_out,
        unacknowledged: told.unacknowledged,
        upstream: told.upstream,
    }
}

impl Transfer {
    async fn carry_out(
        &mut self,
        report: &mut TransferReport,
        wire: &Arc<WireCounters>,
        told: &mut Told,
    ) -> Result<(), TransferError> {
        self.progress.phase(Phase::Snapshot);
        let publish::Here {
            candidates,
            published,
            newest,
            own,
            is_damaged,
            named,
            mut kept,
            onward,
            keeps_common,
        } = self.tidy_and_list().await?;
        if let Some(group) = &self.together
            && let Some(shown) = published.filter(|shown| shown.uuid == group.moment().snapshot)
        {
            group.is_there();
            report.content_root = Some(shown.content_root);
            return Ok(());
        }
        let named_max = self.named_max.saturating_sub(named);
        let mut plan =
            self.begin(&candidates, is_damaged, named_max, kept.as_ref(), wire, &mut told.upstream).await?;
        let surplus = named::keep_newest(&mut plan.steps, &candidates, named_max);
        (told.waiting, told.left_out) = (plan.waiting, plan.left_out.saturating_add(surplus as u64));
        let content = |c: CandidateBase| (c.content_root, c.size_bytes);
        if plan.steps.is_empty() {
            // "Nothing to bring" is believed only of what readers see here already.
            let is_shown = plan.base.map(content) == published.map(content);
            if plan.base.is_none() || !(is_shown || self.kind == TransferKind::Resync) {
                return Err(TransferError::Protocol(
                    "the source has nothing to bring, but names another base than the version this replica shows"
                        .into(),
                ));
            }
        }
        if let Some(base) = plan.base.filter(|base| published.is_none_or(|shown| shown.uuid != base.uuid)) {
            // It may be here only for the sake of others, who need it no more.
            self.pin_base(base.uuid).await?;
        }
        if keeps_common || !plan.common.is_empty() {
            self.keep_common(&plan.common).await;
        }
        // The source goes on from a point that lies behind what readers see here, or beside it: who knows whether it has that.
        let left_behind = published.filter(|shown| {
            let is_behind =
                |base: CandidateBase| !onward.contains(&base.uuid) && content(base) != content(*shown);
            self.kind == TransferKind::Update && plan.base.is_some_and(is_behind)
        });
        if let Some(group) = self.together.as_ref().filter(|_| plan.waiting == 0) {
            check_moment(&**group, &plan)?;
        }
        report.base = plan.base_name.clone();
        self.progress.planned(plan.steps.len() as u64);
        let mut base = plan.base;
        for (index, step) in plan.steps.iter().enumerate() {
            // What a person named since lies upon the base, with its content: the line goes on from there.
            let upon =
                newest.filter(|newest| index == 0 && base.map(content) == Some(content(*newest))).or(base);
            // With nothing in common, what the volume has is staged, and what the source has of it does not travel.
            let compared = own.filter(|_| index == 0 && base.is_none() && self.kind == TransferKind::Resync);
            let upon = upon.or(compared);
            if kept.as_ref().is_some_and(|kept| !kept.fits(base, published, upon)) {
                self.throw_away(kept.take()).await;
            }
            let stands = Stands {
                base,
                upon: upon.map(|upon| upon.uuid),
                gone: compared
                    .or(left_behind.or(base.filter(|_| plan.base_is_beside)).filter(|_| index == 0))
                    .map(|gone| gone.uuid),
                is_compared: compared.is_some(),
                is_common: plan.common.contains(&step.uuid),
                group: self.together.clone().filter(|group| group.moment().snapshot == step.uuid),
            };
            let brought = self.bring(index, step, stands, &mut kept, report, wire).await?;
            told.unacknowledged = self.acknowledge(brought, wire).await;
            self.progress.snapshot_done();
            base = Some(brought);
        }
        self.throw_away(kept).await;
        if let Some(last) = base {
            self.show(last).await?;
        }
        if let Some(group) = self.together.as_ref().filter(|_| told.waiting == 0) {
            // Where the moment was here before, nothing was published for it.
            group.is_there();
        }
        if report.content_root.is_none() {
            // Nothing to bring: the base is still the newest there is.
            report.incremental = plan.base_name;
            report.content_root = base.map(|b| b.content_root);
        }
        Ok(())
    }

    /// Clears up what an earlier transfer could not, and lists what may serve as base.
    async fn tidy_and_list(&self) -> Result<publish::Here, TransferError> {
        let (engine, replica, kind) = (self.engine.clone(), self.replica.clone(), self.kind);
        blocking(move || publish::tidy_and_list(&*engine, &replica, kind)).await
    }

    async fn begin(
        &mut self,
        candidates: &[CandidateBase],
        is_damaged: bool,
        named_max: usize,
        kept: Option<&Kept>,
        wire: &WireCounters,
        upstream: &mut Option<Upstream>,
    ) -> Result<TransferPlan, TransferError> {
        let begin = Begin {
            relationship: self.replica.relationship.as_bytes().to_vec(),
            transfer: self.id.as_bytes().to_vec(),
            volume: self.replica.source.to_string(),
            destination: self.replica.destination.to_string(),
            kind: convert::kind_number(self.kind),
            candidates: candidates.iter().map(|c| c.to_message()).collect(),
            staged: kept.map(|kept| StagedTransfer {
                incremental: kept.incremental.as_bytes().to_vec(),
                base: candidates.iter().find(|c| Some(c.uuid) == kept.base).map(|c| c.to_message()),
            }),
            role_change: self.role_change,
            whole: is_damaged,
            named_max: Some(u32::try_from(named_max).unwrap_or(u32::MAX)),
            keeps_common: true,
            left: convert::place_messages(&self.left),
            further: self.kept_for_others().await,
            until: self
                .together
                .as_ref()
                .map(|group| group.moment().snapshot.as_bytes().to_vec())
                .unwrap_or_default(),
        };
        if candidates.is_empty() {
            self.link.expect_bulk();
        }
        let answer = self.call(Body::Begin(begin), wire).await?;
        let plan =
            Plan::decode(answer).map_err(|e| TransferError::Protocol(format!("malformed plan: {e}")))?;
        let said = plan.origin.as_ref().map(Upstream::from_message).transpose()?;
        *upstream = Some(said.unwrap_or_default());
        let plan = TransferPlan::from_message(&plan)?;
        if plan.base.is_some_and(|base| !candidates.contains(&base)) {
            return Err(TransferError::Protocol(
                "the source chose a base that this site did not offer".into(),
            ));
        }
        // The alarm goes off on this side too: the source may be the one that is wrong.
        for step in &plan.steps {
            let ours = candidates.iter().find(|c| c.uuid == step.uuid);
            if let Some(ours) = ours.filter(|c| c.content_root != step.content_root) {
                return Err(TransferError::IdentityClash {
                    uuid: step.uuid,
                    ours: ours.content_root,
                    theirs: step.content_root,
                });
            }
        }
        Ok(plan)
    }

    /// Brings one snapshot and publishes it. Without one to stand on (`base`) it is all there is in it. What is `kept`
    /// is gone on with.
    async fn bring(
        &mut self,
        index: usize,
        step: &TravellingSnapshot,
        stands: Stands,
        kept: &mut Option<Kept>,
        report: &mut TransferReport,
        wire: &Arc<WireCounters>,
    ) -> Result<CandidateBase, TransferError> {
        let Stands { base, upon, gone, is_compared, is_common, group } = stands;
        let brought =
            CandidateBase { uuid: step.uuid, content_root: step.content_root, size_bytes: step.size_bytes };
        if let Some(name) = self.name_if_here(step).await? {
            report.incremental = Some(name);
            report.content_root = Some(step.content_root);
            return Ok(brought);
        }
        let is_unchanged =
            base.is_some_and(|b| b.content_root == step.content_root && b.size_bytes == step.size_bytes);
        if is_unchanged {
            // Nothing has to arrive for it.
            self.throw_away(kept.take()).await;
        }
        let mirrors = if is_unchanged { Vec::new() } else { self.mirrors().await? };
        let known = known::is_worth_asking(self.kind, base.is_some()) && self.may_know().await?;
        let mut filling = Filling {
            index,
            step,
            base,
            upon,
            is_compared,
            is_unchanged,
            without_base: false,
            held: Held::None,
            known,
            has_taken: false,
            mirrors,
            cross_volume: Offer::All,
            found_bytes: Arc::default(),
        };
        let before = report.clone();
        let mut has_made_room = false;
        let staged = loop {
            let opened = self.open(kept.take(), &filling).await?;
            filling.held = opened.held;
            let staged = opened.staged;
            let Err(error) = self.fill(&mut filling, &staged, report, wire).await else { break staged };
            let is_wrong = matches!(error, TransferError::RootMismatch { .. });
            if error.is_about_prefix() && filling.cross_volume == Offer::Outlived {
                tracing::info!(transfer = %self.id, snapshot = step.name, "retrying the snapshot without withdrawn \
                     volumes: {error}");
                filling.cross_volume = Offer::All;
                *kept = Some(Kept { staged, incremental: step.uuid, base: filling.upon });
            } else if error.is_about_prefix() && filling.cross_volume == Offer::All {
                // Whichever it was: what is offered of other volumes is needed least.
                tracing::warn!(transfer = %self.id, snapshot = step.name, "retrying the snapshot without other \
                     volumes as reference: {error}");
                filling.cross_volume = Offer::Nothing;
                *kept = Some(Kept { staged, incremental: step.uuid, base: filling.upon });
            } else if error.is_about_prefix() && !filling.without_base {
                tracing::warn!(transfer = %self.id, snapshot = step.name, "retrying the snapshot without any base: \
                     {error}");
                filling.without_base = true;
                *kept = Some(Kept { staged, incremental: step.uuid, base: filling.upon });
            } else if is_wrong && (filling.held != Held::None || filling.has_taken) {
                tracing::warn!(
                    transfer = %self.id, snapshot = step.name, taken_here = filling.has_taken,
                    "the staged content did not match this snapshot; it was discarded and the snapshot is \
                     transferred again in full. The replica is unchanged: {error}"
                );
                self.abandon(staged).await;
                // Nothing was gone on with in the end, and nothing is staged or taken in the next attempt: it is the last.
                report.forget_attempt(&before);
                filling.known = false;
                filling.is_compared = false;
                filling.upon = filling.base.map(|base| base.uuid);
            } else if error.is_no_space()
                && !has_made_room
                && self.is_stale_in_the_way(&filling, &staged).await
            {
                // Of snapshots before this one: without it this one fits. Once, so that nothing is brought again and again.
                has_made_room = true;
                tracing::warn!(
                    transfer = %self.id, snapshot = step.name,
                    "not enough free space beside staged content of an earlier transfer; that content is discarded \
                     and the snapshot is transferred again: {error}"
                );
                self.abandon(staged).await;
                report.forget_attempt(&before);
                self.wait_for_room(filling.found_bytes.load(Ordering::Relaxed)).await?;
            } else {
                self.leave(staged, &error).await;
                return Err(error);
            }
        };
        let root = step.content_root;
        let proved = Proved {
            replica: self.replica.clone(),
            staged: staged.clone(),
            step: step.clone(),
            gone: gone.filter(|_| !is_unchanged),
            gone_as: if self.kind == TransferKind::Resync { RESCUE } else { RESCUE_OF_SOURCE },
            is_common,
        };
        let name = match self.publish(proved, group).await {
            Ok(name) => name,
            Err(error) => {
                self.leave(staged, &error).await;
                return Err(error);
            }
        };
        tracing::debug!(transfer = %self.id, snapshot = name, %root, "published");
        report.snapshots += 1;
        report.incremental = Some(name);
        report.content_root = Some(root);
        Ok(brought)
    }

    /// Publishes it; with what the rest of its `group` brings, if it is of one.
    async fn publish(
        &mut self,
        proved: Proved,
        group: Option<Arc<dyn Together>>,
    ) -> Result<String, TransferError> {
        let Some(group) = group else {
            self.progress.phase(Phase::Commit);
            let engine = self.engine.clone();
            return blocking(move || publish::commit(&*engine, &proved)).await;
        };
        self.progress.phase(Phase::Group);
        // The source has done its part, and what it is told when this is published it takes afterwards too. It has heard so before
        // anything is published: the group's next update may begin with that, and would find it busy.
        let ended = self.end_at_source(String::new(), proved.step.uuid.as_bytes().to_vec());
        tokio::select! {
            name = async { drop(ended.await); group.publish(Brought(proved)).await } => name,
            () = self.cancel.cancelled() => Err(TransferError::Aborted),
        }
    }

    /// Receives what differs into `staged`, and proves the whole.
    async fn fill(
        &mut self,
        filling: &mut Filling<'_>,
        staged: &Arc<dyn StagedVersion>,
        report: &mut TransferReport,
        wire: &Arc<WireCounters>,
    ) -> Result<(), TransferError> {
        let &mut Filling { index, step, base, is_unchanged, without_base, held, known, .. } = filling;
        if !is_unchanged {
            self.progress.phase(Phase::Difference);
            let cross_volume = match filling.cross_volume {
                Offer::Nothing => Arc::default(),
                Offer::All | Offer::Outlived => self.cross_volume(filling.mirrors.clone()).await?,
            };
            filling.cross_volume = if cross_volume.is_empty() { Offer::Nothing } else { Offer::All };
            let size_bytes = step.size_bytes;
            let base = base.map(|b| b.uuid);
            // What is known here needs no room, and nobody knows yet how much that is.
            let room = if known { None } else { self.room(staged, held, base).await };
            let room = room.filter(|room| room.room_bytes < size_bytes);
            let (name, found_bytes) = (step.name.clone(), filling.found_bytes.clone());
            let step =
                receive::Step { index, without_base, size_bytes, base, held, known, room, name, found_bytes };
            let received = receive::receive(self, &step, &cross_volume, staged, report, wire).await;
            if cross_volume.was_missed() {
                filling.cross_volume = Offer::Outlived;
            }
            filling.has_taken = received? > 0;
        }
        if self.cancel.is_cancelled() {
            return Err(TransferError::Aborted);
        }
        self.progress.phase(Phase::Verify);
        let (staged, name, expected) = (staged.clone(), step.name.clone(), step.content_root);
        piece(move || publish::prove(&*staged, &name, expected)).await
    }

    /// Room for the data of a step that goes on with `staged`; none if the engine cannot tell. What is staged counts: it is of the
    /// step, or goes when the step is staged in its place.
    async fn room(&self, staged: &Arc<dyn StagedVersion>, held: Held, base: Option<Uuid>) -> Option<Room> {
        let (engine, volume, staged) =
            (self.engine.clone(), self.replica.destination.clone(), staged.clone());
        let asked = blocking(move || {
            let Some(room) = engine.staging_room(&volume)? else { return Ok(None) };
            let staged_bytes = if held == Held::None { 0 } else { data_bytes(&*staged, base)? };
            // A quota counts data alone.
            let for_nodes = if room.quota_bytes.is_some() { 0 } else { room.room_bytes / NODES_PART };
            let room_bytes = (room.room_bytes - for_nodes).saturating_add(staged_bytes);
            Ok::<_, TransferError>(Some(Room {
                room_bytes,
                reserve_bytes: room.reserve_bytes,
                quota_bytes: room.quota_bytes,
                below: room.below,
            }))
        });
        asked.await.unwrap_or_else(|error| {
            tracing::warn!(transfer = %self.id, "cannot tell whether the pool has room; the transfer begins and sees: \
                 {error}");
            None
        })
    }

    /// Whether what is staged is of earlier snapshots for a good part, so that the step would fit without it.
    async fn is_stale_in_the_way(&self, filling: &Filling<'_>, staged: &Arc<dyn StagedVersion>) -> bool {
        let found_bytes = filling.found_bytes.load(Ordering::Relaxed);
        // What the volume itself has is nothing stale.
        if filling.is_compared || filling.held != Held::Fingerprints || found_bytes == 0 {
            return false;
        }
        let room = self.room(staged, filling.held, filling.base.map(|b| b.uuid)).await;
        room.is_some_and(|room| room.room_bytes >= found_bytes.saturating_add(found_bytes / NODES_PART))
    }

    /// Waits until what was thrown away has come free, as far as it is needed.
    async fn wait_for_room(&self, needed_bytes: u64) -> Result<(), TransferError> {
        for _ in 0..ROOM_WAITS_MAX {
            let (engine, volume) = (self.engine.clone(), self.replica.destination.clone());
            let room = blocking(move || engine.staging_room(&volume)).await?;
            if room.is_none_or(|room| room.room_bytes - room.room_bytes / NODES_PART >= needed_bytes) {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(ROOM_WAIT) => {}
                () = self.cancel.cancelled() => return Err(TransferError::Aborted),
            }
        }
        Ok(())
    }

    /// The mirrors of this site. That they cannot be listed costs bytes only.
    async fn mirrors(&self) -> Result<Vec<Replica>, TransferError> {
        let listed = tokio::select! {
            listed = self.replicas.replicas() => listed,
            () = self.cancel.cancelled() => return Err(TransferError::Aborted),
        };
        Ok(listed.unwrap_or_else(|error| {
            tracing::warn!(transfer = %self.id, "this transfer uses no other volumes as reference, because the \
                 mirrors of this site cannot be listed; it may carry more bytes: {error}");
            Vec::new()
        }))
    }

    /// What this side holds of the same source's other volumes, by its mirrors `all`.
    async fn cross_volume(&self, all: Vec<Replica>) -> Result<Arc<CrossVolume>, TransferError> {
        let (engine, own) = (self.engine.clone(), self.replica.clone());
        blocking(move || Ok::<_, TransferError>(Arc::new(CrossVolume::find(&*engine, &own, all)))).await
    }

    /// Whether this side may hold any of what the source brings: where it has nothing of that peer yet, the first question would
    /// cost a round trip, and the answer is known.
    async fn may_know(&self) -> Result<bool, TransferError> {
        let (engine, scope) = (self.engine.clone(), KnownDataScope { peer: self.replica.peer.0 });
        let pool = self.replica.destination.pool.clone();
        let may_hold = move || engine.known_data(&pool).is_some_and(|known| known.may_hold(&scope));
        blocking(move || Ok::<_, TransferError>(may_hold())).await
    }

    /// What is kept, made ready for the step, or else a new staged version upon the base.
    async fn open(&self, kept: Option<Kept>, filling: &Filling<'_>) -> Result<Opened, TransferError> {
        let step = filling.step.clone();
        let upon = filling.upon;
        if let Some(kept) = kept {
            tracing::info!(transfer = %self.id, snapshot = step.name, "going on with what is staged");
            return blocking(move || kept.open(&step, upon)).await;
        }
        let (engine, volume) = (self.engine.clone(), self.replica.destination.clone());
        let (incremental, held) = match filling.is_compared {
            true => (OF_SEVERAL, Held::Fingerprints),
            false => (step.uuid, Held::None),
        };
        let staged_for = StagedFor { relationship: self.replica.relationship, incremental };
        let staged = blocking(move || engine.stage(&volume, upon, step.size_bytes, staged_for)).await?;
        Ok(Opened { staged, held })
    }

    /// What becomes of a staged version after `error`. It is made durable first if the next transfer is to use it.
    async fn leave(&self, staged: Arc<dyn StagedVersion>, error: &TransferError) {
        let fate = resume::fate(error);
        if fate == Fate::ThrownAway {
            return self.abandon(staged).await;
        }
        let (engine, volume) = (self.engine.clone(), self.replica.destination.clone());
        let relationship = self.replica.relationship;
        let kept = blocking(move || {
            // A transfer that hung was broken off without waiting for it: nobody would come to fetch what it staged since.
            if let Err(TransferError::State(_)) = publish::check_replica(&*engine, &volume, relationship) {
                return staged.abandon();
            }
            if fate == Fate::KeptForAnother {
                staged.retarget(OF_SEVERAL)?;
            }
            staged.checkpoint()
        });
        if let Err(error) = kept.await {
            // What was made durable before is there all the same.
            tracing::warn!(transfer = %self.id, "the newest staged content could not be saved; the next transfer may \
                 carry it again. The replica is unchanged: {error}");
        }
    }

    async fn throw_away(&self, kept: Option<Kept>) {
        if let Some(kept) = kept {
            tracing::info!(transfer = %self.id, "staged content of an earlier transfer is of no use any more; it is \
                 discarded");
            self.abandon(kept.staged).await;
        }
    }

    async fn abandon(&self, staged: Arc<dyn StagedVersion>) {
        if let Err(error) = blocking(move || staged.abandon()).await {
            // Nobody sees it, and the next transfer tries again; until then it holds space.
            tracing::warn!(transfer = %self.id, "staged content could not be discarded; it holds space until the \
                 next transfer: {error}");
        }
    }

    async fn name_if_here(&self, step: &TravellingSnapshot) -> Result<Option<String>, TransferError> {
        let (engine, volume) = (self.engine.clone(), self.replica.destination.clone());
        let (relationship, uuid, root) = (self.replica.relationship, step.uuid, step.content_root);
        blocking(move || publish::name_if_here(&*engine, &volume, relationship, uuid, root)).await
    }

    /// Until something newer is published.
    async fn pin_base(&self, base: Uuid) -> Result<(), TransferError> {
        let (engine, volume) = (self.engine.clone(), self.replica.destination.clone());
        let relationship = self.replica.relationship;
        blocking(move || Ok::<_, TransferError>(engine.pin(&volume, base, relationship)?)).await
    }

    /// What other destinations hold too is kept, and nothing that was kept so before. Without it the transfer is none the worse.
    async fn keep_common(&self, common: &[Uuid]) {
        let (engine, volume) = (self.engine.clone(), self.replica.destination.clone());
        let (relationship, common) = (self.replica.relationship, common.to_vec());
        let kept = blocking(move || keep_common(&*engine, &volume, relationship, &common)).await;
        if let Err(error) = kept {
            tracing::warn!(transfer = %self.id, "cannot keep what other replicas of the same volume hold too. The update goes \
                 on; if the source is lost, this volume may follow one of them only by a comparison of everything: {error}");
        }
    }

    /// What those stand on that follow this volume. Without it the transfer is none the worse.
    async fn kept_for_others(&self) -> Vec<Candidate> {
        let (engine, volume) = (self.engine.clone(), self.replica.destination.clone());
        let relationship = self.replica.relationship;
        let kept = blocking(move || kept_for_others(&*engine, &volume, relationship)).await;
        kept.map(|kept| kept.iter().map(|c| c.to_message()).collect()).unwrap_or_else(|error| {
            tracing::warn!(transfer = %self.id, "cannot tell the source what those hold that follow this volume. The update goes \
                 on; if this site is lost, they may follow the source only by a comparison of everything: {error}");
            Vec::new()
        })
    }

    async fn show(&self, last: CandidateBase) -> Result<(), TransferError> {
        let (engine, volume) = (self.engine.clone(), self.replica.destination.clone());
        let (relationship, kind) = (self.replica.relationship, self.kind);
        blocking(move || publish::show(&*engine, &volume, relationship, last.uuid, kind)).await
    }

    /// Tells the source. If that fails the replica is none the worse: the source keeps the old base as well, until it is
    /// told again or the next transfer names the new one. Returns what the source did not accept.
    async fn acknowledge(&self, published: CandidateBase, wire: &WireCounters) -> Option<Acknowledge> {
        let acknowledge = Acknowledge {
            relationship: self.replica.relationship.as_bytes().to_vec(),
            transfer: self.id.as_bytes().to_vec(),
            volume: self.replica.source.to_string(),
            snapshot: published.uuid.as_bytes().to_vec(),
            content_root: published.content_root.0.to_vec(),
            // Looked up since that is shown: who is brought something from here on gets nothing older.
            further: self.kept_for_others().await,
        };
        let error = self.call(Body::Acknowledge(acknowledge.clone()), wire).await.err()?;
        tracing::warn!(transfer = %self.id, "published; the source is not told yet and keeps the old base until it \
             is told again or the next transfer: {error}");
        Some(acknowledge)
    }

    async fn call(&self, body: Body, wire: &WireCounters) -> Result<Bytes, TransferError> {
        tokio::select! {
            answer = call(&*self.link, body, Some(wire)) => answer,
            () = self.cancel.cancelled() => Err(TransferError::Aborted),
        }
    }

    /// Frees the source's place, without making anybody wait for it.
    fn close_at_source(&self, failure: Option<String>, unacknowledged: Option<&Acknowledge>) {
        let unacknowledged = unacknowledged.map(|told| told.snapshot.clone()).unwrap_or_default();
        drop(self.end_at_source(failure.unwrap_or_default(), unacknowledged));
    }

    fn end_at_source(&self, failure: String, unacknowledged: Vec<u8>) -> JoinHandle<()> {
        let end = End { transfer: self.id.as_bytes().to_vec(), failure, unacknowledged };
        let (link, transfer) = (self.link.clone(), self.id);
        tokio::spawn(async move {
            let said = call(&*link, Body::End(end), None);
            let said = tokio::time::timeout(CLOSE_TIMEOUT, said).await;
            if !matches!(said, Ok(Ok(_))) {
                tracing::debug!(%transfer, "the source did not hear that the transfer has ended");
            }
        })
    }
}

/// A plan of a group's transfer ends with the group's moment, or the others wait in vain.
fn check_moment(group: &dyn Together, plan: &TransferPlan) -> Result<(), TransferError> {
    let GroupMoment { snapshot, created_at } = group.moment();
    let last = plan.steps.last();
    if last.is_some_and(|last| last.uuid == snapshot && last.created_at == created_at) {
        return Ok(());
    }
    let why = "the snapshot that the source took for the group is gone there: it made room, or had more to bring before. \
        Nothing of the group was published; its next update takes another one";
    group.give_up(why);
    Err(TransferError::State(why.into()))
}

/// Bytes of data in which a staged version differs from the base.
fn data_bytes(staged: &dyn StagedVersion, base: Option<Uuid>) -> Result<u64, EngineError> {
    let mut bytes = 0_u64;
    for extent in staged.changed_from(base)? {
        let extent = extent?;
        if extent.kind == ChangeKind::Data {
            bytes = bytes.saturating_add(extent.length);
        }
    }
    Ok(bytes)
}
