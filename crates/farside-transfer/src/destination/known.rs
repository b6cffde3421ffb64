//! Answers the source's questions for known data: content that this engine finds in the peer's scope is taken from here, so
//! that it need not travel. What is taken is read again and hashed again by the engine, and the digest of an answer
//! is over those fingerprints, so the source can tell that it is what it would have sent.
//!
//! Questions are checked as they arrive and answered in order, after the held list was told; a few are worked on at the same
//! time. They wait in a queue of their own: frames that arrive never wait behind a question, and a source that asks more than
//! it may breaks the protocol.
//! A block is asked for or sent, and sent only after the answer, so nothing that a frame brought is overwritten.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use farside_engine::{BLOCK_BYTES, Engine, EngineError, Fingerprint, KnownDataScope, StagedVersion, Wanted};
use farside_peer::SessionError;
use tokio::io::AsyncWrite;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::error::TransferError;
use crate::kind::TransferKind;
use crate::limits::{ADOPTED_BLOCKS, ADOPTERS_PER_TRANSFER, ASKS_IN_FLIGHT_MAX};
use crate::precedence;
use crate::protocol::known::{Answer, Ask, Entry, NODE_BLOCKS, decode_ask, digest, encode_answer};
use crate::protocol::stream::{self, ENVELOPE_BYTES, StreamMessage};
use crate::report::Level;

/// Whether questions for known data are answered in a step, and hence asked. Where there is no base, and where a resync brings
/// back what hosts wrote at the other side, much of it may be here already. What changed in an update was written since the
/// last one: of 10,406 blocks of a database's update 3 were elsewhere in the volume.
pub(crate) fn is_worth_asking(kind: TransferKind, has_base: bool) -> bool {
    !has_base || kind == TransferKind::Resync
}

/// What was taken from this side's own store in a step, so far.
#[derive(Default)]
pub(crate) struct Taken {
    bytes: AtomicU64,
    message_bytes: AtomicU64,
    /// There is more of it.
    pub(crate) news: Notify,
}

impl Taken {
    /// Bytes taken, and those of questions and answers.
    pub(crate) fn level(&self) -> Level {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Level { in_bytes: of(&self.bytes), out_bytes: of(&self.message_bytes) }
    }

    fn add(&self, bytes: u64, message_bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.message_bytes.fetch_add(message_bytes as u64, Ordering::Relaxed);
        self.news.notify_one();
    }
}

/// Takes questions as they come. They never wait here: a source that is within its limit finds room.
pub(crate) struct Questions {
    volume_blocks: u64,
    taken: Arc<Taken>,
    asks: mpsc::Sender<Ask>,
    next_batch: u64,
    /// Blocks asked for so far, those of nodes included.
    asked_blocks: u64,
}

impl Questions {
    pub(crate) fn new(volume_blocks: u64, taken: Arc<Taken>, asks: mpsc::Sender<Ask>) -> Questions {
        Questions { volume_blocks, taken, asks, next_batch: 0, asked_blocks: 0 }
    }

    /// Checks one, and has it answered.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        let ask = decode_ask(bytes, self.volume_blocks)?;
        if ask.batch != self.next_batch {
            let (came, expected) = (ask.batch, self.next_batch);
            return Err(TransferError::Protocol(format!("question {came} came instead of {expected}")));
        }
        self.next_batch += 1;
        // A KiB of questions costs up to 64 MiB of reading: as a node and by itself a block is asked for, and no more.
        self.asked_blocks = self.asked_blocks.saturating_add(ask.wanted_blocks());
        if self.asked_blocks > self.volume_blocks.saturating_mul(2) {
            return Err(TransferError::Protocol("the source repeats the same question".into()));
        }
        self.taken.add(0, ENVELOPE_BYTES + bytes.len());
        match self.asks.try_send(ask) {
            // Who answers has said already why it does not any more.
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(_)) => Err(TransferError::Protocol(format!(
                "the source has more than {ASKS_IN_FLIGHT_MAX} unanswered questions"
            ))),
        }
    }
}

/// What answers are made from.
#[derive(Clone)]
pub(crate) struct Answering {
    pub(crate) engine: Arc<dyn Engine>,
    /// The pool that the staged version lies in.
    pub(crate) pool: String,
    pub(crate) staged: Arc<dyn StagedVersion>,
    pub(crate) scope: KnownDataScope,
    pub(crate) taken: Arc<Taken>,
    /// Ends it: after that nothing touches the staged version.
    pub(crate) stop: CancellationToken,
}

impl Answering {
    /// Answers `asks` until there are no more or it is stopped. Once this has returned the staged version is left alone.
    pub(crate) async fn run(
        self,
        mut asks: mpsc::Receiver<Ask>,
        io: &mut (impl AsyncWrite + Unpin + ?Sized),
    ) -> Result<(), TransferError> {
        let mut underway = VecDeque::new();
        let stop = self.stop.clone();
        let ended = tokio::select! {
            ended = self.answer_all(&mut asks, &mut underway, io) => ended,
            () = stop.cancelled() => Ok(()),
        };
        stop.cancel();
        for adopting in underway {
            // Only its end counts; it has heard that nobody wants it any more.
            let _ = adopting.await;
        }
        ended
    }

