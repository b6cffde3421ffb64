//! How many blocks transfers may bring until somebody looks again what is left below the pool's file. Pure.

use std::sync::atomic::{AtomicU64, Ordering};

/// Blocks that may be staged until somebody looks again.
#[derive(Debug, Default)]
pub(crate) struct Allowance(AtomicU64);

impl Allowance {
    pub(crate) fn take(&self, blocks: u64) -> bool {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(blocks)).is_ok()
    }

    pub(crate) fn set(&self, blocks: u64) {
        self.0.store(blocks, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_taken_piece_by_piece() {
        let allowance = Allowance::default();
        assert!(allowance.take(0) && !allowance.take(1));
        allowance.set(3);
        assert!(allowance.take(2) && !allowance.take(2) && allowance.take(1));
    }
}
