//! Differences of the store as those of the traits.

use farside_store::{Difference, DifferenceKind};

use super::convert::convert;
use crate::{BLOCK_BYTES, ChangeKind, ChangedExtent, ChangedExtents, EngineError};

/// A difference of the store, in bytes.
pub(super) fn extents(pool: &str, walk: Difference) -> ChangedExtents {
    let pool = pool.to_owned();
    let ranges = walk.map(move |range| {
        let range = range.map_err(|e| convert(&pool, e))?;
        let kind = match range.kind {
            DifferenceKind::Data => ChangeKind::Data,
            DifferenceKind::Hole => ChangeKind::Hole,
        };
        Ok(ChangedExtent {
            offset: range.block * BLOCK_BYTES,
            length: range.count * BLOCK_BYTES,
            kind,
            changed: range.changed * BLOCK_BYTES,
        })
    });
    Box::new(Joined { ranges, held: None })
}

/// Joins neighbouring ranges of one kind across the steps of a walk.
struct Joined<I> {
    ranges: I,
    held: Option<ChangedExtent>,
}

impl<I: Iterator<Item = Result<ChangedExtent, EngineError>>> Iterator for Joined<I> {
    type Item = Result<ChangedExtent, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.ranges.next() {
                Some(Ok(next)) => match &mut self.held {
                    Some(held) if held.kind == next.kind && held.offset + held.length == next.offset => {
                        held.length += next.length;
                        held.changed += next.changed;
                    }
                    held => {
                        if let Some(done) = held.replace(next) {
                            return Some(Ok(done));
                        }
                    }
                },
                Some(Err(error)) => {
                    self.held = None;
                    return Some(Err(error));
                }
                None => return self.held.take().map(Ok),
            }
        }
    }
}
