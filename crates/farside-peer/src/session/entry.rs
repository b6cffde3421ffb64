//! A bundle, and what its session knows of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use farside_link::limits::{LANES_MAX, LANES_PER_PATH_MAX};
use farside_link::{Attach, Bundle, BundleStats, LaneWatch, PathSpec};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// The id of the control stream's bundle.
pub(super) const CONTROL: [u8; 16] = [0; 16];

/// Whether a bundle has what it needs to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Given {
    Nothing,
    /// A lane.
    Lane,
    /// It is over, and why: its supervisor stops.
    Refused(String),
}

/// A bundle and what its session knows of it.
pub(super) struct BundleEntry {
    pub(super) id: [u8; 16],
    pub(super) bundle: Arc<Bundle>,
    /// Instead of the peer's; empty: the peer's.
    pub(super) paths: Vec<PathSpec>,
    /// What each lane tells the other side until that has the bundle; empty if it opened the bundle itself.
    pub(super) opening: Bytes,
    /// Lanes on each path that the other side asks for.
    pub(super) asked: AtomicUsize,
    pub(super) watch: Mutex<LaneWatch>,
    pub(super) given: watch::Sender<Given>,
    /// Why the last dial failed.
    pub(super) trouble: Mutex<Option<String>>,
    /// Wakes its supervisor.
    pub(super) look: Notify,
}

impl BundleEntry {
    pub(super) fn is_control(&self) -> bool {
        self.id == CONTROL
    }

    /// Has as many lanes as pay carry what this side sends, on each of the paths with these numbers, and says how many; see
    /// [`LaneWatch`].
    pub(super) fn use_lanes(&self, stats: &BundleStats, paths: &[usize]) -> usize {
        let most = (LANES_MAX / paths.len().max(1)).max(1);
        let wanted = self.watch.lock().look(stats, paths).min(most);
        self.bundle.use_lanes(|path| if paths.contains(&path) { wanted } else { 0 });
        wanted
    }

    /// Lanes on each path that the other side asks for.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// The other side asks for so many lanes on each path.
    pub(super) fn ask(&self, lanes: u32) {
        let lanes = usize::try_from(lanes).unwrap_or(usize::MAX).min(LANES_PER_PATH_MAX);
        self.asked.store(lanes, Ordering::Relaxed);
        self.look.notify_one();
    }

    /// What a new lane's *attach* says. The opening is repeated until the other side has shown that it has the bundle.
    pub(super) fn attach(&self) -> Bytes {
        let stats = self.bundle.stats();
        let is_known = stats.received_bytes > 0 || stats.lanes.iter().any(|lane| lane.delivered_bytes > 0);
        let opening = if is_known { Bytes::new() } else { self.opening.clone() };
        Attach { bundle: self.id, opening }.encode()
    }

    /// Ends it, if it has not ended, and stops its supervisor.
    pub(super) fn refuse(&self, reason: &str) {
        self.given.send_if_modified(|given| {
            let is_news = !matches!(given, Given::Refused(_));
            if is_news {
                *given = Given::Refused(reason.to_owned());
            }
            is_news
        });
        self.bundle.close(reason);
    }
}

/// The id of a bundle as a frame carries it.
pub(super) fn bundle_id(bytes: &Bytes) -> Option<[u8; 16]> {
    bytes.as_ref().try_into().ok()
}
