//! What the transfers of each mirror have come to: failures in a row, and what its updates look like. Pure.

use std::collections::{HashMap, VecDeque};

use farside_platform::Timestamp;
use farside_transfer::{TransferKind, TransferReport, TransferResult};
use uuid::Uuid;

use super::conditions::{Failures, Signature};
use super::signature::{HISTORY_MAX, Suspicion, Watch};

/// Transfers of a mirror that are looked at when the daemon starts.
pub(super) const REPORTS_MAX: usize = HISTORY_MAX;
/// Transfers that are known by name: one that ends while the history is read is in both.
const RECENT_MAX: usize = 16;

/// The mirrors' histories, by relationship.
#[derive(Debug, Default)]
pub(super) struct Histories(pub(super) HashMap<Uuid, History>);

/// What a mirror's transfers have come to.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) failures: Failures,
    pub(super) watch: Watch,
    /// What is said of what is suspected; none of what was before this process began.
    pub(super) suspected: Option<String>,
    /// One has ended well since this process began.
    pub(super) has_succeeded: bool,
    recent: VecDeque<Uuid>,
}

impl History {
    /// From the newest transfers, newest first. Updates until `usual_until` are usual, whatever they look like. Answers what was
    /// suspicious since.
    pub(super) fn read(
        newest_first: &[TransferReport],
        volume_bytes: u64,
        usual_until: Timestamp,
    ) -> (History, Option<Suspicion>) {
        let mut history = History::default();
        for report in newest_first.iter().rev() {
            history.count(report);
        }
        let (watch, suspicion) = Watch::from_history(newest_first.iter().rev(), volume_bytes, usual_until);
        history.watch = watch;
        (history, suspicion)
    }

    /// Takes up a transfer that has ended. Answers when the mirror's updates become suspicious with it.
    pub(super) fn note(&mut self, report: &TransferReport, volume_bytes: u64) -> Option<Suspicion> {
        self.has_succeeded |= report.result == TransferResult::Ok;
        if self.count(report) { self.watch.note(report, volume_bytes) } else { None }
    }

    /// What the updates look like.
    pub(super) fn signature(&self) -> Signature {
        match &self.suspected {
            _ if !self.watch.is_suspected() => Signature::Normal,
            Some(message) => Signature::Suspected { message: message.clone() },
            None => Signature::StillSuspected,
        }
    }

    /// A person has said that what was suspected is usual.
    pub(super) fn settle(&mut self) {
        self.watch.settle();
        self.suspected = None;
    }

    /// Whether it was not known yet.
    fn count(&mut self, report: &TransferReport) -> bool {
        if self.recent.contains(&report.id) {
            return false;
        }
        self.recent.push_back(report.id);
        if self.recent.len() > RECENT_MAX {
            self.recent.pop_front();
        }
        match report.result {
            TransferResult::Ok => self.failures = Failures::default(),
            // A resync that did not begin is no transfer: whoever asked was told, and nothing tries it again.
            TransferResult::Failed if is_unbegun(report) => {}
            TransferResult::Failed => {
                self.failures.in_a_row = self.failures.in_a_row.saturating_add(1);
                self.failures.last.clone_from(&report.reason);
            }
            // A person, or another mirror's turn.
            TransferResult::Aborted => {}
        }
        true
    }
}

fn is_unbegun(report: &TransferReport) -> bool {
    report.kind == TransferKind::Resync && report.ended_at == report.started_at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(id: u128, result: TransferResult) -> TransferReport {
        TransferReport {
            id: Uuid::from_u128(id),
            kind: TransferKind::Update,
            result,
            reason: Some(format!("reason {id}")),
            started_at: Timestamp(0),
            ended_at: Timestamp(0),
            duration_seconds: 0.0,
            base: None,
            incremental: None,
            content_root: None,
            resumed: false,
            snapshots: 0,
            changed_bytes: 0,
            resumed_bytes: 0,
            deallocated_bytes: 0,
            source_read_bytes: 0,
            base_read_bytes: 0,
            levels: None,
            referenced_bytes: None,
            delta_bytes: 0,
            literal_bytes: 0,
            wire_bytes_sent: 0,
            wire_bytes_received: 0,
            scan_seconds: 0.0,
            set_aside: Vec::new(),
            let_go: Vec::new(),
        }
    }

    #[test]
    fn failures_count_until_one_ends_well_and_each_once() {
        use TransferResult::{Aborted, Failed, Ok};
        let newest_first =
            [report(5, Failed), report(4, Aborted), report(3, Failed), report(2, Ok), report(1, Failed)];
        let (mut history, _) = History::read(&newest_first, 1 << 30, Timestamp(0));
        assert_eq!(history.failures, Failures { in_a_row: 2, last: Some("reason 5".into()) });
        // It ended while the history was read.
        history.note(&report(5, Failed), 1 << 30);
        assert_eq!(history.failures.in_a_row, 2);
        history.note(&report(6, Failed), 1 << 30);
        assert_eq!(history.failures, Failures { in_a_row: 3, last: Some("reason 6".into()) });
        history.note(&report(7, Ok), 1 << 30);
        assert_eq!(history.failures, Failures::default());
        assert_eq!(history.signature(), Signature::Normal);
    }

    #[test]
    fn what_was_suspected_before_a_restart_is_until_a_person_settles_it() {
        let (mut history, _) = History::read(&[], 1 << 30, Timestamp(0));
        history.watch.suspect();
        assert_eq!(history.signature(), Signature::StillSuspected);
        history.suspected = Some("m".into());
        assert_eq!(history.signature(), Signature::Suspected { message: "m".into() });
        history.settle();
        assert_eq!(history.signature(), Signature::Normal);
    }
}
