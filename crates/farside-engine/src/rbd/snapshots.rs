//! Snapshots: taken, deleted, pinned, handed over; and volumes, made and deleted with them.

use farside_platform::Timestamp;
use uuid::Uuid;

use super::ceph::Image;
use super::document::{Document, name_of};
use super::errors::{explained, is_absent};
use super::held::Head;
use super::state::RbdEngine;
use super::version::Version;
use super::volume::Volume;
use crate::{
    BLOCK_BYTES, EngineError, SnapshotInfo, SnapshotOwner, SnapshotSpec, VolumeInfo, VolumeName, is_label,
};

/// Of images that farside makes: layering, exclusive-lock, object-map, fast-diff, deep-flatten.
const FEATURES: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 5;

impl RbdEngine {
    pub(super) fn make_volume(&self, name: &VolumeName, size_bytes: u64) -> Result<VolumeInfo, EngineError> {
        if !is_label(&name.volume) {
            return Err(EngineError::BadName { name: name.to_string() });
        }
        if !size_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(EngineError::Invalid(format!(
                "{size_bytes} bytes are not whole blocks of {BLOCK_BYTES}"
            )));
        }
        if let Some(volume) = self.find(name)? {
            match volume.load_any()? {
                // Of one that was deleted something is left.
                Some((document, _)) if document.deleted => {
                    volume.in_turn(|head| volume.finish_deletion(head, &document))?
                }
                _ => return Err(EngineError::Exists { what: format!("volume {name}") }),
            }
        }
        let pool = self.pool(&name.pool)?;
        self.inner.steps.take("create an image")?;
        let made = pool.ceph.create_image(&name.volume, size_bytes, FEATURES);
        made.map_err(|failed| explained(&pool, &format!("volume {name}"), failed, 0))?;
        let (volume, document) = self.locate(name)?;
        volume.info(&document)
    }
}

impl Volume {
    pub(super) fn info(&self, document: &Document) -> Result<VolumeInfo, EngineError> {
        Ok(VolumeInfo {
            name: self.name.clone(),
            uuid: self.uuid(),
            size_bytes: self.shown_bytes(document)?,
            occupied_bytes: None,
            is_replica: document.is_replica(),
        })
    }

    pub(super) fn delete(&self, head: &mut Head) -> Result<(), EngineError> {
        let document = self.load()?;
        let refused = |why: String| {
            Err(EngineError::Refused(format!("volume {} {why}. Nothing was deleted", self.name)))
        };
        if let Some(entry) = document.snapshots.iter().find(|entry| !entry.pinned_by.is_empty()) {
            return refused(format!("has the snapshot {}, which a mirror needs", entry.name));
        }
        {
            let image = self.opened()?;
            let of = image.snapshots().map_err(|failed| self.failed("the snapshots", failed))?;
            let own: Vec<String> = document.all_kept().into_iter().map(name_of).collect();
            if let Some(other) = of.iter().find(|snapshot| !own.contains(&snapshot.name)) {
                return refused(format!("has the snapshot {}, which farside did not make", other.name));
            }
            let own = self.pool.ceph.connection.number();
            let clients = image.watchers().map_err(|failed| self.failed("its clients", failed))?;
            if let Some((other, address)) = clients.iter().find(|(client, _)| *client != own) {
                return refused(format!(
                    "is open by client.{other} ({address}; rbd status {})",
                    self.image_name()
                ));
            }
        }
        let deleted = self.change("delete the volume", |document| {
            if document.snapshots.iter().any(|entry| !entry.pinned_by.is_empty()) {
                return Err(EngineError::Refused(
                    "a snapshot was pinned just now. Nothing was deleted".into(),
                ));
            }
            document.garbage = document.all_kept();
            document.garbage.sort();
            document.garbage.dedup();
            (document.snapshots, document.shown, document.staged) = (Vec::new(), None, None);
            document.deleted = true;
            Ok(document.clone())
        })?;
        // It is deleted; what cannot go now goes another time.
        _ = self.finish_deletion(head, &deleted);
        Ok(())
    }

