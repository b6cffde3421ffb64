//! What damaged metadata keeps from being read, for the status of pools and volumes.

use farside_api::QuarantinedRange;
use farside_platform::BLOCK_BYTES;
use farside_store::{Pool, StoreError};

/// Ranges of the pool's volumes and snapshots, or of one volume and its snapshots, in order; at most 64 of each version. Reads
/// metadata.
pub(crate) fn quarantined(pool: &Pool, volume: Option<&str>) -> Result<Vec<QuarantinedRange>, StoreError> {
    let found =
        pool.quarantined()?.into_iter().filter(|range| volume.is_none_or(|volume| range.volume == volume));
    Ok(found
        .map(|range| QuarantinedRange {
            volume: range.volume,
            snapshot: range.snapshot,
            offset_bytes: range.block * BLOCK_BYTES as u64,
            length_bytes: range.count * BLOCK_BYTES as u64,
        })
        .collect())
}
