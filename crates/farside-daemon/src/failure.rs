//! What each crate's errors are to a client: code, message, hint.

use farside_api::{ErrorBody, ErrorCode};
use farside_engine::EngineError;
use farside_mirror::MirrorError;
use farside_peer::{Refusal, SessionError};
use farside_platform::DeviceError;
use farside_store::StoreError;
use farside_transfer::TransferError;
use farside_transfer::refusal::NOT_OPEN;

use crate::state::StateError;

/// A failure that can be told to a client.
pub(crate) trait Failure {
    /// As the API says it.
    fn into_error_body(self) -> ErrorBody;
}

impl Failure for ErrorBody {
    fn into_error_body(self) -> ErrorBody {
        self
    }
}

impl Failure for StateError {
    fn into_error_body(self) -> ErrorBody {
        let message = self.to_string();
        match self {
            // These say what to do.
            StateError::Away { .. }
            | StateError::Server { .. }
            | StateError::TakenOver { .. }
            | StateError::OpenServer { .. }
            | StateError::NewerServer { .. } => ErrorBody::new(ErrorCode::Failed, message),
            StateError::Moved { .. }
            | StateError::MovedAway { .. }
            | StateError::NotMoved(_)
            | StateError::NotOfSite { .. }
            | StateError::Emptied { .. }
            | StateError::InUse { .. } => ErrorBody::new(ErrorCode::Refused, message),
            StateError::Open { .. }
            | StateError::Newer { .. }
            | StateError::Statement(_)
            | StateError::Row(_) => ErrorBody::new(ErrorCode::Failed, message).hint(
                "is the disk of the data directory full or read-only? once it has room, it is written again by itself; the daemon's \
                 log says more",
            ),
        }
    }
}

/// What whoever asked for such a file is told.
const FILE_TOO_LARGE: &str = "the file system there takes no file of that size";

/// What the unit refuses looks as if the file system or its rights did.
const OF_THE_UNIT: &str = "Under its systemd unit farsided writes below /var/lib/farside only: systemctl edit farsided, and under \
                           [Service] ReadWritePaths=DIRECTORY";

impl Failure for DeviceError {
    fn into_error_body(self) -> ErrorBody {
        let message = self.to_string();
        match self {
            DeviceError::Locked { .. } | DeviceError::InUse { .. } | DeviceError::Smaller { .. } => {
                ErrorBody::new(ErrorCode::Refused, message)
            }
            DeviceError::Open { device, source } => match source.kind() {
                std::io::ErrorKind::NotFound => {
                    let directory = std::path::Path::new(&device).parent();
                    let missing = directory.filter(|at| !at.as_os_str().is_empty() && !at.exists());
                    let error = ErrorBody::new(ErrorCode::NotFound, message);
                    match missing {
                        Some(at) => error.hint(format!(
                            "the directory {0} does not exist: mkdir -p {0}, and let the daemon's user write there",
                            at.display()
                        )),
                        None => error,
                    }
                }
                std::io::ErrorKind::PermissionDenied => {
                    ErrorBody::new(ErrorCode::Failed, message).hint(format!(
                        "farsided runs as user {}: chown the file, device or directory to it. {OF_THE_UNIT}, or of a device \
                         DeviceAllow=DEVICE rw",
                        rustix::process::geteuid().as_raw()
                    ))
                }
                std::io::ErrorKind::ReadOnlyFilesystem => ErrorBody::new(ErrorCode::Failed, message).hint(
                    format!("is it mounted read-only (findmnt)? {OF_THE_UNIT}"),
                ),
                std::io::ErrorKind::AlreadyExists => ErrorBody::new(ErrorCode::Exists, format!("{device} exists already. Nothing was made"))
                    .hint("name a file that does not exist, nor a directory; if a pool is in it already: farside pool import takes it over"),
                std::io::ErrorKind::FileTooLarge => {
                    ErrorBody::new(ErrorCode::Refused, message).hint(FILE_TOO_LARGE)
                }
                _ => ErrorBody::new(ErrorCode::Failed, message),
            },
            DeviceError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::FileTooLarge => {
                ErrorBody::new(ErrorCode::Refused, message).hint(FILE_TOO_LARGE)
            }
            ref full @ DeviceError::Io { .. } if full.is_full() => {
                ErrorBody::new(ErrorCode::NoSpace, message)
                    .hint("the file system there is full (df): make room, or put the pool elsewhere")
            }
            DeviceError::Io { .. } | DeviceError::OutOfRange { .. } => {
                ErrorBody::new(ErrorCode::Failed, message)
                    .hint("the kernel's log may say more about the device")
            }
        }
    }
}

