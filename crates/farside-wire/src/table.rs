//! The table of a frame: its runs and the ranges of its prefix, as unsigned LEB128 numbers in shortest form.
//!
//! ```text
//! run    = gap, blocks << 2 | kind          gap: blocks between the end of the run before (or 0) and this one;
//!                                           kind: 0 data, 1 hole,
//!        | gap, blocks << 2 | kind, zigzag(step)
//!                                           kind: 2 repeat of the base, 3 repeat of the incremental;
//!                                           step: from the end of what was repeated before of the same origin (or 0)
//! range  = zigzag(step) << 2 | code, blocks
//!                                           code: 0 base, 1 incremental; step: from the end of the range of the same
//!                                           origin before (or 0), in blocks;
//!                                           code 2: the base at the places of the frame's own data blocks, counted in
//!                                           these; step: from the end of the range of this code before (or 0)
//!        | zigzag(step) << 2 | 3, blocks, number
//!                                           from version 3 on: the version of another volume with this number; step: from
//!                                           the end of the range of that number before (or 0), in blocks
//! table  = run * runs, range * prefix ranges
//! ```
//!
//! Code 2 is why scattered change costs no list of the places of the old blocks beside that of the new. Runs ascend and
//! never overlap; numbers in any but their shortest form are refused.

use farside_format::fingerprint::BLOCKS_MAX;

use crate::error::FrameError;
use crate::layout::{FRAME_VERSION_OLDEST, Header, OTHERS_MAX};
use crate::prefix::Region;
use crate::run::{Origin, Run, RunKind};
use crate::varint::{self, put};

const SAME_PLACE: u64 = 2;
const OTHER: u64 = 3;

/// The code of a range, and of a repeat less two; none for another volume, which no block repeats.
fn own_code(origin: Origin) -> Option<usize> {
    match origin {
        Origin::Base => Some(0),
        Origin::Incremental => Some(1),
        Origin::Other(_) => None,
    }
}

/// Appends the table; answers how many ranges stand in it (consecutive same places become one). That no run repeats another
/// volume, and no number is beyond its limit, the caller has checked.
pub(crate) fn write(runs: &[Run], ranges: &[Region], out: &mut Vec<u8>) -> usize {
    let (mut end, mut repeated) = (0, [0; 2]);
    for run in runs {
        put(out, run.position - end);
        match run.kind {
            RunKind::Data => put(out, run.blocks << 2),
            RunKind::Hole => put(out, run.blocks << 2 | 1),
            RunKind::Repeat { origin, from } => {
                let code = own_code(origin).unwrap_or_default();
                put(out, run.blocks << 2 | 2 | code as u64);
                put(out, zigzag(from.wrapping_sub(repeated[code]) as i64));
                repeated[code] = from + run.blocks;
            }
        }
        end = run.end();
    }
    let places = Places::new(runs);
    let (mut ends, mut written) = (Ends::default(), 0);
    let mut put_range = |code: u64, number: u8, position: u64, blocks: u64| {
        let end = ends.of(code, number);
        put(out, zigzag(position.wrapping_sub(*end) as i64) << 2 | code);
        put(out, blocks);
        if code == OTHER {
            put(out, number.into());
        }
        *end = position + blocks;
        written += 1;
    };
    // Data blocks by number, a range of which is under way.
    let mut same: Option<(u64, u64)> = None;
    for range in ranges {
        let number = (range.origin == Origin::Base).then(|| places.number(range)).flatten();
        match (&mut same, number) {
            (Some((first, blocks)), Some(number)) if *first + *blocks == number => {
                *blocks += u64::from(range.blocks);
                continue;
            }
            _ => {}
        }
        if let Some((first, blocks)) = same.take() {
            put_range(SAME_PLACE, 0, first, blocks);
        }
        match (number, range.origin) {
            (Some(number), _) => same = Some((number, range.blocks.into())),
            (None, Origin::Base) => put_range(0, 0, range.position, range.blocks.into()),
            (None, Origin::Incremental) => put_range(1, 0, range.position, range.blocks.into()),
            (None, Origin::Other(other)) => put_range(OTHER, other, range.position, range.blocks.into()),
        }
    }
    if let Some((first, blocks)) = same {
        put_range(SAME_PLACE, 0, first, blocks);
    }
    written
}

/// Where the range before ended, by code and, for other volumes, number.
struct Ends {
    own: [u64; 3],
    others: [u64; OTHERS_MAX as usize],
}

impl Default for Ends {
    fn default() -> Self {
        Ends { own: [0; 3], others: [0; OTHERS_MAX as usize] }
    }
}

impl Ends {
    /// Of a code below 4 and a number below [`OTHERS_MAX`].
    fn of(&mut self, code: u64, number: u8) -> &mut u64 {
        match code {
            OTHER => &mut self.others[usize::from(number)],
            code => &mut self.own[code as usize],
        }
    }
}

/// Data blocks of a frame by number and by place.
struct Places {
    /// Number of the first block, and the run.
    runs: Vec<(u64, Run)>,
}

impl Places {
    fn new(runs: &[Run]) -> Places {
        let mut next = 0;
        let data = runs.iter().filter(|r| r.kind == RunKind::Data);
        let numbered = data.map(|run| {
            let first = next;
            next += run.blocks;
            (first, *run)
        });
        Places { runs: numbered.collect() }
    }

    /// The number of the first block of `range`, if all of it lies in one data run.
    fn number(&self, range: &Region) -> Option<u64> {
        let at = self.runs.partition_point(|(_, run)| run.end() <= range.position);
        let (first, run) = self.runs.get(at)?;
        (run.position <= range.position && range.end() <= run.end())
            .then(|| first + (range.position - run.position))
    }

