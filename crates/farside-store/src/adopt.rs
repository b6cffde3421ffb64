//! What a transfer wants and the pool holds already: found by short fingerprints, taken over without the link.
//!
//! The index (`fingerprint_index.rs`) says where to look; whom it may answer, `learning.rs`. It is only a hint: the version it
//! leads to is held open (S5) while its mappings are looked up and compared, its blocks are read and hashed, and only bytes
//! that have the fingerprint become part of the staged version: within a pool by sharing the places they were read from
//! (`sharing.rs`), so that no data is written; from another pool, or where a block has all the owners it may have, by a staged
//! write like any other. So whatever happened to the other version since (overwritten, deleted, reaped, another volume's by
//! now), the staged one gets the wanted content or nothing. Damage is no error of the transfer: what cannot be read here is not
//! held, and the link brings it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use farside_format::fingerprint::{FAN_OUT, span};
use farside_format::{Fingerprint, Pointer};
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use crate::error::{Result, StoreError};
use crate::fingerprint_index::{LeafAt, short};
use crate::handle::Walked;
use crate::io::run_length;
use crate::known_data::KnownDataScope;
use crate::near::{NearBlock, NearLeaves};
use crate::pool::Pool;
use crate::space::SpaceClass;
use crate::staged::{StagedVersion, find_staged};
use crate::versions::blocks;

/// Most entries of one call: 64 KiB of memory, and 2 GiB of data if all are leaves.
pub const WANTED_MAX: usize = 4096;
/// Entries looked up before what they named is taken over: 256 KiB of fingerprints at most.
const ENTRIES_PER_RUN: usize = 128;
/// Blocks read and written at once: 1 MiB.
const BLOCKS_PER_RUN: usize = 256;

/// Content that a staged version shall have, named by a part of its fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// 0: one block; 1: a leaf node, 128 blocks.
    pub level: u8,
    /// Where, in spans of that level: the number of the block, or of the leaf.
    pub position: u64,
    /// The fingerprint's first 8 bytes, big endian.
    pub short: u64,
}

/// Where wanted content lies.
struct Found {
    /// Which of the run's entries it is for.
    entry: usize,
    volume: u64,
    source: Arc<Walked>,
    from: u64,
    to: u64,
    /// One for each block.
    fingerprints: Vec<Fingerprint>,
    answer: Fingerprint,
}

impl StagedVersion {
    /// For each of `wanted`: if the pool finds that content in what came from `peer`, the staged version has it at that
    /// position when this returns, from bytes that were read and hashed, and its full fingerprint is answered. `None`: not
    /// known, and nothing was changed there.
    ///
    /// # Errors
    /// More than [`WANTED_MAX`], another level than 0 or 1, or a position past the end; no room, as with any staged write:
    /// what was taken over before stays.
    pub fn adopt(&self, peer: &[u8; 32], wanted: &[Wanted]) -> Result<Vec<Option<Fingerprint>>> {
        self.adopt_from(&self.pool, peer, wanted)
    }

    /// The same from what another pool has of the peer.
    ///
    /// # Errors
    /// As [`StagedVersion::adopt`].
    pub fn adopt_from(
        &self,
        pool: &Arc<Pool>,
        peer: &[u8; 32],
        wanted: &[Wanted],
    ) -> Result<Vec<Option<Fingerprint>>> {
        let end = blocks(find_staged(&self.pool.locked(), self.version)?.size_bytes);
        check_wanted(wanted, end)?;
        let mut search = Search { pool, scope: pool.scope(peer), versions: HashMap::new() };
        if pool.learn() {
            pool.wake.signal();
        }
        let mut answers = vec![None; wanted.len()];
        let mut buffer = BlockBuffer::zeroed(0);
        for (run, answers) in wanted.chunks(ENTRIES_PER_RUN).zip(answers.chunks_mut(ENTRIES_PER_RUN)) {
            let found = self.near.with(pool.id, |near| search.run(run, near));
            if buffer.is_empty() && !found.is_empty() {
                buffer = BlockBuffer::zeroed(BLOCKS_PER_RUN);
            }
            let mut rest = &found[..];
            while !rest.is_empty() {
                let (joined, behind) = rest.split_at(joined(rest));
                self.take_over(&search, joined, end, &mut buffer, answers)?;
                rest = behind;
            }
        }
        Ok(answers)
    }

