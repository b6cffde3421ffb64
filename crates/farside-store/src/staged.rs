//! The next version of a replica, built aside and published by one record.

use std::sync::Arc;

use farside_format::ContentRoot;
use farside_format::catalog::{
    Change, Commit, CommittedVersion, DeleteVersion, Snapshot, Stage, VersionKind,
};
use farside_platform::{BLOCK_BYTES, Timestamp};
use uuid::Uuid;

use crate::error::{Result, StoreError};
use crate::pool::{Pool, State};
use crate::space::SpaceClass;
use crate::versions::{VOLUME_BYTES_MAX, blocks};
use crate::volumes::{
    NewSnapshot, SnapshotStatus, find_snapshot, find_snapshot_by_uuid, find_volume, refuse_taken,
};

/// A staged version. Nobody sees it before it is committed; dropping the handle keeps it.
pub struct StagedVersion {
    pool: Arc<Pool>,
    volume: String,
    version: u64,
    size_bytes: u64,
}

impl Pool {
    /// Begins a staged version of `volume` as a copy of snapshot `base`, or as nothing but holes.
    pub fn stage(
        self: &Arc<Self>,
        volume: &str,
        base: Option<Uuid>,
        size_bytes: u64,
    ) -> Result<StagedVersion> {
        if size_bytes > VOLUME_BYTES_MAX || !size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(StoreError::Invalid(format!("{size_bytes} bytes is not a size of a volume")));
        }
        let mut reservation = Some(self.reserve(0, SpaceClass::Metadata)?);
        self.admit()?;
        // No consistency point meanwhile: the staged tree may be higher than its base.
        let system = self.maintenance.lock();
        let version = self.change_under_maintenance(|state| {
            let found = find_volume(state, volume)?.id;
            let base_version = match base {
                Some(uuid) => find_snapshot_by_uuid(state, volume, uuid)?.id,
                None => 0,
            };
            let version = state.versions.next_id;
            if base_version != 0
                && let Some(reservation) = reservation.take()
            {
                let effects = state.versions.version(base_version)?.raising_to(size_bytes);
                reservation.consume(state, &effects);
            }
            Ok((Change::Stage(Stage { version, volume: found, base: base_version, size_bytes }), version))
        });
        drop(system);
        if let Some(unused) = reservation {
            self.release(unused);
        }
        let staged =
            StagedVersion { pool: self.clone(), volume: volume.into(), version: version?, size_bytes };
        // What the base has past the new end does not belong to this version.
        let base_blocks = match base {
            Some(uuid) => blocks(self.snapshot(volume, uuid)?.size_bytes),
            None => 0,
        };
        if blocks(size_bytes) < base_blocks {
            self.cut(staged.version, blocks(size_bytes), base_blocks)?;
        }
        Ok(staged)
    }

    fn cut(&self, version: u64, from: u64, to: u64) -> Result<()> {
        let reservation = self.reserve(0, SpaceClass::Metadata)?;
        let mut state = self.locked();
        // Somebody may have abandoned it meanwhile: a record for it could not be replayed.
        if !state.versions.versions.get(&version).is_some_and(|v| v.is_writable()) {
            crate::space::release(&mut state, reservation);
            return Err(StoreError::Refused("the staged version was abandoned before".into()));
        }
        let effects = crate::io::unmap_in_state(&mut state, version, from, to - from)?;
        reservation.consume(&mut state, &effects);
        Ok(())
    }

    /// Throws away every staged version of a volume: what a crash left behind. Answers how many there were.
    pub fn abandon_staged(&self, volume: &str) -> Result<usize> {
        let staged: Vec<u64> = {
            let state = self.locked();
            let id = find_volume(&state, volume)?.id;
            let of_volume = state.versions.versions.values().filter(|v| v.volume == id && !v.deleted);
            of_volume.filter(|v| v.kind == VersionKind::Staged).map(|v| v.id).collect()
        };
        for version in &staged {
            self.delete_version(*version)?;
        }
        Ok(staged.len())
    }

    fn delete_version(&self, version: u64) -> Result<()> {
        self.change(|state| {
            let found = state.versions.version(version)?;
            if found.kind != VersionKind::Staged || found.deleted {
                return Err(StoreError::Refused(
                    "the staged version was committed or abandoned before".into(),
                ));
            }
            Ok((Change::DeleteVersion(DeleteVersion { version }), ()))
        })?;
        self.wake.ring();
        Ok(())
    }
}

