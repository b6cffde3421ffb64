//! Which of two equal blocks is kept, and what is moved to it. Pure.

use std::collections::HashMap;

use farside_format::Fingerprint;
use farside_format::fingerprint::FAN_OUT;

use super::candidates::Candidates;
use super::member::At;
use crate::fingerprint_index::LeafAt;
use crate::sharing::Twin;

/// Neighbouring blocks of a head that are to lie where neighbouring blocks of a head lie.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// The first of those that are mapped anew.
    pub(super) target: At,
    /// The first of those that are kept.
    pub(super) source: At,
    pub(super) twins: Vec<Twin>,
}

/// What is to be done for the leaves at hand.
#[derive(Default)]
pub(super) struct Moves {
    pub(super) moves: Vec<Move>,
    /// Blocks that stay because the other one has as many owners as it may have; and where that lies.
    pub(super) limited: Vec<At>,
}

impl Moves {
    /// Decides for the blocks of `own`, in their order. `extra` says how many owners a place has beyond the first, of which it may have
    /// `extra_max`; `is_held` whether a snapshot has it too, so that to give it up frees nothing.
    pub(super) fn choose(
        own: &[At],
        mut candidates: Candidates,
        mut extra: HashMap<u64, u32>,
        extra_max: u32,
        is_held: impl Fn(&At) -> bool,
    ) -> Moves {
        let mut moves = Moves::default();
        for at in own {
            let places = candidates.entry(at.pointer.fingerprint).or_default();
            let owners = |at: &At| extra.get(&at.pointer.place.0).copied().unwrap_or(0);
            // Shared most, then held, then oldest: what is left is the same with every pass.
            let rank = |at: &At| (u32::MAX - owners(at), !is_held(at), at.pointer.birth, at.pointer.place);
            let is_other = |other: &&At| {
                (other.volume, other.block) != (at.volume, at.block)
                    && other.pointer.place != at.pointer.place
            };
            let best = places.iter().filter(is_other).min_by_key(|other| rank(other)).copied();
            let Some(other) = best else {
                // From here on it is one of those that the next ones can share.
                if !places.iter().any(|known| known.pointer.place == at.pointer.place) {
                    places.push(*at);
                }
                continue;
            };
            let (source, target) = if rank(&other) <= rank(at) { (other, *at) } else { (*at, other) };
            if owners(&source) >= extra_max {
                moves.limited.push(source);
                *places = vec![target];
                continue;
            }
            *extra.entry(source.pointer.place.0).or_default() += 1;
            // What follows joins those that are shared now.
            places.retain(|known| known.pointer.place == source.pointer.place);
            if places.is_empty() {
                places.push(source);
            }
            moves.add(target, source);
        }
        moves
    }

    fn add(&mut self, target: At, source: At) {
        let twin = Twin { given_up: target.pointer, kept: source.pointer };
        let goes_on = |from: &At, count: u64, to: &At| from.head == to.head && from.block + count == to.block;
        if let Some(last) = self.moves.last_mut() {
            let count = last.twins.len() as u64;
            if goes_on(&last.target, count, &target) && goes_on(&last.source, count, &source) {
                last.twins.push(twin);
                return;
            }
        }
        self.moves.push(Move { target, source, twins: vec![twin] });
    }

    /// Where content goes on that goes on behind leaf number `last` of the volume at hand.
    pub(super) fn follow(&self, last: u64) -> Vec<LeafAt> {
        let mut follow = Vec::new();
        for Move { target, source, twins } in self.moves.iter().rev().take(4) {
            let end = twins.len() as u64;
            for (here, there) in [(target, source), (source, target)] {
                let is_last = (here.block + end - 1) / FAN_OUT as u64 == last;
                let at = LeafAt { volume: there.volume, leaf: (there.block + end) / FAN_OUT as u64 };
                if is_last && !follow.contains(&at) {
                    follow.push(at);
                }
            }
        }
        follow
    }

    /// Contents of which the owners are asked for: of blocks that lie elsewhere too.
    pub(super) fn places_asked(own: &[At], candidates: &Candidates) -> Vec<u64> {
        let of_candidates = candidates.values().flatten().map(|at| at.pointer.place.0);
        let known = |fingerprint: &Fingerprint| candidates.contains_key(fingerprint);
        let of_own = own.iter().filter(|at| known(&at.pointer.fingerprint)).map(|at| at.pointer.place.0);
        of_candidates.chain(of_own).collect()
    }
}
