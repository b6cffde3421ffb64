//! What a mirror's driver works with, and what it is told.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use farside_engine::Engine;
use farside_platform::{Clock, Randomness, Timestamp};
use farside_transfer::TransferKind;
use farside_transfer::protocol::convert::{CandidateBase, Place, Upstream};
use farside_transfer::report::TransferReport;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::destination::Endings;
use crate::error::MirrorError;
use crate::group::Groups;
use crate::links::Links;
use crate::options::MirrorOptions;
use crate::queue::TransferQueue;
use crate::replica_limits::ReplicaLimits;
use crate::retention::Retention;
use crate::schedule::Schedule;
use crate::source::{Overtaker, ReverseAccepted, SourceService};
use crate::state::Event;
use crate::store::RelationshipStore;

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
    pub(crate) endings: Arc<Endings>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) limits: ReplicaLimits,
    /// Ends the driver, whoever still holds a handle.
    pub(crate) stop: CancellationToken,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parts")
    }
}

pub(crate) type Ended = oneshot::Sender<Result<TransferReport, MirrorError>>;

/// What a driver is told.
pub(crate) enum Command {
    /// Initialize or update; `ended` is notified of the transfer that covers this moment.
    Start {
        kind: TransferKind,
        /// Without its group: it comes before a role change, which each mirror makes by itself.
        is_alone: bool,
        link_wait: Duration,
        accepted: oneshot::Sender<Result<(), MirrorError>>,
        ended: Ended,
    },
    /// To follow the source again, from a common base that was found with it.
    Resync {
        onto: Onto,
        link_wait: Duration,
        accepted: oneshot::Sender<Result<(), MirrorError>>,
        ended: Ended,
    },
    Break {
        at: Option<Uuid>,
        /// What is set aside is named by it; by now if there is none.
        moment: Option<Timestamp>,
        done: Reply<Option<String>>,
    },
    /// A resync that was asked for has come to nothing before there was anything to be told of it, for this reason.
    NotResynced {
        why: String,
        done: Reply<()>,
    },
    /// A person has moved the volume of a mirror that was broken off to another point.
    Moved {
        done: Reply<()>,
    },
    /// A person has asked something of the group that the mirror is in, and has seen what there is to be seen of it.
    Seen {
        done: Reply<()>,
    },
    RoleChange(RoleChangeCommand),
    Event {
        event: Event,
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
    SetSchedule {
        schedule: Schedule,
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
    SetOptions {
        options: MirrorOptions,
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
    SetGroup {
        group: Option<String>,
        done: Reply<()>,
    },
    SetRetention {
        retention: Retention,
        done: Reply<()>,
    },
    /// The volume is about to follow another source. Once nothing runs any more `aside` is answered; from then on this waits
    /// for the decision.
    StepAside {
        aside: Reply<()>,
        decision: oneshot::Receiver<Replaced>,
    },
    Delete {
        done: oneshot::Sender<Result<(), MirrorError>>,
    },
}

/// What a volume is to follow from.
pub(crate) struct Onto {
    pub(crate) base: Uuid,
    /// The relationship whose place this one takes.
    pub(crate) replaces: Option<Replacing>,
    /// The newest role change that the source has seen.
    pub(crate) newest: u64,
    /// What the source's volume follows itself, the nearest first.
    pub(crate) follows: Vec<Place>,
    /// All that the volume shows is kept by this moment, as of the others that one command has follow. None: what is set aside is named
    /// by when that is.
    pub(crate) set_aside_at: Option<Timestamp>,
}

/// What a relationship takes the place of.
#[derive(Clone, Debug)]
pub(crate) struct Replacing {
    pub(crate) relationship: Uuid,
    /// It was in force: the volume was a replica, and nobody had broken it off.
    pub(crate) was_in_force: bool,
    /// What the volume followed, until now or until it was broken off, the nearest first, where the new source is not among it.
    pub(crate) left: Vec<Place>,
}

/// The volume follows another source: its mirror is over. Dropped if it comes to nothing.
pub(crate) struct Replaced {
    /// What it follows, the nearest first.
    pub(crate) follows: Vec<Place>,
    /// Who went on without what it has followed until now, as far as that is known.
    pub(crate) overtaker: Option<Overtaker>,
    /// Answered when what the mirror kept is released.
    pub(crate) done: Reply<()>,
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, MirrorError>>;

/// A step of a role change.
pub(crate) enum RoleChangeCommand {
    /// At the replica: remember that one begins. Answers whether it does: not before the source has learnt that the attempt
    /// before was given up, because that message, coming late, would make it writable in the middle of this one.
    Begin { reverse: Uuid, done: Reply<bool> },
    /// Whether one may begin.
    Look { done: Reply<()> },
    /// Nobody waits any more for the update that was to come before it. What else wants that update has it go on.
    Forgo { done: Reply<()> },
    /// The source names another reverse relationship.
    Agree { reverse: Uuid, done: Reply<()> },
    /// The source has learnt of this role change, or a later one, of which this side does not know: its count is older
    /// than the source's memory. It goes on above.
    Raise { newest: u64, done: Reply<()> },
    /// The takeover: this very snapshot is what hosts go on from here. `role_change` is the number of the change for `reverse`.
    TakeOver { last: CandidateBase, role_change: u64, done: Reply<()> },
    /// The attempt is over; what the source must be notified of yet is the divergence notice's.
    Finish { done: Reply<()> },
    /// The source has learnt how the change with this number ended.
    Acknowledged { role_change: u64, done: Reply<()> },
    /// The resync of this relationship has crossed with one in the other direction. Answers whether it is taken back.
    GiveWay { of: Uuid, done: Reply<bool> },
    /// The former source has followed this volume, and has ended that itself.
    Released { done: Reply<()> },
    /// The source of relationship `of` was asked where it stands.
    SourceStands { of: Uuid, upstream: Upstream, done: Reply<()> },
    /// At the original: make it read-only, with a last snapshot.
    Prepare { of: Uuid, schedule: Schedule, done: Reply<ReverseAccepted> },
    /// Which snapshot was the last.
    Prepared { of: Uuid, done: Reply<Option<Uuid>> },
    /// Whether it is read-only for that.
    Changing { of: Uuid, done: Reply<bool> },
    /// As it was. Answers whether the mirror was made for this and is to be forgotten.
    Cancel { of: Uuid, done: Reply<bool> },
    /// It is a replica from now on.
    Activate { of: Uuid, done: Reply<()> },
}

/// Why nothing answers.
pub(crate) fn gone() -> MirrorError {
    MirrorError::State("the mirror was deleted, or the daemon is stopping".into())
}
