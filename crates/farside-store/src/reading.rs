//! Reading a version: where its blocks lie, in as few reads of the device as they lie in runs, all at the same time; each block is
//! verified before anybody sees it. What is in memory is read where the request arrives: no thread is woken for it.

use std::sync::atomic::Ordering;

use farside_format::{Fingerprint, Pointer};
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use crate::error::{Result, StoreError};
use crate::io::run_length;
use crate::nodes::NodeReader;
use crate::pool::Pool;
use crate::view::View;
use crate::write_behind::Way;

/// Blocks that are looked up and read in one go, so that a long read does not hold up a consistency point.
const READ_BLOCKS_MAX: usize = 256;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A run of blocks on the device, and which bytes of it are wanted.
struct Run<'a> {
    /// Number of the read that it is for.
    of: usize,
    block: u64,
    pointers: Vec<Pointer>,
    /// Not of the first block: its bytes before these.
    skipped: usize,
    target: &'a mut [u8],
    /// Whole blocks, where the target is none.
    aside: Option<BlockBuffer>,
}

impl Run<'_> {
    fn buffer(&mut self) -> (u64, &mut [u8]) {
        let buffer = match &mut self.aside {
            Some(aside) => &mut aside[..],
            None => &mut *self.target,
        };
        (self.pointers[0].place.0 * BLOCK, buffer)
    }

    fn bytes(&self) -> &[u8] {
        self.aside.as_deref().unwrap_or(self.target)
    }

    fn matches(&self) -> bool {
        let blocks = self.bytes().chunks(BLOCK_BYTES);
        blocks.zip(&self.pointers).all(|(bytes, pointer)| Fingerprint::of_block(bytes) == pointer.fingerprint)
    }

    /// What was verified goes where it is wanted.
    fn deliver(&mut self) {
        if let Some(aside) = &self.aside {
            self.target.copy_from_slice(&aside[self.skipped..self.skipped + self.target.len()]);
        }
    }
}

impl Pool {
    /// Reads any range of a version for somebody outside, verified. Bytes past its end are zeros. After an error the buffer has
    /// whatever the device had.
    pub(crate) fn read(&self, version: u64, offset: u64, buffer: &mut [u8], way: Way) -> Result<()> {
        self.counters.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let pieces = (0..)
            .step_by(READ_BLOCKS_MAX * BLOCK_BYTES)
            .zip(buffer.chunks_mut(READ_BLOCKS_MAX * BLOCK_BYTES));
        for (at, piece) in pieces {
            self.read_pieces(version, &mut [(offset + at, piece)], way).pop().expect("one for one")?;
        }
        Ok(())
    }

    /// One read of at most a MiB, of the pool's own accord: it does not count as read.
    pub(crate) fn read_piece(&self, version: u64, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_pieces(version, &mut [(offset, buffer)], Way::Direct).pop().expect("one for one")
    }

    /// Several reads, (offset, buffer) each, at the same time; what became of each. All together at most a MiB.
    pub(crate) fn read_joined(
        &self,
        version: u64,
        reads: &mut [(u64, &mut [u8])],
        way: Way,
    ) -> Vec<Result<()>> {
        let bytes: usize = reads.iter().map(|(_, buffer)| buffer.len()).sum();
        self.counters.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.read_pieces(version, reads, way)
    }

    /// Those reads that wait for nobody, since map and data are in memory, verified; which ones were done. All together at most a MiB.
    pub(crate) fn read_remembered(&self, version: u64, reads: &mut [(u64, &mut [u8])]) -> Vec<bool> {
        let mut done = vec![false; reads.len()];
        let Some(_reading) = self.readers.try_read() else { return done };
        let Ok(view) = self.view_of(version) else { return done };
        let nodes = self.nodes.in_memory_only();
        let mut runs = Vec::with_capacity(reads.len());
        for (of, (offset, buffer)) in reads.iter_mut().enumerate() {
            let before = runs.len();
            done[of] = self.look_up((version, &view, &nodes), of, *offset, buffer, &mut runs).is_ok();
            if !done[of] {
                runs.truncate(before);
            }
        }
        let mut buffers: Vec<(u64, &mut [u8])> = runs.iter_mut().map(Run::buffer).collect();
        let filled = self.behind.read_remembered(&mut buffers);
        for (run, filled) in runs.iter_mut().zip(filled) {
            // What does not match may be old: whoever reads it anew finds out.
            done[run.of] &= filled && run.matches();
            if done[run.of] {
                run.deliver();
            }
        }
        let bytes =
            reads.iter().zip(&done).filter(|(_, done)| **done).map(|((_, buffer), _)| buffer.len() as u64);
        self.counters.read_bytes.fetch_add(bytes.sum(), Ordering::Relaxed);
        done
    }

