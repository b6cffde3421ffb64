//! One step of a transfer, source to destination:
//!
//! ```text
//!   difference ─► read blocks ─► encode ─► send          each stage a task, between them a short channel: a slow
//!        └──────► count changed bytes ──────┘            link or destination stops the reads (back-pressure)
//! ```
//!
//! Reads run on a blocking thread, a frame at a time; encoding on several, because a frame refers to what the stream
//! carries, not to how that was coded. What is read is what the difference says and
//! nothing else: blocks of the incremental that changed, and the base's blocks at the same places, to code against.
//! The difference is walked twice, once to count ahead (so that progress knows the whole), once to read; both are
//! metadata. Of a step that was cut before, the destination tells on the same stream what it holds ([`Held`]), and the
//! second walk leaves that out ([`Remaining`]). That list is read by a task of its own: the source writes frames while it
//! reads the list, the destination reads frames while it writes it, so neither waits for the other in a circle.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use farside_engine::{
    BLOCK_BYTES, ChangeKind, ChangedExtent, ChangedExtents, Engine, EngineError, VolumeName,
};
use farside_format::Fingerprint;
use farside_platform::Clock;
use farside_session::{ByteStream, DataStream, Refusal, SessionError};
use farside_wire::{Effort, Encoder, FramePlan, FramePlans, FrameRung, Origin, Prefix, Run, RunKind};
use tokio::io::{AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::timeout;
use uuid::Uuid;

use super::counters::Counters;
use super::remaining::Remaining;
use super::{Serving, Shared, refusal, to_refusal};
use crate::error::{MirrorError, blocking};
use crate::limits::{
    ENCODERS_PER_TRANSFER, FAREWELL_TIMEOUT, FRAMES_BETWEEN_STAGES, HELD_CHUNKS_BETWEEN_STAGES, SCAN_BATCH,
    SCAN_REPORT_EVERY, STREAM_SILENCE_MAX, STREAM_STALL_MAX,
};
use crate::protocol::held::{self, Held, HeldRun};
use crate::protocol::stream::{self, StreamMessage};
use crate::protocol::{Failure, Scanned, StepEnd};

/// What a destination asks for on a data stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct AskedStep {
    /// Which step of the plan.
    pub(super) index: usize,
    /// No frame may refer to the base.
    pub(super) without_base: bool,
    /// What the destination tells of what it holds.
    pub(super) held: Held,
}

/// Serves a step of a transfer on `stream` until it is sent, fails, or nobody wants it any more.
pub(super) async fn serve_step(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    asked: AskedStep,
    stream: DataStream,
) {
    let (transfer, index) = (serving.transfer, asked.index);
    let (reader, mut writer) = tokio::io::split(stream.io);
    let ended = serving.next_stream();
    let sending = async {
        let _turn = serving.stream_turn.lock().await;
        send_step(shared, serving, asked, reader, &mut writer).await
    };
    let outcome = tokio::select! {
        outcome = sending => outcome,
        () = ended.cancelled() => {
            Err(refusal("state", "the transfer has ended, or another stream of it was opened"))
        }
    };
    match outcome {
        Ok(end) => tracing::debug!(%transfer, step = index, ?end, "step sent"),
        Err(refusal) => {
            tracing::warn!(
                %transfer, volume = %serving.volume, step = index, code = refusal.code, "step not sent: {}", refusal.message
            );
            refuse(&mut writer, &refusal).await;
        }
    }
}

/// Says why, as far as the link still carries it, and closes.
pub(super) async fn refuse(io: &mut (impl AsyncWrite + Unpin + ?Sized), refusal: &Refusal) {
    let failure = StreamMessage::Failure(Failure::new(&refusal.code, &refusal.message));
    let said = async {
        if stream::write(io, &failure).await.is_ok() {
            let _ = io.shutdown().await;
        }
    };
    // Nothing depends on it.
    let _ = timeout(FAREWELL_TIMEOUT, said).await;
}

/// Writes, or gives up on a destination that stopped reading.
async fn write_in_time(writing: impl Future<Output = std::io::Result<()>>) -> Result<(), Refusal> {
    match timeout(STREAM_STALL_MAX, writing).await {
        Ok(written) => written.map_err(|e| refusal("failed", format!("the stream was lost: {e}"))),
        Err(_) => {
            let stall = STREAM_STALL_MAX.as_secs();
            Err(refusal("failed", format!("the destination took nothing for {stall} s")))
        }
    }
}

