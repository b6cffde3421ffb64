//! A unit of questions: up to 128 blocks of data that would travel, and what is known of them. It is asked about in rounds, each
//! of which waits for the answer to the one before:
//!
//! ```text
//! whole    the node, if most of a leaf's span travels
//! samples  a few of the blocks; together with the node, unless nodes were known lately
//! more     more samples, if they were few and something has been known since they were drawn; and the rest: if half of the
//!          samples were known all others, else what lies beside a known one
//! ```

use farside_engine::{Fingerprint, SAMPLE_BITS, short};
use farside_wire::{Run, RunKind};

/// Blocks of data of a unit: a bit for each.
pub(crate) type Blocks = u128;

/// Blocks of data in a unit, at most.
pub(crate) const UNIT_BLOCKS: u64 = Blocks::BITS as u64;

/// Additional zero bits of a sample's short fingerprint where nothing was known lately: 1 block in 32 instead of in 8.
const SPARSE_BITS: u32 = 2;

/// How many samples are drawn.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Density {
    /// 1 block in 32.
    Sparse,
    /// 1 block in 8.
    Dense,
}

impl Density {
    fn bits(self) -> u32 {
        match self {
            Density::Sparse => SAMPLE_BITS + SPARSE_BITS,
            Density::Dense => SAMPLE_BITS,
        }
    }
}

/// What a unit waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// To be asked about, for the first time or again.
    ToBeAsked,
    /// For an answer.
    ForAnswer,
    /// For nothing: what is not known travels.
    ForNothing,
}

/// A unit.
pub(crate) struct Unit {
    /// Ascending; between them what does not travel.
    runs: Vec<Run>,
    data_blocks: u64,
    /// Of its data blocks, in order; looked up when the first of them is asked for.
    fingerprints: Vec<Fingerprint>,
    /// Of its span, as long as that is of use.
    pub(crate) node: Option<Node>,
    pub(crate) waits: Waits,
    /// What to ask for, or what was asked for, in this round.
    pub(crate) asked: Blocks,
    asked_before: Blocks,
    sampled: Blocks,
    density: Option<Density>,
    known: Blocks,
}

/// The node of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// Position in spans.
    pub(crate) position: u64,
    pub(crate) fingerprint: Fingerprint,
}

impl Unit {
    pub(crate) fn new(runs: Vec<Run>, node: Option<Node>) -> Unit {
        let data_blocks = data_blocks(&runs);
        debug_assert!(data_blocks <= UNIT_BLOCKS);
        let waits = if data_blocks == 0 { Waits::ForNothing } else { Waits::ToBeAsked };
        let fingerprints = Vec::new();
        Unit {
            runs,
            data_blocks,
            fingerprints,
            node,
            waits,
            asked: 0,
            asked_before: 0,
            sampled: 0,
            density: None,
            known: 0,
        }
    }

    pub(crate) fn data_blocks(&self) -> u64 {
        self.data_blocks
    }

    /// Entries of its question in this round.
    pub(crate) fn entries(&self) -> u64 {
        u64::from(self.asked.count_ones()) + u64::from(self.node.is_some())
    }

    pub(crate) fn has_fingerprints(&self) -> bool {
        !self.fingerprints.is_empty()
    }

    /// Of all its blocks, in order.
    pub(crate) fn set_fingerprints(&mut self, fingerprints: Vec<Fingerprint>) {
        self.fingerprints = fingerprints;
    }

