//! The driver: takes commands, ticks and the ends of transfers one at a time, lets [`RelationshipState::step`] decide, and carries
//! the decision out.

mod ended;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use farside_link::{Bucket, throttle};
use farside_peer::{PeerId, PeerLink, SessionError};
use farside_transfer::TransferKind;
use farside_transfer::destination::{self as transfer, NoRoom, Outcome, ProgressSender, Transfer};
use farside_transfer::protocol::Overtaken;
use farside_transfer::protocol::convert::Place;
use farside_transfer::quiet::QuietUpdates;
use farside_transfer::report::{Progress, TransferReport, TransferResult};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;

use super::command::{Command, Ended, Parts};
use super::divergence_notice::{DivergenceNotice, Heard};
use super::inspect::{Inspected, inspect};
use super::late_acknowledgement::LateAcknowledgement;
use super::room_wait::RoomWait;
use super::status::{MirrorStatus, Published};
use crate::error::{MirrorError, blocking};
use crate::limits::{BREAK_PATIENCE, GOT_ON_BYTES, LOSSES_IN_A_ROW_MAX, SCHEDULED_LINK_WAIT, WAITERS_MAX};
use crate::links::Links;
use crate::log::{LogEvent, RequestedBy};
use crate::queue::{Claim, UnderWay};
use crate::replicas::StoredReplicas;
use crate::schedule::{ClockReading, Ticker};
use crate::set_back;
use crate::state::{Action, Event, RelationshipState, Work};
use crate::store::{Relationship, SwapMark};

/// How the driver and its handles are connected.
pub(super) struct Ports {
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) status: watch::Sender<MirrorStatus>,
    pub(super) progress: watch::Sender<Option<Progress>>,
    /// What comes of this mirror is under it.
    pub(super) throttle: Arc<Bucket>,
}

/// A turn and a session: what a transfer needs to start.
struct Ready {
    place: UnderWay,
    link: Arc<dyn PeerLink>,
}

enum Activity {
    None,
    Waiting { task: JoinHandle<Result<Ready, MirrorError>>, until: watch::Sender<Instant> },
    Running { task: JoinHandle<Ran>, cancel: CancellationToken },
}

/// A transfer that has ended.
struct Ran {
    outcome: Outcome,
    /// It was asked to give its place to another.
    gave_way: bool,
}

/// What an activity ended with.
enum Ending {
    Waited(Result<Ready, MirrorError>),
    Ran(Result<Box<Ran>, MirrorError>),
}

impl Activity {
    /// The end of what goes on; never, if nothing does. Cancel-safe.
    async fn ended(&mut self) -> Ending {
        let ending = match self {
            Activity::None => std::future::pending().await,
            Activity::Waiting { task, .. } => Ending::Waited(task.await.unwrap_or_else(|e| Err(e.into()))),
            Activity::Running { task, .. } => {
                Ending::Ran(task.await.map(Box::new).map_err(MirrorError::from))
            }
        };
        *self = Activity::None;
        ending
    }
}

