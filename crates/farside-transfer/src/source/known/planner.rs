//! What of the runs that would travel the destination knows already: the planner of the questions. Pure but for the
//! fingerprints it asks for; `stage.rs` carries its questions and answers.
//!
//! ```text
//!   runs (difference, less what is held) ─► units of at most 128 blocks ─► questions, in batches, several in flight
//!   runs that travel  ◄─ units in order, less what was answered as held ◄─ answers, each with a digest
//! ```
//!
//! What is asked of a unit, and in which rounds, is told in `unit.rs`. How much is asked follows the answers: as long as
//! nothing is known, 1 block in 32 and the nodes, under 0.01 % of the bytes; once something was known, 1 block in 8 (of what
//! waits, too), and beside a known one its neighbours; where nodes are known, nodes alone, 10 bytes for 512 KiB.
//!
//! A block is known or travels, never both; but where an answer's digest is not that of what was asked for, all of that batch
//! is unknown and travels, after the answer. Units leave in order, so the runs that come out ascend. What is ahead is bounded
//! in blocks ([`KNOWN_READ_AHEAD_BLOCKS`], [`KNOWN_SAMPLED_BLOCKS`]), and nothing of it is read.

use std::collections::VecDeque;
use std::ops::Range;

use farside_engine::{BLOCK_BYTES, EngineError, Fingerprint, short};
use farside_wire::{Run, RunKind};

use crate::error::TransferError;
use crate::limits::{
    ASK_BLOCKS_MAX, ASK_ENTRIES_MAX, ASKS_IN_FLIGHT_MAX, KNOWN_MISMATCHES_MAX, KNOWN_READ_AHEAD_BLOCKS,
    KNOWN_SAMPLED_BLOCKS, KNOWN_UNITS_MAX,
};
use crate::protocol::known::{Ask, Entry, NODE_BLOCKS, decode_answer, digest};
use crate::source::remaining::Fingerprints;

use super::unit::{Density, Node, UNIT_BLOCKS, Unit, Waits, data_blocks};

/// Blocks of a span that would travel for which its node is asked for: the question costs 0.01 % of them at most.
const NODE_QUESTION_BLOCKS_MIN: u64 = 32;
/// Runs of a unit that has no node; a run costs 24 bytes here.
const UNIT_RUNS_MAX: usize = 256;
/// Nodes whose fingerprints are looked up at once.
const NODES_AHEAD: u64 = 16;
/// Blocks of which the first question asks; each one after it may ask for twice as many, up to [`ASK_BLOCKS_MAX`]: so the first
/// frame waits for one round trip and a small batch.
const FIRST_ASK_BLOCKS: u64 = 1 << 10;
/// Batches in a row of which nothing was known, after which samples are sparse again.
const UNKNOWN_BATCHES_MAX: u32 = 4;
/// Blocks of a run that are added at once: as many as the smallest questions ask for.
const ADDED_BLOCKS: u64 = FIRST_ASK_BLOCKS;
/// Blocks whose fingerprints are looked up at once for a unit: runs further apart are looked up by themselves.
const LOOK_UP_BLOCKS: u64 = 1 << 10;

/// Fingerprints of the incremental.
pub(crate) struct Metadata {
    /// Of so many blocks from a block on.
    pub(crate) blocks: Fingerprints,
    /// Of so many nodes of level 1 from a node on; none if this side keeps no such: then only blocks are asked for.
    pub(crate) nodes: Option<Fingerprints>,
}

/// What came of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answered {
    /// It was taken.
    Confirmed,
    /// Its digest is not that of what was asked for: the batch is unknown. Nothing more is asked if it was not the first.
    Mismatch {
        /// Number of the batch.
        batch: u64,
        /// How many of its entries are said to be held.
        entries: usize,
    },
}

