//! Everything that requests and rooms share.

use std::sync::Arc;

use farside_api::Site as SiteDocument;
use farside_peer::Node;
use farside_platform::{Clock, Timestamp};
use farside_transfer::precedence;
use tokio_util::sync::CancellationToken;

use crate::accelerator::Accelerator;
use crate::access::Access;
use crate::alarms::Alarms;
use crate::api_certificate::ApiCertificate;
use crate::blocking::Blocking;
use crate::daemons::keeper::Keeper;
use crate::dedups::Dedups;
use crate::delays::Delays;
use crate::drills::Drills;
use crate::events::Events;
use crate::exports::Exports;
use crate::figures::Remembered;
use crate::hosts::Hosts;
use crate::logging::Log;
use crate::metrics::Metrics;
use crate::mirrors::Mirrors;
use crate::operations::Operations;
use crate::options::Config;
use crate::peers::Rights;
use crate::pool_marks::PoolMarks;
use crate::pools::Pools;
use crate::scrubs::Scrubs;
use crate::sites::seen::SitesSeen;
use crate::sites::shares::Shares;
use crate::snapshot_schedules::SnapshotSchedules;
use crate::state::State;
use crate::throttles::Throttles;

/// The site while it runs. Shared by every request.
pub(crate) struct Site {
    /// How it describes itself.
    pub(crate) document: SiteDocument,
    /// The database.
    pub(crate) state: State,
    /// The lease of this daemon; none where the state is a file.
    pub(crate) keeper: Option<Arc<Keeper>>,
    /// Where blocking calls run.
    pub(crate) blocking: Blocking,
    /// The same for what asks a cluster, which may be away: nobody else waits behind it.
    pub(crate) far: Blocking,
    /// The same for answers that are streamed: these last as long as their readers.
    pub(crate) streams: Blocking,
    /// What `/metrics` shows.
    pub(crate) metrics: Metrics,
    /// Time.
    pub(crate) clock: Arc<dyn Clock>,
    /// One change of the set of pools at a time: making or deleting one is several steps, in the store, the database
    /// and the mirrors, that must not meet another's.
    pub(crate) pool_lock: tokio::sync::Mutex<()>,
    /// Storage.
    pub(crate) pools: Arc<Pools>,
    /// How far pools were written.
    pub(crate) pool_marks: PoolMarks,
    /// How much volumes and snapshots hold, as it was counted for lists.
    pub(crate) figures: Arc<Remembered>,
    /// What reads pools as a whole.
    pub(crate) scrubs: Arc<Scrubs>,
    /// What has equal blocks of volumes lie at one place.
    pub(crate) dedups: Arc<Dedups>,
    /// What takes snapshots by timetables.
    pub(crate) snapshot_schedules: Arc<SnapshotSchedules>,
    /// Volumes of drills that go when nobody renews them.
    pub(crate) drills: Drills,
    /// What hosts see.
    pub(crate) exports: Arc<Exports>,
    /// Who may open them over the network.
    pub(crate) hosts: Arc<Hosts>,
    /// How far they go before transfers.
    pub(crate) hosts_first: Arc<precedence::Hosts>,
    /// Sessions.
    pub(crate) node: Node,
    /// What peers may do.
    pub(crate) rights: Arc<Rights>,
    /// What site and peers may send and receive.
    pub(crate) throttles: Throttles,
    /// Relationships.
    pub(crate) mirrors: Arc<Mirrors>,
    /// Connections between hosts of two sites.
    pub(crate) accelerator: Arc<Accelerator>,
    /// Who may use the API over HTTPS.
    pub(crate) access: Access,
    /// What was asked for there, and waits.
    pub(crate) delays: Delays,
    /// How much is asked of each of them.
    pub(crate) asking: Shares,
    /// How other sites were seen last.
    pub(crate) sites_seen: SitesSeen,
    /// What it shows there; none: it is not served there.
    pub(crate) api_certificate: Option<Arc<ApiCertificate>>,
    /// What this machine is called.
    pub(crate) host_name: String,
    /// What changes, for whoever follows.
    pub(crate) events: Arc<Events>,
    /// The start has looked for the pools in clusters.
    pub(crate) looked: CancellationToken,
    /// The daemon ends.
    pub(crate) stop: CancellationToken,
    /// What is wrong, and was told.
    pub(crate) alarms: Alarms,
    /// Long work.
    pub(crate) operations: Operations,
    /// The process's log.
    pub(crate) log: Log,
    /// When the daemon started.
    pub(crate) started_at: Timestamp,
    /// What its data directory has lost, if it has.
    pub(crate) half_new: Option<&'static str>,
    /// What it runs with.
    pub(crate) configuration: Config,
}
