//! The JSON that daemon and clients exchange.
//!
//! Field names, values and error codes of this crate are a contract: scripts read them. They only ever grow; a
//! golden test holds each shape. Sizes are whole bytes, durations seconds as floats (`…_seconds`), times RFC 3339
//! in UTC. A field whose feature is not there yet is null. Nothing here does I/O.
//!
//! * [`error`]: how a request fails, and which exit code that is.
//! * [`pool`], [`volume`], [`snapshot`], [`clone`](mod@clone), [`peer`], [`host`], [`mirror`], [`alarm`], [`site`],
//!   [`accelerator`]: the nouns.
//! * [`access`]: who may do what over HTTPS, and who did.
//! * [`levels`]: what travelled, by level.
//! * [`object`]: what is written as an object alone.
//! * [`operation`]: long work that goes on while nobody watches.
//! * [`plan`]: what a destructive request would do.
//! * [`split`]: groups that are not in one place.
//! * [`size`]: sizes as people write them.

pub mod accelerator;
pub mod access;
pub mod alarm;
pub mod clone;
mod code;
pub mod dedup;
pub mod delayed;
pub mod error;
pub mod host;
pub mod levels;
pub mod log;
pub mod mirror;
pub mod object;
pub mod operation;
pub mod peer;
pub mod plan;
pub mod pool;
pub mod scrub;
pub mod site;
pub mod sites;
pub mod size;
pub mod snapshot;
pub mod split;
pub mod support;
pub mod throttle;
pub mod volume;

pub use accelerator::{
    AcceleratedApplication, AcceleratedConnection, Acceleration, AcceleratorCache, AcceleratorForward,
    AcceleratorPeer, AcceleratorPeerState, AcceleratorPlan, AcceleratorPolicy, AcceleratorState,
    AcceleratorStatus, AcceleratorTimes, ClearCache, DemotedConnections, Demotion, PolicyOrigin, Preposition,
    PrepositionFile, PrepositionVolume, Prepositioned, ResetConnection, SetAcceleratorPolicy,
    StartAccelerator,
};
pub use access::{
    AccessRole, Account, AuditEntry, AuditPage, Confirmed, CreateAccount, CreateToken, CreatedToken, Login,
    SetAccount, Token, WhoAmI,
};
pub use alarm::{Alarm, AlarmEvent, AlarmNotice, AlarmSeverity, AlarmTest};
pub use clone::{CloneSnapshot, Drill, DrillResult, DrillRun, DrillVolume, StartDrill};
pub use code::is_code;
pub use dedup::{Dedup, DedupPhase, DedupState, StartDedup};
pub use delayed::{CONFIRM_HEADER, Delayed, DelayedDocument, thing_of};
pub use error::{ErrorBody, ErrorCode, ErrorDocument};
pub use host::{
    AddHost, AddedHost, Host, HostExport, HostFiles, HostRight, HostRights, HostStatus, VolumeHost,
};
pub use jiff::Timestamp;
pub use levels::{Level, Levels};
pub use log::{LogEvent, LogLine, RequestedBy};
pub use mirror::{
    BreakMirror, BudgetUse, CreateMirror, KeptFor, KeptSnapshot, Mirror, MirrorDestination, MirrorState,
    MirrorStopped, Overtaken, Released, Resized, ResyncMirror, Role, SetAside, SetMirror, SourceHeard,
    SourceOvertaken, StartTransfer, TakenOver, Transfer, TransferKind, TransferPhase, TransferRecord,
    TransferResult, WasInUse, WentOnBy, awake,
};
pub use operation::{Operation, OperationKind, OperationState, SwapPhase};
pub use peer::{
    CreateInvitation, Invitation, JoinPeer, OpenInvitation, PathState, PathsMode, Peer, PeerLink, PeerPath,
    PeerRights, PeerState, PeerStatus, PeerStreams, RekeyPeer, SetPeer, VolumeRights,
};
pub use plan::Plan;
pub use pool::{
    CheckFinding, CheckedVersion, CreatePool, GrowPool, ImportPool, Pool, PoolCheck, PoolEngine,
    PoolFileSystem, PoolRoom, PoolState, QuarantinedRange, ReopenPool, Severity, StagedContent,
};
pub use scrub::{Scrub, ScrubDamage, ScrubDamageKind, ScrubState, StartScrub};
pub use site::{
    DaemonInvited, DaemonState, DaemonStatus, InviteDaemon, JoinSite, MoveState, MovedTable, Site,
    SiteJoined, StateMoved,
};
pub use sites::{SiteSeen, SiteSeenState};
pub use size::parse_size;
pub use snapshot::{
    CreateSnapshots, Difference, DifferenceKind, HoldSnapshot, MadeBy, Rename, Rollback, SetSnapshotSchedule,
    Snapshot, SnapshotSchedule, StartRollback, TakenBy,
};
pub use split::{Split, splits};
pub use support::{
    AcceleratorConfiguration, AlarmConfiguration, ApiConfiguration, BudgetConfiguration, Configuration,
    NbdConfiguration, ReplicaConfiguration, Support, Versions, WireConfiguration,
};
pub use throttle::{HeldBack, MirrorLink, SetMirrorLink, SetSite, SiteStatus, Throttle};
pub use uuid::Uuid;
pub use volume::{Autogrow, CreateVolume, ResizeVolume, SetVolume, Volume};

/// The header in which a daemon says its version to whoever may ask it anything.
pub const VERSION_HEADER: &str = "x-farside-version";

/// Every path of the API begins so.
pub const API_PREFIX: &str = "/api/v1";