/// The planner.
pub(crate) struct Planner {
    metadata: Metadata,
    volume_blocks: u64,
    /// Whether anything is asked; else runs pass as they are.
    is_asking: bool,
    /// Whether a transfer that was cut may have asked for some of it before.
    is_resumed: bool,
    /// Runs of the span that the input is in.
    span: Vec<Run>,
    /// Runs of spans of which little travels, until they are a unit.
    scattered: Vec<Run>,
    /// Fingerprints of nodes from one on.
    nodes: (u64, Vec<Fingerprint>),
    units: VecDeque<Unit>,
    /// Number of the first of them.
    first_unit: u64,
    /// Blocks of data in units.
    waiting_blocks: u64,
    /// Of these, blocks of units whose samples were drawn.
    sampled_blocks: u64,
    /// What units wait to be asked for.
    queued: Size,
    in_flight: VecDeque<Batch>,
    next_batch: u64,
    unknown_batches: u32,
    density: Density,
    nodes_known_lately: bool,
    mismatches: u32,
    ready: VecDeque<Run>,
    known_bytes: u64,
    /// Runs that are known, until somebody takes them.
    known: Vec<Range<u64>>,
}

/// Size of questions.
#[derive(Clone, Copy, Default)]
struct Size {
    entries: u64,
    /// Those of nodes included.
    blocks: u64,
}

impl Size {
    fn of(unit: &Unit) -> Size {
        let (entries, nodes) = (unit.entries(), u64::from(unit.node.is_some()));
        Size { entries, blocks: entries - nodes + nodes * NODE_BLOCKS }
    }

    fn plus(self, other: Size) -> Size {
        Size { entries: self.entries + other.entries, blocks: self.blocks + other.blocks }
    }

    fn minus(self, other: Size) -> Size {
        Size { entries: self.entries - other.entries, blocks: self.blocks - other.blocks }
    }

    fn fits(self, blocks_max: u64) -> bool {
        self.entries <= ASK_ENTRIES_MAX && self.blocks <= blocks_max
    }
}

/// A question that is not answered yet.
struct Batch {
    number: u64,
    /// Numbers of the units it asks of, ascending.
    units: Vec<u64>,
    entries: usize,
}

impl Planner {
    /// For an incremental of so many blocks. Nothing is asked before [`Planner::begin_asking`]. `is_resumed`: a transfer that
    /// was cut may have asked before, and what it found is held.
    pub(crate) fn new(metadata: Metadata, volume_blocks: u64, is_resumed: bool) -> Planner {
        Planner {
            metadata,
            volume_blocks,
            is_asking: false,
            is_resumed,
            span: Vec::new(),
            scattered: Vec::new(),
            nodes: (0, Vec::new()),
            units: VecDeque::new(),
            first_unit: 0,
            waiting_blocks: 0,
            sampled_blocks: 0,
            queued: Size::default(),
            in_flight: VecDeque::new(),
            next_batch: 0,
            unknown_batches: 0,
            density: Density::Sparse,
            nodes_known_lately: false,
            mismatches: 0,
            ready: VecDeque::new(),
            known_bytes: 0,
            known: Vec::new(),
        }
    }

    /// From here on what comes is asked for.
    pub(crate) fn begin_asking(&mut self) {
        self.is_asking = self.mismatches <= KNOWN_MISMATCHES_MAX;
    }

