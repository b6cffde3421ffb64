//! What a host is told when the store refuses or fails.

use farside_nbd::{ErrorKind, NbdError};
use farside_store::StoreError;

/// The store's error, as one of NBD.
pub(crate) fn failure(error: StoreError) -> NbdError {
    let kind = match &error {
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
