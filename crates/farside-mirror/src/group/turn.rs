//! A member's turn in an update of its group.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use farside_transfer::destination::{Brought, Together};
use farside_transfer::error::TransferError;
use farside_transfer::protocol::group::GroupMoment;
use tokio_util::sync::CancellationToken;

use super::Groups;
use super::member::Place;

/// A member's turn.
pub(crate) struct Turn {
    groups: Arc<Groups>,
    place: Place,
    /// Everything has arrived: the transfer needs its place in the queue no more.
    pub(crate) has_arrived: CancellationToken,
}

impl Turn {
    pub(crate) fn new(groups: Arc<Groups>, place: Place) -> Turn {
        Turn { groups, place, has_arrived: CancellationToken::new() }
    }

    /// Whether the update that it is of is under way, and waits for what this one brings.
    pub(crate) fn is_waited_for(&self) -> bool {
        let Place { key, number, id, .. } = &self.place;
        self.groups.waits_for_part(key, *number, *id)
    }

    /// When the moment was taken, on monotonic time.
    pub(crate) fn taken_at(&self) -> Duration {
        self.place.taken_at
    }
}

/// Takes back what a member has brought, if its transfer ends before it has heard what came of it.
struct TakesBack<'a>(&'a Turn);

impl Drop for TakesBack<'_> {
    fn drop(&mut self) {
        let Turn { groups, place, .. } = self.0;
        groups.take_back(&place.key, place.number, place.id);
    }
}

#[async_trait]
impl Together for Turn {
    fn moment(&self) -> GroupMoment {
        self.place.moment
    }

    fn is_there(&self) {
        self.groups.is_there(&self.place.key, self.place.number, self.place.id);
    }

    async fn publish(&self, brought: Brought) -> Result<String, TransferError> {
        self.has_arrived.cancel();
        let Place { key, number, id, .. } = &self.place;
        let published = self.groups.brought(key, *number, *id, brought);
        let published = published.map_err(TransferError::GroupGivenUp)?;
        // What is over cannot be taken back.
        let _takes_back = TakesBack(self);
        match published.await {
            Ok(Ok(name)) => Ok(name),
            Ok(Err(why)) => Err(TransferError::GroupGivenUp(why)),
            Err(_) => Err(TransferError::GroupGivenUp("the update of the group ended without a word".into())),
        }
    }

    fn give_up(&self, why: &str) {
        self.groups.give_up(self.place.id, why);
    }
}
