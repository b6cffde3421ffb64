//! A version of a volume, to be read and compared.

use std::sync::Arc;

use super::ceph::Image;
use super::document::Kept;
use super::volume::Volume;
use crate::{BLOCK_BYTES, EngineError};

/// A version of a volume: a snapshot, or the head.
#[derive(Clone)]
pub(super) struct Version {
    pub(super) image: Arc<Image>,
    /// None: the head.
    pub(super) kept: Option<Kept>,
    pub(super) size_bytes: u64,
}

impl Version {
    pub(super) fn of(volume: &Volume, kept: &Kept) -> Result<Version, EngineError> {
        let pool = (&*volume.pool.name, &volume.pool.ceph);
        let image = volume.inner.readers.open(pool, &volume.id, kept);
        let image = image.map_err(|failed| volume.failed("a snapshot", failed))?;
        Ok(Version { image, kept: Some(*kept), size_bytes: kept.size_bytes })
    }

    /// The head as it is now; who writes it meanwhile may be seen or not.
    pub(super) fn head(volume: &Volume) -> Result<Version, EngineError> {
        let image = Image::open_to_read(&volume.pool.ceph, &volume.id, None);
        let image = image.map_err(|failed| volume.failed("the head", failed))?;
        Version::of_head(volume, Arc::new(image))
    }

    /// The head, by a handle of it.
    pub(super) fn of_head(volume: &Volume, image: Arc<Image>) -> Result<Version, EngineError> {
        let size_bytes = image.size_bytes().map_err(|failed| volume.failed("the size", failed))?;
        Ok(Version { image, kept: None, size_bytes })
    }

    /// Reads a range; past the end there are zeros.
    pub(super) fn read(&self, volume: &Volume, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        let inside = self.size_bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (data, past_the_end) = buffer.split_at_mut(inside);
        past_the_end.fill(0);
        self.image.read(&mut [(offset, data)]).map_err(|failed| volume.failed("the data", failed))
    }

    /// Reads many ranges of blocks, (first, count) each, one behind the other: all of them at a time.
    pub(super) fn read_ranges(
        &self,
        volume: &Volume,
        ranges: &[(u64, u64)],
        buffer: &mut [u8],
    ) -> Result<(), EngineError> {
        let mut rest = buffer;
        let mut wanted = Vec::with_capacity(ranges.len());
        for (first, blocks) in ranges {
            let length = blocks.saturating_mul(BLOCK_BYTES).min(rest.len() as u64) as usize;
            let piece;
            (piece, rest) = rest.split_at_mut(length);
            let offset = first.saturating_mul(BLOCK_BYTES);
            let inside = self.size_bytes.saturating_sub(offset).min(length as u64) as usize;
            let (data, past_the_end) = piece.split_at_mut(inside);
            past_the_end.fill(0);
            wanted.push((offset, data));
        }
        self.image.read(&mut wanted).map_err(|failed| volume.failed("the data", failed))
    }
}
