//! A mirror as others see it at its destination: a handle on its driver, and its status.
//!
//! The driver (`driver.rs`) is a task that owns the mirror's standing. What survives a restart is not there: configuration is in
//! the [`RelationshipStore`], whether there is a base and whether it is broken off in the pool.

mod driver;
mod herald;
mod leave;
mod log;
mod look;
mod resync;
mod turn;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farside_engine::{ContentRoot, Engine};
use farside_platform::{Clock, Randomness, Timestamp};
use farside_session::{Bucket, throttle};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;

use crate::destination::Links;
use crate::error::MirrorError;
use crate::limits::COMMANDS_MAX;
use crate::queue::TransferQueue;
use crate::report::{Progress, TransferReport};
use crate::schedule::Schedule;
use crate::source::SourceService;
use crate::state::{Event, State, TransferKind};
use crate::store::{Relationship, RelationshipStore};
use crate::terms::MirrorTerms;

pub(crate) use herald::{newest_in, swap_message};
pub(crate) use resync::{candidates, common_base};
pub(crate) use turn::TurnCommand;

/// The version that readers of a replica see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Published {
    /// The snapshot's name here.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// When the data was so at its origin.
    pub created_at: Timestamp,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Its content root, as computed here before it was published.
    pub content_root: ContentRoot,
}

/// A mirror as `mirror status` shows it.
#[derive(Clone, Debug)]
pub struct MirrorStatus {
    /// Its configuration.
    pub relationship: Relationship,
    /// Its state.
    pub state: State,
    /// Why it is not doing what it should, or what stands in its way.
    pub why: Option<String>,
    /// The version it shows; also the base of the next update.
    pub current: Option<Published>,
    /// The transfer under way or waiting.
    pub progress: Option<Progress>,
}

impl MirrorStatus {
    /// Age of the replica's data, seconds; none while there is none. Grows until an update proves otherwise, even if
    /// nothing changes at the source.
    pub fn lag_seconds(&self, now: Timestamp) -> Option<f64> {
        self.current.as_ref().map(|c| now.seconds_since(c.created_at))
    }
}

/// What the driver works with.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) links: Arc<dyn Links>,
    pub(crate) store: Arc<dyn RelationshipStore>,
    pub(crate) source: Arc<SourceService>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) randomness: Arc<dyn Randomness>,
    pub(crate) queue: TransferQueue,
    /// Ends the driver, whoever still holds a handle.
    pub(crate) stop: CancellationToken,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

type Ended = oneshot::Sender<Result<TransferReport, MirrorError>>;

enum Command {
    /// Initialize or update; `ended` hears of the transfer that covers this moment.
    Ask {
        kind: TransferKind,
        link_wait: Duration,
        accepted: oneshot::Sender<Result<(), MirrorError>>,
        ended: Ended,
    },
    /// To follow the source again, from a common base that was found with it.
    Resync {
        base: Uuid,
        link_wait: Duration,
        accepted: oneshot::Sender<Result<(), MirrorError>>,
        ended: Ended,
    },
    Break {
        at: Option<Uuid>,
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
    Turn(turn::TurnCommand),
    Tell {
        event: Event,
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
    SetSchedule {
        schedule: Schedule,
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
    SetTerms {
        terms: MirrorTerms,
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
    Delete {
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
}

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
}

impl Asked {
    /// Waits for the end of the transfer that covers the moment of asking. `Ok` is a report of one that ran, well or
    /// not; an error says why none ran.
    pub async fn ended(self) -> Result<TransferReport, MirrorError> {
        self.ended.await.unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> MirrorError {
    MirrorError::State("the mirror was deleted, or the daemon is stopping".into())
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
            progress: None,
        };
        let (status_tx, status) = watch::channel(status);
        let rate = relationship.terms.throttle.rate_at(parts.clock.now());
        let throttle = Arc::new(Bucket::new(rate));
        let ports = driver::Ports {
            commands,
            status: status_tx,
            progress: progress_tx,
            throttle: Arc::clone(&throttle),
        };
        let driver =
            driver::Driver::new(parts.clone(), relationship, at_once, ports, commands_tx.downgrade());
        let driver = tokio::spawn(driver.run().instrument(span));
        (Mirror { parts, commands: commands_tx, status, progress, throttle }, driver)
    }

    /// Its status now.
    pub fn status(&self) -> MirrorStatus {
        let status = self.status.borrow().clone();
        MirrorStatus { progress: self.progress.borrow().clone(), ..status }
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
        self.ask(TransferKind::Initialize, link_wait).await
    }

    /// Asks for an update that covers this moment: during a transfer, one more.
    pub async fn update(&self, link_wait: Duration) -> Result<Asked, MirrorError> {
        self.ask(TransferKind::Update, link_wait).await
    }

    async fn ask(&self, kind: TransferKind, link_wait: Duration) -> Result<Asked, MirrorError> {
        let (accepted, is_accepted) = oneshot::channel();
        let (ended_tx, ended) = oneshot::channel();
        self.send(Command::Ask { kind, link_wait, accepted, ended: ended_tx }).await?;
        is_accepted.await.unwrap_or_else(|_| Err(gone()))?;
        Ok(Asked { ended })
    }

    /// No new transfers until resumed; one that runs ends by itself. Survives a restart.
    pub async fn quiesce(&self) -> Result<(), MirrorError> {
        self.tell(Event::Quiesce).await
    }

    /// Ends the quiet.
    pub async fn resume(&self) -> Result<(), MirrorError> {
        self.tell(Event::Resume).await
    }

    /// Ends the transfer that runs or waits; the replica is as it was.
    pub async fn abort(&self) -> Result<(), MirrorError> {
        self.tell(Event::Abort).await
    }

    /// Makes the replica writable, as it was at the snapshot `at` (what is newer stays as a side branch), or as it is.
    /// Never asks the peer, and waits for nothing that hangs; a transfer that runs is ended. Returns when it is done,
    /// durably, or refused, with nothing changed.
    pub async fn break_off(&self, at: Option<Uuid>) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Break { at, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn tell(&self, event: Event) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::Tell { event, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Changes the schedule from now on.
    pub async fn set_schedule(&self, schedule: Schedule) -> Result<(), MirrorError> {
        let (done, is_done) = oneshot::channel();
        self.send(Command::SetSchedule { schedule, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Changes what transfers may take of the link: the throttle from now on, the rest with the next data stream.
    pub async fn set_terms(&self, terms: MirrorTerms) -> Result<(), MirrorError> {
        terms.check()?;
        let (done, is_done) = oneshot::channel();
        self.send(Command::SetTerms { terms, done }).await?;
        is_done.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Has the throttle be what it is at this hour; to be called each minute.
    pub fn follow_throttle(&self) {
        let rules = &self.status.borrow().relationship.terms.throttle;
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
}
