//! Blocks of one version mapped to the places that another version has: one more owner for each, and no data written.
//!
//! What a share rests on: the caller holds the source version open and has just re-read and re-hashed its bytes. In one
//! moment, under the state lock, it is seen that the source still maps the same content, and counts and mapping change
//! together. From then on the owners of a place are equal; how one goes is [`Allocator::release`]'s business.
//!
//! Deduplication (`dedup/`) shares between heads that hosts write. It says besides what the target has and where the source has it:
//! whatever a host has written there since is left alone.
//!
//! [`Allocator::release`]: crate::allocator::Allocator::release

use std::collections::BTreeSet;
use std::sync::Arc;

use farside_format::fingerprint::BLOCKS_MAX;
use farside_format::journal::{MAP_BLOCKS_MAX, Record};
use farside_format::owner_counts::PLACES_PER_BLOCK;
use farside_format::{Fingerprint, Pointer};

use crate::delta::{self, ChangeEffects};
use crate::error::{Result, StoreError};
use crate::handle::VersionHandle;
use crate::io::{PIECE_BLOCKS, account, check_writable, run_length, stripe_of};
use crate::owner_counts::table_cost;
use crate::pool::{Pool, State};
use crate::space::{self, Asker, SpaceClass};
use crate::staged::StagedVersion;

/// A block whose content lies at two places: what it is mapped to, and what it is to be mapped to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    pub(crate) given_up: Pointer,
    pub(crate) kept: Pointer,
}

/// How far a share came.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Shared {
    /// Blocks shared, from the first on.
    pub(crate) count: usize,
    /// Of those, whose former places a snapshot has too: they do not come free.
    pub(crate) held: usize,
    /// Whether it ended where a block has as many owners as it may have.
    pub(crate) is_at_limit: bool,
}

impl StagedVersion {
    /// Maps the blocks from block `position` on to where version `from` of the same pool has those from block
    /// `from_position` on: one for each fingerprint of `expected`. Any volume's version will do; holes become holes. It is
    /// durable after the next [`StagedVersion::checkpoint`].
    ///
    /// The caller has read these blocks from `from` since it opened it: what is damaged is to be found before it is shared.
    ///
    /// Answers how many blocks, from the first on, this version has now. They are fewer than asked for where `from` holds
    /// something else by now, was deleted, or where a block has as many owners as one may have: the caller copies that
    /// block, and goes on behind it.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if the pool has no room for the consequences, [`StoreError::Invalid`] if the blocks do not lie
    /// inside the staged version or the version is another pool's, [`StoreError::Refused`] if the staged version is one no
    /// more. Blocks before the one that failed may be mapped then.
    pub fn share(
        &self,
        position: u64,
        from: &VersionHandle,
        from_position: u64,
        expected: &[Fingerprint],
    ) -> Result<u64> {
        if !Arc::ptr_eq(&self.pool, &from.pool) {
            return Err(StoreError::Invalid("blocks are shared within one pool only".into()));
        }
        self.pool.share_blocks(self.version, position, (from.version, from_position), expected)
    }
}

impl Pool {
    /// The same by versions' ids; the caller keeps the source from being reaped, since it was read.
    pub(crate) fn share_blocks(
        &self,
        target: u64,
        position: u64,
        (source, from): (u64, u64),
        expected: &[Fingerprint],
    ) -> Result<u64> {
        let count = expected.len() as u64;
        let outside = |first: u64| first.checked_add(count).is_none_or(|end| end > BLOCKS_MAX);
        if outside(position) || outside(from) {
            return Err(StoreError::Invalid(format!("no volume has {count} blocks from {position} on")));
        }
        let mut done = 0;
        while done < expected.len() {
            // As long writes are: what a piece can cost is bounded, and it lies in one stripe.
            let at = position + done as u64;
            let take = ((PIECE_BLOCKS - at % PIECE_BLOCKS) as usize).min(expected.len() - done);
            let source = (source, from + done as u64);
            let shared = self.share_piece(target, at, source, &expected[done..done + take], None)?.count;
            done += shared;
            if shared < take {
                break;
            }
        }
        Ok(done as u64)
    }

