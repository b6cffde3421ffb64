//! What a transfer has left, once it has ended: its record, what is shown now, and what was set aside.

use farside_engine::{SnapshotInfo, SnapshotOwner};
use farside_transfer::bases::RESCUE_OF_SOURCE;
use farside_transfer::destination::{NoRoom, Outcome};
use farside_transfer::quiet::is_worth_a_line;
use farside_transfer::report::{TransferReport, TransferResult};
use farside_transfer::{TransferError, TransferKind};
use uuid::Uuid;

use super::Driver;
use super::activity::{Ending, Ran};
use super::went_back::{SEEN_AFTER, reason};
use crate::error::{MirrorError, blocking};
use crate::limits::{BREAK_PATIENCE, GOT_ON_BYTES, LOSSES_IN_A_ROW_MAX};
use crate::log::{LogEvent, RequestedBy};
use crate::relationship::inspect::{Inspected, inspect};
use crate::relationship::late_acknowledgement::LateAcknowledgement;
use crate::relationship::room_wait::RoomWait;
use crate::relationship::source_wait::SourceWait;
use crate::relationship::status::{NOT_RESYNCED, Stopped};
use crate::rescues;
use crate::schedule::Schedule;
use crate::state::{Action, Event, Work};
use crate::store::Relationship;

