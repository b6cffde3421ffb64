//! Clusters are asked for the room of their pools; what they told last is known for a while.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::errors::explained;
use super::room::{RbdRoom, for_transfers, read};
use super::state::RbdEngine;
use crate::{EngineError, StagingRoom};

/// What the cluster has told is believed for so long by who begins a transfer. It counts anew about as often itself.
const FRESH_FOR: Duration = Duration::from_secs(5);
/// And shown for so long: longer than a look every ten seconds, the last of which the cluster took its full time not to answer.
const SHOWN_FOR: Duration = Duration::from_secs(60);
/// What monitors are asked.
const COMMAND: &str = r#"{"prefix": "df", "detail": "detail", "format": "json"}"#;

impl RbdEngine {
    /// Asks the cluster of a pool for its room: a round trip, or until its time-out.
    ///
    /// # Errors
    /// The pool is not there, or its cluster does not answer, or does not say.
    pub fn ask_room(&self, pool: &str) -> Result<RbdRoom, EngineError> {
        let pool = self.pool(pool)?;
        let _turn = pool.room.asking.lock();
        let what = format!("the room of pool {}", pool.name);
        let told = pool.ceph.connection.ask_monitors(COMMAND);
        let told = told.map_err(|failed| explained(&pool, &what, failed, 0))?;
        let room = read(&told, &pool.options.rbd_pool).ok_or_else(|| {
            EngineError::Io(format!(
                "{what}: the cluster's monitors do not say it of Ceph's pool {}. What is published is safe. What they say: ceph df detail",
                pool.options.rbd_pool
            ))
        })?;
        *pool.room.last.lock() = Some((Instant::now(), room));
        Ok(room)
    }

    /// The room of a pool as its cluster told it within the last minute. Nobody is asked.
    pub fn room(&self, pool: &str) -> Option<RbdRoom> {
        self.pool(pool).ok()?.room.within(SHOWN_FOR)
    }

    /// Has transfers leave so many percent of each pool free for hosts.
    pub fn set_host_reserve(&self, percent: u8) {
        self.inner.host_reserve_percent.store(percent.min(100), Ordering::Relaxed);
    }

    /// What transfers may still bring into a pool. None if its cluster does not say: they begin and see.
    pub(super) fn room_for_transfers(&self, pool: &str) -> Result<Option<StagingRoom>, EngineError> {
        let known = self.pool(pool)?.room.within(FRESH_FOR);
        let Some(room) = known.or_else(|| self.ask_room(pool).ok()) else { return Ok(None) };
        let percent = self.inner.host_reserve_percent.load(Ordering::Relaxed);
        Ok(Some(for_transfers(room, percent)))
    }
}
