//! The second stage: runs to frames to be. What is read of the incremental is what the difference says and nothing else; of
//! what the stream has carried before, nothing.

use std::sync::Arc;
use std::time::Duration;

use farside_engine::EngineError;
use farside_wire::Effort;
use tokio::sync::mpsc;

use super::frame::{Frame, Spares, Work};
use super::plan::{Planned, Planner};
use super::step::StepSource;
use crate::error::{TransferError, piece};
use crate::source::counters::Counters;
use crate::source::flow::RunBatch;
use crate::source::heartbeat::Heartbeat;

/// Reads a frame at a time on a blocking thread.
pub(crate) async fn read(
    source: StepSource,
    counters: Arc<Counters>,
    heartbeat: Arc<Heartbeat>,
    spares: Arc<Spares<Work>>,
    mut runs: mpsc::Receiver<RunBatch>,
    out: mpsc::Sender<Frame>,
) -> Result<(), TransferError> {
    let lookup = source.clone();
    let lookup = Box::new(move |first, count| lookup.fingerprints(first, count));
    let mut planner = Planner::new(lookup, source.refers);
    let mut ended = false;
    loop {
        if planner.needs_runs() && !ended {
            match runs.recv().await {
                Some(batch) => planner.add(batch),
                None => ended = true,
            }
        }
        let (source, counters, spares) = (source.clone(), counters.clone(), spares.clone());
        let frame;
        (frame, planner) = piece(move || {
            let planned = planner.next(ended)?;
            let frame = planned.map(|planned| read_frame(&source, &counters, planned, spares.take()));
            Ok::<_, EngineError>((frame.transpose()?, planner))
        })
        .await?;
        heartbeat.beat();
        let goes_on = match frame {
            Some(frame) => out.send(frame).await.is_ok(),
            None => !ended,
        };
        if !goes_on {
            return Ok(());
        }
    }
}

fn read_frame(
    source: &StepSource,
    counters: &Counters,
    planned: Planned,
    mut work: Work,
) -> Result<Frame, EngineError> {
    work.data.resize(planned.plan.data_bytes() as usize, 0);
    let ranges: Vec<(u64, u64)> = planned.plan.data_runs().map(|run| (run.position, run.blocks)).collect();
    source.engine.read_snapshot_ranges(&source.volume, source.incremental, &ranges, &mut work.data)?;
    counters.source_read.add(work.data.len() as u64);
    work.prefix.clear();
    // What is spent on it is decided when it is searched for, as late as can be.
    Ok(Frame { planned, work, effort: Effort::default(), searching: Duration::ZERO, withdrawn: Vec::new() })
}
