//! A transfer as its destination knows it, before it runs and after.

use std::sync::Arc;

use farside_engine::Engine;
use farside_link::StreamOptions;
use farside_peer::PeerLink;
use farside_platform::Clock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::progress::ProgressSender;
use super::together::Together;
use crate::error::TransferError;
use crate::kind::TransferKind;
use crate::protocol::Acknowledge;
use crate::protocol::convert::{Place, Upstream};
use crate::replica::{Replica, Replicas};
use crate::report::TransferReport;

/// What a transfer works with.
pub struct Transfer {
    /// Its id, the same on both sides.
    pub id: Uuid,
    /// What for.
    pub kind: TransferKind,
    /// What it brings something to.
    pub replica: Replica,
    /// Number of the relationship's newest role change.
    pub role_change: u64,
    /// What the volume followed until a resync, where the source's is not among it.
    pub left: Vec<Place>,
    /// This side's storage.
    pub engine: Arc<dyn Engine>,
    /// The replicas of this site: what they brought may serve as base.
    pub replicas: Arc<dyn Replicas>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// The session with the source.
    pub link: Arc<dyn PeerLink>,
    /// What its data streams may take of the link; whether they are bulk is decided for each.
    pub options: StreamOptions,
    /// Snapshots that persons made which the replica may have at most.
    pub named_max: usize,
    /// The group that it is to be published with.
    pub together: Option<Arc<dyn Together>>,
    /// Ends it.
    pub cancel: CancellationToken,
    /// Where it reports to.
    pub progress: ProgressSender,
}

/// How a transfer ended.
pub struct Outcome {
    /// What it did.
    pub report: TransferReport,
    /// The session went away under it.
    pub lost_session: bool,
    /// Refused because the source's volume follows this one.
    pub crossed: bool,
    /// The source has not given this site the right.
    pub forbidden: bool,
    /// An update was refused, because the source's volume is a replica of this one.
    pub no_original: bool,
    /// The volume's pool is not open at the source.
    pub not_open: bool,
    /// The pool here had no room for it.
    pub no_room: Option<NoRoom>,
    /// Snapshots that wait at the source for the next transfer.
    pub waiting: u64,
    /// Snapshots that were not taken, because the replica has as many as it may have.
    pub left_out: u64,
    /// What was published last, if the source does not know of it: it keeps the old base as well.
    pub unacknowledged: Option<Acknowledge>,
    /// Where the source's volume stands among the sites; none if it has not said.
    pub upstream: Option<Upstream>,
}

/// That a pool had no room for a transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRoom {
    /// Bytes by which there has to be more for it to fit; none if it ran full on the way, and nobody knows.
    pub missing_bytes: Option<u64>,
}

impl NoRoom {
    /// Of a transfer that failed so.
    pub(crate) fn of(error: &TransferError) -> Option<NoRoom> {
        match error {
            TransferError::NoRoom { needed_bytes, room_bytes, .. } => {
                Some(NoRoom { missing_bytes: Some(needed_bytes.saturating_sub(*room_bytes)) })
            }
            error if error.is_about_room() => Some(NoRoom { missing_bytes: None }),
            _ => None,
        }
    }
}