impl Failure for StoreError {
    fn into_error_body(self) -> ErrorBody {
        let message = self.to_string();
        match self {
            StoreError::Device(error) => error.into_error_body(),
            StoreError::NotFound(_) => ErrorBody::new(ErrorCode::NotFound, message),
            StoreError::Exists(_) => ErrorBody::new(ErrorCode::Exists, message),
            StoreError::Occupied { .. } => ErrorBody::new(ErrorCode::Exists, message).hint(
                "is it the right device (lsblk -f)? farside pool create --overwrite destroys what is there; farside pool \
                 import takes over a pool",
            ),
            StoreError::OpenElsewhere { .. } => ErrorBody::new(ErrorCode::Refused, message)
                .hint("if that machine cannot be reached and is known to be off, --force takes the pool from it"),
            StoreError::OverQuota { .. } => ErrorBody::new(ErrorCode::NoSpace, message)
                .hint("farside volume set --quota gives it more; delete snapshots or trim in its hosts to free some"),
            StoreError::NoRoomToReserve { .. } => ErrorBody::new(ErrorCode::NoSpace, message).hint(
                "farside pool grow --help says how the pool is made larger; farside volume list shows what other volumes occupy and have reserved",
            ),
            // The message says what to do.
            StoreError::QuotaTooSmall { .. } => ErrorBody::new(ErrorCode::Refused, message),
            StoreError::Refused(_) | StoreError::OtherVersion { .. } | StoreError::CopyNotMade { .. } => {
                ErrorBody::new(ErrorCode::Refused, message)
            }
            StoreError::Invalid(_) | StoreError::TooSmall { .. } => {
                ErrorBody::new(ErrorCode::WrongUsage, message)
            }
            StoreError::NoSpace { .. } => ErrorBody::new(ErrorCode::NoSpace, message).hint(
                "farside pool status shows the space; delete snapshots or trim in the hosts to free some",
            ),
            // The message says what gives it room.
            StoreError::NoRoomForPoint { .. } | StoreError::NoSpaceBelow { .. } => ErrorBody::new(ErrorCode::NoSpace, message),
            StoreError::Corrupt { .. }
            | StoreError::CorruptBlock { .. }
            | StoreError::NoSuperblock { .. }
            | StoreError::JournalDamaged { .. }
            | StoreError::Inconsistent(_) => ErrorBody::new(ErrorCode::Corrupt, message)
                .hint("the page Repairing a site of the manual (guides/repair) says what to do"),
            // The message says what brings the blocks back.
            StoreError::Quarantined { .. } => ErrorBody::new(ErrorCode::Corrupt, message),
            StoreError::Failed { .. } | StoreError::TakenOver { .. } => ErrorBody::new(ErrorCode::Failed, message),
        }
    }
}

impl Failure for EngineError {
    fn into_error_body(self) -> ErrorBody {
        let code = match &self {
            EngineError::NotFound { .. } => ErrorCode::NotFound,
            EngineError::Exists { .. } => ErrorCode::Exists,
            EngineError::BadName { .. } | EngineError::Invalid(_) => ErrorCode::WrongUsage,
            EngineError::Refused(_) | EngineError::Lacks { .. } => ErrorCode::Refused,
            EngineError::NoSpace { .. } | EngineError::NoSpaceBelow { .. } | EngineError::OverQuota(_) => {
                ErrorCode::NoSpace
            }
            EngineError::Corrupt(_) => ErrorCode::Corrupt,
            EngineError::Io(_) => ErrorCode::Failed,
        };
        ErrorBody::new(code, self.to_string())
    }
}