pub(super) struct Driver {
    pub(super) parts: Parts,
    pub(super) relationship: Relationship,
    pub(super) state: RelationshipState,
    /// Whether the pool has been asked what this replica is; it may not be open yet when the driver starts.
    is_probed: bool,
    pub(super) why: Option<String>,
    /// The pool was set back to before the volume became a replica.
    is_set_back: bool,
    /// See [`Found::forgotten_fence`](super::inspect::Found::forgotten_fence).
    pub(super) forgotten_fence: Option<Uuid>,
    pub(super) current: Option<Published>,
    pub(super) ticker: Ticker,
    /// Notifies the source of what it must know while this is broken off.
    pub(super) notice: Option<DivergenceNotice>,
    /// What it says of hosts that went on here, or beyond.
    pub(super) told: Option<Overtaken>,
    /// Whether the source has heard that.
    pub(super) heard: watch::Receiver<Heard>,
    /// Whether the source was known to follow this volume, when that was looked at last.
    pub(super) was_followed: bool,
    /// What the volume followed until it was to follow this source, where that is not among it.
    pub(super) left: Vec<Place>,
    /// Before the resync the volume was no replica, or one that a person had broken off: if it gives way, hosts may write to it again.
    pub(super) was_writable: bool,
    /// A role change is being carried out by this process: its messages are not the divergence notice's.
    pub(super) is_swapping: bool,
    /// The device failed under the record of a takeover: whether it is on it shows only when the pool is opened anew.
    /// Until then nobody is told how the role change has ended.
    pub(super) is_outcome_unknown: bool,
    activity: Activity,
    /// What the last transfer could not tell the source, until the next one begins.
    late_acknowledgement: Option<LateAcknowledgement>,
    /// How long the queued transfer waits for a session.
    pub(super) link_wait: Duration,
    /// Transfers in a row that lost their session.
    losses: u32,
    /// What the log does not name one by one.
    quiet: QuietUpdates,
    /// Side branches that the volume's earlier content became, as the pool was last asked.
    pub(super) rescues: Vec<Uuid>,
    /// An update that nobody asked to go back has made one; until a person asks for something, or it is gone.
    pub(super) went_back: Option<(Uuid, String)>,
    /// Names of what was set aside since those who wait began to.
    set_aside: Vec<String>,
    /// A person waits for the queued transfer.
    is_for_person: bool,
    /// A person has ended the transfer that runs.
    is_aborted: bool,
    /// The last transfer found no room here: what the schedule waits for.
    room_wait: Option<RoomWait>,
    /// Who is notified of the transfer that runs or waits, and of the one after it.
    pub(super) waiting: Vec<Ended>,
    pub(super) waiting_next: Vec<Ended>,
    ports: Ports,
    /// This driver's own commands, for its divergence notice.
    pub(super) own: mpsc::WeakSender<Command>,
}

impl Driver {
    pub(super) fn new(
        parts: Parts,
        relationship: Relationship,
        at_once: bool,
        ports: Ports,
        own: mpsc::WeakSender<Command>,
    ) -> Driver {
        parts.endings.is_in_force(relationship.id);
        let ticker = Ticker::new(relationship.schedule.clone(), ClockReading::of(&*parts.clock), at_once);
        let state = RelationshipState {
            initialized: false,
            quiesced: relationship.quiesced,
            resync_pending: relationship.resync_pending,
            work: Work::Idle,
        };
        Driver {
            parts,
            relationship,
            state,
            is_probed: false,
            why: None,
            is_set_back: false,
            forgotten_fence: None,
            current: None,
            ticker,
            notice: None,
            told: None,
            heard: watch::Sender::new(Heard::NotYet(None)).subscribe(),
            was_followed: false,
            left: Vec::new(),
            was_writable: false,
            is_swapping: false,
            is_outcome_unknown: false,
            activity: Activity::None,
            late_acknowledgement: None,
            link_wait: SCHEDULED_LINK_WAIT,
            losses: 0,
            quiet: QuietUpdates::default(),
            rescues: Vec::new(),
            went_back: None,
            set_aside: Vec::new(),
            is_for_person: false,
            is_aborted: false,
            room_wait: None,
            waiting: Vec::new(),
            waiting_next: Vec::new(),
            ports,
            own,
        }
    }

    pub(super) async fn run(mut self) {
        let mut overtaken = self.parts.source.overtaken_changes();
        let mut is_replaced = false;
        self.probe().await;
        loop {
            self.publish();
            let tick = self.ticker.wait(ClockReading::of(&*self.parts.clock));
            tokio::select! {
                command = self.ports.commands.recv() => match command {
                    None => break,
                    Some(Command::Delete { done }) => {
                        let result = self.delete().await;
                        let is_deleted = result.is_ok();
                        let _ = done.send(result);
                        if is_deleted {
                            break;
                        }
                    }
                    Some(Command::StepAside { aside, decision }) => {
                        is_replaced = self.step_aside(aside, decision).await;
                        if is_replaced {
                            break;
                        }
                    }
                    Some(command) => self.obey(command).await,
                },
                ending = self.activity.ended() => self.note(ending).await,
                // Shown anew.
                Ok(()) = self.heard.changed() => self.remember_told().await,
                Ok(()) = overtaken.changed() => self.on_overtaken_change(),
                () = self.parts.stop.cancelled() => break,
                () = sleep(tick) => {
                    if self.ticker.poll(ClockReading::of(&*self.parts.clock)) {
                        self.tick().await;
                    }
                }
            }
        }
        self.stop().await;
        self.parts.source.expect_follower(self.relationship.id, None);
        if is_replaced {
            // What is said of the volume is another's to say by now.
            return;
        }
        self.parts.source.set_upstream(&self.relationship.destination, None);
        // One whose pool is closed is looked at before it is served again.
        if !self.parts.stop.is_cancelled() {
            self.parts.source.note_set_back(&self.relationship.destination, None);
        }
    }

