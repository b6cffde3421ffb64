//! Long work that was asked for over the API: it goes on whether or not anybody watches, and can be asked after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farside_api::{
    ErrorBody, ErrorCode, Operation, OperationKind, OperationState, SwapPhase, TransferRecord,
};
use farside_engine::VolumeName;
use farside_mirror::{MirrorStatus, State, SwapMark};
use farside_peer::{Node, PeerId, PeerState};
use farside_platform::Clock;
use farside_transfer::{TransferReport, TransferResult};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::mirrors::Mirrors;
use crate::{convert, plans};

/// Operations under way at the same time.
const RUNNING_MAX: usize = 256;
/// Ended operations that can still be asked after.
const ENDED_MAX: usize = 256;
/// How long a lost session is waited for, unless whoever asks says otherwise.
pub(crate) const PATIENCE_DEFAULT: Duration = Duration::from_secs(60);

/// The operations of this daemon.
pub(crate) struct Operations {
    entries: Arc<Mutex<BTreeMap<Uuid, Entry>>>,
    tasks: TaskTracker,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Operations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operations").field("known", &self.entries.lock().len()).finish_non_exhaustive()
    }
}

struct Entry {
    document: Operation,
    volume: VolumeName,
    peer: PeerId,
    waiting: Option<Arc<Waiting>>,
}

/// Whether work has begun that changes a role once there is a session. Until then nothing is changed, and it can be given up: a person
/// who has seen that it was the wrong way must not find it done when the other site is back.
#[derive(Debug)]
pub(crate) struct Waiting {
    beginning: Mutex<Beginning>,
    /// Ends the wait of what was given up.
    given_up: CancellationToken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Beginning {
    Waits,
    Begun,
    GivenUp,
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting { beginning: Mutex::new(Beginning::Waits), given_up: CancellationToken::new() }
    }
}

impl Waiting {
    /// It begins now, or has begun, unless it was given up: then this answers no.
    pub(crate) fn begin(&self) -> bool {
        let mut now = self.beginning.lock();
        if *now == Beginning::Waits {
            *now = Beginning::Begun;
        }
        *now == Beginning::Begun
    }

    /// Cancelled when it is given up.
    pub(crate) fn given_up(&self) -> CancellationToken {
        self.given_up.clone()
    }

    fn give_up(&self) -> bool {
        let mut now = self.beginning.lock();
        let waits = *now == Beginning::Waits;
        if waits {
            *now = Beginning::GivenUp;
            self.given_up.cancel();
        }
        waits
    }

    fn waits(&self) -> bool {
        *self.beginning.lock() == Beginning::Waits
    }
}

/// What an operation works for.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// The volume here.
    pub(crate) volume: VolumeName,
    /// Whose session it needs.
    pub(crate) peer: PeerId,
    /// What is done.
    pub(crate) kind: OperationKind,
    /// It waits for a session before it begins, and can be given up until then.
    pub(crate) waiting: Option<Arc<Waiting>>,
}

impl Subject {
    /// Of what begins at once.
    pub(crate) fn new(volume: VolumeName, peer: PeerId, kind: OperationKind) -> Subject {
        Subject { volume, peer, kind, waiting: None }
    }
}

impl Operations {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Operations {
        Operations { entries: Arc::default(), tasks: TaskTracker::new(), clock }
    }

    /// Begins long work: `accepted` says whether it may begin, and what remains to be done then. Returns once it is
    /// accepted; a refusal is the error.
    pub(crate) async fn start<W>(
        &self,
        subject: Subject,
        accepted: impl Future<Output = Result<W, ErrorBody>>,
    ) -> Result<Uuid, ErrorBody>
    where
        W: Future<Output = Result<TransferReport, ErrorBody>> + Send + 'static,
    {
        let id = self.admit(subject)?;
        let work = accepted.await.inspect_err(|_| {
            self.entries.lock().remove(&id);
        })?;
        let (entries, clock) = (Arc::clone(&self.entries), Arc::clone(&self.clock));
        self.tasks.spawn(async move {
            let outcome = work.await;
            settle(&entries, &*clock, id, outcome);
        });
        Ok(id)
    }

