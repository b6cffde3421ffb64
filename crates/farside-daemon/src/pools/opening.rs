//! How a pool is opened: its device first, which says whose identity it is; then what is on it; then it is served. At the daemon's
//! start all are opened at once, each on a thread of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_api::{ErrorBody, ErrorCode};
use farside_platform::{BlockDevice, FileDevice};
use farside_store::Pool;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Manner, Opened, Pools, close};
use crate::failure::Failure;

/// How long the identity of a pool waits for those of pools before it in the list, when all are opened at the start: of two with
/// one identity it is the first that counts, unless its device does not answer.
const IDENTITY_WAITS: Duration = Duration::from_secs(2);

/// A pool that is being opened on a thread of its own, which nobody else waits for.
pub(crate) struct Opening {
    pub(crate) name: String,
    pub(crate) path: String,
    attempt: u64,
    outcome: oneshot::Receiver<Result<Identified, ErrorBody>>,
}

/// An identity that nobody else opens a pool of until this is dropped.
pub(super) struct Reserved {
    id: Uuid,
    identities: Arc<Mutex<BTreeMap<Uuid, String>>>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.identities.lock().remove(&self.id);
    }
}

/// A pool that is open, and not served yet.
pub(super) struct Identified {
    opened: Opened,
    _reserved: Option<Reserved>,
}

/// Whose identity is known, of those that are opened at the same time.
struct Turns {
    known: Mutex<Vec<bool>>,
    changed: Condvar,
}

impl Turns {
    /// Waits for those before this one, not for ever.
    fn wait(&self, at: usize) {
        let until = Instant::now() + IDENTITY_WAITS;
        let mut known = self.known.lock();
        while !known[..at].iter().all(|known| *known) {
            if self.changed.wait_until(&mut known, until).timed_out() {
                return;
            }
        }
    }

    fn done(&self, at: usize) {
        self.known.lock()[at] = true;
        self.changed.notify_all();
    }
}

/// What [`Opening::opened`] answers with.
pub(crate) struct OpenedPool(Identified);

impl OpenedPool {
    /// Closes it: it is not served.
    pub(crate) fn close(self, name: &str) {
        close(name, &self.0.opened.pool);
    }
}

impl Opening {
    /// Waits until it is open, or cannot be. Answers once.
    pub(crate) async fn opened(&mut self) -> Result<OpenedPool, ErrorBody> {
        let lost = || ErrorBody::new(ErrorCode::Failed, "internal error (bug) while the pool was opened");
        let outcome = (&mut self.outcome).await;
        outcome.map_err(|_| lost().hint("the daemon's log says more"))?.map(OpenedPool)
    }
}

impl Pools {
    /// Begins to open pools at the daemon's start, all at once, each on a thread of its own: a device that does not answer holds up
    /// its own pool alone, and no stop of the daemon. Each keeps its place, whatever comes of it.
    pub(crate) fn begin_opening(
        self: &Arc<Self>,
        known: Vec<(String, String)>,
    ) -> Vec<Result<Opening, ErrorBody>> {
        let turns = Arc::new(Turns { known: Mutex::new(vec![false; known.len()]), changed: Condvar::new() });
        let begin = |(at, (name, path)): (usize, (String, String))| {
            let (attempt, _) = self.occupy(&name, &path, false).inspect_err(|_| turns.done(at))?;
            let (answer, outcome) = oneshot::channel();
            let (pools, order, of, from) = (Arc::clone(self), Arc::clone(&turns), name.clone(), path.clone());
            let open = move || {
                let device = open_device(&from);
                order.wait(at);
                let found =
                    device.and_then(|(device, id)| Ok((device, Some(pools.reserve(&of, &from, id)?))));
                order.done(at);
                let opened = found.and_then(|found| pools.open_identified(&of, found, Manner::default()));
                // Whoever waited is gone when the daemon stops.
                let _ = answer.send(opened);
            };
            let started = std::thread::Builder::new().name("pool-open".to_owned()).spawn(open);
            if let Err(error) = started {
                turns.done(at);
                let why = format!("no thread to open pool {name} with: {error}");
                let error = ErrorBody::new(ErrorCode::Failed, why);
                let settled = self.settle(&name, attempt, Err(error.clone()), true, |_| {});
                return Err(settled.err().unwrap_or(error));
            }
            Ok(Opening { name, path, attempt, outcome })
        };
        known.into_iter().enumerate().map(begin).collect()
    }

