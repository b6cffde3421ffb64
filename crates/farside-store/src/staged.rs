//! The next version of a replica, built aside and published by one record.

use std::sync::Arc;

use farside_format::catalog::{
    self, Change, Commit, CommittedVersion, DeleteVersion, Restage, Stage, VersionKind,
};
use farside_format::fingerprint::span;
use farside_format::{ContentRoot, Fingerprint};
use farside_platform::BLOCK_BYTES;
use uuid::Uuid;

use crate::delta::ChangeEffects;
use crate::error::{Result, StoreError};
use crate::handle::Difference;
use crate::main_line::{refuse_unless_replica, rescue_of_head};
use crate::near::Near;
use crate::pool::{Pool, State, admit_change};
use crate::space::SpaceClass;
use crate::versions::{VOLUME_BYTES_MAX, VersionState, blocks};
use crate::volumes::{
    NewSnapshot, SnapshotStatus, find_snapshot_by_uuid, find_volume, refuse_taken, uuid_of,
};
use crate::write_behind::Way;

/// A staged version. Nobody sees it before it is committed; dropping the handle keeps it.
pub struct StagedVersion {
    pub(crate) pool: Arc<Pool>,
    volume: String,
    pub(crate) version: u64,
    /// Where this transfer's questions were answered from lately.
    pub(crate) near: Near,
    /// Shared by all handles of the version: while there is one, somebody may be building it.
    _builder: Arc<()>,
}

/// What a staged version is being built for. The pool keeps it, so that a transfer that was cut off can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StagedFor {
    /// The relationship.
    pub relationship: Uuid,
    /// The source's snapshot that it shall become.
    pub incremental: Uuid,
}

impl StagedFor {
    fn encode(&self) -> catalog::StagedFor {
        catalog::StagedFor {
            relationship: self.relationship.as_bytes().to_vec(),
            incremental: self.incremental.as_bytes().to_vec(),
        }
    }

    pub(crate) fn of(version: &VersionState) -> StagedFor {
        let staged = version.staged.clone().unwrap_or_default();
        StagedFor { relationship: uuid_of(&staged.relationship), incremental: uuid_of(&staged.incremental) }
    }
}

/// A staged version as listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StagedStatus {
    /// The nearest snapshot of the volume that it descends from, as far as that is still there: what it began as, or an
    /// older one if that was deleted meanwhile. `None` if there is none.
    pub base: Option<Uuid>,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// What it is being built for.
    pub staged_for: StagedFor,
}

fn check_staged_size(size_bytes: u64) -> Result<()> {
    if size_bytes > VOLUME_BYTES_MAX || !size_bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(StoreError::Invalid(format!("{size_bytes} bytes is not a size of a volume")));
    }
    Ok(())
}

/// The staged version, if it is still one.
pub(crate) fn find_staged(state: &State, version: u64) -> Result<&VersionState> {
    let found = state.versions.versions.get(&version);
    found
        .filter(|v| v.kind == VersionKind::Staged && !v.deleted)
        .ok_or_else(|| StoreError::Refused("the staged version was committed or abandoned before".into()))
}

