//! What a transfer tells while it runs ([`Progress`]) and when it has ended ([`TransferReport`]).

mod levels;

use std::fmt;
use std::time::Duration;

use farside_engine::ContentRoot;
use farside_platform::Timestamp;
use uuid::Uuid;

use crate::kind::TransferKind;
use crate::limits::{RATE_UNKNOWN_FOR, RATE_WINDOW, STANDS_AFTER};

pub use levels::{Level, LevelKind, Levels};

/// How far a transfer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Waits for its turn or for a session.
    Waiting,
    /// The source takes its snapshot.
    Snapshot,
    /// The source compares metadata.
    Difference,
    /// Frames travel.
    Transfer,
    /// Content roots are compared.
    Verify,
    /// What arrived waits for the other volumes of its group.
    Group,
    /// The new version is published.
    Commit,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Waiting => "waiting",
            Phase::Snapshot => "snapshot",
            Phase::Difference => "difference",
            Phase::Transfer => "transfer",
            Phase::Verify => "verify",
            Phase::Group => "group",
            Phase::Commit => "commit",
        })
    }
}

/// A transfer under way. Byte counts are over all its snapshots.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// The transfer; none while it waits.
    pub transfer: Option<Uuid>,
    /// What for.
    pub kind: TransferKind,
    /// How far.
    pub phase: Phase,
    /// Snapshots published so far.
    pub snapshots_done: u64,
    /// Snapshots in all; none before the source has answered.
    pub snapshots: Option<u64>,
    /// Bytes found changed so far; none before the difference.
    pub changed_bytes: Option<u64>,
    /// Of these, staged or published here.
    pub done_bytes: u64,
    /// Bytes on the wire, both ways.
    pub wire_bytes: u64,
    /// When any of these bytes came last, by the monotonic clock.
    pub moved_at: Option<Duration>,
    /// Rate of `done_bytes`, smoothed over [`RATE_WINDOW`].
    pub rate_bytes_per_second: Option<f64>,
    /// Time that remains of what has been found so far, at this rate.
    pub eta_seconds: Option<f64>,
    /// What has arrived so far, by level; of the step under way too.
    pub levels: Levels,
}

impl Progress {
    /// Of a transfer that waits.
    pub fn waiting(kind: TransferKind) -> Progress {
        Progress {
            transfer: None,
            kind,
            phase: Phase::Waiting,
            snapshots_done: 0,
            snapshots: None,
            changed_bytes: None,
            done_bytes: 0,
            wire_bytes: 0,
            moved_at: None,
            rate_bytes_per_second: None,
            eta_seconds: None,
            levels: Levels::default(),
        }
    }

    /// For how long nothing has come, if that is long: the rate of before says nothing then.
    pub fn stands_for(&self, now: Duration) -> Option<Duration> {
        let stands = now.saturating_sub(self.moved_at.filter(|_| self.phase == Phase::Transfer)?);
        (stands >= STANDS_AFTER).then_some(stands)
    }
}

/// Smooths a growing count of bytes to a rate.
#[derive(Debug)]
pub(crate) struct RateMeter {
    first: Option<(Duration, u64)>,
    last: (Duration, u64),
    rate: Option<f64>,
}

impl RateMeter {
    pub(crate) fn new() -> Self {
        RateMeter { first: None, last: (Duration::ZERO, 0), rate: None }
    }

    /// `bytes` in all at monotonic time `now`. Exponential smoothing: what is older than the window counts for a
    /// third and less. In the first window it is the mean since the first sample, and unknown in the first second: what
    /// comes at once was held or waited for, and would count as a rate that no line has.
    pub(crate) fn sample(&mut self, now: Duration, bytes: u64) -> Option<f64> {
        let Some((began, at_first)) = self.first else {
            self.first = Some((now, bytes));
            self.last = (now, bytes);
            return None;
        };
        let (then, before) = self.last;
        let elapsed = now.saturating_sub(then).as_secs_f64();
        let since_first = now.saturating_sub(began);
        if elapsed <= 0.0 || since_first < RATE_UNKNOWN_FOR {
            return self.rate;
        }
        self.last = (now, bytes);
        if since_first < RATE_WINDOW {
            self.rate = Some(bytes.saturating_sub(at_first) as f64 / since_first.as_secs_f64());
            return self.rate;
        }
        let latest = bytes.saturating_sub(before) as f64 / elapsed;
        let weight = 1.0 - (-elapsed / RATE_WINDOW.as_secs_f64()).exp();
        self.rate = Some(self.rate.map_or(latest, |old| old + weight * (latest - old)));
        self.rate
    }
}

/// How a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferResult {
    /// Published.
    Ok,
    /// Not; the replica is as it was, or at the last snapshot that did arrive whole.
    Failed,
    /// Ended by a person; the same.
    Aborted,
}

