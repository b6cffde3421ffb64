//! Which role change of a relationship this side has seen last, so that nothing comes into force that was told
//! of an earlier one.
//!
//! A call goes on here when its session has died, and the destination tells the same by its next session, and newer things
//! after that. Order of arrival says nothing then, so destinations number their role changes
//! ([`Swap::role_change`](farside_transfer::protocol::Swap::role_change)). Only memory: what could still come late dies with this process, too.

use std::sync::Arc;

/// What was seen of one relationship.
#[derive(Default)]
pub(super) struct RoleChangesSeen {
    newest: u64,
    /// The newest one has ended: it cannot begin any more.
    is_over: bool,
    /// The newest one after which the volume here was known to follow the destination.
    followed: u64,
    /// One message at a time is acted on.
    order: Arc<tokio::sync::Mutex<()>>,
}

/// What a message does with the role change that it is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RoleChangeMessage {
    Begin,
    Continue,
    End,
}

impl RoleChangesSeen {
    /// Held while a message about the relationship is acted on.
    pub(super) fn order(&self) -> Arc<tokio::sync::Mutex<()>> {
        self.order.clone()
    }

    /// Whether somebody acts on a message, or waits to.
    pub(super) fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.order) > 1
    }

    /// The newest role change that was seen; 0 if none was.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// The volume here follows the destination, which says so by its role change with this number.
    pub(super) fn follows(&mut self, role_change: u64) {
        self.followed = self.followed.max(role_change);
    }

    /// Whether it did: then what a word of that role change says is known here, whatever was decided since.
    pub(super) fn has_followed(&self, role_change: u64) -> bool {
        role_change <= self.followed
    }

    /// Whether a message is of an earlier role change than the newest, or begins one that has ended.
    pub(super) fn is_late(&self, role_change: u64, message: RoleChangeMessage) -> bool {
        role_change < self.newest
            || (role_change == self.newest && self.is_over && message == RoleChangeMessage::Begin)
    }

    /// Notes a message; false if it is late, and must have no effect.
    pub(super) fn accept(&mut self, role_change: u64, message: RoleChangeMessage) -> bool {
        if self.is_late(role_change, message) {
            return false;
        }
        if role_change > self.newest {
            (self.newest, self.is_over) = (role_change, false);
        }
        self.is_over |= message == RoleChangeMessage::End;
        true
    }
}