/// What a step is made of.
#[derive(Clone)]
struct StepSource {
    engine: Arc<dyn Engine>,
    volume: VolumeName,
    base: Option<Uuid>,
    incremental: Uuid,
    /// Size of the incremental, bytes.
    size_bytes: u64,
    /// Whether frames may refer to the base.
    refers_to_base: bool,
}

impl StepSource {
    /// The difference, as far as the incremental reaches: of a volume that has shrunk nothing travels for what was
    /// cut off, the size says it.
    fn extents(&self) -> Result<ChangedExtents, EngineError> {
        let size_bytes = self.size_bytes;
        let extents = self.engine.changed_extents(&self.volume, self.base, self.incremental)?;
        let within = extents.filter_map(move |extent| match extent {
            Ok(extent) if extent.offset >= size_bytes => None,
            Ok(extent) => {
                Some(Ok(ChangedExtent { length: extent.length.min(size_bytes - extent.offset), ..extent }))
            }
            Err(error) => Some(Err(error)),
        });
        Ok(Box::new(within))
    }

    /// What travels of it.
    fn remaining(&self, held: Held) -> Result<Remaining, EngineError> {
        let runs = self.extents()?.map(|extent| extent.and_then(run));
        let source = self.clone();
        let fingerprints =
            move |first, count| source.engine.fingerprints(&source.volume, source.incremental, first, count);
        Ok(Remaining::new(Box::new(runs), held, Box::new(fingerprints)))
    }
}

async fn send_step(
    shared: &Arc<Shared>,
    serving: &Arc<Serving>,
    AskedStep { index, without_base, held }: AskedStep,
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
        refers_to_base: base.is_some() && !without_base,
    };

    let counters = Arc::new(Counters::default());
    let (read_tx, read_rx) = mpsc::channel(FRAMES_BETWEEN_STAGES);
    let (out_tx, mut out_rx) = mpsc::channel(FRAMES_BETWEEN_STAGES);
    // Dropped on every way out, which ends the stages after the frame they are at.
    let mut stages = JoinSet::new();
    stages.spawn(count(source.clone(), shared.clock.clone(), out_tx.clone()));
    let held = held_chunks(held, step.size_bytes / BLOCK_BYTES, reader, &mut stages);
    let said =
        SaysWorking { clock: shared.clock.clone(), out: out_tx.clone(), last: shared.clock.monotonic() };
    stages.spawn(read(source, counters.clone(), held, said, read_tx));
    stages.spawn(encode(shared.encoders.clone(), counters.clone(), read_rx, out_tx));

    while let Some(message) = out_rx.recv().await {
        if !shared.rights.may_read(serving.peer, &serving.volume) {
            return Err(refusal("forbidden", "the right to this volume was taken back"));
        }
        write_in_time(stream::write(writer, &message)).await?;
    }
    while let Some(ended) = stages.join_next().await {
        ended.map_err(MirrorError::from).and_then(|result| result).map_err(to_refusal)?;
    }
    let end = counters.step_end();
    write_in_time(stream::write(writer, &StreamMessage::StepEnd(end))).await?;
    write_in_time(writer.shutdown()).await?;
    Ok(end)
}

/// Counts ahead and reports, at least every second, so that a long comparison is not silence.
async fn count(
    source: StepSource,
    clock: Arc<dyn Clock>,
    out: mpsc::Sender<StreamMessage>,
) -> Result<(), MirrorError> {
    let mut scanned = Scanned::default();
    let mut extents = blocking(move || source.extents()).await?;
    let mut reported = clock.monotonic();
    while !scanned.complete {
        let counting = clock.clone();
        (scanned, extents) = blocking(move || count_batch(scanned, extents, &*counting)).await?;
        let now = clock.monotonic();
        if scanned.complete || now.saturating_sub(reported) >= SCAN_REPORT_EVERY {
            reported = now;
            if out.send(StreamMessage::Scanned(scanned)).await.is_err() {
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
                    ChangeKind::Hole => scanned.deallocated_bytes += extent.length,
                }
            }
        }
    }
    let nanos = clock.monotonic().saturating_sub(started).as_nanos();
    scanned.scan_nanos = scanned.scan_nanos.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX));
    Ok((scanned, extents))
}

/// A frame to be: what it carries and what it may refer to. About 6 MiB.
struct Blocks {
    plan: FramePlan,
    data: Vec<u8>,
    /// Of its data blocks.
    fingerprints: Vec<Fingerprint>,
    prefix: Prefix,
}

/// A part of the held list; `None` ends it.
type HeldPart = Result<Option<Vec<HeldRun>>, MirrorError>;

