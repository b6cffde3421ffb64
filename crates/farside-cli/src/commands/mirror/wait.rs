//! What `farside mirror wait` waits for, and what it tells of it.

use std::time::Duration;

use farside_api::{
    ErrorBody, ErrorCode, Mirror, Operation, OperationKind, OperationState, Role, Timestamp, TransferKind,
    TransferRecord, TransferResult,
};
use jiff::SignedDuration;

use super::outcomes::{name_of, outcome_and_way_back};
use crate::arguments::names::VolumeName;
use crate::commands::context::Context;
use crate::commands::present;
use crate::progress;
use crate::quantities::time;

/// `farside mirror wait`: for the end of what was asked for last, or of what goes on by itself.
pub(super) async fn run(context: &Context, volume: &VolumeName) -> Result<(), ErrorBody> {
    let name = volume.to_string();
    let all: Vec<Operation> = context.client.get_with(&["operations"], &[("volume", &name)]).await?;
    match all.into_iter().next_back() {
        Some(last) => {
            let verb = name_of(&last.kind);
            if last.state == OperationState::Failed
                && let Some(over) = over(context, &last).await?
            {
                return Err(over);
            }
            if let Some(at) = updated_since(context, volume, &last).await? {
                context.show(&last, |last| {
                    format!(
                        "nothing goes on that was asked for; the last {verb} of {} that was asked for failed, and it was updated since, at \
                         {}\n",
                        last.volume,
                        time(at)
                    )
                });
                return Ok(());
            }
            if let Some(now) = shown_since(context, &last).await? {
                context.show(&last, |last| {
                    format!(
                        "nothing goes on that was asked for; the last {verb} of {0} that was asked for has ended well{1}, and {0} holds {now} by now\n",
                        last.volume,
                        last.ended_at.map_or_else(String::new, |at| format!(", at {}", time(at)))
                    )
                });
                return Ok(());
            }
            let last = long_over(last, &verb);
            show_end(context, &verb, None, last, None).await?;
        }
        None => until_at_rest(context, &name).await?,
    }
    Ok(())
}

/// That what was asked for, and failed, is of a mirror that is no more, or of a time before a break; none if it counts.
async fn over(context: &Context, last: &Operation) -> Result<Option<ErrorBody>, ErrorBody> {
    let name = &last.volume;
    let Some(replica) = replica(context, name).await? else {
        let message = format!("nothing goes on: {name} is the replica of no mirror (any more)");
        return Ok(Some(ErrorBody::new(ErrorCode::NotFound, message)));
    };
    let since = replica.broken_off_at.zip(last.ended_at).filter(|(broken_off, failed)| broken_off > failed);
    Ok(since.map(|(broken_off, _)| {
        let message = format!(
            "nothing goes on: the last {} of {name} that was asked for failed, and {name} went on without its source at {}",
            name_of(&last.kind),
            time(broken_off)
        );
        ErrorBody::new(ErrorCode::NotFound, message)
    }))
}

/// When an update that nobody asked for has brought what one that somebody asked for did not, or a change of roles; none if none has.
async fn updated_since(
    context: &Context,
    volume: &VolumeName,
    last: &Operation,
) -> Result<Option<Timestamp>, ErrorBody> {
    let is_of_data = matches!(last.kind, OperationKind::Update | OperationKind::Initialize);
    let Some(failed_at) = last.ended_at.filter(|_| last.state == OperationState::Failed && is_of_data) else {
        return Ok(None);
    };
    let name = volume.to_string();
    let history: Vec<TransferRecord> = context.client.get_with(&["history"], &[("volume", &name)]).await?;
    let brought = history.iter().filter(|record| record.result == TransferResult::Ok);
    let brought = brought.map(|record| record.ended_at).max();
    // What a change of roles has left it with came by no transfer to here.
    let lag = replica(context, &name).await?.and_then(|replica| replica.lag_seconds);
    let lag = lag.and_then(|lag| SignedDuration::try_from_secs_f64(lag).ok());
    let as_of = lag.and_then(|lag| Timestamp::now().checked_sub(lag).ok());
    Ok(brought.max(as_of).filter(|at| *at > failed_at))
}

