//! The store's words to those of the traits, and back.

use farside_store::{NewSnapshot, ReplicaStatus, SnapshotStatus, StoreError, VolumeStatus};

use crate::{
    BLOCK_BYTES, EngineError, ReplicaRecord, SnapshotInfo, SnapshotOwner, SnapshotSpec, VolumeInfo,
    VolumeName, Wanted,
};

pub(super) fn as_stored(wanted: &Wanted) -> farside_store::Wanted {
    let Wanted { level, position, short } = *wanted;
    farside_store::Wanted { level, position, short }
}

pub(super) fn info(name: &VolumeName, status: &VolumeStatus) -> VolumeInfo {
    VolumeInfo {
        name: name.clone(),
        uuid: status.uuid,
        size_bytes: status.size_bytes,
        occupied_bytes: Some(status.occupied_bytes),
        is_replica: status.replica.as_ref().is_some_and(|r| !r.broken_off),
    }
}

pub(super) fn replica_status(record: ReplicaRecord) -> ReplicaStatus {
    ReplicaStatus {
        relationship: record.relationship,
        peer: record.peer,
        source: record.source,
        broken_off: record.broken_off,
    }
}

pub(super) fn new_snapshot(spec: &SnapshotSpec) -> NewSnapshot {
    NewSnapshot {
        name: spec.name.clone(),
        uuid: spec.uuid,
        created_at: spec.created_at,
        relationship: match spec.owner {
            SnapshotOwner::Person => None,
            SnapshotOwner::Relationship(relationship) => Some(relationship),
        },
        pin_for: spec.pin_for,
    }
}

pub(super) fn snapshot_info(status: &SnapshotStatus) -> SnapshotInfo {
    SnapshotInfo {
        name: status.name.clone(),
        uuid: status.uuid,
        created_at: status.created_at,
        size_bytes: status.size_bytes,
        owner: status.relationship.map_or(SnapshotOwner::Person, SnapshotOwner::Relationship),
        held: status.held,
        pinned_by: status.pinned_by.clone(),
        sequence: status.sequence,
    }
}

pub(super) fn convert(pool: &str, error: StoreError) -> EngineError {
    match error {
        StoreError::NotFound(what) => EngineError::NotFound { what },
        StoreError::Exists(what) => EngineError::Exists { what },
        StoreError::Refused(why) => EngineError::Refused(why),
        other @ StoreError::OtherVersion { .. } => EngineError::Refused(other.to_string()),
        StoreError::Invalid(why) => EngineError::Invalid(why),
        StoreError::NoSpace { needed_bytes, available_bytes } => {
            EngineError::NoSpace { pool: pool.into(), needed_bytes, available_bytes }
        }
        StoreError::NoSpaceBelow { device, left_bytes } => {
            EngineError::NoSpaceBelow { pool: pool.into(), path: device, left_bytes }
        }
        over @ (StoreError::OverQuota { .. }
        | StoreError::QuotaTooSmall { .. }
        | StoreError::NoRoomToReserve { .. }) => EngineError::OverQuota(over.to_string()),
        StoreError::NoRoomForPoint { missing_pairs } => {
            let needed_bytes = missing_pairs * 2 * BLOCK_BYTES;
            EngineError::NoSpace { pool: pool.into(), needed_bytes, available_bytes: 0 }
        }
        corrupt @ (StoreError::Corrupt { .. }
        | StoreError::CorruptBlock { .. }
        | StoreError::Quarantined { .. }
        | StoreError::Inconsistent(_)
        | StoreError::JournalDamaged { .. }
        | StoreError::NoSuperblock { .. }) => EngineError::Corrupt(corrupt.to_string()),
        StoreError::Device(device) if device.is_full() => EngineError::Io(format!(
            "{device}. The file system there is full (df): make room, or put the pool elsewhere"
        )),
        other => EngineError::Io(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use farside_platform::DeviceError;

    use super::*;

    #[test]
    fn a_full_file_system_below_the_pool_is_called_that() {
        let write = |kind: std::io::ErrorKind| DeviceError::Io {
            operation: "write",
            offset: 0,
            length: 4096,
            device: "/srv/p.pool".into(),
            source: kind.into(),
        };
        let said = |kind| convert("p", StoreError::Device(write(kind))).to_string();
        let full = said(std::io::ErrorKind::StorageFull);
        assert!(full.contains("/srv/p.pool") && full.contains("is full (df)"), "{full}");
        assert!(!said(std::io::ErrorKind::TimedOut).contains("df"));
    }
}
