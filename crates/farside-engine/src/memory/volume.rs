//! A volume: what hosts see, its snapshots, and what is staged of it.

use std::sync::atomic::{AtomicU64, Ordering};

use farside_format::pins::rotates;
use farside_platform::Timestamp;
use uuid::Uuid;

use super::image::Image;
use crate::{EngineError, ReplicaRecord, SnapshotInfo, SnapshotOwner, SnapshotSpec, StagedFor};

/// Rescued versions of all engines: no two have one identity.
static RESCUES: AtomicU64 = AtomicU64::new(0);
static SEQUENCE: AtomicU64 = AtomicU64::new(0);

#[derive(Clone)]
pub(super) struct Volume {
    pub(super) uuid: Uuid,
    pub(super) live: Image,
    /// Hosts wrote since the head began, or since the last snapshot of it.
    pub(super) is_written: bool,
    /// The snapshot that the head descends from.
    pub(super) parent: Option<Uuid>,
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) record: Option<ReplicaRecord>,
    pub(super) staged: Option<Staging>,
}

#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) info: SnapshotInfo,
    pub(super) image: Image,
    pub(super) parent: Option<Uuid>,
}

#[derive(Clone)]
pub(super) struct Staging {
    pub(super) number: u64,
    pub(super) base: Option<Uuid>,
    pub(super) staged_for: StagedFor,
    pub(super) image: Image,
    /// The image as it was last made durable.
    pub(super) saved: Image,
}

impl Volume {
    pub(super) fn new(uuid: Uuid, size_bytes: u64) -> Volume {
        Volume {
            uuid,
            live: Image { size_bytes, ..Image::default() },
            is_written: false,
            parent: None,
            snapshots: Vec::new(),
            record: None,
            staged: None,
        }
    }

    pub(super) fn position(&self, snapshot: Uuid) -> Result<usize, EngineError> {
        let found = self.snapshots.iter().position(|s| s.info.uuid == snapshot);
        found.ok_or_else(|| EngineError::NotFound { what: format!("snapshot {snapshot}") })
    }

    pub(super) fn image(&self, snapshot: Uuid) -> Result<&Image, EngineError> {
        Ok(&self.snapshots[self.position(snapshot)?].image)
    }

    pub(super) fn is_free(&self, name: &str) -> bool {
        self.snapshots.iter().all(|s| s.info.name != name)
    }

    pub(super) fn base_image(&self, base: Option<Uuid>) -> Result<Image, EngineError> {
        base.map_or(Ok(Image::default()), |base| self.image(base).cloned())
    }

    /// Refuses a snapshot whose name or identity is taken.
    pub(super) fn check_free(&self, spec: &SnapshotSpec) -> Result<(), EngineError> {
        if self.snapshots.iter().any(|s| s.info.name == spec.name || s.info.uuid == spec.uuid) {
            return Err(EngineError::Exists { what: format!("snapshot {}", spec.name) });
        }
        Ok(())
    }

    fn add(
        &mut self,
        spec: &SnapshotSpec,
        image: Image,
        parent: Option<Uuid>,
    ) -> Result<SnapshotInfo, EngineError> {
        self.check_free(spec)?;
        let info = SnapshotInfo {
            name: spec.name.clone(),
            uuid: spec.uuid,
            created_at: spec.created_at,
            size_bytes: image.size_bytes,
            owner: spec.owner,
            held: false,
            pinned_by: spec.pin_for.into_iter().collect(),
            sequence: SEQUENCE.fetch_add(1, Ordering::SeqCst),
        };
        self.snapshots.push(Snapshot { info: info.clone(), image, parent });
        Ok(info)
    }

    /// Of what hosts see now.
    pub(super) fn take(&mut self, spec: &SnapshotSpec) -> Result<SnapshotInfo, EngineError> {
        let info = self.add(spec, self.live.clone(), self.parent)?;
        self.parent = Some(info.uuid);
        // What a mirror took goes when the mirror needs it no more.
        self.is_written &= spec.owner != SnapshotOwner::Person;
        Ok(info)
    }

    /// Refuses to publish what is staged for anybody but the mirror that the volume is the replica of.
    pub(super) fn check_commit(&self, number: u64, spec: &SnapshotSpec) -> Result<(), EngineError> {
        self.check_free(spec)?;
        let staged = self.staging(number)?;
        let Some(relationship) = spec.pin_for else { return Ok(()) };
        self.check_replica(relationship)?;
        if staged.staged_for.relationship == relationship {
            return Ok(());
        }
        Err(EngineError::Refused("what is staged is another relationship's".into()))
    }

    pub(super) fn check_replica(&self, relationship: Uuid) -> Result<(), EngineError> {
        match &self.record {
            Some(record) if record.relationship == relationship && !record.broken_off => Ok(()),
            _ => Err(EngineError::Refused("it is not the replica of this relationship".into())),
        }
    }

