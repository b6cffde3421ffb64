//! One step of a transfer, source to destination:
//!
//! ```text
//!   difference ─► (what is known) ─► read ─► search ─► encode ─► send
//!        └──────► count changed bytes ──────────────────────────┘
//! ```
//!
//! Each stage is a task, between them a short channel: a slow link or destination stops the reads (back-pressure). The
//! difference gives ascending runs in batches ([`RunBatch`]); where the destination answers questions, what it knows is taken
//! away from them ([`Stage`]). Reads, search and encoding run on blocking threads, a frame at a time; encoding on several,
//! because a frame refers to what both sides hold, not to how that was coded. What is read is what the difference says, less
//! what is held or known, and what frames are coded against.
//!
//! The difference is walked twice, once to count ahead (so that progress knows the whole), once to read; both are
//! metadata. Of a step that was cut before, the destination tells on the same stream what it holds ([`Held`]), and the
//! second walk leaves that out ([`Remaining`](super::remaining::Remaining)). That list, and the answers after it, are read by
//! a task of its own: the source writes frames while it reads, the destination reads frames while it writes, so neither
//! waits for the other in a circle.

mod count;
mod difference;
mod encode;
mod frame;
mod pace;
mod plan;
mod read;
mod repeats;
mod search;
mod step;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use farside_engine::BLOCK_BYTES;
use farside_link::ByteStream;
use farside_peer::{DataStream, Refusal};
use farside_wire::Sent;
use tokio::io::{AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::encode::Encoding;
use self::frame::Spares;
use self::pace::Pace;
use self::search::Searching;
use self::step::StepSource;
use super::counters::Counters;
use super::cross_volume::CrossVolume;
use super::flow::{Outgoing, RunBatch};
use super::heartbeat::Heartbeat;
use super::known::{Planner, Stage};
use super::serving::Serving;
use super::shared::Shared;
use super::similarity::{Unread, VolumeIndex};
use crate::error::{TransferError, blocking};
use crate::limits::{
    BATCHES_BETWEEN_STAGES, CLOSE_TIMEOUT, FRAMES_BEFORE_ENCODING, FRAMES_BETWEEN_STAGES, SCAN_REPORT_EVERY,
    STREAM_STALL_MAX,
};
use crate::protocol::held::Held;
use crate::protocol::stream::{self, StreamMessage};
use crate::protocol::{Failure, Scanned, StepEnd};
use crate::refusal::{refusal, to_refusal};

/// What a destination asks for on a data stream.
#[derive(Clone, Debug)]
pub(crate) struct AskedStep {
    /// Which step of the plan.
    pub(crate) index: usize,
    /// No frame may refer to anything.
    pub(crate) without_base: bool,
    /// What the destination tells of what it holds.
    pub(crate) held: Held,
    /// The destination answers questions for known data.
    pub(crate) known: bool,
    /// What it holds of other volumes, and offers as bases.
    pub(crate) cross_volume: Vec<u64>,
    /// Room that it has for the step's data, if it may be too little.
    pub(crate) room_bytes: Option<u64>,
}

/// Why a stream ends that is of no use any more.
const ENDED: &str = "the transfer has ended, or another stream of it was opened";

/// Serves a step of a transfer on `stream` until it is sent, fails, or nobody wants it any more.
pub(crate) async fn serve_step(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    asked: AskedStep,
    stream: DataStream,
) {
    let (transfer, index) = (serving.transfer, asked.index);
    let (link, (reader, mut writer)) = (stream.stats, tokio::io::split(stream.io));
    let ended = serving.next_stream();
    let sending = async {
        let _guard = serving.stream_lock.lock().await;
        let pace = Arc::new(Pace::of(shared, serving, link));
        let sent = send_step(shared, serving, asked, &pace, reader, &mut writer).await;
        pace.remember(shared, serving);
        sent
    };
    let outcome = tokio::select! {
        outcome = sending => outcome,
        () = ended.cancelled() => {
            if serving.is_to_begin_again.load(Ordering::Relaxed) {
                tracing::info!(%transfer, volume = %serving.volume, step = index, "step not sent: it begins again without the base");
                return;
            }
            // Who opens streams for what has ended fills no log.
            tracing::debug!(%transfer, volume = %serving.volume, step = index, "step not sent: {ENDED}");
            refuse(&mut writer, &refusal("state", ENDED)).await;
            return;
        }
    };
    match outcome {
        Ok(end) => {
            tracing::debug!(%transfer, step = index, ?end, "step sent");
            let brought = end.changed_bytes + end.deallocated_bytes + end.known_bytes + end.resumed_bytes;
            serving.brought.fetch_add(brought, Ordering::Relaxed);
        }
        Err(refusal) => {
            if let Some(suppressed) = shared.admit_failure(serving.peer) {
                tracing::warn!(
                    %transfer, volume = %serving.volume, step = index, code = refusal.code, suppressed,
                    "step not sent: {}", refusal.message
                );
            }
            refuse(&mut writer, &refusal).await;
        }
    }
}

/// Says why, as far as the link still carries it, and closes.
pub(crate) async fn refuse(io: &mut (impl AsyncWrite + Unpin + ?Sized), refusal: &Refusal) {
    let failure = StreamMessage::Failure(Failure::new(&refusal.code, &refusal.message));
    let said = async {
        if stream::write(io, &failure).await.is_ok() {
            let _ = io.shutdown().await;
        }
    };
    // Nothing depends on it.
    let _ = timeout(CLOSE_TIMEOUT, said).await;
}

fn lost(error: std::io::Error) -> Refusal {
    refusal("failed", format!("the stream was lost: {error}"))
}

/// What the link's time goes to: it works on a frame until the next one is there or all of it has been handed out.
struct Sending<'a> {
    pace: &'a Pace,
    idle_since: Duration,
    /// The frame that it works on, and since when.
    last: Option<(Sent, Duration)>,
}