    /// Has a pool that [was opened](Opening::opened) be served, or keep its place with the reason why not. `look` sees it before
    /// anybody can use it.
    pub(crate) fn finish_opening(
        &self,
        opening: &Opening,
        outcome: Result<OpenedPool, ErrorBody>,
        look: impl FnOnce(&Pool),
    ) -> Result<Arc<Pool>, ErrorBody> {
        self.settle_identified(&opening.name, opening.attempt, outcome.map(|opened| opened.0), true, look)
    }

    /// Opens what is there, for the pool `name`.
    pub(super) fn open_from(&self, name: &str, path: &str, manner: Manner) -> Result<Identified, ErrorBody> {
        let (device, id) = open_device(path)?;
        // A copy gets an identity of its own, that nobody else has.
        let reserved = if manner.as_copy { None } else { Some(self.reserve(name, path, id)?) };
        self.open_identified(name, (device, reserved), manner)
    }

    /// Two of one identity would be taken for each other by every mirror: the first counts.
    fn reserve(&self, name: &str, path: &str, id: Uuid) -> Result<Reserved, ErrorBody> {
        let mut identities = self.identities.lock();
        // Held until the pool is among those that are open.
        let open = || self.open_pools().into_iter().find(|(_, pool)| pool.id() == id).map(|(other, _)| other);
        if let Some(other) = identities.get(&id).cloned().or_else(open) {
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!(
                    "{path} is a copy of pool {other}, which is open: both have the identity {id}, and so have their volumes and \
                     mirrors. Nothing was changed"
                ),
            )
            .hint(format!(
                "to have it beside {other}, as a pool of its own without those mirrors: farside pool import NAME --path {path} --as-copy"
            )));
        }
        identities.insert(id, name.to_owned());
        Ok(Reserved { id, identities: Arc::clone(&self.identities) })
    }

    fn open_identified(
        &self,
        name: &str,
        (device, reserved): (Arc<FileDevice>, Option<Reserved>),
        manner: Manner,
    ) -> Result<Identified, ErrorBody> {
        let as_device = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let pool = Pool::open(as_device, self.options_for(name, &device, manner))
            .map_err(Failure::into_error_body)?;
        Ok(Identified { opened: Opened::new(pool, device), _reserved: reserved })
    }

    pub(super) fn settle_identified(
        &self,
        name: &str,
        attempt: u64,
        outcome: Result<Identified, ErrorBody>,
        keep_failed: bool,
        look: impl FnOnce(&Pool),
    ) -> Result<Arc<Pool>, ErrorBody> {
        match outcome {
            // The identity is free again once the pool is among those that are open.
            Ok(Identified { opened, _reserved }) => self.settle(name, attempt, Ok(opened), keep_failed, look),
            Err(error) => self.settle(name, attempt, Err(error), keep_failed, look),
        }
    }
}

/// A pool's device, and which pool is on it.
fn open_device(path: &str) -> Result<(Arc<FileDevice>, Uuid), ErrorBody> {
    let device = Arc::new(FileDevice::open(Path::new(path)).map_err(Failure::into_error_body)?);
    if !device.is_direct() {
        tracing::warn!(path, "no direct I/O on this file system; flushes may be slow");
    }
    if !device.uses_io_uring() {
        tracing::info!(path, "no io_uring here; blocks that lie apart are read one after the other");
    }
    let id = farside_store::identity(&*device).map_err(Failure::into_error_body)?;
    Ok((device, id))
}

#[cfg(test)]
mod tests {
    use farside_api::PoolState;
    use farside_platform::{OsRandomness, SystemClock};

    use super::*;

    const SIZE: u64 = 64 << 20;

