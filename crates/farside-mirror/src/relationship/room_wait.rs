//! When a mirror whose last transfer found no room is tried again by its schedule. Pure.
//!
//! An attempt that cannot fit costs a snapshot and a comparison at the source, and one that runs full on the way costs what it
//! brought. So the schedule waits until the pool has as much more room as was missing. Since the source's newest
//! version may have become smaller, it tries now and then all the same, ever more seldom.

use std::time::Duration;

use crate::limits::{ROOM_RETRY_MAX, ROOM_RETRY_MIN};

/// What is known of the last attempt that found no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RoomWait {
    /// Room of the pool as it failed; none if the engine cannot tell.
    room_then: Option<u64>,
    /// By so much there has to be more.
    missing_bytes: u64,
    /// Tried again then in any case (monotonic).
    again_at: Duration,
    /// Time from the attempt to then.
    rest: Duration,
}

impl RoomWait {
    /// After one more attempt in a row, at `now` (monotonic). Nobody knows how much is missing of what ran full on the way:
    /// then anything counts that is worth a transfer.
    pub(super) fn after(
        before: Option<RoomWait>,
        room_then: Option<u64>,
        missing_bytes: Option<u64>,
        now: Duration,
    ) -> RoomWait {
        let rest = before.map_or(ROOM_RETRY_MIN, |before| (before.rest * 2).min(ROOM_RETRY_MAX));
        let missing_bytes = missing_bytes.unwrap_or_else(|| room_then.unwrap_or(0) / 8).max(1 << 20);
        RoomWait { room_then, missing_bytes, again_at: now + rest, rest }
    }

    /// Whether the schedule may try now, with so much room.
    pub(super) fn is_over(&self, room: Option<u64>, now: Duration) -> bool {
        let has_room = match (self.room_then, room) {
            (Some(then), Some(room)) => room >= then.saturating_add(self.missing_bytes),
            _ => false,
        };
        has_room || now >= self.again_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_waits_for_what_was_missing_and_otherwise_ever_longer() {
        let (mut now, mut wait) = (Duration::ZERO, None);
        let mut rests = Vec::new();
        for _ in 0..9 {
            let failed = RoomWait::after(wait, Some(1000), Some(50 << 20), now);
            assert!(!failed.is_over(Some(999 + (50 << 20)), now));
            assert!(failed.is_over(Some(1000 + (50 << 20)), now), "as soon as there is room");
            let rest = (0..).find(|s| failed.is_over(Some(0), now + Duration::from_secs(*s))).unwrap();
            rests.push(rest);
            now += Duration::from_secs(rest);
            wait = Some(failed);
        }
        assert_eq!(rests, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]);
        assert!(!RoomWait::after(None, None, None, now).is_over(Some(u64::MAX), now), "nobody can tell");
    }
}
