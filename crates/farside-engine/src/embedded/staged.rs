//! Staged versions of the store.

use std::any::Any;

use farside_format::{ContentRoot, Fingerprint};
use farside_store::StoreError;
use uuid::Uuid;

use super::convert::{convert, new_snapshot, snapshot_info};
use super::extents::extents;
use crate::{ChangedExtents, EngineError, SnapshotInfo, SnapshotSpec, StagedFor, StagedInfo, StagedVersion};

pub(super) struct Staged {
    pub(super) pool: String,
    pub(super) staged: farside_store::StagedVersion,
}

impl Staged {
    pub(super) fn converted<T>(&self, result: Result<T, StoreError>) -> Result<T, EngineError> {
        result.map_err(|e| convert(&self.pool, e))
    }
}

impl StagedVersion for Staged {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> Result<StagedInfo, EngineError> {
        let status = self.converted(self.staged.status())?;
        let farside_store::StagedFor { relationship, incremental } = status.staged_for;
        Ok(StagedInfo {
            base: status.base,
            size_bytes: status.size_bytes,
            staged_for: StagedFor { relationship, incremental },
        })
    }

    fn resize(&self, size_bytes: u64) -> Result<(), EngineError> {
        self.converted(self.staged.resize(size_bytes))
    }

    fn retarget(&self, incremental: Uuid) -> Result<(), EngineError> {
        self.converted(self.staged.retarget(incremental))
    }

    fn changed_from(&self, base: Option<Uuid>) -> Result<ChangedExtents, EngineError> {
        Ok(extents(&self.pool, self.converted(self.staged.changed_from(base))?))
    }

    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        self.converted(self.staged.fingerprints(first, count))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.converted(self.staged.write(offset, bytes))
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError> {
        self.converted(self.staged.discard(offset, length))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.converted(self.staged.read(offset, buffer))
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.converted(self.staged.checkpoint())
    }

    fn content_root(&self) -> Result<ContentRoot, EngineError> {
        self.converted(self.staged.content_root())
    }

    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        self.converted(self.staged.commit(&new_snapshot(spec))).map(|status| snapshot_info(&status))
    }

    fn abandon(&self) -> Result<(), EngineError> {
        self.converted(self.staged.abandon())
    }
}
