//! Carrying out what was chosen: what is kept is read and hashed, then shared if nobody has written meanwhile.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use farside_format::fingerprint::FAN_OUT;
use farside_format::{Fingerprint, Place, Pointer};
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use super::Dedup;
use super::candidates::Candidates;
use super::choice::{Move, Moves};
use super::member::{At, Member, head_view};
use crate::error::Result;
use crate::fingerprint_index::{LeafAt, short};
use crate::io::{PIECE_BLOCKS, run_length};
use crate::owner_counts::EXTRA_OWNERS_MAX;
use crate::versions::Holder;

impl Dedup {
    /// Chooses what moves where.
    pub(super) fn choose(&self, own: &[At], candidates: Candidates) -> Moves {
        let asked = Moves::places_asked(own, &candidates);
        let heads: HashSet<u64> = candidates.values().flatten().chain(own).map(|at| at.head).collect();
        let mut extra: HashMap<u64, u32> = HashMap::new();
        let mut holders: HashMap<u64, Holder> = HashMap::new();
        {
            let state = self.pool.locked();
            for place in asked {
                let count = state.allocator.owners.extra(Place(place));
                if count > 0 {
                    extra.insert(place, count);
                }
            }
            for head in heads {
                if let Some(version) = state.versions.versions.get(&head) {
                    holders.insert(head, state.versions.holder_of(version));
                }
            }
        }
        let is_held = |at: &At| {
            holders.get(&at.head).is_some_and(|holder| at.pointer.birth <= holder.at_block(at.block))
        };
        Moves::choose(own, candidates, extra, EXTRA_OWNERS_MAX, is_held)
    }

    /// Carries it out, and counts.
    pub(super) fn carry_out(&mut self, moves: Moves, pace: &mut dyn FnMut(u64)) -> Result<()> {
        for full in &moves.limited {
            self.limit_met(full);
        }
        // Of a content that comes again and again one block is read once.
        let mut sound: HashSet<u64> = HashSet::new();
        for one in &moves.moves {
            let mut at = 0;
            while at < one.twins.len() {
                let block = one.target.block + at as u64;
                let most = (PIECE_BLOCKS - block % PIECE_BLOCKS) as usize;
                let count = most.min(one.twins.len() - at);
                self.carry_out_piece(one, at, count, &mut sound, pace)?;
                at += count;
            }
        }
        Ok(())
    }

    fn carry_out_piece(
        &mut self,
        one: &Move,
        at: usize,
        count: usize,
        sound: &mut HashSet<u64>,
        pace: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let twins = &one.twins[at..at + count];
        let kept: Vec<Pointer> = twins.iter().map(|twin| twin.kept).collect();
        let source = Member { volume: one.source.volume, head: one.source.head };
        let first = one.source.block + at as u64;
        if kept.iter().any(|pointer| !sound.contains(&pointer.place.0)) {
            let (verified, read) = self.verify(source, first, &kept)?;
            sound.extend(verified);
            pace(read);
        }
        let mut next = 0;
        while next < twins.len() {
            let alike = twins[next..].iter().take_while(|twin| sound.contains(&twin.kept.place.0)).count();
            if alike == 0 {
                next += 1;
                continue;
            }
            let (to, from) = (one.target.block + (at + next) as u64, first + next as u64);
            let piece = &twins[next..next + alike];
            let shared = self.pool.share_twins(one.target.head, to, (one.source.head, from), piece)?;
            self.figures.shared_blocks += shared.count as u64;
            self.figures.held_blocks += shared.held as u64;
            next += shared.count;
            if shared.is_at_limit {
                self.limit_met(&At { block: first + next as u64, pointer: twins[next].kept, ..one.source });
                next += 1;
            } else if shared.count == 0 {
                // Somebody has written the one or the other.
                next += 1;
            }
        }
        Ok(())
    }

    /// Reads blocks of a head that are to be kept, as far as they lie where they did; the places of those that are as they should be,
    /// and how many bytes that took.
    fn verify(&mut self, member: Member, first: u64, kept: &[Pointer]) -> Result<(Vec<u64>, u64)> {
        let mut buffer = BlockBuffer::zeroed(kept.len());
        let (mut sound, mut bytes, mut damaged) = (Vec::with_capacity(kept.len()), 0, Vec::new());
        {
            // No place is used again meanwhile.
            let _reading = self.pool.readers.read();
            let Some(view) = head_view(&self.pool, member) else { return Ok((sound, 0)) };
            let mut now = Vec::with_capacity(kept.len());
            view.lookup(&self.pool.nodes, first, kept.len() as u64, &mut now)?;
            let is_there = |(now, kept): (&Pointer, &Pointer)| {
                now.place == kept.place && now.fingerprint == kept.fingerprint
            };
            let there: Vec<bool> = now.iter().zip(kept).map(is_there).collect();
            let mut at = 0;
            while at < kept.len() {
                let alike = there[at..].iter().take_while(|there| **there).count();
                if alike == 0 {
                    at += 1;
                    continue;
                }
                let run = run_length(&kept[at..at + alike]);
                let data = &mut buffer[at * BLOCK_BYTES..(at + run) * BLOCK_BYTES];
                let read = self.pool.behind.read_at(kept[at].place.0 * BLOCK_BYTES as u64, data);
                bytes += data.len() as u64;
                for (data, pointer) in data.chunks(BLOCK_BYTES).zip(&kept[at..at + run]) {
                    let is_sound = read.is_ok() && Fingerprint::of_block(data) == pointer.fingerprint;
                    let to = if is_sound { &mut sound } else { &mut damaged };
                    to.push(pointer.place.0);
                }
                at += run;
            }
        }
        self.count_read(bytes);
        self.found_damaged(member, &damaged);
        Ok((sound, bytes))
    }

    /// What is damaged is shared with nobody. A scrub says what it belongs to.
    fn found_damaged(&mut self, member: Member, places: &[u64]) {
        let Some(first) = places.first() else { return };
        let count = places.len() as u64;
        if self.figures.damaged_blocks == 0 {
            tracing::error!(
                pool = %self.pool.id(), volume = self.pool.describe_version(member.head), place = first, count,
                "deduplication met blocks that are damaged, and shares them with nobody: farside pool scrub names what they belong to"
            );
        }
        self.figures.damaged_blocks += count;
        self.pool.counters.corrupt_blocks.fetch_add(count, Ordering::Relaxed);
    }

    /// The next ones of this content find another one to share.
    fn limit_met(&mut self, full: &At) {
        self.figures.limited_blocks += 1;
        let at = LeafAt { volume: full.volume, leaf: full.block / FAN_OUT as u64 };
        self.index.table.block_is_stale(short(full.pointer.fingerprint), at);
    }
}