    /// Reads what lies in one piece there and shall lie in one piece here, and writes what is as it should be.
    fn take_over(
        &self,
        search: &Search<'_>,
        found: &[Found],
        end: u64,
        buffer: &mut BlockBuffer,
        answers: &mut [Option<Fingerprint>],
    ) -> Result<()> {
        let Found { source, from, to, volume, .. } = &found[0];
        let expected: Vec<Fingerprint> = found.iter().flat_map(|f| f.fingerprints.iter().copied()).collect();
        let is_read = search.read(source, *volume, *from, &expected, buffer);
        let is_of_this_pool = Arc::ptr_eq(search.pool, &self.pool);
        let is_here_already = is_of_this_pool && source.version == self.version && from == to;
        let mut good = Vec::with_capacity(found.len());
        let mut at = 0;
        for f in found {
            let piece = at..at + f.fingerprints.len();
            at = piece.end;
            // Past the end there is nothing but holes.
            let inside = end.saturating_sub(f.to).min(piece.len() as u64) as usize;
            let fits = f.fingerprints[inside..].iter().all(|f| f.is_hole());
            if fits && is_read[piece.clone()].iter().all(|is_read| *is_read) {
                answers[f.entry] = Some(f.answer);
                good.push((f.to, piece.start, inside));
            }
        }
        if is_here_already {
            return Ok(());
        }
        let shared_from = is_of_this_pool.then_some(source);
        for together in good.chunk_by(|a, b| a.0 + a.2 as u64 == b.0) {
            let (to, begin, _) = together[0];
            let count: usize = together.iter().map(|(_, _, inside)| inside).sum();
            let bytes = &buffer[begin * BLOCK_BYTES..(begin + count) * BLOCK_BYTES];
            let shared_from = shared_from.map(|source| (source.version, from + begin as u64));
            self.put(to, shared_from, &expected[begin..begin + count], bytes)?;
        }
        Ok(())
    }

    /// Maps blocks from block `to` on to the places where a version of this pool has them; writes what cannot be shared:
    /// what lies in another pool, has as many owners as a block may have, or went from there since it was read.
    fn put(
        &self,
        to: u64,
        shared_from: Option<(u64, u64)>,
        fingerprints: &[Fingerprint],
        bytes: &[u8],
    ) -> Result<()> {
        let mut done = 0;
        // Doubled each time in a row that nothing could be shared.
        let mut copied_at_once = 1;
        while done < fingerprints.len() {
            let at = to + done as u64;
            let mut copied = fingerprints.len() - done;
            if let Some((version, from)) = shared_from {
                let source = (version, from + done as u64);
                let shared = self.pool.share_blocks(self.version, at, source, &fingerprints[done..])?;
                if shared > 0 {
                    self.pool.known.staged(self.version, at, shared);
                    done += shared as usize;
                    copied_at_once = 1;
                    continue;
                }
                copied = copied.min(copied_at_once);
                copied_at_once *= 2;
            }
            let bytes = &bytes[done * BLOCK_BYTES..(done + copied) * BLOCK_BYTES];
            self.pool.write(self.version, at * BLOCK_BYTES as u64, bytes, SpaceClass::Staging)?;
            done += copied;
        }
        Ok(())
    }
}

/// How many from the first on lie in one piece on both sides and fit one run.
fn joined(found: &[Found]) -> usize {
    let mut count = found[0].fingerprints.len();
    let follows = |pair: &&[Found]| {
        let (a, b) = (&pair[0], &pair[1]);
        let length = a.fingerprints.len() as u64;
        count += b.fingerprints.len();
        Arc::ptr_eq(&a.source, &b.source)
            && a.from + length == b.from
            && a.to + length == b.to
            && count <= BLOCKS_PER_RUN
    };
    1 + found.windows(2).take_while(follows).count()
}

