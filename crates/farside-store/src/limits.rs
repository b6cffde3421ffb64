//! What an administrator says of a volume's room: how much of the pool it may take, how much is kept for it, and how far it grows.
//!
//! What counts is what the volume with all its versions owns (`docs/format.md`, "Ownership counted"): data blocks, and of a block
//! that several own one for each of them.

use farside_format::catalog::{Change, SetLimits, VolumeLimits as Stored};
use farside_platform::BLOCK_BYTES;

use crate::error::{Result, StoreError};
use crate::pool::Pool;
use crate::versions::VOLUME_BYTES_MAX;

/// Limits of a volume's room.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct VolumeLimits {
    /// The volume with all its snapshots may not take more of the pool, bytes.
    pub quota_bytes: Option<u64>,
    /// So much of the pool is kept for the volume with all its snapshots, bytes.
    pub reserve_bytes: Option<u64>,
    /// How far it grows by itself.
    pub autogrow: Option<Autogrow>,
}

/// How a volume grows by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Autogrow {
    /// Up to this size, bytes.
    pub to_bytes: u64,
    /// By so much at once, bytes.
    pub step_bytes: u64,
}

impl VolumeLimits {
    pub(crate) fn of(stored: Option<&Stored>) -> VolumeLimits {
        let Some(stored) = stored else { return VolumeLimits::default() };
        let said = |bytes: u64| (bytes > 0).then_some(bytes);
        VolumeLimits {
            quota_bytes: said(stored.quota_bytes),
            reserve_bytes: said(stored.reserve_bytes),
            autogrow: said(stored.autogrow_to_bytes)
                .map(|to_bytes| Autogrow { to_bytes, step_bytes: stored.autogrow_step_bytes }),
        }
    }

    fn encode(&self) -> Option<Stored> {
        let (to, step) = self.autogrow.map_or((0, 0), |a| (a.to_bytes, a.step_bytes));
        let stored = Stored {
            quota_bytes: self.quota_bytes.unwrap_or(0),
            reserve_bytes: self.reserve_bytes.unwrap_or(0),
            autogrow_to_bytes: to,
            autogrow_step_bytes: step,
        };
        (stored != Stored::default()).then_some(stored)
    }

    fn check(&self) -> Result<()> {
        if self.quota_bytes.zip(self.reserve_bytes).is_some_and(|(quota, reserve)| reserve > quota) {
            return Err(StoreError::Invalid(
                "a volume cannot have more reserved than its quota lets it take: raise the quota, or reserve less".into(),
            ));
        }
        let is_size =
            |bytes: u64| bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES as u64) && bytes <= VOLUME_BYTES_MAX;
        if self.autogrow.is_some_and(|a| !is_size(a.to_bytes) || !is_size(a.step_bytes)) {
            return Err(StoreError::Invalid(
                "a volume grows to a size, and by a step, that are multiples of 4096 bytes, at most 16 PiB"
                    .into(),
            ));
        }
        Ok(())
    }
}

impl Pool {
    /// Changes what is said of a volume's room; durable when this returns. Answers with what is said from now on.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for limits that contradict each other.
    pub fn set_limits(&self, name: &str, edit: impl FnOnce(&mut VolumeLimits)) -> Result<VolumeLimits> {
        self.change(|state| {
            let volume = state.versions.volume_named(name);
            let volume = volume.ok_or_else(|| StoreError::NotFound(format!("volume {name}")))?;
            let mut limits = VolumeLimits::of(volume.limits.as_ref());
            edit(&mut limits);
            limits.check()?;
            let change = SetLimits { volume: volume.id, limits: limits.encode() };
            Ok((Change::SetLimits(change), limits))
        })
    }
}
