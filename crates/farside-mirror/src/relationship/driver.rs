//! The driver: takes commands, ticks and the ends of transfers one at a time, lets [`RelationshipState::step`] decide, and carries
//! the decision out.

mod activity;
mod ended;
mod grouped;
mod taken_up;
mod timing;
mod transfers;
mod went_back;
mod why;

use std::sync::Arc;
use std::time::Duration;

use farside_engine::SnapshotInfo;
use farside_link::{Bucket, throttle};
use farside_transfer::TransferKind;
use farside_transfer::protocol::Overtaken;
use farside_transfer::protocol::convert::Place;
use farside_transfer::quiet::QuietUpdates;
use farside_transfer::report::{Progress, TransferReport};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::command::{Command, Ended, Parts};
use super::divergence_notice::{DivergenceNotice, Heard};
use super::inspect::{Inspected, inspect};
use super::late_acknowledgement::LateAcknowledgement;
use super::room_wait::RoomWait;
use super::source_wait::SourceWait;
use super::status::{MirrorStatus, Published, Stopped, WentOnFrom};
use super::timing::Timing;
use crate::error::{MirrorError, blocking};
use crate::limits::SCHEDULED_LINK_WAIT;
use crate::log::{LogEvent, RequestedBy};
use crate::rescues;
use crate::schedule::{ClockReading, Ticker};
use crate::set_back;
use crate::state::{Action, Event, RelationshipState, Work};
use crate::store::{Relationship, SwapMark};
use activity::Activity;

/// How the driver and its handles are connected.
pub(super) struct Ports {
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) status: watch::Sender<MirrorStatus>,
    pub(super) progress: watch::Sender<Option<Progress>>,
    /// What comes of this mirror is under it.
    pub(super) throttle: Arc<Bucket>,
}

