//! What cut transfers have left in a pool, for status and plans.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_api::StagedContent;
use farside_platform::BLOCK_BYTES;
use farside_store::{DifferenceKind, Pool, StoreError};

/// How long counting may take: past it the figure is unknown, rather than a person kept waiting.
const COUNT_MAX: Duration = Duration::from_secs(5);

/// What is staged of one volume, or of all. Reads metadata.
pub(crate) fn content(pool: &Arc<Pool>, volume: Option<&str>) -> Result<Vec<StagedContent>, StoreError> {
    let until = Instant::now() + COUNT_MAX;
    let mut found = Vec::new();
    for staged in pool.staged_content()? {
        if volume.is_some_and(|volume| volume != staged.volume) {
            continue;
        }
        let mut bytes = Some(0);
        for range in staged.difference {
            // It may end meanwhile, published or thrown away, and what cannot be read is told elsewhere.
            let Ok(range) = range else {
                bytes = None;
                break;
            };
            if Instant::now() > until {
                bytes = None;
                break;
            }
            if range.kind == DifferenceKind::Data {
                bytes = bytes.map(|bytes| bytes + range.count * BLOCK_BYTES as u64);
            }
        }
        found.push(StagedContent { volume: staged.volume, bytes, transferring: staged.is_building });
    }
    Ok(found)
}

/// Bytes of all of it, if all were counted.
pub(crate) fn sum(content: &[StagedContent]) -> Option<u64> {
    content.iter().map(|staged| staged.bytes).sum()
}
