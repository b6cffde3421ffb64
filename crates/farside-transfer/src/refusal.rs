//! What a peer is told when this side refuses.

use farside_engine::EngineError;
use farside_peer::Refusal;

use crate::error::TransferError;
pub use crate::error::{CROSSED, NO_ORIGINAL, NOT_OPEN};

/// A refusal with one of the protocol's codes.
pub fn refusal(code: &str, message: impl Into<String>) -> Refusal {
    Refusal { code: code.into(), message: message.into() }
}

/// The refusal of a peer that is over a budget.
pub fn over_budget(said: String) -> Refusal {
    refusal("budget", format!("over a budget of the source: {said}"))
}

/// The refusal of what needs a pool that is not open at this site.
pub fn not_open(pool: &str) -> Refusal {
    refusal(
        NOT_OPEN,
        format!(
            "pool {pool} is not open at the source: it is being opened, could not be, or is none of its pools any more. No replica was changed, \
             and a mirror with a schedule goes on by itself once it is open. farside pool list there says which it is"
        ),
    )
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