pub(super) struct Driver {
    pub(super) parts: Parts,
    pub(super) relationship: Relationship,
    pub(super) state: RelationshipState,
    /// Whether the pool has been asked what this replica is; it may not be open yet when the driver starts.
    pub(super) is_probed: bool,
    pub(super) why: Option<String>,
    /// What it was when the last transfer had waited for a session in vain.
    session_why: Option<String>,
    /// The pool was set back to before the volume became a replica.
    is_set_back: bool,
    /// See [`Found::forgotten_fence`](super::inspect::Found::forgotten_fence).
    pub(super) forgotten_fence: Option<Uuid>,
    pub(super) current: Option<Published>,
    /// See [`Found::went_on_from`](super::inspect::Found::went_on_from).
    pub(super) went_on_from: Option<WentOnFrom>,
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
    /// While a resync is pending: the volume shows its own state until that has brought something.
    pub(super) shows_own: bool,
    /// Before the resync the volume was no replica, or one that a person had broken off: if it gives way, hosts may write to it again.
    pub(super) was_writable: bool,
    /// A role change is being carried out by this process: its messages are not the divergence notice's.
    pub(super) is_swapping: bool,
    /// The device failed under the record of a takeover: whether it is on it shows only when the pool is opened anew.
    /// Until then nobody is told how the role change has ended.
    pub(super) is_outcome_unknown: bool,
    /// How long updates take, and when the last moments of one were, on monotonic time.
    pub(super) timing: Timing,
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
    /// The newest of them that hosts wrote.
    newest_rescue: Option<String>,
    /// See [`Found::left_as`](super::inspect::Found::left_as).
    left_as: Option<String>,
    /// An update that nobody asked to go back has made one; until a person asks for something, or it is gone.
    pub(super) went_back: Option<(Uuid, String)>,
    /// When that was, on monotonic time.
    pub(super) went_back_at: Duration,
    /// Such a one is over, or would be: a person has asked for something since this process began.
    pub(super) is_back_settled: bool,
    /// What lets go what retention does not name any more.
    pub(super) rotation: Option<tokio::task::JoinHandle<()>>,
    /// Names of what was set aside since those who wait began to.
    set_aside: Vec<String>,
    /// And of the old side branches that went for it.
    let_go: Vec<String>,
    /// What the volume showed before the resync that is under way, by the name that it has in all of its group.
    pub(super) kept_with_group: Option<SnapshotInfo>,
    /// A person's snapshot that has what the volume showed before the resync that is under way.
    pub(super) held_as: Option<String>,
    /// A person waits for the queued transfer.
    is_for_person: bool,
    /// The transfer that waits or runs is an update before a change of roles.
    pub(super) is_for_swap: bool,
    /// Somebody has asked for an update since the queued one was.
    is_asked_since: bool,
    /// Another member of its group has begun an update.
    group_wakes: Arc<Notify>,
    /// When the queued transfer was asked for, on monotonic time.
    asked_at: Duration,
    /// The next update that is queued goes without its group.
    is_alone: bool,
    /// A person has ended the transfer that runs.
    is_aborted: bool,
    /// A person has ended the mirror.
    pub(super) is_deleted: bool,
    /// It was looked whether a stop of the daemon has cut what a person asked for.
    was_taken_up: bool,
    /// The last transfer failed, and `why` is its reason.
    has_failed: bool,
    /// What the last attempt has failed for, if it does not end by itself.
    stopped: Option<Stopped>,
    /// The last transfer found no room here: what the schedule waits for.
    room_wait: Option<RoomWait>,
    /// The last scheduled update found the pool not open at the source.
    pub(super) source_wait: Option<SourceWait>,
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
            session_why: None,
            is_set_back: false,
            forgotten_fence: None,
            current: None,
            went_on_from: None,
            ticker,
            notice: None,
            told: None,
            heard: watch::Sender::new(Heard::NotYet(None)).subscribe(),
            was_followed: false,
            left: Vec::new(),
            // Whether it has brought something is in the row as soon as it has.
            shows_own: state.resync_pending,
            was_writable: false,
            is_swapping: false,
            is_outcome_unknown: false,
            activity: Activity::None,
            late_acknowledgement: None,
            link_wait: SCHEDULED_LINK_WAIT,
            losses: 0,
            quiet: QuietUpdates::default(),
            rescues: Vec::new(),
            newest_rescue: None,
            left_as: None,
            went_back: None,
            went_back_at: Duration::ZERO,
            is_back_settled: false,
            rotation: None,
            timing: Timing::default(),
            set_aside: Vec::new(),
            let_go: Vec::new(),
            kept_with_group: None,
            held_as: None,
            is_for_person: false,
            is_for_swap: false,
            is_asked_since: false,
            group_wakes: Arc::default(),
            asked_at: Duration::ZERO,
            is_alone: false,
            is_aborted: false,
            is_deleted: false,
            was_taken_up: false,
            has_failed: false,
            stopped: None,
            room_wait: None,
            source_wait: None,
            waiting: Vec::new(),
            waiting_next: Vec::new(),
            ports,
            own,
        }
    }

    pub(super) async fn run(mut self) {
        let mut overtaken = self.parts.source.overtaken_changes();
        let mut is_replaced = false;
        let group_wakes = self.group_wakes.clone();
        let (mut progress, mut published) = (self.ports.progress.subscribe(), 0);
        self.probe().await;
        if matches!(self.relationship.swap, Some(SwapMark::Swapping { .. })) && self.state.work == Work::Idle
        {
            tracing::warn!(
                relationship = %self.relationship.id, volume = %self.relationship.destination,
                "a swap had not changed the roles when the daemon ended: it is given up, its source is told, and nothing is \
                 changed. Ask for it again"
            );
        }
        loop {
            self.take_up().await;
            self.publish();
            let tick = self.ticker.wait(ClockReading::of(&*self.parts.clock));
            let is_idle = self.state.work == Work::Idle;
            let again = self.source_wait.map(|wait| wait.left(self.parts.clock.monotonic()));
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
                () = group_wakes.notified() => self.update_with_group().await,
                () = another_published(&mut progress, &mut published) => self.look_at_shown().await,
                () = self.parts.stop.cancelled() => break,
                () = sleep(tick) => {
                    if self.ticker.poll(ClockReading::of(&*self.parts.clock)) {
                        self.tick().await;
                    }
                }
                () = sleep(again), if is_idle => {
                    self.due(RequestedBy::Retry).await;
                    // What does not begin now waits for the schedule.
                    self.source_wait = self.source_wait.filter(|_| self.state.work != Work::Idle);
                }
            }
        }
        self.stop().await;
        self.parts.groups.leave(self.relationship.id);
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
                self.shows_own = self.state.resync_pending && (self.shows_own || found.shows_own_writes);
                if !found.broken_off && self.relationship.swap.is_none() {
                    // A deletion that began and did not come about: see `undo`.
                    self.relationship.broken_off_at = None;
                }
                self.relationship.ended_there &= found.broken_off;
                if found.broken_off {
                    self.state.work = Work::BrokenOff;
                } else if self.state.work == Work::BrokenOff {
                    self.state.work = Work::Idle;
                }
                self.current = found.current;
                self.went_on_from = found.went_on_from;
                self.left_as = found.left_as;
                self.newest_rescue = rescues::newest_of_hosts(&found.rescues);
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
            Command::Start { kind, is_alone, link_wait, accepted, ended } => {
                if is_alone {
                    self.goes_alone();
                }
                // What joins the update of a swap leaves it one.
                let was_for_swap = self.is_for_swap;
                self.is_for_swap |= is_alone;
                let result = self.ask(kind, is_alone, link_wait, ended).await;
                if result.is_err() {
                    self.is_for_swap = was_for_swap;
                }
                self.publish();
                let _ = accepted.send(result);
            }
            Command::Event { event, done } => {
                if event == Event::Abort {
                    // Whoever wants nothing to run needs no advice how to run it.
                    self.forget_not_resynced();
                }
                let result = self.on_event(event).await;
                self.publish();
                let _ = done.send(result);
            }
            Command::Resync { onto, link_wait, accepted, ended } => {
                let result = self.resync(onto, link_wait, ended).await;
                self.publish();
                let _ = accepted.send(result);
            }
            Command::Break { at, moment, done } => {
                let result = self.break_at(at, moment).await;
                self.publish();
                let _ = done.send(result);
            }
            Command::NotResynced { why, done } => {
                self.not_resynced(why).await;
                self.publish();
                let _ = done.send(Ok(()));
            }
            Command::Moved { done } => {
                if self.state.work == Work::BrokenOff {
                    // Says also where hosts go on from.
                    self.probe().await;
                    self.log_thinned().await;
                }
                self.publish();
                let _ = done.send(Ok(()));
            }
            Command::Seen { done } => {
                self.settle_back_if_seen();
                self.publish();
                let _ = done.send(Ok(()));
            }
            Command::RoleChange(command) => self.change_roles(command).await,
            // One that is there already goes on: begun anew with every request, an interval would never be over.
            Command::SetSchedule { schedule, done }
                if schedule == self.relationship.schedule && !self.relationship.schedule_lost =>
            {
                let _ = done.send(Ok(()));
            }
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
                    self.aim();
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
            Command::SetGroup { group, done } => {
                let changed = Relationship { group, ..self.relationship.clone() };
                let result = self.parts.store.save(&changed).await;
                if result.is_ok() {
                    self.relationship = changed;
                }
                self.publish();
                let _ = done.send(result);
            }
            Command::SetRetention { retention, done } => {
                let result = self.set_retention(retention).await;
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
        is_for_swap: bool,
        link_wait: Duration,
        ended: Ended,
    ) -> Result<(), MirrorError> {
        self.check_ready()?;
        let event = match kind {
            TransferKind::Initialize => Event::AskInitialize,
            TransferKind::Update => Event::AskUpdate,
            TransferKind::Resync => Event::AskResync,
        };
        let (next, action) = self.step(event)?;
        self.settle_back_if_seen();
        let by = if is_for_swap { RequestedBy::Swap } else { RequestedBy::Person };
        self.log(LogEvent::Request { by }, Some(kind), None).await;
        self.join(next, action, kind, link_wait, ended).await
    }

    /// What `event` makes of the state; a refusal names the volume.
    pub(super) fn step(&self, event: Event) -> Result<(RelationshipState, Action), MirrorError> {
        self.state.step(event).map_err(|refusal| refusal.of(&self.relationship.destination))
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
                self.is_asked_since = true;
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
        let (next, action) = self.step(event)?;
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

    async fn tick(&mut self) {
        self.due(RequestedBy::Schedule).await;
    }

    /// An update is due that no person has asked for.
    pub(super) async fn due(&mut self, by: RequestedBy) {
        if !self.is_probed || self.forgotten_fence.is_some() {
            self.probe().await;
        }
        if !self.is_probed || self.prepared_why().is_some() || self.forgotten_fence.is_some() {
            return;
        }
        if self.is_waiting_for_room().await {
            return;
        }
        // An objective says when the next update begins once this one is published; if it fails, there is another tick soon. Without
        // this one that takes long is followed by another at once, which brings little and takes the line from others.
        // Its group waits for it, whoever of it the objective is.
        let is_running = matches!(self.state.work, Work::Running { .. });
        if self.objective().is_some() && is_running && by != RequestedBy::Group {
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
            self.log(LogEvent::Request { by }, Some(kind), None).await;
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
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        blocking(move || engine.staging_room(&volume)).await.ok().flatten().map(|room| room.room_bytes)
    }

    /// Whether a transfer of this relationship has left something to go on with.
    async fn has_staged(&self) -> bool {
        let (engine, volume) = (self.parts.engine.clone(), self.relationship.destination.clone());
        let id = self.relationship.id;
        // Whoever cannot be asked is asked again at the next tick.
        let staged = blocking(move || engine.staged(&volume)).await;
        staged.is_ok_and(|staged| staged.iter().any(|(info, _)| info.staged_for.relationship == id))
    }

    pub(super) fn settle(&mut self, result: impl Fn() -> Result<TransferReport, MirrorError>) {
        self.set_aside.clear();
        self.let_go.clear();
        for ended in self.waiting.drain(..) {
            let _ = ended.send(result());
        }
    }

    pub(super) fn publish(&self) {
        self.enroll();
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
            session_why: self.session_why.clone().filter(|why| self.why.as_ref() == Some(why)),
            is_for_swap: self.is_for_swap && self.state.work != Work::Idle,
            is_swapping: self.is_swapping,
            stopped: self.stopped.clone().filter(|_| self.state.work != Work::BrokenOff),
            went_back: self.went_back_status(),
            current: self.current.clone(),
            shows_own_state: self.shows_own_state(),
            newest_rescue: self.newest_rescue.clone(),
            left_as: self.left_as.clone(),
            went_on_from: self.went_on_from.filter(|_| self.state.work == Work::BrokenOff),
            forecast: self.forecast(),
            queue_position: None,
            progress: None,
            source_heard: heard.map(|(heard, _)| heard),
            source_heard_at: heard.and_then(|(_, at)| at),
        });
    }
}

/// Waits until the transfer under way has published another of its snapshots than so many, or it is another transfer.
async fn another_published(progress: &mut watch::Receiver<Option<Progress>>, published: &mut u64) {
    let count = |progress: &Option<Progress>| progress.as_ref().map_or(0, |p| p.snapshots_done);
    let now = progress.wait_for(|now| count(now) != *published).await.map(|now| count(&now));
    match now {
        Ok(now) => *published = now,
        // Nobody says anything any more.
        Err(_) => std::future::pending().await,
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
