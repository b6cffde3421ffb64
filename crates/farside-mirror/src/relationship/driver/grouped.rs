//! What the driver does as a member of a group.

use farside_transfer::TransferKind;

use super::Driver;
use crate::group::{GroupKey, Member, Stands};
use crate::log::RequestedBy;
use crate::schedule::ClockReading;
use crate::state::Work;

/// What is to be done when the group says that an update of it is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    /// The part of this mirror is still to be begun.
    Begins,
    /// What runs brings it: this mirror was due by itself, and found the update before it heard of it.
    IsOfIt,
    /// It was brought, or nobody waits for it any more.
    TooLate,
}

/// The word of an update may come after this mirror has joined it: taken for the word of another, it would have all of the group updated
/// twice. `is_expected`: the update waits for this mirror; `is_of_it`: and what runs is its part.
fn woken(is_expected: bool, is_of_it: bool) -> Woken {
    match (is_expected, is_of_it) {
        (_, true) => Woken::IsOfIt,
        (true, false) => Woken::Begins,
        (false, false) => Woken::TooLate,
    }
}

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
        let is_expected = self.parts.groups.expects(self.relationship.id);
        match woken(is_expected, self.activity.is_of_group_update()) {
            Woken::TooLate => return,
            Woken::IsOfIt => return self.ticker.begun_by_others(ClockReading::of(&*self.parts.clock)),
            Woken::Begins => {}
        }
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::state::{Action, Event, RelationshipState};

    /// A member that is due by itself, and the update of its group that another one begins, in every order in which it can hear of both.
    #[derive(Clone, PartialEq, Eq, Hash, Debug)]
    struct Model {
        state: RelationshipState,
        is_due: bool,
        has_begun: bool,
        is_word_under_way: bool,
        /// What runs is its part of the update.
        is_of_it: bool,
        /// The update waits for its part.
        is_expected: bool,
        updates: u32,
    }

    impl Model {
        fn step(mut self, event: Event) -> Model {
            let (state, action) = self.state.step(event).unwrap();
            self.state = state;
            self.updates += u32::from(matches!(action, Action::Run(_)));
            self
        }

        fn next(&self) -> Vec<Model> {
            let mut next = Vec::new();
            if self.is_due {
                next.push(Model { is_due: false, ..self.clone() }.step(Event::Tick));
            }
            if !self.has_begun {
                let begun =
                    Model { has_begun: true, is_word_under_way: true, is_expected: true, ..self.clone() };
                next.push(begun);
            }
            if self.is_word_under_way {
                let heard = Model { is_word_under_way: false, ..self.clone() };
                next.push(match woken(self.is_expected, self.is_of_it && self.is_expected) {
                    Woken::Begins => Model { is_due: false, ..heard }.step(Event::Tick),
                    // Its interval counts from here.
                    Woken::IsOfIt => Model { is_due: false, ..heard },
                    Woken::TooLate => heard,
                });
            }
            // Before the other has begun the update this one waits for its answer.
            if self.has_begun && matches!(self.state.work, Work::Queued(_)) {
                let runs = Model { is_of_it: self.is_expected, ..self.clone() };
                next.push(runs.step(Event::Start));
            }
            if matches!(self.state.work, Work::Running { .. }) {
                let brought = Model { is_of_it: false, is_expected: false, ..self.clone() };
                next.push(brought.step(Event::Done));
            }
            next
        }
    }

    #[test]
    fn a_member_that_is_due_when_its_group_is_updated_is_updated_once() {
        let state =
            RelationshipState { initialized: true, quiesced: false, resync_pending: false, work: Work::Idle };
        let begin = Model {
            state,
            is_due: true,
            has_begun: false,
            is_word_under_way: false,
            is_of_it: false,
            is_expected: false,
            updates: 0,
        };
        let (mut seen, mut open, mut ends) = (HashSet::new(), vec![begin], 0);
        while let Some(model) = open.pop() {
            let next = model.next();
            if next.is_empty() {
                ends += 1;
                assert_eq!(model.updates, 1, "{model:?}");
            }
            open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
        }
        assert!(ends > 0);
    }
}
