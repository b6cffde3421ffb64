//! The first stage: the ascending runs of a step that travel, less what the destination has told that it holds.

use std::sync::Arc;

use farside_engine::EngineError;
use farside_link::ByteStream;
use farside_peer::SessionError;
use tokio::io::ReadHalf;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::step::StepSource;
use crate::error::{TransferError, blocking, piece};
use crate::limits::{HELD_CHUNKS_BETWEEN_STAGES, RUNS_PER_BATCH, STREAM_SILENCE_MAX};
use crate::protocol::held::{self, Held, HeldRun};
use crate::protocol::stream::{self, StreamMessage};
use crate::source::counters::Counters;
use crate::source::flow::RunBatch;
use crate::source::heartbeat::Heartbeat;
use crate::source::known::Answers;
use crate::source::remaining::Remaining;

/// A part of the held list; `None` ends it.
type HeldPart = Result<Option<Vec<HeldRun>>, TransferError>;

/// What the destination tells of what it holds, as it comes.
pub(crate) struct HeldChunks {
    kind: Held,
    parts: mpsc::Receiver<HeldPart>,
}

/// Reads the held list, if there is one, in a task of its own, and after it the answers, if there are questions.
pub(crate) fn held_chunks(
    kind: Held,
    blocks: u64,
    mut reader: ReadHalf<Box<dyn ByteStream>>,
    answers: Option<Answers>,
    stages: &mut JoinSet<Result<(), TransferError>>,
) -> HeldChunks {
    let (out, parts) = mpsc::channel(HELD_CHUNKS_BETWEEN_STAGES);
    stages.spawn(async move {
        if kind != Held::None && !read_held(kind, blocks, &mut reader, out).await {
            return Ok(());
        }
        match answers {
            Some(answers) => answers.read(reader).await,
            None => Ok(()),
        }
    });
    HeldChunks { kind, parts }
}

/// Answers whether it came to its end.
async fn read_held(
    kind: Held,
    blocks: u64,
    reader: &mut ReadHalf<Box<dyn ByteStream>>,
    out: mpsc::Sender<HeldPart>,
) -> bool {
    let mut from = 0;
    loop {
        let part = match timeout(STREAM_SILENCE_MAX, stream::read_held(reader)).await {
            Ok(Ok(StreamMessage::Held(chunk))) => held::decode_chunk(&chunk, kind, from, blocks).map(Some),
            Ok(Ok(StreamMessage::HeldEnd)) => Ok(None),
            Ok(Ok(_)) => Err(TransferError::Protocol("an answer without a question".into())),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let silence = STREAM_SILENCE_MAX.as_secs();
                let lost = format!("the destination did not report what it holds within {silence} s");
                Err(SessionError::Lost(lost).into())
            }
        };
        if let Ok(Some(runs)) = &part {
            from = runs.last().map_or(from, HeldRun::end);
        }
        let (is_last, is_end) = (!matches!(part, Ok(Some(_))), matches!(part, Ok(None)));
        if out.send(part).await.is_err() || is_last {
            return is_end;
        }
    }
}

/// Merges the difference with what is held, until all of it was given or nobody wants any more.
pub(crate) async fn difference(
    source: StepSource,
    counters: Arc<Counters>,
    mut held: HeldChunks,
    heartbeat: Arc<Heartbeat>,
    out: mpsc::Sender<RunBatch>,
) -> Result<(), TransferError> {
    let kind = held.kind;
    let mut remaining = blocking(move || source.remaining(kind)).await?;
    while !remaining.is_done() {
        if remaining.needs_held() {
            match held.parts.recv().await {
                Some(Ok(Some(runs))) => remaining.add_held(runs),
                Some(Ok(None)) => remaining.end_held(),
                Some(Err(error)) => return Err(error),
                None => return Err(SessionError::Lost("the held list ended early".into()).into()),
            }
        }
        let batch;
        (batch, remaining) = piece(move || next_batch(remaining)).await?;
        counters.held.set(remaining.resumed_bytes());
        heartbeat.beat();
        if !batch.is_empty() && out.send(batch).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// As much as there is until the merge pauses.
fn next_batch(mut remaining: Remaining) -> Result<(RunBatch, Remaining), EngineError> {
    let batch = remaining.by_ref().take(RUNS_PER_BATCH).collect::<Result<_, _>>()?;
    Ok((batch, remaining))
}
