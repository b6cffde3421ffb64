//! One transfer, seen from the destination: from the first question to the last acknowledgement.
//!
//! What a failure leaves behind: of the step that failed a staged version that nobody sees, for the next transfer to go on
//! with (`resume.rs`); steps before it are published, each a whole snapshot of the source. What a crash leaves behind: the
//! same, the staged version as it was at its last checkpoint. What did not add up is thrown away at once.

mod held;
mod known;
mod others;
mod progress;
mod publish;
mod receive;
mod resume;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farside_engine::{Engine, Realm, StagedFor, StagedVersion};
use farside_platform::Clock;
use farside_session::{Bucket, PeerId, PeerLink, SessionError, WireCounters};
use prost::Message;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use others::Others;
use resume::{Fate, Kept, Opened};

use crate::destination::Links;
use crate::error::{MirrorError, blocking};
use crate::limits::{CALL_TIMEOUT, FAREWELL_TIMEOUT, LOSSES_IN_A_ROW_MAX, ROOM_WAIT, ROOM_WAITS_MAX};
use crate::protocol::convert::{self, CandidateBase, OF_SEVERAL, TransferPlan, TravellingSnapshot};
use crate::protocol::held::Held;
use crate::protocol::stream::cut;
use crate::protocol::{Acknowledge, Begin, Body, End, HalfBrought, PROTOCOL_VERSION, Plan, Request};
use crate::report::{Phase, TransferReport, TransferResult};
use crate::state::TransferKind;
use crate::store::{Relationship, RelationshipStore};

pub(crate) use progress::ProgressSender;

/// What a transfer works with.
pub(crate) struct Transfer {
    pub(crate) id: Uuid,
    pub(crate) kind: TransferKind,
    pub(crate) relationship: Relationship,
    pub(crate) engine: Arc<dyn Engine>,
    /// The other mirrors of this site: what they brought may serve as base.
    pub(crate) store: Arc<dyn RelationshipStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) link: Arc<dyn PeerLink>,
    pub(crate) throttle: Arc<Bucket>,
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: ProgressSender,
}

/// One attempt at a step.
struct Filling<'a> {
    index: usize,
    step: &'a TravellingSnapshot,
    base: Option<CandidateBase>,
    /// The step holds what the base holds.
    is_unchanged: bool,
    without_base: bool,
    held: Held,
    /// Whether the source may ask for known data.
    known: bool,
    /// Whether something was taken as known.
    has_taken: bool,
    /// All of this site, as the step began: of those that are still there what they brought may be offered.
    mirrors: Vec<Relationship>,
    /// What is offered of other volumes.
    others: Offer,
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

/// How a transfer ended.
pub(crate) struct Outcome {
    pub(crate) report: TransferReport,
    /// The session went away under it.
    pub(crate) lost_session: bool,
}

/// Runs it to its end, whatever that is.
pub(crate) async fn run(mut transfer: Transfer) -> Outcome {
    let mut report = TransferReport::begun(transfer.id, transfer.kind, transfer.clock.now());
    let started = transfer.clock.monotonic();
    // Control messages of this transfer; each data stream counts its own and adds to it.
    let wire = Arc::new(WireCounters::default());
    let Relationship { id: relationship, peer, source, destination, .. } = &transfer.relationship;
    tracing::info!(
        transfer = %transfer.id, %relationship, %peer, %source, %destination, kind = %transfer.kind, "transfer begins"
    );
    let outcome = transfer.carry_out(&mut report, &wire).await;
    report.ended_at = transfer.clock.now();
    report.duration_seconds = transfer.clock.monotonic().saturating_sub(started).as_secs_f64();
    report.wire_bytes_sent = wire.sent();
    report.wire_bytes_received = wire.received();
    report.result = match &outcome {
        Ok(()) => TransferResult::Ok,
        Err(MirrorError::Aborted) => TransferResult::Aborted,
        Err(_) => TransferResult::Failed,
    };
    report.reason = outcome.as_ref().err().map(ToString::to_string);
    match &report.reason {
        None => tracing::info!(
            transfer = %report.id, snapshots = report.snapshots, changed_bytes = report.changed_bytes,
            wire_bytes = report.wire_bytes_received, seconds = report.duration_seconds, "transfer done"
        ),
        Some(reason) => tracing::warn!(transfer = %report.id, "transfer ended early: {reason}"),
    }
    transfer.say_farewell(report.reason.clone());
    Outcome { report, lost_session: outcome.is_err_and(|e| e.is_lost_session()) }
}

