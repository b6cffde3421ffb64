//! The pools of this site: which are open, and why the others are not.
//!
//! All calls block. A pool that cannot be opened keeps its place with its error, so that it is listed and its name
//! stays taken; the daemon goes on with the others.

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use farside_api::{ErrorBody, ErrorCode, Pool as Document, PoolState};
use farside_engine::embedded::EmbeddedEngine;
use farside_engine::{Engine, is_label};
use farside_platform::{BLOCK_BYTES, BlockDevice, Clock, DeviceError, FileDevice, Randomness};
use farside_store::{Pool, PoolOptions};
use parking_lot::RwLock;

use crate::failure::Failure;

/// What a raw device is overwritten with when its pool is deleted: both superblocks lie in the first 2 MiB.
const WIPE_BYTES: usize = 2 << 20;

/// The pools.
pub(crate) struct Pools {
    slots: RwLock<BTreeMap<String, Slot>>,
    /// What mirrors see of the open ones.
    engine: Arc<EmbeddedEngine>,
    options: PoolOptions,
}

impl std::fmt::Debug for Pools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pools").field("names", &self.slots.read().keys()).finish_non_exhaustive()
    }
}

struct Slot {
    path: String,
    content: Content,
}

enum Content {
    Open(Arc<Pool>),
    /// Being made or opened.
    Opening,
    /// Why it is not open.
    Failed(String),
}

impl Pools {
    pub(crate) fn new(clock: Arc<dyn Clock>, randomness: Arc<dyn Randomness>) -> Pools {
        Pools {
            slots: RwLock::default(),
            engine: Arc::new(EmbeddedEngine::new()),
            options: PoolOptions::new(clock, randomness),
        }
    }