impl Driver {
    pub(super) async fn note(&mut self, ending: Ending) {
        let mut again = None;
        let mut crossed = false;
        let (event, outcome) = match ending {
            Ending::Waited(Ok(ready)) => {
                if let Ok((next, Action::Run(kind))) = self.state.step(Event::Start) {
                    self.state = next;
                    let id = self.start_transfer(kind, ready);
                    self.log(LogEvent::Start, Some(kind), Some(id)).await;
                }
                return;
            }
            Ending::Ran(Ok(ran)) => {
                let Ran { mut outcome, gave_way } = *ran;
                let was_cut = outcome.report.result == TransferResult::Aborted && !self.is_aborted;
                if gave_way && was_cut {
                    again = Some(RequestedBy::GaveWay);
                    outcome.report.reason = Some(
                        "gave its place to another mirror after its minutes; what it brought is kept, and it goes on \
                         when it has its turn again"
                            .into(),
                    );
                }
                let event = self.transfer_ended(&mut outcome).await;
                if outcome.waiting > 0 && outcome.report.snapshots > 0 && event == Event::Done {
                    again = Some(RequestedBy::CatchUp);
                }
                self.note_upstream(&outcome).await;
                self.acknowledge_late(&outcome);
                let got_on = outcome.report.wire_bytes_received >= GOT_ON_BYTES;
                self.losses = match outcome.lost_session {
                    true if got_on => 1,
                    true => self.losses + 1,
                    false => 0,
                };
                self.note_room(outcome.no_room).await;
                self.note_stopped(&outcome);
                self.note_not_open(outcome.not_open);
                crossed = outcome.crossed;
                (event, Ok(outcome.report))
            }
            Ending::Waited(Err(error)) | Ending::Ran(Err(error)) => {
                tracing::warn!(
                    relationship = %self.relationship.id, volume = %self.relationship.destination, "the transfer \
                         could not start; the replica is unchanged: {error}"
                );
                let kind = match self.state.work {
                    Work::Queued(kind) | Work::Running { kind, .. } => Some(kind),
                    Work::Idle | Work::BrokenOff => None,
                };
                let is_session = matches!(error, MirrorError::NoSession(_));
                if kind == Some(TransferKind::Resync) && !self.waiting.is_empty() {
                    // Somebody has asked for it, and may have gone since. What the schedule tries again is not told each time.
                    let Relationship { destination, .. } = &self.relationship;
                    let why = format!(
                        "the resync waited and did not begin: {error}. {destination} is a read-only replica again, and shows what it \
                         showed. To try again: farside mirror update {destination}; to have it as it was: farside mirror break {destination}"
                    );
                    self.note_unbegun(TransferKind::Resync, &why).await;
                    // It does not begin by itself once there is a session.
                    (self.why, self.session_why) = (Some(why), None);
                } else {
                    self.log(LogEvent::Abort { reason: error.to_string() }, kind, None).await;
                    self.why = Some(error.to_string());
                    self.session_why = self.why.clone().filter(|_| is_session);
                }
                self.has_failed = true;
                self.losses = 0;
                self.source_wait = None;
                if error.is_forbidden() {
                    self.stopped = Some(Stopped::NoRight(error.to_string()));
                }
                (Event::Failed, Err(error))
            }
        };
        self.ports.progress.send_replace(None);
        let Ok((mut next, mut action)) = self.state.step(event) else { return };
        if self.losses > LOSSES_IN_A_ROW_MAX {
            self.losses = 0;
        }
        if self.losses > 0 {
            again = Some(RequestedBy::Retry);
        }
        if again.is_some() && action == Action::None {
            // What was asked for is asked for again: it waits for a session and its turn, and who asked goes on waiting.
            let event = if next.initialized { Event::AskUpdate } else { Event::AskInitialize };
            (next, action) = next.step(event).unwrap_or((next, action));
        }
        self.state = next;
        self.keep_pending().await;
        if let (Some(by), Action::Enqueue(kind)) = (again, action) {
            self.log(LogEvent::Request { by }, Some(kind), None).await;
        }
        let is_queued = matches!(action, Action::Enqueue(_));
        let is_unserved = again.is_some() && is_queued;
        self.is_for_swap &= is_unserved;
        let (served, set_aside, let_go) = match is_unserved {
            true => (Vec::new(), Vec::new(), Vec::new()),
            false => (
                std::mem::take(&mut self.waiting),
                std::mem::take(&mut self.set_aside),
                std::mem::take(&mut self.let_go),
            ),
        };
        // Those who asked while it ran are served by the next one, if there is one.
        self.waiting.append(&mut self.waiting_next);
        // A first copy that gave way comes after the others, whoever asked for it.
        self.is_for_person = !self.waiting.is_empty() && again != Some(RequestedBy::GaveWay);
        if !is_queued {
            let why = self.why.clone().unwrap_or_else(|| "the mirror was quiesced".into());
            self.settle(|| Err(MirrorError::State(format!("no further update was started: {why}"))));
        }
        if let Err(error) = self.carry_out(action).await {
            self.why = Some(error.to_string());
        }
        if crossed {
            self.has_crossed().await;
        }
        if !is_queued {
            self.settle_with_group(event == Event::Done).await;
        }
        // Who is notified of the end sees it in the status too.
        self.publish();
        for ended in served {
            let report = outcome.as_ref().map(|report| {
                let (set_aside, let_go) = (set_aside.clone(), let_go.clone());
                TransferReport { set_aside, let_go, ..report.clone() }
            });
            let _ = ended.send(report.map_err(same));
        }
    }

    /// After a transfer that found no room the schedule does not ask for the next one at once, and a tick that fell meanwhile does not
    /// count; a person's request does.
    pub(super) async fn note_room(&mut self, no_room: Option<NoRoom>) {
        let Some(NoRoom { missing_bytes }) = no_room else {
            self.room_wait = None;
            return;
        };
        let now = self.parts.clock.monotonic();
        self.room_wait = Some(RoomWait::after(self.room_wait, self.staging_room().await, missing_bytes, now));
        if let Work::Running { kind, .. } = self.state.work
            && self.waiting_next.is_empty()
        {
            self.state.work = Work::Running { kind, again: false };
        }
    }

    /// What the schedule asked for comes again soon where the source had the pool not open; what a person asked for was told.
    fn note_not_open(&mut self, is_not_open: bool) {
        let counts = is_not_open && self.relationship.schedule != Schedule::OnRequest;
        let now = self.parts.clock.monotonic();
        self.source_wait = counts.then(|| SourceWait::after(self.source_wait, now));
    }

