//! What differs between two versions: as ranges of blocks that the cluster names, which may be more than differ, and exactly, by
//! reading those.

use farside_format::fingerprint::is_zero;

use super::ceph::DiffExtent;
use super::version::Version;
use super::volume::Volume;
use crate::{BLOCK_BYTES, ChangedBytes, EngineError};

/// Bytes of a version that the cluster is asked about at once: it looks at each object, changed or not, 1,000 of them in some 80 ms. Larger
/// windows took as long in all, and longer to the first extent. To look at those alone that the object map calls changed would be faster,
/// and would believe the map.
pub(super) const WINDOW_BYTES: u64 = 4 << 30;
/// Bytes that are read of each version at once, to be compared.
const READ_BYTES: u64 = 8 << 20;

/// A run of blocks that may differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) end: u64,
    /// May hold data; else it reads as zeros now, and whatever it held before is gone.
    pub(super) has_data: bool,
}

/// What may differ between `base` (none: nothing at all) and `now`, either of them the older, from byte `offset` on for `length` bytes:
/// ascending, not overlapping, inside `now`.
pub(super) fn ranges(
    volume: &Volume,
    base: Option<&Version>,
    now: &Version,
    offset: u64,
    length: u64,
) -> Result<Vec<Range>, EngineError> {
    let end = offset.saturating_add(length).min(now.size_bytes);
    let ask = |of: &Version, from: Option<String>, offset: u64, end: u64| {
        if offset >= end {
            return Ok(Vec::new());
        }
        let found = of.image.difference(from.as_deref(), offset, end - offset);
        found.map_err(|failed| volume.failed("the difference", failed))
    };
    let Some(base) = base else { return Ok(whole_blocks(&ask(now, None, offset, end)?, end)) };
    let number = |of: &Version| of.kept.map_or(u64::MAX, |kept| kept.id);
    let name = |of: &Version| of.kept.map(|kept| kept.name());
    if number(base) == number(now) {
        return Ok(Vec::new());
    }
    if number(base) < number(now) {
        return Ok(whole_blocks(&ask(now, name(base), offset, end)?, end));
    }
    // The other way round: the same ranges differ, and what they hold in the older one is not said. What lies past the newer one's
    // end is all that the older one has.
    let both = end.min(base.size_bytes);
    let mut found = ask(base, name(now), offset, both)?;
    found.iter_mut().for_each(|extent| extent.has_data = true);
    found.extend(ask(now, None, offset.max(base.size_bytes), end)?);
    Ok(whole_blocks(&found, end))
}

/// Extents as whole blocks, joined. A block that is touched by data is data; of holes only what is wholly inside counts as one, for what
/// is beside it in the block may be anything.
fn whole_blocks(extents: &[DiffExtent], end: u64) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    let mut push = |first: u64, end: u64, has_data: bool| {
        let Some(last) = ranges.last_mut() else {
            return ranges.push(Range { first, end, has_data });
        };
        if last.has_data == has_data && first <= last.end {
            last.end = last.end.max(end);
            return;
        }
        if first >= last.end {
            return ranges.push(Range { first, end, has_data });
        }
        // They share a block, of two kinds: it is data.
        if has_data {
            last.end = first;
            if last.first == last.end {
                ranges.pop();
            }
            ranges.push(Range { first, end, has_data });
        } else if end > last.end {
            let first = last.end;
            ranges.push(Range { first, end, has_data });
        }
    };
    for extent in extents.iter().filter(|extent| extent.length > 0) {
        let to = (extent.offset + extent.length).min(end);
        if extent.offset >= to {
            continue;
        }
        let (outer, outer_end) = (extent.offset / BLOCK_BYTES, to.div_ceil(BLOCK_BYTES));
        // The version's end ends its last block.
        let inner_end = if to == end { outer_end } else { to / BLOCK_BYTES };
        let inner = extent.offset.div_ceil(BLOCK_BYTES);
        if extent.has_data || inner >= inner_end {
            push(outer, outer_end, true);
            continue;
        }
        if outer < inner {
            push(outer, inner, true);
        }
        push(inner, inner_end, false);
        if inner_end < outer_end {
            push(inner_end, outer_end, true);
        }
    }
    ranges
}

