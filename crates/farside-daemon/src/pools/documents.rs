//! A pool as it is listed.

use farside_api::{ErrorBody, Pool as Document, PoolState};

use super::{Content, Opened, Pools, Slot, below, how_to_practise, place, unknown};

impl Pools {
    /// All pools as they are listed.
    pub(crate) fn list(&self) -> Vec<Document> {
        self.slots.read().iter().map(|(name, slot)| self.document(name, slot)).collect()
    }

    /// One pool as it is listed.
    pub(crate) fn status(&self, name: &str) -> Result<Document, ErrorBody> {
        let slots = self.slots.read();
        let slot = slots.get(name).ok_or_else(|| unknown(name))?;
        Ok(self.document(name, slot))
    }

    /// Asks nobody: what is slow to tell was told before.
    fn document(&self, name: &str, slot: &Slot) -> Document {
        let document = document(name, slot);
        match slot.content {
            Content::Clustered => self.with_cluster_room(document),
            Content::Open(_) | Content::Opening { .. } | Content::Failed(_) | Content::Others(_) => document,
        }
    }
}

fn document(name: &str, slot: &Slot) -> Document {
    let closed = |error: String| Document {
        name: name.to_owned(),
        uuid: None,
        path: slot.path.clone(),
        engine: place::engine_of(&slot.path),
        state: PoolState::Failed,
        error: Some(error),
        advice: Some(format!(
            "farside pool reopen {name} opens it again once the cause is gone; if it lies elsewhere now: farside pool import {name} \
             --path WHERE"
        )),
        size_bytes: None,
        used_bytes: None,
        reclaimable_bytes: None,
        free_bytes: None,
        room: None,
        room_bytes: None,
        warning: None,
        volumes: None,
        volume_bytes: None,
        reserved_bytes: None,
        corrupt_blocks: None,
        staged: None,
        staged_bytes: None,
        quarantined: None,
        unattributed_bytes_max: None,
        path_lost: None,
        file_system: None,
        scrub: None,
    };
    match &slot.content {
        Content::Opening { since, .. } => Document {
            state: PoolState::Opening,
            advice: Some(format!(
                "it opens by itself once its device answers; the kernel's log may say why it does not. Other pools go on. Only if \
                 it will never answer: farside pool delete {name} forgets it, and leaves alone what is there"
            )),
            ..closed(format!("it has been being opened for {} s", since.elapsed().as_secs()))
        },
        Content::Failed(error) if place::is_rbd(&slot.path) => Document {
            advice: Some(format!(
                "it is connected as soon as its cluster answers, and its mirrors go on by themselves. How the cluster is: ceph -s. \
                 farside pool reopen {name} tries it now"
            )),
            ..closed(error.clone())
        },
        Content::Failed(error) => closed(error.clone()),
        Content::Others(why) => Document { advice: Some(how_to_practise(name)), ..closed(why.clone()) },
        Content::Clustered => {
            Document { state: PoolState::Open, error: None, advice: None, ..closed(String::new()) }
        }
        Content::Open(Opened { pool, watch, room, .. }) => {
            let status = pool.status();
            let is_latched = status.failed.is_some();
            let was_refused = status.is_refused_for_room();
            let volumes = pool.volumes();
            // Of a pool that accepts nothing any more it does not matter.
            let seen = (!is_latched).then(|| room.look(name, pool));
            let (error, advice) = match (status.failed, status.refused_write) {
                (Some(error), _) => (
                    Some(error),
                    Some(format!(
                        "it is readable, and every write to its volumes fails. Repair the cause (the kernel's log may say more), \
                         then farside pool reopen {name}: its connections are closed, what was flushed is there, other pools \
                         go on"
                    )),
                ),
                (None, Some(why)) => (
                    Some(format!("its device refuses data: {why}")),
                    Some(below::advice(&slot.path, watch.lacks())),
                ),
                (None, None) => match status.lacks_room {
                    Some(why) => (
                        Some(why),
                        Some(String::from(
                            "delete snapshots or volumes: the space comes back by itself then",
                        )),
                    ),
                    None => (None, None),
                },
            };
            // Worse than anything else: what is to be done about the rest must not be done before.
            let away = watch.seen();
            let path_lost = Some(away.is_some());
            let (error, advice) = match (away, error) {
                (None, error) => (error, advice),
                (Some(away), None) => (Some(away.error), Some(away.advice)),
                (Some(away), Some(error)) => {
                    (Some(format!("{}. Besides, {error}", away.error)), Some(away.advice))
                }
            };
            let not_used = status.free_bytes + status.waiting_bytes + status.withheld_bytes;
            let used_bytes = status.size_bytes.saturating_sub(not_used);
            let file_system = watch.below();
            let below = file_system
                .filter(|_| !is_latched)
                .map(|below| (below::level(below, used_bytes, was_refused), below));
            let free_bytes = match below {
                Some((_, below)) => below::writable(below, status.size_bytes, used_bytes, status.free_bytes),
                None => status.free_bytes,
            };
            // The shorter of the two is what counts, and what is told.
            let level = seen.as_ref().map(|seen| seen.level);
            let warning = seen.as_ref().and_then(|seen| seen.warning(name));
            let (level, warning) = match below {
                Some((short, below)) if Some(short) > level => {
                    (Some(short), Some(below::warning(below, &slot.path, was_refused)))
                }
                _ => (level, warning),
            };
            Document {
                uuid: Some(status.id),
                path_lost,
                file_system,
                state: if is_latched { PoolState::ReadOnly } else { PoolState::Open },
                error,
                advice,
                size_bytes: Some(status.size_bytes),
                used_bytes: Some(used_bytes),
                reclaimable_bytes: Some(status.waiting_bytes),
                free_bytes: Some(if is_latched { 0 } else { free_bytes }),
                room: level,
                room_bytes: seen.map(|seen| seen.room.for_hosts_bytes),
                warning,
                volumes: Some(volumes.len() as u64),
                volume_bytes: Some(
                    volumes.iter().map(|volume| volume.size_bytes).fold(0, u64::saturating_add),
                ),
                reserved_bytes: Some(pool.reserved_unused_bytes()),
                corrupt_blocks: Some(status.corrupt_blocks),
                unattributed_bytes_max: Some(status.unattributed_bytes_max),
                ..closed(String::new())
            }
        }
    }
}