    /// Asks the pool what this replica is.
    pub(super) async fn probe(&mut self) {
        let (engine, relationship) = (self.parts.engine.clone(), self.relationship.clone());
        let inspected = blocking(move || inspect(&*engine, &relationship)).await;
        self.is_set_back = matches!(inspected, Ok(Inspected::SetBack));
        match inspected {
            Ok(Inspected::SetBack) => {
                self.is_probed = false;
                self.why = Some(set_back::why(&self.relationship.destination, &self.source_name()));
            }
            Ok(Inspected::Found(found)) => {
                let found = *found;
                self.is_probed = true;
                self.why = None;
                self.state.initialized = found.initialized;
                // The pool knows of a resync that the database has forgotten: the volume shows what hosts made of it.
                let pending = self.relationship.resync_pending || found.shows_own_writes;
                self.state.resync_pending = pending && found.initialized && !found.broken_off;
                if !found.broken_off && self.relationship.swap.is_none() {
                    // A deletion that began and did not come about: see `undo`.
                    self.relationship.broken_off_at = None;
                }
                if found.broken_off {
                    self.state.work = Work::BrokenOff;
                } else if self.state.work == Work::BrokenOff {
                    self.state.work = Work::Idle;
                }
                self.current = found.current;
                self.rescues = found.rescues.into_iter().map(|(uuid, _)| uuid).collect();
                self.forgotten_fence = found.forgotten_fence;
                if found.is_taken_over {
                    self.remember_takeover().await;
                }
                self.doubt_forgotten_fence();
                self.send_notice();
            }
            Err(error) => self.why = Some(error.to_string()),
        }
    }

    /// What looks like the last snapshot of a role change is that only of one with the peer's volume that this one follows: any
    /// other mirror of this volume may have left its base as the newest point that both hold.
    fn doubt_forgotten_fence(&mut self) {
        let Relationship { peer, source, .. } = &self.relationship;
        let is_of_another = |of: &Uuid| {
            let known = self.parts.source.destinations().into_iter().find(|r| r.id == *of);
            known.is_some_and(|r| r.peer != *peer || r.destination != *source)
        };
        self.forgotten_fence = self.forgotten_fence.filter(|of| !is_of_another(of));
    }

    /// The pool is asked again before anything is done.
    pub(super) fn forget_probe(&mut self, why: String) {
        self.is_probed = false;
        self.why = Some(why);
    }

    /// Whoever is notified that it is done sees it in the status too.
    async fn obey(&mut self, command: Command) {
        // What a fence waits for may have been released by a person.
        if !self.is_probed || self.forgotten_fence.is_some() {
            self.probe().await;
        }
        match command {
            Command::Start { kind, link_wait, accepted, ended } => {
                let result = self.ask(kind, link_wait, ended).await;
                self.publish();
                let _ = accepted.send(result);
            }
            Command::Event { event, done } => {
                let result = self.on_event(event).await;
                self.publish();
                let _ = done.send(result);
            }
            Command::Resync { base, replaces, newest, follows, link_wait, accepted, ended } => {
                let result = self.resync(base, replaces, newest, follows, link_wait, ended).await;
                self.publish();
                let _ = accepted.send(result);
            }
            Command::Break { at, done } => {
                let result = self.break_at(at).await;
                self.publish();
                let _ = done.send(result);
            }
            Command::RoleChange(command) => self.change_roles(command).await,
            Command::SetSchedule { schedule, done } => {
                let changed = Relationship {
                    schedule: schedule.clone(),
                    schedule_lost: false,
                    ..self.relationship.clone()
                };
                let result = self.parts.store.save(&changed).await;
                if result.is_ok() {
                    self.ticker = Ticker::new(schedule, ClockReading::of(&*self.parts.clock), false);
                    self.relationship = changed;
                }
                self.publish();
                let _ = done.send(result);
            }
            Command::SetOptions { options, done } => {
                let changed = Relationship { options, ..self.relationship.clone() };
                let result = self.parts.store.save(&changed).await;
                if result.is_ok() {
                    let rate = changed.options.throttle.rate_at(self.parts.clock.now());
                    self.ports.throttle.set_rate(throttle::clock(), rate);
                    self.relationship = changed;
                }
                self.publish();
                let _ = done.send(result);
            }
            // Handled where the loop can end.
            Command::Delete { done } => drop(done),
            Command::StepAside { aside, .. } => drop(aside),
        }
    }

