//! Reading a version: where its blocks lie, in as few reads of the device as they lie in runs, all at the same time; each block is
//! verified before anybody sees it.

use std::sync::atomic::Ordering;

use farside_format::Pointer;
use farside_platform::{BLOCK_BYTES, BlockBuffer};

use crate::error::{Result, StoreError};
use crate::io::run_length;
use crate::pool::Pool;
use crate::view::View;

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
}

impl Pool {
    /// Reads any range of a version for somebody outside, verified. Bytes past its end are zeros. After an error the buffer has
    /// whatever the device had.
    pub(crate) fn read(&self, version: u64, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.counters.read_bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        let pieces = (0..)
            .step_by(READ_BLOCKS_MAX * BLOCK_BYTES)
            .zip(buffer.chunks_mut(READ_BLOCKS_MAX * BLOCK_BYTES));
        for (at, piece) in pieces {
            self.read_piece(version, offset + at, piece)?;
        }
        Ok(())
    }

    /// Several reads, (offset, buffer) each, at the same time; what became of each. All together at most a MiB.
    pub(crate) fn read_joined(&self, version: u64, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let bytes: usize = reads.iter().map(|(_, buffer)| buffer.len()).sum();
        self.counters.read_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.read_pieces(version, reads)
    }

    /// One read of at most a MiB, of the pool's own accord: it does not count as read.
    pub(crate) fn read_piece(&self, version: u64, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.read_pieces(version, &mut [(offset, buffer)]).pop().expect("one for one")
    }

    pub(crate) fn read_pieces(&self, version: u64, reads: &mut [(u64, &mut [u8])]) -> Vec<Result<()>> {
        let _reading = self.readers.read();
        let view = || {
            let state = self.locked();
            state.versions.version(version).map(|found| state.view(found))
        };
        let Ok(view) = view() else { return reads.iter().map(|_| view().map(|_| ())).collect() };
        let mut runs = Vec::with_capacity(reads.len());
        let mut outcomes: Vec<Result<()>> = reads
            .iter_mut()
            .enumerate()
            .map(|(of, (offset, buffer))| self.look_up(version, &view, of, *offset, buffer, &mut runs))
            .collect();
        let mut buffers: Vec<(u64, &mut [u8])> = runs.iter_mut().map(Run::buffer).collect();
        let read = self.behind.read_many(&mut buffers);
        for (run, read) in runs.iter_mut().zip(read) {
            let outcome = &mut outcomes[run.of];
            if outcome.is_ok() {
                *outcome = read.map_err(StoreError::from).and_then(|()| self.finish(version, run));
            }
        }
        outcomes
    }

    /// Fills what is a hole, and adds the runs that are not.
    fn look_up<'a>(
        &self,
        version: u64,
        view: &View,
        of: usize,
        offset: u64,
        buffer: &'a mut [u8],
        runs: &mut Vec<Run<'a>>,
    ) -> Result<()> {
        let end = offset + buffer.len() as u64;
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let inside = view.blocks().clamp(first, last);
        let mut pointers = Vec::with_capacity((last - first) as usize);
        view.lookup(&self.nodes, first, inside - first, &mut pointers)?;
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
        let blocks = run.aside.as_deref().unwrap_or(run.target).chunks(BLOCK_BYTES);
        for ((bytes, pointer), block) in blocks.zip(&run.pointers).zip(run.block..) {
            self.verify(version, block, pointer, bytes)?;
        }
        if let Some(aside) = &run.aside {
            run.target.copy_from_slice(&aside[run.skipped..run.skipped + run.target.len()]);
        }
        Ok(())
    }
}