    pub(crate) fn read_pieces(
        &self,
        version: u64,
        reads: &mut [(u64, &mut [u8])],
        way: Way,
    ) -> Vec<Result<()>> {
        let _reading = self.readers.read();
        let view = self.view_of(version);
        let Ok(view) = view else {
            return reads.iter().map(|_| self.view_of(version).map(|_| ())).collect();
        };
        let mut runs = Vec::with_capacity(reads.len());
        let mut outcomes: Vec<Result<()>> = reads
            .iter_mut()
            .enumerate()
            .map(|(of, (offset, buffer))| {
                self.look_up((version, &view, &self.nodes), of, *offset, buffer, &mut runs)
            })
            .collect();
        let mut buffers: Vec<(u64, &mut [u8])> = runs.iter_mut().map(Run::buffer).collect();
        let read = self.behind.read_many(&mut buffers, way);
        for (run, mut read) in runs.iter_mut().zip(read) {
            let outcome = &mut outcomes[run.of];
            if outcome.is_err() {
                continue;
            }
            // Memory may have what was there before, or may have lost a bit; only the medium itself is called damaged.
            if way == Way::Remembering && !(read.is_ok() && run.matches()) {
                let (offset, buffer) = run.buffer();
                read = self.behind.read_at(offset, buffer);
            } else if way == Way::Remembering {
                run.deliver();
                continue;
            }
            *outcome = read.map_err(StoreError::from).and_then(|()| self.finish(version, run));
        }
        outcomes
    }

    fn view_of(&self, version: u64) -> Result<View> {
        let state = self.locked();
        state.versions.version(version).map(|found| state.view(found))
    }

    /// Fills what is a hole, and adds the runs that are not.
    fn look_up<'a>(
        &self,
        (version, view, nodes): (u64, &View, &NodeReader),
        of: usize,
        offset: u64,
        buffer: &'a mut [u8],
        runs: &mut Vec<Run<'a>>,
    ) -> Result<()> {
        let end = offset + buffer.len() as u64;
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let inside = view.blocks().clamp(first, last);
        let mut pointers = Vec::with_capacity((last - first) as usize);
        view.lookup(nodes, first, inside - first, &mut pointers)?;
        pointers.resize((last - first) as usize, Pointer::HOLE);
        let (mut rest, mut at) = (buffer, 0);
        while at < pointers.len() {
            let block = first + at as u64;
            let pointer = pointers[at];
            let count = if pointer.is_lost() {
                let count = pointers[at..].iter().take_while(|p| p.is_lost()).count();
                return Err(self.quarantined_error(version, block, count as u64));
            } else {
                run_length(&pointers[at..])
            };
            let skipped = offset.saturating_sub(block * BLOCK) as usize;
            let length = (count * BLOCK_BYTES - skipped).min(rest.len());
            let (target, others) = rest.split_at_mut(length);
            rest = others;
            if pointer.is_hole() {
                target.fill(0);
            } else {
                let is_whole = length == count * BLOCK_BYTES;
                let aside = (!is_whole).then(|| BlockBuffer::zeroed(count));
                let pointers = pointers[at..at + count].to_vec();
                runs.push(Run { of, block, pointers, skipped, target, aside });
            }
            at += count;
        }
        Ok(())
    }

    fn finish(&self, version: u64, run: &mut Run<'_>) -> Result<()> {
        let blocks = run.bytes().chunks(BLOCK_BYTES);
        for ((bytes, pointer), block) in blocks.zip(&run.pointers).zip(run.block..) {
            self.verify(version, block, pointer, bytes)?;
        }
        run.deliver();
        Ok(())
    }
}
