//! Volumes that grow by themselves: once more than 90 % of one is written, its size is raised by steps until that is not so any
//! more, up to its limit. It never shrinks by itself.

use farside_store::{Pool, VolumeFill};

/// The size that a volume shall have; none if it stays as it is.
fn wanted(fill: &VolumeFill) -> Option<u64> {
    let VolumeFill { size_bytes, written_bytes, autogrow, .. } = fill;
    // A volume is full by 90 % where ten ninths of what is written reach its size.
    let needed = u64::try_from(u128::from(*written_bytes) * 10 / 9 + 1).unwrap_or(u64::MAX);
    if needed <= *size_bytes || *size_bytes >= autogrow.to_bytes {
        return None;
    }
    let steps = (needed - size_bytes).div_ceil(autogrow.step_bytes.max(1));
    let grown = size_bytes.saturating_add(steps.saturating_mul(autogrow.step_bytes));
    Some(grown.min(autogrow.to_bytes))
}

/// Grows the volumes of a pool that are to. Blocks.
pub(super) fn grow(pool_name: &str, pool: &Pool) {
    for fill in pool.volumes_that_grow() {
        let Some(size_bytes) = wanted(&fill) else { continue };
        let volume = format!("{pool_name}/{}", fill.name);
        match pool.resize_volume(&fill.name, size_bytes) {
            Ok(()) if size_bytes == fill.autogrow.to_bytes => tracing::warn!(
                volume,
                from_bytes = fill.size_bytes,
                to_bytes = size_bytes,
                "the volume has grown by itself, and goes no further: this is its limit. Hosts see the new size when they open it anew"
            ),
            Ok(()) => tracing::info!(
                volume,
                from_bytes = fill.size_bytes,
                to_bytes = size_bytes,
                "the volume has grown by itself. Hosts see the new size when they open it anew"
            ),
            Err(error) => tracing::warn!(
                volume,
                "the volume was to grow by itself and could not: {error}. It is tried again"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_store::Autogrow;

    use super::*;

    #[test]
    fn a_volume_grows_by_steps_past_90_percent_up_to_its_limit() {
        let wanted = |size_bytes, written_bytes| {
            let autogrow = Autogrow { to_bytes: 1000, step_bytes: 100 };
            wanted(&VolumeFill { name: "v".into(), size_bytes, written_bytes, autogrow })
        };
        assert_eq!((wanted(100, 0), wanted(100, 89), wanted(100, 91)), (None, None, Some(200)));
        // As far as is needed, at once.
        assert_eq!((wanted(100, 300), wanted(200, 91)), (Some(400), None));
        assert_eq!((wanted(950, 949), wanted(1000, 1000), wanted(2000, 2000)), (Some(1000), None, None));
        assert_eq!(wanted(0, u64::MAX), Some(1000));
    }
}
