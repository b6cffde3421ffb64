//! The next version of a replica: staged in the image's head, which hosts do not see meanwhile.

use std::any::Any;
use std::sync::Arc;

use farside_format::{ContentRoot, Fingerprint};
use farside_platform::Timestamp;
use uuid::Uuid;

use super::ceph::Writes;
use super::comparison::differs;
use super::difference::Walk;
use super::document::{Document, Kept, Staging, hex};
use super::errors::explained;
use super::head::lasts;
use super::held::Head;
use super::leaves::Leaves;
use super::roots;
use super::snapshots::free_name;
use super::version::Version;
use super::volume::Volume;
use crate::{
    BLOCK_BYTES, ChangedExtents, EngineError, SnapshotInfo, SnapshotOwner, SnapshotSpec, StagedFor,
    StagedInfo, StagedVersion,
};

/// A staged version.
pub(super) struct Staged {
    pub(super) volume: Volume,
    /// Its own identity.
    pub(super) uuid: Uuid,
}

impl Volume {
    /// Begins one: the head becomes `base`, or nothing but holes.
    pub(super) fn stage(
        &self,
        head: &mut Head,
        base: Option<Uuid>,
        size_bytes: u64,
        staged_for: StagedFor,
    ) -> Result<Uuid, EngineError> {
        let document = self.load()?;
        let base_at = base.map(|base| document.entry(base).map(|entry| entry.at)).transpose()?;
        if document.staged.is_some() {
            return Err(EngineError::Refused(format!(
                "another version of volume {} is staged: there is room for one at a time. Nothing was changed",
                self.name
            )));
        }
        if !size_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(EngineError::Invalid(format!(
                "{size_bytes} bytes are not whole blocks of {BLOCK_BYTES}"
            )));
        }
        head.hold(self)?;
        // Whether the head is still just what is shown.
        let was_hidden = document.shown.is_some();
        let shown = head.hide(self, base)?;
        match base_at {
            Some(base_at) if !was_hidden && shown.uuid == base_at.uuid => {}
            Some(base_at) => head.roll_back(self, &base_at)?,
            None => head.resize(self, 0)?,
        }
        head.resize(self, size_bytes)?;
        let uuid = Uuid::new_v4();
        let StagedFor { relationship, incremental } = staged_for;
        self.change("begin to stage", |document| {
            if let Some(base) = base {
                document.entry(base)?;
            }
            document.staged = Some(Staging { uuid, base, relationship, incremental, parked: None });
            Ok(())
        })?;
        head.drop_writes();
        head.staged = Some(uuid);
        Ok(uuid)
    }

    /// Throws away what is staged, if it is `only` or that is not said. Answers whether something was.
    pub(super) fn abandon(&self, head: &mut Head, only: Option<Uuid>) -> Result<bool, EngineError> {
        let was = self.change("throw away what is staged", |document| {
            let is_it = |staging: &Staging| only.is_none_or(|only| only == staging.uuid);
            Ok(document.staged.as_ref().is_some_and(is_it) && document.drop_staged())
        })?;
        if was {
            head.drop_writes();
            // It is thrown away. What cannot be brought back now is when it is needed, or at the next start.
            _ = head.restore(self).and_then(|()| self.clear_garbage(head));
        }
        Ok(was)
    }

    /// The size of the staged version, bytes.
    fn staged_bytes(&self, document: &Document, staged: Uuid) -> Result<u64, EngineError> {
        let parked = document.staging(staged)?.parked;
        parked.map_or_else(|| self.head_bytes(), |parked| Ok(parked.size_bytes))
    }

    /// The version that was shown, if hosts wrote what no other keeps: it goes out of sight with this commit.
    fn to_rescue(
        &self,
        document: &Document,
        staged: Uuid,
        head: &Version,
    ) -> Result<Option<Kept>, EngineError> {
        let Some(shown) = document.shown else { return Ok(None) };
        let base = document.staging(staged)?.base;
        let mut lasting = document.snapshots.iter().rev().filter(|entry| lasts(document, entry, base));
        if lasting.clone().any(|entry| entry.at.uuid == shown.uuid) {
            return Ok(None);
        }
        let shown_version = Version::of(self, &shown)?;
        let newest = lasting.next().map(|entry| Version::of(self, &entry.at)).transpose()?;
        let is_kept =
            !differs(self, newest.as_ref(), &shown_version)? || !differs(self, Some(&shown_version), head)?;
        Ok((!is_kept).then_some(shown))
    }

    /// Publishes what is staged.
    pub(super) fn publish(
        &self,
        head: &mut Head,
        staged: Uuid,
        spec: &SnapshotSpec,
    ) -> Result<SnapshotInfo, EngineError> {
        let document = self.load()?;
        document.check_commit(staged, spec)?;
        let image = head.ready(self, staged)?;
        head.finish_writes(self)?;
        let document = self.load()?;
        let rescued = self.to_rescue(&document, staged, &Version::of_head(self, image)?)?;
        let root = head.root.take();
        let kept = self.keep_head(head)?;
        if let Some((_, leaves)) = &root {
            leaves.keep(self, &kept);
        }
        let root = root.map(|(root, _)| hex(&root.0));
        let info = self.change("publish", |document| {
            document.check_commit(staged, spec)?;
            if let Some(rescued) = rescued {
                let rescue = rescue(document, spec);
                document.add(&rescue, rescued, None)?;
            }
            let info = document.add(spec, kept, root.clone())?;
            document.published = Some(info.uuid);
            document.drop_staged();
            document.show_head();
            Ok(info)
        })?;
        head.drop_writes();
        // It is published. What is left to be cleared away is another time, too.
        if !document.is_replica() {
            head.release();
        }
        _ = self.clear_garbage(head);
        Ok(info)
    }
}

