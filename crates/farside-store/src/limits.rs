//! What an administrator says of a volume's room: how much of the pool it may take, how much is kept for it, and how far it grows.
//!
//! What counts is what the volume with all its versions owns (`docs/format.md`, "Ownership counted"): data blocks, and of a block
//! that several own one for each of them.

use farside_format::catalog::{Change, SetLimits, Volume, VolumeLimits as Stored};
use farside_platform::BLOCK_BYTES;

use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};
use crate::versions::VOLUME_BYTES_MAX;

/// So much of a volume that grows by itself may change before a point tells how full it is: a twentieth.
const UNSETTLED_SHARE_MAX: u64 = 20;

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

    pub(crate) fn encode(&self) -> Option<Stored> {
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

/// How full a volume is that grows by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeFill {
    /// Its name in its pool.
    pub name: String,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Of that, bytes written and not trimmed, as of the last consistency point.
    pub written_bytes: u64,
    /// How it grows.
    pub autogrow: Autogrow,
}

impl Pool {
    /// Volumes that grow by themselves and may: no replicas. If a consistency point may show that one is fuller by a twentieth than is
    /// known, the pool's own thread makes one. Reads a node of each.
    ///
    /// A volume whose node cannot be read is left out: it is not the moment to grow it.
    pub fn volumes_that_grow(&self) -> Vec<VolumeFill> {
        let _reading = self.readers.read();
        let found: Vec<_> = {
            let state = self.locked();
            let may_grow = |v: &&Volume| !v.deleted && v.replica.as_ref().is_none_or(|r| r.broken_off);
            let of = |volume: &Volume| {
                let autogrow = VolumeLimits::of(volume.limits.as_ref()).autogrow?;
                let head = state.versions.versions.get(&volume.head)?;
                let unsettled = state.versions.usage_of(volume.id).unsettled();
                Some((
                    volume.name.clone(),
                    state.view(head).tree,
                    head.tree,
                    head.size_bytes,
                    unsettled,
                    autogrow,
                ))
            };
            state.versions.volumes.values().filter(may_grow).filter_map(of).collect()
        };
        let mut all = Vec::with_capacity(found.len());
        for (name, identity, tree, size_bytes, unsettled, autogrow) in found {
            let mapped = match tree.root.is_hole() {
                true => 0,
                false => match self.nodes.read(identity, tree.level, 0, &tree.root) {
                    Ok(node) => node.mapped_blocks,
                    Err(_) => continue,
                },
            };
            let block = BLOCK_BYTES as u64;
            let blocks = size_bytes / block;
            let may_be_full =
                (mapped + unsettled) / 9 * 10 > blocks && unsettled > blocks / UNSETTLED_SHARE_MAX;
            if size_bytes < autogrow.to_bytes && may_be_full {
                self.settle();
            }
            all.push(VolumeFill { name, size_bytes, written_bytes: mapped * block, autogrow });
        }
        all
    }

    /// Changes what is said of a volume's room; durable when this returns. Answers with what is said from now on.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for limits that contradict each other, [`StoreError::Refused`] for a quota below what the volume
    /// occupies, [`StoreError::NoRoomToReserve`] for a reservation that does not fit.
    pub fn set_limits(&self, name: &str, edit: impl Fn(&mut VolumeLimits)) -> Result<VolumeLimits> {
        self.settled_if_refused(|| {
            self.change(|state| {
                let volume = state.versions.volume_named(name);
                let volume = volume
                    .ok_or_else(|| StoreError::NotFound(format!("volume {}", state.full_name(name))))?;
                let before = VolumeLimits::of(volume.limits.as_ref());
                let mut limits = before;
                edit(&mut limits);
                self.check_limits(state, Some(volume.id), &before, &limits)?;
                let change = SetLimits { volume: volume.id, limits: limits.encode() };
                Ok((Change::SetLimits(change), limits))
            })
        })
    }

    /// Whether limits of a volume can be kept from now on; those that it had are.
    pub(crate) fn check_limits(
        &self,
        state: &State,
        volume: Option<u64>,
        before: &VolumeLimits,
        limits: &VolumeLimits,
    ) -> Result<()> {
        limits.check()?;
        let occupied = volume.map_or(0, |id| state.versions.usage_of(id).alive()) * BLOCK_BYTES as u64;
        if let Some(quota) =
            limits.quota_bytes.filter(|quota| limits.quota_bytes != before.quota_bytes && *quota < occupied)
        {
            return Err(StoreError::QuotaTooSmall { quota_bytes: quota, occupied_bytes: occupied });
        }
        match limits.reserve_bytes.filter(|reserve| *reserve > before.reserve_bytes.unwrap_or(0)) {
            Some(reserve) => self.check_reservation(state, volume, reserve.div_ceil(BLOCK_BYTES as u64)),
            None => Ok(()),
        }
    }

    /// What is refused for want of room is tried again once consistency points have told what is really used.
    pub(crate) fn settled_if_refused<T>(&self, attempt: impl Fn() -> Result<T>) -> Result<T> {
        let is_about_room = |result: &Result<T>| {
            matches!(result, Err(StoreError::QuotaTooSmall { .. } | StoreError::NoRoomToReserve { .. }))
        };
        let first = attempt();
        if !is_about_room(&first) {
            return first;
        }
        self.consistency_point()?;
        while self.reap_step()? {}
        attempt()
    }
}
