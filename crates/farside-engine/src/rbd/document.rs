//! What farside knows of a volume, as one document in its image's metadata under the key [`KEY`]: JSON, so that a person sees it with
//! `rbd image-meta get POOL/IMAGE farside`. Every change of it is one write that fails if the document is another by then: that write is
//! the moment in which a snapshot, a pin, a publication or a role comes to be.
//!
//! A snapshot of the cluster has a name `farside-UUID` that tells nothing; the document says what it stands for. Two snapshots of
//! farside may be one of the cluster.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use farside_platform::Timestamp;

use crate::{
    EngineError, ReplicaRecord, SnapshotInfo, SnapshotOwner, SnapshotSpec, StagedFor, StagedInfo, VolumeName,
};

/// Under which the document lies in an image's metadata.
pub(super) const KEY: &str = "farside";
/// Of documents that this code reads and writes. Another is refused.
pub(super) const VERSION: u32 = 2;

/// A volume.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Document {
    version: u32,
    /// The image's id. Ceph copies metadata with an image: a document of another image says nothing of this one.
    pub(super) image: String,
    /// Of the next snapshot.
    next_sequence: u64,
    /// The volume is deleted; what is left of the image goes when nobody reads it.
    pub(super) deleted: bool,
    pub(super) record: Option<Record>,
    /// The client of farside that took the head's lock last, or was about to: the lock's owner may as well be a host.
    pub(super) holder: Option<Holder>,
    /// The snapshot that a mirror published last: hosts have written none of it.
    pub(super) published: Option<Uuid>,
    /// In the order in which they were made.
    pub(super) snapshots: Vec<Entry>,
    /// What hosts see, while the head holds something else.
    pub(super) shown: Option<Kept>,
    pub(super) staged: Option<Staging>,
    /// Snapshots of the cluster, made by farside, that stand for nothing, and may not be there yet, or any more.
    pub(super) garbage: Vec<Uuid>,
}

impl Default for Document {
    fn default() -> Document {
        Document {
            version: VERSION,
            image: String::new(),
            next_sequence: 0,
            deleted: false,
            record: None,
            holder: None,
            published: None,
            snapshots: Vec::new(),
            shown: None,
            staged: None,
            garbage: Vec::new(),
        }
    }
}

/// A client of farside that has an image for itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Holder {
    /// Its address, to the cluster.
    pub(super) address: String,
    /// Whose client it is: see [`super::RbdEngine::of_site`]. Another site's is never fenced.
    pub(super) site: String,
}

/// A snapshot of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub(super) struct Kept {
    /// Names it: see [`Kept::name`].
    pub(super) uuid: Uuid,
    /// The cluster's own number of it; that of a later one of the image is higher.
    pub(super) id: u64,
    pub(super) size_bytes: u64,
}

impl Kept {
    /// What the cluster calls the snapshot.
    pub(super) fn name(&self) -> String {
        name_of(self.uuid)
    }
}

/// What the cluster calls a snapshot that farside made.
pub(super) fn name_of(kept: Uuid) -> String {
    format!("farside-{kept}")
}

/// A snapshot.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) uuid: Uuid,
    /// Nanoseconds since 1970.
    created_at: u64,
    /// The relationship whose it is; none: a person's.
    pub(super) relationship: Option<Uuid>,
    pub(super) pinned_by: Vec<Uuid>,
    sequence: u64,
    pub(super) at: Kept,
    /// The content root, once it was asked for: hexadecimal.
    pub(super) root: Option<String>,
}

impl Entry {
    pub(super) fn info(&self) -> SnapshotInfo {
        SnapshotInfo {
            name: self.name.clone(),
            uuid: self.uuid,
            created_at: Timestamp(self.created_at),
            size_bytes: self.at.size_bytes,
            owner: self.relationship.map_or(SnapshotOwner::Person, SnapshotOwner::Relationship),
            held: false,
            pinned_by: self.pinned_by.clone(),
            sequence: self.sequence,
        }
    }
}