    /// Whether another run may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting_blocks < KNOWN_READ_AHEAD_BLOCKS
            && self.sampled_blocks < KNOWN_SAMPLED_BLOCKS
            && self.units.len() < KNOWN_UNITS_MAX
    }

    /// Whether an answer is to come.
    pub(crate) fn awaits_answer(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether everything that was added was given out.
    pub(crate) fn is_empty(&self) -> bool {
        self.span.is_empty() && self.scattered.is_empty() && self.units.is_empty() && self.ready.is_empty()
    }

    /// Bytes so far that need not travel.
    pub(crate) fn known_bytes(&self) -> u64 {
        self.known_bytes
    }

    /// The next run, above all before it. Answers what of it is to be added later, after a look at
    /// [`Planner::has_room`] and [`Planner::next_ask`].
    pub(crate) fn add(&mut self, run: Run) -> Result<Option<Run>, EngineError> {
        if !self.is_asking && self.units.is_empty() && self.span.is_empty() && self.scattered.is_empty() {
            push(&mut self.ready, run);
            return Ok(None);
        }
        let mut rest = run;
        while rest.blocks > 0 {
            if run.blocks - rest.blocks >= ADDED_BLOCKS && run.kind == RunKind::Data {
                return Ok(Some(rest));
            }
            let span = rest.position / NODE_BLOCKS;
            if self.span.first().is_some_and(|first| first.position / NODE_BLOCKS != span) {
                self.close_span()?;
            }
            // A long hole goes with the span it begins in, but for what it has of the one it ends in.
            let next_span = match rest.kind {
                RunKind::Hole => (rest.end() / NODE_BLOCKS).max(span + 1),
                _ => span + 1,
            };
            let blocks = rest.blocks.min(next_span * NODE_BLOCKS - rest.position);
            self.span.push(Run { blocks, ..rest });
            rest = Run { position: rest.position + blocks, blocks: rest.blocks - blocks, ..rest };
        }
        Ok(None)
    }

    /// There is no more to gather: what was gathered becomes units.
    pub(crate) fn flush(&mut self) -> Result<(), EngineError> {
        self.close_span()?;
        self.close_scattered()
    }

    fn close_span(&mut self) -> Result<(), EngineError> {
        let runs = std::mem::take(&mut self.span);
        let Some(first) = runs.first() else { return Ok(()) };
        let (span, blocks) = (first.position / NODE_BLOCKS, data_blocks(&runs));
        let is_worth_a_node = self.is_asking
            && blocks >= NODE_QUESTION_BLOCKS_MIN
            && (span + 1) * NODE_BLOCKS <= self.volume_blocks;
        if is_worth_a_node && let Some(fingerprint) = self.node(span)? {
            self.close_scattered()?;
            return self.push_unit(Unit::new(runs, Some(Node { position: span, fingerprint })));
        }
        let gathered = data_blocks(&self.scattered);
        if gathered + blocks > UNIT_BLOCKS || self.scattered.len() + runs.len() > UNIT_RUNS_MAX {
            self.close_scattered()?;
        }
        self.scattered.extend(runs);
        Ok(())
    }

    fn close_scattered(&mut self) -> Result<(), EngineError> {
        let runs = std::mem::take(&mut self.scattered);
        if runs.is_empty() { Ok(()) } else { self.push_unit(Unit::new(runs, None)) }
    }

    fn node(&mut self, span: u64) -> Result<Option<Fingerprint>, EngineError> {
        let Some(look_up) = &self.metadata.nodes else { return Ok(None) };
        let (first, nodes) = &self.nodes;
        let at = span.checked_sub(*first).and_then(|at| nodes.get(at as usize));
        if let Some(node) = at {
            return Ok(Some(*node));
        }
        let count = NODES_AHEAD.min(self.volume_blocks / NODE_BLOCKS - span);
        self.nodes = (span, look_up(span, count)?);
        let none = || EngineError::Corrupt("no fingerprint of a node".into());
        self.nodes.1.first().copied().ok_or_else(none).map(Some)
    }

    fn push_unit(&mut self, mut unit: Unit) -> Result<(), EngineError> {
        if !self.is_asking {
            unit.give_up();
        }
        self.waiting_blocks += unit.data_blocks();
        if unit.waits == Waits::ToBeAsked && !(unit.node.is_some() && self.nodes_known_lately) {
            draw_samples(&self.metadata, &mut unit, self.density, self.is_resumed)?;
            self.sampled_blocks += unit.data_blocks();
        }
        if unit.waits == Waits::ToBeAsked {
            self.queued = self.queued.plus(Size::of(&unit));
        }
        self.units.push_back(unit);
        self.give_out();
        Ok(())
    }

    /// The next question: if enough is to be asked for one, or, with `all`, if anything is.
    pub(crate) fn next_ask(&mut self, all: bool) -> Option<Ask> {
        let blocks_max = ASK_BLOCKS_MAX.min(FIRST_ASK_BLOCKS << self.next_batch.min(16));
        let another = Size { entries: 1 + UNIT_BLOCKS, blocks: NODE_BLOCKS + UNIT_BLOCKS };
        let is_enough = !self.queued.plus(another).fits(blocks_max) || (all && self.queued.entries > 0);
        if !is_enough || self.in_flight.len() >= ASKS_IN_FLIGHT_MAX {
            return None;
        }
        let mut ask = Ask { batch: self.next_batch, ..Ask::default() };
        let (mut size, mut units) = (Size::default(), Vec::new());
        let entry = |position, fingerprint| Entry { position, short: short(fingerprint) };
        for (number, unit) in (self.first_unit..).zip(&mut self.units) {
            if unit.waits != Waits::ToBeAsked {
                continue;
            }
            let with = size.plus(Size::of(unit));
            if !with.fits(blocks_max) {
                break;
            }
            ask.nodes.extend(unit.node.map(|node| entry(node.position, node.fingerprint)));
            ask.blocks
                .extend(unit.asked_blocks().map(|(position, fingerprint)| entry(position, fingerprint)));
            unit.waits = Waits::ForAnswer;
            size = with;
            units.push(number);
        }
        self.queued = self.queued.minus(size);
        self.in_flight.push_back(Batch { number: self.next_batch, units, entries: ask.entries() });
        self.next_batch += 1;
        Some(ask)
    }

    /// The answer to the oldest question.
    pub(crate) fn answer(&mut self, bytes: &[u8]) -> Result<Answered, TransferError> {
        let nothing = || TransferError::Protocol("an answer without a question".into());
        let batch = self.in_flight.pop_front().ok_or_else(nothing)?;
        let answer = decode_answer(bytes, batch.entries)?;
        if answer.batch != batch.number {
            return Err(nothing());
        }
        let expected = self.fingerprints_of(&batch);
        let is_in = |run: &Range<usize>| expected.get(run.clone()).unwrap_or_default();
        if !answer.held.is_empty() && digest(answer.held.iter().flat_map(is_in)) != answer.digest {
            self.distrust(&batch);
            let entries = answer.held.iter().map(Range::len).sum();
            return Ok(Answered::Mismatch { batch: batch.number, entries });
        }
        let mut is_held = vec![false; batch.entries];
        for run in &answer.held {
            is_held[run.clone()].fill(true);
        }
        self.take_answer(&batch, &is_held)?;
        self.give_out();
        Ok(Answered::Confirmed)
    }

    /// Of what a batch asked for, in order: nodes, then blocks.
    fn fingerprints_of(&self, batch: &Batch) -> Vec<Fingerprint> {
        let units = || batch.units.iter().map(|number| &self.units[(number - self.first_unit) as usize]);
        let nodes = units().filter_map(|unit| unit.node.map(|node| node.fingerprint));
        nodes
            .chain(units().flat_map(|unit| unit.asked_blocks().map(|(_, fingerprint)| fingerprint)))
            .collect()
    }

    fn take_answer(&mut self, batch: &Batch, is_held: &[bool]) -> Result<(), TransferError> {
        let has_node = |number: &&u64| self.units[(**number - self.first_unit) as usize].node.is_some();
        let (nodes, blocks) = is_held.split_at(batch.units.iter().filter(has_node).count());
        if !nodes.is_empty() {
            self.nodes_known_lately = 2 * nodes.iter().filter(|held| **held).count() >= nodes.len();
        }
        if is_held.contains(&true) {
            self.unknown_batches = 0;
            self.density = Density::Dense;
        } else {
            self.unknown_batches = self.unknown_batches.saturating_add(1);
            if self.unknown_batches >= UNKNOWN_BATCHES_MAX {
                self.density = Density::Sparse;
            }
        }
        let (mut nodes, mut blocks) = (nodes.iter().copied(), blocks.iter().copied());
        for number in &batch.units {
            let unit = &mut self.units[(number - self.first_unit) as usize];
            let node_is_held = unit.node.is_some() && nodes.next().unwrap_or(false);
            unit.answered(node_is_held, || blocks.next().unwrap_or(false), self.density, self.is_resumed);
            if !self.is_asking {
                unit.give_up();
            }
            if unit.waits == Waits::ToBeAsked && unit.entries() == 0 {
                draw_samples(&self.metadata, unit, self.density, self.is_resumed)?;
                self.sampled_blocks += unit.data_blocks();
            }
            if unit.waits == Waits::ToBeAsked {
                self.queued = self.queued.plus(Size::of(unit));
            }
        }
        Ok(())
    }

    /// Its digest was wrong: what it asked for is unknown. Once too often, and nothing more is asked.
    fn distrust(&mut self, batch: &Batch) {
        for number in &batch.units {
            self.units[(number - self.first_unit) as usize].give_up();
        }
        self.mismatches += 1;
        if self.mismatches > KNOWN_MISMATCHES_MAX {
            self.is_asking = false;
            self.queued = Size::default();
            self.units.iter_mut().filter(|unit| unit.waits == Waits::ToBeAsked).for_each(Unit::give_up);
        }
        self.give_out();
    }

    fn give_out(&mut self) {
        while let Some(unit) = self.units.pop_front_if(|unit| unit.waits == Waits::ForNothing) {
            self.first_unit += 1;
            self.waiting_blocks -= unit.data_blocks();
            if unit.has_fingerprints() {
                self.sampled_blocks -= unit.data_blocks();
            }
            self.known_bytes += unit.known_blocks() * BLOCK_BYTES;
            unit.each_piece(|run, is_known| match is_known {
                true => self.known.push(run.position..run.end()),
                false => push(&mut self.ready, run),
            });
        }
    }

    /// What is known since this was asked last: runs of blocks, ascending.
    pub(crate) fn take_known(&mut self) -> impl Iterator<Item = Range<u64>> + use<> {
        std::mem::take(&mut self.known).into_iter()
    }

    /// What travels, as far as it is known by now.
    pub(crate) fn next_run(&mut self) -> Option<Run> {
        self.ready.pop_front()
    }
}

