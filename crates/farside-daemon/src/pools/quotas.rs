//! How near volumes are to their quotas: said as the room of a pool is, at the same levels.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use farside_api::PoolRoom;
use farside_store::{Pool, Room, VolumeStatus};
use parking_lot::Mutex;

use super::autogrow;
use super::capacity::{SETTLE_EVERY, may_change, next_level};

/// A volume with a quota, as it was seen.
pub(crate) struct SeenQuota {
    /// Its name in its pool.
    pub(crate) volume: String,
    pub(crate) level: PoolRoom,
    room: Room,
}

impl SeenQuota {
    /// What it means and what to do, in words.
    pub(crate) fn warning(&self, pool: &str) -> Option<String> {
        let Room { size_bytes, for_hosts_bytes, .. } = self.room;
        let taken = size_bytes.saturating_sub(for_hosts_bytes);
        let percent = (u128::from(taken) * 100).checked_div(u128::from(size_bytes)).unwrap_or(100);
        let left = format!("{:.1} MiB", for_hosts_bytes as f64 / f64::from(1 << 20));
        let what = match self.level {
            PoolRoom::Enough => return None,
            PoolRoom::Filling => format!("{percent} % of its quota are taken, and {left} are left"),
            PoolRoom::NearlyFull => format!(
                "{percent} % of its quota are taken, and {left} are left. When nothing is left, writes of new data to it fail with \
                 \"no space\""
            ),
            PoolRoom::Full => format!(
                "{left} of its quota are left, less than a write may need: writes of new data to it may fail with \"no space\". What was flushed is safe; reads, \
                 trims and deletions go on, and so does overwriting what no snapshot has"
            ),
        };
        let volume = &self.volume;
        Some(format!(
            "{what}. What to do: farside volume set {pool}/{volume} --quota with more; or delete snapshots that nobody needs, or \
             trim in its hosts"
        ))
    }
}

/// The levels of a pool's volumes, as they were told last.
#[derive(Default)]
pub(super) struct QuotaWatch {
    told: Mutex<HashMap<String, PoolRoom>>,
    settled: Mutex<Option<Instant>>,
    /// Whether a thread looks which volumes are to grow.
    is_growing: AtomicBool,
}

impl QuotaWatch {
    /// Looks, and writes to the log where a level is another one than before.
    pub(super) fn look(&self, pool_name: &str, pool: &Pool) -> Vec<SeenQuota> {
        let rooms = pool.quota_rooms();
        let mut told = self.told.lock();
        let before = std::mem::take(&mut *told);
        let mut all = Vec::with_capacity(rooms.len());
        for (volume, room) in rooms {
            let before = before.get(&volume).copied().unwrap_or(PoolRoom::Enough);
            let level = next_level(before, &room);
            told.insert(volume.clone(), level);
            let seen = SeenQuota { volume, level, room };
            let name = format!("{pool_name}/{}", seen.volume);
            match seen.warning(pool_name) {
                Some(warning) if level > before => {
                    tracing::warn!(volume = name, "the volume comes near its quota: {warning}");
                }
                Some(_) if level < before => {
                    tracing::info!(
                        volume = name,
                        "the volume has more of its quota left again, and still not much"
                    );
                }
                None if level < before => {
                    tracing::info!(volume = name, "the volume has enough of its quota left again")
                }
                _ => {}
            }
            all.push(seen);
        }
        all
    }

    /// Has volumes grow that are to, on a thread of its own: it may wait for the device, and nobody waits for it.
    pub(super) fn grow(self: &Arc<Self>, pool_name: &str, pool: &Arc<Pool>) {
        let grows = |volume: &VolumeStatus| volume.limits.autogrow.is_some();
        if !pool.volumes().iter().any(grows) || self.is_growing.swap(true, Ordering::AcqRel) {
            return;
        }
        let (name, pool, watch) = (pool_name.to_owned(), Arc::clone(pool), Arc::clone(self));
        tokio::task::spawn_blocking(move || {
            autogrow::grow(&name, &pool);
            watch.is_growing.store(false, Ordering::Release);
        });
    }

    /// Asks for a consistency point if one may change what is told.
    pub(super) fn settle_if_it_helps(&self, pool: &Pool) {
        let told = self.told.lock().clone();
        let helps = |(volume, room): &(String, Room)| {
            may_change(told.get(volume).copied().unwrap_or(PoolRoom::Enough), room)
        };
        let mut settled = self.settled.lock();
        if settled.is_none_or(|at| at.elapsed() >= SETTLE_EVERY) && pool.quota_rooms().iter().any(helps) {
            *settled = Some(Instant::now());
            pool.settle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_says_how_much_is_left_and_what_to_do() {
        let room = |left: u64| Room {
            size_bytes: 1000 << 20,
            for_hosts_bytes: left << 20,
            unsettled_bytes: 0,
            refuses_hosts: false,
            may_settle: false,
        };
        let said = |level, left| SeenQuota { volume: "v".into(), level, room: room(left) }.warning("p");
        assert_eq!(said(PoolRoom::Enough, 500), None);
        let filling = said(PoolRoom::Filling, 180).unwrap();
        assert!(filling.starts_with("82 %") && filling.contains("180.0 MiB"), "{filling}");
        for (level, left) in [(PoolRoom::NearlyFull, 50), (PoolRoom::Full, 0)] {
            let text = said(level, left).unwrap();
            assert!(text.contains("no space") && text.contains("farside volume set p/v --quota"), "{text}");
        }
    }
}