    /// What is left of a deleted volume goes. Where somebody reads it, it gets another name, and goes afterwards.
    pub(super) fn finish_deletion(&self, head: &mut Head, document: &Document) -> Result<(), EngineError> {
        head.release();
        let aside = format!("farside-deleted-{}", self.id);
        let failed = |failed| self.failed("the image", failed);
        if document.garbage.iter().any(|kept| self.is_read(*kept)) {
            if self.name.volume != aside {
                self.inner.steps.take("rename the image")?;
                self.pool.ceph.rename_image(&self.name.volume, &aside).map_err(failed)?;
            }
            return Ok(());
        }
        {
            let image = Image::open(&self.pool.ceph, &self.id).map_err(failed)?;
            self.remove_snapshots(&image, &document.garbage)?;
        }
        self.inner.steps.take("remove the image")?;
        match self.pool.ceph.remove_image(&self.name.volume) {
            Err(gone) if is_absent(gone) => Ok(()),
            done => done.map_err(failed),
        }
    }

    /// What was waited for can go: garbage, or all that is left of a deleted volume.
    pub(super) fn clear_away(&self) -> Result<(), EngineError> {
        let Some((document, _)) = self.load_any()? else { return Ok(()) };
        if !document.deleted {
            return self.in_turn(|head| self.clear_garbage(head));
        }
        // It may have got another name.
        let images = self.pool.ceph.images().map_err(|failed| self.failed("the images", failed))?;
        let Some((_, name)) = images.into_iter().find(|(id, _)| *id == self.id) else { return Ok(()) };
        let mut volume = self.clone();
        volume.name.volume = name;
        volume.in_turn(|head| volume.finish_deletion(head, &document))
    }

    /// Takes a snapshot of what hosts see.
    pub(super) fn take(&self, head: &mut Head, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        let document = self.load()?;
        document.check_free(spec)?;
        let size_bytes = self.shown_bytes(&document)?;
        if !size_bytes.is_multiple_of(BLOCK_BYTES) {
            return Err(EngineError::Refused(format!(
                "volume {} has {size_bytes} bytes, which are not whole blocks of {BLOCK_BYTES}: it cannot be mirrored. No snapshot was \
                 taken. To make it larger: rbd resize --size …M {}",
                self.name,
                self.image_name()
            )));
        }
        // What hosts are shown while the head is hidden is a snapshot already: it stands for this one too.
        let kept = match document.shown {
            Some(shown) => shown,
            None => self.keep_head(head)?,
        };
        self.change("record the snapshot", |document| document.add(spec, kept, None))
    }

    pub(super) fn hand_over(
        &self,
        snapshot: Uuid,
        owner: SnapshotOwner,
        stem: &str,
        moment: Option<Timestamp>,
    ) -> Result<SnapshotInfo, EngineError> {
        self.change("hand the snapshot over", |document| {
            let moment = moment.unwrap_or(document.entry(snapshot)?.info().created_at);
            let name = free_name(document, &format!("{stem}-{moment}"));
            let entry = document.entry_mut(snapshot)?;
            entry.name = name;
            entry.relationship = match owner {
                SnapshotOwner::Person => None,
                SnapshotOwner::Relationship(relationship) => Some(relationship),
            };
            Ok(entry.info())
        })
    }

    pub(super) fn version(&self, document: &Document, snapshot: Uuid) -> Result<Version, EngineError> {
        Version::of(self, &document.entry(snapshot)?.at)
    }

    /// What hosts see.
    pub(super) fn shown(&self, document: &Document) -> Result<Version, EngineError> {
        document.shown.map_or_else(|| Version::head(self), |shown| Version::of(self, &shown))
    }
}

/// `name`, or with a number behind it the first that is not taken.
pub(super) fn free_name(document: &Document, name: &str) -> String {
    let numbered = (2..).map(|number: u64| format!("{name}-{number}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names.find(|name| document.is_free(name)).unwrap_or_default()
}