/// What the destination tells of what it holds, as it comes.
struct HeldChunks {
    kind: Held,
    parts: mpsc::Receiver<HeldPart>,
}

/// Reads the held list, if there is one, in a task of its own.
fn held_chunks(
    kind: Held,
    blocks: u64,
    reader: ReadHalf<Box<dyn ByteStream>>,
    stages: &mut JoinSet<Result<(), MirrorError>>,
) -> HeldChunks {
    let (out, parts) = mpsc::channel(HELD_CHUNKS_BETWEEN_STAGES);
    if kind != Held::None {
        stages.spawn(read_held(kind, blocks, reader, out));
    }
    HeldChunks { kind, parts }
}

async fn read_held(
    kind: Held,
    blocks: u64,
    mut reader: ReadHalf<Box<dyn ByteStream>>,
    out: mpsc::Sender<HeldPart>,
) -> Result<(), MirrorError> {
    let mut from = 0;
    loop {
        let part = match timeout(STREAM_SILENCE_MAX, stream::read_held(&mut reader)).await {
            Ok(Ok(StreamMessage::Held(chunk))) => held::decode_chunk(&chunk, kind, from, blocks).map(Some),
            Ok(Ok(_)) => Ok(None),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                let silence = STREAM_SILENCE_MAX.as_secs();
                let lost = format!("the destination said nothing of what it holds for {silence} s");
                Err(SessionError::Lost(lost).into())
            }
        };
        if let Ok(Some(runs)) = &part {
            from = runs.last().map_or(from, HeldRun::end);
        }
        let is_last = !matches!(part, Ok(Some(_)));
        if out.send(part).await.is_err() || is_last {
            return Ok(());
        }
    }
}

/// Tells the destination now and then that nothing travels because there is nothing to send, not because nobody is here.
struct SaysWorking {
    clock: Arc<dyn Clock>,
    out: mpsc::Sender<StreamMessage>,
    last: Duration,
}

impl SaysWorking {
    fn sent_something(&mut self) {
        self.last = self.clock.monotonic();
    }

    async fn say_if_due(&mut self) {
        if self.clock.monotonic().saturating_sub(self.last) >= SCAN_REPORT_EVERY {
            self.sent_something();
            // Whoever takes nothing any more is noticed by the next frame.
            let _ = self.out.send(StreamMessage::Working).await;
        }
    }
}

/// What the reading stage carries from frame to frame.
struct Reading {
    plans: FramePlans<Remaining>,
    /// What the frame before carries, of which the next is likely to repeat parts; none before the first.
    before: Carried,
}

/// Data runs, each with its first block: about 1 MiB.
type Carried = Vec<(u64, Vec<u8>)>;

async fn read(
    source: StepSource,
    counters: Arc<Counters>,
    mut held: HeldChunks,
    mut said: SaysWorking,
    out: mpsc::Sender<Blocks>,
) -> Result<(), MirrorError> {
    let (opened, kind) = (source.clone(), held.kind);
    let mut reading = blocking(move || {
        let plans = FramePlans::new(opened.remaining(kind)?);
        Ok::<_, EngineError>(Reading { plans, before: Carried::new() })
    })
    .await?;
    loop {
        if reading.plans.runs_mut().needs_held() {
            match held.parts.recv().await {
                Some(Ok(Some(runs))) => reading.plans.runs_mut().add_held(runs),
                Some(Ok(None)) => reading.plans.runs_mut().end_held(),
                Some(Err(error)) => return Err(error),
                None => return Err(SessionError::Lost("the held list ended early".into()).into()),
            }
        }
        let (source, counters) = (source.clone(), counters.clone());
        let blocks;
        (blocks, reading) = blocking(move || {
            let plan = reading.plans.next().transpose()?;
            let blocks =
                plan.map(|plan| read_frame(&source, &counters, plan, &mut reading.before)).transpose()?;
            counters.held.set(reading.plans.runs_mut().held_bytes());
            Ok::<_, EngineError>((blocks, reading))
        })
        .await?;
        match blocks {
            Some(blocks) => {
                said.sent_something();
                if out.send(blocks).await.is_err() {
                    return Ok(());
                }
            }
            None if reading.plans.runs_mut().is_done() => return Ok(()),
            None => said.say_if_due().await,
        }
    }
}

fn run(extent: ChangedExtent) -> Result<Run, EngineError> {
    if !extent.offset.is_multiple_of(BLOCK_BYTES) || !extent.length.is_multiple_of(BLOCK_BYTES) {
        return Err(EngineError::Invalid(format!(
            "the engine answered a difference that is not whole blocks: {extent:?}"
        )));
    }
    let kind = match extent.kind {
        ChangeKind::Data => RunKind::Data,
        ChangeKind::Hole => RunKind::Hole,
    };
    Ok(Run { position: extent.offset / BLOCK_BYTES, blocks: extent.length / BLOCK_BYTES, kind })
}