    /// The open pools as mirrors see them.
    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engine) as Arc<dyn Engine>
    }

    /// An open pool.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Pool>, ErrorBody> {
        match self.slots.read().get(name) {
            Some(Slot { content: Content::Open(pool), .. }) => Ok(Arc::clone(pool)),
            Some(Slot { content: Content::Opening, .. }) => {
                Err(ErrorBody::new(ErrorCode::Refused, format!("pool {name} is being opened")))
            }
            Some(Slot { content: Content::Failed(error), .. }) => {
                Err(ErrorBody::new(ErrorCode::Refused, format!("pool {name} is not open: {error}"))
                    .hint("farside pool check verifies it offline; farside pool import opens it again"))
            }
            None => Err(ErrorBody::new(ErrorCode::NotFound, format!("pool {name} does not exist"))
                .hint("farside pool list shows what is there; farside pool import opens one from its file")),
        }
    }

    /// All open pools, by name.
    pub(crate) fn open_pools(&self) -> Vec<(String, Arc<Pool>)> {
        let slots = self.slots.read();
        let open = slots.iter().filter_map(|(name, slot)| match &slot.content {
            Content::Open(pool) => Some((name.clone(), Arc::clone(pool))),
            Content::Opening | Content::Failed(_) => None,
        });
        open.collect()
    }

    /// Makes a pool in a new file of `size_bytes`, or on a raw device.
    pub(crate) fn create(
        &self,
        name: &str,
        path: &str,
        size_bytes: Option<u64>,
    ) -> Result<Arc<Pool>, ErrorBody> {
        self.occupy(name, path)?;
        self.settle(name, self.make(path, size_bytes), false)
    }

    fn make(&self, path: &str, size_bytes: Option<u64>) -> Result<Arc<Pool>, ErrorBody> {
        let path = Path::new(path);
        let on_device = is_raw_device(path);
        let device = match (on_device, size_bytes) {
            (true, None) => FileDevice::open(path),
            (true, Some(_)) => {
                return Err(wrong(String::from("a raw device has its own size; omit --size")));
            }
            (false, None) => {
                return Err(wrong(format!(
                    "{} is not a raw device; give the size of the file with --size",
                    path.display()
                )));
            }
            (false, Some(size)) if size == 0 || !size.is_multiple_of(BLOCK_BYTES as u64) => {
                return Err(wrong(format!("{size} bytes are not a multiple of {BLOCK_BYTES}")));
            }
            (false, Some(size)) => FileDevice::create(path, size),
        };
        device.map_err(Failure::into_error_body).and_then(|device| {
            Pool::create(Arc::new(device) as Arc<dyn BlockDevice>, self.options.clone()).map_err(|error| {
                // The file is ours: it did not exist a moment ago.
                if !on_device && let Err(error) = std::fs::remove_file(path) {
                    tracing::warn!(path = %path.display(), %error, "cannot remove the file of a pool that was not made");
                }
                error.into_error_body()
            })
        })
    }

    /// Opens a pool that exists, under a name that is free or that of a failed pool.
    pub(crate) fn open(&self, name: &str, path: &str) -> Result<Arc<Pool>, ErrorBody> {
        self.occupy(name, path)?;
        self.settle(name, self.open_device(path), false)
    }

    /// Opens a pool at the daemon's start: if it cannot be opened it keeps its place, with the reason.
    pub(crate) fn reopen(&self, name: &str, path: &str) -> Result<Arc<Pool>, ErrorBody> {
        self.occupy(name, path)?;
        self.settle(name, self.open_device(path), true)
    }

    fn open_device(&self, path: &str) -> Result<Arc<Pool>, ErrorBody> {
        let device = FileDevice::open(Path::new(path)).map_err(Failure::into_error_body)?;
        if !device.is_direct() {
            tracing::warn!(path, "no direct I/O on this file system; flushes may be slow");
        }
        Pool::open(Arc::new(device) as Arc<dyn BlockDevice>, self.options.clone())
            .map_err(Failure::into_error_body)
    }

    /// Takes the name's place, so that two requests cannot make the same pool.
    fn occupy(&self, name: &str, path: &str) -> Result<(), ErrorBody> {
        if !is_label(name) {
            return Err(wrong(format!(
                "{name:?} cannot be a pool's name; use 1 to 128 of A-Z a-z 0-9 . _ : + -"
            )));
        }
        if !Path::new(path).is_absolute() {
            return Err(wrong(format!(
                "{path} is not an absolute path; the daemon runs in another directory"
            )));
        }
        let mut slots = self.slots.write();
        match slots.get(name) {
            Some(Slot { content: Content::Open(_) | Content::Opening, path }) => {
                return Err(ErrorBody::new(
                    ErrorCode::Exists,
                    format!("pool {name} already exists, in {path}"),
                ));
            }
            Some(Slot { content: Content::Failed(_), path: known }) if known != path => {
                return Err(ErrorBody::new(
                    ErrorCode::Exists,
                    format!("pool {name} is known, in {known}, but failed"),
                )
                .hint("choose another name, or delete that one first"));
            }
            Some(Slot { content: Content::Failed(_), .. }) | None => {}
        }
        slots.insert(name.to_owned(), Slot { path: path.to_owned(), content: Content::Opening });
        Ok(())
    }

    /// Fills the place, or leaves it as it was before.
    fn settle(
        &self,
        name: &str,
        outcome: Result<Arc<Pool>, ErrorBody>,
        keep_failed: bool,
    ) -> Result<Arc<Pool>, ErrorBody> {
        let mut slots = self.slots.write();
        let outcome = outcome.and_then(|pool| {
            self.engine.add(name, Arc::clone(&pool)).map_err(Failure::into_error_body)?;
            Ok(pool)
        });
        match (&outcome, slots.get_mut(name)) {
            (Ok(pool), Some(slot)) => slot.content = Content::Open(Arc::clone(pool)),
            (Err(error), Some(slot)) if keep_failed => slot.content = Content::Failed(error.message.clone()),
            _ => {
                slots.remove(name);
            }
        }
        outcome
    }

    /// Takes a pool out: closed with a consistency point if it was open. Answers its path.
    pub(crate) fn remove(&self, name: &str) -> Result<String, ErrorBody> {
        let slot = {
            let mut slots = self.slots.write();
            match slots.get(name) {
                None => {
                    return Err(ErrorBody::new(ErrorCode::NotFound, format!("pool {name} does not exist")));
                }
                Some(Slot { content: Content::Opening, .. }) => {
                    return Err(ErrorBody::new(ErrorCode::Refused, format!("pool {name} is being opened")));
                }
                Some(_) => slots.remove(name),
            }
        };
        let Some(slot) = slot else {
            return Err(ErrorBody::new(ErrorCode::NotFound, format!("pool {name} does not exist")));
        };
        self.engine.remove(name);
        if let Content::Open(pool) = slot.content {
            close(name, &pool);
        }
        Ok(slot.path)
    }

    /// Closes all pools; what has been flushed is safe in any case, a pool closed well opens faster.
    pub(crate) fn close_all(&self) {
        let slots = std::mem::take(&mut *self.slots.write());
        for (name, slot) in slots {
            self.engine.remove(&name);
            if let Content::Open(pool) = slot.content {
                close(&name, &pool);
            }
        }
    }

    /// All pools as they are listed.
    pub(crate) fn list(&self) -> Vec<Document> {
        self.slots.read().iter().map(|(name, slot)| document(name, slot)).collect()
    }

    /// One pool as it is listed.
    pub(crate) fn status(&self, name: &str) -> Result<Document, ErrorBody> {
        let slots = self.slots.read();
        let slot = slots.get(name).ok_or_else(|| {
            ErrorBody::new(ErrorCode::NotFound, format!("pool {name} does not exist"))
                .hint("farside pool list shows what is there; farside pool import opens one from its file")
        })?;
        Ok(document(name, slot))
    }
}