    async fn ask(
        &mut self,
        kind: TransferKind,
        link_wait: Duration,
        ended: Ended,
    ) -> Result<(), MirrorError> {
        self.check_ready()?;
        let event = match kind {
            TransferKind::Initialize => Event::AskInitialize,
            TransferKind::Update => Event::AskUpdate,
            TransferKind::Resync => Event::AskResync,
        };
        let (next, action) = self.state.step(event)?;
        self.went_back = None;
        self.log(LogEvent::Request { by: RequestedBy::Person }, Some(kind), None).await;
        self.join(next, action, kind, link_wait, ended).await
    }

    /// Whether anything may be asked of this mirror now.
    pub(super) fn check_ready(&self) -> Result<(), MirrorError> {
        self.check_unprepared()?;
        // An update would bring nothing, and look as if all was well.
        match self.forgotten_why() {
            Some(why) => Err(MirrorError::State(why)),
            None => Ok(()),
        }
    }

    /// The same for a resync, which is a way out where nothing here remembers a role change.
    pub(super) fn check_unprepared(&self) -> Result<(), MirrorError> {
        self.check_probed()?;
        if let Some(why) = self.prepared_why() {
            return Err(MirrorError::State(why));
        }
        if self.waiting.len() + self.waiting_next.len() >= WAITERS_MAX {
            return Err(MirrorError::State(format!(
                "{WAITERS_MAX} requests already wait for this mirror; try again \
                 when one has ended"
            )));
        }
        Ok(())
    }

    /// What keeps a volume that is prepared for a role change from everything else.
    pub(super) fn prepared_why(&self) -> Option<String> {
        let Some(SwapMark::Prepared { .. }) = self.relationship.swap else { return None };
        let volume = &self.relationship.destination;
        Some(format!(
            "a role change is under way: {volume} is read-only until its peer has taken over or given up. To finish \
             it, at the peer: farside mirror swap again. If the peer has taken over and this site has not been \
             notified, at this site: farside mirror resync {volume}. To make {volume} writable at once, at this site: \
             farside mirror break {volume}"
        ))
    }

    /// What a volume is waiting for that was made read-only for a role change, when nothing here remembers it.
    fn forgotten_why(&self) -> Option<String> {
        let destination = &self.relationship.destination;
        self.forgotten_fence.map(|_| {
            let source = self.source_name();
            format!(
                "{destination} is read-only for a role change that this site no longer remembers (its state database \
                 was lost). Look at the peer first: if {source} there is not broken off, run farside mirror break \
                 {destination} at this site, nothing is lost; if it is broken off, run farside mirror resync \
                 {destination} at this site"
            )
        })
    }

    /// Takes the step that a request makes, and remembers who is notified of its end.
    pub(super) async fn join(
        &mut self,
        next: RelationshipState,
        action: Action,
        kind: TransferKind,
        link_wait: Duration,
        ended: Ended,
    ) -> Result<(), MirrorError> {
        let is_next = match (self.state.work, kind) {
            (Work::Running { .. }, TransferKind::Update) => true,
            (Work::Running { kind: running, .. }, TransferKind::Resync) => running != TransferKind::Resync,
            _ => false,
        };
        self.state = next;
        let waiting = if is_next { &mut self.waiting_next } else { &mut self.waiting };
        waiting.push(ended);
        match action {
            Action::Enqueue(_) => {
                self.link_wait = link_wait;
                self.is_for_person = true;
            }
            // Whoever joins a queue with more patience than it has brings that along, and does not sit out a pause that long
            // failure has made long.
            Action::None if matches!(next.work, Work::Queued(_)) => {
                self.extend_wait(link_wait);
                self.is_for_person = true;
                self.parts.queue.is_for_a_person(self.relationship.id);
                self.parts.links.dial_now(self.relationship.peer);
            }
            _ => {}
        }
        self.carry_out(action).await
    }

