//! Long work that was asked for over the API: it goes on whether or not anybody watches, and can be asked after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use farside_api::{self as api, ErrorBody, ErrorCode, Operation, OperationState};
use farside_engine::VolumeName;
use farside_mirror::{Mirror, MirrorError, TransferReport, TransferResult};
use farside_platform::Clock;
use farside_session::{Node, PeerId, PeerState};
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::failure::Failure;
use crate::words;

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
    mirror: Mirror,
    peer: PeerId,
}

/// Initialize or update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// The first copy.
    Initialize,
    /// An update that covers the moment of asking.
    Update,
}

impl Operations {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Operations {
        Operations { entries: Arc::default(), tasks: TaskTracker::new(), clock }
    }

    /// Asks `mirror` for a transfer. Returns once it is accepted; a refusal by its state is the error.
    pub(crate) async fn start(
        &self,
        node: &Node,
        mirror: Mirror,
        work: Work,
        patience: Duration,
    ) -> Result<Operation, ErrorBody> {
        let peer = mirror.status().relationship.peer;
        let volume = mirror.status().relationship.destination;
        let id = self.admit(&volume, &mirror, peer, work)?;
        let asked = match work {
            Work::Initialize => mirror.initialize(patience).await,
            Work::Update => mirror.update(patience).await,
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => {
                self.entries.lock().remove(&id);
                return Err(error.tell());
            }
        };
        let (entries, clock) = (Arc::clone(&self.entries), Arc::clone(&self.clock));
        self.tasks.spawn(async move {
            // The driver itself begins anew when only the session was to blame.
            let outcome = asked.ended().await;
            settle(&entries, &*clock, id, outcome);
        });
        self.status(node, id)
    }

    /// Enters a new operation, if there is room.
    fn admit(
        &self,
        volume: &VolumeName,
        mirror: &Mirror,
        peer: PeerId,
        work: Work,
    ) -> Result<Uuid, ErrorBody> {
        let mut entries = self.entries.lock();
        let running = entries.values().filter(|e| e.document.state == OperationState::Running).count();
        if running >= RUNNING_MAX {
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("{RUNNING_MAX} operations are under way already"),
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
            kind: match work {
                Work::Initialize => api::OperationKind::Initialize,
                Work::Update => api::OperationKind::Update,
            },
            phase: None,
            volume: volume.to_string(),
            state: OperationState::Running,
            started_at: words::time(self.clock.now()),
            ended_at: None,
            transfer: None,
            session_lost_seconds: None,
            record: None,
            error: None,
        };
        entries.insert(id, Entry { document, mirror: mirror.clone(), peer });
        Ok(id)
    }

    /// How far an operation is.
    pub(crate) fn status(&self, node: &Node, id: Uuid) -> Result<Operation, ErrorBody> {
        let entries = self.entries.lock();
        let entry = entries.get(&id).ok_or_else(|| {
            ErrorBody::new(ErrorCode::NotFound, format!("operation {id} is not known"))
                .hint("the daemon may have been restarted; farside mirror status and history tell what became of it")
        })?;
        Ok(self.document(node, entry))
    }

    /// All that are known, oldest first.
    pub(crate) fn list(&self, node: &Node) -> Vec<Operation> {
        self.entries.lock().values().map(|entry| self.document(node, entry)).collect()
    }

    fn document(&self, node: &Node, entry: &Entry) -> Operation {
        let mut document = entry.document.clone();
        if document.state == OperationState::Running {
            document.transfer = entry.mirror.status().progress.as_ref().map(words::transfer);
            document.session_lost_seconds = self.session_lost_seconds(node, entry);
        }
        document
    }

    fn session_lost_seconds(&self, node: &Node, entry: &Entry) -> Option<f64> {
        let state = session(node, entry.peer);
        if state.as_ref().is_some_and(|state| state.connected) {
            return None;
        }
        // Never connected since the start: as long as the operation has waited.
        let since = state
            .and_then(|state| state.since)
            .unwrap_or_else(|| words::timestamp(entry.document.started_at));
        Some(self.clock.now().seconds_since(since))
    }

    /// Waits for what is under way; the mirrors have been told to stop.
    pub(crate) async fn finish(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

fn session(node: &Node, peer: PeerId) -> Option<PeerState> {
    node.watch(peer).map(|state| state.borrow().clone())
}

fn settle(
    entries: &Mutex<BTreeMap<Uuid, Entry>>,
    clock: &dyn Clock,
    id: Uuid,
    outcome: Result<TransferReport, MirrorError>,
) {
    let mut entries = entries.lock();
    let Some(entry) = entries.get_mut(&id) else {
        return;
    };
    let document = &mut entry.document;
    document.ended_at = Some(words::time(clock.now()));
    document.state = OperationState::Failed;
    match outcome {
        Ok(report) => {
            if report.result == TransferResult::Ok {
                document.state = OperationState::Done;
            } else {
                let reason =
                    report.reason.clone().unwrap_or_else(|| String::from("it ended without a reason"));
                // An abort too: the state did not forbid the transfer, somebody ended it.
                document.error = Some(
                    ErrorBody::new(ErrorCode::Failed, format!("{} of {}: {reason}", report.kind, document.volume))
                        .hint("farside mirror history has the figures; the replica is as it was, or at the last point that arrived whole"),
                );
            }
            document.record = Some(words::record(&report));
        }
        Err(error) => document.error = Some(error.tell()),
    }
}
