//! A member's turn in an update of its group.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use farside_transfer::destination::{Brought, Together};
use farside_transfer::error::TransferError;
use farside_transfer::protocol::group::GroupMoment;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{GroupKey, Groups};

/// A member's turn.
pub(crate) struct Turn {
    groups: Arc<Groups>,
    key: GroupKey,
    id: Uuid,
    /// Of the update.
    number: u64,
    moment: GroupMoment,
    /// When the moment was taken, on monotonic time.
    pub(crate) taken_at: Duration,
    /// Everything has arrived: the transfer needs its place no more.
    pub(crate) has_arrived: CancellationToken,
}

impl Turn {
    pub(super) fn new(
        groups: Arc<Groups>,
        key: GroupKey,
        id: Uuid,
        number: u64,
        moment: GroupMoment,
        taken_at: Duration,
    ) -> Turn {
        Turn { groups, key, id, number, moment, taken_at, has_arrived: CancellationToken::new() }
    }
}

/// Takes back what a member has brought, if its transfer ends before it has heard what came of it.
struct TakesBack<'a>(&'a Turn);

impl Drop for TakesBack<'_> {
    fn drop(&mut self) {
        let Turn { groups, key, number, id, .. } = self.0;
        groups.take_back(key, *number, *id);
    }
}

#[async_trait]
impl Together for Turn {
    fn moment(&self) -> GroupMoment {
        self.moment
    }

    fn is_there(&self) {
        self.groups.is_there(&self.key, self.number, self.id);
    }

    async fn publish(&self, brought: Brought) -> Result<String, TransferError> {
        self.has_arrived.cancel();
        let published = self.groups.brought(&self.key, self.number, self.id, brought);
        let published = published.map_err(TransferError::State)?;
        // What is over cannot be taken back.
        let _takes_back = TakesBack(self);
        match published.await {
            Ok(Ok(name)) => Ok(name),
            Ok(Err(why)) => Err(TransferError::State(why)),
            Err(_) => Err(TransferError::Internal("the update of the group ended without a word".into())),
        }
    }

    fn give_up(&self, why: &str) {
        self.groups.give_up(self.id, why);
    }
}
