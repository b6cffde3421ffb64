//! The pools of this site: which are open, and why the others are not.
//!
//! All calls block. A pool that cannot be opened keeps its place with its error, so that it is listed and its name
//! stays taken; the daemon goes on with the others.

mod autogrow;
mod away;
pub(crate) mod below;
mod capacity;
pub(crate) mod cluster_room;
mod cluster_watch;
pub(crate) mod clustered;
mod documents;
pub(crate) mod opening;
pub(crate) mod place;
mod quotas;
pub(crate) mod refusing;
pub(crate) mod seen;
mod taken;
mod watching;

use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use farside_api::{ErrorBody, ErrorCode};
use farside_engine::embedded::EmbeddedEngine;
use farside_engine::rbd::RbdEngine;
use farside_engine::{Engine, Engines, is_label};
use farside_platform::{AtPath, BLOCK_BYTES, BlockDevice, Clock, DeviceError, FileDevice, Randomness};
use farside_store::{ClaimOptions, Pool, PoolOptions, StoreError, occupants};
use parking_lot::{Mutex, RwLock};
use uuid::Uuid;

use self::away::{Watch, leads_elsewhere};
use self::capacity::RoomWatch;
use self::cluster_room::ClusterRooms;
use self::place::not_embedded;
use self::quotas::QuotaWatch;
use crate::daemons::fence::Fence;
use crate::failure::Failure;

/// What a raw device is overwritten with at its head when its pool is deleted, or was not made to the end: both superblocks and
/// the beginning of the journal, so that nobody takes it for a pool.
const WIPE_HEAD_BYTES: u64 = 4 << 20;
/// And at its end.
const WIPE_TAIL_BYTES: u64 = 1 << 20;
/// How long who still has a closed pool open may take to let go of it.
const LET_GO_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked at whether they have let go.
const LET_GO_POLL: Duration = Duration::from_millis(10);

/// The pools.
pub(crate) struct Pools {
    slots: RwLock<BTreeMap<String, Slot>>,
    /// Tells one attempt to open from another.
    attempts: AtomicU64,
    /// Identities of pools that are being opened, and what these are called: two of one are not opened beside each other.
    identities: Arc<Mutex<BTreeMap<Uuid, String>>>,
    /// The open ones, as an engine.
    engine: Arc<EmbeddedEngine>,
    /// Those of Ceph.
    rbd: RbdEngine,
    /// How a cluster is made this daemon's alone, where the site has a lease.
    pub(crate) fence: OnceLock<Fence>,
    /// Clusters that did not answer, by pool, and since when.
    away: Mutex<BTreeMap<String, Instant>>,
    cluster_rooms: ClusterRooms,
    /// What mirrors see: all of them.
    engines: Arc<Engines>,
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
    Open(Opened),
    /// A pool of Ceph that is connected.
    Clustered,
    /// Being made or opened.
    Opening {
        attempt: u64,
        since: Instant,
    },
    /// Why it is not open.
    Failed(String),
    /// It is the original's of which this site is a copy, and is never opened here; in words.
    Others(String),
}

/// A pool with what it lies on.
#[derive(Clone)]
struct Opened {
    pool: Arc<Pool>,
    device: Arc<FileDevice>,
    watch: Arc<Watch>,
    room: Arc<RoomWatch>,
    quotas: Arc<QuotaWatch>,
}

impl Opened {
    fn new(pool: Arc<Pool>, device: Arc<FileDevice>) -> Opened {
        let room = Arc::new(RoomWatch::of(device.is_block_device()));
        Opened { pool, device, watch: Arc::default(), room, quotas: Arc::default() }
    }
}

/// A pool that is about to be opened again: nobody opens anything of it any more.
pub(crate) struct Reopening {
    name: String,
    path: String,
    attempt: u64,
    opened: Option<Opened>,
}

/// How a pool is opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Manner {
    /// It is taken from whoever has it open on another machine.
    pub(crate) force: bool,
    /// It is a copy of another: it gets an identity of its own, and its mirrors end.
    pub(crate) as_copy: bool,
}

/// A pool that was taken out.
pub(crate) struct Removed {
    path: String,
    device: Option<Arc<FileDevice>>,
}