    /// Why no role change of the volume may begin: one is under way, perhaps with its first update only, which its mirror does not
    /// know it by.
    pub(crate) fn running_swap(&self, volume: &VolumeName) -> Option<ErrorBody> {
        swap_among(&self.entries.lock(), volume)
    }

    /// Enters a new operation, if there is room.
    fn admit(&self, subject: Subject) -> Result<Uuid, ErrorBody> {
        let mut entries = self.entries.lock();
        // A second one would fail, and be the last that is known of the volume.
        if subject.kind == OperationKind::Swap
            && let Some(error) = swap_among(&entries, &subject.volume)
        {
            return Err(error);
        }
        let running = entries.values().filter(|e| e.document.state == OperationState::Running).count();
        if running >= RUNNING_MAX {
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("{RUNNING_MAX} operations are running already"),
            )
            .hint("wait for some to end; scheduled updates go on in any case"));
        }
        // Version 7 ids are in order of time: the first that ended is the oldest.
        while entries.len() >= RUNNING_MAX + ENDED_MAX {
            let oldest =
                entries.iter().find(|(_, e)| e.document.state != OperationState::Running).map(|(id, _)| *id);
            match oldest {
                Some(id) => entries.remove(&id),
                None => break,
            };
        }
        let id = Uuid::now_v7();
        let document = Operation {
            id,
            kind: subject.kind,
            phase: (subject.kind == OperationKind::Swap).then_some(SwapPhase::Update),
            volume: subject.volume.to_string(),
            state: OperationState::Running,
            started_at: convert::time(self.clock.now()),
            ended_at: None,
            transfer: None,
            session_lost_seconds: None,
            waits_to_begin: false,
            record: None,
            error: None,
        };
        let Subject { volume, peer, waiting, .. } = subject;
        entries.insert(id, Entry { document, volume, peer, waiting });
        Ok(id)
    }

    /// How far an operation is.
    pub(crate) fn status(&self, node: &Node, mirrors: &Mirrors, id: Uuid) -> Result<Operation, ErrorBody> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(&id).ok_or_else(|| {
            ErrorBody::new(ErrorCode::NotFound, format!("operation {id} is not known")).hint(
                "the daemon may have been restarted; farside mirror status and history say what became of it",
            )
        })?;
        Ok(self.document(node, mirrors, entry))
    }

    /// All that are known, oldest first.
    pub(crate) fn list(&self, node: &Node, mirrors: &Mirrors) -> Vec<Operation> {
        self.entries.lock().values_mut().map(|entry| self.document(node, mirrors, entry)).collect()
    }

    fn document(&self, node: &Node, mirrors: &Mirrors, entry: &mut Entry) -> Operation {
        let mut document = entry.document.clone();
        if document.state == OperationState::Running {
            // A resync makes its mirror on the way.
            if let Ok(mirror) = mirrors.mirror(&entry.volume) {
                let status = mirror.status();
                let now = self.clock.monotonic();
                document.transfer = status.progress.as_ref().map(|progress| convert::transfer(progress, now));
                document.phase = document.phase.map(|before| swap_phase(before, &status));
                entry.document.phase = document.phase;
            }
            document.session_lost_seconds = self.session_lost_seconds(node, entry);
            document.waits_to_begin = entry.waiting.as_ref().is_some_and(|waiting| waiting.waits());
        }
        document
    }

    /// Gives up what was asked for of a volume and has not begun. Answers whether there was any.
    pub(crate) fn give_up(&self, volume: &VolumeName) -> bool {
        let entries = self.entries.lock();
        // One that has ended begins no more, and is no reason to leave alone what runs.
        let running = entries.values().filter(|entry| entry.document.state == OperationState::Running);
        let waiting = running.filter(|entry| entry.volume == *volume).filter_map(|e| e.waiting.as_ref());
        // All of them: a second request waits as the first does.
        waiting.filter(|waiting| waiting.give_up()).count() > 0
    }

    /// What was asked for and has not begun: the volume, and whose session it waits for.
    pub(crate) fn waiting(&self) -> Vec<(VolumeName, PeerId)> {
        let entries = self.entries.lock();
        let waits = |entry: &&Entry| entry.waiting.as_ref().is_some_and(|waiting| waiting.waits());
        let running = entries.values().filter(|entry| entry.document.state == OperationState::Running);
        running.filter(waits).map(|entry| (entry.volume.clone(), entry.peer)).collect()
    }

    fn session_lost_seconds(&self, node: &Node, entry: &Entry) -> Option<f64> {
        let state = session(node, entry.peer);
        if state.as_ref().is_some_and(|state| state.connected) {
            return None;
        }
        // Never connected since the start: as long as the operation has waited.
        let since = state
            .and_then(|state| state.since)
            .unwrap_or_else(|| convert::timestamp(entry.document.started_at));
        Some(self.clock.now().seconds_since(since))
    }

    /// Waits for what is under way; the mirrors have been told to stop.
    pub(crate) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn swap_among(entries: &BTreeMap<Uuid, Entry>, volume: &VolumeName) -> Option<ErrorBody> {
    let is_it = |entry: &Entry| {
        let Operation { kind, state, .. } = entry.document;
        entry.volume == *volume && kind == OperationKind::Swap && state == OperationState::Running
    };
    entries.values().any(is_it).then(|| {
        ErrorBody::new(
            ErrorCode::Refused,
            format!("a role change is already running; farside mirror wait {volume} waits for it"),
        )
    })
}

