//! What all trunks and the task that holds connections measure.

use std::sync::atomic::AtomicU64;

use farside_platform::Histogram;

use crate::control;

/// How long things take, and what waits.
#[derive(Debug, Default)]
pub struct Figures {
    /// From a part's last byte to its being handed to the session: encoding, and the wait behind other parts.
    pub block_wait: Histogram,
    /// From a client's first packet to the decision about it.
    pub connection_hold: Histogram,
    /// First packets that are held now.
    pub held: AtomicU64,
}

/// A histogram as it is told.
pub fn told(of: &Histogram) -> control::Histogram {
    let counted = of.counted();
    control::Histogram {
        bounds_seconds: counted.bounds_seconds,
        counts: counted.counts,
        sum_seconds: counted.sum_seconds,
    }
}
