//! What a volume takes of the pool, as far as is known between consistency points. Pure.
//!
//! Only a point tells what was replaced on the medium. Until then the count of what a volume owns is an upper bound. Where that
//! bound meets a quota, writers look up what they replace: what is known to end with a point is *ending*, and does not count.

/// One volume's.
#[derive(Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Blocks that its versions own, and own no more once a point has found what was replaced.
    owned: u64,
    /// Of those, the ones that are known to end with the next point, and with the point under way.
    ending: u64,
    ending_captured: u64,
    /// Blocks that changed since the last capture, and before it while no point has come to its end, of which nobody knows what
    /// they replaced.
    unsettled: u64,
    unsettled_captured: u64,
    /// A host was told that the quota is reached, and nothing has changed since.
    refuses: bool,
}

impl Usage {
    /// Blocks owned, at most.
    pub(crate) fn owned(&self) -> u64 {
        self.owned
    }

    /// The same without what is known to end.
    pub(crate) fn alive(&self) -> u64 {
        self.owned.saturating_sub(self.ending).saturating_sub(self.ending_captured)
    }

    /// So many blocks a point may find to be owned no more, at most.
    pub(crate) fn unsettled(&self) -> u64 {
        self.unsettled.saturating_add(self.unsettled_captured)
    }

    /// Whether a point may find less.
    pub(crate) fn may_settle(&self) -> bool {
        self.unsettled() > 0
    }

    pub(crate) fn refuses(&self) -> bool {
        self.refuses
    }

    pub(crate) fn refused(&mut self) {
        self.refuses = true;
    }

    pub(crate) fn gains(&mut self, blocks: u64) {
        self.owned += blocks;
    }

    pub(crate) fn loses(&mut self, blocks: u64) {
        self.owned = self.owned.saturating_sub(blocks);
        self.refuses = false;
    }

    /// `blocks` changed; `ending` says how much of what they replaced on the medium ends with the next point, none if nobody looked.
    pub(crate) fn changed(&mut self, blocks: u64, ending: Option<u64>) {
        self.refuses = false;
        match ending {
            Some(ending) => self.ending += ending,
            None => self.unsettled = self.unsettled.saturating_add(blocks),
        }
    }

    /// A point begins with what is at hand.
    pub(crate) fn captured(&mut self) {
        self.ending_captured = std::mem::take(&mut self.ending);
        // After a point that failed, what it did not find is still not found.
        self.unsettled_captured = self.unsettled();
        self.unsettled = 0;
    }

    /// It has come to its end.
    pub(crate) fn installed(&mut self) {
        self.ending_captured = 0;
        self.unsettled_captured = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_to_end_does_not_count_until_the_point_that_ends_it() {
        let mut usage = Usage::default();
        usage.gains(100);
        usage.changed(100, None);
        assert_eq!((usage.alive(), usage.may_settle()), (100, true));
        usage.captured();
        assert!(usage.may_settle(), "the point is under way");
        usage.installed();
        assert!(!usage.may_settle());
        // An overwrite whose old blocks were looked up.
        usage.gains(10);
        usage.changed(10, Some(10));
        assert_eq!((usage.owned(), usage.alive(), usage.may_settle()), (110, 100, false));
        usage.captured();
        usage.gains(5);
        usage.changed(5, Some(5));
        assert_eq!((usage.owned(), usage.alive()), (115, 100));
        usage.loses(10);
        usage.installed();
        assert_eq!((usage.owned(), usage.alive()), (105, 100));
    }
}
