//! Snapshots of the store that somebody keeps open.

use farside_store::SnapshotReader;

use super::convert::convert;
use crate::{EngineError, OpenSnapshot};

/// A snapshot that is not reaped while this lives.
pub(super) struct Opened {
    pub(super) pool: String,
    pub(super) reader: SnapshotReader,
}

impl OpenSnapshot for Opened {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        let size_bytes = self.reader.size_bytes();
        let inside = size_bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (data, past_the_end) = buffer.split_at_mut(inside);
        past_the_end.fill(0);
        self.reader.read(offset.min(size_bytes), data).map_err(|e| convert(&self.pool, e))
    }

    fn read_ranges(&self, ranges: &[(u64, u64)], buffer: &mut [u8]) -> Result<(), EngineError> {
        self.reader.read_ranges(ranges, buffer).map_err(|e| convert(&self.pool, e))
    }

    fn is_deleted(&self) -> Result<bool, EngineError> {
        self.reader.is_deleted().map_err(|e| convert(&self.pool, e))
    }
}