impl Sending<'_> {
    /// The link has nothing to do, or gets something else.
    fn link_is_idle(&mut self) {
        if let Some((mut cost, began)) = self.last.take() {
            self.idle_since = self.pace.now();
            cost.writing = self.idle_since.saturating_sub(began);
            self.pace.sent(&cost);
        }
    }

    /// The next frame is written from now on.
    fn begins(&mut self, mut cost: Sent) {
        self.link_is_idle();
        let now = self.pace.now();
        cost.waited = now.saturating_sub(self.idle_since);
        self.last = Some((cost, now));
    }
}

/// Writes, or gives up on a destination that stopped reading.
async fn write_in_time(writing: impl Future<Output = std::io::Result<()>>) -> Result<(), Refusal> {
    match timeout(STREAM_STALL_MAX, writing).await {
        Ok(written) => written.map_err(lost),
        Err(_) => Err(stalled()),
    }
}

fn stalled() -> Refusal {
    let stall = STREAM_STALL_MAX.as_secs();
    refusal("failed", format!("the destination read nothing for {stall} s"))
}

async fn send_step(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    AskedStep { index, without_base, held, known, cross_volume, room_bytes }: AskedStep,
    pace: &Arc<Pace>,
    reader: ReadHalf<Box<dyn ByteStream>>,
    writer: &mut WriteHalf<Box<dyn ByteStream>>,
) -> Result<StepEnd, Refusal> {
    let plan = serving.plan.get().ok_or_else(|| refusal("state", "the transfer is not ready yet"))?;
    let local_base = serving.local_base.get().copied().flatten();
    let step = plan.steps.get(index).ok_or_else(|| refusal("failed", format!("there is no step {index}")))?;
    let base = index.checked_sub(1).map_or(local_base, |before| Some(plan.steps[before].uuid));
    let source = StepSource {
        engine: shared.engine.clone(),
        volume: serving.volume.clone(),
        base,
        incremental: step.uuid,
        size_bytes: step.size_bytes,
        refers: !without_base,
    };

    let steps = index + 1;
    let index = index_of(shared, &source).await?;
    let cross_volume = if source.refers { cross_volume } else { Vec::new() };
    let cross_volume = CrossVolume::of(shared, serving, cross_volume).await.map_err(to_refusal)?;
    let content = source.content();
    let clock = &shared.clock;
    let (counters, heartbeat) = (Arc::new(Counters::default()), Arc::new(Heartbeat::default()));
    let (spares, sent) = (Arc::new(Spares::default()), Arc::new(Spares::default()));
    let (runs_tx, runs_rx) = mpsc::channel::<RunBatch>(BATCHES_BETWEEN_STAGES);
    let (read_tx, read_rx) = mpsc::channel(FRAMES_BEFORE_ENCODING);
    let (found_tx, found_rx) = mpsc::channel(FRAMES_BEFORE_ENCODING);
    let (out_tx, mut out_rx) = mpsc::channel(FRAMES_BETWEEN_STAGES);
    // Dropped on every way out, which ends the stages after the frame they are at.
    let mut stages = JoinSet::new();
    stages.spawn(count::count(source.clone(), clock.clone(), out_tx.clone()));
    if let Some(room_bytes) = room_bytes {
        check_room(&mut out_rx, &mut stages, writer, &step.name, room_bytes).await?;
    }
    // What was refused for want of room is not half there.
    serving.steps_begun.fetch_max(steps, Ordering::Relaxed);
    let blocks = step.size_bytes / BLOCK_BYTES;
    let asking = known.then(|| {
        let planner = Planner::new(source.metadata(), blocks, held != Held::None);
        let unread = Unread::new(index.clone());
        Stage::new(
            serving.volume.clone(),
            planner,
            unread,
            counters.clone(),
            heartbeat.clone(),
            held == Held::None,
        )
    });
    let (asking, answers) = asking.unzip();
    let held = difference::held_chunks(held, blocks, reader, answers, &mut stages);
    stages.spawn(difference::difference(source.clone(), counters.clone(), held, heartbeat.clone(), runs_tx));
    let runs_rx = match asking {
        None => runs_rx,
        Some(asking) => {
            let (travels_tx, travels_rx) = mpsc::channel::<RunBatch>(BATCHES_BETWEEN_STAGES);
            stages.spawn(asking.run(runs_rx, out_tx.clone(), travels_tx));
            travels_rx
        }
    };
    stages.spawn(read::read(
        source.clone(),
        counters.clone(),
        heartbeat.clone(),
        spares.clone(),
        runs_rx,
        read_tx,
    ));
    let searching = Searching::new(source, counters.clone(), pace.clone(), index.clone(), cross_volume);
    stages.spawn(search::search(searching, read_rx, found_tx));
    let encoding = Encoding {
        counters: counters.clone(),
        pace: pace.clone(),
        first: Arc::default(),
        encoders: Arc::default(),
        spares,
        sent: sent.clone(),
    };
    stages.spawn(encode::encode(encoding, found_rx, out_tx));

    let mut sending = Sending { pace, idle_since: pace.now(), last: None };
    let mut is_flushed = true;
    loop {
        let next = tokio::select! {
            biased;
            next = timeout(SCAN_REPORT_EVERY, out_rx.recv()) => next,
            flushed = writer.flush(), if !is_flushed => {
                flushed.map_err(lost)?;
                is_flushed = true;
                sending.link_is_idle();
                continue;
            }
        };
        let next = match next {
            Ok(None) => break,
            Ok(Some(next)) => next,
            Err(_) if heartbeat.take() => StreamMessage::Working.into(),
            Err(_) => continue,
        };
        if !shared.relationships.may_read(serving.peer, &serving.volume) {
            return Err(refusal("forbidden", "the right to this volume was taken back"));
        }
        match next {
            Outgoing::Message(message) => write_in_time(stream::write(writer, &message)).await?,
            Outgoing::Frame(frame, cost) => {
                sending.begins(cost);
                write_in_time(stream::write_frame(writer, &frame)).await?;
                is_flushed = false;
                sent.give(frame);
            }
        }
        // What was sent says it too.
        heartbeat.take();
    }
    sending.link_is_idle();
    while let Some(ended) = stages.join_next().await {
        ended.map_err(TransferError::from).and_then(|result| result).map_err(to_refusal)?;
    }
    let end = counters.step_end();
    if let Some(index) = index {
        // What was known was neither read nor sent, so the index has not seen it; the next update may be coded against it.
        shared.indexes.rebuild(&index, content);
        tokio::spawn(async move { index.save_if_due().await });
    }
    // From here on the destination may publish it.
    serving.steps_sent.fetch_max(steps, Ordering::Relaxed);
    let ending = async {
        stream::write(writer, &StreamMessage::StepEnd(end)).await?;
        writer.shutdown().await
    };
    match timeout(STREAM_STALL_MAX, ending).await {
        Ok(Ok(())) => {}
        // Whoever has the end may close its side before this one knows that it has. If it failed instead, it says so.
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            tracing::debug!(transfer = %serving.transfer, "the stream of a step that was sent: {error}");
        }
        Ok(Err(error)) => return Err(lost(error)),
        Err(_) => return Err(stalled()),
    }
    Ok(end)
}