/// The mirror that has this volume as its replica.
async fn replica(context: &Context, name: &str) -> Result<Option<Mirror>, ErrorBody> {
    let mirrors: Vec<Mirror> = context.client.get_with(&["mirrors"], &[("volume", name)]).await?;
    Ok(mirrors.into_iter().find(|m| m.role == Role::Destination))
}

/// What a replica shows since an update that was asked for has ended well; none if that is what it brought.
async fn shown_since(context: &Context, last: &Operation) -> Result<Option<String>, ErrorBody> {
    let is_update = matches!(last.kind, OperationKind::Update | OperationKind::Initialize);
    let brought = last.record.as_ref().and_then(|record| record.incremental.as_ref());
    let Some(brought) = brought.filter(|_| is_update && last.state == OperationState::Done) else {
        return Ok(None);
    };
    let replica = replica(context, &last.volume).await?;
    Ok(replica.and_then(|replica| replica.current_snapshot).filter(|shown| shown != brought))
}

/// What has failed before anybody waited for it may have another reason by now, or none: it says when it was.
fn long_over(mut last: Operation, verb: &str) -> Operation {
    if let (OperationState::Failed, Some(at), Some(error)) = (last.state, last.ended_at, &mut last.error) {
        error.message = format!(
            "nothing goes on that was asked for; the last {verb} of {} that was asked for failed at {}: {}",
            last.volume,
            time(at),
            error.message
        );
    }
    last
}

/// Waits for what goes on by itself: what was begun before the daemon was started again.
async fn until_at_rest(context: &Context, name: &str) -> Result<(), ErrorBody> {
    let mut has_waited = false;
    loop {
        let mirrors: Vec<Mirror> = context.client.get_with(&["mirrors"], &[("volume", name)]).await?;
        let of_here = mirrors.iter().find(|m| m.role == Role::Destination);
        let Some(mirror) = of_here.filter(|m| has_waited || m.transfer.is_some()) else {
            return Err(ErrorBody::new(
                ErrorCode::NotFound,
                format!("nothing was asked for of {name} since the daemon started, and nothing goes on"),
            )
            .hint("farside mirror history says what came of earlier transfers"));
        };
        if mirror.transfer.is_some() {
            has_waited = true;
            tokio::time::sleep(Duration::from_millis(500)).await;
            continue;
        }
        let records: Vec<TransferRecord> = context.client.get_with(&["history"], &[("volume", name)]).await?;
        return match records.first() {
            Some(record) if record.result != TransferResult::Ok => Err(ErrorBody::new(
                ErrorCode::Failed,
                record.reason.clone().unwrap_or_else(|| format!("the transfer to {name} did not end well")),
            )),
            Some(record) => {
                // The daemon that it was asked of is not there any more: what it came to has the same form.
                context.show(&as_operation(name, record), outcome_and_way_back);
                Ok(())
            }
            None => Err(ErrorBody::new(
                ErrorCode::Failed,
                format!("what was under way for {} has ended, and left no record", mirror.name),
            )),
        };
    }
}

/// A transfer that nobody has asked this daemon for, as if somebody had.
fn as_operation(volume: &str, record: &TransferRecord) -> Operation {
    Operation {
        id: record.id,
        kind: match record.kind {
            TransferKind::Initialize => OperationKind::Initialize,
            TransferKind::Update => OperationKind::Update,
            TransferKind::Resync => OperationKind::Resync,
        },
        phase: None,
        volume: volume.to_owned(),
        state: OperationState::Done,
        started_at: record.started_at,
        ended_at: Some(record.ended_at),
        transfer: None,
        session_lost_seconds: None,
        waits_to_begin: false,
        record: Some(record.clone()),
        error: None,
    }
}

/// Waits for the end of what was asked for, and tells what came of it. `timeout`: how long it waits for a lost session, where that is known.
pub(super) async fn show_end(
    context: &Context,
    verb: &str,
    there: Option<bool>,
    started: Operation,
    timeout: Option<Duration>,
) -> Result<(), ErrorBody> {
    let ended = progress::watch_for(&context.client, started, timeout).await?;
    if ended.state == OperationState::Failed {
        let unknown = || ErrorBody::new(ErrorCode::Failed, format!("the {verb} of {} failed", ended.volume));
        return Err(ended.error.clone().unwrap_or_else(unknown));
    }
    present::show(context, there, &ended, verb, outcome_and_way_back);
    Ok(())
}