    /// Where `blocks` data blocks from number `first` on lie.
    fn ranges(&self, first: u64, blocks: u64, out: &mut Vec<Region>) -> Result<(), FrameError> {
        let end = first.saturating_add(blocks);
        let mut at = first;
        let from = self.runs.partition_point(|(number, run)| number + run.blocks <= first);
        for (number, run) in &self.runs[from..] {
            if at == end {
                break;
            }
            let skip = at - number;
            // Bounded by the header's count of prefix blocks, which has 32 bits.
            let count = (run.blocks - skip).min(end - at);
            let (position, blocks) = (run.position + skip, count as u32);
            out.push(Region { origin: Origin::Base, position, blocks });
            at += count;
        }
        if at == end {
            Ok(())
        } else {
            Err(FrameError::Malformed("a prefix range names data blocks that the frame has not"))
        }
    }
}

/// Reads the table that `header` (already within its limits) describes.
pub(crate) fn read(header: &Header, table: &[u8]) -> Result<(Vec<Run>, Vec<Region>), FrameError> {
    let mut input = table;
    let runs = read_runs(header, &mut input)?;
    let ranges = read_ranges(header, &runs, &mut input)?;
    if !input.is_empty() {
        return Err(FrameError::Malformed("bytes after the end of the table"));
    }
    Ok((runs, ranges))
}

/// Bytes of the table that say what is repeated.
pub(crate) fn repeat_bytes(header: &Header, table: &[u8]) -> Result<u64, FrameError> {
    let (mut input, mut bytes) = (table, 0);
    for _ in 0..header.runs.get() {
        let before = input.len();
        take(&mut input)?;
        if take(&mut input)? & 2 != 0 {
            take(&mut input)?;
            bytes += (before - input.len()) as u64;
        }
    }
    Ok(bytes)
}

fn read_runs(header: &Header, input: &mut &[u8]) -> Result<Vec<Run>, FrameError> {
    let mut runs = Vec::with_capacity(header.runs.get() as usize);
    let (mut end, mut data_blocks, mut repeat_blocks, mut repeated) = (0u64, 0u64, 0u64, [0u64; 2]);
    for _ in 0..header.runs.get() {
        let gap = take(input)?;
        let tagged = take(input)?;
        let (position, blocks) = (end.saturating_add(gap), tagged >> 2);
        if blocks == 0 || position.saturating_add(blocks) > BLOCKS_MAX {
            return Err(FrameError::Malformed("a run is empty or lies outside any volume"));
        }
        let kind = match tagged & 3 {
            0 => {
                data_blocks += blocks;
                RunKind::Data
            }
            1 => RunKind::Hole,
            code => {
                repeat_blocks += blocks;
                let origin = if code == 2 { Origin::Base } else { Origin::Incremental };
                let before = &mut repeated[code as usize - 2];
                let from = before
                    .checked_add_signed(unzigzag(take(input)?))
                    .filter(|from| from.saturating_add(blocks) <= BLOCKS_MAX)
                    .ok_or(FrameError::Malformed("a repeat lies outside any volume"))?;
                *before = from + blocks;
                RunKind::Repeat { origin, from }
            }
        };
        let run = Run { position, blocks, kind };
        end = run.end();
        runs.push(run);
    }
    if runs.is_empty() {
        return Err(FrameError::Malformed("a frame without runs"));
    }
    if data_blocks != u64::from(header.data_blocks.get()) {
        return Err(FrameError::Malformed("the runs do not add up to the data blocks"));
    }
    if repeat_blocks != u64::from(header.repeat_blocks.get()) {
        return Err(FrameError::Malformed("the runs do not add up to the repeat blocks"));
    }
    Ok(runs)
}

fn read_ranges(header: &Header, runs: &[Run], input: &mut &[u8]) -> Result<Vec<Region>, FrameError> {
    let places = Places::new(runs);
    let mut ranges = Vec::with_capacity(header.prefix_ranges.get() as usize);
    let (mut ends, mut prefix_blocks) = (Ends::default(), 0u64);
    for _ in 0..header.prefix_ranges.get() {
        let tagged = take(input)?;
        let code = tagged & 3;
        let blocks = take(input)?;
        let number = match code {
            OTHER if header.version == FRAME_VERSION_OLDEST => {
                return Err(FrameError::Malformed("a prefix range of a kind that there is not"));
            }
            OTHER => u8::try_from(take(input)?)
                .ok()
                .filter(|number| *number < OTHERS_MAX)
                .ok_or(FrameError::Malformed("a prefix range of another volume that there cannot be"))?,
            _ => 0,
        };
        let end = ends.of(code, number);
        let position = end
            .checked_add_signed(unzigzag(tagged >> 2))
            .filter(|p| *p < BLOCKS_MAX)
            .ok_or(FrameError::Malformed("a prefix range lies outside any volume"))?;
        prefix_blocks = prefix_blocks.saturating_add(blocks);
        if blocks == 0 || prefix_blocks > u64::from(header.prefix_blocks.get()) {
            return Err(FrameError::Malformed("the prefix ranges do not add up to the prefix blocks"));
        }
        *end = position + blocks;
        let origin = match code {
            0 => Origin::Base,
            1 => Origin::Incremental,
            SAME_PLACE => {
                places.ranges(position, blocks, &mut ranges)?;
                continue;
            }
            _ => Origin::Other(number),
        };
        // `blocks` is at most the header's 32-bit count here.
        ranges.push(Region { origin, position, blocks: blocks as u32 });
    }
    if prefix_blocks != u64::from(header.prefix_blocks.get()) {
        return Err(FrameError::Malformed("the prefix ranges do not add up to the prefix blocks"));
    }
    Ok(ranges)
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
