//! What the driver does as a member of a group.

use farside_transfer::TransferKind;

use super::Driver;
use crate::group::{GroupKey, Member, Stands};
use crate::log::RequestedBy;
use crate::schedule::ClockReading;
use crate::state::Work;

impl Driver {
    /// Says what the group has to know.
    pub(super) fn enroll(&self) {
        let relationship = &self.relationship;
        let stands = if !self.is_settled() {
            Some(Stands::Unknown)
        } else if self.state.work == Work::BrokenOff {
            Some(Stands::BrokenOff)
        } else if self.is_swapping || relationship.swap.is_some() {
            Some(Stands::Swaps)
        } else if self.state.resync_pending {
            Some(Stands::Resyncs)
        } else {
            self.state.quiesced.then_some(Stands::Quiesced)
        };
        let member = Member {
            volume: relationship.destination.clone(),
            source: relationship.source.clone(),
            role_change: relationship.role_change,
            counts: self.state.initialized || !self.is_settled(),
            stands,
            wake: self.group_wakes.clone(),
        };
        self.parts.groups.enroll(relationship.id, GroupKey::of(relationship).as_ref(), member);
    }

    /// The next update goes without the group; one that waits for the group waits no more.
    pub(super) fn goes_alone(&mut self) {
        self.is_alone = true;
        if self.state.work == Work::Queued(TransferKind::Update) && self.relationship.group.is_some() {
            self.leave_queue();
            self.fails_its_group("it changes roles with its source");
            self.state.work = Work::Idle;
        }
    }

    /// The group with which this transfer is to be published. A role change brings a snapshot of its own.
    pub(super) fn group_of(&mut self, kind: TransferKind) -> Option<GroupKey> {
        let is_alone =
            std::mem::take(&mut self.is_alone) || self.is_swapping || self.relationship.swap.is_some();
        GroupKey::of(&self.relationship).filter(|_| kind == TransferKind::Update && !is_alone)
    }

    /// An update of the group is under way. Where none of this mirror begins, nobody is to wait for it.
    pub(super) async fn update_with_group(&mut self) {
        self.due(RequestedBy::Group).await;
        if matches!(self.state.work, Work::Queued(_) | Work::Running { .. }) {
            // It counts as this mirror's own: a group of many is not updated many times in an interval.
            self.ticker.begun_by_others(ClockReading::of(&*self.parts.clock));
        } else {
            let why = self.every_why().unwrap_or_else(|| "no update of it can begin now".into());
            self.fails_its_group(&why);
        }
    }

    /// A transfer has ended and no other is queued, though the group may wait for one.
    pub(super) async fn settle_with_group(&mut self, is_done: bool) {
        if !self.parts.groups.expects(self.relationship.id) {
            return;
        }
        if is_done {
            return self.update_with_group().await;
        }
        let why = self.why.clone().unwrap_or_else(|| "its transfer was ended".into());
        self.fails_its_group(&why);
    }

    /// The group need not wait for this mirror: its transfer does not come.
    pub(super) fn fails_its_group(&self, why: &str) {
        self.parts.groups.give_up(self.relationship.id, why);
    }
}
