//! What a host is told when the store refuses or fails.

use farside_nbd::{ErrorKind, NbdError};
use farside_store::StoreError;

/// The store's error, as one of NBD.
pub(crate) fn failure(error: StoreError) -> NbdError {
    let kind = match &error {
        // The file system below the pool's file: what waits is kept, and the same request succeeds once there is room.
        full if full.is_full_below() => ErrorKind::NoSpace,
        StoreError::NoSpace { .. }
        | StoreError::NoSpaceBelow { .. }
        | StoreError::NoRoomForPoint { .. }
        | StoreError::OverQuota { .. }
        | StoreError::NoRoomToReserve { .. }
        | StoreError::QuotaTooSmall { .. } => ErrorKind::NoSpace,
        StoreError::Invalid(_) => ErrorKind::Invalid,
        StoreError::Refused(_) => ErrorKind::NotPermitted,
        StoreError::NotFound(_) => ErrorKind::UnknownExport,
        StoreError::Device(_)
        | StoreError::Failed { .. }
        | StoreError::Corrupt { .. }
        | StoreError::CorruptBlock { .. }
        | StoreError::Quarantined { .. }
        | StoreError::NoSuperblock { .. }
        | StoreError::OtherVersion { .. }
        | StoreError::JournalDamaged { .. }
        | StoreError::Inconsistent(_)
        | StoreError::TooSmall { .. }
        | StoreError::Occupied { .. }
        | StoreError::OpenElsewhere { .. }
        | StoreError::CopyNotMade { .. }
        | StoreError::TakenOver { .. }
        | StoreError::Exists(_) => ErrorKind::Io,
    };
    NbdError::new(kind, error)
}

#[cfg(test)]
mod tests {
    use std::io;

    use farside_platform::DeviceError;

    use super::*;

    #[test]
    fn a_full_file_system_below_is_no_broken_disk() {
        let of = |source: io::Error| {
            let error = DeviceError::Io {
                operation: "write",
                offset: 0,
                length: 4096,
                device: "/srv/p.pool".into(),
                source,
            };
            failure(StoreError::Device(error)).kind
        };
        assert_eq!(of(io::ErrorKind::StorageFull.into()), ErrorKind::NoSpace);
        assert_eq!(of(io::Error::from_raw_os_error(28)), ErrorKind::NoSpace);
        assert_eq!(of(io::Error::from_raw_os_error(5)), ErrorKind::Io);
    }
}