/// Looks at each block that may differ, in both versions: whether it does, and whether it holds data now. `false` ends it.
fn compare(
    volume: &Volume,
    base: Option<&Version>,
    now: &Version,
    mut each: impl FnMut(bool, bool) -> bool,
) -> Result<(), EngineError> {
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for offset in (0..now.size_bytes).step_by(WINDOW_BYTES as usize) {
        for range in ranges(volume, base, now, offset, WINDOW_BYTES)? {
            let (mut at, end) = (range.first * BLOCK_BYTES, range.end * BLOCK_BYTES);
            while at < end {
                let length = READ_BYTES.min(end - at) as usize;
                old.clear();
                old.resize(length, 0);
                new.clear();
                new.resize(length, 0);
                if let Some(base) = base {
                    base.read(volume, at, &mut old)?;
                }
                if range.has_data {
                    now.read(volume, at, &mut new)?;
                }
                let blocks = old.chunks(BLOCK_BYTES as usize).zip(new.chunks(BLOCK_BYTES as usize));
                for (old, new) in blocks {
                    if !each(old != new, !is_zero(new)) {
                        return Ok(());
                    }
                }
                at += length as u64;
            }
        }
    }
    Ok(())
}

/// How `now` differs from `base`, by its bytes.
pub(super) fn changed_bytes(
    volume: &Volume,
    base: &Version,
    now: &Version,
) -> Result<ChangedBytes, EngineError> {
    let mut changed = ChangedBytes::default();
    compare(volume, Some(base), now, |differs, has_data| {
        match (differs, has_data) {
            (true, true) => changed.data_bytes += BLOCK_BYTES,
            (true, false) => changed.hole_bytes += BLOCK_BYTES,
            (false, _) => {}
        }
        true
    })?;
    changed.hole_bytes += data_past(volume, base, now.size_bytes)?;
    Ok(changed)
}

/// Bytes of blocks that hold data past `offset`.
fn data_past(volume: &Volume, version: &Version, offset: u64) -> Result<u64, EngineError> {
    let mut bytes = 0;
    let mut buffer = Vec::new();
    for from in (offset..version.size_bytes).step_by(WINDOW_BYTES as usize) {
        for range in ranges(volume, None, version, from, WINDOW_BYTES)? {
            let (mut at, end) = (range.first * BLOCK_BYTES, range.end * BLOCK_BYTES);
            while at < end {
                let length = READ_BYTES.min(end - at);
                buffer.resize(length as usize, 0);
                version.read(volume, at, &mut buffer)?;
                bytes += buffer.chunks(BLOCK_BYTES as usize).filter(|block| !is_zero(block)).count() as u64
                    * BLOCK_BYTES;
                at += length;
            }
        }
    }
    Ok(bytes)
}

/// Whether they differ in anything, their sizes included; without a base: whether there is any data.
pub(super) fn differs(volume: &Volume, base: Option<&Version>, now: &Version) -> Result<bool, EngineError> {
    if base.is_some_and(|base| base.size_bytes != now.size_bytes) {
        return Ok(true);
    }
    let mut found = false;
    compare(volume, base, now, |differs, _| {
        found |= differs;
        !found
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, length: u64, has_data: bool) -> DiffExtent {
        DiffExtent { offset, length, has_data }
    }

    fn range(first: u64, end: u64, has_data: bool) -> Range {
        Range { first, end, has_data }
    }

    #[test]
    fn a_block_that_data_touches_is_data() {
        let end = 40 * BLOCK_BYTES;
        let whole = |extents: &[DiffExtent]| whole_blocks(extents, end);
        assert_eq!(whole(&[extent(100, 10, true)]), [range(0, 1, true)]);
        assert_eq!(whole(&[extent(4000, 200, true), extent(8192, 4096, true)]), [range(0, 3, true)]);
        // A hole that begins and ends within a block.
        let found = whole(&[extent(100, 3 * BLOCK_BYTES, false)]);
        assert_eq!(found, [range(0, 1, true), range(1, 3, false), range(3, 4, true)]);
        assert_eq!(whole(&[extent(100, 200, false)]), [range(0, 1, true)]);
        // Data and a hole in one block.
        let found = whole(&[extent(0, 8192, false), extent(8192, 100, true), extent(8292, 3 * 4096, false)]);
        assert_eq!(found, [range(0, 2, false), range(2, 3, true), range(3, 5, false), range(5, 6, true)]);
        // The last block of a version whose size is not of whole blocks.
        assert_eq!(whole_blocks(&[extent(4096, 100, false)], 4196), [range(1, 2, false)]);
    }
}
