//! What a session has of paths, bundles and lanes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use farside_link::{IdleLane, IdleLanes, PacedLanes, PathSpec, Paths, WireCounters};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::{Duration, Instant};

use super::entry::BundleEntry;
use crate::limits::{LANES_DIALLED_AT_ONCE, PATHS_NUMBERED_MAX, SESSION_LANES_MAX};

/// What a session has of lanes.
pub(super) struct Lanes {
    pub(super) started: Instant,
    /// As the side that dials sees them.
    pub(super) paths: Mutex<Paths>,
    /// What the numbers in [`LaneOptions`](farside_link::LaneOptions) mean: paths at the side that dials, pairs of addresses at the other. Only grows.
    pub(super) numbers: Mutex<Vec<Numbered>>,
    pub(super) bundles: Mutex<HashMap<[u8; 16], Arc<BundleEntry>>>,
    /// One lane at a time looks for its bundle, and opens it.
    pub(super) opening: Mutex<()>,
    /// Bundles that have ended, newest last: an *attach* that comes too late does not open one of them again.
    pub(super) ended: Mutex<VecDeque<[u8; 16]>>,
    pub(super) idle: Mutex<IdleLanes<IdleLane>>,
    pub(super) idle_changed: Notify,
    pub(super) dials: Semaphore,
    /// Places for lanes at the side that is dialled.
    pub(super) slots: Arc<Semaphore>,
    pub(super) reused_lanes: AtomicU64,
    /// Bytes retransmitted by bundles that have ended.
    pub(super) retransmitted: AtomicU64,
    /// The window that the last stream ended with: the next one begins with it.
    pub(super) last_window: AtomicU64,
    /// Lanes on each path that this side's sending last needed: the next stream begins with so many.
    pub(super) last_lanes: AtomicUsize,
    pub(super) paced: PacedLanes,
    /// At the side that is dialled: lanes whose bundle has ended, for the task that waits on them for the next one.
    pub(super) returned: mpsc::Sender<IdleLane>,
}

/// A path and what it has carried, all lanes that ever were on it together.
#[derive(Clone)]
pub(super) struct Numbered {
    pub(super) path: PathSpec,
    pub(super) wire: Arc<WireCounters>,
    /// Why the last dial on it failed, until one succeeds.
    pub(super) trouble: Option<String>,
}

impl Lanes {
    pub(super) fn new(paths: Paths, returned: mpsc::Sender<IdleLane>) -> Lanes {
        Lanes {
            started: Instant::now(),
            paths: Mutex::new(paths),
            numbers: Mutex::default(),
            bundles: Mutex::default(),
            opening: Mutex::default(),
            ended: Mutex::default(),
            idle: Mutex::default(),
            idle_changed: Notify::new(),
            dials: Semaphore::new(LANES_DIALLED_AT_ONCE),
            slots: Arc::new(Semaphore::new(SESSION_LANES_MAX)),
            reused_lanes: AtomicU64::new(0),
            retransmitted: AtomicU64::new(0),
            last_window: AtomicU64::new(0),
            last_lanes: AtomicUsize::new(0),
            paced: PacedLanes::default(),
            returned,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The number of a path in this session.
    pub(super) fn number(&self, path: &PathSpec) -> usize {
        let mut numbers = self.numbers.lock();
        if let Some(known) = numbers.iter().position(|numbered| numbered.path == *path) {
            return known;
        }
        if numbers.len() >= PATHS_NUMBERED_MAX {
            // Its lanes are then counted, used and closed with those of the first: more lanes or fewer than would pay.
            return 0;
        }
        numbers.push(Numbered { path: path.clone(), wire: Arc::default(), trouble: None });
        numbers.len() - 1
    }

    /// A dial on a path has ended.
    pub(super) fn note_dial(&self, path: &PathSpec, trouble: Option<String>) {
        let mut numbers = self.numbers.lock();
        if let Some(known) = numbers.iter_mut().find(|numbered| numbered.path == *path) {
            known.trouble = trouble;
        }
    }

    /// All paths that have a number, in its order.
    pub(super) fn numbered(&self) -> Vec<Numbered> {
        self.numbers.lock().clone()
    }

    pub(super) fn bundle(&self, id: &[u8; 16]) -> Option<Arc<BundleEntry>> {
        self.bundles.lock().get(id).cloned()
    }

    pub(super) fn bundles(&self) -> Vec<Arc<BundleEntry>> {
        self.bundles.lock().values().cloned().collect()
    }

    /// Streams that began on an idle lane.
    pub(super) fn reused_lanes(&self) -> u64 {
        self.reused_lanes.load(Ordering::Relaxed)
    }

    /// Bytes that lanes were given a second time, in all bundles so far.
    pub(super) fn retransmitted(&self) -> u64 {
        let now: u64 = self.bundles().iter().map(|carried| carried.bundle.stats().retransmitted_bytes).sum();
        now + self.retransmitted.load(Ordering::Relaxed)
    }

    /// Whether there are streams of data.
    pub(super) fn has_data(&self) -> bool {
        self.bundles.lock().values().any(|carried| !carried.is_control())
    }

    /// Wakes every supervisor: paths have changed.
    pub(super) fn look_everywhere(&self) {
        self.bundles.lock().values().for_each(|carried| carried.look.notify_one());
    }

    /// Ends all bundles but the control stream's, whose writer still sends the closing message.
    pub(super) fn close_data(&self, reason: &str) {
        for carried in self.bundles() {
            if !carried.is_control() {
                carried.refuse(reason);
            }
        }
        drop(std::mem::take(&mut *self.idle.lock()));
    }
}
