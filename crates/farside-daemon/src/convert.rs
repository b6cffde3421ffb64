//! Converts the mirror crate's values to the API's, and back.

use std::time::Duration;

use farside_api as api;
use farside_engine::ContentRoot;
use farside_link::{Priority, Window};
use farside_mirror::{LogEntry, LogEvent, MirrorOptions, RequestedBy, SourceHeard, State, rescues};
use farside_platform::Timestamp;
use farside_transfer::bases::{is_left_base, is_left_kept, is_of_timetable, is_of_transfer};
use farside_transfer::{Level, Levels, Phase, Progress, TransferKind, TransferReport, TransferResult};

/// A time, to the nanosecond.
pub(crate) fn time(time: Timestamp) -> api::Timestamp {
    // Good until the year 2554, which is within jiff's range.
    api::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or(api::Timestamp::MAX)
}

/// And back; what lies before 1970 becomes that.
pub(crate) fn timestamp(time: api::Timestamp) -> Timestamp {
    Timestamp(u64::try_from(time.as_nanosecond()).unwrap_or(0))
}

/// A duration in the largest unit of which it is two or more: `45 s`, `90 min`, `36 h`, `365 days`.
pub(crate) fn roughly(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

pub(crate) fn state(state: State) -> api::MirrorState {
    match state {
        State::Uninitialized => api::MirrorState::Uninitialized,
        State::Initializing => api::MirrorState::Initializing,
        State::Mirrored => api::MirrorState::Mirrored,
        State::Transferring => api::MirrorState::Transferring,
        State::Queued => api::MirrorState::Queued,
        State::Quiesced => api::MirrorState::Quiesced,
        State::BrokenOff => api::MirrorState::BrokenOff,
    }
}

pub(crate) fn source_heard(heard: SourceHeard) -> api::SourceHeard {
    match heard {
        SourceHeard::NotYet => api::SourceHeard::NotYet,
        SourceHeard::Noted => api::SourceHeard::Noted,
        SourceHeard::Fenced => api::SourceHeard::Fenced,
        SourceHeard::Follows => api::SourceHeard::Follows,
        SourceHeard::Released => api::SourceHeard::Released,
    }
}

pub(crate) fn kind(kind: TransferKind) -> api::TransferKind {
    match kind {
        TransferKind::Initialize => api::TransferKind::Initialize,
        TransferKind::Update => api::TransferKind::Update,
        TransferKind::Resync => api::TransferKind::Resync,
    }
}

fn phase(phase: Phase) -> api::TransferPhase {
    match phase {
        Phase::Waiting => api::TransferPhase::Waiting,
        Phase::Snapshot => api::TransferPhase::Snapshot,
        Phase::Difference => api::TransferPhase::Difference,
        Phase::Transfer => api::TransferPhase::Transfer,
        Phase::Verify => api::TransferPhase::Verify,
        Phase::Group => api::TransferPhase::Group,
        Phase::Commit => api::TransferPhase::Commit,
    }
}

fn levels(levels: &Levels) -> api::Levels {
    let level = |level: Level| api::Level { in_bytes: level.in_bytes, out_bytes: level.out_bytes };
    api::Levels {
        known: level(levels.known),
        repeat: level(levels.repeat),
        delta: level(levels.delta),
        compressed: level(levels.compressed),
        raw: level(levels.raw),
    }
}

/// The levels that [`levels`] was made of.
fn levels_back(levels: &api::Levels, noise_bytes: Option<u64>) -> Levels {
    let level = |level: api::Level| Level { in_bytes: level.in_bytes, out_bytes: level.out_bytes };
    Levels {
        known: level(levels.known),
        repeat: level(levels.repeat),
        delta: level(levels.delta),
        compressed: level(levels.compressed),
        raw: level(levels.raw),
        noise_bytes,
    }
}

pub(crate) fn link(options: &MirrorOptions) -> api::MirrorLink {
    api::MirrorLink {
        throttle: options.throttle.to_string(),
        window_bytes: match options.window {
            Window::Auto => None,
            Window::Bytes(bytes) => Some(bytes),
        },
        low_priority: options.priority == Priority::Low,
        paths: options.paths.iter().map(ToString::to_string).collect(),
    }
}

/// At monotonic time `now`: what has stood for a while has no rate, whatever it was.
pub(crate) fn transfer(progress: &Progress, now: Duration) -> api::Transfer {
    let stands = progress.stands_for(now).is_some();
    api::Transfer {
        kind: kind(progress.kind),
        phase: phase(progress.phase),
        changed_bytes: progress.changed_bytes,
        done_bytes: progress.done_bytes,
        wire_bytes: progress.wire_bytes,
        rate_bytes_per_second: if stands { Some(0.0) } else { progress.rate_bytes_per_second },
        eta_seconds: progress.eta_seconds.filter(|_| !stands),
        levels: levels(&progress.levels),
    }
}

pub(crate) fn record(report: &TransferReport) -> api::TransferRecord {
    api::TransferRecord {
        id: report.id,
        // Whoever keeps or shows it knows.
        volume: None,
        kind: kind(report.kind),
        result: match report.result {
            TransferResult::Ok => api::TransferResult::Ok,
            TransferResult::Failed => api::TransferResult::Failed,
            TransferResult::Aborted => api::TransferResult::Aborted,
        },
        reason: report.reason.clone(),
        started_at: time(report.started_at),
        ended_at: time(report.ended_at),
        duration_seconds: report.duration_seconds,
        base: report.base.clone(),
        incremental: report.incremental.clone(),
        content_root: report.content_root.map(|root| root.to_string()),
        resumed: report.resumed,
        snapshots: report.snapshots,
        changed_bytes: report.changed_bytes,
        resumed_bytes: report.resumed_bytes,
        deallocated_bytes: report.deallocated_bytes,
        source_read_bytes: Some(report.source_read_bytes),
        base_read_bytes: Some(report.base_read_bytes),
        referenced_bytes: report.referenced_bytes,
        delta_bytes: Some(report.delta_bytes),
        literal_bytes: Some(report.literal_bytes),
        levels: report.levels.as_ref().map(levels),
        noise_bytes: report.levels.and_then(|levels| levels.noise_bytes),
        overhead_bytes: report.overhead_bytes(),
        wire_bytes_sent: report.wire_bytes_sent,
        wire_bytes_received: report.wire_bytes_received,
        scan_seconds: Some(report.scan_seconds),
        set_aside: report.set_aside.clone(),
        let_go: report.let_go.clone(),
    }
}

/// The report that [`record`] was made of; none if the record's root is none.
pub(crate) fn report(record: &api::TransferRecord) -> Option<TransferReport> {
    let root = match &record.content_root {
        None => None,
        Some(text) => Some(ContentRoot(u128::from_str_radix(text, 16).ok()?.to_be_bytes())),
    };
    Some(TransferReport {
        id: record.id,
        kind: match record.kind {
            api::TransferKind::Initialize => TransferKind::Initialize,
            api::TransferKind::Update => TransferKind::Update,
            api::TransferKind::Resync => TransferKind::Resync,
        },
        result: match record.result {
            api::TransferResult::Ok => TransferResult::Ok,
            api::TransferResult::Failed => TransferResult::Failed,
            api::TransferResult::Aborted => TransferResult::Aborted,
        },
        reason: record.reason.clone(),
        started_at: timestamp(record.started_at),
        ended_at: timestamp(record.ended_at),
        duration_seconds: record.duration_seconds,
        base: record.base.clone(),
        incremental: record.incremental.clone(),
        content_root: root,
        resumed: record.resumed,
        snapshots: record.snapshots,
        changed_bytes: record.changed_bytes,
        resumed_bytes: record.resumed_bytes,
        deallocated_bytes: record.deallocated_bytes,
        source_read_bytes: record.source_read_bytes.unwrap_or(0),
        base_read_bytes: record.base_read_bytes.unwrap_or(0),
        referenced_bytes: record.referenced_bytes,
        delta_bytes: record.delta_bytes.unwrap_or(0),
        literal_bytes: record.literal_bytes.unwrap_or(0),
        levels: record.levels.as_ref().map(|levels| levels_back(levels, record.noise_bytes)),
        wire_bytes_sent: record.wire_bytes_sent,
        wire_bytes_received: record.wire_bytes_received,
        scan_seconds: record.scan_seconds.unwrap_or(0.0),
        set_aside: record.set_aside.clone(),
        let_go: record.let_go.clone(),
    })
}

/// What took a person's snapshot of this name, if no person did. Names of rescues are reserved; the others are those that this
/// program gives, and that nobody else has a reason to give.
pub(crate) fn taken_by(name: &str) -> Option<api::TakenBy> {
    // One that came from the source does not count among those of this site, but no person took it either.
    let is_rescue = |name: &str| rescues::is_reserved(name);
    if is_rescue(name) || name.strip_prefix("source-").is_some_and(is_rescue) {
        Some(api::TakenBy::Rescue)
    } else if is_of_timetable(name) {
        Some(api::TakenBy::Timetable)
    } else {
        (is_left_base(name) || is_left_kept(name) || is_of_transfer(name)).then_some(api::TakenBy::Mirror)
    }
}

/// A line of the log.
pub(crate) fn log_line(entry: &LogEntry) -> api::LogLine {
    let (mut requested_by, mut bytes, mut reason) = (None, None, None);
    let event = match &entry.event {
        LogEvent::Request { by } => {
            requested_by = Some(match by {
                RequestedBy::Person => api::RequestedBy::Person,
                RequestedBy::Schedule => api::RequestedBy::Schedule,
                RequestedBy::Retry => api::RequestedBy::Retry,
                RequestedBy::CatchUp => api::RequestedBy::CatchUp,
                RequestedBy::GaveWay => api::RequestedBy::GaveWay,
                RequestedBy::Group => api::RequestedBy::Group,
                RequestedBy::Swap => api::RequestedBy::Swap,
            });
            api::LogEvent::Request
        }
        LogEvent::Start => api::LogEvent::Start,
        LogEvent::End { bytes: brought } => {
            bytes = Some(*brought);
            api::LogEvent::End
        }
        LogEvent::Abort { reason: why } => {
            reason = Some(why.clone());
            api::LogEvent::Abort
        }
        LogEvent::Rescue { snapshot } => {
            reason = Some(format!("what the volume showed until then is kept as {snapshot}"));
            api::LogEvent::Rescue
        }
        LogEvent::RescueDeleted { snapshot } => {
            reason = Some(format!(
                "the old side branch {snapshot} was deleted: newer ones are there (replicas.rescues)"
            ));
            api::LogEvent::RescueDeleted
        }
        LogEvent::Break => api::LogEvent::Break,
        LogEvent::Resync => api::LogEvent::Resync,
        LogEvent::Swap => api::LogEvent::Swap,
        LogEvent::Quiesce => api::LogEvent::Quiesce,
        LogEvent::Resume => api::LogEvent::Resume,
        LogEvent::Delete => api::LogEvent::Delete,
        LogEvent::Drill { outcome } => {
            reason = Some(outcome.clone());
            api::LogEvent::Drill
        }
    };
    api::LogLine {
        at: time(entry.at),
        mirror: entry.volume.to_string(),
        relationship: entry.relationship,
        event,
        kind: entry.kind.map(kind),
        transfer: entry.transfer,
        requested_by,
        bytes,
        reason,
    }
}
