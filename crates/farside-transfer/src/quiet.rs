//! Updates that brought nothing: the log counts them, and names those that did. Pure.
//!
//! A mirror that looks every second would else write 260,000 lines a day, among which nobody finds the one that counts, and
//! behind which the system's log drops warnings.

use std::time::Duration;

use crate::kind::TransferKind;
use crate::report::{TransferReport, TransferResult};

/// How often the log says how many there were.
const TOLD_EVERY: Duration = Duration::from_secs(3600);

/// Counts those that are not told of yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct QuietUpdates {
    count: u64,
    since: Option<Duration>,
}

impl QuietUpdates {
    /// One more at monotonic time `now`. Answers how many there were, an hour after the first of them.
    pub fn one_more(&mut self, now: Duration) -> Option<u64> {
        self.count += 1;
        let since = *self.since.get_or_insert(now);
        if now.saturating_sub(since) < TOLD_EVERY {
            return None;
        }
        Some(std::mem::take(self).count)
    }
}

/// Whether the log has a line for a transfer that has ended: it brought something, did not end well, or took longer than
/// the interval at which its mirror looks.
pub fn is_worth_a_line(report: &TransferReport, every: Option<Duration>) -> bool {
    let has_brought = report.changed_bytes + report.resumed_bytes + report.deallocated_bytes > 0;
    let is_late = every.is_some_and(|every| report.duration_seconds > every.as_secs_f64());
    // One snapshot is the update's own; more are a person's.
    let is_update = report.kind == TransferKind::Update;
    !is_update || report.result != TransferResult::Ok || has_brought || report.snapshots > 1 || is_late
}

#[cfg(test)]
mod tests {
    use farside_platform::Timestamp;
    use uuid::Uuid;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn what_brings_nothing_is_counted_and_told_each_hour() {
        let mut quiet = QuietUpdates::default();
        let told: Vec<_> = (0..=180).filter_map(|at| Some((at, quiet.one_more(at * MINUTE)?))).collect();
        // Minutes 0 to 60, 61 to 121.
        assert_eq!(told, [(60, 61), (121, 61)]);
    }

    #[test]
    fn what_brings_something_fails_or_is_late_has_a_line() {
        let mut report = TransferReport::begun(Uuid::nil(), TransferKind::Update, Timestamp(0));
        report.result = TransferResult::Ok;
        report.snapshots = 1;
        report.duration_seconds = 2.0;
        let every = Some(Duration::from_secs(3));
        assert!(!is_worth_a_line(&report, every) && !is_worth_a_line(&report, None));
        assert!(is_worth_a_line(&report, Some(Duration::from_secs(1))), "late");
        assert!(is_worth_a_line(&TransferReport { changed_bytes: 1, ..report.clone() }, every));
        assert!(is_worth_a_line(&TransferReport { deallocated_bytes: 1, ..report.clone() }, every));
        assert!(is_worth_a_line(&TransferReport { snapshots: 2, ..report.clone() }, every));
        assert!(is_worth_a_line(&TransferReport { kind: TransferKind::Resync, ..report.clone() }, every));
        assert!(is_worth_a_line(&TransferReport { result: TransferResult::Failed, ..report }, every));
    }
}
