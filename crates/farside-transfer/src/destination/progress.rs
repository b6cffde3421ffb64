//! Keeps the [`Progress`] that others watch.

use std::sync::Arc;

use farside_platform::Clock;
use tokio::sync::watch;
use uuid::Uuid;

use crate::kind::TransferKind;
use crate::report::{Levels, Phase, Progress, RateMeter};

/// Where a transfer reports to.
pub struct ProgressSender {
    clock: Arc<dyn Clock>,
    watchers: watch::Sender<Option<Progress>>,
    now: Progress,
    meter: RateMeter,
    /// Bytes of the steps before this one.
    changed_before: u64,
    done_before: u64,
    wire_before: u64,
    levels_before: Levels,
}

impl ProgressSender {
    /// Of a transfer that begins; `watchers` see every step of it.
    pub fn new(
        clock: Arc<dyn Clock>,
        watchers: watch::Sender<Option<Progress>>,
        transfer: Uuid,
        kind: TransferKind,
    ) -> Self {
        let now = Progress { transfer: Some(transfer), ..Progress::waiting(kind) };
        let meter = RateMeter::new();
        ProgressSender {
            clock,
            watchers,
            now,
            meter,
            changed_before: 0,
            done_before: 0,
            wire_before: 0,
            levels_before: Levels::default(),
        }
    }

    pub(crate) fn phase(&mut self, phase: Phase) {
        self.now.phase = phase;
        self.now.moved_at = Some(self.clock.monotonic());
        self.publish();
    }

    pub(crate) fn planned(&mut self, snapshots: u64) {
        self.now.snapshots = Some(snapshots);
        self.publish();
    }

    /// A step begins (again): counts of it start from nothing.
    pub(crate) fn step_begins(&mut self, wire_bytes: u64) {
        self.wire_before = wire_bytes;
    }

    /// The source has found this much changed in the step.
    pub(crate) fn found(&mut self, changed_bytes: u64) {
        self.now.changed_bytes = Some(self.changed_before + changed_bytes);
        self.publish();
    }

    /// This much of the step has arrived, and `resumed_bytes` were staged before or are taken from here. Of these some may be sent again: they do
    /// not count beyond what was found.
    pub(crate) fn staged(&mut self, arrived_bytes: u64, resumed_bytes: u64, stream_wire_bytes: u64) {
        self.now.phase = Phase::Transfer;
        let found_bytes = self.now.changed_bytes.unwrap_or(0).saturating_sub(self.changed_before);
        let done_bytes = arrived_bytes.max(found_bytes.min(arrived_bytes + resumed_bytes));
        let (before, now) = (self.now.wire_bytes, self.clock.monotonic());
        self.now.done_bytes = self.done_before + done_bytes;
        self.now.wire_bytes = self.wire_before + stream_wire_bytes;
        if self.now.wire_bytes != before {
            self.now.moved_at = Some(now);
        }
        self.now.rate_bytes_per_second = self.meter.sample(now, self.now.done_bytes);
        self.now.eta_seconds = match (self.now.changed_bytes, self.now.rate_bytes_per_second) {
            (Some(all), Some(rate)) if rate > 0.0 => {
                Some(all.saturating_sub(self.now.done_bytes) as f64 / rate)
            }
            _ => None,
        };
        self.publish();
    }

    /// What has arrived of the step, by level; shown with what is published next.
    pub(crate) fn carried(&mut self, step: &Levels) {
        self.now.levels = self.levels_before;
        self.now.levels.add(step);
    }

    pub(crate) fn step_ends(&mut self, changed_bytes: u64) {
        self.changed_before += changed_bytes;
        self.done_before += changed_bytes;
        self.levels_before = self.now.levels;
        self.now.changed_bytes = Some(self.changed_before);
        self.now.done_bytes = self.done_before;
    }

    pub(crate) fn snapshot_done(&mut self) {
        self.now.snapshots_done += 1;
        self.now.changed_bytes = Some(self.changed_before);
        self.publish();
    }

    fn publish(&self) {
        self.watchers.send_replace(Some(self.now.clone()));
    }
}
