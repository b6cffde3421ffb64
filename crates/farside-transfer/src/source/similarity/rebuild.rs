//! Rebuilding an index in the background: from all that a snapshot holds, or from what of it was never read.

use std::sync::Arc;
use std::time::Duration;

use farside_engine::{
    BLOCK_BYTES, ChangeKind, ChangedExtent, ChangedExtents, Engine, EngineError, VolumeName,
};
use farside_platform::Clock;
use uuid::Uuid;

use super::missing::MissingRuns;
use super::volume::VolumeIndex;
use crate::error::{TransferError, blocking, piece};
use crate::limits::{REBUILD_PIECE_BYTES, REBUILD_REST};

/// A snapshot whose content an index shall have.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) volume: VolumeName,
    pub(crate) snapshot: Uuid,
}

/// An index being rebuilt. Dropped, it leaves word how far it came.
pub(crate) struct Rebuilding {
    index: Arc<VolumeIndex>,
    content: Content,
    clock: Arc<dyn Clock>,
    /// All before this offset was entered; none left if it is done.
    at: Option<u64>,
    missing_runs: MissingRuns,
}

impl Rebuilding {
    /// Takes over what `index` lacks, unless that is nothing or somebody is at it.
    pub(crate) fn begin(
        index: &Arc<VolumeIndex>,
        content: Content,
        clock: &Arc<dyn Clock>,
    ) -> Option<Rebuilding> {
        let mut missing = index.missing();
        if missing.is_underway || missing.is_nothing() {
            return None;
        }
        missing.is_underway = true;
        let (at, missing_runs) = (missing.from.take(), std::mem::take(&mut missing.missing_runs));
        drop(missing);
        Some(Rebuilding { index: index.clone(), content, clock: clock.clone(), at, missing_runs })
    }

    pub(crate) async fn run(&mut self) -> Result<(), TransferError> {
        self.enter_all().await?;
        self.enter_missing().await
    }

    /// The volume's name, for the log.
    pub(crate) fn volume(&self) -> &VolumeName {
        &self.content.volume
    }

    /// What the snapshot holds, from `at` on.
    async fn enter_all(&mut self) -> Result<(), TransferError> {
        if self.at.is_none() {
            return Ok(());
        }
        let content = self.content.clone();
        let mut walk = blocking(move || {
            let extents = content.engine.changed_extents(&content.volume, None, content.snapshot)?;
            Ok::<_, EngineError>(Walk { extents, ahead: None })
        })
        .await?;
        while let Some(at) = self.at {
            let started = self.clock.monotonic();
            let (index, content) = (self.index.clone(), self.content.clone());
            (self.at, walk) = blocking(move || {
                let Some(piece) = walk.next_piece(at)? else { return Ok((None, walk)) };
                content.enter(&index, piece.offset, piece.length)?;
                Ok::<_, EngineError>((Some(piece.offset + piece.length), walk))
            })
            .await?;
            self.rest(started).await;
        }
        Ok(())
    }

    /// What was not read, as the snapshot has it: data that has changed since is entered as it is now.
    async fn enter_missing(&mut self) -> Result<(), TransferError> {
        while !self.missing_runs.is_empty() {
            let started = self.clock.monotonic();
            let (index, content) = (self.index.clone(), self.content.clone());
            let runs = self.missing_runs.take(REBUILD_PIECE_BYTES / BLOCK_BYTES);
            let (runs, entered) = piece(move || {
                let entered = runs.runs().try_for_each(|run| {
                    content.enter(&index, run.start * BLOCK_BYTES, (run.end - run.start) * BLOCK_BYTES)
                });
                Ok::<_, EngineError>((runs, entered))
            })
            .await?;
            if let Err(error) = entered {
                self.missing_runs.merge(runs);
                return Err(error.into());
            }
            self.rest(started).await;
        }
        Ok(())
    }

    async fn rest(&self, started: Duration) {
        let worked = self.clock.monotonic().saturating_sub(started);
        tokio::time::sleep(REBUILD_REST * worked.max(Duration::from_micros(1))).await;
    }
}

impl Drop for Rebuilding {
    fn drop(&mut self) {
        let mut missing = self.index.missing();
        missing.is_underway = false;
        missing.from = self.at;
        missing.missing_runs.merge(std::mem::take(&mut self.missing_runs));
    }
}

impl Content {
    /// Enters a range of it, of at most [`REBUILD_PIECE_BYTES`].
    fn enter(&self, index: &VolumeIndex, offset: u64, length: u64) -> Result<(), EngineError> {
        let mut bytes = vec![0; length as usize];
        self.engine.read_snapshot(&self.volume, self.snapshot, offset, &mut bytes)?;
        index.enter_at(offset / BLOCK_BYTES, &bytes);
        Ok(())
    }
}

/// The data of a snapshot, piece by piece.
struct Walk {
    extents: ChangedExtents,
    ahead: Option<ChangedExtent>,
}

impl Walk {
    /// The next at most [`REBUILD_PIECE_BYTES`] of data from offset `at` on.
    fn next_piece(&mut self, at: u64) -> Result<Option<ChangedExtent>, EngineError> {
        loop {
            let Some(extent) = self.ahead.take().map(Ok).or_else(|| self.extents.next()).transpose()? else {
                return Ok(None);
            };
            let (offset, end) = (extent.offset.max(at), extent.offset.saturating_add(extent.length));
            if extent.kind == ChangeKind::Hole || offset >= end {
                continue;
            }
            let piece = ChangedExtent { offset, length: (end - offset).min(REBUILD_PIECE_BYTES), ..extent };
            self.ahead = Some(ChangedExtent { offset, length: end - offset, ..extent });
            return Ok(Some(piece));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn extent(offset: u64, length: u64, kind: ChangeKind) -> ChangedExtent {
        ChangedExtent { offset, length, kind, changed: length }
    }

    #[test]
    fn a_walk_goes_over_all_data_from_where_it_was_left() {
        let extents = || {
            let all = [
                extent(0, MIB / 2, ChangeKind::Data),
                extent(MIB, MIB, ChangeKind::Hole),
                extent(4 * MIB, 5 * MIB / 2, ChangeKind::Data),
            ];
            Walk { extents: Box::new(all.into_iter().map(Ok)), ahead: None }
        };
        let pieces = |mut walk: Walk, mut at: u64| {
            let mut pieces = Vec::new();
            while let Some(piece) = walk.next_piece(at).unwrap() {
                pieces.push((piece.offset, piece.length));
                at = piece.offset + piece.length;
            }
            pieces
        };
        let rest = [(5 * MIB, MIB), (6 * MIB, MIB / 2)];
        assert_eq!(pieces(extents(), 0), [&[(0, MIB / 2), (4 * MIB, MIB)], &rest[..]].concat());
        assert_eq!(pieces(extents(), 5 * MIB), rest);
        assert_eq!(pieces(extents(), 7 * MIB), []);
    }
}