fn session(node: &Node, peer: PeerId) -> Option<PeerState> {
    node.watch(peer).map(|state| state.borrow().clone())
}

/// How far a role change is, from what its mirror shows; never back to what is over.
fn swap_phase(before: SwapPhase, status: &MirrorStatus) -> SwapPhase {
    let has_begun = matches!(status.relationship.swap, Some(SwapMark::Swapping { .. }));
    match (before, status.state) {
        (_, State::BrokenOff) => SwapPhase::Notify,
        (SwapPhase::Update, _) if !has_begun => SwapPhase::Update,
        (SwapPhase::Update | SwapPhase::Fence, _) if status.progress.is_none() => SwapPhase::Fence,
        (SwapPhase::LastUpdate, _) if status.progress.is_none() => SwapPhase::Takeover,
        (SwapPhase::Update | SwapPhase::Fence | SwapPhase::LastUpdate, _) => SwapPhase::LastUpdate,
        (SwapPhase::Takeover | SwapPhase::Notify, _) => before,
    }
}

fn settle(
    entries: &Mutex<BTreeMap<Uuid, Entry>>,
    clock: &dyn Clock,
    id: Uuid,
    outcome: Result<TransferReport, ErrorBody>,
) {
    let mut entries = entries.lock();
    let Some(entry) = entries.get_mut(&id) else {
        return;
    };
    let document = &mut entry.document;
    document.ended_at = Some(convert::time(clock.now()));
    document.state = OperationState::Failed;
    match outcome {
        Ok(report) => {
            if report.result == TransferResult::Ok {
                document.state = OperationState::Done;
            } else {
                let reason =
                    report.reason.clone().unwrap_or_else(|| String::from("it ended without a reason"));
                // What failed after its first snapshots may have set something aside.
                let set_aside = report
                    .set_aside
                    .iter()
                    .map(|name| format!(". What {0} showed before stays as {0}@{name}", document.volume));
                let set_aside: String = set_aside.collect();
                // An abort too: the state did not forbid the transfer, somebody ended it.
                let error = ErrorBody::new(
                    ErrorCode::Failed,
                    format!("{} of {}: {reason}{set_aside}", report.kind, document.volume),
                );
                document.error = Some(match document.kind {
                    // It shows what hosts wrote to it until then, or some of what has come: the role has changed all the same.
                    OperationKind::Resync => plans::after_role_change(
                        error.hint("farside mirror history has the figures"),
                        &document.volume,
                        !plans::has_crossed(&reason),
                    ),
                    _ => error.hint(
                        "farside mirror history has the figures; the replica is unchanged, or shows the last \
                             snapshot that arrived completely",
                    ),
                });
            }
            let volume = Some(document.volume.clone());
            document.record = Some(TransferRecord { volume, ..convert::record(&report) });
        }
        Err(error) => document.error = Some(error),
    }
}

#[cfg(test)]
mod tests {
    use farside_mirror::{Relationship, Schedule, WentBack};
    use farside_transfer::{Progress, TransferKind};

