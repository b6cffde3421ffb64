//! What goes on for a mirror: a transfer that waits for a session and its turn, or one that runs.

use std::sync::Arc;
use std::time::Duration;

use farside_peer::PeerLink;
use farside_transfer::destination::Outcome;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::error::MirrorError;
use crate::group::turn::Turn;
use crate::queue::UnderWay;

/// A turn and a session: what a transfer needs to start.
pub(super) struct Ready {
    pub(super) place: UnderWay,
    pub(super) link: Arc<dyn PeerLink>,
    /// Since when there was a session, on monotonic time.
    pub(super) connected: Duration,
    /// The source has taken the snapshot of the transfer while it waited: the transfer's id, and when, on monotonic time.
    pub(super) reserved: Option<(Uuid, Duration)>,
    /// Its turn in an update of its group.
    pub(super) turn: Option<Turn>,
}

pub(super) enum Activity {
    None,
    Waiting {
        task: JoinHandle<Result<Ready, MirrorError>>,
        until: watch::Sender<Instant>,
    },
    Running {
        task: JoinHandle<Ran>,
        cancel: CancellationToken,
        /// Its turn in an update of its group.
        turn: Option<Arc<Turn>>,
    },
}

/// A transfer that has ended.
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    /// It was asked to give its place to another.
    pub(super) gave_way: bool,
}

/// What an activity ended with.
pub(super) enum Ending {
    Waited(Result<Ready, MirrorError>),
    Ran(Result<Box<Ran>, MirrorError>),
}

impl Activity {
    /// What runs brings the part that the update of the group waits for, and has not brought it yet.
    pub(super) fn is_of_group_update(&self) -> bool {
        matches!(self, Activity::Running { turn: Some(turn), .. } if turn.is_waited_for())
    }

    /// The end of what goes on; never, if nothing does. Cancel-safe.
    pub(super) async fn ended(&mut self) -> Ending {
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