    async fn answer_all(
        &self,
        asks: &mut mpsc::Receiver<Ask>,
        underway: &mut VecDeque<Adopting>,
        io: &mut (impl AsyncWrite + Unpin + ?Sized),
    ) -> Result<(), TransferError> {
        let mut is_open = true;
        while is_open || !underway.is_empty() {
            tokio::select! {
                next = asks.recv(), if is_open && underway.len() < ADOPTERS_PER_TRANSFER => {
                    let Some(ask) = next else {
                        is_open = false;
                        continue;
                    };
                    let answering = self.clone();
                    underway.push_back(precedence::move_data(move || answering.adopt(&ask)));
                }
                answer = first_of(underway), if !underway.is_empty() => {
                    let answer = encode_answer(&answer??);
                    self.taken.add(0, ENVELOPE_BYTES + answer.len());
                    let written = stream::write(io, &StreamMessage::Answer(answer)).await;
                    written.map_err(|e| SessionError::Lost(e.to_string()))?;
                }
            }
        }
        Ok(())
    }

    /// Takes what can be found of what is asked for: nodes first, then the blocks that lie in none of those.
    fn adopt(&self, ask: &Ask) -> Result<Answer, TransferError> {
        let mut found = self.adopt_entries(1, &ask.nodes)?;
        let nodes = ask.nodes.iter().zip(&found).filter(|(_, found)| found.is_some());
        let nodes: HashSet<u64> = nodes.map(|(node, _)| node.position).collect();
        let is_apart = |block: &Entry| !nodes.contains(&(block.position / NODE_BLOCKS));
        let apart: Vec<Entry> = ask.blocks.iter().copied().filter(is_apart).collect();
        let mut blocks = self.adopt_entries(0, &apart)?.into_iter();
        found.extend(
            ask.blocks.iter().map(|block| if is_apart(block) { blocks.next().flatten() } else { None }),
        );

        let mut answer = Answer { batch: ask.batch, ..Answer::default() };
        for (at, _) in found.iter().enumerate().filter(|(_, found)| found.is_some()) {
            match answer.held.last_mut() {
                Some(run) if run.end == at => run.end += 1,
                _ => answer.held.push(at..at + 1),
            }
        }
        if !answer.held.is_empty() {
            answer.digest = digest(found.iter().flatten());
        }
        Ok(answer)
    }

    fn adopt_entries(&self, level: u8, entries: &[Entry]) -> Result<Vec<Option<Fingerprint>>, TransferError> {
        let blocks_each = if level == 0 { 1 } else { NODE_BLOCKS };
        let mut found = Vec::with_capacity(entries.len());
        for some in entries.chunks((ADOPTED_BLOCKS / blocks_each) as usize) {
            if self.stop.is_cancelled() {
                return Err(TransferError::Aborted);
            }
            let wanted: Vec<Wanted> =
                some.iter().map(|&Entry { position, short }| Wanted { level, position, short }).collect();
            let adopted = match self.engine.known_data(&self.pool) {
                Some(known) => known.adopt(&*self.staged, &self.scope, &wanted)?,
                None => vec![None; wanted.len()],
            };
            if adopted.len() != wanted.len() {
                let what = format!("the engine answered {} of {} wanted", adopted.len(), wanted.len());
                return Err(EngineError::Invalid(what).into());
            }
            let taken = adopted.iter().flatten().count() as u64;
            self.taken.add(taken * blocks_each * BLOCK_BYTES, 0);
            found.extend(adopted);
        }
        Ok(found)
    }
}

type Adopting = JoinHandle<Result<Answer, TransferError>>;

/// The answer that is to be given next, once it is there. Cancel-safe.
async fn first_of(underway: &mut VecDeque<Adopting>) -> Result<Result<Answer, TransferError>, JoinError> {
    let Some(first) = underway.front_mut() else { return std::future::pending().await };
    let answer = first.await;
    underway.pop_front();
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::known::encode_ask;

    #[test]
    fn questions_are_answered_where_there_is_no_base_and_in_a_resync() {
        assert!(is_worth_asking(TransferKind::Initialize, false));
        assert!(is_worth_asking(TransferKind::Update, false));
        assert!(is_worth_asking(TransferKind::Resync, true));
        assert!(!is_worth_asking(TransferKind::Update, true));
        assert!(!is_worth_asking(TransferKind::Initialize, true), "a later snapshot of a first copy");
    }

    #[test]
    fn all_of_a_volume_is_asked_for_twice_at_most() {
        let (asks, _answered) = mpsc::channel(ASKS_IN_FLIGHT_MAX);
        let mut questions = Questions::new(256, Arc::default(), asks);
        let entry = |position| Entry { position, short: 1 };
        let nodes = |batch| Ask { batch, nodes: vec![entry(0), entry(1)], blocks: Vec::new() };
        let blocks = Ask { batch: 1, nodes: Vec::new(), blocks: (0..256).map(entry).collect() };
        questions.take(&encode_ask(&nodes(0))).unwrap();
        questions.take(&encode_ask(&blocks)).unwrap();
        assert!(matches!(questions.take(&encode_ask(&nodes(2))), Err(TransferError::Protocol(_))));
    }
}
