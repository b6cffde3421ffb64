//! What an update carries: ranges that differ, with the zeros in them found.
//!
//! The cluster names an object that is new since the base whole, though one block of it was written: of 40 MB of scattered writes into a
//! thin image it made 2.9 GB. So ranges that are long are read here and searched for zeros. Short ones are what was written.

use std::collections::VecDeque;

use farside_format::fingerprint::is_zero;

use super::comparison::{WINDOW_BYTES, ranges};
use super::version::Version;
use super::volume::Volume;
use crate::{BLOCK_BYTES, ChangeKind, ChangedExtent, EngineError};

/// Ranges of data from this length on are searched for zeros: what hosts write at once is mostly shorter, and is no zeros.
const SEARCHED_FROM_BYTES: u64 = 64 << 10;
/// Bytes that are searched at once.
const READ_BYTES: u64 = 16 << 20;

/// A difference on its way.
pub(super) struct Walk {
    volume: Volume,
    base: Option<Version>,
    now: Version,
    /// Byte from which on the cluster was not asked yet.
    asked_to: u64,
    /// Not searched yet: (first block, end, may hold data).
    found: VecDeque<(u64, u64, bool)>,
    /// Searched, in order.
    ready: VecDeque<ChangedExtent>,
    /// The last one, which the next may continue.
    last: Option<ChangedExtent>,
    is_over: bool,
}

impl Walk {
    /// From `base` (none: nothing at all) to `now`.
    pub(super) fn new(volume: Volume, base: Option<Version>, now: Version) -> Walk {
        Walk {
            volume,
            base,
            now,
            asked_to: 0,
            found: VecDeque::new(),
            ready: VecDeque::new(),
            last: None,
            is_over: false,
        }
    }

    /// One step on: asks the cluster, or searches what it named. False when there is no more.
    fn advance(&mut self) -> Result<bool, EngineError> {
        let Some((first, end, has_data)) = self.found.pop_front() else {
            if self.asked_to >= self.now.size_bytes {
                return Ok(false);
            }
            let found = ranges(&self.volume, self.base.as_ref(), &self.now, self.asked_to, WINDOW_BYTES)?;
            self.asked_to += WINDOW_BYTES;
            self.found.extend(found.iter().map(|range| (range.first, range.end, range.has_data)));
            return Ok(true);
        };
        let bytes = (end - first) * BLOCK_BYTES;
        if !has_data || bytes < SEARCHED_FROM_BYTES {
            self.push(first, end, has_data);
            return Ok(true);
        }
        let searched = bytes.min(READ_BYTES);
        if searched < bytes {
            self.found.push_front((first + searched / BLOCK_BYTES, end, true));
        }
        let mut buffer = vec![0; searched as usize];
        self.now.read(&self.volume, first * BLOCK_BYTES, &mut buffer)?;
        for (block, content) in (first..).zip(buffer.chunks(BLOCK_BYTES as usize)) {
            self.push(block, block + 1, !is_zero(content));
        }
        Ok(true)
    }

    /// What was nothing before and is nothing now is not told.
    fn push(&mut self, first: u64, end: u64, has_data: bool) {
        if !has_data && self.base.is_none() {
            return;
        }
        let kind = if has_data { ChangeKind::Data } else { ChangeKind::Hole };
        let (offset, length) = (first * BLOCK_BYTES, (end - first) * BLOCK_BYTES);
        match self.ready.back_mut() {
            Some(last) if last.kind == kind && last.offset + last.length == offset => {
                last.length += length;
                last.changed += length;
            }
            _ => self.ready.push_back(ChangedExtent { offset, length, kind, changed: length }),
        }
    }
}

impl Iterator for Walk {
    type Item = Result<ChangedExtent, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            let Some(next) = self.ready.pop_front() else {
                match self.advance() {
                    Ok(true) => continue,
                    Ok(false) => break,
                    Err(error) => {
                        self.is_over = true;
                        return Some(Err(error));
                    }
                }
            };
            match &mut self.last {
                Some(last) if last.kind == next.kind && last.offset + last.length == next.offset => {
                    last.length += next.length;
                    last.changed += next.changed;
                }
                last => {
                    if let Some(before) = last.replace(next) {
                        return Some(Ok(before));
                    }
                }
            }
        }
        self.is_over = true;
        self.last.take().map(Ok)
    }
}