    pub(crate) fn data_runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|run| run.kind == RunKind::Data)
    }

    /// Draws the samples that are asked for in this round. By content, because both sides then draw the same, wherever
    /// a block lies: an index that has no room for all blocks keeps those. `by_place`: and as many by where they stand,
    /// because those by content were asked for and brought by a transfer that was cut. Of few blocks there may be none.
    pub(crate) fn draw_samples(&mut self, density: Density, by_place: bool) {
        let bits = |at: usize| short(self.fingerprints[at]).trailing_zeros();
        let stands_so = |at: usize| by_place && (at + 1).is_multiple_of(1 << density.bits());
        let mut drawn = mask(self.fingerprints.len(), |at| bits(at) >= density.bits() || stands_so(at));
        if drawn == 0 && self.fingerprints.len() >= 1 << (density.bits() - 1) {
            let nearest = (0..self.fingerprints.len()).max_by_key(|at| bits(*at));
            drawn = nearest.map_or(0, |at| 1 << at);
        }
        self.density = Some(density);
        self.sampled |= drawn;
        self.asked = drawn & !self.asked_before;
        if self.entries() == 0 {
            self.give_up();
        }
    }

    /// The blocks that are asked for in this round: position and fingerprint, ascending.
    pub(crate) fn asked_blocks(&self) -> impl Iterator<Item = (u64, Fingerprint)> {
        let positions = self.data_runs().flat_map(|run| run.position..run.end());
        let all = positions.zip(self.fingerprints.iter().copied()).enumerate();
        all.filter(|(at, _)| self.asked >> at & 1 == 1).map(|(_, block)| block)
    }

    /// Its round was answered: whether the node is held, and which of the blocks that were asked for, in order. `density` and
    /// `by_place`: which samples are drawn by now.
    pub(crate) fn answered(
        &mut self,
        node_is_held: bool,
        mut block_is_held: impl FnMut() -> bool,
        density: Density,
        by_place: bool,
    ) {
        let mut held = 0;
        for at in bits_of(self.asked) {
            held |= Blocks::from(block_is_held()) << at;
        }
        self.known |= held;
        let had_node = self.node.take().is_some();
        if node_is_held {
            self.known = mask(self.data_blocks as usize, |_| true);
            self.give_up();
        } else if had_node && self.asked == 0 {
            // The node alone was asked for; its blocks are asked for next.
            self.waits = Waits::ToBeAsked;
        } else {
            self.asked_before |= self.asked;
            self.asked = 0;
            if self.density < Some(density) {
                self.draw_samples(density, by_place);
            }
            self.asked |= self.rest() & !self.asked_before;
            self.waits = if self.asked == 0 { Waits::ForNothing } else { Waits::ToBeAsked };
        }
    }

    /// What to ask for after the samples. Where content is common but for a block here and there, an unknown sample says
    /// little of those beside it.
    fn rest(&self) -> Blocks {
        let count = self.data_blocks as usize;
        let sampled = self.sampled & self.asked_before;
        if 2 * (self.known & sampled).count_ones() >= sampled.count_ones() {
            return mask(count, |_| true);
        }
        let is_known = |at: usize| self.known >> at & 1 == 1;
        let is_sampled = |at: usize| sampled >> at & 1 == 1;
        let mut near = 0;
        for order in [&mut (0..count) as &mut dyn Iterator<Item = usize>, &mut (0..count).rev()] {
            let mut last_was_known = false;
            for at in order {
                if is_sampled(at) {
                    last_was_known = is_known(at);
                } else if last_was_known {
                    near |= 1 << at;
                }
            }
        }
        near
    }

    /// Nothing more is asked.
    pub(crate) fn give_up(&mut self) {
        self.node = None;
        self.asked = 0;
        self.waits = Waits::ForNothing;
    }

    /// Blocks known.
    pub(crate) fn known_blocks(&self) -> u64 {
        self.known.count_ones().into()
    }

    /// Its runs in order, cut where what is known begins or ends, and of each whether it is known. What is not travels.
    pub(crate) fn each_piece(&self, mut piece: impl FnMut(Run, bool)) {
        let mut first = 0;
        for run in &self.runs {
            if run.kind != RunKind::Data {
                piece(*run, false);
                continue;
            }
            let mut at = 0;
            while at < run.blocks {
                let is_known = |at: u64| self.known >> (first + at) & 1 == 1;
                let end =
                    (at + 1..run.blocks).find(|next| is_known(*next) != is_known(at)).unwrap_or(run.blocks);
                piece(Run { position: run.position + at, blocks: end - at, ..*run }, is_known(at));
                at = end;
            }
            first += run.blocks;
        }
    }
}

/// Blocks of the data runs.
pub(crate) fn data_blocks(runs: &[Run]) -> u64 {
    runs.iter().filter(|run| run.kind == RunKind::Data).map(|run| run.blocks).sum()
}

fn mask(count: usize, is_in: impl Fn(usize) -> bool) -> Blocks {
    (0..count).filter(|at| is_in(*at)).fold(0, |mask, at| mask | 1 << at)
}

