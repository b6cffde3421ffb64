//! What a peer is told when this side refuses.

use farside_engine::EngineError;
use farside_peer::Refusal;

pub use crate::error::CROSSED;
use crate::error::TransferError;

/// A refusal with one of the protocol's codes.
pub fn refusal(code: &str, message: impl Into<String>) -> Refusal {
    Refusal { code: code.into(), message: message.into() }
}

/// The refusal of a peer that is over a budget.
pub fn over_budget(said: String) -> Refusal {
    refusal("budget", format!("over a budget of the source: {said}"))
}

/// What a peer is told of an error here.
pub fn to_refusal(error: TransferError) -> Refusal {
    let code = match &error {
        TransferError::Engine(EngineError::NotFound { .. }) => "not-found",
        TransferError::Engine(
            EngineError::NoSpace { .. } | EngineError::NoSpaceBelow { .. } | EngineError::OverQuota(_),
        ) => "no-space",
        TransferError::Engine(EngineError::Corrupt(_)) | TransferError::IdentityClash { .. } => "corrupt",
        TransferError::State(_) => "state",
        TransferError::OverBudget(said) => return over_budget(said.clone()),
        _ => "failed",
    };
    refusal(code, error.to_string())
}