fn check_wanted(wanted: &[Wanted], end: u64) -> Result<()> {
    if wanted.len() > WANTED_MAX {
        return Err(StoreError::Invalid(format!(
            "{} entries are wanted at once; at most {WANTED_MAX}",
            wanted.len()
        )));
    }
    let outside = |w: &&Wanted| w.level > 1 || w.position >= end.div_ceil(span(w.level.min(1)));
    match wanted.iter().find(outside) {
        None => Ok(()),
        Some(Wanted { level, position, .. }) => Err(StoreError::Invalid(format!(
            "number {position} of level {level} is wanted: not a block or leaf of a staged version of {end} blocks"
        ))),
    }
}

/// A search in one pool.
struct Search<'a> {
    pool: &'a Arc<Pool>,
    scope: Arc<KnownDataScope>,
    /// Versions that hold a volume's part of the scope, held open until the search ends.
    versions: HashMap<u64, Vec<Arc<Walked>>>,
}

impl Search<'_> {
    fn run(&mut self, wanted: &[Wanted], near: &mut NearLeaves) -> Vec<Found> {
        let find = |(entry, wanted): (usize, &Wanted)| match wanted.level {
            0 => self.block(entry, wanted, near),
            _ => self.leaf(entry, wanted, near),
        };
        wanted.iter().enumerate().filter_map(find).collect()
    }

    /// A whole leaf. It and its neighbours are near from now on: what differs there differs by a few blocks perhaps.
    fn leaf(&mut self, entry: usize, wanted: &Wanted, near: &mut NearLeaves) -> Option<Found> {
        for at in self.scope.leaf(wanted.short) {
            for source in self.versions(at.volume) {
                let Some(fingerprints) = self.fingerprints(&source, at) else { continue };
                let answer = Fingerprint::of_node(1, &fingerprints);
                if short(answer) != wanted.short || answer.is_hole() {
                    continue;
                }
                self.enter_near(&source, at, &fingerprints, near);
                return Some(Found {
                    entry,
                    volume: at.volume,
                    source,
                    from: at.leaf * FAN_OUT as u64,
                    to: wanted.position * FAN_OUT as u64,
                    fingerprints: fingerprints.to_vec(),
                    answer,
                });
            }
            self.scope.leaf_is_stale(wanted.short, at);
        }
        None
    }

    fn block(&mut self, entry: usize, wanted: &Wanted, near: &mut NearLeaves) -> Option<Found> {
        if let Some(block) = near.block(wanted.short)
            && let Some(source) =
                self.versions(block.at.volume).into_iter().find(|v| v.version == block.version)
        {
            self.enter_neighbours(&source, block.at, near);
            return Some(found_block(entry, wanted, source, &block));
        }
        for at in self.scope.block(wanted.short) {
            for source in self.versions(at.volume) {
                let Some(fingerprints) = self.fingerprints(&source, at) else { continue };
                let is_wanted = |f: &Fingerprint| short(*f) == wanted.short && !f.is_hole();
                let Some(index) = fingerprints.iter().position(is_wanted) else { continue };
                self.enter_near(&source, at, &fingerprints, near);
                let fingerprint = fingerprints[index];
                let block = NearBlock { at, version: source.version, index, fingerprint };
                return Some(found_block(entry, wanted, source, &block));
            }
            self.scope.block_is_stale(wanted.short, at);
        }
        None
    }

    /// A leaf that was hit, and those on both sides.
    fn enter_near(
        &self,
        source: &Walked,
        at: LeafAt,
        fingerprints: &[Fingerprint; FAN_OUT],
        near: &mut NearLeaves,
    ) {
        near.enter(at, source.version, fingerprints);
        self.enter_neighbours(source, at, near);
    }

    /// Content that was moved in one piece goes on beyond the leaf.
    fn enter_neighbours(&self, source: &Walked, at: LeafAt, near: &mut NearLeaves) {
        for leaf in at.leaf.checked_sub(1).into_iter().chain([at.leaf + 1]) {
            let at = LeafAt { leaf, ..at };
            if !near.has(at)
                && let Some(fingerprints) = self.fingerprints(source, at)
            {
                near.enter(at, source.version, &fingerprints);
            }
        }
    }

    fn versions(&mut self, volume: u64) -> Vec<Arc<Walked>> {
        let open = || self.pool.versions_of(&self.scope, volume);
        self.versions.entry(volume).or_insert_with(open).clone()
    }

    /// The fingerprints of a leaf's blocks as a version has them now.
    fn fingerprints(&self, source: &Walked, at: LeafAt) -> Option<[Fingerprint; FAN_OUT]> {
        let _reading = self.pool.readers.read();
        let leaf = source.view().and_then(|view| view.leaf(&self.pool.nodes, at.leaf));
        match leaf {
            Ok(pointers) => Some(pointers.map(|p| p.fingerprint)),
            Err(error) => {
                self.pool.warn_unreadable(&self.scope, at.volume, &error);
                None
            }
        }
    }

    /// Reads blocks into the beginning of `buffer`; says of each whether it is there with the fingerprint expected.
    fn read(
        &self,
        source: &Walked,
        volume: u64,
        from: u64,
        expected: &[Fingerprint],
        buffer: &mut BlockBuffer,
    ) -> Vec<bool> {
        let _reading = self.pool.readers.read();
        let mut pointers = Vec::with_capacity(expected.len());
        let looked_up = source
            .view()
            .and_then(|view| view.lookup(&self.pool.nodes, from, expected.len() as u64, &mut pointers));
        if let Err(error) = looked_up {
            self.pool.warn_unreadable(&self.scope, volume, &error);
            return vec![false; expected.len()];
        }
        // What was written there since it was found is somebody else's now.
        let mut is_read: Vec<bool> =
            pointers.iter().zip(expected).map(|(p, expected)| p.fingerprint == *expected).collect();
        let mut at = 0;
        while at < pointers.len() {
            let alike = is_read[at..].iter().take_while(|is_read| **is_read).count();
            if alike == 0 {
                at += 1;
                continue;
            }
            let run = run_length(&pointers[at..at + alike]);
            let bytes = &mut buffer[at * BLOCK_BYTES..(at + run) * BLOCK_BYTES];
            if pointers[at].is_hole() {
                bytes.fill(0);
            } else {
                self.read_run(volume, &pointers[at..at + run], bytes, &mut is_read[at..at + run]);
            }
            at += run;
        }
        is_read
    }

    /// Reads consecutive places, and takes back what is not as it should be.
    fn read_run(&self, volume: u64, pointers: &[Pointer], bytes: &mut [u8], is_read: &mut [bool]) {
        let place = pointers[0].place.0;
        if let Err(error) = self.pool.behind.read_at(place * BLOCK_BYTES as u64, bytes) {
            self.pool.warn_unreadable(&self.scope, volume, &error.into());
            is_read.fill(false);
            return;
        }
        self.pool.counters.read_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        for ((bytes, pointer), is_read) in bytes.chunks(BLOCK_BYTES).zip(pointers).zip(is_read) {
            *is_read = Fingerprint::of_block(bytes) == pointer.fingerprint;
            if !*is_read {
                self.pool.counters.corrupt_blocks.fetch_add(1, Ordering::Relaxed);
                let place = pointer.place.0;
                let damaged = StoreError::Inconsistent(format!("the block at place {place} is damaged"));
                self.pool.warn_unreadable(&self.scope, volume, &damaged);
            }
        }
    }
}

fn found_block(entry: usize, wanted: &Wanted, source: Arc<Walked>, block: &NearBlock) -> Found {
    Found {
        entry,
        volume: block.at.volume,
        source,
        from: block.at.leaf * FAN_OUT as u64 + block.index as u64,
        to: wanted.position,
        fingerprints: vec![block.fingerprint],
        answer: block.fingerprint,
    }
}
