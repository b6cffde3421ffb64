//! Writing blocks of a version: the life of a write is [`Pool::write_extents`], step by step.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use farside_format::fingerprint::{level_for, span};
use farside_format::journal::{MAP_BLOCKS_MAX, Record};
use farside_format::{Fingerprint, Place, Pointer};
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use crate::allocator::Allocator;
use crate::delta::{self, ChangeEffects};
use crate::error::{Result, StoreError};
use crate::pool::{Pool, STRIPES, State};
use crate::quota::QUOTA_ROUNDS_MAX;
use crate::space::{Asker, Footprint, Reservation, SpaceClass};
use crate::versions::{Ended, VersionState, Versions, blocks, freed_of};
use crate::write_behind::{Promised, WAITS_BELOW_BYTES};

/// Blocks of one piece of a long write: 1 MiB, aligned, so that a piece has one stripe and few nodes.
pub(crate) const PIECE_BLOCKS: u64 = 256;
const BLOCK: u64 = BLOCK_BYTES as u64;

impl Pool {
    /// Which blocks of a range are mapped: (blocks, mapped), joined, at most `ranges_max` of them from its start.
    pub(crate) fn mapped_ranges(
        &self,
        version: u64,
        first: u64,
        count: u64,
        ranges_max: usize,
    ) -> Result<Vec<(u64, bool)>> {
        let _reading = self.readers.read();
        let view = {
            let state = self.locked();
            state.view(state.versions.version(version)?)
        };
        let mut ranges: Vec<(u64, bool)> = Vec::new();
        view.visit(&self.nodes, first, count, &mut |pointer, blocks| {
            let mapped = !pointer.is_hole();
            let full = ranges.len() == ranges_max;
            match ranges.last_mut() {
                Some((count, last)) if *last == mapped => *count += blocks,
                _ if full => return false,
                _ => ranges.push((blocks, mapped)),
            }
            true
        })?;
        Ok(ranges)
    }

