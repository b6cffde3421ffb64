//! A transfer as its destination knows it, before it runs and after.

use std::sync::Arc;

use farside_engine::Engine;
use farside_link::StreamOptions;
use farside_peer::PeerLink;
use farside_platform::Clock;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::progress::ProgressSender;
use crate::kind::TransferKind;
use crate::protocol::Acknowledge;
use crate::protocol::convert::Upstream;
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
    /// What was published last, if the source does not know of it: it keeps the old base as well.
    pub unacknowledged: Option<Acknowledge>,
    /// Where the source's volume stands among the sites; none if it has not said.
    pub upstream: Option<Upstream>,
}