fn read_frame(
    source: &StepSource,
    counters: &Counters,
    plan: FramePlan,
    before: &mut Carried,
) -> Result<Blocks, EngineError> {
    let bytes = plan.data_bytes() as usize;
    let mut data = vec![0; bytes];
    let mut old = vec![0; if source.refers_to_base { bytes } else { 0 }];
    let mut fingerprints = Vec::with_capacity(plan.data_blocks as usize);
    let mut carried = Carried::new();
    let mut at = 0;
    for run in plan.data_runs() {
        let range = at..at + (run.blocks * BLOCK_BYTES) as usize;
        let offset = run.position * BLOCK_BYTES;
        source.engine.read_snapshot(&source.volume, source.incremental, offset, &mut data[range.clone()])?;
        counters.source_read.add(range.len() as u64);
        let of_run =
            source.engine.fingerprints(&source.volume, source.incremental, run.position, run.blocks)?;
        fingerprints.extend(of_run);
        carried.push((run.position, data[range.clone()].to_vec()));
        if let (true, Some(base)) = (source.refers_to_base, source.base) {
            counters.base_read.add(range.len() as u64);
            let was = &mut old[range.clone()];
            // A base that cannot be read here only costs bytes: zeros are left out of a prefix.
            if let Err(error) = source.engine.read_snapshot(&source.volume, base, offset, was) {
                tracing::warn!(volume = %source.volume, offset, "part of the base cannot be read and is not used, so more travels: {error}. Check this pool offline (farside pool check)");
                was.fill(0);
            }
        }
        at = range.end;
    }
    let mut prefix = Prefix::new();
    for (position, bytes) in std::mem::replace(before, carried) {
        prefix.add(Origin::Incremental, position, &bytes);
    }
    // Last, because the compressor reaches back most cheaply to what stands last.
    prefix.add_same_place(&plan.runs, &old);
    Ok(Blocks { plan, data, fingerprints, prefix })
}

/// Several frames at a time, sent in order. The site's encoders are few, so that many transfers share the machine's
/// cores instead of fighting over them.
async fn encode(
    encoders: Arc<Semaphore>,
    counters: Arc<Counters>,
    mut blocks: mpsc::Receiver<Blocks>,
    out: mpsc::Sender<StreamMessage>,
) -> Result<(), MirrorError> {
    let mut underway = VecDeque::new();
    let mut is_open = true;
    while is_open || !underway.is_empty() {
        tokio::select! {
            next = blocks.recv(), if is_open && underway.len() < ENCODERS_PER_TRANSFER => {
                let Some(blocks) = next else {
                    is_open = false;
                    continue;
                };
                let turn = encoders.clone().acquire_owned().await;
                let turn = turn.map_err(|e| MirrorError::Internal(e.to_string()))?;
                let counters = counters.clone();
                underway.push_back(tokio::task::spawn_blocking(move || {
                    let frame = encode_frame(&blocks, &counters);
                    drop(turn);
                    frame
                }));
            }
            frame = first_of(&mut underway), if !underway.is_empty() => {
                if out.send(StreamMessage::Frame(frame??)).await.is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}

type Encoding = JoinHandle<Result<Vec<u8>, MirrorError>>;

/// The frame that is to be sent next, once it is there. Cancel-safe.
async fn first_of(underway: &mut VecDeque<Encoding>) -> Result<Result<Vec<u8>, MirrorError>, JoinError> {
    let Some(first) = underway.front_mut() else { return std::future::pending().await };
    let frame = first.await;
    underway.pop_front();
    frame
}

fn encode_frame(blocks: &Blocks, counters: &Counters) -> Result<Vec<u8>, MirrorError> {
    let Blocks { plan, data, fingerprints, prefix } = blocks;
    let mut frame = Vec::new();
    let encoded = Encoder::new().encode(&plan.runs, data, fingerprints, prefix, Effort::Standard, &mut frame);
    let encoded = encoded.map_err(|e| MirrorError::Internal(e.to_string()))?;
    counters.frames.add(1);
    counters.changed.add(plan.data_bytes());
    counters.deallocated.add(plan.hole_blocks() * BLOCK_BYTES);
    if encoded.rung == FrameRung::Delta {
        counters.delta.add(prefix.base_blocks() * BLOCK_BYTES);
    }
    Ok(frame)
}
