//! Whose a volume is: the record of its mirror, and the lock that goes with it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::document::{Document, Record};
use super::errors::explained;
use super::held::Head;
use super::state::RbdEngine;
use super::volume::Volume;
use crate::{EngineError, VolumeName};

/// How long a client of an earlier daemon stays on the blocklist. A process that hangs for longer and then wakes is fenced by its own
/// clock alone.
const FENCED_SECONDS: u32 = 24 * 3600;
/// Volumes that are brought in order at the same time, and how many each thread is worth.
const SETTLED_TOGETHER: usize = 16;
const SETTLED_EACH: usize = 4;
/// Times its time-out for which a pool's volumes are waited for while none of them ends.
const SETTLED_WITHIN: u32 = 2;

/// A client of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterClient {
    /// The cluster's identity (fsid).
    pub cluster: String,
    /// The client's address: IP, port and a number of its own.
    pub address: String,
}

impl RbdEngine {
    /// The client by which this process reaches the cluster of a pool.
    ///
    /// # Errors
    /// There is no such pool, or the library does not say.
    pub fn client_of(&self, pool: &str) -> Result<ClusterClient, EngineError> {
        let pool = self.pool(pool)?;
        let address = pool.ceph.connection.address();
        let address = address.map_err(|failed| explained(&pool, "the address of this client", failed, 0))?;
        Ok(ClusterClient { cluster: pool.fsid.clone(), address })
    }

    /// Puts another client of the cluster of a pool on its blocklist, for a day: neither a byte nor a document of its changes any more.
    ///
    /// # Errors
    /// The cluster does not answer, or refuses: the capability is `profile rbd` of the monitors.
    pub fn fence_client(&self, pool: &str, address: &str) -> Result<(), EngineError> {
        let pool = self.pool(pool)?;
        // A cluster that does not take a time of ours takes its own: an hour.
        let fenced = pool.ceph.connection.fence(address, FENCED_SECONDS);
        let fenced = fenced.or_else(|_| pool.ceph.connection.fence(address, 0));
        fenced.map_err(|failed| explained(&pool, &format!("fencing the client {address}"), failed, 0))
    }

    /// What the volumes of a pool need when their daemon begins: replicas are locked, what a crash left behind is brought in order or goes.
    /// Answers which volumes that failed for, and why; the others are done. With `take_over` the client of this
    /// site that holds a volume loses it, and is put on the cluster's blocklist: for a daemon that takes over from one that is dead or
    /// hangs. A client of another site keeps what it holds, and the volume is among those that failed. So are those that are not done once
    /// none has ended for twice the pool's time-out: nobody waits for them, and nobody is at one twice.
    ///
    /// # Errors
    /// The images cannot be listed.
    pub fn settle(&self, pool: &str, take_over: bool) -> Result<Vec<(VolumeName, EngineError)>, EngineError> {
        let pool = self.pool(pool)?;
        let images = pool.ceph.images();
        let images = images
            .map_err(|failed| explained(&pool, &format!("the images of pool {}", pool.name), failed, 0))?;
        let within = Duration::from_secs(u64::from(pool.options.timeout_seconds)) * SETTLED_WITHIN;
        let volumes: Vec<Volume> = images
            .into_iter()
            .map(|(id, image)| {
                let name = VolumeName { pool: pool.name.clone(), volume: image };
                self.volume_of(Arc::clone(&pool), &name, id)
            })
            .collect();
        let volumes = Arc::new(volumes);
        // A replica takes some 60 ms, nearly all of it waiting for the cluster: a site with a hundred would stand still for six seconds.
        let together = volumes.len().div_ceil(SETTLED_EACH).min(SETTLED_TOGETHER);
        let (next, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (told, ended) = mpsc::channel();
        for _ in 0..together {
            let (volumes, told) = (Arc::clone(&volumes), told.clone());
            let (next, ends) = (Arc::clone(&next), Arc::clone(&is_over));
            // Not scoped: a call of the library that does not end keeps its thread, and nobody else.
            let settling = std::thread::Builder::new().name("settle".into()).spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(volume) = volumes.get(at) else { return };
                    // Perhaps nobody listens any more.
                    _ = told.send((at, volume.settle_alone(take_over)));
                }
            });
            settling.map_err(|error| {
                // Who has begun ends with the volume that it is at: the pool may go.
                is_over.store(true, Ordering::Relaxed);
                EngineError::Io(format!("no thread to look at volumes: {error}"))
            })?;
        }
        drop(told);
        let mut failed = Vec::new();
        let mut waited_for: BTreeSet<usize> = (0..volumes.len()).collect();
        while let Ok((at, settled)) = ended.recv_timeout(within) {
            waited_for.remove(&at);
            if let Err(error) = settled {
                failed.push((volumes[at].name.clone(), error));
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let late = || {
            EngineError::Io(format!(
                "the cluster has not answered for {} s. What is published is safe; the volume's mirror waits",
                within.as_secs()
            ))
        };
        failed.extend(waited_for.into_iter().map(|at| (volumes[at].name.clone(), late())));
        failed.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(failed)
    }

    /// The cluster's name of the snapshot that hosts are to be shown of a volume, whatever its head holds; none: its head is what they see.
    pub fn shown_snapshot(&self, name: &VolumeName) -> Result<Option<String>, EngineError> {
        Ok(self.locate(name)?.1.shown.map(|shown| shown.name()))
    }
}