    /// Maps blocks of a head to where another head, or itself elsewhere, has the same content; within one aligned MiB. It goes as far
    /// as both have there what is said of them. The caller has read and hashed what is kept.
    pub(crate) fn share_twins(
        &self,
        target: u64,
        first: u64,
        source: (u64, u64),
        twins: &[Twin],
    ) -> Result<Shared> {
        debug_assert!(first / PIECE_BLOCKS == (first + twins.len() as u64 - 1) / PIECE_BLOCKS);
        let expected: Vec<Fingerprint> = twins.iter().map(|twin| twin.kept.fingerprint).collect();
        self.share_piece(target, first, source, &expected, Some(twins))
    }

    fn share_piece(
        &self,
        target: u64,
        first: u64,
        source: (u64, u64),
        expected: &[Fingerprint],
        twins: Option<&[Twin]>,
    ) -> Result<Shared> {
        self.admit()?;
        let _stripe = self.stripes[stripe_of(target, first)].read();
        // Room for what the counts of these places can cost. Looking them up now also reads the nodes, so that the second
        // look, under the state lock, seldom waits for the device.
        let seen = {
            let _reading = self.readers.read();
            let view = {
                let state = self.locked();
                let Some(version) = live(&state, source.0) else { return Ok(Shared::default()) };
                state.view(version)
            };
            let mut seen = Vec::with_capacity(expected.len());
            view.lookup(&self.nodes, source.1, expected.len() as u64, &mut seen)?;
            if twins.is_some() {
                let view = {
                    let state = self.locked();
                    let Some(version) = live(&state, target) else { return Ok(Shared::default()) };
                    state.view(version)
                };
                view.lookup(&self.nodes, first, expected.len() as u64, &mut Vec::new())?;
            }
            seen
        };
        let tables: BTreeSet<u64> = seen.iter().filter(|p| !p.is_hole()).map(table_block).collect();
        let cost = table_cost(tables.len() as u64, self.pool_blocks());
        let range = || vec![(first, expected.len() as u64)];
        let data = seen.iter().filter(|p| !p.is_hole()).count() as u64;
        self.seek_quota(target, data, range)?;
        let asker = Asker { class: SpaceClass::Staging, version: target };
        let reservation = self.reserve_with_table(cost, asker)?;
        let _reading = self.readers.read();
        let mut guard = self.locked();
        let state = &mut *guard;
        let found = check_writable(state, target, first, expected.len() as u64)
            .and_then(|()| self.shareable(state, source, expected))
            .and_then(|pointers| self.still_twins(state, target, first, pointers, twins))
            .and_then(|pointers| Ok((self.charge(state, target, data, range)?, pointers)));
        let (charge, mut pointers) = match found {
            Ok(found) => found,
            Err(error) => {
                space::release(state, reservation);
                return Err(error);
            }
        };
        // A replay goes record by record. Where a version shares with itself, what one record replaces may be what the
        // next one shares, and nobody else's: so one record at a time, and the next look finds what is left.
        if target == source.0 && !pointers.is_empty() {
            pointers.truncate(run_length(&pointers).min(MAP_BLOCKS_MAX));
        }
        // Counts first, so that what the mapping replaces may be these very places.
        let owners = &mut state.allocator.owners;
        let raise = |p: &&Pointer| {
            p.is_hole() || (tables.contains(&table_block(p)) && owners.raise_within_limits(p.place))
        };
        let raised = pointers.iter().take_while(raise).count();
        let is_at_limit = raised < pointers.len();
        pointers.truncate(raised);
        if pointers.is_empty() {
            space::release(state, reservation);
            return Ok(Shared { is_at_limit, ..Shared::default() });
        }
        let held = match twins {
            Some(twins) => self.held(state, target, first, &twins[..raised])?,
            None => 0,
        };
        let birth = state.epoch;
        let mut at = 0;
        while at < pointers.len() {
            let run = run_length(&pointers[at..]).min(MAP_BLOCKS_MAX);
            let piece = &mut pointers[at..at + run];
            let (version, block) = (target, first + at as u64);
            let record = if piece[0].is_hole() {
                Record::Unmap { version, birth, block, count: run as u64 }
            } else {
                piece.iter_mut().for_each(|pointer| pointer.birth = birth);
                let fingerprints = piece.iter().map(|p| p.fingerprint).collect();
                state.versions.owns(target, run as u64);
                Record::Share { version, birth, block, place: piece[0].place, fingerprints }
            };
            state.append(&record);
            at += run;
        }
        let mut effects = ChangeEffects::default();
        let entry = state.versions.version_mut(target)?;
        let level = entry.level();
        effects.new_inner += entry.old_part();
        delta::map(&mut entry.delta, level, first, &pointers, birth, &mut effects);
        account(&mut state.versions, &mut state.allocator, target, &effects)?;
        charge.note(state, target, pointers.len() as u64, pointers.len() == expected.len());
        reservation.consume(state, &effects);
        Ok(Shared { count: pointers.len(), held, is_at_limit })
    }

