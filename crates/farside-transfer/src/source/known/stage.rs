//! The stage between the difference and the reading that asks for known data: it carries the planner's questions and
//! their answers, and passes on what travels.
//!
//! Questions go out among the frames; answers come from the task that reads what the destination says, which has room for as
//! many as may be under way, so it never waits. Nothing is asked before the destination has told all that it holds: its answers
//! would lie behind a list that waits for this stage, while this stage waits for them. Until then runs are gathered, and what
//! there is no room for passes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farside_engine::VolumeName;
use farside_link::ByteStream;
use farside_peer::SessionError;
use farside_wire::Run;
use tokio::io::ReadHalf;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::planner::{Answered, Planner};
use crate::error::{TransferError, piece};
use crate::limits::{ASKS_IN_FLIGHT_MAX, RUNS_PER_BATCH, STREAM_SILENCE_MAX};
use crate::protocol::known::{Ask, encode_ask};
use crate::protocol::stream::{self, StreamMessage};
use crate::source::counters::Counters;
use crate::source::flow::{Outgoing, RunBatch};
use crate::source::heartbeat::Heartbeat;
use crate::source::similarity::Unread;

/// Additions of runs after which the stage looks up, for answers and for what can be passed on.
const ADDITIONS: usize = 64;

/// Runs that are gathered until something may be asked, 384 KiB: those between what a list of eight chunks holds. What lies
/// before them passes, and is sent even if it is known.
const GATHERED_RUNS_MAX: usize = 16 * RUNS_PER_BATCH;

/// An answer as it came, or why none comes any more.
type AnswerPart = Result<Vec<u8>, TransferError>;

/// What the stage works with.
pub(crate) struct Stage {
    /// For the log.
    volume: VolumeName,
    planner: Planner,
    unread: Unread,
    counters: Arc<Counters>,
    heartbeat: Arc<Heartbeat>,
    /// Whether the destination has told all that it holds.
    may_ask: Arc<AtomicBool>,
    answers: mpsc::Receiver<AnswerPart>,
}

/// The planner's part of the stage, on a blocking thread.
struct Work {
    volume: VolumeName,
    planner: Planner,
    /// What is known.
    unread: Unread,
    /// Runs that are to be added.
    waiting: VecDeque<Run>,
    /// Nothing may be asked yet.
    gathers: bool,
    has_ended: bool,
    answers: Vec<Vec<u8>>,
}

/// What came of it.
#[derive(Default)]
struct Done {
    ask: Option<Ask>,
    travels: RunBatch,
}

impl Work {
    /// Whether more can be added at once.
    fn can_add(&self) -> bool {
        let gathers = self.gathers && self.waiting.len() <= GATHERED_RUNS_MAX;
        !self.waiting.is_empty() && self.planner.has_room() && !gathers
    }

    /// Whether it takes another batch: to add it at once, or to gather.
    fn wants_runs(&self) -> bool {
        self.waiting.is_empty() || (self.gathers && self.waiting.len() <= GATHERED_RUNS_MAX)
    }

    fn advance(&mut self) -> Result<Done, TransferError> {
        for answer in std::mem::take(&mut self.answers) {
            if let Answered::Mismatch { batch, entries } = self.planner.answer(&answer)? {
                tracing::warn!(
                    volume = %self.volume, batch, entries,
                    "the destination took content from its own volumes that did not match; the right content is sent \
                     and replaces it. If this repeats, check the pool at the destination offline (farside pool \
                     check)"
                );
            }
        }
        let mut done = Done::default();
        for _ in 0..ADDITIONS {
            if done.ask.is_some() || !self.can_add() {
                break;
            }
            let Some(run) = self.waiting.pop_front() else { break };
            if let Some(rest) = self.planner.add(run)? {
                self.waiting.push_front(rest);
            }
            done.ask = self.planner.next_ask(false);
        }
        if self.has_ended && self.waiting.is_empty() {
            self.planner.flush()?;
        }
        // What is to be asked goes out half a batch, too, if nothing else comes first.
        let stalls =
            !self.can_add() && (self.has_ended || !self.planner.has_room() || !self.planner.awaits_answer());
        done.ask = done.ask.or_else(|| self.planner.next_ask(stalls));
        self.planner.take_known().for_each(|run| self.unread.add(run));
        done.travels = std::iter::from_fn(|| self.planner.next_run()).take(RUNS_PER_BATCH).collect();
        Ok(done)
    }
}