impl Pools {
    /// `site` is what all daemons of the site have in common, and no other site has.
    pub(crate) fn new(clock: Arc<dyn Clock>, randomness: Arc<dyn Randomness>, site: &str) -> Pools {
        let (engine, rbd) = (Arc::new(EmbeddedEngine::new()), RbdEngine::of_site(site));
        // One line for each engine.
        let engines = Engines::new(vec![Arc::clone(&engine) as Arc<dyn Engine>, Arc::new(rbd.clone())]);
        Pools {
            slots: RwLock::default(),
            attempts: AtomicU64::new(0),
            identities: Arc::default(),
            fence: OnceLock::new(),
            engine,
            rbd,
            away: Mutex::default(),
            cluster_rooms: ClusterRooms::default(),
            engines: Arc::new(engines),
            options: PoolOptions::new(clock, randomness),
        }
    }

    /// The open pools as mirrors see them.
    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.engines) as Arc<dyn Engine>
    }

    /// Has transfers leave so many percent of each pool free for hosts.
    pub(crate) fn set_host_reserve(&self, percent: u8) {
        self.engine.set_host_reserve(percent);
        self.rbd.set_host_reserve(percent);
    }

    /// An open embedded pool.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Pool>, ErrorBody> {
        match self.slots.read().get(name) {
            Some(Slot { content: Content::Open(opened), .. }) => Ok(Arc::clone(&opened.pool)),
            Some(Slot { content: Content::Opening { .. }, .. }) => Err(being_opened(name)),
            Some(Slot { content: Content::Clustered, .. }) => Err(not_embedded(name)),
            Some(Slot { content: Content::Others(why), .. }) => Err(others(name, why)),
            Some(Slot { content: Content::Failed(error), .. }) => Err(failed(name, error)),
            None => Err(unknown(name)),
        }
    }

    /// The names of all pools that the site knows, open or not, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.slots.read().keys().cloned().collect()
    }

    /// Whether the site knows a pool of this name, open or not.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.slots.read().contains_key(name)
    }

    /// Why a pool that is known is not open.
    pub(crate) fn not_open(&self, name: &str) -> Option<ErrorBody> {
        match &self.slots.read().get(name)?.content {
            Content::Open(_) | Content::Clustered => None,
            Content::Opening { .. } => Some(being_opened(name)),
            Content::Failed(error) => Some(failed(name, error)),
            Content::Others(why) => Some(others(name, why)),
        }
    }

    /// Whether a pool that is known stays closed until a person sees to it.
    pub(crate) fn is_closed(&self, name: &str) -> bool {
        let slots = self.slots.read();
        slots.get(name).is_some_and(|slot| matches!(slot.content, Content::Failed(_) | Content::Others(_)))
    }

    /// All open embedded pools, by name.
    pub(crate) fn open_pools(&self) -> Vec<(String, Arc<Pool>)> {
        let slots = self.slots.read();
        let open = slots.iter().filter_map(|(name, slot)| match &slot.content {
            Content::Open(opened) => Some((name.clone(), Arc::clone(&opened.pool))),
            Content::Opening { .. } | Content::Failed(_) | Content::Clustered | Content::Others(_) => None,
        });
        open.collect()
    }

    /// Makes a pool in a new file of `size_bytes`, or on a raw device: one that is blank, unless it is to be overwritten.
    pub(crate) fn create(
        &self,
        name: &str,
        path: &str,
        size_bytes: Option<u64>,
        overwrite: bool,
    ) -> Result<Arc<Pool>, ErrorBody> {
        if self.slots.read().get(name).is_some_and(|slot| matches!(slot.content, Content::Failed(_))) {
            return Err(ErrorBody::new(
                ErrorCode::Exists,
                format!("pool {name} is known and could not be opened; its mirrors wait for it. Nothing was made"),
            )
            .hint(format!(
                "farside pool reopen {name} opens it once its file or device is back; farside pool delete {name} forgets it; or choose \
                 another name"
            )));
        }
        let (attempt, _) = self.occupy(name, path, false)?;
        self.settle(name, attempt, self.make(name, path, size_bytes, overwrite), false, |_| {})
    }

    /// What making a pool there would find on the device, in words; nothing if it is blank, or a file that does not exist.
    pub(crate) fn found_at(path: &str) -> Result<Vec<String>, ErrorBody> {
        let path = Path::new(path);
        if !is_raw_device(path) {
            return Ok(Vec::new());
        }
        let device = FileDevice::open(path).map_err(Failure::into_error_body)?;
        occupants(&device).map_err(Failure::into_error_body)
    }

    /// Why a pool would not be made there, as far as is seen without making it.
    pub(crate) fn would_not_make(&self, name: &str, path: &str, size_bytes: Option<u64>) -> Option<String> {
        if let Some(slot) = self.slots.read().get(name) {
            return Some(format!("pool {name} already exists, in {}", slot.path));
        }
        if let Err(refused) = self.refuse_anothers_place(name, path) {
            return Some(refused.message);
        }
        let at = Path::new(path);
        if let Err(refused) = check_size_for(at, size_bytes) {
            return Some(refused.message);
        }
        if is_raw_device(at) {
            return None;
        }
        if at.exists() {
            return Some(format!("{path} exists; a pool is made in a file that does not exist"));
        }
        let directory = at.parent().filter(|directory| !directory.is_dir())?;
        Some(format!("the directory {} does not exist", directory.display()))
    }

    fn make(
        &self,
        name: &str,
        path: &str,
        size_bytes: Option<u64>,
        overwrite: bool,
    ) -> Result<Opened, ErrorBody> {
        let path = Path::new(path);
        check_size_for(path, size_bytes)?;
        let device = match size_bytes {
            None => FileDevice::open(path),
            // It gets its name once it is a pool: one that is killed before leaves nothing there that is none.
            Some(size) => FileDevice::draft(path, size),
        };
        for left in FileDevice::unfinished(path) {
            tracing::warn!(
                path = %path.display(), left = %left.display(),
                "this file is left of a pool that was not made to the end. Nobody needs it; remove it"
            );
        }
        let device = Arc::new(device.map_err(Failure::into_error_body)?);
        if device.is_block_device() && !overwrite {
            // A device that cannot be read is not known to be blank: nothing has been begun, and nothing is undone.
            let found = occupants(&*device).map_err(Failure::into_error_body)?;
            if !found.is_empty() {
                return Err(StoreError::Occupied { device: device.name(), found }.into_error_body());
            }
        }
        let made = Pool::create_over(
            Arc::clone(&device) as Arc<dyn BlockDevice>,
            self.options_for(name, &device, Manner::default()),
        );
        let made = made.and_then(|pool| device.publish().map(|()| pool).map_err(StoreError::Device));
        made.map(|pool| Opened::new(pool, Arc::clone(&device))).map_err(|error| {
            // Of a device nothing is undone that was not begun, or that is somebody else's by now.
            let is_untouched = matches!(
                error,
                StoreError::TooSmall { .. } | StoreError::OpenElsewhere { .. } | StoreError::TakenOver { .. }
            );
            if !(device.is_block_device() && is_untouched)
                && let Err(error) = destroy_open(&device)
            {
                tracing::warn!(path = %path.display(), error = error.message, "cannot remove what is left of a pool that was not made");
            }
            error.into_error_body()
        })
    }

    /// Opens a pool that exists, under a name that is free or that of a failed pool. `look` sees it before anybody can use it.
    pub(crate) fn open(
        &self,
        name: &str,
        path: &str,
        manner: Manner,
        look: impl FnOnce(&Pool),
    ) -> Result<Arc<Pool>, ErrorBody> {
        // One that failed before keeps its place: its mirrors and its row wait for it.
        let (attempt, before) = self.occupy(name, path, true)?;
        let opened =
            self.settle_identified(name, attempt, self.open_from(name, path, manner), before.is_some(), look);
        if let (Err(_), Some(before)) = (&opened, before)
            && let Some(slot) = self.slots.write().get_mut(name)
        {
            slot.path = before;
        }
        opened
    }

    /// Opens a pool again that was taken out: whatever comes of it, it has its place again. `look` as in [`Pools::open`].
    pub(crate) fn put_back(
        &self,
        name: &str,
        path: &str,
        look: impl FnOnce(&Pool),
    ) -> Result<Arc<Pool>, ErrorBody> {
        let (attempt, _) = self.occupy(name, path, false)?;
        self.settle_identified(name, attempt, self.open_from(name, path, Manner::default()), true, look)
    }

    /// Gives a pool its place again that was taken out, without a try to open it.
    pub(crate) fn put_back_closed(&self, name: &str, path: &str, why: &str) -> Result<Arc<Pool>, ErrorBody> {
        let (attempt, _) = self.occupy(name, path, false)?;
        self.settle(name, attempt, Err(ErrorBody::new(ErrorCode::Failed, why)), true, |_| {})
    }

    /// Gives a pool its place that is another site's.
    pub(crate) fn note_others(&self, name: &str, path: &str, why: String) {
        let slot = Slot { path: path.to_owned(), content: Content::Others(why) };
        self.slots.write().insert(name.to_owned(), slot);
    }

    /// Takes a pool from its users that is not open, or accepts no changes; its place stays. Whoever has it open is to be cut off
    /// then, before [`Pools::reopen`].
    pub(crate) fn begin_reopening(&self, name: &str) -> Result<Reopening, ErrorBody> {
        let mut slots = self.slots.write();
        let Some(slot) = slots.get_mut(name) else { return Err(unknown(name)) };
        if let Content::Opening { .. } = slot.content {
            return Err(being_opened(name));
        }
        if let Content::Others(why) = &slot.content {
            return Err(others(name, why));
        }
        let (attempt, content) = self.attempt();
        let opened = match std::mem::replace(&mut slot.content, content) {
            Content::Open(opened) => Some(opened),
            Content::Failed(_) | Content::Opening { .. } | Content::Clustered | Content::Others(_) => None,
        };
        self.engine.remove(name);
        Ok(Reopening { name: name.to_owned(), path: slot.path.clone(), attempt, opened })
    }

    /// Opens a pool again. It keeps its place whatever comes of it. `look` sees it before anybody can use it.
    pub(crate) fn reopen(
        &self,
        pool: Reopening,
        force: bool,
        look: impl FnOnce(&Pool),
    ) -> Result<Arc<Pool>, ErrorBody> {
        let Reopening { name, path, attempt, opened } = pool;
        let name = name.as_str();
        if let Some(Opened { pool, device, .. }) = opened {
            close(name, &pool);
            let device_left = Arc::downgrade(&device);
            drop((pool, device));
            let until = Instant::now() + LET_GO_WITHIN;
            while device_left.strong_count() > 0 && Instant::now() < until {
                std::thread::sleep(LET_GO_POLL);
            }
            if device_left.strong_count() > 0 {
                let error = ErrorBody::new(
                    ErrorCode::Refused,
                    format!("pool {name} is closed, but transfers or requests that began before still read from it"),
                )
                .hint(format!("end them (farside mirror abort, at the sites that mirror from it), then farside pool reopen {name}"));
                return self.settle(name, attempt, Err(error), true, |_| {});
            }
        }
        let manner = Manner { force, as_copy: false };
        self.settle_identified(name, attempt, self.open_from(name, &path, manner), true, look)
    }

    /// Raw devices, and files of network file systems, can be reached from other machines, and a file as the loop device that
    /// was made of it: of these the kernel's locks know nothing.
    fn options_for(&self, name: &str, device: &FileDevice, manner: Manner) -> PoolOptions {
        let claim = ClaimOptions::of_this_process(manner.force, device.is_local_file());
        let name = Some(name.to_owned());
        PoolOptions { claim: Some(claim), as_copy: manner.as_copy, name, ..self.options.clone() }
    }

    fn attempt(&self) -> (u64, Content) {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        (attempt, Content::Opening { attempt, since: Instant::now() })
    }

    /// Takes the name's place, so that two requests cannot make the same pool. Answers with the number of the attempt, and, if the
    /// place was that of a failed one, where that lay. One that is gone from there may have been moved (`may_have_moved`).
    fn occupy(
        &self,
        name: &str,
        path: &str,
        may_have_moved: bool,
    ) -> Result<(u64, Option<String>), ErrorBody> {
        check_name_and_path(name, path)?;
        // Looked at without the lock: where it lay may be a file system that does not answer.
        let known = self.slots.read().get(name).map(|slot| slot.path.clone());
        let gone = known.filter(|known| may_have_moved && !Path::new(known).exists());
        self.refuse_anothers_place(name, path)?;
        let mut slots = self.slots.write();
        match slots.get(name) {
            Some(Slot { content: Content::Open(_) | Content::Opening { .. } | Content::Clustered, path }) => {
                return Err(ErrorBody::new(
                    ErrorCode::Exists,
                    format!("pool {name} already exists, in {path}"),
                ));
            }
            Some(Slot { content: Content::Others(why), .. }) => return Err(others(name, why)),
            Some(Slot { content: Content::Failed(_), path: known })
                if known != path && gone.as_ref() != Some(known) =>
            {
                return Err(ErrorBody::new(
                    ErrorCode::Exists,
                    format!("pool {name} is known, in {known}, but failed"),
                )
                .hint(format!(
                    "choose another name. If {path} is that pool, and what is in {known} is not: move {known} away, then \
                     farside pool import {name} --path {path}"
                )));
            }
            Some(Slot { content: Content::Failed(_), .. }) | None => {}
        }
        let (attempt, content) = self.attempt();
        let before = slots.insert(name.to_owned(), Slot { path: path.to_owned(), content });
        Ok((attempt, before.map(|slot| slot.path)))
    }

    /// Fills the place, or leaves it as it was before. `look` sees the pool before anybody can use it; not one that was forgotten
    /// meanwhile.
    fn settle(
        &self,
        name: &str,
        attempt: u64,
        outcome: Result<Opened, ErrorBody>,
        keep_failed: bool,
        look: impl FnOnce(&Pool),
    ) -> Result<Arc<Pool>, ErrorBody> {
        let is_ours =
            |slot: &Slot| matches!(slot.content, Content::Opening { attempt: of, .. } if of == attempt);
        // Who looks may ask for pools, so no lock is held.
        if let Ok(opened) = &outcome
            && self.slots.read().get(name).is_some_and(is_ours)
        {
            look(&opened.pool);
        }
        let mut slots = self.slots.write();
        if !slots.get(name).is_some_and(is_ours) {
            drop(slots);
            if let Ok(opened) = outcome {
                close(name, &opened.pool);
            }
            return Err(ErrorBody::new(
                ErrorCode::Refused,
                format!(
                    "pool {name} was forgotten while it was being opened, or the daemon stops; it was closed again"
                ),
            ));
        }
        let outcome = outcome.and_then(|opened| {
            self.engine.add(name, Arc::clone(&opened.pool)).map_err(Failure::into_error_body)?;
            Ok(opened)
        });
        match (&outcome, slots.get_mut(name)) {
            (Ok(opened), Some(slot)) => slot.content = Content::Open(opened.clone()),
            // Nobody looks again by itself: the cause may be gone when somebody reads this.
            (Err(error), Some(slot)) if keep_failed => {
                let at = self.options.clock.now();
                slot.content = Content::Failed(format!(
                    "{} (so it was at {at:.0}; it is tried again with farside pool reopen {name})",
                    error.message
                ));
            }
            _ => {
                slots.remove(name);
            }
        }
        outcome.map(|opened| opened.pool)
    }

    /// Why a pool cannot be deleted: its path leads to something else by now. None if it can, or is not open.
    pub(crate) fn moved_away(&self, name: &str) -> Option<String> {
        let (path, device) = match self.slots.read().get(name) {
            Some(Slot { path, content: Content::Open(opened) }) => (path.clone(), Arc::clone(&opened.device)),
            _ => return None,
        };
        leads_elsewhere(&path, &device)
    }

    /// Takes a pool out: closed with a consistency point if it was open. Answers what it lies on.
    pub(crate) fn remove(&self, name: &str) -> Result<Removed, ErrorBody> {
        let slot = {
            let mut slots = self.slots.write();
            match slots.get(name) {
                None => return Err(unknown(name)),
                // One that hangs in being opened may be forgotten, too.
                Some(_) => slots.remove(name),
            }
        };
        let Some(Slot { path, content }) = slot else { return Err(unknown(name)) };
        self.engine.remove(name);
        self.rbd.remove(name);
        self.cluster_rooms.forget(name);
        let Content::Open(Opened { pool, device, .. }) = content else {
            return Ok(Removed { path, device: None });
        };
        close(name, &pool);
        Ok(Removed { path, device: Some(device) })
    }

    /// Closes all pools; what has been flushed is safe in any case, a pool closed well opens faster.
    pub(crate) fn close_all(&self) {
        let slots = std::mem::take(&mut *self.slots.write());
        for (name, slot) in slots {
            self.engine.remove(&name);
            self.rbd.remove(&name);
            if let Content::Open(opened) = slot.content {
                close(&name, &opened.pool);
            }
        }
    }
}

