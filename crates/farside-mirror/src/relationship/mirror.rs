//! A handle on a mirror's driver.

use std::sync::Arc;
use std::time::Duration;

use farside_engine::SnapshotInfo;
use farside_link::{Bucket, throttle};
use farside_peer::PeerId;
use farside_platform::Timestamp;
use farside_transfer::limits::GONE_ATTEMPTS;
use farside_transfer::report::{Progress, TransferReport};
use farside_transfer::{Phase, TransferKind};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::Instrument;
use uuid::Uuid;

use super::command::{Command, Onto, Parts, Replaced, Replacing, Reply, RoleChangeCommand, gone};
use super::common_base::{CommonBase, Comparing, ResyncRequest, base_to_begin_from, drop_probe};
use super::driver::{Driver, Ports};
use super::rotation;
use super::status::{MirrorStatus, WentBack};
use crate::error::{MirrorError, blocking};
use crate::limits::COMMANDS_MAX;
use crate::objective::{NOT_MET, shortfall_of};
use crate::options::MirrorOptions;
use crate::retention::{self, KeptPoint, Retention};
use crate::schedule::Schedule;
use crate::state::{Event, State};
use crate::store::Relationship;

/// A mirror: a handle on its driver. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Mirror {
    parts: Parts,
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<MirrorStatus>,
    progress: watch::Receiver<Option<Progress>>,
    throttle: Arc<Bucket>,
}

/// A transfer that was asked for.
#[derive(Debug)]
pub struct Asked {
    ended: oneshot::Receiver<Result<TransferReport, MirrorError>>,
    mirror: Mirror,
    /// When whoever asked has waited long enough for it to begin.
    until: Instant,
}