impl Stage {
    /// A stage, and where its answers are to be read.
    /// `may_ask`: at once, because nothing is held.
    pub(crate) fn new(
        volume: VolumeName,
        planner: Planner,
        unread: Unread,
        counters: Arc<Counters>,
        heartbeat: Arc<Heartbeat>,
        may_ask: bool,
    ) -> (Stage, Answers) {
        let (out, answers) = mpsc::channel(ASKS_IN_FLIGHT_MAX);
        let may_ask = Arc::new(AtomicBool::new(may_ask));
        let reading = Answers { may_ask: may_ask.clone(), out };
        (Stage { volume, planner, unread, counters, heartbeat, may_ask, answers }, reading)
    }

    /// Runs until all that travels was passed on, or nobody wants any more.
    pub(crate) async fn run(
        self,
        mut runs: mpsc::Receiver<RunBatch>,
        asks: mpsc::Sender<Outgoing>,
        travels: mpsc::Sender<RunBatch>,
    ) -> Result<(), TransferError> {
        let Stage { volume, planner, unread, counters, heartbeat, may_ask, mut answers } = self;
        let mut work = Work {
            volume,
            planner,
            unread,
            waiting: VecDeque::new(),
            gathers: true,
            has_ended: false,
            answers: Vec::new(),
        };
        loop {
            while let Ok(answer) = answers.try_recv() {
                work.answers.push(answer?);
            }
            // The difference ends only after the held list has.
            if work.has_ended || may_ask.load(Ordering::Acquire) {
                work.gathers = false;
                work.planner.begin_asking();
            }
            let done;
            (done, work) = piece(move || {
                let done = work.advance()?;
                Ok::<_, TransferError>((done, work))
            })
            .await?;
            counters.known.set(work.planner.known_bytes());
            heartbeat.beat();
            let mut gets_on = work.can_add();
            if let Some(ask) = done.ask {
                gets_on = true;
                let ask = Outgoing::Message(StreamMessage::Ask(encode_ask(&ask)));
                if asks.send(ask).await.is_err() {
                    return Ok(());
                }
            }
            if !done.travels.is_empty() {
                gets_on = true;
                if travels.send(done.travels).await.is_err() {
                    return Ok(());
                }
            }
            if gets_on {
                continue;
            }
            if work.has_ended && work.waiting.is_empty() && work.planner.is_empty() {
                return Ok(());
            }
            tokio::select! {
                batch = runs.recv(), if !work.has_ended && work.wants_runs() => match batch {
                    Some(batch) => work.waiting.extend(batch),
                    None => work.has_ended = true,
                },
                answer = timeout(STREAM_SILENCE_MAX, answers.recv()), if work.planner.awaits_answer() => {
                    work.answers.push(within_time(answer)?);
                }
            }
        }
    }
}

fn within_time(answer: Result<Option<AnswerPart>, tokio::time::error::Elapsed>) -> AnswerPart {
    match answer {
        Ok(Some(answer)) => answer,
        Ok(None) => Err(SessionError::Lost("the answers ended early".into()).into()),
        Err(_) => {
            let silence = STREAM_SILENCE_MAX.as_secs();
            Err(SessionError::Lost(format!("the destination answered nothing for {silence} s")).into())
        }
    }
}

/// Where answers are read.
pub(crate) struct Answers {
    may_ask: Arc<AtomicBool>,
    out: mpsc::Sender<AnswerPart>,
}

impl Answers {
    /// Reads them, from where the held list has ended, until nobody wants any more.
    pub(crate) async fn read(self, mut reader: ReadHalf<Box<dyn ByteStream>>) -> Result<(), TransferError> {
        self.may_ask.store(true, Ordering::Release);
        loop {
            let answer = tokio::select! {
                message = stream::read_held(&mut reader) => match message {
                    Ok(StreamMessage::Answer(answer)) => Ok(answer),
                    Ok(_) => Err(TransferError::Protocol("the destination reported twice what it holds".into())),
                    Err(error) => Err(error),
                },
                () = self.out.closed() => return Ok(()),
            };
            let is_last = answer.is_err();
            if self.out.send(answer).await.is_err() || is_last {
                return Ok(());
            }
        }
    }
}
