//! Staged versions.

use std::any::Any;
use std::sync::atomic::Ordering;

use uuid::Uuid;

use super::MemoryEngine;
use super::image::Image;
use super::volume::Staging;
use crate::{
    Capability, ChangedExtents, ContentRoot, EngineError, Fingerprint, SnapshotInfo, SnapshotSpec,
    StagedInfo, StagedVersion, VolumeName,
};

pub(super) struct Staged {
    pub(super) engine: MemoryEngine,
    pub(super) volume: VolumeName,
    pub(super) number: u64,
}

impl Staged {
    fn with_staging<T>(
        &self,
        work: impl FnOnce(&mut Staging) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.engine.with(&self.volume, |volume| {
            volume.staging(self.number)?;
            work(volume.staged.as_mut().expect("it was looked at just now"))
        })
    }

    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Image) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.with_staging(|staging| work(&mut staging.image))
    }

    fn change(&self, what: &str, work: impl FnOnce(&mut Staging)) -> Result<(), EngineError> {
        self.engine.change(what, &self.volume, |volume| {
            volume.staging(self.number)?;
            work(volume.staged.as_mut().expect("it was looked at just now"));
            Ok(())
        })
    }

    /// Whether a write has room, and what becomes of it.
    fn spoil_write(&self, bytes: &mut [u8]) -> Result<(), EngineError> {
        let needed_bytes = bytes.len() as u64;
        let room = {
            let mut faults = self.engine.faults.lock();
            if faults.flip_staged_writes {
                bytes[7] ^= 1;
            }
            if let Some(left) = &mut faults.staged_bytes_left {
                let Some(rest) = left.checked_sub(needed_bytes) else {
                    return Err(no_space("p", needed_bytes, *left));
                };
                *left = rest;
            }
            faults.staging_room
        };
        let Some(room) = room else { return Ok(()) };
        let used = self.engine.staged_bytes();
        if used + needed_bytes > room {
            return Err(no_space("q", needed_bytes, room.saturating_sub(used)));
        }
        Ok(())
    }
}

fn no_space(pool: &str, needed_bytes: u64, available_bytes: u64) -> EngineError {
    EngineError::NoSpace { pool: pool.into(), needed_bytes, available_bytes }
}

impl StagedVersion for Staged {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> Result<StagedInfo, EngineError> {
        self.with_staging(|staging| {
            Ok(StagedInfo {
                base: staging.base,
                size_bytes: staging.image.size_bytes,
                staged_for: staging.staged_for,
            })
        })
    }

    fn resize(&self, size_bytes: u64) -> Result<(), EngineError> {
        self.change("resize staged", |staging| {
            staging.image.resize(size_bytes);
            staging.saved = staging.image.clone();
        })
    }

    fn retarget(&self, incremental: Uuid) -> Result<(), EngineError> {
        self.change("retarget", |staging| staging.staged_for.incremental = incremental)
    }

    fn changed_from(&self, base: Option<Uuid>) -> Result<ChangedExtents, EngineError> {
        let base = self.engine.with(&self.volume, |volume| volume.base_image(base))?;
        let unit = self.engine.options.difference_blocks;
        let extents = self.with(|image| Ok(Image::changes(&base, image, unit)))?;
        Ok(Box::new(extents.into_iter().map(Ok)))
    }

    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        self.with(|image| image.fingerprints(first, count))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.with(|image| image.check(offset, bytes.len() as u64))?;
        let mut bytes = bytes.to_vec();
        self.spoil_write(&mut bytes)?;
        self.engine.staged_writes.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        self.with(|image| {
            image.write(offset, &bytes);
            Ok(())
        })
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError> {
        self.with(|image| {
            image.check(offset, length)?;
            image.discard(offset, length);
            Ok(())
        })
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.with(|image| {
            image.read(offset, buffer);
            Ok(())
        })
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.change("checkpoint", |staging| staging.saved = staging.image.clone())
    }

    fn content_root(&self) -> Result<ContentRoot, EngineError> {
        self.with(|image| Ok(image.root()))
    }

    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        let beside = self.engine.has(Capability::Branches);
        self.engine.change("commit", &self.volume, |volume| volume.publish(self.number, spec, beside))
    }

    fn abandon(&self) -> Result<(), EngineError> {
        self.engine.change("abandon", &self.volume, |volume| {
            volume.staged = volume.staged.take().filter(|staging| staging.number != self.number);
            Ok(())
        })
    }
}