    /// What a transfer has failed for, if only a person can end that. One that lost its session, or was aborted, says nothing of it.
    fn note_stopped(&mut self, outcome: &Outcome) {
        let reason = || outcome.report.reason.clone().unwrap_or_default();
        self.stopped = match outcome {
            Outcome { forbidden: true, .. } => Some(Stopped::NoRight(reason())),
            Outcome { no_original: true, .. } => Some(Stopped::NoOriginal(reason())),
            Outcome { no_room: Some(_), .. } => Some(Stopped::NoRoom(reason())),
            Outcome { lost_session: true, .. } => return,
            Outcome { report, .. } if report.result == TransferResult::Aborted => return,
            _ => None,
        };
    }

    /// Of a transfer that failed the source keeps more than its base: the next transfer clears up there.
    pub(super) fn acknowledge_late(&mut self, outcome: &Outcome) {
        if let (TransferResult::Ok, Some(message)) = (outcome.report.result, &outcome.unacknowledged) {
            let (links, Relationship { id, peer, .. }) = (self.parts.links.clone(), &self.relationship);
            self.late_acknowledgement = Some(LateAcknowledgement::send(links, *id, *peer, message.clone()));
        }
    }

    /// One line for a transfer that brought something; those that did not are counted.
    fn say_ended(&mut self, report: &TransferReport) {
        let Relationship { id, source, destination, schedule, .. } = &self.relationship;
        if report.result == TransferResult::Ok && is_worth_a_line(report, schedule.interval()) {
            tracing::info!(
                relationship = %id, transfer = %report.id, %source, %destination, kind = %report.kind,
                snapshots = report.snapshots, changed_bytes = report.changed_bytes,
                wire_bytes = report.wire_bytes_received, seconds = report.duration_seconds, "transfer done"
            );
        } else if report.result == TransferResult::Ok {
            tracing::debug!(relationship = %id, transfer = %report.id, %destination, "transfer done: nothing had changed");
            if let Some(updates) = self.quiet.one_more(self.parts.clock.monotonic()) {
                tracing::info!(
                    relationship = %id, %destination, updates,
                    "{updates} updates of {destination} found nothing changed in the last hour or more"
                );
            }
        }
    }

    /// A resync that a person asked for has not come to the point where this driver is told of it.
    pub(super) async fn not_resynced(&mut self, why: String) {
        self.note_unbegun(TransferKind::Resync, &why).await;
        // What goes on meanwhile has reasons of its own.
        if self.is_probed && matches!(self.state.work, Work::Idle | Work::BrokenOff) {
            (self.why, self.session_why) = (Some(why), None);
        }
    }

    /// Nobody is to be told any more that a resync has not begun.
    pub(in crate::relationship) fn forget_not_resynced(&mut self) {
        self.why = self.why.take().filter(|why| !why.starts_with(NOT_RESYNCED));
    }

    /// Why it has not, unless the source follows this volume by now: that is decided otherwise then.
    pub(super) fn said_why(&self) -> Option<String> {
        let is_past = |why: &String| why.starts_with(NOT_RESYNCED) && self.is_followed();
        self.why.clone().filter(|why| !is_past(why))
    }

    /// History and log of a transfer that was asked for and has not begun.
    async fn note_unbegun(&self, kind: TransferKind, why: &str) {
        let id = self.new_id();
        let begun = TransferReport::begun(id, kind, self.parts.clock.now());
        let report = TransferReport { reason: Some(why.to_owned()), ..begun };
        if let Err(error) = self.parts.store.append_history(self.relationship.id, &report).await {
            tracing::error!(relationship = %self.relationship.id, "one entry of mirror history could not be saved: {error}");
        }
        self.log(LogEvent::Abort { reason: why.to_owned() }, Some(kind), Some(id)).await;
    }

