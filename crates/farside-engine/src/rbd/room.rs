//! The room of a pool of Ceph, as its monitors tell it (`ceph df detail`): what `profile rbd` may ask.
//!
//! `stored` is what clients have written, before copies; `max_avail` is what they may still write, before copies, until the first OSD is
//! full. A quota of the pool may leave less. A namespace has the room of its pool. The cluster counts every few seconds: what was written
//! or deleted just now is in it a little later, and what was deleted when its OSDs have trimmed it.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Deserialize;

use crate::StagingRoom;

/// The room of a pool, bytes, each as hosts see them: before copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RbdRoom {
    /// Written, by everybody who uses the pool.
    pub used_bytes: u64,
    /// May still be written.
    pub free_bytes: u64,
}

impl RbdRoom {
    /// Both.
    pub fn size_bytes(&self) -> u64 {
        self.used_bytes.saturating_add(self.free_bytes)
    }
}

/// What a pool's cluster told last.
#[derive(Default)]
pub(super) struct Told {
    pub(super) last: Mutex<Option<(Instant, RbdRoom)>>,
    /// One asks at a time.
    pub(super) asking: Mutex<()>,
}

impl Told {
    pub(super) fn within(&self, limit: Duration) -> Option<RbdRoom> {
        self.last.lock().filter(|(at, _)| at.elapsed() < limit).map(|(_, room)| room)
    }
}

/// What is left to transfers of it.
pub(super) fn for_transfers(room: RbdRoom, host_reserve_percent: u8) -> StagingRoom {
    let part = u128::from(room.size_bytes()) * u128::from(host_reserve_percent.min(100)) / 100;
    let reserve_bytes = u64::try_from(part).unwrap_or(u64::MAX);
    StagingRoom {
        room_bytes: room.free_bytes.saturating_sub(reserve_bytes),
        reserve_bytes,
        quota_bytes: None,
        below: None,
    }
}

#[derive(Deserialize)]
struct Df {
    pools: Vec<DfPool>,
}

#[derive(Deserialize)]
struct DfPool {
    name: String,
    stats: DfStats,
}

#[derive(Deserialize)]
struct DfStats {
    stored: u64,
    max_avail: u64,
    /// 0 for none.
    #[serde(default)]
    quota_bytes: u64,
}

/// What `df detail` says of a pool. Nothing if it does not name it, and of a cluster that has no OSD that it could count.
pub(super) fn read(told: &[u8], pool: &str) -> Option<RbdRoom> {
    let df: Df = serde_json::from_slice(told).ok()?;
    let DfStats { stored, max_avail, quota_bytes } = df.pools.into_iter().find(|of| of.name == pool)?.stats;
    let by_quota = if quota_bytes == 0 { u64::MAX } else { quota_bytes.saturating_sub(stored) };
    let room = RbdRoom { used_bytes: stored, free_bytes: max_avail.min(by_quota) };
    (room.size_bytes() > 0).then_some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_monitors_say_is_read() {
        let told = br#"{"stats": {"total_bytes": 9, "num_osds": 1}, "pools": [
            {"name": "other", "id": 1, "stats": {"stored": 1, "max_avail": 2}},
            {"name": "volumes", "id": 2, "stats": {"stored": 300, "objects": 3, "max_avail": 700, "quota_bytes": 0}},
            {"name": "small", "id": 3, "stats": {"stored": 300, "max_avail": 700, "quota_bytes": 400}},
            {"name": "over", "id": 4, "stats": {"stored": 300, "max_avail": 700, "quota_bytes": 200}},
            {"name": "none", "id": 5, "stats": {"stored": 0, "max_avail": 0}}]}"#;
        let free = |pool: &str| read(told, pool).map(|room| (room.used_bytes, room.free_bytes));
        assert_eq!(free("other"), Some((1, 2)));
        assert_eq!(free("volumes"), Some((300, 700)));
        assert_eq!(free("small"), Some((300, 100)), "its quota ends first");
        assert_eq!(free("over"), Some((300, 0)));
        assert_eq!((free("none"), free("absent"), read(b"not JSON", "volumes")), (None, None, None));
    }

    #[test]
    fn transfers_leave_room_for_hosts() {
        let room = |free_bytes| for_transfers(RbdRoom { used_bytes: 1000 - free_bytes, free_bytes }, 5);
        assert_eq!((room(400).room_bytes, room(400).reserve_bytes), (350, 50));
        assert_eq!(room(50).room_bytes, 0);
        assert_eq!(room(0).room_bytes, 0);
        let all = for_transfers(RbdRoom { used_bytes: 0, free_bytes: 1_000_000_007 }, 100);
        assert_eq!(all.room_bytes, 0, "to the last byte");
    }
}
