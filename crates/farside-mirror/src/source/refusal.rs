//! What a peer is told of an error here.

use farside_peer::Refusal;
use farside_transfer::TransferError;
use farside_transfer::refusal::{self, refusal};

use crate::error::MirrorError;

/// What a peer is told of an error here.
pub(super) fn to_refusal(error: impl Into<MirrorError>) -> Refusal {
    match error.into() {
        MirrorError::Transfer(error) => refusal::to_refusal(error),
        MirrorError::State(said) => refusal::to_refusal(TransferError::State(said)),
        other => refusal("failed", other.to_string()),
    }
}