/// Units cut runs; what goes on is one again.
fn push(runs: &mut VecDeque<Run>, run: Run) {
    match runs.back_mut() {
        Some(last) if last.kind == run.kind && last.end() == run.position => last.blocks += run.blocks,
        _ => runs.push_back(run),
    }
}

fn draw_samples(
    metadata: &Metadata,
    unit: &mut Unit,
    density: Density,
    by_place: bool,
) -> Result<(), EngineError> {
    if !unit.has_fingerprints() {
        let found = look_up(metadata, unit)?;
        unit.set_fingerprints(found);
    }
    unit.draw_samples(density, by_place);
    Ok(())
}

/// Fingerprints of the unit's blocks, in order; runs that are near each other are looked up together.
fn look_up(metadata: &Metadata, unit: &Unit) -> Result<Vec<Fingerprint>, EngineError> {
    let mut found = Vec::with_capacity(unit.data_blocks() as usize);
    let mut runs = unit.data_runs().peekable();
    while let Some(first) = runs.next() {
        let (from, mut to) = (first.position, first.end());
        let mut near = vec![*first];
        while let Some(next) = runs.next_if(|next| next.end() - from <= LOOK_UP_BLOCKS) {
            to = next.end();
            near.push(*next);
        }
        let window = (metadata.blocks)(from, to - from)?;
        for run in near {
            let range = (run.position - from) as usize..(run.end() - from) as usize;
            found.extend_from_slice(
                window
                    .get(range)
                    .ok_or_else(|| EngineError::Corrupt("fingerprints of blocks are missing".into()))?,
            );
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