    /// Looks at what a transfer has left, and keeps its record.
    pub(super) async fn transfer_ended(&mut self, outcome: &mut Outcome) -> Event {
        self.say_ended(&outcome.report);
        // Even a transfer that failed may have published some of its snapshots.
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        match blocking(move || inspect(&*engine, &relationship)).await {
            Ok(Inspected::SetBack) => {}
            Ok(Inspected::Found(found)) => {
                let found = *found;
                let is_abort = outcome.report.reason.as_deref() == Some(&*TransferError::Aborted.to_string());
                if is_abort && found.current.is_none() {
                    outcome.report.reason = Some("aborted; the replica holds nothing yet".into());
                } else if is_abort && self.shows_own_state() && found.current == self.current {
                    outcome.report.reason = Some("aborted; the resync is pending still".into());
                }
                self.shows_own &= found.current == self.current;
                self.current = found.current;
                self.forgotten_fence = found.forgotten_fence;
                self.left_as = found.left_as;
                self.doubt_forgotten_fence();
                outcome.report.set_aside = self.note_rescues(&outcome.report, found.rescues).await;
                self.set_aside.extend_from_slice(&outcome.report.set_aside);
                outcome.report.let_go = self.thin_rescues().await;
                for snapshot in outcome.report.let_go.clone() {
                    let (kind, id) = (outcome.report.kind, outcome.report.id);
                    self.log(LogEvent::RescueDeleted { snapshot }, Some(kind), Some(id)).await;
                }
                self.let_go.extend_from_slice(&outcome.report.let_go);
            }
            Err(error) => tracing::warn!(relationship = %self.relationship.id, "{error}"),
        }
        let (outcome, report) = (&*outcome, &outcome.report);
        if let Err(error) = self.parts.store.append_history(self.relationship.id, report).await {
            tracing::error!(relationship = %self.relationship.id, transfer = %report.id, "one entry of mirror \
                 history could not be saved; the transfer itself is not affected: {error}");
        }
        self.why = report.reason.clone().or_else(|| self.behind_why(outcome));
        self.has_failed = report.result != TransferResult::Ok;
        let event = match (report.result, &report.reason) {
            (TransferResult::Ok, _) => LogEvent::End { bytes: report.wire_bytes_received },
            (_, reason) => LogEvent::Abort { reason: reason.clone().unwrap_or_default() },
        };
        self.log(event, Some(report.kind), Some(report.id)).await;
        // A first copy or a resync that was cut short after its first snapshots leaves a base: updates bring the rest.
        let has_base = report.kind != TransferKind::Update && report.snapshots > 0;
        if report.result == TransferResult::Ok || has_base {
            self.drop_other_direction().await;
            if let (TransferKind::Resync, Some(of)) = (report.kind, self.forgotten_fence) {
                // A person has decided. With nothing to bring it still shows the last snapshot of that role change.
                match self.release_ended(of).await {
                    Ok(()) => self.forgotten_fence = None,
                    Err(error) => tracing::warn!(relationship = %self.relationship.id, "{error}"),
                }
            }
        }
        self.rotate();
        self.note_ended(report.result == TransferResult::Ok);
        if report.result == TransferResult::Ok || has_base { Event::Done } else { Event::Failed }
    }

    /// An update or a resync brings several snapshots one after the other, and may stand for long before the last: what is shown by now is
    /// said now.
    pub(super) async fn look_at_shown(&mut self) {
        if !matches!(self.state.work, Work::Running { kind: TransferKind::Update | TransferKind::Resync, .. })
        {
            return;
        }
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        // What cannot be asked is asked at the end; whoever breaks it off meanwhile does not wait for a pool that is slow.
        let asked = tokio::time::timeout(BREAK_PATIENCE, blocking(move || inspect(&*engine, &relationship)));
        if let Ok(Ok(Inspected::Found(found))) = asked.await
            && !found.broken_off
        {
            // One of several snapshots of a resync has come: that is shown, and not what hosts here made.
            self.shows_own &= found.current == self.current;
            self.current = found.current;
        }
    }