/// What is set aside when `spec` is published.
fn rescue(document: &Document, spec: &SnapshotSpec) -> SnapshotSpec {
    let moment: Timestamp = spec.created_at;
    SnapshotSpec {
        name: free_name(document, &format!("rescue-{moment}")),
        uuid: Uuid::new_v4(),
        created_at: moment,
        owner: SnapshotOwner::Person,
        pin_for: None,
    }
}

fn writes<'a>(volume: &Volume, head: &'a mut Head) -> Result<&'a mut Writes, EngineError> {
    let lost = || EngineError::Refused(format!("the lock of volume {} is not held", volume.name));
    head.writes().ok_or_else(lost)
}

impl Staged {
    fn on<T>(
        &self,
        work: impl FnOnce(&Volume, &mut Head) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.volume.in_turn(|head| work(&self.volume, head))
    }

    /// The head, with everything that was written.
    fn version(&self) -> Result<Version, EngineError> {
        self.on(|volume, head| {
            let image = head.ready(volume, self.uuid)?;
            head.finish_writes(volume)?;
            Version::of_head(volume, image)
        })
    }

    /// Refuses what is not whole blocks inside the version.
    fn check(&self, size_bytes: u64, offset: u64, length: u64) -> Result<(), EngineError> {
        let is_whole = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
        if is_whole && offset.checked_add(length).is_some_and(|end| end <= size_bytes) {
            return Ok(());
        }
        Err(EngineError::Invalid(format!(
            "{length} bytes at {offset} are not whole blocks inside {size_bytes} bytes"
        )))
    }
}

impl StagedVersion for Staged {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> Result<StagedInfo, EngineError> {
        let document = self.volume.load()?;
        let size_bytes = self.volume.staged_bytes(&document, self.uuid)?;
        Ok(document.staging(self.uuid)?.info(size_bytes))
    }

    fn resize(&self, size_bytes: u64) -> Result<(), EngineError> {
        self.check(size_bytes, 0, size_bytes)?;
        self.on(|volume, head| {
            head.ready(volume, self.uuid)?;
            head.resize(volume, size_bytes)
        })
    }

    fn retarget(&self, incremental: Uuid) -> Result<(), EngineError> {
        self.volume.change("retarget", |document| {
            document.staging(self.uuid)?;
            if let Some(staging) = &mut document.staged {
                staging.incremental = incremental;
            }
            Ok(())
        })
    }

    fn changed_from(&self, base: Option<Uuid>) -> Result<ChangedExtents, EngineError> {
        let now = self.version()?;
        let document = self.volume.load()?;
        let base = base.map(|base| self.volume.version(&document, base)).transpose()?;
        Ok(Box::new(Walk::new(self.volume.clone(), base, now)))
    }

    fn fingerprints(&self, first: u64, count: u64) -> Result<Vec<Fingerprint>, EngineError> {
        roots::of_blocks(&self.volume, &self.version()?, first, count)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), EngineError> {
        self.on(|volume, head| {
            let image = head.ready(volume, self.uuid)?;
            let size_bytes = image.size_bytes().map_err(|failed| volume.failed("the size", failed))?;
            self.check(size_bytes, offset, bytes.len() as u64)?;
            let written = writes(volume, head)?.write(offset, bytes);
            written.map_err(|failed| {
                explained(
                    &volume.pool,
                    &format!("a write to volume {}", volume.name),
                    failed,
                    bytes.len() as u64,
                )
            })
        })
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), EngineError> {
        self.on(|volume, head| {
            let image = head.ready(volume, self.uuid)?;
            let size_bytes = image.size_bytes().map_err(|failed| volume.failed("the size", failed))?;
            self.check(size_bytes, offset, length)?;
            let written = writes(volume, head)?.zero(offset, length);
            written.map_err(|failed| volume.failed("a hole", failed))
        })
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), EngineError> {
        self.version()?.read(&self.volume, offset, buffer)
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.on(|volume, head| {
            head.ready(volume, self.uuid)?;
            volume.inner.steps.take("finish what is being written")?;
            head.finish_writes(volume)
        })
    }

    /// From the leaves of the nearest snapshot and what differs from it, read here. Who writes meanwhile has it made again at the next
    /// asking.
    fn content_root(&self) -> Result<ContentRoot, EngineError> {
        let known = self.on(|volume, head| {
            head.ready(volume, self.uuid)?;
            head.root_is_being_made = true;
            Ok(head.root.as_ref().map(|(root, _)| *root))
        })?;
        if let Some(known) = known {
            return Ok(known);
        }
        let (now, document) = (self.version()?, self.volume.load()?);
        let made: Leaves = roots::made_from_nearest(&self.volume, &document, &now, u64::MAX)?;
        let root = made.root();
        self.on(|_, head| {
            if head.root_is_being_made && head.staged == Some(self.uuid) {
                head.root = Some((root, Arc::new(made)));
            }
            Ok(())
        })?;
        Ok(root)
    }

    fn commit(&self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        self.on(|volume, head| volume.publish(head, self.uuid, spec))
    }

    fn abandon(&self) -> Result<(), EngineError> {
        self.on(|volume, head| volume.abandon(head, Some(self.uuid)).map(drop))
    }
}