/// Waits until the difference is counted, before any stage has begun that could send of it, and refuses what the destination
/// has no room for.
async fn check_room(
    counting: &mut mpsc::Receiver<Outgoing>,
    stages: &mut JoinSet<Result<(), TransferError>>,
    writer: &mut WriteHalf<Box<dyn ByteStream>>,
    snapshot: &str,
    room_bytes: u64,
) -> Result<(), Refusal> {
    loop {
        let next = tokio::select! {
            biased;
            next = counting.recv() => next,
            // All that it said was read: it failed, or has nothing more to say.
            ended = stages.join_next() => {
                let ended = ended.unwrap_or(Ok(Ok(())));
                return ended.map_err(TransferError::from).and_then(|result| result).map_err(to_refusal);
            }
        };
        let Some(Outgoing::Message(message)) = next else { return Ok(()) };
        write_in_time(stream::write(writer, &message)).await?;
        if let StreamMessage::Scanned(Scanned { complete: true, changed_bytes, .. }) = message {
            if changed_bytes > room_bytes {
                return Err(refusal(
                    "no-space",
                    format!(
                        "{snapshot} brings {changed_bytes} bytes, and the destination has room for {room_bytes}"
                    ),
                ));
            }
            return Ok(());
        }
    }
}

/// The index of the volume, and its repair, if it needs any.
async fn index_of(shared: &Arc<Shared>, source: &StepSource) -> Result<Option<Arc<VolumeIndex>>, Refusal> {
    let (within, of) = (shared.clone(), source.clone());
    let found = blocking(move || {
        let volume = of.engine.volume(&of.volume)?.uuid;
        Ok::<_, TransferError>(within.indexes.of(volume, of.size_bytes, of.base.is_some()))
    });
    let index = found.await.map_err(to_refusal)?;
    if let Some(index) = &index {
        shared.indexes.rebuild(index, source.content());
    }
    Ok(index)
}