impl Transfer {
    async fn carry_out(
        &mut self,
        report: &mut TransferReport,
        wire: &Arc<WireCounters>,
    ) -> Result<(), MirrorError> {
        self.progress.phase(Phase::Snapshot);
        let publish::Here { candidates, published, mut kept } = self.tidy_and_list().await?;
        let plan = self.begin(&candidates, kept.as_ref(), wire).await?;
        if plan.steps.is_empty() {
            // "Nothing to bring" is believed only of what readers see here already.
            let content = |c: CandidateBase| (c.content_root, c.size_bytes);
            let is_shown = plan.base.map(content) == published.map(content);
            if plan.base.is_none() || !(is_shown || self.kind == TransferKind::Resync) {
                return Err(MirrorError::Protocol(
                    "the source has nothing to bring, but names another base than the version this replica shows"
                        .into(),
                ));
            }
        }
        report.base = plan.base_name.clone();
        self.progress.planned(plan.steps.len() as u64);
        let mut base = plan.base;
        for (index, step) in plan.steps.iter().enumerate() {
            if kept.as_ref().is_some_and(|kept| !kept.fits(base, published)) {
                self.throw_away(kept.take()).await;
            }
            let brought = self.bring(index, step, base, &mut kept, report, wire).await?;
            self.acknowledge(brought, wire).await;
            self.progress.snapshot_done();
            base = Some(brought);
        }
        self.throw_away(kept).await;
        if let Some(last) = base {
            self.show(last).await?;
        }
        if report.content_root.is_none() {
            // Nothing to bring: the base is still the newest there is.
            report.incremental = plan.base_name;
            report.content_root = base.map(|b| b.content_root);
        }
        Ok(())
    }

    /// Clears up what an earlier transfer could not, and lists what may serve as base.
    async fn tidy_and_list(&self) -> Result<publish::Here, MirrorError> {
        let (engine, volume) = (self.engine.clone(), self.relationship.destination.clone());
        let (relationship, kind) = (self.relationship.id, self.kind);
        blocking(move || publish::tidy_and_list(&*engine, &volume, relationship, kind)).await
    }

