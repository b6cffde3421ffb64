//! The room of pools of Ceph: looked at every ten seconds by a thread for each, so that a cluster that does not answer holds up nobody. Who
//! lists pools is shown what was told last, and nothing once that is a minute old.

use std::collections::BTreeMap;

use farside_api::PoolRoom;
use farside_engine::rbd::RbdRoom;
use farside_store::Room;
use parking_lot::Mutex;

use super::capacity::next_level;

/// What is known of each, by name.
#[derive(Default)]
pub(super) struct ClusterRooms(Mutex<BTreeMap<String, Watch>>);

#[derive(Default)]
struct Watch {
    told: Option<PoolRoom>,
    is_asked: bool,
    is_silent: bool,
}

impl ClusterRooms {
    /// The level of so much room, which is said in the log when it is another than before.
    pub(super) fn note(&self, name: &str, room: RbdRoom) {
        let before = {
            let mut watches = self.0.lock();
            let watch = watches.entry(name.to_owned()).or_default();
            watch.is_silent = false;
            let before = watch.told.unwrap_or(PoolRoom::Enough);
            watch.told = Some(level_after(before, room));
            before
        };
        let level = self.level(name, room);
        match warning(level, room) {
            Some(warning) if level > before => tracing::warn!(pool = name, "the pool fills up: {warning}"),
            Some(_) if level < before => {
                tracing::info!(pool = name, "the pool has more room again, and still not much");
            }
            None if level < before => tracing::info!(pool = name, "the pool has enough room again"),
            _ => {}
        }
    }

    pub(super) fn level(&self, name: &str, room: RbdRoom) -> PoolRoom {
        let told = self.0.lock().get(name).and_then(|watch| watch.told);
        told.unwrap_or_else(|| level_after(PoolRoom::Enough, room))
    }

    /// Whether nobody asks for it yet; who hears that asks, and says when that has ended.
    pub(super) fn begin(&self, name: &str) -> bool {
        !std::mem::replace(&mut self.0.lock().entry(name.to_owned()).or_default().is_asked, true)
    }

    pub(super) fn end(&self, name: &str) {
        if let Some(watch) = self.0.lock().get_mut(name) {
            watch.is_asked = false;
        }
    }

    /// Whether this is the first time that its cluster says nothing.
    pub(super) fn note_silent(&self, name: &str) -> bool {
        self.0.lock().get_mut(name).is_some_and(|watch| !std::mem::replace(&mut watch.is_silent, true))
    }

    /// Nobody knows any more what was told of it; one that asks for it still may.
    pub(super) fn forget(&self, name: &str) {
        if let Some(watch) = self.0.lock().get_mut(name) {
            watch.told = None;
        }
    }
}

/// As of any pool. What hosts are refused nobody tells here.
fn level_after(before: PoolRoom, room: RbdRoom) -> PoolRoom {
    let (size_bytes, for_hosts_bytes) = (room.size_bytes(), room.free_bytes);
    let room =
        Room { size_bytes, for_hosts_bytes, unsettled_bytes: 0, refuses_hosts: false, may_settle: false };
    next_level(before, &room)
}

/// What a level means and what to do, in words.
pub(super) fn warning(level: PoolRoom, room: RbdRoom) -> Option<String> {
    let percent =
        (u128::from(room.used_bytes) * 100).checked_div(u128::from(room.size_bytes())).unwrap_or(100);
    let left = format!("{:.1} GiB", room.free_bytes as f64 / f64::from(1 << 30));
    let what = match level {
        PoolRoom::Enough => return None,
        PoolRoom::Filling => format!("{percent} % of it are taken, and {left} are left"),
        PoolRoom::NearlyFull => format!(
            "{percent} % of it are taken, and {left} are left. Transfers that bring data here wait for room, or will soon. When nothing is \
             left, writes of all clients of the cluster stand still"
        ),
        PoolRoom::Full => format!(
            "{left} are left: writes of its clients stand still or fail. What was flushed is safe; reads go on"
        ),
    };
    Some(format!("{what}. What to do: {}", TO_MAKE_ROOM))
}

/// What a person can do about a pool of Ceph that fills up.
pub(crate) const TO_MAKE_ROOM: &str = "ceph df detail and ceph osd df say whether a quota of the pool or an OSD is the limit; add OSDs, raise the quota (ceph osd pool \
     set-quota), or delete images and snapshots that nobody needs";

#[cfg(test)]
mod tests {
    use super::*;

    fn room(free_percent: u64) -> RbdRoom {
        RbdRoom { used_bytes: (100 - free_percent) << 30, free_bytes: free_percent << 30 }
    }

    #[test]
    fn levels_are_those_of_any_pool() {
        let rooms = ClusterRooms::default();
        assert_eq!(rooms.level("p", room(50)), PoolRoom::Enough, "nobody has looked yet");
        let mut levels = Vec::new();
        for free in [50, 20, 21, 5, 6, 8, 0, 1, 3, 30] {
            rooms.note("p", room(free));
            levels.push(rooms.level("p", room(free)));
        }
        use PoolRoom::{Enough, Filling, Full, NearlyFull};
        let expected =
            [Enough, Filling, Filling, NearlyFull, NearlyFull, Filling, Full, Full, NearlyFull, Enough];
        assert_eq!(levels, expected);
        rooms.note("p", room(20));
        rooms.forget("p");
        assert_eq!(rooms.level("p", room(21)), Enough, "another pool of that name");
    }

    #[test]
    fn a_cluster_that_does_not_answer_is_asked_once_at_a_time_and_told_of_once() {
        let rooms = ClusterRooms::default();
        assert!(rooms.begin("p") && !rooms.begin("p") && rooms.begin("q"));
        assert!(rooms.note_silent("p") && !rooms.note_silent("p"));
        rooms.forget("p");
        assert!(!rooms.begin("p"), "one that asks still does");
        rooms.end("p");
        assert!(rooms.begin("p"));
        rooms.note("p", room(50));
        assert!(rooms.note_silent("p"), "it had answered meanwhile");
    }

    #[test]
    fn what_a_level_means_names_what_helps_in_a_cluster() {
        assert_eq!(warning(PoolRoom::Enough, room(50)), None);
        for level in [PoolRoom::Filling, PoolRoom::NearlyFull, PoolRoom::Full] {
            let said = warning(level, room(4)).unwrap();
            assert!(said.contains("4.0 GiB are left") && said.contains("set-quota"), "{said}");
            assert!(!said.contains("farside pool grow"), "a cluster does not grow so: {said}");
        }
    }
}
