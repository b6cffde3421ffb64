//! How far each pool was written, as the state database remembers it. A pool that opens with less is an older copy of itself: a
//! backup or a snapshot of the storage below it was put in its place, or its newest changes were lost. What hosts wrote since is
//! not in it, and nobody else would say so: it is whole, and all that it has is right.

use std::collections::BTreeMap;
use std::time::Duration;

use farside_api::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::pools::Pools;
use crate::state::{State, StateError};

/// How often it is looked how far pools were written. What was written after the last look before a stop is not known.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Pools that are remembered at most: those that were open last.
const REMEMBERED_MAX: usize = 1024;

/// How far one pool was written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Mark {
    /// Position of its journal: it only rises, over all openings.
    position: u64,
    /// When that was seen.
    at: Timestamp,
    /// It was found to have less, and nobody has acknowledged that.
    set_back: Option<SetBack>,
}

/// A pool that was found to be an older copy of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SetBack {
    /// When it was last seen to have more.
    pub(crate) had_more_at: Timestamp,
    /// When it was found.
    pub(crate) found_at: Timestamp,
}

/// Of all pools. Pure.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Marks(BTreeMap<Uuid, Mark>);

impl Marks {
    /// A pool was opened, and its journal ended there: answers whether it had more before.
    fn opened(&mut self, pool: Uuid, at: u64, now: Timestamp) -> Option<SetBack> {
        let mark = self.0.get_mut(&pool)?;
        if at >= mark.position {
            return None;
        }
        let set_back = SetBack { had_more_at: mark.at, found_at: now };
        // From here on it is what it is: the next opening is not compared with what was before.
        *mark = Mark { position: at, at: now, set_back: Some(set_back.clone()) };
        Some(set_back)
    }

    /// A pool that is open is on its medium up to there: answers whether that is more than was known.
    fn reached(&mut self, pool: Uuid, position: u64, now: Timestamp) -> bool {
        match self.0.get_mut(&pool) {
            Some(mark) if mark.position >= position => false,
            Some(mark) => {
                (mark.position, mark.at) = (position, now);
                true
            }
            None => {
                self.0.insert(pool, Mark { position, at: now, set_back: None });
                while self.0.len() > REMEMBERED_MAX {
                    let oldest = self.0.iter().min_by_key(|(_, mark)| mark.at).map(|(pool, _)| *pool);
                    oldest.and_then(|pool| self.0.remove(&pool));
                }
                true
            }
        }
    }

    /// A person knows of it: answers whether there was something to know.
    fn settle(&mut self, pool: Uuid) -> bool {
        self.0.get_mut(&pool).and_then(|mark| mark.set_back.take()).is_some()
    }
}

/// The marks of a site's pools.
pub(crate) struct PoolMarks {
    state: State,
    marks: Mutex<Marks>,
    /// The openings that were looked at, by pool: its opening's number.
    looked_at: Mutex<BTreeMap<Uuid, u64>>,
}

impl PoolMarks {
    /// As they were noted. What cannot be read is noted anew: no pool is called older for it.
    pub(crate) async fn load(state: &State) -> Result<PoolMarks, StateError> {
        let marks = match state.pool_marks().await?.map(|text| serde_json::from_str(&text)) {
            None => Marks::default(),
            Some(Ok(marks)) => marks,
            Some(Err(error)) => {
                tracing::warn!("how far pools were written cannot be read, and is noted anew: {error}");
                Marks::default()
            }
        };
        Ok(PoolMarks { state: state.clone(), marks: Mutex::new(marks), looked_at: Mutex::default() })
    }

    /// Looks how far pools were written, for as long as the site lives.
    pub(crate) async fn keep_looking(&self, pools: &Pools, now: impl Fn() -> Timestamp) {
        loop {
            self.look(pools, now()).await;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Looks once, and notes what is new.
    pub(crate) async fn look(&self, pools: &Pools, now: Timestamp) {
        let mut is_news = false;
        for (name, pool) in pools.open_pools() {
            let status = pool.status();
            let before = self.looked_at.lock().insert(status.id, status.open_epoch);
            let mut marks = self.marks.lock();
            if before != Some(status.open_epoch)
                && let Some(SetBack { had_more_at, .. }) =
                    marks.opened(status.id, status.journal_opened_at, now)
            {
                is_news = true;
                tracing::error!(
                    pool = name,
                    "pool {name} is an older copy of itself, or has lost its newest changes: at {had_more_at} it had more than it \
                     shows now"
                );
            }
            is_news |= marks.reached(status.id, status.journal_durable_to, now);
        }
        if is_news {
            self.keep().await;
        }
    }

    /// The open pools that were found to be older copies of themselves, by name.
    pub(crate) fn set_back(&self, pools: &Pools) -> BTreeMap<String, SetBack> {
        let marks = self.marks.lock();
        let of = |pool: Uuid| marks.0.get(&pool)?.set_back.clone();
        pools.open_pools().into_iter().filter_map(|(name, pool)| Some((name, of(pool.id())?))).collect()
    }

    /// A person knows that a pool is an older copy of itself.
    pub(crate) async fn settle(&self, pool: Uuid) {
        let is_news = self.marks.lock().settle(pool);
        if is_news {
            self.keep().await;
        }
    }

    async fn keep(&self) {
        let text = match serde_json::to_string(&*self.marks.lock()) {
            Ok(text) => text,
            Err(error) => return tracing::error!("how far pools were written cannot be noted: {error}"),
        };
        if let Err(error) = self.state.set_pool_marks(&text).await {
            // Noted with the next look at which something is new.
            tracing::warn!("how far pools were written was not noted: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: Uuid = Uuid::from_u128(7);

    fn seconds(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).expect("a moment")
    }

    #[test]
    fn a_pool_that_opens_with_less_than_it_had_is_found_once_and_until_somebody_knows() {
        let mut marks = Marks::default();
        assert_eq!(marks.opened(POOL, 100, seconds(1)), None, "it was never seen before");
        assert!(marks.reached(POOL, 100, seconds(1)) && marks.reached(POOL, 900, seconds(2)));
        assert!(!marks.reached(POOL, 900, seconds(3)), "it is as it was");
        assert_eq!(marks.opened(POOL, 900, seconds(4)), None, "it ends where it was");
        assert_eq!(marks.opened(POOL, 1000, seconds(5)), None, "more was written after the last look");
        let set_back = marks.opened(POOL, 899, seconds(6)).expect("it has less");
        assert_eq!(set_back, SetBack { had_more_at: seconds(2), found_at: seconds(6) });
        assert_eq!(marks.opened(POOL, 899, seconds(7)), None, "it is what it is by now");
        assert_eq!(marks.0[&POOL].set_back, Some(set_back), "and nobody knows of it yet");
        assert!(marks.settle(POOL) && !marks.settle(POOL));
    }

    #[test]
    fn the_pools_that_were_open_last_are_remembered() {
        let mut marks = Marks::default();
        for number in 0..=REMEMBERED_MAX as u128 {
            marks.reached(Uuid::from_u128(number), 1, seconds(number as i64));
        }
        assert_eq!(marks.0.len(), REMEMBERED_MAX);
        assert!(!marks.0.contains_key(&Uuid::from_u128(0)));
    }
}
