//! The table of a frame: its runs and the ranges of its prefix, as unsigned LEB128 numbers in shortest form.
//!
//! ```text
//! run    = gap, blocks << 1 | kind          gap: blocks between the end of the run before (or 0) and this one;
//!                                           kind: 0 data, 1 hole
//! range  = zigzag(step) << 1 | origin, blocks
//!                                           step: from the end of the range of the same origin before (or 0);
//!                                           origin: 0 base, 1 carried
//! table  = run * runs, range * prefix ranges
//! ```
//!
//! Runs ascend and never overlap; numbers in any but their shortest form are refused, so that one meaning has one
//! encoding.

use farside_format::fingerprint::BLOCKS_MAX;

use crate::error::FrameError;
use crate::layout::Header;
use crate::prefix::{PrefixOrigin, PrefixRange};
use crate::varint::{self, put};
use crate::{Run, RunKind};

pub(crate) fn write(runs: &[Run], ranges: &[PrefixRange], out: &mut Vec<u8>) {
    let mut end = 0;
    for run in runs {
        put(out, run.position - end);
        put(out, run.blocks << 1 | u64::from(run.kind == RunKind::Hole));
        end = run.end();
    }
    let mut ends = [0; 2];
    for range in ranges {
        let end = &mut ends[range.origin as usize];
        let step = range.position.wrapping_sub(*end) as i64;
        put(out, zigzag(step) << 1 | range.origin as u64);
        put(out, u64::from(range.blocks));
        *end = range.position + u64::from(range.blocks);
    }
}

/// Reads the table that `header` (already within its limits) describes.
pub(crate) fn read(header: &Header, table: &[u8]) -> Result<(Vec<Run>, Vec<PrefixRange>), FrameError> {
    let mut input = table;
    let mut runs = Vec::with_capacity(header.runs.get() as usize);
    let (mut end, mut data_blocks) = (0u64, 0u64);
    for _ in 0..header.runs.get() {
        let gap = take(&mut input)?;
        let tagged = take(&mut input)?;
        let kind = if tagged & 1 == 0 { RunKind::Data } else { RunKind::Hole };
        let run = Run { position: end.saturating_add(gap), blocks: tagged >> 1, kind };
        if run.blocks == 0 || run.end() > BLOCKS_MAX {
            return Err(FrameError::Malformed("a run is empty or lies outside any volume"));
        }
        if kind == RunKind::Data {
            data_blocks += run.blocks;
        }
        end = run.end();
        runs.push(run);
    }
    if data_blocks != u64::from(header.data_blocks.get()) {
        return Err(FrameError::Malformed("the runs do not add up to the data blocks"));
    }
    if runs.is_empty() {
        return Err(FrameError::Malformed("a frame without runs"));
    }
    let mut ranges = Vec::with_capacity(header.prefix_ranges.get() as usize);
    let (mut ends, mut prefix_blocks) = ([0u64; 2], 0u64);
    for _ in 0..header.prefix_ranges.get() {
        let tagged = take(&mut input)?;
        let origin = if tagged & 1 == 0 { PrefixOrigin::Base } else { PrefixOrigin::Carried };
        let end = &mut ends[origin as usize];
        let position = end
            .checked_add_signed(unzigzag(tagged >> 1))
            .filter(|p| *p < BLOCKS_MAX)
            .ok_or(FrameError::Malformed("a prefix range lies outside any volume"))?;
        let blocks = take(&mut input)?;
        prefix_blocks = prefix_blocks.saturating_add(blocks);
        if blocks == 0 || prefix_blocks > u64::from(header.prefix_blocks.get()) {
            return Err(FrameError::Malformed("the prefix ranges do not add up to the prefix blocks"));
        }
        *end = position + blocks;
        // `blocks` is at most the header's 32-bit count here.
        ranges.push(PrefixRange { origin, position, blocks: blocks as u32 });
    }
    if prefix_blocks != u64::from(header.prefix_blocks.get()) {
        return Err(FrameError::Malformed("the prefix ranges do not add up to the prefix blocks"));
    }
    if !input.is_empty() {
        return Err(FrameError::Malformed("bytes after the end of the table"));
    }
    Ok((runs, ranges))
}

fn zigzag(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}

fn unzigzag(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

fn take(input: &mut &[u8]) -> Result<u64, FrameError> {
    varint::take(input).map_err(FrameError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_both_signs_come_back() {
        for n in [0, 1, -1, 1 << 42, -(1 << 42)] {
            assert_eq!(unzigzag(zigzag(n)), n);
        }
    }
}
