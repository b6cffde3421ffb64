//! Pools in a cluster: their volumes are images of Ceph RBD, which hosts open there.
//!
//! The daemon connects to the cluster of each, and stays connected: a cluster that goes away has its mirrors wait, and nothing here is
//! opened again when it is back. One that is away at the start is tried again until it answers.

use std::time::{Duration, Instant};

use farside_api::{ErrorBody, ErrorCode};
use farside_engine::{Engine, EngineError, VolumeName};
use uuid::Uuid;

use super::place::parse_rbd;
use super::{Content, Pools, being_opened, unknown};
use crate::failure::Failure;

/// A cluster that did not answer is not asked again for so long by those who cannot wait.
const AWAY_FOR: Duration = Duration::from_secs(10);

/// What did not come in order when a pool was connected: each volume, and why.
pub(crate) type Unsettled = Vec<(VolumeName, EngineError)>;

impl Pools {
    /// Adds a pool of Ceph, under a name that is free or that of a failed pool. One that failed before keeps its place if this fails.
    pub(crate) fn connect(&self, name: &str, path: &str) -> Result<Unsettled, ErrorBody> {
        let place = parse_rbd(path).map_err(|wrong| ErrorBody::new(ErrorCode::WrongUsage, wrong))?;
        let (attempt, before) = self.occupy(name, path, true)?;
        let connected = self.rbd.add(name, place).map_err(Failure::into_error_body).and_then(|()| {
            let raised = self.fence.get().map_or(Ok(()), |fence| fence.raise(&self.rbd, name));
            // A daemon of this site that was killed may still have images for itself.
            let settled = raised.and_then(|()| self.rbd.settle(name, true).map_err(Failure::into_error_body));
            settled.inspect_err(|_| _ = self.rbd.remove(name))
        });
        if connected.is_ok() {
            self.look_at_cluster(name);
        }
        let mut slots = self.slots.write();
        let is_ours =
            |content: &Content| matches!(content, Content::Opening { attempt: of, .. } if *of == attempt);
        let Some(slot) = slots.get_mut(name).filter(|slot| is_ours(&slot.content)) else {
            drop(slots);
            self.rbd.remove(name);
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!(
                    "pool {name} was forgotten while its cluster was being connected, or the daemon stops"
                ),
            ));
        };
        match (&connected, before) {
            (Ok(_), _) => slot.content = Content::Clustered,
            (Err(error), Some(_)) => slot.content = Content::Failed(error.message.clone()),
            (Err(_), None) => drop(slots.remove(name)),
        }
        connected
    }

    /// Gives a pool that is known its place, before its cluster is asked.
    pub(crate) fn note_clustered(&self, name: &str, path: &str) -> Result<(), ErrorBody> {
        self.occupy(name, path, false)?;
        if let Some(slot) = self.slots.write().get_mut(name) {
            slot.content = Content::Failed("its cluster has not answered yet".into());
        }
        Ok(())
    }

    /// Takes the connection of a pool away; its place stays. Whoever works in it is to be ended before.
    pub(crate) fn disconnect(&self, name: &str) -> Result<String, ErrorBody> {
        let mut slots = self.slots.write();
        let slot = slots.get_mut(name).ok_or_else(|| unknown(name))?;
        if let Content::Opening { .. } = slot.content {
            return Err(being_opened(name));
        }
        slot.content = Content::Failed("it is being connected again".into());
        let path = slot.path.clone();
        drop(slots);
        self.rbd.remove(name);
        self.cluster_rooms.forget(name);
        Ok(path)
    }

    /// Whether a pool of Ceph is known by this name and waits to be connected.
    pub(crate) fn waits_for_cluster(&self, name: &str) -> bool {
        let slots = self.slots.read();
        slots.get(name).is_some_and(|slot| {
            super::place::is_rbd(&slot.path) && matches!(slot.content, Content::Failed(_))
        })
    }

    /// Those that wait so, and what they are.
    pub(crate) fn waiting_for_clusters(&self) -> Vec<(String, String)> {
        let known: Vec<_> =
            self.slots.read().iter().map(|(name, slot)| (name.clone(), slot.path.clone())).collect();
        known.into_iter().filter(|(name, _)| self.waits_for_cluster(name)).collect()
    }

    /// Tries volumes again that did not come in order. Answers which still do not.
    pub(crate) fn settle_again(&self, name: &str) -> Result<Unsettled, ErrorBody> {
        self.rbd.settle(name, true).map_err(Failure::into_error_body)
    }

    /// Whether this is a pool of Ceph that is connected.
    pub(crate) fn is_clustered(&self, name: &str) -> bool {
        self.slots.read().get(name).is_some_and(|slot| matches!(slot.content, Content::Clustered))
    }

    /// Those that are connected.
    pub(crate) fn clustered(&self) -> Vec<String> {
        let slots = self.slots.read();
        slots
            .iter()
            .filter(|(_, slot)| matches!(slot.content, Content::Clustered))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The identity of what has a name in such a pool, for those who cannot wait: a cluster that does not answer is not asked by each. No
    /// answer: nobody knows now.
    pub(crate) fn volume_id_there(&self, name: &VolumeName) -> Option<Option<Uuid>> {
        if self.is_away(&name.pool) {
            return None;
        }
        match off_the_runtime(|| self.rbd.volume(name)) {
            Ok(info) => Some(Some(info.uuid)),
            Err(EngineError::NotFound { .. }) => Some(None),
            Err(_) => {
                self.note_away(&name.pool);
                None
            }
        }
    }

    /// Whether the cluster of a pool has not answered lately: who cannot wait does not ask it.
    pub(crate) fn is_away(&self, pool: &str) -> bool {
        self.away.lock().get(pool).is_some_and(|since| since.elapsed() < AWAY_FOR)
    }

    /// Notes that it has not.
    pub(crate) fn note_away(&self, pool: &str) {
        self.away.lock().insert(pool.to_owned(), Instant::now());
    }
}

/// A call that takes a round trip or two on a thread of the runtime that others need.
fn off_the_runtime<T>(call: impl FnOnce() -> T) -> T {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(call),
        _ => call(),
    }
}