/// How much later than wanted a wait may end by itself.
const OWN_END_WITHIN: Duration = Duration::from_secs(2);
/// How often whoever waits for a source looks whether anything reaches it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Asked {
    /// Waits for the end of the transfer that covers the moment of asking. `Ok` is a report of one that ran, well or
    /// not; an error says why none ran.
    pub async fn ended(self) -> Result<TransferReport, MirrorError> {
        let Asked { mut ended, mirror, until } = self;
        tokio::select! {
            ended = &mut ended => return ended.unwrap_or_else(|_| Err(gone())),
            () = tokio::time::sleep_until(until) => {}
        }
        // Without a session the wait has ended by itself. In line it may last as long as others transfer.
        if let Some(before) = mirror.in_line() {
            let volume = mirror.status().relationship.destination;
            return Err(MirrorError::State(format!(
                "the transfer of {volume} has not begun: {before}. It stays in line and begins when it has its turn; to \
                 take it out: farside mirror abort {volume}"
            )));
        }
        // Whoever joined what a schedule had asked for waits no longer than he said: that one has more patience. One of his own ends
        // by itself about now.
        tokio::select! {
            ended = &mut ended => return ended.unwrap_or_else(|_| Err(gone())),
            () = tokio::time::sleep(OWN_END_WITHIN) => {}
        }
        if mirror.waits_for_session() {
            return Err(MirrorError::NoSession(String::from(
                "none came in the time given. What the schedule asked for goes on waiting",
            )));
        }
        ended.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Mirror {
    /// Starts the driver of `relationship`. `at_once`: with a schedule, the first tick falls now (after a restart).
    pub(crate) fn start(parts: Parts, relationship: Relationship, at_once: bool) -> (Mirror, JoinHandle<()>) {
        // Whatever is logged on its behalf says which volume it is about. An error's span: no filter takes it away.
        let span = tracing::error_span!("mirror", volume = %relationship.destination);
        let (commands_tx, commands) = mpsc::channel(COMMANDS_MAX);
        let (progress_tx, progress) = watch::channel(None);
        let status = MirrorStatus {
            relationship: relationship.clone(),
            state: State::Uninitialized,
            why: None,
            current: None,
            shows_own_state: false,
            went_on_from: None,
            newest_rescue: None,
            left_as: None,
            forecast: None,
            queue_position: None,
            progress: None,
            source_heard: None,
            source_heard_at: None,
            went_back: WentBack::Unknown,
            session_why: None,
            is_for_swap: false,
            is_swapping: false,
            stopped: None,
        };
        let (status_tx, status) = watch::channel(status);
        let rate = relationship.options.throttle.rate_at(parts.clock.now());
        let throttle = Arc::new(Bucket::new(rate));
        let ports =
            Ports { commands, status: status_tx, progress: progress_tx, throttle: Arc::clone(&throttle) };
        let driver = Driver::new(parts.clone(), relationship, at_once, ports, commands_tx.downgrade());
        let driver = tokio::spawn(driver.run().instrument(span));
        (Mirror { parts, commands: commands_tx, status, progress, throttle }, driver)
    }

    /// Its status now.
    pub fn status(&self) -> MirrorStatus {
        let status = self.status.borrow().clone();
        let id = status.relationship.id;
        let forecast = status.forecast.map(|forecast| forecast.behind(self.parts.queue.wait_of(id)));
        let follows = matches!(status.state, State::Mirrored | State::Queued | State::Transferring);
        let missed = status.objective().zip(forecast.as_ref()).filter(|_| follows);
        let missed = missed.and_then(|(objective, forecast)| shortfall_of(objective, forecast));
        let waits = self.in_line().or_else(|| self.parts.groups.waits_for(id));
        let why = waits.or_else(|| status.why.clone());
        // The driver says the same by what its own updates have come to.
        let missed = missed.filter(|_| !why.as_ref().is_some_and(|why| why.contains(NOT_MET)));
        let why = why.into_iter().chain(missed).reduce(|all, more| format!("{all}; {more}"));
        let queue_position = self.parts.queue.before(id).map(|before| before.waiting + 1);
        MirrorStatus { progress: self.progress.borrow().clone(), why, forecast, queue_position, ..status }
    }

    /// A transfer has been asked for, and has not begun for want of a session.
    fn waits_for_session(&self) -> bool {
        self.progress.borrow().as_ref().is_some_and(|progress| progress.phase == Phase::Waiting)
    }

    /// Returns once nothing has reached the source for `link_wait`, and a little more: what waits by itself for that long has ended by
    /// then, and says more of it. A transfer is no word of the source: one that has begun hangs for as long as its session is kept
    /// without a connection, and what the schedule asked for then waits for the next session with its own patience.
    pub(crate) async fn out_of_reach(&self, link_wait: Duration) {
        let peer = self.status.borrow().relationship.peer;
        let mut since = Instant::now();
        while since.elapsed() < link_wait + OWN_END_WITHIN {
            tokio::time::sleep(LOOK_AGAIN).await;
            if !self.parts.links.is_away(peer) {
                since = Instant::now();
            }
        }
    }

    /// Who is before its transfer, if that waits for its turn.
    fn in_line(&self) -> Option<String> {
        let id = self.status.borrow().relationship.id;
        let before = self.parts.queue.before(id)?;
        let of = |(peer, count): &(PeerId, usize)| match self.parts.links.name_of(*peer) {
            Some(peer) => format!("{count} of {peer}"),
            None => format!("{count} of a peer that was removed"),
        };
        let under_way: usize = before.under_way.iter().map(|(_, count)| count).sum();
        let of: Vec<String> = before.under_way.iter().map(of).collect();
        let waiting = match before.waiting {
            0 => String::new(),
            waiting => format!(", and {waiting} wait before it"),
        };
        Some(format!("waits for its turn: {under_way} transfers are under way ({}){waiting}", of.join(", ")))
    }

    /// Follows the transfers: changes with every frame; none between transfers.
    pub fn progress(&self) -> watch::Receiver<Option<Progress>> {
        self.progress.clone()
    }

    /// Follows the state.
    pub fn changes(&self) -> watch::Receiver<MirrorStatus> {
        self.status.clone()
    }

    /// Waits until the driver has asked the pool what this replica is; until then the status knows nothing.
    pub(crate) async fn is_known(&self) {
        // An error means that the driver has ended, which the next command will say.
        let _ = self.status.clone().changed().await;
    }

    /// Asks for the first copy; waits for a session for at most `link_wait`. Returns when it is accepted.
    pub async fn initialize(&self, link_wait: Duration) -> Result<Asked, MirrorError> {
        self.ask(TransferKind::Initialize, false, link_wait).await
    }

    /// Asks for an update that covers this moment: during a transfer, one more.
    pub async fn update(&self, link_wait: Duration) -> Result<Asked, MirrorError> {
        self.ask(TransferKind::Update, false, link_wait).await
    }

    /// The same, without the other mirrors of its group.
    pub(crate) async fn update_alone(&self, link_wait: Duration) -> Result<Asked, MirrorError> {
        self.ask(TransferKind::Update, true, link_wait).await
    }

    async fn ask(
        &self,
        kind: TransferKind,
        is_alone: bool,
        link_wait: Duration,
    ) -> Result<Asked, MirrorError> {
        let (accepted, is_accepted) = oneshot::channel();
        let (ended_tx, ended) = oneshot::channel();
        self.send(Command::Start { kind, is_alone, link_wait, accepted, ended: ended_tx }).await?;
        is_accepted.await.unwrap_or_else(|_| Err(gone()))?;
        Ok(self.asked(ended, link_wait))
    }

    fn asked(
        &self,
        ended: oneshot::Receiver<Result<TransferReport, MirrorError>>,
        link_wait: Duration,
    ) -> Asked {
        Asked { ended, mirror: self.clone(), until: Instant::now() + link_wait }
    }

    /// No new transfers until resumed; one that runs ends by itself. Survives a restart.
    pub async fn quiesce(&self) -> Result<(), MirrorError> {
        self.send_event(Event::Quiesce).await
    }

    /// Ends the quiet.
    pub async fn resume(&self) -> Result<(), MirrorError> {
        self.send_event(Event::Resume).await
    }

    /// Ends the transfer that runs or waits; the replica is as it was.
    pub async fn abort(&self) -> Result<(), MirrorError> {
        self.send_event(Event::Abort).await
    }

    /// Makes the replica writable, as it was at the snapshot `at` (what is newer stays as a side branch), or as it is.
    /// Never asks the peer, and waits for nothing that hangs; a transfer that runs is ended. Returns when it is done,
    /// durably, or refused, with nothing changed.
    pub async fn break_off(&self, at: Option<Uuid>) -> Result<(), MirrorError> {
        self.break_and_name(at, None).await.map(drop)
    }

    /// The same. Answers the name of that side branch, if there is one: of `moment`, where one is given, or of now.
    pub async fn break_and_name(
        &self,
        at: Option<Uuid>,
        moment: Option<Timestamp>,
    ) -> Result<Option<String>, MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Break { at, moment, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// A resync of its volume was asked for and did not begin: whoever looks later finds why in status, history and log.
    pub async fn note_not_resynced(&self, why: String) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::NotResynced { why, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// That a person has asked something of the group that it is in, and has seen what there is to be seen of this one, too: a source that
    /// went back.
    pub async fn seen(&self) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Seen { done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// A person has moved the volume to another point, which is possible once it is broken off: that is what it shows, and what the
    /// source is told that hosts go on from.
    pub async fn moved(&self) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Moved { done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn send_event(&self, event: Event) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Event { event, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Changes the schedule from now on; the one that is there goes on.
    pub async fn set_schedule(&self, schedule: Schedule) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::SetSchedule { schedule, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Changes what transfers may take of the link: the throttle from now on, the rest with the next data stream.
    pub async fn set_options(&self, options: MirrorOptions) -> Result<(), MirrorError> {
        options.check()?;
        let (done, is_done) = oneshot::channel();
        self.send(Command::SetOptions { options, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Changes which of the points that were published stay, from now on; what it does not name goes. None at all
    /// leaves what is kept by now to persons.
    pub async fn set_retention(&self, retention: Retention) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::SetRetention { retention, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Which of the points that are kept by now another retention would let go, oldest first, and how many there are.
    pub async fn would_let_go(
        &self,
        retention: &Retention,
    ) -> Result<(Vec<SnapshotInfo>, usize), MirrorError> {
        let status = self.status();
        if status.state == State::BrokenOff {
            // Nothing rotates where hosts write, and all of it at once when that ends.
            return rotation::would_let_go_then(&self.parts, &status.relationship, retention, None, 1).await;
        }
        rotation::would_let_go(&self.parts, &status.relationship, retention).await
    }

    /// Puts it into a group of mirrors, or takes it out of the one that it is in.
    pub async fn set_group(&self, group: Option<String>) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::SetGroup { group, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Whether the retention keeps this point whatever happens, also if a person wants to delete it. Of a mirror that is broken off it
    /// keeps nothing from a person: nothing rotates there.
    pub async fn is_floor(&self, snapshot: Uuid) -> Result<bool, MirrorError> {
        if self.status().state == State::BrokenOff {
            return Ok(false);
        }
        let Relationship { id, destination, retention, .. } = self.status().relationship;
        let engine = self.parts.engine.clone();
        let kept =
            blocking(move || Ok::<_, MirrorError>(rotation::kept(&*engine, &destination, id)?)).await?;
        let point =
            |s: &SnapshotInfo| KeptPoint { snapshot: s.uuid, at: s.created_at, noted_at: s.created_at };
        let points: Vec<KeptPoint> = kept.iter().map(point).collect();
        Ok(retention::is_floor(&points, snapshot, &retention))
    }

    /// Has the throttle be what it is at this hour; to be called each minute.
    pub fn follow_throttle(&self) {
        let rules = &self.status.borrow().relationship.options.throttle;
        self.throttle.set_rate(throttle::clock(), rules.rate_at(self.parts.clock.now()));
    }

    /// Ends the relationship and the driver: the volume stays, no longer a replica; the source is told if it can be.
    pub(crate) async fn delete(&self) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Delete { done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn send(&self, command: Command) -> Result<(), MirrorError> {
        self.commands.send(command).await.map_err(|_| gone())
    }

    /// Makes a mirror that was broken off follow its source again, from the newest snapshot that both hold; what hosts have
    /// written here since stays as a side branch. Waits for a session for at most `link_wait` to ask for that snapshot:
    /// without one nothing is changed. Refused while a host has the volume open for writing. From the moment this
    /// returns the volume is read-only; it shows its own last state until the transfer has brought the source's. Should
    /// that fail it is tried again by the schedule, or by asking again; `break` gives the volume back as it was.
    pub async fn resync(&self, link_wait: Duration) -> Result<Asked, MirrorError> {
        self.resync_as_asked(&ResyncRequest::new(Comparing::CommonPoint, link_wait)).await
    }

    /// The same; with [`Comparing::Everything`] also where the two have no point in common.
    pub async fn resync_as_asked(&self, request: &ResyncRequest) -> Result<Asked, MirrorError> {
        for _ in 1..GONE_ATTEMPTS {
            match self.resync_once(request).await {
                // What was chosen has been deleted by whoever it was kept for.
                Err(error) if error.is_not_found() => {}
                asked => return asked,
            }
        }
        self.resync_once(request).await
    }

    async fn resync_once(&self, request: &ResyncRequest) -> Result<Asked, MirrorError> {
        let relationship = self.status().relationship;
        let common = base_to_begin_from(&self.parts, &relationship, request).await?;
        let probe = common.probe;
        let asked = self.resync_onto(common, None, request).await;
        if asked.is_err() {
            // What was taken to be compared is no version of the source's: a break would take it for one.
            drop_probe(&self.parts, &relationship, probe).await;
        }
        asked
    }

    /// The same from a base that was found before. The relationship may take the place of another.
    pub(crate) async fn resync_onto(
        &self,
        common: CommonBase,
        replaces: Option<Replacing>,
        request: &ResyncRequest,
    ) -> Result<Asked, MirrorError> {
        let ResyncRequest { link_wait, set_aside_at, .. } = *request;
        let (accepted, is_accepted) = oneshot::channel();
        let (ended_tx, ended) = oneshot::channel();
        let CommonBase { base, newest, follows, .. } = common;
        self.send(Command::Resync {
            onto: Onto { base: base.uuid, replaces, newest, follows, set_aside_at },
            link_wait,
            accepted,
            ended: ended_tx,
        })
        .await?;
        is_accepted.await.unwrap_or_else(|_| Err(gone()))?;
        Ok(self.asked(ended, link_wait))
    }

    /// Stops what goes on, for another relationship to take this one's place. The decision may be dropped; then it goes on.
    pub(crate) async fn step_aside(&self) -> Result<oneshot::Sender<Replaced>, MirrorError> {
        let (aside, is_aside) = oneshot::channel();
        let (decision, decided) = oneshot::channel();
        self.send(Command::StepAside { aside, decision: decided }).await?;
        is_aside.await.unwrap_or_else(|_| Err(gone()))?;
        Ok(decision)
    }

    pub(crate) async fn change_roles<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> RoleChangeCommand,
    ) -> Result<T, MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::RoleChange(command(done))).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }
}