/// What can be said of a pool's name and place without looking there.
pub(crate) fn check_name_and_path(name: &str, path: &str) -> Result<(), ErrorBody> {
    if !is_label(name) {
        return Err(wrong(format!(
            "{name:?} cannot be a pool's name; use 1 to 128 of A-Z a-z 0-9 . _ : + -"
        )));
    }
    if place::is_rbd(path) {
        return place::parse_rbd(path).map(drop).map_err(wrong);
    }
    if !Path::new(path).is_absolute() {
        return Err(wrong(format!("{path} is not an absolute path; the daemon runs in another directory")));
    }
    Ok(())
}

/// Whether a file there would be made among the devices, and be gone with the next start of the machine. Shared memory is
/// chosen on purpose.
fn is_below_dev(path: &Path) -> bool {
    let directory = path.parent().map(|at| at.canonicalize().unwrap_or_else(|_| at.to_path_buf()));
    directory.is_some_and(|at| at.starts_with("/dev") && !at.starts_with("/dev/shm"))
}

/// A file needs a size, a raw device has its own.
fn check_size_for(path: &Path, size_bytes: Option<u64>) -> Result<(), ErrorBody> {
    if !is_raw_device(path) && is_below_dev(path) {
        let what = if path.exists() { "is no block device" } else { "does not exist" };
        return Err(wrong(format!(
            "the device {} {what}, and a pool's file does not belong below /dev. Nothing was made there",
            path.display()
        ))
        .hint("lsblk shows the devices that there are"));
    }
    match (is_raw_device(path), size_bytes) {
        (true, None) => Ok(()),
        (true, Some(_)) => Err(wrong(String::from("a raw device has its own size; omit --size"))),
        // With a size it would be refused as well: such a file is never taken.
        (false, None) if path.exists() => Err(wrong(format!(
            "{} exists, and a pool is made in a file that does not exist; --overwrite is for raw devices. Nothing was changed",
            path.display()
        ))
        .hint("farside pool import takes a pool that is there; a file that nobody needs has to be removed first")),
        (false, None) => Err(wrong(format!(
            "{} is not a raw device; give the size of the file with --size",
            path.display()
        ))),
        (false, Some(0)) => Err(wrong(String::from("a pool of 0 bytes holds nothing"))),
        (false, Some(size)) if !size.is_multiple_of(BLOCK_BYTES as u64) => Err(wrong(format!(
            "{size} bytes are not a multiple of {BLOCK_BYTES}; a size without a unit is in bytes: {size}G is gibibytes"
        ))),
        (false, Some(_)) => Ok(()),
    }
}