    fn pools() -> Pools {
        Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness), "test")
    }

    fn open_all(pools: &Arc<Pools>, known: &[(&str, &str)]) {
        let known = known.iter().map(|(name, path)| ((*name).to_owned(), (*path).to_owned())).collect();
        for opening in pools.begin_opening(known) {
            let mut opening = opening.unwrap();
            let outcome =
                tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(opening.opened());
            let _ = pools.finish_opening(&opening, outcome, |_| {});
        }
    }

    #[test]
    fn one_that_cannot_be_opened_keeps_its_place_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.pool");
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        let pools = Arc::new(pools());
        open_all(&pools, &[("p", path.to_str().unwrap())]);
        let listed = pools.list();
        assert_eq!((listed[0].state, listed[0].uuid), (PoolState::Failed, None));
        assert!(listed[0].error.as_ref().unwrap().contains("no readable pool"), "{:?}", listed[0].error);
        assert_eq!(pools.get("p").err().unwrap().code, ErrorCode::Refused);
        assert!(pools.remove("p").is_ok());
    }

    #[test]
    fn of_two_with_one_identity_the_first_in_the_list_is_opened_whichever_answers_first() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (original, copied) = (path("original"), path("copied"));
        let first = pools();
        first.create("p", &original, Some(SIZE), false).unwrap();
        first.close_all();
        std::fs::copy(&original, &copied).unwrap();
        for _ in 0..20 {
            let pools = Arc::new(pools());
            open_all(&pools, &[("z", &original), ("a", &copied)]);
            let listed = pools.list();
            let states: Vec<_> = listed.iter().map(|pool| (pool.name.as_str(), pool.state)).collect();
            assert_eq!(states, [("a", PoolState::Failed), ("z", PoolState::Open)]);
            assert!(listed[0].error.as_ref().unwrap().contains("a copy of pool z"), "{:?}", listed[0].error);
            pools.close_all();
        }
    }

    #[test]
    fn whoever_looks_at_a_pool_sees_it_before_anybody_can_use_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.pool");
        let path = path.to_str().unwrap();
        let first = pools();
        first.create("p", path, Some(SIZE), false).unwrap().create_volume("v", 1 << 20).unwrap();
        first.close_all();
        let pools = Arc::new(pools());
        let mut looks = 0;
        let mut look = |pool: &Pool| {
            assert_eq!(pool.volumes().len(), 1);
            assert!(pools.get("p").is_err() && pools.open_pools().is_empty());
            looks += 1;
        };
        let mut opening = pools.begin_opening(vec![("p".into(), path.into())]).remove(0).unwrap();
        let outcome =
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(opening.opened());
        pools.finish_opening(&opening, outcome, &mut look).unwrap();
        let reopening = pools.begin_reopening("p").unwrap();
        pools.reopen(reopening, false, &mut look).unwrap();
        drop(pools.remove("p").unwrap());
        pools.put_back("p", path, &mut look).unwrap();
        drop(pools.remove("p").unwrap());
        pools.open("p", path, Manner::default(), &mut look).unwrap();
        assert_eq!(looks, 4);
    }

    #[test]
    fn one_that_is_being_opened_is_told_so_and_can_be_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.pool");
        let path = path.to_str().unwrap();
        pools().create("p", path, Some(SIZE), false).unwrap();
        let pools = pools();
        // Its device answers only later.
        let (attempt, _) = pools.occupy("p", path, false).unwrap();
        assert_eq!(pools.list()[0].state, PoolState::Opening);
        assert!(pools.get("p").err().unwrap().message.contains("being opened"));
        assert!(pools.begin_reopening("p").err().unwrap().message.contains("being opened"));
        let import = || pools.open("p", path, Manner::default(), |_| {});
        assert_eq!(import().err().unwrap().code, ErrorCode::Exists);
        assert!(pools.remove("p").is_ok());
        let opened = pools.open_from("p", path, Manner::default());
        let look = |_: &Pool| panic!("nobody may note what becomes of one that was forgotten");
        assert!(pools.settle_identified("p", attempt, opened, true, look).is_err());
        assert_eq!(pools.list(), vec![]);
        // It was closed again.
        assert!(import().is_ok());
    }
}