    pub(super) fn staging(&self, number: u64) -> Result<&Staging, EngineError> {
        let found = self.staged.as_ref().filter(|staging| staging.number == number);
        found.ok_or_else(|| EngineError::Refused("this staged version is gone".into()))
    }

    /// What is staged becomes a snapshot and what hosts see. With `beside` what it replaces stays on a side branch, else before it
    /// on the line.
    pub(super) fn publish(
        &mut self,
        number: u64,
        spec: &SnapshotSpec,
        beside: bool,
    ) -> Result<SnapshotInfo, EngineError> {
        self.check_commit(number, spec)?;
        let Staging { image, base, .. } = self.staging(number)?.clone();
        self.staged = None;
        if beside {
            let info = self.add(spec, image, base)?;
            self.replace_head(info.uuid, None)?;
            return Ok(info);
        }
        // What a mirror took goes when the mirror needs it no more; but for what this stands upon.
        let lasts = |s: &Snapshot| self.lasts(s) || Some(s.info.uuid) == base;
        let is_kept = image == self.live || self.snapshots.iter().any(|s| lasts(s) && s.image == self.live);
        let is_own = self.shows_what_rotates();
        if (std::mem::take(&mut self.is_written) || is_own) && !is_kept {
            self.rescue(self.live.clone(), self.parent, &spec.name, None)?;
        }
        self.live = image.clone();
        let info = self.add(spec, image, base)?;
        self.parent = Some(info.uuid);
        Ok(info)
    }

    /// The head begins anew as a snapshot. What hosts wrote stays as a side branch.
    pub(super) fn replace_head(
        &mut self,
        snapshot: Uuid,
        moment: Option<Timestamp>,
    ) -> Result<Option<SnapshotInfo>, EngineError> {
        let image = self.image(snapshot)?.clone();
        let is_own = self.shows_what_rotates()
            && !self.snapshots.iter().any(|s| self.lasts(s) && s.image == self.live);
        let old = std::mem::replace(&mut self.live, image);
        let parent = self.parent.replace(snapshot);
        let is_on_new_line = self.main_line().iter().any(|uuid| self.image(*uuid).is_ok_and(|i| *i == old));
        if !(std::mem::take(&mut self.is_written) || is_own) || is_on_new_line {
            return Ok(None);
        }
        self.rescue(old, parent, "", moment).map(Some)
    }

    /// Whether what a snapshot holds is there for as long as somebody wants it.
    fn lasts(&self, snapshot: &Snapshot) -> bool {
        let info = &snapshot.info;
        let mirror = self.record.as_ref().map(|record| record.relationship);
        let rotates = !info.held && rotates(self.uuid, mirror, info.pinned_by.iter().copied());
        info.owner == SnapshotOwner::Person && !rotates
    }

    /// The head began as a person's snapshot that goes one day by itself: what it holds is the head's then.
    fn shows_what_rotates(&self) -> bool {
        let began = self.parent.and_then(|parent| self.snapshots.iter().find(|s| s.info.uuid == parent));
        began.is_some_and(|s| s.info.owner == SnapshotOwner::Person && !self.lasts(s))
    }

    fn rescue(
        &mut self,
        image: Image,
        parent: Option<Uuid>,
        taken: &str,
        moment: Option<Timestamp>,
    ) -> Result<SnapshotInfo, EngineError> {
        let newest = || self.snapshots.iter().map(|s| s.info.created_at).max().unwrap_or_default();
        let moment = moment.unwrap_or_else(newest);
        let named = |number: usize| format!("rescue-{moment}-{number}");
        let is_free = |name: &String| name != taken && self.is_free(name);
        let spec = SnapshotSpec {
            name: (self.snapshots.len()..).map(named).find(is_free).expect("numbers do not end"),
            uuid: Uuid::from_u128(0x7e5c << 64 | u128::from(RESCUES.fetch_add(1, Ordering::SeqCst))),
            created_at: moment,
            owner: SnapshotOwner::Person,
            pin_for: None,
        };
        self.add(&spec, image, parent)
    }

    /// Deletes a snapshot, whoever needs it.
    pub(super) fn remove(&mut self, at: usize) -> Result<(), EngineError> {
        let gone = self.snapshots.remove(at);
        let (gone, parent, gone_image) = (Some(gone.info.uuid), gone.parent, gone.image);
        for child in self.snapshots.iter_mut().filter(|s| s.parent == gone) {
            child.parent = parent;
        }
        if let Some(staged) = self.staged.as_mut().filter(|s| s.base == gone) {
            staged.base = parent;
        }
        if self.parent == gone {
            // The head has now what the snapshot had alone.
            let below = parent.map(|parent| self.image(parent).cloned()).transpose()?;
            self.is_written |= below.unwrap_or_default() != gone_image;
            self.parent = parent;
        }
        Ok(())
    }

    /// Ids of the snapshots that the head descends from.
    pub(super) fn main_line(&self) -> Vec<Uuid> {
        let next = |of: &Uuid| self.position(*of).ok().and_then(|at| self.snapshots[at].parent);
        std::iter::successors(self.parent, next).collect()
    }
}