impl Pool {
    /// Begins a staged version of `volume` as a copy of snapshot `base`, or as nothing but holes.
    pub fn stage(
        self: &Arc<Self>,
        volume: &str,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<StagedVersion> {
        check_staged_size(size_bytes)?;
        let mut reservation = Some(self.reserve(0, SpaceClass::Metadata)?);
        // Whoever drops what nobody builds must see from the first moment that somebody does.
        let builder = Arc::default();
        let staged = self.admit().and_then(|()| {
            // No consistency point meanwhile: the staged tree may be higher than its base.
            let _system = self.maintenance.lock();
            self.change_and_then(
                |state| {
                    let found = find_volume(state, volume)?.id;
                    let (base_version, base_blocks, raised) = match base {
                        Some(uuid) => {
                            let base = find_snapshot_by_uuid(state, volume, uuid)?;
                            (base.id, blocks(base.size_bytes), base.raising_to(size_bytes).new_inner)
                        }
                        None => (0, 0, 0),
                    };
                    let version = state.versions.next_id;
                    let staged = Some(staged_for.encode());
                    let stage = Stage { version, volume: found, base: base_version, size_bytes, staged };
                    Ok((Change::Stage(stage), (version, base_blocks, raised)))
                },
                |state, (version, base_blocks, raised)| {
                    state.versions.version_mut(*version)?.builder = Arc::downgrade(&builder);
                    // What the base has past the new end does not belong to this version. Nor does what a damaged node of the
                    // base says of blocks past its old end: they were holes.
                    let (new_blocks, base_blocks) = (blocks(size_bytes), *base_blocks);
                    let mut effects = ChangeEffects::default();
                    if base_blocks > 0 && new_blocks != base_blocks {
                        let (from, to) = (new_blocks.min(base_blocks), new_blocks.max(base_blocks));
                        effects = crate::io::unmap_in_state(state, *version, from, to - from)?;
                    }
                    effects.new_inner += raised;
                    if let Some(reservation) = reservation.take() {
                        reservation.consume(state, &effects);
                    }
                    Ok(())
                },
            )
        });
        if let Some(unused) = reservation {
            self.release(unused);
        }
        let (version, ..) = staged?;
        let near = Near::default();
        Ok(StagedVersion { pool: self.clone(), volume: volume.into(), version, near, _builder: builder })
    }

    /// Staged versions of a volume that are neither committed nor abandoned, newest last.
    pub fn staged(self: &Arc<Self>, volume: &str) -> Result<Vec<StagedVersion>> {
        let state = self.locked();
        let id = find_volume(&state, volume)?.id;
        let live = state.versions.versions.values().filter(|v| v.volume == id && !v.deleted);
        let staged: Vec<_> = live
            .filter(|v| v.kind == VersionKind::Staged)
            .map(|v| (v.id, blocks(v.size_bytes), span(v.level())))
            .collect();
        drop(state);
        for (version, end, height) in &staged {
            // A crash may have come between the beginning of a version smaller than its base and the cut.
            let past_the_end = self.mapped_ranges(*version, *end, height.saturating_sub(*end), 1)?;
            if past_the_end.iter().any(|(count, mapped)| *mapped || end + count < *height) {
                self.cut(*version, *end, *height)?;
            }
        }
        Ok(staged.into_iter().map(|(version, _, _)| self.staged_handle(volume, version)).collect())
    }

    fn staged_handle(self: &Arc<Self>, volume: &str, version: u64) -> StagedVersion {
        let mut state = self.locked();
        let found = state.versions.versions.get_mut(&version);
        // One that is gone meanwhile: its handle answers each call with that.
        let builder = found.map_or_else(Arc::default, |found| {
            found.builder.upgrade().unwrap_or_else(|| {
                let builder = Arc::default();
                found.builder = Arc::downgrade(&builder);
                builder
            })
        });
        StagedVersion {
            pool: self.clone(),
            volume: volume.into(),
            version,
            near: Near::default(),
            _builder: builder,
        }
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
    pub fn abandon_staged(self: &Arc<Self>, volume: &str) -> Result<usize> {
        let staged = self.staged(volume)?;
        for version in &staged {
            version.abandon()?;
        }
        Ok(staged.len())
    }

    /// Publishes staged versions of several volumes of this pool in one record, each as [`StagedVersion::commit`] does: whoever
    /// looks, after whatever crash, sees all of them or none.
    ///
    /// # Errors
    /// If one of them is refused, none is published.
    pub fn commit_together(
        self: &Arc<Self>,
        versions: &[(&StagedVersion, NewSnapshot)],
    ) -> Result<Vec<SnapshotStatus>> {
        if versions.is_empty() {
            return Ok(Vec::new());
        }
        if versions.iter().any(|(staged, _)| !Arc::ptr_eq(&staged.pool, self)) {
            return Err(StoreError::Refused(
                "volumes of several pools are not published in one record".into(),
            ));
        }
        self.release(self.reserve(0, SpaceClass::Metadata)?);
        let rescues: Vec<Uuid> =
            versions.iter().map(|_| Uuid::from_bytes(self.options.randomness.uuid_bytes())).collect();
        let now = self.options.clock.now();
        self.change(|state| {
            let mut committed: Vec<CommittedVersion> = Vec::with_capacity(versions.len());
            for ((staged, new), (head, rescue)) in
                versions.iter().zip((state.versions.next_id..).zip(&rescues))
            {
                // Of a volume that is named twice the second would be refused by nothing else.
                if versions.iter().filter(|(other, _)| other.volume == staged.volume).count() > 1 {
                    return Err(StoreError::Invalid(format!("{} is named twice", staged.volume)));
                }
                staged.check_commit(state, new)?;
                let rescue = rescue_of_head(state, &staged.volume, staged.version, &new.name, *rescue, now)?;
                committed.push(CommittedVersion {
                    version: staged.version,
                    snapshot: Some(new.describe()),
                    head,
                    rescue,
                });
            }
            let epoch = state.epoch.0;
            Ok((Change::Commit(Commit { committed, epoch }), ()))
        })?;
        self.wake.signal();
        versions.iter().map(|(staged, new)| self.snapshot(&staged.volume, new.uuid)).collect()
    }

    fn delete_version(&self, version: u64) -> Result<()> {
        self.make_way_to_free();
        self.change(|state| {
            find_staged(state, version)?;
            Ok((Change::DeleteVersion(DeleteVersion { version }), ()))
        })?;
        self.wake.signal();
        Ok(())
    }
}

impl StagedVersion {
    /// What it began as, its size, and what it is being built for.
    pub fn status(&self) -> Result<StagedStatus> {
        let state = self.pool.locked();
        let version = find_staged(&state, self.version)?;
        let base = state.versions.live_ancestor(version).filter(|a| a.volume == version.volume);
        Ok(StagedStatus {
            base: base.and_then(|b| b.snapshot.as_ref()).map(|s| uuid_of(&s.uuid)),
            size_bytes: version.size_bytes,
            staged_for: StagedFor::of(version),
        })
    }

    /// Gives it another size, durably: what lies past a smaller one is dropped, a larger one shows zeros there.
    pub fn resize(&self, size_bytes: u64) -> Result<()> {
        check_staged_size(size_bytes)?;
        let mut reservation = Some(self.pool.reserve(0, SpaceClass::Metadata)?);
        self.pool.admit()?;
        // No consistency point meanwhile: it would find trees of two heights.
        let system = self.pool.maintenance.lock();
        let done = self.pool.change_under_maintenance(|state| {
            let version = find_staged(state, self.version)?;
            let (old_blocks, new_blocks) = (blocks(version.size_bytes), blocks(size_bytes));
            let change = Change::Restage(Restage {
                version: self.version,
                size_bytes,
                staged: version.staged.clone(),
            });
            admit_change(state, &change)?;
            let effects = if new_blocks < old_blocks {
                let count = old_blocks - new_blocks;
                crate::io::unmap_in_state(state, self.version, new_blocks, count)?
            } else {
                crate::io::unmap_what_growth_adds(state, self.version, size_bytes)?
            };
            if let Some(reservation) = reservation.take() {
                reservation.consume(state, &effects);
            }
            Ok((change, ()))
        });
        drop(system);
        if let Some(unused) = reservation {
            self.pool.release(unused);
        }
        done
    }

    /// Says, durably, that it shall become another snapshot of the source than was meant before.
    pub fn retarget(&self, incremental: Uuid) -> Result<()> {
        self.pool.change(|state| {
            let version = find_staged(state, self.version)?;
            let staged = StagedFor { incremental, ..StagedFor::of(version) };
            Ok((
                Change::Restage(Restage {
                    version: self.version,
                    size_bytes: version.size_bytes,
                    staged: Some(staged.encode()),
                }),
                (),
            ))
        })
    }

    /// What is staged that snapshot `base` of the volume has not; against nothing, every block that is staged. Metadata
    /// only. What is staged while the walk runs may be in it or not.
    pub fn changed_from(&self, base: Option<Uuid>) -> Result<Difference> {
        let mut state = self.pool.locked();
        let base = match base {
            Some(uuid) => Some(find_snapshot_by_uuid(&state, &self.volume, uuid)?.id),
            None => None,
        };
        find_staged(&state, self.version)?;
        Difference::begin(&self.pool, &mut state, base, self.version)
    }

    /// Fingerprints of `count` blocks from block `first` on, as staged now; past the end: holes. Metadata only; at most
    /// [`crate::FINGERPRINTS_MAX`] at once.
    pub fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>> {
        find_staged(&self.pool.locked(), self.version)?;
        self.pool.version_fingerprints(self.version, first, count)
    }

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
        self.pool.read(self.version, offset, buffer, Way::Direct)
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
    ///
    /// # Errors
    /// Refused if it is to be pinned for a relationship that it was not staged for, or whose replica the volume is not at this
    /// moment: what a mirror sends ends with the mirror, however long it was under way.
    pub fn commit(&self, new: &NewSnapshot) -> Result<SnapshotStatus> {
        let done = self.pool.commit_together(&[(self, new.clone())])?;
        done.into_iter().next().ok_or_else(|| StoreError::Inconsistent("a commit of nothing".into()))
    }

    /// Whether it may be published as `new` at this moment.
    fn check_commit(&self, state: &State, new: &NewSnapshot) -> Result<()> {
        refuse_taken(state, &self.volume, new)?;
        let (volume, staged) = (find_volume(state, &self.volume)?, find_staged(state, self.version)?);
        if staged.volume != volume.id {
            return Err(StoreError::Refused(format!(
                "{} is another volume than the one this was staged for",
                state.full_name(&self.volume)
            )));
        }
        if let Some(relationship) = new.pin_for {
            refuse_unless_replica(state, volume, relationship)?;
            if StagedFor::of(staged).relationship != relationship {
                return Err(StoreError::Refused(format!(
                    "what is staged of {} is another relationship's; nothing was changed",
                    state.full_name(&self.volume)
                )));
            }
        }
        Ok(())
    }

    /// Throws it away.
    pub fn abandon(&self) -> Result<()> {
        self.pool.delete_version(self.version)
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        let block = BLOCK_BYTES as u64;
        let aligned = offset.is_multiple_of(block) && length.is_multiple_of(block);
        let size_bytes = find_staged(&self.pool.locked(), self.version)?.size_bytes;
        if !aligned || offset.checked_add(length).is_none_or(|end| end > size_bytes) {
            return Err(StoreError::Invalid(format!(
                "{length} bytes at {offset} are not whole blocks inside the staged version of {size_bytes} bytes"
            )));
        }
        Ok(())
    }
}
