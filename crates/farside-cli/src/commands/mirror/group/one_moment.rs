//! The update with which first copies and resyncs of a group end: each has come by itself, and shows a moment of its own.

use std::time::Duration;

use farside_api::{ErrorBody, Operation, OperationState, StartTransfer};

use crate::commands::context::Context;
use crate::progress;

/// Updates the group of a volume, and waits for that. `timeout`: for a session, where that is said.
///
/// # Errors
/// If it was refused, or failed: then the group shows no moment in common by it.
pub(super) async fn update(
    context: &Context,
    pool: &str,
    volume: &str,
    timeout: Option<Duration>,
) -> Result<Operation, ErrorBody> {
    let request = StartTransfer { timeout_seconds: timeout.map(|timeout| timeout.as_secs_f64()) };
    let started: Operation = context.client.post(&["mirrors", pool, volume, "update"], &request).await?;
    let ended = progress::watch_for(&context.client, started, timeout).await?;
    match &ended.error {
        Some(error) if ended.state == OperationState::Failed => Err(error.clone()),
        _ => Ok(ended),
    }
}