    async fn begin(
        &mut self,
        candidates: &[CandidateBase],
        kept: Option<&Kept>,
        wire: &WireCounters,
    ) -> Result<TransferPlan, MirrorError> {
        let begin = Begin {
            relationship: self.relationship.id.as_bytes().to_vec(),
            transfer: self.id.as_bytes().to_vec(),
            volume: self.relationship.source.to_string(),
            destination: self.relationship.destination.to_string(),
            kind: convert::kind_number(self.kind),
            candidates: candidates.iter().map(|c| c.to_message()).collect(),
            staged: kept.map(|kept| HalfBrought {
                incremental: kept.incremental.as_bytes().to_vec(),
                base: candidates.iter().find(|c| Some(c.uuid) == kept.base).map(|c| c.to_message()),
            }),
            turn: self.relationship.turn,
        };
        if candidates.is_empty() {
            self.link.expect_bulk();
        }
        let answer = self.call(Body::Begin(begin), wire).await?;
        let plan = Plan::decode(answer)
            .map_err(|e| MirrorError::Protocol(format!("a plan that cannot be read: {e}")))?;
        let plan = TransferPlan::from_message(&plan)?;
        if plan.base.is_some_and(|base| !candidates.contains(&base)) {
            return Err(MirrorError::Protocol("the source chose a base that this side never named".into()));
        }
        // The alarm goes off on this side too: the source may be the one that is wrong.
        for step in &plan.steps {
            let ours = candidates.iter().find(|c| c.uuid == step.uuid);
            if let Some(ours) = ours.filter(|c| c.content_root != step.content_root) {
                return Err(MirrorError::IdentityClash {
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
        base: Option<CandidateBase>,
        kept: &mut Option<Kept>,
        report: &mut TransferReport,
        wire: &Arc<WireCounters>,
    ) -> Result<CandidateBase, MirrorError> {
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
            is_unchanged,
            without_base: false,
            held: Held::None,
            known,
            has_taken: false,
            mirrors,
            others: Offer::All,
        };
        let before = (report.resumed, report.held_bytes);
        let mut waits_for_room = 0;
        let staged = loop {
            let opened = self.open(kept.take(), &filling).await?;
            filling.held = opened.held;
            let staged = opened.staged;
            let Err(error) = self.fill(&mut filling, &staged, report, wire).await else { break staged };
            let is_wrong = matches!(error, MirrorError::RootMismatch { .. });
            if error.is_about_prefix() && filling.others == Offer::Outlived {
                tracing::info!(transfer = %self.id, snapshot = step.name, "asking again for frames that refer to what is still here: {error}");
                filling.others = Offer::All;
                *kept = Some(Kept { staged, incremental: step.uuid, base: base.map(|b| b.uuid) });
            } else if error.is_about_prefix() && filling.others == Offer::All {
                // Whichever it was: what is offered of other volumes is needed least.
                tracing::warn!(transfer = %self.id, snapshot = step.name, "asking again for frames that refer to no other volume: {error}");
                filling.others = Offer::Nothing;
                *kept = Some(Kept { staged, incremental: step.uuid, base: base.map(|b| b.uuid) });
            } else if error.is_about_prefix() && !filling.without_base {
                tracing::warn!(transfer = %self.id, snapshot = step.name, "asking again for frames that refer to nothing: {error}");
                filling.without_base = true;
                *kept = Some(Kept { staged, incremental: step.uuid, base: base.map(|b| b.uuid) });
            } else if is_wrong && (filling.held != Held::None || filling.has_taken) {
                tracing::warn!(
                    transfer = %self.id, snapshot = step.name, taken_here = filling.has_taken,
                    "what an earlier transfer had staged, or what was taken from this site's own volumes, was not of this snapshot; bringing all of it: {error}"
                );
                self.abandon(staged).await;
                // Nothing was gone on with in the end, and nothing is staged or taken in the next attempt: it is the last.
                (report.resumed, report.held_bytes) = before;
                filling.known = false;
            } else if error.is_no_space() && (filling.held != Held::None || waits_for_room > 0) {
                // What was staged is given back in steps; the newest version may be much smaller than it was.
                if waits_for_room == ROOM_WAITS_MAX {
                    self.abandon(staged).await;
                    return Err(error);
                }
                waits_for_room += 1;
                tracing::warn!(
                    transfer = %self.id, snapshot = step.name,
                    "no room beside what an earlier transfer had staged; that goes, and all of it is brought: {error}"
                );
                self.abandon(staged).await;
                (report.resumed, report.held_bytes) = before;
                tokio::select! {
                    () = tokio::time::sleep(ROOM_WAIT) => {}
                    () = self.cancel.cancelled() => return Err(MirrorError::Aborted),
                }
            } else {
                self.leave(staged, &error).await;
                return Err(error);
            }
        };
        self.progress.phase(Phase::Commit);
        let (engine, relationship) = (self.engine.clone(), self.relationship.clone());
        let (proved, snapshot, root) = (staged.clone(), step.clone(), step.content_root);
        let published = blocking(move || publish::commit(&*engine, &relationship, &*proved, &snapshot)).await;
        let name = match published {
            Ok(name) => name,
            Err(error) => {
                self.leave(staged, &error).await;
                return Err(error);
            }
        };
        tracing::info!(transfer = %self.id, snapshot = name, %root, "published");
        report.snapshots += 1;
        report.incremental = Some(name);
        report.content_root = Some(root);
        Ok(brought)
    }

    /// Receives what differs into `staged`, and proves the whole.
    async fn fill(
        &mut self,
        filling: &mut Filling<'_>,
        staged: &Arc<dyn StagedVersion>,
        report: &mut TransferReport,
        wire: &Arc<WireCounters>,
    ) -> Result<(), MirrorError> {
        let &mut Filling { index, step, base, is_unchanged, without_base, held, known, .. } = filling;
        if !is_unchanged {
            self.progress.phase(Phase::Difference);
            let others = match filling.others {
                Offer::Nothing => Arc::default(),
                Offer::All | Offer::Outlived => self.others(filling.mirrors.clone()).await?,
            };
            filling.others = if others.is_empty() { Offer::Nothing } else { Offer::All };
            let size_bytes = step.size_bytes;
            let base = base.map(|b| b.uuid);
            let step = receive::Step { index, without_base, size_bytes, base, held, known };
            let received = receive::receive(self, &step, &others, staged, report, wire).await;
            if others.was_missed() {
                filling.others = Offer::Outlived;
            }
            filling.has_taken = received? > 0;
        }
        if self.cancel.is_cancelled() {
            return Err(MirrorError::Aborted);
        }
        self.progress.phase(Phase::Verify);
        let (staged, name, expected) = (staged.clone(), step.name.clone(), step.content_root);
        blocking(move || publish::prove(&*staged, &name, expected)).await
    }

    /// The mirrors of this site. That they cannot be listed costs bytes only.
    async fn mirrors(&self) -> Result<Vec<Relationship>, MirrorError> {
        let listed = tokio::select! {
            listed = self.store.relationships() => listed,
            () = self.cancel.cancelled() => return Err(MirrorError::Aborted),
        };
        Ok(listed.unwrap_or_else(|error| {
            tracing::warn!(transfer = %self.id, "nothing is coded against other volumes: {error}");
            Vec::new()
        }))
    }

    /// What this side holds of the same source's other volumes, by its mirrors `all`.
    async fn others(&self, all: Vec<Relationship>) -> Result<Arc<Others>, MirrorError> {
        let (engine, own) = (self.engine.clone(), self.relationship.clone());
        blocking(move || Ok::<_, MirrorError>(Arc::new(Others::find(&*engine, &own, all)))).await
    }

    /// Whether this side may hold any of what the source brings: where it has nothing of that peer yet, the first question would
    /// cost a round trip, and the answer is known.
    async fn may_know(&self) -> Result<bool, MirrorError> {
        let (engine, realm) = (self.engine.clone(), Realm { peer: self.relationship.peer.0 });
        blocking(move || Ok::<_, MirrorError>(engine.may_know(&realm))).await
    }

    /// What is kept, made ready for the step, or else a new staged version upon the base.
    async fn open(&self, kept: Option<Kept>, filling: &Filling<'_>) -> Result<Opened, MirrorError> {
        let step = filling.step.clone();
        let base = filling.base.map(|b| b.uuid);
        if let Some(kept) = kept {
            tracing::info!(transfer = %self.id, snapshot = step.name, "going on with what is staged");
            return blocking(move || kept.open(&step, base)).await;
        }
        let (engine, volume) = (self.engine.clone(), self.relationship.destination.clone());
        let staged_for = StagedFor { relationship: self.relationship.id, incremental: step.uuid };
        let staged = blocking(move || engine.stage(&volume, base, step.size_bytes, staged_for)).await?;
        Ok(Opened { staged, held: Held::None })
    }

    /// What becomes of a staged version after `error`. It is made durable first if the next transfer is to use it.
    async fn leave(&self, staged: Arc<dyn StagedVersion>, error: &MirrorError) {
        let fate = resume::fate(error);
        if fate == Fate::ThrownAway {
            return self.abandon(staged).await;
        }
        let (engine, volume) = (self.engine.clone(), self.relationship.destination.clone());
        let relationship = self.relationship.id;
        let kept = blocking(move || {
            // A transfer that hung was broken off without waiting for it: nobody would come to fetch what it staged since.
            if let Err(MirrorError::State(_)) = publish::check_replica(&*engine, &volume, relationship) {
                return staged.abandon();
            }
            if fate == Fate::KeptForAnother {
                staged.retarget(OF_SEVERAL)?;
            }
            staged.checkpoint()
        });
        if let Err(error) = kept.await {
            // What was made durable before is there all the same.
            tracing::warn!(transfer = %self.id, "the last of what was staged may be lost: {error}");
        }
    }

    async fn throw_away(&self, kept: Option<Kept>) {
        if let Some(kept) = kept {
            tracing::info!(transfer = %self.id, "what an earlier transfer had staged is of no use any more");
            self.abandon(kept.staged).await;
        }
    }

    async fn abandon(&self, staged: Arc<dyn StagedVersion>) {
        if let Err(error) = blocking(move || staged.abandon()).await {
            // Nobody sees it, and the next transfer tries again; until then it holds space.
            tracing::warn!(transfer = %self.id, "what was staged could not be thrown away: {error}");
        }
    }

    async fn name_if_here(&self, step: &TravellingSnapshot) -> Result<Option<String>, MirrorError> {
        let (engine, volume) = (self.engine.clone(), self.relationship.destination.clone());
        let (relationship, uuid, root) = (self.relationship.id, step.uuid, step.content_root);
        blocking(move || publish::name_if_here(&*engine, &volume, relationship, uuid, root)).await
    }

    async fn show(&self, last: CandidateBase) -> Result<(), MirrorError> {
        let (engine, volume) = (self.engine.clone(), self.relationship.destination.clone());
        let (relationship, kind) = (self.relationship.id, self.kind);
        blocking(move || publish::show(&*engine, &volume, relationship, last.uuid, kind)).await
    }

    /// Tells the source. If that fails the replica is none the worse: the source keeps the old base as well, and
    /// learns of the new one when the next transfer names it.
    async fn acknowledge(&self, published: CandidateBase, wire: &WireCounters) {
        let acknowledge = Acknowledge {
            relationship: self.relationship.id.as_bytes().to_vec(),
            transfer: self.id.as_bytes().to_vec(),
            volume: self.relationship.source.to_string(),
            snapshot: published.uuid.as_bytes().to_vec(),
            content_root: published.content_root.0.to_vec(),
        };
        if let Err(error) = self.call(Body::Acknowledge(acknowledge), wire).await {
            tracing::warn!(transfer = %self.id, "the source does not know of the new base yet: {error}");
        }
    }

    async fn call(&self, body: Body, wire: &WireCounters) -> Result<Bytes, MirrorError> {
        tokio::select! {
            answer = call(&*self.link, body, Some(wire)) => answer,
            () = self.cancel.cancelled() => Err(MirrorError::Aborted),
        }
    }

    /// Frees the source's place, without making anybody wait for it.
    fn say_farewell(&self, failure: Option<String>) {
        let end = End { transfer: self.id.as_bytes().to_vec(), failure: failure.unwrap_or_default() };
        let (link, transfer) = (self.link.clone(), self.id);
        tokio::spawn(async move {
            let said = call(&*link, Body::End(end), None);
            let said = tokio::time::timeout(FAREWELL_TIMEOUT, said).await;
            if !matches!(said, Ok(Ok(_))) {
                tracing::debug!(%transfer, "the source did not hear that the transfer has ended");
            }
        });
    }
}

/// Asks the source outside of a transfer; waits for a session for at most `wait`, and tries again on the next one if
/// one is lost under the question.
pub(crate) async fn ask(
    links: &dyn Links,
    peer: PeerId,
    body: Body,
    wait: Duration,
) -> Result<Bytes, MirrorError> {
    let mut losses = 0;
    loop {
        let link = links.link(peer, wait).await.map_err(MirrorError::no_session)?;
        match call(&*link, body.clone(), None).await {
            Err(error) if error.is_lost_session() && losses < LOSSES_IN_A_ROW_MAX => losses += 1,
            answer => return answer,
        }
    }
}

/// Asks the source in this side's version of the protocol, within [`CALL_TIMEOUT`].
pub(crate) async fn call(
    link: &dyn PeerLink,
    body: Body,
    wire: Option<&WireCounters>,
) -> Result<Bytes, MirrorError> {
    let request = Request { version: PROTOCOL_VERSION, body: Some(body) }.encode_to_vec();
    match tokio::time::timeout(CALL_TIMEOUT, link.call(request.into(), wire)).await {
        Ok(Err(SessionError::Refused(refusal))) if refusal.code == "version" => {
            Err(MirrorError::VersionsDiffer { ours: PROTOCOL_VERSION, said: cut(&refusal.message) })
        }
        Ok(answer) => Ok(answer?),
        Err(_) => Err(SessionError::Lost(format!("no answer within {} s", CALL_TIMEOUT.as_secs())).into()),
    }
}