    /// Those that are twins still, from the first on: nobody has written there since. `pointers` is what the source has.
    fn still_twins(
        &self,
        state: &State,
        target: u64,
        first: u64,
        mut pointers: Vec<Pointer>,
        twins: Option<&[Twin]>,
    ) -> Result<Vec<Pointer>> {
        let (Some(twins), false) = (twins, pointers.is_empty()) else { return Ok(pointers) };
        let mut has = Vec::with_capacity(pointers.len());
        let version = state.versions.version(target)?;
        state.view(version).lookup(&self.nodes, first, pointers.len() as u64, &mut has)?;
        let is_same = |a: &Pointer, b: &Pointer| a.place == b.place && a.fingerprint == b.fingerprint;
        let both = pointers.iter().zip(&has).zip(twins);
        let count = both
            .take_while(|((kept, has), twin)| is_same(kept, &twin.kept) && is_same(has, &twin.given_up))
            .count();
        pointers.truncate(count);
        Ok(pointers)
    }

    /// How many of the places given up an ancestor holds.
    fn held(&self, state: &State, target: u64, first: u64, twins: &[Twin]) -> Result<usize> {
        let holder = state.versions.holder_of(state.versions.version(target)?);
        let is_held = |(block, twin): &(u64, &Twin)| twin.given_up.birth <= holder.at_block(*block);
        Ok((first..).zip(twins).filter(is_held).count())
    }

    /// Where the source has what is expected of it, from the first block on, as of this moment.
    fn shareable(
        &self,
        state: &State,
        (source, from): (u64, u64),
        expected: &[Fingerprint],
    ) -> Result<Vec<Pointer>> {
        let mut pointers = Vec::with_capacity(expected.len());
        if let Some(version) = live(state, source) {
            state.view(version).lookup(&self.nodes, from, expected.len() as u64, &mut pointers)?;
        }
        let same = |(found, expected): &(&Pointer, &Fingerprint)| {
            found.fingerprint == **expected && !found.is_lost()
        };
        let count = pointers.iter().zip(expected).take_while(same).count();
        pointers.truncate(count);
        Ok(pointers)
    }
}

/// A version that nobody has deleted: what a deleted one still maps may be reaped.
fn live(state: &State, version: u64) -> Option<&crate::versions::VersionState> {
    state.versions.versions.get(&version).filter(|v| !v.deleted)
}

fn table_block(pointer: &Pointer) -> u64 {
    pointer.place.0 / PLACES_PER_BLOCK
}
