//! Transfers that have ended, for who follows them while the daemon runs.

use std::sync::Arc;

use farside_transfer::TransferReport;
use uuid::Uuid;

/// Transfers that have ended and that who follows them has not looked at yet, at most.
pub(super) const ENDED_MAX: usize = 1024;

/// A transfer that has ended here.
#[derive(Clone, Debug)]
pub(crate) struct EndedTransfer {
    pub(crate) relationship: Uuid,
    pub(crate) report: Arc<TransferReport>,
}