fn bits_of(mask: Blocks) -> impl Iterator<Item = u32> {
    (0..Blocks::BITS).filter(move |at| mask >> at & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(position: u64, blocks: u64, kind: RunKind) -> Run {
        Run { position, blocks, kind }
    }

    /// A fingerprint whose short form has so many zero bits at its end.
    fn with_zero_bits(bits: u32) -> Fingerprint {
        let mut fingerprint = [7; 16];
        fingerprint[..8].copy_from_slice(&(1u64 << bits).to_be_bytes());
        Fingerprint(fingerprint)
    }

    fn unit(zero_bits: &[u32], node: bool) -> Unit {
        let (data, hole) = (RunKind::Data, RunKind::Hole);
        let blocks = zero_bits.len() as u64;
        let runs = vec![run(256, 1, data), run(257, 2, hole), run(259, blocks - 1, data)];
        let node = node.then_some(Node { position: 2, fingerprint: Fingerprint([1; 16]) });
        let mut unit = Unit::new(runs, node);
        unit.set_fingerprints(zero_bits.iter().map(|bits| with_zero_bits(*bits)).collect());
        unit
    }

    /// What of it travels, or is known.
    fn pieces(unit: &Unit, known: bool) -> Vec<Run> {
        let mut out = Vec::new();
        unit.each_piece(|run, is_known| out.extend((is_known == known).then_some(run)));
        out
    }

    fn travels(unit: &Unit) -> Vec<(u64, u64)> {
        let all = pieces(unit, false);
        all.iter().filter(|r| r.kind == RunKind::Data).map(|r| (r.position, r.blocks)).collect()
    }

    #[test]
    fn what_lies_beside_a_known_sample_is_asked_for() {
        //             256    259
        let mut unit = unit(&[3, 0, 0, 4, 0, 0, 3, 0, 5, 0], false);
        unit.draw_samples(Density::Dense, false);
        let positions = |unit: &Unit| unit.asked_blocks().map(|(p, _)| p).collect::<Vec<_>>();
        assert_eq!(positions(&unit), [256, 261, 264, 266]);
        let mut held = [true, false, false, false].into_iter();
        unit.answered(false, || held.next().unwrap(), Density::Dense, false);
        assert_eq!((unit.waits, positions(&unit)), (Waits::ToBeAsked, vec![259, 260]));
        let mut held = [true, true].into_iter();
        unit.answered(false, || held.next().unwrap(), Density::Dense, false);
        assert_eq!(unit.waits, Waits::ForNothing);
        assert_eq!(unit.known_blocks(), 3);
        assert_eq!(travels(&unit), [(261, 7)]);
        assert_eq!(pieces(&unit, false)[0], run(257, 2, RunKind::Hole), "holes travel as they are");
        assert_eq!(pieces(&unit, true), [run(256, 1, RunKind::Data), run(259, 2, RunKind::Data)]);
    }

    #[test]
    fn where_half_of_the_samples_are_known_all_is_asked_for() {
        let mut unit = unit(&[3, 0, 0, 4, 0], false);
        unit.draw_samples(Density::Dense, false);
        let mut held = [false, true].into_iter();
        unit.answered(false, || held.next().unwrap(), Density::Dense, false);
        assert_eq!(unit.asked, 0b10110);
        let mut held = [true, false, true].into_iter();
        unit.answered(false, || held.next().unwrap(), Density::Dense, false);
        assert_eq!((unit.waits, unit.known_blocks()), (Waits::ForNothing, 3));
        assert_eq!(travels(&unit), [(256, 1), (260, 1)]);
    }

    #[test]
    fn few_samples_are_followed_by_more_if_something_was_known_meanwhile() {
        let bits = [0, 3, 0, 5, 0, 3, 0, 0];
        let sampled_sparsely = || {
            let mut unit = unit(&bits, false);
            unit.draw_samples(Density::Sparse, false);
            assert_eq!(unit.asked, 0b1000);
            unit
        };
        let mut unit = sampled_sparsely();
        unit.answered(false, || false, Density::Sparse, false);
        assert_eq!(unit.waits, Waits::ForNothing);

        let mut unit = sampled_sparsely();
        unit.answered(false, || false, Density::Dense, false);
        assert_eq!((unit.waits, unit.asked), (Waits::ToBeAsked, 0b100010));
        let mut held = [true, false].into_iter();
        unit.answered(false, || held.next().unwrap(), Density::Dense, false);
        assert_eq!((unit.waits, unit.asked), (Waits::ToBeAsked, 0b101));
        let mut held = [false, true].into_iter();
        unit.answered(false, || held.next().unwrap(), Density::Dense, false);
        assert_eq!((unit.waits, unit.known_blocks()), (Waits::ForNothing, 2));
    }

    #[test]
    fn after_a_cut_samples_are_drawn_by_place_too() {
        let mut unit = unit(&[0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], false);
        unit.draw_samples(Density::Dense, true);
        assert_eq!(unit.asked, 1 << 2 | 1 << 7 | 1 << 15);
    }

    #[test]
    fn a_known_node_leaves_nothing_and_an_unknown_one_is_sampled() {
        let mut known = unit(&[0, 3, 0, 0], true);
        assert_eq!(known.entries(), 1);
        known.answered(true, || false, Density::Dense, false);
        assert_eq!((known.waits, known.known_blocks()), (Waits::ForNothing, 4));
        assert_eq!(travels(&known), []);

        let mut unknown = unit(&[0, 3, 0, 0], true);
        unknown.answered(false, || false, Density::Dense, false);
        assert_eq!((unknown.waits, unknown.entries()), (Waits::ToBeAsked, 0));
        unknown.draw_samples(Density::Dense, false);
        assert_eq!(unknown.asked, 0b10);
        unknown.answered(false, || false, Density::Dense, false);
        assert_eq!(unknown.waits, Waits::ForNothing);
        assert_eq!(travels(&unknown), [(256, 1), (259, 3)]);
    }

    #[test]
    fn many_blocks_are_never_without_a_sample_and_few_may_be() {
        let mut many = unit(&[0, 1, 0, 0], false);
        many.draw_samples(Density::Dense, false);
        assert_eq!(many.asked, 0b10);
        let mut few = unit(&[2, 1, 0], false);
        few.draw_samples(Density::Dense, false);
        assert_eq!(few.waits, Waits::ForNothing);
        let mut sparse = unit(&[3, 4, 4, 5], false);
        sparse.draw_samples(Density::Sparse, false);
        assert_eq!(sparse.asked, 0b1000);
        let mut few = unit(&[3, 4, 4, 4], false);
        few.draw_samples(Density::Sparse, false);
        assert_eq!(few.waits, Waits::ForNothing);
    }
}