    /// Tells of what a transfer has set aside. A resync says so before; where an update does it, the source is not what it was.
    /// Answers their names.
    async fn note_rescues(&mut self, report: &TransferReport, now: Vec<(Uuid, String)>) -> Vec<String> {
        let mut set_aside = Vec::new();
        self.newest_rescue = rescues::newest_of_hosts(&now);
        let before = std::mem::replace(&mut self.rescues, now.iter().map(|(uuid, _)| *uuid).collect());
        if self.went_back.as_ref().is_some_and(|(uuid, _)| !self.rescues.contains(uuid)) {
            self.settle_back();
        }
        // Also one that the update went on upon, and that lies on the main line below it: its source has it no more.
        for (uuid, snapshot) in now.into_iter().filter(|(uuid, _)| !before.contains(uuid)) {
            if report.kind == TransferKind::Resync {
                self.remember_set_aside(uuid).await;
                self.left_as = Some(snapshot.clone());
            }
            if report.kind == TransferKind::Resync && self.is_told_by_group(uuid).await {
                continue;
            }
            let snapshot = match report.kind {
                TransferKind::Update => self.named_of_source(uuid, snapshot).await,
                TransferKind::Resync | TransferKind::Initialize => snapshot,
            };
            let Relationship { source, destination, .. } = &self.relationship;
            if report.kind == TransferKind::Update {
                let because = reason(&self.source_name(), &destination.pool, self.pool_here(uuid).await);
                tracing::warn!(
                    volume = %destination, %source, rescue = snapshot,
                    "{because}. The replica follows its source; what it showed until then is kept as a side branch"
                );
                let why = format!(
                    "{because}: what {destination} showed until then is kept as {destination}@{snapshot}. Look at both before you delete it; \
                     farside mirror update {destination} ends this notice, from {} s after it came",
                    SEEN_AFTER.as_secs()
                );
                (self.went_back, self.went_back_at) = (Some((uuid, why)), self.parts.clock.monotonic());
            }
            set_aside.push(snapshot.clone());
            self.log(LogEvent::Rescue { snapshot }, Some(report.kind), Some(report.id)).await;
        }
        let has_shown = report.result == TransferResult::Ok || report.snapshots > 0;
        if report.kind == TransferKind::Resync && has_shown {
            if let Some(SnapshotInfo { name, uuid, .. }) = self.kept_with_group.take() {
                self.remember_set_aside(uuid).await;
                self.left_as = Some(name.clone());
                set_aside.push(name.clone());
                let event = LogEvent::Rescue { snapshot: name };
                self.log(event, Some(report.kind), Some(report.id)).await;
            }
            // Whoever asked is told where it is, whatever it is called.
            let held_as = self.held_as.take().filter(|_| set_aside.is_empty());
            set_aside.extend(held_as);
        }
        set_aside
    }

    /// From which moment hosts went on to what the resync has set aside: whoever goes back to it is to know what fits to it.
    async fn remember_set_aside(&mut self, uuid: Uuid) {
        self.relationship.past.note_set_aside(uuid);
        // No later update takes it for what its source has left behind.
        if !self.rescues.contains(&uuid) {
            self.rescues.push(uuid);
        }
        if let Err(error) = self.parts.store.save(&self.relationship).await {
            tracing::warn!(
                relationship = %self.relationship.id, "the state database could not record from which point a side branch went on; \
                 the side branch is whole, and what fits to it may not be known after a restart: {error}"
            );
        }
    }

