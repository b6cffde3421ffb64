//! Paths of a peer on which full packets do not pass, and what is used there instead. It outlives sessions: the next one would begin
//! with the same trouble.

use farside_link::PathSpec;
use farside_link::limits::LARGE_PACKETS_AGAIN_AFTER;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::PATHS_NUMBERED_MAX;

/// Segments to use on a path where larger ones do not pass.
#[derive(Clone, Debug)]
struct Limit {
    path: PathSpec,
    mss: u32,
    /// What did not pass.
    stuck: u32,
    /// From then on full packets are tried again.
    until: Instant,
}

/// What is known of the paths to one peer.
#[derive(Debug, Default)]
pub(crate) struct PacketLimits(Mutex<Vec<Limit>>);

impl PacketLimits {
    /// The largest segment to ask for on a path, if full packets do not pass there.
    pub(crate) fn mss(&self, path: &PathSpec) -> Option<u32> {
        let limits = self.0.lock();
        let limit = limits.iter().find(|limit| limit.path == *path)?;
        (Instant::now() < limit.until).then_some(limit.mss)
    }

    /// Full packets are tried again on a path, and it is not known yet whether they pass.
    pub(super) fn is_tried_again(&self, path: &PathSpec) -> bool {
        self.0.lock().iter().any(|limit| limit.path == *path && Instant::now() >= limit.until)
    }

    /// Whether an idle lane with segments of `mss` bytes may be used: not with larger ones than pass, nor with small ones once full
    /// ones are tried again.
    pub(super) fn is_fit(&self, path: &PathSpec, mss: Option<u32>) -> bool {
        match (self.mss(path), mss) {
            (Some(most), Some(mss)) => mss <= most,
            _ => !self.is_tried_again(path),
        }
    }

    /// Segments of `stuck` bytes do not pass; whether that is news.
    pub(super) fn set(&self, path: &PathSpec, mss: u32, stuck: u32) -> bool {
        let until = Instant::now() + LARGE_PACKETS_AGAIN_AFTER;
        let limit = Limit { path: path.clone(), mss, stuck, until };
        let mut limits = self.0.lock();
        let before = limits.iter().position(|limit| limit.path == *path).map(|at| limits.remove(at));
        if limits.len() < PATHS_NUMBERED_MAX {
            limits.push(limit);
        }
        before.is_none_or(|before| before.mss > mss || Instant::now() >= before.until)
    }

    /// What was known of a path holds no more; whether there was anything.
    pub(super) fn clear(&self, path: &PathSpec) -> bool {
        let mut limits = self.0.lock();
        let before = limits.len();
        limits.retain(|limit| limit.path != *path);
        limits.len() < before
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// What is wrong with a path, what is done about it, and what a person can do.
    pub(crate) fn why(&self, path: &PathSpec) -> Option<String> {
        let limits = self.0.lock();
        let limit = limits.iter().find(|limit| limit.path == *path && Instant::now() < limit.until)?;
        Some(format!(
            "large packets do not pass on this path (segments of {} bytes stand unanswered), small ones do. Connections with \
             segments of at most {} bytes take their place; full ones are tried again in {} min. To mend the path: clamp the \
             MSS at its gateway, lower the MTU of this host's interface, or at both sites sysctl net.ipv4.tcp_mtu_probing=1",
            limit.stuck,
            limit.mss,
            (limit.until - Instant::now()).as_secs().div_ceil(60)
        ))
    }
}