/// Somebody brings a volume in order, until this is dropped.
struct Settling<'a> {
    volume: &'a Volume,
    key: (String, String),
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        self.volume.inner.settling.lock().remove(&self.key);
    }
}

impl Volume {
    /// Unless somebody is at it.
    fn settle_alone(&self, take_over: bool) -> Result<(), EngineError> {
        let key = (self.pool.name.clone(), self.id.clone());
        if !self.inner.settling.lock().insert(key.clone()) {
            return Err(EngineError::Io(format!(
                "what volume {} needs is under way, and the cluster has not answered yet",
                self.name
            )));
        }
        let _ends = Settling { volume: self, key };
        self.in_turn(|head| self.settle(head, take_over))
    }

    fn settle(&self, head: &mut Head, take_over: bool) -> Result<(), EngineError> {
        let Some((document, _)) = self.load_any()? else { return Ok(()) };
        if document.deleted {
            return self.finish_deletion(head, &document);
        }
        if take_over && head.held().is_none() {
            self.fence(&document)?;
        }
        let is_hidden = document.shown.is_some();
        if document.is_replica() || is_hidden {
            head.hold(self)?;
        }
        if is_hidden && document.staged.as_ref().is_none_or(|staging| staging.parked.is_some()) {
            head.restore(self)?;
        }
        self.clear_garbage(head)
    }

    /// Takes the lock from the client of this site that has it, which changes nothing any more. A host keeps it, and so does another site.
    fn fence(&self, document: &Document) -> Result<(), EngineError> {
        let Some(holder) = document.holder.as_ref().filter(|holder| holder.site == self.inner.site) else {
            return Ok(());
        };
        let image = self.opened()?;
        let owner = image.lock_owner().map_err(|failed| self.failed("the lock", failed))?;
        let Some(owner) = owner.filter(|owner| *owner == holder.address) else { return Ok(()) };
        self.inner.steps.take("break the lock")?;
        image.break_lock(&owner).map_err(|failed| self.failed("the lock", failed))
    }

    /// Sets or takes away the record. Where hosts may write afterwards the head is theirs before: what was staged in it is parked.
    pub(super) fn set_record(&self, head: &mut Head, record: Option<Record>) -> Result<(), EngineError> {
        let follows = record.as_ref().is_some_and(|record| !record.broken_off);
        if follows {
            head.hold(self)?;
        } else if let Some(shown) = self.load()?.shown {
            head.park(self)?;
            head.roll_back(self, &shown)?;
        }
        self.change("set the record", |document: &mut Document| {
            document.record.clone_from(&record);
            if !follows {
                document.show_head();
            }
            Ok(())
        })?;
        if !follows {
            head.release();
        }
        // It is set; what cannot go now goes another time.
        _ = self.clear_garbage(head);
        Ok(())
    }
}