    /// What an update has set aside no host has written here: the replica showed it, and its source shows it no more. The engine cannot
    /// tell, and where hosts might come by another way (an engine without branches) nobody can.
    async fn named_of_source(&self, uuid: Uuid, name: String) -> String {
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        if rescues::is_of_source(&name) || engine.branches(&volume.pool).is_none() {
            return name;
        }
        let of_source = move || {
            let owner = SnapshotOwner::Person;
            Ok::<_, MirrorError>(engine.hand_over(&volume, uuid, owner, RESCUE_OF_SOURCE, None)?)
        };
        match blocking(of_source).await {
            Ok(named) => named.name,
            Err(error) => {
                tracing::warn!(
                    volume = %self.relationship.destination, rescue = name, "what the source does not show any more keeps a name as if hosts \
                     had written it here: {error}"
                );
                name
            }
        }
    }

    /// Whether whoever asked for this resync is told by the name that the whole group has: it is what has that, or it was set aside
    /// once, and gone back to, before that was taken. Wherever the one of the group lies, it is told at the end.
    async fn is_told_by_group(&self, uuid: Uuid) -> bool {
        let Some(SnapshotInfo { uuid: kept, sequence, .. }) = self.kept_with_group else { return false };
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let is_older = move || {
            let all = engine.all_snapshots(&volume)?;
            Ok::<_, MirrorError>(all.iter().any(|s| s.uuid == uuid && s.sequence < sequence))
        };
        uuid == kept || blocking(is_older).await.unwrap_or(false)
    }

    /// Deletes rescues that are too many, and answers which. Who breaks a mirror off does not wait for a pool that is slow: then only the
    /// daemon's log tells.
    pub(crate) async fn thin_rescues(&self) -> Vec<String> {
        let most = self.parts.limits.rescues;
        if most == 0 || self.rescues.len() <= most {
            return Vec::new();
        }
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let span = tracing::Span::current();
        let thinned = tokio::task::spawn_blocking(move || {
            let _entered = span.entered();
            rescues::thin(&*engine, &volume, most).unwrap_or_else(|error| {
                tracing::warn!(%volume, "cannot look for rescues that are too many: {error}");
                Vec::new()
            })
        });
        match tokio::time::timeout(BREAK_PATIENCE, thinned).await {
            Ok(Ok(gone)) => gone,
            Ok(Err(_)) | Err(_) => Vec::new(),
        }
    }

    /// That nothing asks for updates any more, because what said when is lost, if there was such a thing: the pool does not tell.
    pub(super) fn schedule_why(&self) -> Option<String> {
        let Relationship { destination, schedule_lost, source, peer, .. } = &self.relationship;
        // Pairings are lost with it.
        let peer = self.parts.links.name_of(*peer).unwrap_or_else(|| String::from("PEER"));
        (*schedule_lost && self.state.work == Work::Idle).then(|| {
            format!(
                "no schedule: this mirror was found in its pool, and the state database that knew its schedule, what it keeps, its throttle \
                 and the way back is lost or older. So updates come only when they are asked for. Run the line that made it once more, \
                 with --if-absent: farside mirror create {peer}:{source} {destination} --every TIME --keep last=10 --if-absent sets all of that again. \
                 If no schedule is meant: farside mirror set {destination} --every off"
            )
        })
    }

    /// What a transfer that went well has left at the source.
    fn behind_why(&self, outcome: &Outcome) -> Option<String> {
        let source = &self.relationship.source;
        let (waiting, left_out) = (outcome.waiting, outcome.left_out);
        if waiting > 0 {
            return Some(format!("catching up: {waiting} more snapshots of {source} wait at the source"));
        }
        let most = self.parts.limits.snapshots;
        (left_out > 0).then(|| {
            format!(
                "{left_out} older snapshots of {source} were not taken: a replica has at most {most} (replicas.snapshots). \
                 The data is current. For newer ones to be taken, delete snapshots of {}",
                self.relationship.destination
            )
        })
    }
}

/// The same error for one more listener.
fn same(error: &MirrorError) -> MirrorError {
    match error {
        MirrorError::NoSession(reason) => MirrorError::NoSession(reason.clone()),
        MirrorError::State(why) => MirrorError::State(why.clone()),
        other => MirrorError::internal(other.to_string()),
    }
}