impl Failure for SessionError {
    fn into_error_body(self) -> ErrorBody {
        let message = self.to_string();
        match self {
            SessionError::Refused(refusal) => refused(refusal, message),
            SessionError::Lost(_) | SessionError::Unreachable { .. } => {
                ErrorBody::new(ErrorCode::PeerUnreachable, message).hint(
                    "is the other farsided running, and its port open? Of sites that are paired farside peer list shows the session",
                )
            }
            SessionError::NotAuthenticated(_) | SessionError::Version { .. } | SessionError::KeyInUse(_) => {
                ErrorBody::new(ErrorCode::PeerRefused, message)
            }
            SessionError::Protocol(_)
            | SessionError::TooLarge { .. }
            | SessionError::AlreadyConnected
            | SessionError::Local(_) => ErrorBody::new(ErrorCode::Failed, message),
        }
    }
}

/// What the peer said no to, by its own word for it.
fn refused(refusal: Refusal, message: String) -> ErrorBody {
    match refusal.code.as_str() {
        // The message names the command with its flags; one without them would take --reverse or --fence back.
        "forbidden" => ErrorBody::new(ErrorCode::PeerRefused, message),
        "not-found" => ErrorBody::new(ErrorCode::NotFound, message),
        "state" | NOT_OPEN => ErrorBody::new(ErrorCode::Refused, message),
        "no-space" => ErrorBody::new(ErrorCode::NoSpace, message),
        "corrupt" => ErrorBody::new(ErrorCode::Corrupt, message),
        _ => ErrorBody::new(ErrorCode::PeerRefused, message),
    }
}

impl Failure for TransferError {
    fn into_error_body(self) -> ErrorBody {
        let message = self.to_string();
        match self {
            TransferError::Session(error) => error.into_error_body(),
            TransferError::Engine(error) => error.into_error_body(),
            TransferError::State(_) | TransferError::GroupGivenUp(_) | TransferError::OverBudget(_) => {
                ErrorBody::new(ErrorCode::Refused, message)
            }
            TransferError::RootMismatch { .. } | TransferError::IdentityClash { .. } => {
                ErrorBody::new(ErrorCode::Corrupt, message)
            }
            TransferError::VersionsDiffer { .. } => ErrorBody::new(ErrorCode::PeerRefused, message),
            TransferError::NoRoom { .. } => ErrorBody::new(ErrorCode::NoSpace, message),
            TransferError::SourceFailed { code, message: said } => {
                refused(Refusal { code, message: said }, message)
            }
            TransferError::Frame(_)
            | TransferError::Protocol(_)
            | TransferError::Aborted
            | TransferError::Internal(_) => ErrorBody::new(ErrorCode::Failed, message),
        }
    }
}

impl Failure for MirrorError {
    fn into_error_body(self) -> ErrorBody {
        let message = self.to_string();
        match self {
            MirrorError::Transfer(error) => error.into_error_body(),
            MirrorError::NoSession(_) => ErrorBody::new(ErrorCode::PeerUnreachable, message)
                .hint(
                "farside peer list shows the session. What has a schedule goes on by itself when it is back; without one, ask again",
            ),
            MirrorError::NoAnswer { .. } => ErrorBody::new(ErrorCode::PeerUnreachable, message),
            MirrorError::BeingMade(_) => ErrorBody::new(ErrorCode::Exists, message),
            MirrorError::Unconfirmed(_) => ErrorBody::new(ErrorCode::Unconfirmed, message).hint(
                "a mirror is made at the site that gets the copy: to have another replica elsewhere, type the command there. If this is \
                 what you want: --yes (of the API: copy_of_own)",
            ),
            MirrorError::State(_) | MirrorError::NotTogether { .. } => ErrorBody::new(ErrorCode::Refused, message),
            MirrorError::NotFound(_) => ErrorBody::new(ErrorCode::NotFound, message),
            MirrorError::Exists(_) => ErrorBody::new(ErrorCode::Exists, message),
            MirrorError::Invalid(_) => ErrorBody::new(ErrorCode::WrongUsage, message),
            MirrorError::Store(_) => ErrorBody::new(ErrorCode::Failed, message),
        }
    }
}
