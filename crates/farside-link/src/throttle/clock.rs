//! The one clock of all who share a bucket.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::time::Instant;

/// The time that every user of a bucket hands in: tokio's, since some fixed moment of this process.
pub fn clock() -> Duration {
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    // First: whoever asks first would otherwise be before the epoch.
    let epoch = *EPOCH;
    Instant::now().saturating_duration_since(epoch)
}
