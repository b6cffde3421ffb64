//! One transfer, seen from the destination: from the first question to the last acknowledgement.
//!
//! What a failure leaves behind: nothing of the step that failed; steps before it are published, each a whole
//! snapshot of the source. What a crash leaves behind: the same, and a staged version that the next transfer
//! throws away.

mod progress;
mod publish;
mod receive;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farside_engine::{Engine, StagedFor, StagedVersion};
use farside_platform::Clock;
use farside_session::{PeerId, PeerLink, SessionError, WireCounters};
use prost::Message;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::destination::Links;
use crate::error::{MirrorError, blocking};
use crate::limits::{CALL_TIMEOUT, FAREWELL_TIMEOUT, LOSSES_IN_A_ROW_MAX};
use crate::protocol::convert::{self, CandidateBase, TransferPlan, TravellingSnapshot};
use crate::protocol::stream::cut;
use crate::protocol::{
    Acknowledge, Begin, Body, End, PROTOCOL_VERSION, Plan, Request, oldest_that_carries,
    without_what_is_newer,
};
use crate::report::{Phase, TransferReport, TransferResult};
use crate::state::TransferKind;
use crate::store::Relationship;

pub(crate) use progress::ProgressSender;

/// What a transfer works with.
pub(crate) struct Transfer {
    pub(crate) id: Uuid,
    pub(crate) kind: TransferKind,
    pub(crate) relationship: Relationship,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) link: Arc<dyn PeerLink>,
    pub(crate) cancel: CancellationToken,
    pub(crate) progress: ProgressSender,
    /// Protocol version that the source has answered in; this side's own until it has.
    pub(crate) spoken: u32,
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
        let publish::Here { candidates, published } = self.tidy_and_list().await?;
        let plan = self.begin(&candidates, wire).await?;
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
            let published = self.bring(index, step, base, report, wire).await?;
            self.acknowledge(published, wire).await;
            self.progress.snapshot_done();
            base = Some(published);
        }
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
        wire: &WireCounters,
    ) -> Result<TransferPlan, MirrorError> {
        let begin = Begin {
            relationship: self.relationship.id.as_bytes().to_vec(),
            transfer: self.id.as_bytes().to_vec(),
            volume: self.relationship.source.to_string(),
            destination: self.relationship.destination.to_string(),
            kind: convert::kind_number(self.kind),
            candidates: candidates.iter().map(|c| c.to_message()).collect(),
            staged: None,
        };
        let answer;
        (answer, self.spoken) = tokio::select! {
            answer = negotiate(&*self.link, Body::Begin(begin), Some(wire)) => answer?,
            () = self.cancel.cancelled() => return Err(MirrorError::Aborted),
        };
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

    /// Brings one snapshot and publishes it. Without one to stand on (`base`) it is all there is in it.
    async fn bring(
        &mut self,
        index: usize,
        step: &TravellingSnapshot,
        base: Option<CandidateBase>,
        report: &mut TransferReport,
        wire: &Arc<WireCounters>,
    ) -> Result<CandidateBase, MirrorError> {
        let published =
            CandidateBase { uuid: step.uuid, content_root: step.content_root, size_bytes: step.size_bytes };
        if let Some(name) = self.name_if_here(step).await? {
            report.incremental = Some(name);
            report.content_root = Some(step.content_root);
            return Ok(published);
        }
        let mut without_base = false;
        let staged = loop {
            let staged = self.stage(base, step).await?;
            let brought = self.fill(index, step, base, without_base, &staged, report, wire).await;
            match brought {
                Ok(()) => break staged,
                Err(error) => {
                    let retry = error.is_about_prefix() && !without_base;
                    self.abandon(staged).await;
                    if !retry {
                        return Err(error);
                    }
                    tracing::warn!(transfer = %self.id, snapshot = step.name, "asking again without the base: {error}");
                    without_base = true;
                }
            }
        };
        self.progress.phase(Phase::Commit);
        let (engine, relationship, step) = (self.engine.clone(), self.relationship.clone(), step.clone());
        let root = step.content_root;
        let name = blocking(move || publish::commit(&*engine, &relationship, &*staged, &step)).await?;
        tracing::info!(transfer = %self.id, snapshot = name, %root, "published");
        report.snapshots += 1;
        report.incremental = Some(name);
        report.content_root = Some(root);
        Ok(published)
    }

    /// Receives what differs into `staged`, and proves the whole.
    #[allow(clippy::too_many_arguments)]
    async fn fill(
        &mut self,
        index: usize,
        step: &TravellingSnapshot,
        base: Option<CandidateBase>,
        without_base: bool,
        staged: &Arc<dyn StagedVersion>,
        report: &mut TransferReport,
        wire: &Arc<WireCounters>,
    ) -> Result<(), MirrorError> {
        let is_unchanged =
            base.is_some_and(|b| b.content_root == step.content_root && b.size_bytes == step.size_bytes);
        if !is_unchanged {
            self.progress.phase(Phase::Difference);
            let step = receive::Step {
                index,
                without_base,
                size_bytes: step.size_bytes,
                base: base.map(|b| b.uuid),
            };
            receive::receive(self, &step, staged, report, wire).await?;
        }
        if self.cancel.is_cancelled() {
            return Err(MirrorError::Aborted);
        }
        self.progress.phase(Phase::Verify);
        let (staged, name, expected) = (staged.clone(), step.name.clone(), step.content_root);
        blocking(move || publish::prove(&*staged, &name, expected)).await
    }

    async fn stage(
        &self,
        base: Option<CandidateBase>,
        step: &TravellingSnapshot,
    ) -> Result<Arc<dyn StagedVersion>, MirrorError> {
        let (engine, volume) = (self.engine.clone(), self.relationship.destination.clone());
        let staged_for = StagedFor { relationship: self.relationship.id, incremental: step.uuid };
        let size_bytes = step.size_bytes;
        blocking(move || engine.stage(&volume, base.map(|b| b.uuid), size_bytes, staged_for)).await
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
            answer = call(&*self.link, self.spoken, body, Some(wire)) => answer,
            () = self.cancel.cancelled() => Err(MirrorError::Aborted),
        }
    }

    /// Frees the source's place, without making anybody wait for it.
    fn say_farewell(&self, failure: Option<String>) {
        let end = End { transfer: self.id.as_bytes().to_vec(), failure: failure.unwrap_or_default() };
        let (link, transfer, version) = (self.link.clone(), self.id, self.spoken);
        tokio::spawn(async move {
            let said = call(&*link, version, Body::End(end), None);
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
        match negotiate(&*link, body.clone(), None).await {
            Err(error) if error.is_lost_session() && losses < LOSSES_IN_A_ROW_MAX => losses += 1,
            answer => return answer.map(|(answer, _)| answer),
        }
    }
}

/// Asks in this side's version, and if the source does not speak it, in the oldest one that carries the question.
/// Answers also in which. What the source's version cannot carry is refused, with what the source said of versions.
pub(crate) async fn negotiate(
    link: &dyn PeerLink,
    body: Body,
    wire: Option<&WireCounters>,
) -> Result<(Bytes, u32), MirrorError> {
    let said = match call(link, PROTOCOL_VERSION, body.clone(), wire).await {
        Err(MirrorError::Session(SessionError::Refused(refusal))) if refusal.code == "version" => {
            refusal.message
        }
        answer => return Ok((answer?, PROTOCOL_VERSION)),
    };
    let oldest = oldest_that_carries(&body);
    if oldest == PROTOCOL_VERSION {
        return Err(MirrorError::PeerTooOld { needed: oldest, said: cut(&said) });
    }
    Ok((call(link, oldest, body, wire).await?, oldest))
}

/// Asks the source in one version of the protocol, within [`CALL_TIMEOUT`].
async fn call(
    link: &dyn PeerLink,
    version: u32,
    body: Body,
    wire: Option<&WireCounters>,
) -> Result<Bytes, MirrorError> {
    let body = Some(without_what_is_newer(body, version));
    let request = Request { version, body }.encode_to_vec();
    match tokio::time::timeout(CALL_TIMEOUT, link.call(request.into(), wire)).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(SessionError::Lost(format!("no answer within {} s", CALL_TIMEOUT.as_secs())).into()),
    }
}