/// Makes what a pool lay on no pool any more: its file is removed, a raw device is overwritten at its head and end. Only what was
/// open is, whatever has its name by now. A pool that was not open is left alone: its file may be all that is left of
/// somebody's data.
pub(crate) fn destroy(removed: &Removed) -> Result<(), ErrorBody> {
    let Some(device) = &removed.device else { return Ok(()) };
    if let Some(reason) = leads_elsewhere(&removed.path, device) {
        return Err(ErrorBody::new(
            ErrorCode::Failed,
            format!("the pool is closed and forgotten, but not removed: {reason}"),
        ));
    }
    destroy_open(device)
}

fn destroy_open(device: &FileDevice) -> Result<(), ErrorBody> {
    if device.is_block_device() {
        let wipe =
            |from: u64, bytes: u64| device.write_at(from, &vec![0; bytes.min(device.bytes()) as usize]);
        let wipe = || -> Result<(), DeviceError> {
            wipe(0, WIPE_HEAD_BYTES)?;
            wipe(device.bytes().saturating_sub(WIPE_TAIL_BYTES), WIPE_TAIL_BYTES)?;
            device.sync()
        };
        return wipe().map_err(Failure::into_error_body);
    }
    match device.at_path() {
        Ok(AtPath::Same) => {}
        Ok(AtPath::Removed { .. } | AtPath::Moved { .. }) => return Ok(()),
        Err(error) => return Err(error.into_error_body()),
    }
    match std::fs::remove_file(device.name()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(ErrorBody::new(
            ErrorCode::Failed,
            format!("the pool is closed and forgotten, but {} cannot be removed: {error}", device.name()),
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

fn failed(name: &str, error: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::Refused, format!("pool {name} is not open: {error}"))
        .hint(format!("farside pool check verifies it offline; farside pool reopen {name} opens it again"))
}

/// What to do about a pool that is another site's.
fn how_to_practise(name: &str) -> String {
    format!(
        "to practise: copy its file while no daemon has it open, or its images into another pool; forget it here (farside pool delete \
         {name}: what is there stays as it is); then farside pool import {name} --path COPY"
    )
}

fn others(name: &str, why: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::Refused, format!("pool {name} is not open: {why}")).hint(how_to_practise(name))
}

fn being_opened(name: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::Refused, format!("pool {name} is being opened"))
        .hint("try again; farside pool list says for how long, and when it is open")
}

pub(crate) fn is_raw_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.file_type().is_block_device())
}

