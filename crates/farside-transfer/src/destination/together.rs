//! Transfers of a group: what each has brought and proved waits for the others, and all of it is published in one record.
//!
//! Such a transfer gives back its place and the source's before it waits, so that a group may have more members than transfers run at
//! the same time. What waits is durable; a crash leaves it staged, and the next transfer goes on with it.

use std::sync::Arc;

use async_trait::async_trait;
use farside_engine::Engine;

use super::publish::{self, Proved};
use crate::error::{TransferError, blocking};
use crate::protocol::group::GroupMoment;

/// The group of a transfer, as the transfer sees it.
#[async_trait]
pub trait Together: Send + Sync {
    /// With which snapshot the transfer is to end.
    fn moment(&self) -> GroupMoment;
    /// The volume shows the moment already.
    fn is_there(&self);
    /// Publishes what was brought together with what the others bring; waits for them. Returns its name here.
    ///
    /// # Errors
    /// If one of them is refused, or the moment was given up. Nothing was published then. Dropped, it takes back what was brought.
    async fn publish(&self, brought: Brought) -> Result<String, TransferError>;
    /// The moment cannot be brought any more: the others need not wait for it.
    fn give_up(&self, why: &str);
}

/// What a transfer of a group has brought: durable, and proved.
pub struct Brought(pub(super) Proved);

/// Publishes what all members of a group have brought in one record; returns their names, in that order.
///
/// # Errors
/// If one of them is refused: nothing was published.
pub async fn publish_together(
    engine: Arc<dyn Engine>,
    all: Vec<Arc<Brought>>,
) -> Result<Vec<String>, TransferError> {
    blocking(move || {
        let all: Vec<&Proved> = all.iter().map(|brought| &brought.0).collect();
        publish::commit_together(&*engine, &all)
    })
    .await
}
