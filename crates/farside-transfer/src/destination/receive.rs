//! Receives one step: stream ─► (short channel) ─► decode, verify, write aside; questions for known data go another way
//! (`known.rs`). A slow disk stops the reads from the
//! stream, and with them the source. Decoding and writing run on blocking threads, a frame at a time. What is written is
//! made durable now and then ([`CHECKPOINT_BYTES`], [`CHECKPOINT_EVERY`]), so that a crash costs little of it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_engine::{BLOCK_BYTES, Engine, KnownDataScope, RoomBelow, StagedVersion, VolumeName};
use farside_link::{ByteStream, StreamOptions, WireCounters};
use farside_peer::{DataStream, SessionError};
use farside_wire::{Decoder, FrameStats, Origin, Regions, RunKind};
use prost::Message;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::cross_volume::CrossVolume;
use super::held::{self, Holding};
use super::known::{Answering, Questions, Taken};
use super::transfer::Transfer;
use crate::error::{TransferError, blocking, piece};
use crate::limits::{
    ASKS_IN_FLIGHT_MAX, BULK_MIN, CALL_TIMEOUT, CHECKPOINT_BYTES, CHECKPOINT_EVERY,
    CROSS_VOLUME_CHECKED_EVERY, FRAMES_BETWEEN_STAGES, STEP_STALL_MAX, STREAM_SILENCE_MAX,
};
use crate::protocol::held::Held;
use crate::protocol::known::Ask;
use crate::protocol::stream::{self, StreamMessage, cut};
use crate::protocol::{PROTOCOL_VERSION, StepEnd, StreamHeader};
use crate::report::{Levels, TransferReport};

/// What is received.
pub(crate) struct Step {
    pub(crate) index: usize,
    /// What frames refer to cannot be relied on.
    pub(crate) without_base: bool,
    pub(crate) size_bytes: u64,
    /// The base as this side calls it.
    pub(crate) base: Option<Uuid>,
    /// What to tell of what is staged already.
    pub(crate) held: Held,
    /// Whether questions for known data are answered.
    pub(crate) known: bool,
    /// Room for its data, if it may be too little.
    pub(crate) room: Option<Room>,
    /// The snapshot's name at the source.
    pub(crate) name: String,
    /// Bytes of data that it brings, once the source has counted them.
    pub(crate) found_bytes: Arc<AtomicU64>,
}

/// What a pool has room for.
#[derive(Clone, Debug)]
pub(crate) struct Room {
    /// Bytes of data of a step that fit, what is staged of it included.
    pub(crate) room_bytes: u64,
    /// Bytes that are kept free for hosts.
    pub(crate) reserve_bytes: u64,
    /// The quota of the replica's volume, where that is what leaves no more.
    pub(crate) quota_bytes: Option<u64>,
    /// The file system below the pool, where that is what leaves no more.
    pub(crate) below: Option<RoomBelow>,
}

/// Receives all of a step into `staged` and adds it to `report`. What it cost on the wire is added to `wire` however
/// it ends. Answers how many bytes this side took from its own store for it.
pub(crate) async fn receive(
    transfer: &mut Transfer,
    step: &Step,
    cross_volume: &Arc<CrossVolume>,
    staged: &Arc<dyn StagedVersion>,
    report: &mut TransferReport,
    wire: &Arc<WireCounters>,
) -> Result<u64, TransferError> {
    let header = StreamHeader {
        version: PROTOCOL_VERSION,
        transfer: transfer.id.as_bytes().to_vec(),
        step: step.index as u32,
        without_base: step.without_base,
        held: step.held.number(),
        known: step.known,
        cross_volume: cross_volume.offered().to_vec(),
        room_bytes: step.room.as_ref().map(|room| room.room_bytes),
    };
    // Of a copy that begins or goes on without a base there is no telling how little it is; an update is small as a rule.
    let is_bulk = step.base.is_none() && step.size_bytes >= BULK_MIN;
    let options = StreamOptions { bulk: is_bulk, ..transfer.options.clone() };
    let opening = transfer.link.open_stream(header.encode_to_vec().into(), options);
    let stream = tokio::select! {
        opened = tokio::time::timeout(CALL_TIMEOUT, opening) => match opened {
            Ok(stream) => stream?,
            Err(_) => return Err(SessionError::Lost("no data stream could be opened in time".into()).into()),
        },
        () = transfer.cancel.cancelled() => return Err(TransferError::Aborted),
    };
    let stream_wire = stream.wire.clone();
    transfer.progress.step_begins(wire.sent() + wire.received());
    let received = apply_all(transfer, step, cross_volume, staged, stream, report).await;
    wire.add_sent(stream_wire.sent());
    wire.add_received(stream_wire.received());
    received
}