fn unknown(name: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("pool {name} does not exist"))
        .hint("farside pool list shows what is there; farside pool import opens one from its file")
}

fn wrong(message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::WrongUsage, message)
}

#[cfg(test)]
mod tests {
    use farside_platform::{OsRandomness, SystemClock};

    use super::*;

    const SIZE: u64 = 64 << 20;

    fn pools() -> Pools {
        Pools::new(Arc::new(SystemClock::default()), Arc::new(OsRandomness), "test")
    }

    #[test]
    fn a_pool_is_made_closed_and_opened_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.pool");
        let path = path.to_str().unwrap();
        let first = pools();
        let pool = first.create("p", path, Some(SIZE), false).unwrap();
        pool.create_volume("v", 1 << 20).unwrap();
        drop(pool);
        assert_eq!(first.create("p", path, Some(SIZE), false).err().unwrap().code, ErrorCode::Exists);
        first.close_all();

        let second = pools();
        let pool = second.open("p", path, Manner::default(), |_| {}).unwrap();
        assert_eq!(pool.volumes().len(), 1);
        assert_eq!(second.list()[0].volumes, Some(1));
        assert_eq!(
            second.open("q", path, Manner::default(), |_| {}).err().unwrap().code,
            ErrorCode::Exists,
            "it is the place of another pool"
        );
        drop(pool);
        destroy(&second.remove("p").unwrap()).unwrap();
        assert!(!Path::new(path).exists());
        assert_eq!(second.get("p").err().unwrap().code, ErrorCode::NotFound);
    }

    #[test]
    fn a_device_that_is_not_there_does_not_become_a_file() {
        let pools = pools();
        let path = "/dev/farside-test-no-such-device";
        for size in [None, Some(SIZE)] {
            let refused = pools.create("p", path, size, false).err().unwrap();
            assert_eq!(refused.code, ErrorCode::WrongUsage);
            assert!(refused.message.contains("does not exist"), "{}", refused.message);
            assert!(refused.hint.as_ref().is_some_and(|hint| hint.contains("lsblk")), "{refused:?}");
            assert!(pools.would_not_make("p", path, size).is_some_and(|why| why.contains("does not exist")));
        }
        assert!(!Path::new(path).exists() && pools.list().is_empty());
        let refused = pools.create("p", "/dev/null", Some(SIZE), false).err().unwrap();
        assert!(refused.message.contains("is no block device"), "{}", refused.message);
        assert!(!is_below_dev(Path::new("/dev/shm/p.pool")) && !is_below_dev(Path::new("/srv/p.pool")));
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
                pools.create(name, path, size, false).err().unwrap().code,
                ErrorCode::WrongUsage,
                "{name} {path} {size:?}"
            );
        }
        assert!(!path.exists());
        assert_eq!(pools.list(), vec![]);
    }
}