/// A transfer that has ended: every figure of `mirror history`. Bytes are over all its snapshots, seconds from the
/// destination's clocks but for `scan_seconds`.
#[derive(Clone, PartialEq, Debug)]
pub struct TransferReport {
    /// The transfer's id, the same on both sides.
    pub id: Uuid,
    /// What for.
    pub kind: TransferKind,
    /// How it ended.
    pub result: TransferResult,
    /// Why, if not well.
    pub reason: Option<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How long it took, by the monotonic clock.
    pub duration_seconds: f64,
    /// Name of the snapshot it started from; none for a copy from nothing.
    pub base: Option<String>,
    /// Name of the last snapshot it brought, as it is called here.
    pub incremental: Option<String>,
    /// That snapshot's content root, as computed here.
    pub content_root: Option<ContentRoot>,
    /// Whether it went on with what an earlier one had staged.
    pub resumed: bool,
    /// Snapshots it published.
    pub snapshots: u64,
    /// Bytes of data that travelled: what the metadata difference found, less what was held or known.
    pub changed_bytes: u64,
    /// Bytes of data that the difference found and that did not travel: an earlier transfer had brought them.
    pub resumed_bytes: u64,
    /// Bytes that became holes.
    pub deallocated_bytes: u64,
    /// Bytes of its snapshots that the source read: no more than changed.
    pub source_read_bytes: u64,
    /// Bytes that the source read to code against: of the base, or of what it had sent before.
    pub base_read_bytes: u64,
    /// What travelled, by level; none if a version wrote the report that did not count it.
    pub levels: Option<Levels>,
    /// Bytes that travelled as references: known or repeated.
    pub referenced_bytes: Option<u64>,
    /// Bytes that travelled compressed against content that both sides held.
    pub delta_bytes: u64,
    /// Bytes that travelled compressed by themselves, or as they are.
    pub literal_bytes: u64,
    /// Wire bytes destination to source: control messages, TLS.
    pub wire_bytes_sent: u64,
    /// Wire bytes source to destination: frames, control messages, TLS.
    pub wire_bytes_received: u64,
    /// Time the source spent comparing metadata.
    pub scan_seconds: f64,
    /// Names of the side branches that content of the replica became on which it does not go on. Whoever started the transfer finds
    /// them.
    pub set_aside: Vec<String>,
    /// Names of the old side branches that were deleted for these: a volume keeps so many.
    pub let_go: Vec<String>,
}

impl TransferReport {
    /// Of a transfer that begins at `started_at`, or has not begun then.
    pub fn begun(id: Uuid, kind: TransferKind, started_at: Timestamp) -> TransferReport {
        TransferReport {
            id,
            kind,
            result: TransferResult::Failed,
            reason: None,
            started_at,
            ended_at: started_at,
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
            levels: Some(Levels::default()),
            referenced_bytes: Some(0),
            delta_bytes: 0,
            literal_bytes: 0,
            wire_bytes_sent: 0,
            wire_bytes_received: 0,
            scan_seconds: 0.0,
            set_aside: Vec::new(),
            let_go: Vec::new(),
        }
    }

    /// Counts what a step brought.
    pub(crate) fn add_levels(&mut self, step: &Levels) {
        let mut levels = self.levels.unwrap_or_default();
        levels.add(step);
        self.levels = Some(levels);
        self.referenced_bytes = Some(levels.known.in_bytes.saturating_add(levels.repeat.in_bytes));
        self.delta_bytes = levels.delta.in_bytes;
        self.literal_bytes = levels.compressed.in_bytes.saturating_add(levels.raw.in_bytes);
    }

    /// What a step brought was thrown away, and all of it is brought once more: its figures are those of `before` it. What
    /// travelled for it is in the wire bytes.
    pub(crate) fn forget_attempt(&mut self, before: &TransferReport) {
        self.resumed = before.resumed;
        self.changed_bytes = before.changed_bytes;
        self.resumed_bytes = before.resumed_bytes;
        self.deallocated_bytes = before.deallocated_bytes;
        self.source_read_bytes = before.source_read_bytes;
        self.base_read_bytes = before.base_read_bytes;
        self.levels = before.levels;
        self.referenced_bytes = before.referenced_bytes;
        self.delta_bytes = before.delta_bytes;
        self.literal_bytes = before.literal_bytes;
    }

    /// Wire bytes, both ways, that no level accounts for: headers and tables of frames, messages, TLS, and all of steps
    /// that did not arrive whole.
    pub fn overhead_bytes(&self) -> Option<u64> {
        let wire_bytes = self.wire_bytes_sent.saturating_add(self.wire_bytes_received);
        self.levels.map(|levels| wire_bytes.saturating_sub(levels.out_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_and_is_smooth() {
        let mut meter = RateMeter::new();
        assert_eq!(meter.sample(Duration::ZERO, 0), None);
        for second in 1..=60u64 {
            meter.sample(Duration::from_secs(second), second * 1000);
        }
        assert!((meter.sample(Duration::from_secs(61), 61_000).unwrap() - 1000.0).abs() < 1.0);
        // A pause of a second does not drop it to nothing.
        let paused = meter.sample(Duration::from_secs(62), 61_000).unwrap();
        assert!((700.0..1000.0).contains(&paused), "{paused}");
    }

    #[test]
    fn a_transfer_stands_when_nothing_has_come_for_a_while() {
        let s = Duration::from_secs;
        let mut progress = Progress { moved_at: Some(s(100)), ..Progress::waiting(TransferKind::Update) };
        assert_eq!(progress.stands_for(s(1000)), None, "it has not begun to bring anything");
        progress.phase = Phase::Transfer;
        assert_eq!(progress.stands_for(s(109)), None);
        assert_eq!(progress.stands_for(s(147)), Some(s(47)));
    }

    #[test]
    fn what_comes_at_once_at_the_beginning_is_no_rate() {
        let mut meter = RateMeter::new();
        let ms = Duration::from_millis;
        meter.sample(ms(0), 0);
        // 3 MB that were held, then 1 MB/s.
        assert_eq!(meter.sample(ms(10), 3_000_000), None);
        assert_eq!(meter.sample(ms(900), 3_900_000), None);
        let early = meter.sample(ms(1000), 4_000_000).unwrap();
        assert!(early <= 4_000_000.0, "{early}");
        let rates: Vec<f64> =
            (2..=30).filter_map(|s| meter.sample(ms(s * 1000), 3_000_000 + s * 1_000_000)).collect();
        assert!(rates.windows(2).all(|pair| pair[1] <= pair[0] + 1.0), "{rates:?}");
        assert!((rates.last().unwrap() - 1_000_000.0).abs() < 20_000.0, "{rates:?}");
    }
}