    /// Writes any range of a head, in pieces that each appear in one moment.
    pub(crate) fn write(&self, version: u64, offset: u64, bytes: &[u8], class: SpaceClass) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let piece_end = (at / (PIECE_BLOCKS * BLOCK) + 1) * PIECE_BLOCKS * BLOCK;
            let take = ((piece_end - at) as usize).min(bytes.len() - done);
            self.write_together(version, &[(at, &bytes[done..done + take])], class)?;
            done += take;
        }
        self.counters.written_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Several writes at once, see [`Pool::write_together`].
    pub(crate) fn write_joined(
        &self,
        version: u64,
        writes: &[(u64, &[u8])],
        class: SpaceClass,
    ) -> Result<()> {
        self.write_together(version, writes, class)?;
        let bytes: u64 = writes.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        self.counters.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The life of a write: fingerprints, room, data to the device or to what is written there next, then the mapping and its journal
    /// record. It is durable once a later flush returns. The caller has the stripes.
    pub(crate) fn write_extents(
        &self,
        version: u64,
        extents: &[Extent<'_>],
        class: SpaceClass,
    ) -> Result<()> {
        for round in 0.. {
            self.admit()?;
            let pointers = pointers_of(extents);
            let data_blocks = count_data(&pointers);
            let fits = self.seek_quota(version, data_blocks, || ranges_of(extents));
            self.note_refusal(version, class, &fits);
            fits?;
            let is_small = extents.iter().all(|extent| extent.bytes.len() < WAITS_BELOW_BYTES);
            let behind = match is_small && self.options.write_behind_bytes > 0 {
                true => Some(self.promise_behind(data_blocks * BLOCK)?),
                false => None,
            };
            let asker = Asker { class, version };
            let reservation = self.reserve_for(data_blocks, footprint_of(extents), asker)?;
            match self.write_with(version, extents, pointers, (behind, reservation), class) {
                // Others took it since: what they replaced may come back.
                Err(StoreError::OverQuota { .. }) if round < QUOTA_ROUNDS_MAX => {}
                done => {
                    self.note_refusal(version, class, &done);
                    return done;
                }
            }
        }
        unreachable!("the last round answers")
    }

    /// The same for a small write that waits for nobody: not for the device, nor for room, nor for somebody who waits for one of them.
    /// `None` if it would have to; nothing has been done then.
    pub(crate) fn write_extents_at_once(&self, version: u64, extents: &[Extent<'_>]) -> Option<Result<()>> {
        let is_small = extents.iter().all(|extent| extent.bytes.len() < WAITS_BELOW_BYTES);
        if !is_small || !self.is_calm() {
            return None;
        }
        let pointers = pointers_of(extents);
        let data_blocks = count_data(&pointers);
        let promised = self.behind.promise_within(data_blocks * BLOCK, self.options.write_behind_bytes)?;
        let reservation = self.reserve_at_once(data_blocks, footprint_of(extents), version)?;
        Some(self.write_with(version, extents, pointers, (Some(promised), reservation), SpaceClass::Host))
    }

    /// A write that has its room.
    fn write_with(
        &self,
        version: u64,
        extents: &[Extent<'_>],
        mut pointers: Vec<Pointer>,
        (behind, reservation): (Option<Promised<'_>>, Reservation),
        class: SpaceClass,
    ) -> Result<()> {
        let mut free_places =
            reservation.runs.iter().flat_map(|(place, count)| (place.0..place.0 + count).map(Place));
        for pointer in pointers.iter_mut().filter(|p| !p.is_hole()) {
            pointer.place = free_places.next().expect("as many places as data blocks were reserved");
        }
        drop(free_places);
        // Data to places that nothing refers to. A crash from here on loses the write whole or finds it whole.
        let runs = runs_on_device(extents, &pointers);
        let waiting = match behind {
            Some(promised) => Some((promised, runs.iter().map(in_memory).collect())),
            None => {
                let written = runs
                    .iter()
                    .try_for_each(|(place, pieces)| self.device.write_pieces_at(place.0 * BLOCK, pieces));
                if let Err(error) = self.note_direct_write(written) {
                    // What the device did is unknown, but nothing refers to these places: no latch is needed.
                    self.release(reservation);
                    return Err(error);
                }
                None
            }
        };
        // The mapping and its record, in one moment.
        let mut guard = self.locked();
        let state = &mut *guard;
        let refused = extents.iter().find_map(|e| check_writable(state, version, e.first, e.blocks()).err());
        if let Some(error) = refused {
            crate::space::release(state, reservation);
            return Err(error);
        }
        let charge = match self.charge(state, version, count_data(&pointers), || ranges_of(extents)) {
            Ok(charge) => charge,
            Err(error) => {
                crate::space::release(state, reservation);
                return Err(error);
            }
        };
        // Before anybody can look for it.
        if let Some((promised, runs)) = waiting {
            self.behind.insert(promised, runs);
        }
        let mut effects = ChangeEffects::default();
        let mut rest = &mut pointers[..];
        for extent in extents {
            let (own, others) = rest.split_at_mut(extent.blocks() as usize);
            rest = others;
            map_in_state(state, version, extent.first, own, &mut effects)?;
        }
        account(&mut state.versions, &mut state.allocator, version, &effects)?;
        charge.note(state, version, pointers.len() as u64, true);
        reservation.consume(state, &effects);
        drop(guard);
        // Other transfers may want what this one brought. Hosts do not pay for that.
        if class == SpaceClass::Staging {
            for extent in extents {
                self.known.staged(version, extent.first, extent.blocks());
            }
        }
        Ok(())
    }

    /// Makes whole blocks holes.
    pub(crate) fn unmap_blocks(&self, version: u64, first: u64, count: u64, class: SpaceClass) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        self.admit()?;
        // A long range touches every stripe; taken in order, so that two cannot wait for each other. Before the room: who seeks
        // room may hold one, and waits for those who have some.
        let stripes: BTreeSet<usize> = (first / PIECE_BLOCKS..=(first + count - 1) / PIECE_BLOCKS)
            .take(STRIPES)
            .map(|piece| stripe_of(version, piece * PIECE_BLOCKS))
            .collect();
        let _sharing: Vec<_> = stripes.iter().map(|s| self.stripes[*s].read()).collect();
        let reservation = self.reserve_for(0, Footprint::ONE_RANGE, Asker { class, version })?;
        let mut guard = self.locked();
        let state = &mut *guard;
        if let Err(error) = check_writable(state, version, first, count) {
            crate::space::release(state, reservation);
            return Err(error);
        }
        let effects = unmap_in_state(state, version, first, count)?;
        reservation.consume(state, &effects);
        Ok(())
    }

    /// Zeros any range: whole blocks become holes, edges are merged.
    pub(crate) fn write_zeroes(
        &self,
        version: u64,
        offset: u64,
        length: u64,
        class: SpaceClass,
    ) -> Result<()> {
        let end = offset + length;
        let (first, last) = (offset.div_ceil(BLOCK), end / BLOCK);
        if first > last {
            // Inside one block.
            return self.write(version, offset, &vec![0; length as usize], class);
        }
        let head = (first * BLOCK - offset) as usize;
        let tail = (end - last * BLOCK) as usize;
        self.write(version, offset, &vec![0; head], class)?;
        self.unmap_blocks(version, first, last - first, class)?;
        self.write(version, last * BLOCK, &vec![0; tail], class)
    }

    /// The error of a read that met lost blocks of a version, logged.
    pub(crate) fn quarantined_error(&self, version: u64, block: u64, count: u64) -> StoreError {
        let error = StoreError::Quarantined { version: self.describe_version(version), block, count };
        tracing::error!(pool = %self.id, "a read failed: {error}");
        error
    }

    pub(crate) fn describe_version(&self, version: u64) -> String {
        let state = self.locked();
        let Some(v) = state.versions.versions.get(&version) else { return format!("version {version}") };
        let volume = state.versions.volumes.get(&v.volume);
        let volume = volume.map_or_else(|| String::from("?"), |volume| state.full_name(&volume.name));
        match &v.snapshot {
            Some(snapshot) => format!("{volume}@{}", snapshot.name),
            None => volume,
        }
    }
}

/// What blocks are. Zeros become holes.
fn pointers_of(extents: &[Extent<'_>]) -> Vec<Pointer> {
    let blocks = extents.iter().flat_map(|extent| extent.bytes.chunks_exact(BLOCK_BYTES));
    blocks.map(|block| Pointer { fingerprint: Fingerprint::of_block(block), ..Pointer::HOLE }).collect()
}

fn count_data(pointers: &[Pointer]) -> u64 {
    pointers.iter().filter(|p| !p.is_hole()).count() as u64
}

fn ranges_of(extents: &[Extent<'_>]) -> Vec<(u64, u64)> {
    extents.iter().map(|extent| (extent.first, extent.blocks())).collect()
}

/// What the nodes of a write cost.
fn footprint_of(extents: &[Extent<'_>]) -> Footprint {
    Footprint::of_ranges(extents.iter().map(|extent| (extent.first, extent.blocks())))
}

/// Whole blocks that are written side by side.
pub(crate) struct Extent<'a> {
    pub(crate) first: u64,
    pub(crate) bytes: &'a [u8],
}

impl Extent<'_> {
    fn blocks(&self) -> u64 {
        (self.bytes.len() / BLOCK_BYTES) as u64
    }
}

/// The data of `extents` in the order in which `pointers` place it on the device: where a run begins, and its bytes in as few pieces
/// as they lie in memory.
fn runs_on_device<'a>(extents: &[Extent<'a>], pointers: &[Pointer]) -> Vec<(Place, Vec<&'a [u8]>)> {
    let mut runs: Vec<(Place, Vec<&[u8]>)> = Vec::new();
    let mut end_of_run = None;
    let mut pointers = pointers.iter();
    for extent in extents {
        // The piece that is not ended yet: where it begins in this extent.
        let mut piece_from = None;
        for (at, pointer) in (0..).step_by(BLOCK_BYTES).zip(pointers.by_ref().take(extent.blocks() as usize))
        {
            let block = &extent.bytes[at..at + BLOCK_BYTES];
            if pointer.is_hole() {
                piece_from = None;
                continue;
            }
            let goes_on = end_of_run == Some(pointer.place);
            end_of_run = Some(Place(pointer.place.0 + 1));
            match runs.last_mut() {
                Some((_, pieces)) if goes_on => match piece_from {
                    Some(from) => {
                        *pieces.last_mut().expect("a run has a piece") = &extent.bytes[from..at + BLOCK_BYTES]
                    }
                    None => {
                        pieces.push(block);
                        piece_from = Some(at);
                    }
                },
                _ => {
                    runs.push((pointer.place, vec![block]));
                    piece_from = Some(at);
                }
            }
        }
    }
    runs
}

/// A run of [`runs_on_device`], in one piece.
fn in_memory((place, pieces): &(Place, Vec<&[u8]>)) -> (Place, BlockBuffer) {
    let blocks = pieces.iter().map(|piece| piece.len() / BLOCK_BYTES).sum();
    let mut bytes = BlockBuffer::zeroed(blocks);
    let mut rest = &mut bytes[..];
    for piece in pieces {
        let (to, others) = rest.split_at_mut(piece.len());
        to.copy_from_slice(piece);
        rest = others;
    }
    (*place, bytes)
}

/// Maps neighbouring blocks in memory and appends the records. The pointers get their birth.
fn map_in_state(
    state: &mut State,
    version: u64,
    first: u64,
    pointers: &mut [Pointer],
    effects: &mut ChangeEffects,
) -> Result<()> {
    let birth = state.epoch;
    let mut at = 0;
    while at < pointers.len() {
        let run = run_length(&pointers[at..]).min(MAP_BLOCKS_MAX);
        let block = first + at as u64;
        let piece = &mut pointers[at..at + run];
        let record = if piece[0].is_hole() {
            Record::Unmap { version, birth, block, count: run as u64 }
        } else {
            state.allocator.settle(piece[0].place, run as u64);
            let fingerprints = piece.iter().map(|p| p.fingerprint).collect();
            Record::Map { version, birth, block, place: piece[0].place, fingerprints }
        };
        for pointer in piece.iter_mut().filter(|p| !p.is_hole()) {
            pointer.birth = birth;
        }
        if !piece[0].is_hole() {
            state.versions.owns(version, run as u64);
        }
        state.append(&record);
        at += run;
    }
    let entry = state.versions.version_mut(version)?;
    let level = entry.level();
    effects.new_inner += entry.old_part();
    delta::map(&mut entry.delta, level, first, pointers, birth, effects);
    Ok(())
}

/// Unmaps in memory and appends the record.
pub(crate) fn unmap_in_state(
    state: &mut State,
    version: u64,
    first: u64,
    count: u64,
) -> Result<ChangeEffects> {
    let birth = state.epoch;
    let mut effects = ChangeEffects::default();
    state.append(&Record::Unmap { version, birth, block: first, count });
    let entry = state.versions.version_mut(version)?;
    let level = entry.level();
    effects.new_inner += entry.old_part();
    delta::unmap(&mut entry.delta, level, first, count, birth, &mut effects);
    state.versions.changed(version, count, None);
    account(&mut state.versions, &mut state.allocator, version, &effects)?;
    Ok(effects)
}

/// What a version needs before it grows to `size_bytes`: a damaged node says of the blocks past the old end what it says of all
/// others, that they are lost. They were holes, and shall show zeros.
pub(crate) fn unmap_what_growth_adds(
    state: &mut State,
    version: u64,
    size_bytes: u64,
) -> Result<ChangeEffects> {
    let found = state.versions.version(version)?;
    let (old_blocks, new_blocks) = (blocks(found.size_bytes), blocks(size_bytes));
    // Nothing can be lost where no node is. And no further than the tree that the size alone asks for: this record comes before
    // that of the growth, and an opening that begins at a point knows no higher tree than that. Such a tree can be higher here,
    // because a larger size once raised it; of what it had past its end then, nothing is mapped since it shrank.
    let end = if found.tree.root.is_hole() { 0 } else { new_blocks.min(span(level_for(old_blocks))) };
    let mut effects = match end.checked_sub(old_blocks) {
        Some(count) if count > 0 => unmap_in_state(state, version, old_blocks, count)?,
        _ => ChangeEffects::default(),
    };
    effects.new_inner += state.versions.version(version)?.raising_to(size_bytes).new_inner;
    Ok(effects)
}

/// Ends the ownership of what a change replaced and no ancestor holds.
pub(crate) fn account(
    versions: &mut Versions,
    allocator: &mut Allocator,
    version: u64,
    effects: &ChangeEffects,
) -> Result<()> {
    if effects.replaced.is_empty() {
        return Ok(());
    }
    let holder = versions.holder_of(versions.version(version)?);
    let mut ended = Ended::default();
    for pointer in freed_of(&effects.replaced, &holder) {
        allocator.release(pointer.place);
        ended.add(holder.owner(pointer.birth));
    }
    ended.iter().for_each(|(owner, blocks)| versions.owns_no_more(owner, blocks));
    Ok(())
}

pub(crate) fn check_writable(state: &State, version: u64, first: u64, count: u64) -> Result<()> {
    let found: &VersionState =
        state.versions.versions.get(&version).filter(|v| v.is_writable()).ok_or_else(|| {
            StoreError::Refused("the volume was deleted or replaced while it was written".into())
        })?;
    if first + count > blocks(found.size_bytes) {
        return Err(StoreError::Invalid(format!(
            "a write past the end: the volume has {} bytes",
            found.size_bytes
        )));
    }
    Ok(())
}

/// How many pointers from the first on can be read or written at once: consecutive places, or holes.
pub(crate) fn run_length(pointers: &[Pointer]) -> usize {
    let first = pointers[0];
    1 + pointers[1..]
        .iter()
        .enumerate()
        .take_while(|(i, p)| {
            if first.is_hole() {
                p.is_hole()
            } else {
                !p.is_hole() && p.place.0 == first.place.0 + *i as u64 + 1
            }
        })
        .count()
}

pub(crate) fn stripe_of(version: u64, block: u64) -> usize {
    ((version.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize + (block / PIECE_BLOCKS) as usize) % STRIPES
}
