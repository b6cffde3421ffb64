//! What a bundle and its lanes are made with, and what they tell of themselves. Plain data.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::budget::WindowBudget;
use crate::options::{Priority, Window};
use crate::throttle::Limits;
use crate::transport::{LinkStats, SocketStats};
use crate::wire::{ByteStream, WireCounters};

/// What a bundle is made with.
pub struct BundleOptions {
    /// For what this side receives.
    pub window: Window,
    /// Where an automatic window starts, bytes: what the last stream over the same paths ended with
    /// ([`BundleStats::window`]), so that a known link is full at once. `None`: [`WINDOW_START`](crate::limits::WINDOW_START).
    pub window_start: Option<u64>,
    /// For what this side sends.
    pub priority: Priority,
    /// What this side's sending is under. Lanes take from it before they take a segment.
    pub limits_out: Limits,
    /// What this side's receiving is under: credit is granted no faster, so that it holds whatever the peer does.
    pub limits_in: Limits,
    /// Shared by all bundles of the site.
    pub budget: Arc<WindowBudget>,
    /// Runs the tasks of bundle and lanes; all of them end soon after the bundle.
    pub tasks: TaskTracker,
}

/// Which lane of a bundle; never used twice in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LaneId(pub u32);

/// What a lane is made with. It comes back with the lane ([`IdleLane`]).
#[derive(Clone)]
pub struct LaneOptions {
    /// Over which path, by its number in the peer's record.
    pub path: usize,
    /// At first it carries data only while no other lane can; [`use_lanes`](super::Bundle::use_lanes) decides from then on.
    pub standby: bool,
    /// How the connection goes.
    pub stats: Arc<dyn SocketStats>,
    /// What the connection has cost on the wire, before this bundle too.
    pub wire: Arc<WireCounters>,
}

/// A lane that a bundle has done with: both sides have said so, and the next segment on it is an attach.
pub struct IdleLane {
    /// Its connection, at the border of two segments both ways.
    pub io: Box<dyn ByteStream>,
    /// As it was made.
    pub options: LaneOptions,
}

/// A lane that is gone or does not move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostLane {
    /// Which.
    pub id: LaneId,
    /// Over which path it went.
    pub path: usize,
    /// Its connection ended. Otherwise it only makes no progress: it is not given new segments, and used again if it comes
    /// back.
    pub ended: bool,
    /// What the kernel, TLS or the clock said.
    pub reason: String,
}

/// Why the side that dials should look at the bundle's lanes.
#[derive(Debug)]
pub struct LanesWanted {
    /// Lanes that can carry data now. With none nothing moves, and after
    /// [`LANELESS_MAX`](crate::limits::LANELESS_MAX) the bundle is lost.
    pub live: usize,
    /// Since the last time.
    pub lost: Vec<LostLane>,
}

/// Where the time of the sending side went; shares of the time in which there was something to send, each 0 to 1,
/// together 1 if there was any.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct BlockedShares {
    /// The peer granted no more: its application does not read, or the window is too small for the link.
    pub window: f64,
    /// The sockets took no more: the link is full.
    pub socket: f64,
    /// A throttle of this side.
    pub throttle: f64,
    /// Low priority: it gave way to other traffic.
    pub low_priority: f64,
    /// No lane could be used.
    pub lanes: f64,
}

/// One lane of [`BundleStats`].
#[derive(Clone, Debug)]
pub struct LaneStats {
    /// Which.
    pub id: LaneId,
    /// Over which path, by its number in the peer's record.
    pub path: usize,
    /// It carries data only while no other lane can.
    pub standby: bool,
    /// It makes no progress; nothing new is given to it.
    pub stalled: bool,
    /// Bytes of the stream that it has carried to the peer, repeated ones included.
    pub delivered_bytes: u64,
    /// For how long it has made no progress, or has been there without any.
    pub quiet: Duration,
    /// It has data on its way that is not acknowledged.
    pub has_data: bool,
    /// How long ago a ping over it was last answered.
    pub answered: Option<Duration>,
    /// How long ago something last arrived on it.
    pub heard: Duration,
    /// Bytes that have arrived on it for this bundle, TLS included.
    pub received_bytes: u64,
    /// From being given a segment to hearing of its arrival, smoothed. `None`: none has arrived yet.
    pub latency: Option<Duration>,
    /// What the socket knows.
    pub socket: Option<LinkStats>,
}

/// How a bundle goes.
#[derive(Clone, Debug)]
pub struct BundleStats {
    /// Its lanes now.
    pub lanes: Vec<LaneStats>,
    /// Bytes of the stream that the application has written.
    pub written_bytes: u64,
    /// Bytes of the stream that lanes were given, repeated ones included.
    pub sent_bytes: u64,
    /// Of these, bytes given to a second lane because the first died or stalled.
    pub retransmitted_bytes: u64,
    /// Bytes of the stream that lanes have and that are not acknowledged.
    pub in_flight_bytes: u64,
    /// Bytes of the stream that have arrived, in order.
    pub received_bytes: u64,
    /// Bytes that arrived a second time.
    pub duplicate_bytes: u64,
    /// What this side grants beyond what its application has read, bytes: the window of the receiving direction.
    pub window: u64,
    /// What the peer's credit still allows to send, bytes.
    pub credit: u64,
    /// Where the time of the sending direction went.
    pub blocked: BlockedShares,
    /// How long the bundle has been there.
    pub age: Duration,
    /// For how much of that there was something to send and the sockets took no more.
    pub socket_limited: Duration,
    /// Bytes per second that the lanes' sockets deliver, together. `None`: they do not know.
    pub delivery_rate: Option<u64>,
}
