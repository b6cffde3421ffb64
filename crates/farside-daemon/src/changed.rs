//! `farside:changed:SNAP`: what an export has that a snapshot of the same volume has not, for any NBD client.
//!
//! The answer is the store's difference, from metadata alone. A question is one bounded step of it: what lies beyond is
//! asked again.

use farside_nbd::{ErrorKind, Marked, MetadataContext, NbdError};
use farside_store::{Comparison, DifferingBlocks, StoreError, VersionHandle};

use crate::export_failure::failure;

/// Every context of this kind begins so; the rest is the snapshot's name.
const PREFIX: &str = "farside:changed:";
/// What this project's contexts begin with.
const NAMESPACE: &str = "farside:";
/// The flag of a range that differs.
const CHANGED: u32 = 1;
const BLOCK: u64 = farside_engine::BLOCK_BYTES;

/// The contexts that the queries mean, of a volume with these snapshots: see [`farside_nbd::ExportSource::contexts`].
pub(crate) fn contexts(
    snapshots: impl Iterator<Item = String>,
    queries: &[String],
    set: bool,
) -> Vec<String> {
    let lists_all =
        !set && (queries.is_empty() || queries.iter().any(|query| query == NAMESPACE || query == PREFIX));
    let named: Vec<String> = snapshots.map(|snapshot| format!("{PREFIX}{snapshot}")).collect();
    if lists_all {
        return named;
    }
    // In the order in which they were asked for.
    queries.iter().filter(|query| named.contains(query)).cloned().collect()
}

/// One of them, open.
pub(crate) struct Changed {
    comparison: Comparison,
}

impl Changed {
    /// Opens the context `name` of a version.
    pub(crate) fn open(handle: &VersionHandle, name: &str) -> Result<Changed, NbdError> {
        let unknown = || NbdError::new(ErrorKind::Invalid, format!("there is no metadata context {name:?}"));
        let snapshot = name.strip_prefix(PREFIX).ok_or_else(unknown)?;
        match handle.compared_with(snapshot) {
            Ok(comparison) => Ok(Changed { comparison }),
            Err(StoreError::NotFound(_)) => Err(unknown()),
            Err(error) => Err(failure(error)),
        }
    }
}

impl MetadataContext for Changed {
    fn status(&self, offset: u64, length: u64, runs_max: usize) -> Result<Vec<Marked>, NbdError> {
        let (found, next) = self.comparison.changes_from(offset / BLOCK).map_err(failure)?;
        let end = next.map_or(offset + length, |block| (block * BLOCK).min(offset + length));
        Ok(runs(&found, offset, end, runs_max))
    }
}

/// The range from `offset` to `end`, of which these blocks differ.
fn runs(found: &[DifferingBlocks], offset: u64, end: u64, runs_max: usize) -> Vec<Marked> {
    let mut runs = Vec::new();
    let mut at = offset;
    let mut mark = |until: u64, flags: u32| {
        if until > at {
            runs.push(Marked { length: until - at, flags });
            at = until;
        }
    };
    // One range makes two runs at most; what is beyond is asked again.
    for range in found.iter().take(runs_max) {
        let from = range.block * BLOCK;
        if from >= end {
            break;
        }
        mark(from.max(offset), 0);
        mark((from + range.count * BLOCK).min(end), CHANGED);
    }
    if found.len() <= runs_max {
        mark(end, 0);
    }
    runs
}

#[cfg(test)]
mod tests {
    use farside_store::DifferenceKind;

    use super::*;

    fn blocks(block: u64, count: u64) -> DifferingBlocks {
        DifferingBlocks { block, count, kind: DifferenceKind::Data, changed: count }
    }

    #[test]
    fn runs_begin_where_they_were_asked_for_and_leave_no_gap() {
        let run = |length, flags| Marked { length, flags };
        let found = [blocks(1, 2), blocks(4, 1), blocks(9, 5)];
        assert_eq!(
            runs(&found, 100, 10 * BLOCK, 100),
            [run(3996, 0), run(2 * BLOCK, 1), run(BLOCK, 0), run(BLOCK, 1), run(4 * BLOCK, 0), run(BLOCK, 1)]
        );
        assert_eq!(runs(&found, BLOCK + 7, 2 * BLOCK, 100), [run(BLOCK - 7, 1)]);
        assert_eq!(runs(&[], 5, 50, 100), [run(45, 0)]);
        assert_eq!(
            runs(&found, 0, 20 * BLOCK, 1),
            [run(BLOCK, 0), run(2 * BLOCK, 1)],
            "the rest is not told of"
        );
    }

    #[test]
    fn contexts_are_listed_by_prefix_and_set_by_name() {
        let queries = |all: &[&str]| all.iter().map(|query| (*query).to_owned()).collect::<Vec<_>>();
        let snapshots = || ["a".to_owned(), "b".to_owned()].into_iter();
        let (a, b) = ("farside:changed:a".to_owned(), "farside:changed:b".to_owned());
        for all in [queries(&[]), queries(&["farside:"]), queries(&["x:", "farside:changed:"])] {
            assert_eq!(contexts(snapshots(), &all, false), [a.clone(), b.clone()]);
            assert!(contexts(snapshots(), &all, true).is_empty());
        }
        let wanted =
            queries(&["base:allocation", "farside:changed:b", "farside:changed:c", "farside:changed:a"]);
        assert_eq!(contexts(snapshots(), &wanted, true), [b, a]);
    }
}