/// What is staged of a replica.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct Staging {
    /// Its own identity.
    pub(super) uuid: Uuid,
    pub(super) base: Option<Uuid>,
    pub(super) relationship: Uuid,
    pub(super) incremental: Uuid,
    /// Where it waits while hosts have the head. Else it is in the head.
    pub(super) parked: Option<Kept>,
}

impl Staging {
    /// `head_bytes` is the size of the head.
    pub(super) fn info(&self, head_bytes: u64) -> StagedInfo {
        StagedInfo {
            base: self.base,
            size_bytes: self.parked.map_or(head_bytes, |parked| parked.size_bytes),
            staged_for: StagedFor { relationship: self.relationship, incremental: self.incremental },
        }
    }
}

/// What a [`ReplicaRecord`] says.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
pub(super) struct Record {
    pub(super) relationship: Uuid,
    /// Hexadecimal.
    peer: String,
    source: String,
    pub(super) broken_off: bool,
}

impl From<ReplicaRecord> for Record {
    fn from(record: ReplicaRecord) -> Record {
        let ReplicaRecord { relationship, peer, source, broken_off } = record;
        Record { relationship, peer: hex(&peer), source, broken_off }
    }
}

impl Record {
    pub(super) fn to_replica_record(&self) -> Result<ReplicaRecord, EngineError> {
        let peer = unhex(&self.peer).ok_or_else(|| {
            EngineError::Corrupt(format!("the peer {:?} of a replica is no identity", self.peer))
        })?;
        Ok(ReplicaRecord {
            relationship: self.relationship,
            peer,
            source: self.source.clone(),
            broken_off: self.broken_off,
        })
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

impl Document {
    /// Reads what lies in the metadata of an image; nothing of its own there: a volume that farside has not changed.
    pub(super) fn read(volume: &VolumeName, image: &str, bytes: &[u8]) -> Result<Document, EngineError> {
        if bytes.is_empty() {
            return Ok(Document::default());
        }
        let broken = |error: &dyn std::fmt::Display| {
            EngineError::Corrupt(format!(
                "what farside wrote into the metadata of {volume} cannot be read ({error}). Nothing was changed. To see it: \
                 rbd image-meta get … {KEY}"
            ))
        };
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| broken(&error))?;
        if value.get("image").and_then(serde_json::Value::as_str).is_some_and(|of| of != image) {
            return Ok(Document::default());
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            version => {
                return Err(EngineError::Refused(format!(
                    "the metadata of {volume} is of version {version:?}; this farside reads version {VERSION}. Nothing was changed"
                )));
            }
        }
        serde_json::from_value(value).map_err(|error| broken(&error))
    }

    pub(super) fn write(&self) -> Result<Vec<u8>, EngineError> {
        serde_json::to_vec(self).map_err(|error| EngineError::Corrupt(format!("no document: {error}")))
    }

    /// A volume that a mirror writes, and no host.
    pub(super) fn is_replica(&self) -> bool {
        self.record.as_ref().is_some_and(|record| !record.broken_off)
    }

    pub(super) fn position(&self, snapshot: Uuid) -> Result<usize, EngineError> {
        let found = self.snapshots.iter().position(|entry| entry.uuid == snapshot);
        found.ok_or_else(|| EngineError::NotFound { what: format!("snapshot {snapshot}") })
    }

    pub(super) fn entry(&self, snapshot: Uuid) -> Result<&Entry, EngineError> {
        Ok(&self.snapshots[self.position(snapshot)?])
    }

    pub(super) fn entry_mut(&mut self, snapshot: Uuid) -> Result<&mut Entry, EngineError> {
        let at = self.position(snapshot)?;
        Ok(&mut self.snapshots[at])
    }

    pub(super) fn is_free(&self, name: &str) -> bool {
        self.snapshots.iter().all(|entry| entry.name != name)
    }

    /// Refuses a snapshot whose name or identity is taken.
    pub(super) fn check_free(&self, spec: &SnapshotSpec) -> Result<(), EngineError> {
        if self.snapshots.iter().any(|entry| entry.name == spec.name || entry.uuid == spec.uuid) {
            return Err(EngineError::Exists { what: format!("snapshot {}", spec.name) });
        }
        Ok(())
    }

    /// Refuses to publish what is staged for anybody but the mirror that the volume is the replica of.
    pub(super) fn check_commit(&self, staged: Uuid, spec: &SnapshotSpec) -> Result<(), EngineError> {
        self.check_free(spec)?;
        let staging = self.staging(staged)?;
        let Some(relationship) = spec.pin_for else { return Ok(()) };
        if !self.is_replica() || self.record.as_ref().is_none_or(|record| record.relationship != relationship)
        {
            return Err(EngineError::Refused(
                "it is not the replica of this relationship. Nothing was published".into(),
            ));
        }
        if staging.relationship != relationship {
            return Err(EngineError::Refused(
                "what is staged is another relationship's. Nothing was published".into(),
            ));
        }
        Ok(())
    }

    pub(super) fn staging(&self, staged: Uuid) -> Result<&Staging, EngineError> {
        let found = self.staged.as_ref().filter(|staging| staging.uuid == staged);
        found.ok_or_else(|| {
            EngineError::Refused("this staged version is gone: it was published or thrown away".into())
        })
    }

    /// `kept` becomes a snapshot, the newest.
    pub(super) fn add(
        &mut self,
        spec: &SnapshotSpec,
        kept: Kept,
        root: Option<String>,
    ) -> Result<SnapshotInfo, EngineError> {
        self.check_free(spec)?;
        let entry = Entry {
            name: spec.name.clone(),
            uuid: spec.uuid,
            created_at: spec.created_at.0,
            relationship: match spec.owner {
                SnapshotOwner::Person => None,
                SnapshotOwner::Relationship(relationship) => Some(relationship),
            },
            pinned_by: spec.pin_for.into_iter().collect(),
            sequence: self.next_sequence,
            at: kept,
            root,
        };
        self.next_sequence += 1;
        self.garbage.retain(|garbage| *garbage != kept.uuid);
        let info = entry.info();
        self.snapshots.push(entry);
        Ok(info)
    }

    /// A snapshot is one no more. What is staged upon it stands on the next older one.
    pub(super) fn remove(&mut self, snapshot: Uuid) -> Result<(), EngineError> {
        let at = self.position(snapshot)?;
        if !self.snapshots[at].pinned_by.is_empty() {
            return Err(EngineError::Refused(format!(
                "snapshot {} is pinned: a mirror needs it as its base. Nothing was deleted",
                self.snapshots[at].name
            )));
        }
        let gone = self.snapshots.remove(at);
        let older = at.checked_sub(1).map(|older| self.snapshots[older].uuid);
        if let Some(staging) = self.staged.as_mut().filter(|staging| staging.base == Some(snapshot)) {
            staging.base = older;
        }
        self.let_go(gone.at.uuid);
        Ok(())
    }

    /// A snapshot of the cluster is garbage, if it stands for nothing any more.
    pub(super) fn let_go(&mut self, kept: Uuid) {
        let is_it = |other: &Option<Kept>| other.is_some_and(|other| other.uuid == kept);
        let parked = self.staged.as_ref().and_then(|staging| staging.parked);
        let is_used =
            self.snapshots.iter().any(|entry| entry.at.uuid == kept) || is_it(&self.shown) || is_it(&parked);
        if !is_used && !self.garbage.contains(&kept) {
            self.garbage.push(kept);
        }
    }

    /// What hosts see is the head again.
    pub(super) fn show_head(&mut self) {
        if let Some(shown) = self.shown.take() {
            self.let_go(shown.uuid);
        }
    }

    /// Nothing is staged any more. Answers whether something was.
    pub(super) fn drop_staged(&mut self) -> bool {
        let Some(staging) = self.staged.take() else { return false };
        if let Some(parked) = staging.parked {
            self.let_go(parked.uuid);
        }
        true
    }

    /// Every snapshot of the cluster that farside made of the image.
    pub(super) fn all_kept(&self) -> Vec<Uuid> {
        let parked = self.staged.as_ref().and_then(|staging| staging.parked);
        let entries = self.snapshots.iter().map(|entry| entry.at.uuid);
        let others = self.shown.iter().chain(&parked).map(|kept| kept.uuid);
        entries.chain(others).chain(self.garbage.iter().copied()).collect()
    }
}