async fn apply_all(
    transfer: &mut Transfer,
    step: &Step,
    cross_volume: &Arc<CrossVolume>,
    staged: &Arc<dyn StagedVersion>,
    stream: DataStream,
    report: &mut TransferReport,
) -> Result<u64, TransferError> {
    let stream_wire = stream.wire.clone();
    let (messages_tx, messages) = mpsc::channel(FRAMES_BETWEEN_STAGES);
    let (asks_tx, asks) = mpsc::channel(ASKS_IN_FLIGHT_MAX);
    let (reader, writer) = tokio::io::split(stream.io);
    let (reported, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(Taken::default()));
    let stop = CancellationToken::new();
    let _stops = stop.clone().drop_guard();
    let answering = step.known.then(|| Answering {
        engine: transfer.engine.clone(),
        pool: transfer.replica.destination.pool.clone(),
        staged: staged.clone(),
        scope: KnownDataScope { peer: transfer.replica.peer.0 },
        taken: taken.clone(),
        stop: stop.clone(),
    });
    let holding = (step.held != Held::None).then(|| Holding {
        staged: staged.clone(),
        held: step.held,
        base: step.base,
        size_bytes: step.size_bytes,
    });
    // Dropped on every way out, and the stream with it: the source notices and stops.
    let mut stages = JoinSet::new();
    let questions = step.known.then(|| Questions::new(step.size_bytes / BLOCK_BYTES, taken.clone(), asks_tx));
    stages.spawn(read_ahead(reader, stream_wire.clone(), messages_tx.clone(), questions));
    let speaking = tokio::spawn(send_messages(
        holding,
        reported.clone(),
        answering,
        asks,
        writer,
        messages_tx,
        stop.clone(),
    ));
    let arriving = Arriving { stream_wire, messages, reported, taken, cross_volume: cross_volume.clone() };
    let received = apply_messages(transfer, step, staged, arriving, report).await;
    // What is being taken for an answer is taken to its end.
    stop.cancel();
    speaking.await.map_err(TransferError::from).and(received)
}

/// Tells the source what is staged, and then answers its questions; in this order, because the source reads them in this
/// order: it asks nothing before it was told everything, so it never waits for an answer behind a list that it cannot take.
async fn send_messages(
    holding: Option<Holding>,
    reported: Arc<AtomicU64>,
    answering: Option<Answering>,
    asks: mpsc::Receiver<Ask>,
    mut writer: WriteHalf<Box<dyn ByteStream>>,
    messages: mpsc::Sender<Result<StreamMessage, TransferError>>,
    stop: CancellationToken,
) {
    if let Some(holding) = holding {
        let sending = tokio::select! {
            sending = held::send(holding, &mut writer, &reported) => sending,
            () = stop.cancelled() => return,
        };
        if let Err(error) = sending {
            // Whoever waits for frames hears of it; that the stream was lost it hears of anyway.
            let _ = messages.send(Err(error)).await;
            return;
        }
    }
    if let Some(answering) = answering
        && let Err(error) = answering.run(asks, &mut writer).await
    {
        let _ = messages.send(Err(error)).await;
    }
}

/// What comes in of a step.
struct Arriving {
    stream_wire: Arc<WireCounters>,
    messages: mpsc::Receiver<Result<StreamMessage, TransferError>>,
    /// Bytes of data that were reported to the source as held.
    reported: Arc<AtomicU64>,
    taken: Arc<Taken>,
    cross_volume: Arc<CrossVolume>,
}