    use super::*;

    #[test]
    fn a_second_role_change_is_refused_and_does_not_become_the_last_that_is_known() {
        let operations = Operations::new(Arc::new(farside_platform::SystemClock::default()));
        let swap = |volume: &str| Subject::new(volume.parse().unwrap(), PeerId([0; 32]), OperationKind::Swap);
        let first = operations.admit(swap("q/v")).unwrap();
        let refused = operations.admit(swap("q/v")).err().unwrap();
        assert_eq!(refused.code, ErrorCode::Refused);
        assert!(refused.message.contains("a role change is already running"), "{}", refused.message);
        assert!(refused.message.contains("farside mirror wait q/v"), "{}", refused.message);
        assert_eq!(operations.entries.lock().keys().copied().collect::<Vec<_>>(), [first]);
        assert!(operations.admit(swap("q/other")).is_ok());
        // Once it is over another may begin.
        operations.entries.lock().get_mut(&first).unwrap().document.state = OperationState::Done;
        assert!(operations.running_swap(&"q/v".parse().unwrap()).is_none());
        assert!(operations.admit(swap("q/v")).is_ok());
    }

    #[test]
    fn what_has_not_begun_is_given_up_or_begins_and_never_both() {
        let operations = Operations::new(Arc::new(farside_platform::SystemClock::default()));
        let volume: VolumeName = "q/v".parse().unwrap();
        let admit = |waiting: &Arc<Waiting>| {
            let subject = Subject::new(volume.clone(), PeerId([0; 32]), OperationKind::Resync);
            operations.admit(Subject { waiting: Some(Arc::clone(waiting)), ..subject }).unwrap()
        };
        let (first, second) = (Arc::new(Waiting::default()), Arc::new(Waiting::default()));
        admit(&first);
        assert_eq!(operations.waiting().len(), 1);
        assert!(operations.give_up(&volume) && !first.begin(), "who was given up does not begin");
        assert!(!operations.give_up(&volume), "there is no other");
        admit(&second);
        assert!(second.begin() && !operations.give_up(&volume) && second.begin(), "what has begun goes on");
        assert!(operations.waiting().is_empty());
        // Nor is one that has ended without having begun.
        let third = Arc::new(Waiting::default());
        let id = admit(&third);
        let failed = Err(ErrorBody::new(ErrorCode::PeerUnreachable, "no session"));
        settle(&operations.entries, &*operations.clock, id, failed);
        assert!(!operations.give_up(&volume) && operations.waiting().is_empty());
    }

    #[test]
    fn a_role_change_goes_through_its_phases_in_order() {
        let relationship = Relationship::new(
            Uuid::nil(),
            PeerId([0; 32]),
            "p/v".parse().unwrap(),
            "q/v".parse().unwrap(),
            Schedule::OnRequest,
        );
        let mut status = MirrorStatus {
            relationship,
            state: State::Mirrored,
            why: None,
            forecast: None,
            queue_position: None,
            current: None,
            shows_own_state: false,
            went_on_from: None,
            newest_rescue: None,
            left_as: None,
            progress: None,
            source_heard: None,
            source_heard_at: None,
            went_back: WentBack::Unknown,
            session_why: None,
            is_for_swap: false,
            is_swapping: false,
            stopped: None,
        };
        let transfer = Some(Progress::waiting(TransferKind::Update));
        let mut phase = SwapPhase::Update;
        let mut step = |status: &MirrorStatus| {
            phase = swap_phase(phase, status);
            phase
        };
        status.progress.clone_from(&transfer);
        assert_eq!(step(&status), SwapPhase::Update);
        status.progress = None;
        assert_eq!(step(&status), SwapPhase::Update);
        status.relationship.swap = Some(SwapMark::Swapping { reverse: Uuid::nil() });
        assert_eq!(step(&status), SwapPhase::Fence);
        status.progress = transfer;
        assert_eq!(step(&status), SwapPhase::LastUpdate);
        status.progress = None;
        assert_eq!(step(&status), SwapPhase::Takeover);
        status.state = State::BrokenOff;
        assert_eq!(step(&status), SwapPhase::Notify);
    }
}