impl StagedVersion {
    /// Writes whole blocks.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len() as u64)?;
        self.pool.write(self.version, offset, bytes, SpaceClass::Staging)
    }

    /// Makes whole blocks holes.
    pub fn discard(&self, offset: u64, length: u64) -> Result<()> {
        self.check(offset, length)?;
        let block = BLOCK_BYTES as u64;
        self.pool.unmap_blocks(self.version, offset / block, length / block, SpaceClass::Staging)
    }

    /// Reads what is staged now, verified. Past the end: zeros.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > VOLUME_BYTES_MAX) {
            return Err(StoreError::Invalid(format!("no volume reaches byte {offset}")));
        }
        self.pool.read(self.version, offset, buffer)
    }

    /// Makes everything staged so far survive a crash.
    pub fn checkpoint(&self) -> Result<()> {
        self.pool.flush()
    }

    /// Content root of what is staged.
    pub fn content_root(&self) -> Result<ContentRoot> {
        self.pool.version_root(self.version)
    }

    /// Publishes it as snapshot `new` and as what the volume shows; one record, durable when this returns. If hosts
    /// had written to the volume, their version stays as a side branch.
    pub fn commit(&self, new: &NewSnapshot) -> Result<SnapshotStatus> {
        self.pool.release(self.pool.reserve(0, SpaceClass::Metadata)?);
        let rescue_uuid = Uuid::from_bytes(self.pool.options.randomness.uuid_bytes());
        let now = self.pool.options.clock.now();
        self.pool.change(|state| {
            refuse_taken(state, &self.volume, new)?;
            let staged = state.versions.version(self.version)?;
            if staged.kind != VersionKind::Staged || staged.deleted {
                return Err(StoreError::Refused(
                    "the staged version was committed or abandoned before".into(),
                ));
            }
            let volume = find_volume(state, &self.volume)?;
            let rescue = state.versions.head_has_own_writes(volume).then(|| Snapshot {
                name: rescue_name(state, &self.volume, &new.name, now),
                uuid: rescue_uuid.as_bytes().to_vec(),
                created_at: now.0,
                ..Snapshot::default()
            });
            let committed = CommittedVersion {
                version: self.version,
                snapshot: Some(new.describe()),
                head: state.versions.next_id,
                rescue,
            };
            let epoch = state.epoch.0;
            Ok((Change::Commit(Commit { committed: vec![committed], epoch }), ()))
        })?;
        self.pool.wake.ring();
        self.pool.snapshot(&self.volume, new.uuid)
    }

    /// Throws it away.
    pub fn abandon(&self) -> Result<()> {
        self.pool.delete_version(self.version)
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        let block = BLOCK_BYTES as u64;
        let aligned = offset.is_multiple_of(block) && length.is_multiple_of(block);
        if !aligned || offset.checked_add(length).is_none_or(|end| end > self.size_bytes) {
            return Err(StoreError::Invalid(format!(
                "{length} bytes at {offset} are not whole blocks inside the staged version of {} bytes",
                self.size_bytes
            )));
        }
        Ok(())
    }
}

/// A free name for a rescued version: `rescue-` and the moment, with a number if there is one of that moment.
fn rescue_name(state: &State, volume: &str, taken: &str, now: Timestamp) -> String {
    let stem = format!("rescue-{now}");
    let free = |name: &String| name != taken && find_snapshot(state, volume, name).is_err();
    if free(&stem) {
        return stem;
    }
    (2u64..).map(|n| format!("{stem}-{n}")).find(free).expect("numbers do not end")
}
