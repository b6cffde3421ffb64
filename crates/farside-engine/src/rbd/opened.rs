//! A snapshot that somebody keeps open: it stays in the cluster until that is dropped, whoever deletes it in this process. Another
//! process that deletes it ends the reading with an error.

use uuid::Uuid;

use super::version::Version;
use super::volume::Volume;
use crate::{EngineError, OpenSnapshot};

pub(super) struct Opened {
    volume: Volume,
    snapshot: Uuid,
    /// None while it is dropped.
    version: Option<Version>,
}

impl Opened {
    pub(super) fn new(volume: Volume, snapshot: Uuid, version: Version) -> Opened {
        Opened { volume, snapshot, version: Some(version) }
    }

    fn version(&self) -> Result<&Version, EngineError> {
        self.version.as_ref().ok_or_else(|| EngineError::Refused("the snapshot is closed".into()))
    }

    fn look(&self) -> Result<bool, EngineError> {
        let found = self.volume.load_any()?;
        Ok(found.is_none_or(|(document, _)| document.deleted || document.position(self.snapshot).is_err()))
    }
}

impl OpenSnapshot for Opened {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.version()?.read(&self.volume, offset, buffer)
    }

    fn read_ranges(&self, ranges: &[(u64, u64)], buffer: &mut [u8]) -> Result<(), EngineError> {
        self.version()?.read_ranges(&self.volume, ranges, buffer)
    }

    fn is_deleted(&self) -> Result<bool, EngineError> {
        self.look()
    }
}

impl Drop for Opened {
    /// What waited for this can go. What cannot be reached now goes another time.
    fn drop(&mut self) {
        self.version = None;
        if self.look().unwrap_or(false) {
            _ = self.volume.clear_away();
        }
    }
}