async fn apply_messages(
    transfer: &mut Transfer,
    step: &Step,
    staged: &Arc<dyn StagedVersion>,
    mut arriving: Arriving,
    report: &mut TransferReport,
) -> Result<u64, TransferError> {
    let mut applier = Applier {
        decoder: Decoder::new(),
        both: BothSides {
            engine: transfer.engine.clone(),
            volume: transfer.replica.destination.clone(),
            base: step.base,
            staged: staged.clone(),
            cross_volume: arriving.cross_volume.clone(),
        },
        staged: staged.clone(),
        size_bytes: step.size_bytes,
        counted: StepEnd::default(),
        levels: Levels::default(),
    };
    let mut unsaved = Unsaved::default();
    let mut taken_bytes = 0;
    let mut deallocated_bytes = 0;
    let offers_cross_volume = !arriving.cross_volume.is_empty();
    let mut looks =
        tokio::time::interval_at(Instant::now() + CROSS_VOLUME_CHECKED_EVERY, CROSS_VOLUME_CHECKED_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stall = Stall::new();
    loop {
        // Only the wait can be cancelled: a frame that is being written is written, so that nothing touches the
        // staged version any more when this returns.
        let message = tokio::select! {
            message = arriving.messages.recv() => message,
            () = transfer.cancel.cancelled() => return Err(TransferError::Aborted),
            () = stall.is_too_long(&arriving.reported) => {
                let minutes = STEP_STALL_MAX.as_secs() / 60;
                return Err(SessionError::Lost(format!("the source brought nothing for {minutes} minutes")).into());
            }
            () = unsaved.until_old() => {
                unsaved.save(staged).await?;
                continue;
            }
            _ = looks.tick(), if offers_cross_volume => {
                let (cross_volume, engine) = (arriving.cross_volume.clone(), transfer.engine.clone());
                let looking = move || {
                    cross_volume.look(&*engine);
                    Ok::<_, TransferError>(())
                };
                blocking(looking).await?;
                continue;
            }
            () = arriving.taken.news.notified() => {
                let before = std::mem::replace(&mut taken_bytes, arriving.taken.level().in_bytes);
                stall.ends();
                unsaved.add(taken_bytes - before);
                arriving.show(transfer, &mut applier);
                if unsaved.is_much() {
                    unsaved.save(staged).await?;
                }
                continue;
            }
        };
        let message = message.unwrap_or_else(|| Err(SessionError::Lost("the stream ended".into()).into()))?;
        match message {
            StreamMessage::Frame(frame) => {
                let before = applier.counted.changed_bytes;
                applier = piece(move || applier.apply(&frame)).await?;
                stall.ends();
                unsaved.add(applier.counted.changed_bytes - before);
                arriving.show(transfer, &mut applier);
                if unsaved.is_much() {
                    unsaved.save(staged).await?;
                }
            }
            StreamMessage::Working => arriving.show(transfer, &mut applier),
            StreamMessage::Withdraw(numbers) => arriving.cross_volume.withdraw(&numbers)?,
            // `stream::read` lets none of these through, and `read_ahead` no question.
            StreamMessage::Held(_)
            | StreamMessage::HeldEnd
            | StreamMessage::Answer(_)
            | StreamMessage::Ask(_) => {
                return Err(TransferError::Protocol(
                    "unexpected message: the source reported what it holds, and this site did not ask".into(),
                ));
            }
            StreamMessage::Scanned(scanned) => {
                transfer.progress.found(scanned.changed_bytes);
                stall.found(scanned.changed_bytes.saturating_add(scanned.deallocated_bytes));
                if scanned.complete {
                    step.found_bytes.store(scanned.changed_bytes, Ordering::Relaxed);
                    if let Some(room) =
                        step.room.as_ref().filter(|room| scanned.changed_bytes > room.room_bytes)
                    {
                        // The source ends it by itself; one that does not know of room is stopped here.
                        return Err(TransferError::NoRoom {
                            snapshot: step.name.clone(),
                            pool: transfer.replica.destination.pool.clone(),
                            needed_bytes: scanned.changed_bytes,
                            room_bytes: room.room_bytes,
                            reserve_bytes: room.reserve_bytes,
                            quota_bytes: room.quota_bytes,
                            below: room.below.clone(),
                        });
                    }
                    report.scan_seconds += scanned.scan_nanos as f64 / 1e9;
                    // Runs of holes reach over what was a hole before: only the walk knows what was data.
                    deallocated_bytes = scanned.deallocated_bytes;
                }
            }
            StreamMessage::Failure(failure) => {
                let (code, message) = (cut(&failure.code), cut(&failure.message));
                return Err(TransferError::SourceFailed { code, message });
            }
            StreamMessage::StepEnd(end) => {
                let counted = applier.counted;
                if (end.frames, end.changed_bytes, end.deallocated_bytes)
                    != (counted.frames, counted.changed_bytes, counted.deallocated_bytes)
                {
                    return Err(TransferError::Protocol(format!(
                        "the source reports {} frames, {} data bytes, {} hole bytes; received {} frames, {} data \
                         bytes, {} hole bytes",
                        end.frames,
                        end.changed_bytes,
                        end.deallocated_bytes,
                        counted.frames,
                        counted.changed_bytes,
                        counted.deallocated_bytes
                    )));
                }
                let reported_bytes = arriving.reported.load(Ordering::Relaxed);
                if end.resumed_bytes > reported_bytes {
                    return Err(TransferError::Protocol(format!(
                        "the source skipped {} bytes as held, but this site reported only {reported_bytes}",
                        end.resumed_bytes
                    )));
                }
                applier.levels.known = arriving.taken.level();
                let taken_bytes = applier.levels.known.in_bytes;
                if end.known_bytes > taken_bytes {
                    return Err(TransferError::Protocol(format!(
                        "the source skipped {} bytes as known, but this site found only {taken_bytes}",
                        end.known_bytes
                    )));
                }
                // It may have sent some of it all the same.
                applier.levels.known.in_bytes = end.known_bytes;
                report.add_levels(&applier.levels);
                report.resumed |= end.resumed_bytes > 0;
                report.resumed_bytes += end.resumed_bytes;
                report.deallocated_bytes = report.deallocated_bytes.saturating_add(deallocated_bytes);
                report.changed_bytes += end.changed_bytes;
                report.source_read_bytes += end.source_read_bytes;
                report.base_read_bytes += end.base_read_bytes;
                transfer.progress.carried(&applier.levels);
                transfer.progress.step_ends(end.changed_bytes + end.resumed_bytes + end.known_bytes);
                return Ok(taken_bytes);
            }
        }
    }
}

impl Arriving {
    /// How far it is, for whoever watches.
    fn show(&self, transfer: &mut Transfer, applier: &mut Applier) {
        applier.levels.known = self.taken.level();
        // Like what is held, what was taken counts up to what was found: of a node only a part may have had to travel.
        let here_bytes = self.reported.load(Ordering::Relaxed) + applier.levels.known.in_bytes;
        let wire_bytes = self.stream_wire.sent() + self.stream_wire.received();
        transfer.progress.carried(&applier.levels);
        transfer.progress.staged(applier.counted.changed_bytes, here_bytes, wire_bytes);
    }
}

/// Reads until the step ends, the stream is lost, or nobody wants any more. Questions go their own way.
async fn read_ahead(
    mut io: ReadHalf<Box<dyn ByteStream>>,
    wire: Arc<WireCounters>,
    messages: mpsc::Sender<Result<StreamMessage, TransferError>>,
    mut questions: Option<Questions>,
) {
    loop {
        let message = {
            let mut reading = pin!(stream::read(&mut io));
            let mut last_received = wire.received();
            loop {
                match tokio::time::timeout(STREAM_SILENCE_MAX, &mut reading).await {
                    Ok(message) => break message,
                    // A part of a large message has come: a narrow throttle may take that long.
                    Err(_) if wire.received() != last_received => last_received = wire.received(),
                    Err(_) => {
                        let silence = STREAM_SILENCE_MAX.as_secs();
                        break Err(
                            SessionError::Lost(format!("the source sent nothing for {silence} s")).into()
                        );
                    }
                }
            }
        };
        let message = match (message, &mut questions) {
            (Ok(StreamMessage::Ask(ask)), Some(questions)) => match questions.take(&ask) {
                Ok(()) => continue,
                Err(error) => Err(error),
            },
            (Ok(StreamMessage::Ask(_)), None) => Err(TransferError::Protocol(
                "the source asked a question that this site did not offer to answer".into(),
            )),
            (message, _) => message,
        };
        let is_last = !matches!(
            message,
            Ok(StreamMessage::Frame(_)
                | StreamMessage::Scanned(_)
                | StreamMessage::Working
                | StreamMessage::Withdraw(_))
        );
        if messages.send(message).await.is_err() || is_last {
            return;
        }
    }
}

/// Since when nothing has arrived of a step.
struct Stall {
    since: Instant,
    /// What the source has found, and what was told of what is staged, as it was last looked at.
    found: u64,
    reported: u64,
}

impl Stall {
    fn new() -> Stall {
        Stall { since: Instant::now(), found: 0, reported: 0 }
    }

    fn ends(&mut self) {
        self.since = Instant::now();
    }

    fn found(&mut self, found: u64) {
        if found > self.found {
            self.found = found;
            self.ends();
        }
    }

    /// Resolves once that has lasted for [`STEP_STALL_MAX`].
    async fn is_too_long(&mut self, reported: &AtomicU64) {
        loop {
            tokio::time::sleep_until(self.since + STEP_STALL_MAX).await;
            let told = reported.load(Ordering::Relaxed);
            if told == self.reported {
                return;
            }
            self.reported = told;
            self.ends();
        }
    }
}

/// What was staged since the last checkpoint.
#[derive(Default)]
struct Unsaved {
    /// Since when there is something; none if there is nothing.
    since: Option<Instant>,
    bytes: u64,
}

impl Unsaved {
    fn add(&mut self, bytes: u64) {
        self.since.get_or_insert_with(Instant::now);
        self.bytes += bytes;
    }

    fn is_much(&self) -> bool {
        self.bytes >= CHECKPOINT_BYTES || self.since.is_some_and(|since| since.elapsed() >= CHECKPOINT_EVERY)
    }

    /// Resolves once the oldest of it has waited long enough.
    async fn until_old(&self) {
        match self.since {
            Some(since) => tokio::time::sleep_until(since + CHECKPOINT_EVERY).await,
            None => std::future::pending().await,
        }
    }

    async fn save(&mut self, staged: &Arc<dyn StagedVersion>) -> Result<(), TransferError> {
        *self = Unsaved::default();
        let staged = staged.clone();
        blocking(move || staged.checkpoint()).await
    }
}

/// What both sides hold, as this side has it: the base, what was staged of the incremental, and other volumes.
struct BothSides {
    engine: Arc<dyn Engine>,
    volume: VolumeName,
    base: Option<Uuid>,
    staged: Arc<dyn StagedVersion>,
    cross_volume: Arc<CrossVolume>,
}

impl Regions for BothSides {
    fn read(&mut self, origin: Origin, position: u64, buffer: &mut [u8]) -> Result<(), String> {
        let blocks = buffer.len() as u64 / BLOCK_BYTES;
        self.read_ranges(origin, &[(position, blocks)], buffer)
    }

    fn read_ranges(
        &mut self,
        origin: Origin,
        ranges: &[(u64, u64)],
        mut buffer: &mut [u8],
    ) -> Result<(), String> {
        match origin {
            Origin::Base => {
                let base = self.base.ok_or("this copy has no base")?;
                let read = self.engine.read_snapshot_ranges(&self.volume, base, ranges, buffer);
                read.map_err(|e| e.to_string())
            }
            Origin::Incremental => {
                for (position, blocks) in ranges {
                    let (bytes, rest) = buffer.split_at_mut((blocks * BLOCK_BYTES) as usize);
                    self.staged.read(position * BLOCK_BYTES, bytes).map_err(|e| e.to_string())?;
                    buffer = rest;
                }
                Ok(())
            }
            Origin::Other(number) => self.cross_volume.read(number, ranges, buffer),
        }
    }
}

struct Applier {
    decoder: Decoder,
    both: BothSides,
    staged: Arc<dyn StagedVersion>,
    size_bytes: u64,
    counted: StepEnd,
    levels: Levels,
}

impl Applier {
    /// Decodes a frame, and only when all of it is verified and within the volume, writes it.
    fn apply(mut self, frame: &[u8]) -> Result<Applier, TransferError> {
        let decoded = self.decoder.decode(frame, &mut self.both)?;
        if let Some(run) = decoded.runs.iter().find(|r| r.end() > self.size_bytes / BLOCK_BYTES) {
            return Err(TransferError::Protocol(format!(
                "a frame for block {} of a volume of {} bytes",
                run.end() - 1,
                self.size_bytes
            )));
        }
        for (run, bytes) in decoded.pieces() {
            let offset = run.position * BLOCK_BYTES;
            match run.kind {
                RunKind::Data | RunKind::Repeat { .. } => {
                    self.staged.write(offset, bytes)?;
                    self.counted.changed_bytes += bytes.len() as u64;
                }
                RunKind::Hole => {
                    self.staged.discard(offset, run.blocks * BLOCK_BYTES)?;
                    self.counted.deallocated_bytes += run.blocks * BLOCK_BYTES;
                }
            }
        }
        self.counted.frames += 1;
        self.levels.add_frame(&FrameStats::of(frame)?);
        Ok(self)
    }
}
