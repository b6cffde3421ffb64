//! Looks where the paths of open pools lead, and how much room they have.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farside_api::{ErrorBody, ErrorCode, PoolFileSystem};
use farside_platform::{BlockDevice, Found, free_bytes_at};
use farside_store::Pool;

use super::away::{Away, away};
use super::capacity::{LOOK_AT_ROOM_EVERY, grow_command, size_with};
use super::quotas::SeenQuota;
use super::{Content, Opened, Pools, Slot};

/// How often.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl Pools {
    /// Looks where the paths of open pools lead, and how much room clusters have, for as long as the site lives.
    pub(crate) async fn keep_looking_at_paths(self: Arc<Self>) {
        loop {
            self.look_at_paths();
            self.look_at_clusters();
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Looks how much room open pools have, for as long as the site lives.
    pub(crate) async fn keep_looking_at_room(self: Arc<Self>) {
        loop {
            for (name, _, Opened { pool, room, quotas, .. }) in self.all_opened() {
                if pool.status().failed.is_none() {
                    room.look(&name, &pool);
                    room.settle_if_it_helps(&pool);
                    quotas.look(&name, &pool);
                    quotas.settle_if_it_helps(&pool);
                    quotas.grow(&name, &pool);
                }
            }
            tokio::time::sleep(LOOK_AT_ROOM_EVERY).await;
        }
    }

    /// Has each be looked at by a thread of its own: one whose file system does not answer holds up no other, nor the stop.
    fn look_at_paths(&self) {
        for (name, path, Opened { pool, device, watch, .. }) in self.all_opened() {
            if !watch.begin() {
                continue;
            }
            let of_thread = Arc::clone(&watch);
            // Who waits for a file system must not keep a pool's device open that is closed meanwhile.
            let (device, pool) = (Arc::downgrade(&device), Arc::downgrade(&pool));
            let look = move || {
                let found = Found::at(Path::new(&path));
                if let Some(pool) = pool.upgrade() {
                    of_thread.note_lacks(pool.lacks_room_below());
                    try_what_was_refused(&pool);
                }
                if let Some(device) = device.upgrade() {
                    match found.and_then(|found| device.compared_with(&found)) {
                        Ok(at_path) => {
                            device.keep_reserve(false);
                            let away = away(&path, &device, &at_path);
                            of_thread.note_below(below(Path::new(&path)).filter(|_| away.is_none()));
                            of_thread.note(&name, &path, away);
                        }
                        // Nobody knows then.
                        Err(error) => {
                            tracing::debug!(pool = name, "cannot look where its path leads: {error}")
                        }
                    }
                }
                of_thread.end();
            };
            if std::thread::Builder::new().name("pool-path".to_owned()).spawn(look).is_err() {
                watch.end();
            }
        }
    }

    /// Refuses to close a pool that could not be opened again, since its path does not lead to it.
    pub(crate) fn refuse_if_away(&self, name: &str) -> Result<(), ErrorBody> {
        let slots = self.slots.read();
        let Some(Slot { path, content: Content::Open(opened) }) = slots.get(name) else { return Ok(()) };
        let (path, device) = (path.clone(), Arc::clone(&opened.device));
        drop(slots);
        match device.at_path().ok().and_then(|at_path| away(&path, &device, &at_path)) {
            None => Ok(()),
            Some(Away { error, advice }) => Err(ErrorBody::new(
                ErrorCode::Refused,
                format!("pool {name} is not opened again, because it would not be found: {error}"),
            )
            .hint(advice)),
        }
    }

    /// What makes a pool larger, if possible with the size that takes `more_bytes`.
    pub(crate) fn grow_command(&self, name: &str, more_bytes: Option<u64>) -> String {
        let opened = match self.slots.read().get(name) {
            Some(Slot { content: Content::Open(opened), .. }) => Some(opened.clone()),
            _ => None,
        };
        let Some(Opened { pool, device, .. }) = opened else { return grow_command(name, false, None) };
        let size_bytes = more_bytes.map(|more| size_with(pool.status().size_bytes, more));
        grow_command(name, device.is_block_device(), size_bytes)
    }

    /// Volumes of a pool that have a quota, as they are now.
    pub(crate) fn quotas(&self, pool: &str) -> Vec<SeenQuota> {
        let opened = match self.slots.read().get(pool) {
            Some(Slot { content: Content::Open(opened), .. }) => opened.clone(),
            _ => return Vec::new(),
        };
        opened.quotas.look(pool, &opened.pool)
    }

    fn all_opened(&self) -> Vec<(String, String, Opened)> {
        let slots = self.slots.read();
        let open = slots.iter().filter_map(|(name, slot)| match &slot.content {
            Content::Open(opened) => Some((name.clone(), slot.path.clone(), opened.clone())),
            Content::Opening { .. } | Content::Failed(_) | Content::Clustered | Content::Others(_) => None,
        });
        open.collect()
    }
}

/// Has a pool try again what its device refused: nobody else may come, and what is over must not go on being told.
fn try_what_was_refused(pool: &Pool) {
    let status = pool.status();
    if status.failed.is_none() && status.refused_write.is_some() {
        pool.settle();
    }
}

/// The file system below a pool's file, if it has less left than the file may still take: a file takes its room as it fills.
fn below(path: &Path) -> Option<PoolFileSystem> {
    let file = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    // Blocks of stat(2) have 512 bytes, whatever those of the file system have.
    short_of(file.len(), file.blocks().saturating_mul(512), free_bytes_at(path)?)
}

fn short_of(size_bytes: u64, taken_bytes: u64, free_bytes: u64) -> Option<PoolFileSystem> {
    let may_take_bytes = size_bytes.saturating_sub(taken_bytes);
    (may_take_bytes > free_bytes).then_some(PoolFileSystem { free_bytes, may_take_bytes })
}

#[cfg(test)]
mod tests {
    use farside_platform::{OsRandomness, SystemClock};

    use super::*;

    #[test]
    fn a_file_that_may_take_more_than_there_is_below_it_is_told() {
        const GIB: u64 = 1 << 30;
        assert_eq!(short_of(10 * GIB, GIB, 9 * GIB), None);
        let told = PoolFileSystem { free_bytes: 2 * GIB, may_take_bytes: 9 * GIB };
        assert_eq!(short_of(10 * GIB, GIB, 2 * GIB), Some(told));
        assert_eq!(short_of(10 * GIB, 10 * GIB, 0), None, "it has all of it");
        assert_eq!(short_of(10 * GIB, 11 * GIB, 0), None, "the file system's own metadata of it counts, too");
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thin");
        std::fs::File::create(&path).unwrap().set_len(8 << 40).unwrap();
        assert!(below(&path).is_some_and(|told| told.may_take_bytes > 7 << 40));
        assert_eq!(below(directory.path()), None);
    }

    #[test]
    fn a_pool_that_would_not_be_found_again_is_not_closed_to_be_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, moved) = (directory.path().join("p.pool"), directory.path().join("moved"));
        let pools = Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness), "test");
        pools.create("p", path.to_str().unwrap(), Some(64 << 20), false).unwrap();
        assert!(pools.refuse_if_away("p").is_ok() && pools.refuse_if_away("q").is_ok());
        std::fs::rename(&path, &moved).unwrap();
        let refused = pools.refuse_if_away("p").err().unwrap();
        assert!(refused.message.contains("lies in"), "{refused:?}");
        std::fs::remove_file(&moved).unwrap();
        let refused = pools.refuse_if_away("p").err().unwrap();
        assert!(refused.message.contains("without a name"), "{refused:?}");
        assert!(refused.hint.unwrap().contains("do not stop farsided"));
    }
}
