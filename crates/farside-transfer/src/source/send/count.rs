//! Counts the difference ahead of the stages that send it, so that progress knows the whole.

use std::sync::Arc;

use farside_engine::{ChangeKind, ChangedExtents, EngineError};
use farside_platform::Clock;
use tokio::sync::mpsc;

use super::step::StepSource;
use crate::error::{TransferError, blocking, piece};
use crate::limits::{SCAN_BATCH, SCAN_REPORT_EVERY};
use crate::protocol::Scanned;
use crate::protocol::stream::StreamMessage;
use crate::source::flow::Outgoing;

/// Counts and reports, at least every second, so that a long comparison is not silence.
pub(crate) async fn count(
    source: StepSource,
    clock: Arc<dyn Clock>,
    out: mpsc::Sender<Outgoing>,
) -> Result<(), TransferError> {
    let mut scanned = Scanned::default();
    let mut extents = blocking(move || source.extents()).await?;
    let mut reported = clock.monotonic();
    while !scanned.complete {
        let counting = clock.clone();
        (scanned, extents) = piece(move || count_batch(scanned, extents, &*counting)).await?;
        let now = clock.monotonic();
        if scanned.complete || now.saturating_sub(reported) >= SCAN_REPORT_EVERY {
            reported = now;
            if out.send(StreamMessage::Scanned(scanned).into()).await.is_err() {
                break;
            }
        }
    }
    Ok(())
}

fn count_batch(
    mut scanned: Scanned,
    mut extents: ChangedExtents,
    clock: &dyn Clock,
) -> Result<(Scanned, ChangedExtents), EngineError> {
    let started = clock.monotonic();
    for _ in 0..SCAN_BATCH {
        match extents.next() {
            None => {
                scanned.complete = true;
                break;
            }
            Some(extent) => {
                let extent = extent?;
                match extent.kind {
                    ChangeKind::Data => scanned.changed_bytes += extent.length,
                    ChangeKind::Hole => scanned.deallocated_bytes += extent.changed,
                }
            }
        }
    }
    let nanos = clock.monotonic().saturating_sub(started).as_nanos();
    scanned.scan_nanos = scanned.scan_nanos.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX));
    Ok((scanned, extents))
}