/// Makes what lies at `path` no pool any more: a file is removed, a raw device's superblocks are overwritten.
pub(crate) fn destroy(path: &Path) -> Result<(), ErrorBody> {
    if is_raw_device(path) {
        let wipe = || -> Result<(), DeviceError> {
            let device = FileDevice::open(path)?;
            device.write_at(0, &vec![0; WIPE_BYTES])?;
            device.sync()
        };
        return wipe().map_err(Failure::into_error_body);
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ErrorBody::new(
            ErrorCode::Failed,
            format!("the pool is closed and forgotten, but {} cannot be removed: {error}", path.display()),
        )),
        _ => Ok(()),
    }
}

fn close(name: &str, pool: &Pool) {
    match pool.close() {
        Ok(()) => tracing::info!(pool = name, "closed"),
        Err(error) => tracing::error!(pool = name, %error, "closed without a last consistency point"),
    }
}

fn is_raw_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_block_device())
}

fn wrong(message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::WrongUsage, message)
}

fn document(name: &str, slot: &Slot) -> Document {
    let closed = |error: String| Document {
        name: name.to_owned(),
        uuid: None,
        path: slot.path.clone(),
        state: PoolState::Failed,
        error: Some(error),
        size_bytes: None,
        used_bytes: None,
        reclaimable_bytes: None,
        free_bytes: None,
        volumes: None,
        corrupt_blocks: None,
        staged: None,
        staged_bytes: None,
        quarantined: None,
        unattributed_bytes_max: None,
    };
    match &slot.content {
        Content::Opening => closed(String::from("it is being opened")),
        Content::Failed(error) => closed(error.clone()),
        Content::Open(pool) => {
            let status = pool.status();
            Document {
                uuid: Some(status.id),
                state: if status.failed.is_some() { PoolState::Failed } else { PoolState::Open },
                error: status.failed.or(status.lacks_room),
                size_bytes: Some(status.size_bytes),
                used_bytes: Some(status.size_bytes.saturating_sub(status.free_bytes + status.waiting_bytes)),
                reclaimable_bytes: Some(status.waiting_bytes),
                free_bytes: Some(status.free_bytes),
                volumes: Some(pool.volumes().len() as u64),
                corrupt_blocks: Some(status.corrupt_blocks),
                unattributed_bytes_max: Some(status.unattributed_bytes_max),
                ..closed(String::new())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use farside_platform::{OsRandomness, SystemClock};

    use super::*;

    const SIZE: u64 = 64 << 20;

    fn pools() -> Pools {
        Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness))
    }

    #[test]
    fn a_pool_is_made_closed_and_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.pool");
        let path = path.to_str().unwrap();
        let first = pools();
        let pool = first.create("p", path, Some(SIZE)).unwrap();
        pool.create_volume("v", 1 << 20).unwrap();
        drop(pool);
        assert_eq!(first.create("p", path, Some(SIZE)).err().unwrap().code, ErrorCode::Exists);
        first.close_all();

        let second = pools();
        let pool = second.open("p", path).unwrap();
        assert_eq!(pool.volumes().len(), 1);
        assert_eq!(second.list()[0].volumes, Some(1));
        assert_eq!(second.open("q", path).err().unwrap().code, ErrorCode::Refused, "the file is locked");
        drop(pool);
        destroy(Path::new(&second.remove("p").unwrap())).unwrap();
        assert!(!Path::new(path).exists());
        assert_eq!(second.get("p").err().unwrap().code, ErrorCode::NotFound);
    }

    #[test]
    fn one_that_cannot_be_opened_keeps_its_place_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.pool");
        std::fs::write(&path, vec![7; 8 << 20]).unwrap();
        let pools = pools();
        pools.reopen("p", path.to_str().unwrap()).err().unwrap();
        let listed = pools.list();
        assert_eq!((listed[0].state, listed[0].uuid), (PoolState::Failed, None));
        assert!(listed[0].error.as_ref().unwrap().contains("no readable pool"), "{:?}", listed[0].error);
        assert_eq!(pools.get("p").err().unwrap().code, ErrorCode::Refused);
        assert!(pools.remove("p").is_ok());
    }

    #[test]
    fn what_was_not_made_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.pool");
        let text = path.to_str().unwrap();
        let pools = pools();
        for (name, path, size) in [
            ("p", text, None),
            ("p", text, Some(SIZE + 1)),
            ("p", text, Some(4096)),
            ("a/b", text, Some(SIZE)),
            ("p", "relative.pool", Some(SIZE)),
        ] {
            assert_eq!(
                pools.create(name, path, size).err().unwrap().code,
                ErrorCode::WrongUsage,
                "{name} {path} {size:?}"
            );
        }
        assert!(!path.exists());
        assert_eq!(pools.list(), vec![]);
    }
}