    /// The queued transfer waits for a session until `link_wait` from now, if that is longer than it would.
    fn extend_wait(&mut self, link_wait: Duration) {
        if let Activity::Waiting { until, .. } = &self.activity {
            until.send_if_modified(|until| {
                let wanted = Instant::now() + link_wait;
                let is_later = wanted > *until;
                *until = wanted.max(*until);
                is_later
            });
        }
    }

    async fn on_event(&mut self, event: Event) -> Result<(), MirrorError> {
        self.check_probed()?;
        if let Some(why) = self.prepared_why() {
            return Err(MirrorError::State(why));
        }
        let before = self.state;
        let (next, action) = before.step(event)?;
        self.state = next;
        if next.quiesced != self.relationship.quiesced {
            self.relationship.quiesced = next.quiesced;
            if let Err(error) = self.parts.store.save(&self.relationship).await {
                self.relationship.quiesced = before.quiesced;
                self.state = before;
                return Err(error);
            }
            self.log(if next.quiesced { LogEvent::Quiesce } else { LogEvent::Resume }, None, None).await;
        }
        self.carry_out(action).await
    }

    /// Whether the pool has said what this replica is.
    pub(super) fn is_settled(&self) -> bool {
        self.is_probed
    }

    pub(super) fn check_probed(&self) -> Result<(), MirrorError> {
        match &self.why {
            Some(why) if !self.is_probed => {
                Err(MirrorError::State(format!("the replica cannot be used: {why}")))
            }
            _ => Ok(()),
        }
    }

    async fn tick(&mut self) {
        if !self.is_probed || self.forgotten_fence.is_some() {
            self.probe().await;
        }
        if !self.is_probed || self.prepared_why().is_some() || self.forgotten_fence.is_some() {
            return;
        }
        if self.is_waiting_for_room().await {
            return;
        }
        // A first copy that a person asked for and a restart or a long outage cut off: the schedule takes it up again.
        let is_cut_off = !self.state.initialized && self.has_staged().await;
        let event = if is_cut_off { Event::AskInitialize } else { Event::Tick };
        let Ok((next, action)) = self.state.step(event) else { return };
        self.state = next;
        if let Action::Enqueue(kind) = action {
            self.link_wait = SCHEDULED_LINK_WAIT;
            self.is_for_person = false;
            self.log(LogEvent::Request { by: RequestedBy::Schedule }, Some(kind), None).await;
        }
        if let Err(error) = self.carry_out(action).await {
            self.why = Some(error.to_string());
        }
    }

    /// Whether the last transfer found no room and there is not more since. A person's request does not wait for that.
    async fn is_waiting_for_room(&self) -> bool {
        match &self.room_wait {
            None => false,
            Some(wait) => !wait.is_over(self.staging_room().await, self.parts.clock.monotonic()),
        }
    }

    /// Bytes that may be staged in the pool here; none if the engine cannot tell.
    async fn staging_room(&self) -> Option<u64> {
        let (engine, pool) = (self.parts.engine.clone(), self.relationship.destination.pool.clone());
        blocking(move || engine.staging_room(&pool)).await.ok().flatten().map(|room| room.room_bytes)
    }

    /// Whether a transfer of this relationship has left something to go on with.
    async fn has_staged(&self) -> bool {
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let id = self.relationship.id;
        // Whoever cannot be asked is asked again at the next tick.
        let staged = blocking(move || engine.staged(&volume)).await;
        staged.is_ok_and(|staged| staged.iter().any(|(info, _)| info.staged_for.relationship == id))
    }

    async fn note(&mut self, ending: Ending) {
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
                self.log(LogEvent::Abort { reason: error.to_string() }, kind, None).await;
                self.why = Some(error.to_string());
                self.losses = 0;
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
        let (served, set_aside) = match is_unserved {
            true => (Vec::new(), Vec::new()),
            false => (std::mem::take(&mut self.waiting), std::mem::take(&mut self.set_aside)),
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
        // Who is notified of the end sees it in the status too.
        self.publish();
        for ended in served {
            let report = outcome.as_ref().map(|report| {
                let set_aside = set_aside.clone();
                TransferReport { set_aside, ..report.clone() }
            });
            let _ = ended.send(report.map_err(same));
        }
    }

    /// After a transfer that found no room the schedule does not ask for the next one at once, and a tick that fell meanwhile does not
    /// count; a person's request does.
    async fn note_room(&mut self, no_room: Option<NoRoom>) {
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

    /// Of a transfer that failed the source keeps more than its base: the next transfer clears up there.
    fn acknowledge_late(&mut self, outcome: &Outcome) {
        if let (TransferResult::Ok, Some(message)) = (outcome.report.result, &outcome.unacknowledged) {
            let (links, Relationship { id, peer, .. }) = (self.parts.links.clone(), &self.relationship);
            self.late_acknowledgement = Some(LateAcknowledgement::send(links, *id, *peer, message.clone()));
        }
    }

    async fn carry_out(&mut self, action: Action) -> Result<(), MirrorError> {
        match action {
            Action::None | Action::Run(_) => {}
            Action::Enqueue(kind) => self.enqueue(kind),
            Action::LeaveQueue => {
                self.leave_queue();
                self.log(LogEvent::Abort { reason: MirrorError::aborted().to_string() }, None, None).await;
                self.settle(|| Err(MirrorError::aborted()));
            }
            Action::Cancel => {
                self.is_aborted = true;
                if let Activity::Running { cancel, .. } = &self.activity {
                    cancel.cancel();
                }
            }
            // Carried out by `break_at`, which knows where.
            Action::BreakOff => {}
        }
        Ok(())
    }

    fn enqueue(&mut self, kind: TransferKind) {
        self.ports.progress.send_replace(Some(Progress::waiting(kind)));
        let (links, queue) = (self.parts.links.clone(), self.parts.queue.clone());
        let (peer, wait) = (self.relationship.peer, self.link_wait);
        let (until, until_rx) = watch::channel(Instant::now() + wait);
        let is_first_copy = kind == TransferKind::Initialize;
        let is_for_person = self.is_for_person;
        let claim = Claim { peer, mirror: self.relationship.id, is_first_copy, is_for_person };
        let task = tokio::spawn(async move {
            // The session first: whoever waits for one should not keep a turn from others.
            let link = link_until(&*links, peer, until_rx).await;
            let link = link.map_err(MirrorError::no_session)?;
            Ok(Ready { place: queue.enter(claim).await, link })
        });
        self.activity = Activity::Waiting { task, until };
    }

    fn leave_queue(&mut self) {
        if let Activity::Waiting { task, .. } = &self.activity {
            task.abort();
            self.activity = Activity::None;
        }
        self.losses = 0;
        self.ports.progress.send_replace(None);
    }

    fn start_transfer(&mut self, kind: TransferKind, ready: Ready) -> Uuid {
        self.late_acknowledgement = None;
        let id = uuid::Builder::from_random_bytes(self.parts.randomness.uuid_bytes()).into_uuid();
        let cancel = CancellationToken::new();
        let clock = self.parts.clock.clone();
        let transfer = Transfer {
            id,
            kind,
            replica: self.relationship.replica(),
            role_change: self.relationship.role_change,
            left: if kind == TransferKind::Resync { self.left.clone() } else { Vec::new() },
            engine: self.parts.engine.clone(),
            replicas: Arc::new(StoredReplicas(self.parts.store.clone())),
            clock: clock.clone(),
            link: ready.link,
            options: self.relationship.options.of_stream(self.ports.throttle.clone()),
            named_max: self.parts.limits.snapshots,
            cancel: cancel.clone(),
            progress: ProgressSender::new(clock, self.ports.progress.clone(), id, kind),
        };
        let place = ready.place;
        let cut = cancel.clone();
        self.is_aborted = false;
        let task = async move {
            let mut running = pin!(transfer::run(transfer));
            let mut gave_way = false;
            let outcome = loop {
                tokio::select! {
                    outcome = &mut running => break outcome,
                    () = place.is_to_give_way(), if !gave_way => {
                        gave_way = true;
                        cut.cancel();
                    }
                }
            };
            drop(place);
            Ran { outcome, gave_way }
        };
        let task = tokio::spawn(task.in_current_span());
        self.activity = Activity::Running { task, cancel };
        id
    }

    /// Ends whatever goes on and waits for that; the peer is not asked for anything.
    pub(super) async fn stop(&mut self) {
        self.late_acknowledgement = None;
        self.leave_queue();
        if let Activity::Running { cancel, .. } = &self.activity {
            cancel.cancel();
            if let Ending::Ran(Ok(mut ran)) = self.activity.ended().await {
                self.transfer_ended(&mut ran.outcome).await;
                self.settle(|| Ok(ran.outcome.report.clone()));
            }
        }
        self.rest();
    }

    /// The same for whoever cannot wait: what has not ended within [`BREAK_PATIENCE`] ends by itself, later, and finds
    /// that what it had staged is gone.
    pub(super) async fn stop_briefly(&mut self) {
        self.late_acknowledgement = None;
        self.leave_queue();
        if let Activity::Running { cancel, .. } = &self.activity {
            cancel.cancel();
            match tokio::time::timeout(BREAK_PATIENCE, self.activity.ended()).await {
                Ok(Ending::Ran(Ok(ran))) => {
                    let mut outcome = ran.outcome;
                    let kept = tokio::time::timeout(BREAK_PATIENCE, self.transfer_ended(&mut outcome));
                    if kept.await.is_err() {
                        tracing::warn!(transfer = %outcome.report.id, "one entry of mirror history could not be \
                             saved: the pool or the state database does not answer. The transfer itself is not affected");
                    }
                    self.settle(|| Ok(outcome.report.clone()));
                }
                Ok(_) => {}
                Err(_) => {
                    self.activity = Activity::None;
                    tracing::warn!(
                        relationship = %self.relationship.id,
                        "a cancelled transfer has not stopped yet; it can change nothing any more. If this repeats, \
                         restart farsided"
                    );
                }
            }
        }
        self.rest();
    }

    fn rest(&mut self) {
        self.ports.progress.send_replace(None);
        if self.state.work != Work::BrokenOff {
            self.state.work = Work::Idle;
        }
        self.waiting.append(&mut self.waiting_next);
        self.settle(|| Err(MirrorError::aborted()));
    }

    pub(super) fn settle(&mut self, result: impl Fn() -> Result<TransferReport, MirrorError>) {
        self.set_aside.clear();
        for ended in self.waiting.drain(..) {
            let _ = ended.send(result());
        }
    }

    /// What is in the way, the nearest first.
    fn every_why(&self) -> Option<String> {
        let why = self
            .why
            .clone()
            .or_else(|| self.prepared_why())
            .or_else(|| self.forgotten_why())
            .or_else(|| self.went_back.as_ref().map(|(_, why)| why.clone()))
            .or_else(|| self.schedule_why());
        let more = [self.untold_why(), self.upstream_why()].into_iter().flatten();
        why.into_iter().chain(more).reduce(|all, more| format!("{all}; {more}"))
    }

    pub(super) fn publish(&self) {
        let way_back = match self.relationship.swap {
            Some(SwapMark::TakenOver { reverse }) => Some(reverse),
            _ => None,
        };
        self.parts.source.expect_follower(self.relationship.id, way_back);
        let Relationship { destination, upstream, .. } = &self.relationship;
        self.parts.source.set_upstream(destination, Some(upstream.clone()));
        let set_back = self.why.clone().filter(|_| self.is_set_back);
        let heard = self.source_heard();
        self.parts.source.note_set_back(destination, set_back);
        self.ports.status.send_replace(MirrorStatus {
            relationship: self.relationship.clone(),
            state: self.state.state(),
            why: self.every_why(),
            current: self.current.clone(),
            progress: None,
            source_heard: heard.map(|(heard, _)| heard),
            source_heard_at: heard.and_then(|(_, at)| at),
        });
    }
}

/// Waits for a session until a moment that may yet be put off.
async fn link_until(
    links: &dyn Links,
    peer: PeerId,
    until: watch::Receiver<Instant>,
) -> Result<Arc<dyn PeerLink>, SessionError> {
    loop {
        let deadline = *until.borrow();
        let result = links.link(peer, deadline.saturating_duration_since(Instant::now())).await;
        if result.is_ok() || *until.borrow() <= deadline {
            return result;
        }
    }
}

/// The same error for one more listener.
fn same(error: &MirrorError) -> MirrorError {
    match error {
        MirrorError::NoSession(reason) => MirrorError::NoSession(reason.clone()),
        other => MirrorError::internal(other.to_string()),
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
