//! An image that is open: its head, or one snapshot of it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::cluster::Pool;
use super::failed::{Failed, check, text};
use super::library::{Handle, Rbd, SnapInfo, Watcher};

/// `RBD_LOCK_MODE_EXCLUSIVE`: nobody else gets it while its owner lives, nor may write.
const EXCLUSIVE: c_int = 0;
/// `ENOENT`: nobody owns the lock.
const ABSENT: i32 = 2;
/// `ERANGE`: the buffer is too small.
const RANGE: i32 = 34;
/// Most entries of a listing of owners, watchers.
const LISTED_MAX: usize = 64;

/// A range that differs, bytes, as librbd tells it: not of whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DiffExtent {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// It may hold data; else it reads as zeros.
    pub(crate) has_data: bool,
}

/// A snapshot as the cluster has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotEntry {
    pub(crate) id: u64,
    pub(crate) size_bytes: u64,
    pub(crate) name: String,
}

/// An image that is open.
pub(crate) struct Image {
    pub(super) rbd: &'static Rbd,
    pub(super) handle: Handle,
    /// Open for as long as the image is.
    _pool: Arc<Pool>,
}

// SAFETY: librbd is made to be used by several threads at a time; an image's handle may be given to any of its calls from any.
#[allow(unsafe_code, reason = "a handle of librbd goes from thread to thread")]
unsafe impl Send for Image {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a handle of librbd is used by several threads")]
unsafe impl Sync for Image {}

impl Image {
    /// Opens an image to be written.
    pub(crate) fn open(pool: &Arc<Pool>, id: &str) -> Result<Image, Failed> {
        let (rbd, id) = (pool.connection.rbd, text("rbd_open_by_id", id)?);
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the context is open, the text ends with zero, no snapshot is named; the handle is written before it is used.
        #[allow(unsafe_code, reason = "a call of librbd")]
        let opened = unsafe { (rbd.rbd_open_by_id)(pool.io, id.as_ptr(), &mut handle, ptr::null()) };
        check("rbd_open_by_id", opened)?;
        Ok(Image { rbd, handle, _pool: Arc::clone(pool) })
    }

    /// Opens a snapshot of an image, or without one its head, to be read: that changes nothing of it and is in nobody's way.
    pub(crate) fn open_to_read(pool: &Arc<Pool>, id: &str, snapshot: Option<&str>) -> Result<Image, Failed> {
        const CALL: &str = "rbd_open_by_id_read_only";
        let (rbd, id) = (pool.connection.rbd, text(CALL, id)?);
        let snapshot = snapshot.map(|name| text(CALL, name)).transpose()?;
        let named = snapshot.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let mut handle: Handle = ptr::null_mut();
        // SAFETY: the context is open, the texts end with zero; the handle is written before it is used.
        #[allow(unsafe_code, reason = "a call of librbd")]
        let opened = unsafe { (rbd.rbd_open_by_id_read_only)(pool.io, id.as_ptr(), &mut handle, named) };
        check(CALL, opened)?;
        Ok(Image { rbd, handle, _pool: Arc::clone(pool) })
    }

    /// Bytes of what is open.
    pub(crate) fn size_bytes(&self) -> Result<u64, Failed> {
        let mut size_bytes = 0;
        // SAFETY: the image is open; the size is written during the call.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_get_size", unsafe { (self.rbd.rbd_get_size)(self.handle, &mut size_bytes) })?;
        Ok(size_bytes)
    }

    /// The image's features, a bit each.
    pub(crate) fn features(&self) -> Result<u64, Failed> {
        let mut features = 0;
        // SAFETY: as above.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_get_features", unsafe { (self.rbd.rbd_get_features)(self.handle, &mut features) })?;
        Ok(features)
    }

    /// Gives the image another size; what lies past a smaller one is dropped.
    pub(crate) fn resize(&self, size_bytes: u64) -> Result<(), Failed> {
        // SAFETY: the image is open.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_resize", unsafe { (self.rbd.rbd_resize)(self.handle, size_bytes) })?;
        Ok(())
    }

    /// What was written is on the medium when this returns.
    pub(crate) fn flush(&self) -> Result<(), Failed> {
        // SAFETY: the image is open.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_flush", unsafe { (self.rbd.rbd_flush)(self.handle) })?;
        Ok(())
    }

    /// Takes a snapshot of the head. Whoever owns the image's lock is asked to, so it covers what that answered to its host.
    pub(crate) fn create_snapshot(&self, name: &str) -> Result<(), Failed> {
        let name = text("rbd_snap_create", name)?;
        // SAFETY: the image is open, the text ends with zero.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_snap_create", unsafe { (self.rbd.rbd_snap_create)(self.handle, name.as_ptr()) })?;
        Ok(())
    }

    /// Removes a snapshot.
    pub(crate) fn remove_snapshot(&self, name: &str) -> Result<(), Failed> {
        let name = text("rbd_snap_remove", name)?;
        // SAFETY: as above.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_snap_remove", unsafe { (self.rbd.rbd_snap_remove)(self.handle, name.as_ptr()) })?;
        Ok(())
    }

    /// The head becomes what a snapshot holds, in size too.
    pub(crate) fn roll_back(&self, name: &str) -> Result<(), Failed> {
        let name = text("rbd_snap_rollback", name)?;
        // SAFETY: as above.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_snap_rollback", unsafe { (self.rbd.rbd_snap_rollback)(self.handle, name.as_ptr()) })?;
        Ok(())
    }

    /// All snapshots that the image has, whoever made them.
    pub(crate) fn snapshots(&self) -> Result<Vec<SnapshotEntry>, Failed> {
        let mut room: c_int = 64;
        loop {
            let mut found: Vec<SnapInfo> = Vec::with_capacity(room as usize);
            let mut count = room;
            // SAFETY: there is room for `count` of them, which it does not exceed; it answers how many it wrote.
            #[allow(unsafe_code, reason = "a call of librbd")]
            let listed = unsafe { (self.rbd.rbd_snap_list)(self.handle, found.as_mut_ptr(), &mut count) };
            let listed = match check("rbd_snap_list", listed) {
                Err(Failed { errno: RANGE, .. }) => {
                    room = count.max(room * 2);
                    continue;
                }
                listed => listed?,
            };
            if listed == 0 {
                return Ok(Vec::new());
            }
            // SAFETY: so many were written; their texts end with zero, and are librbd's until they are given back to it below.
            #[allow(unsafe_code, reason = "what librbd wrote is read and given back")]
            let snapshots = unsafe {
                found.set_len(listed.min(room) as usize);
                let of = |info: &SnapInfo| SnapshotEntry {
                    id: info.id,
                    size_bytes: info.size,
                    name: CStr::from_ptr(info.name).to_string_lossy().into_owned(),
                };
                let snapshots = found.iter().map(of).collect();
                (self.rbd.rbd_snap_list_end)(found.as_mut_ptr());
                snapshots
            };
            return Ok(snapshots);
        }
    }

    /// What differs between the snapshot `from` (which is older; without one: nothing at all) and what is open, within a range of bytes.
    pub(crate) fn difference(
        &self,
        from: Option<&str>,
        offset: u64,
        length: u64,
    ) -> Result<Vec<DiffExtent>, Failed> {
        let from = from.map(|name| text("rbd_diff_iterate2", name)).transpose()?;
        let named = from.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        let mut found: Vec<DiffExtent> = Vec::new();
        // SAFETY: the image is open, the text ends with zero. The callback is called during the call alone, by this thread or by one at a
        // time of librbd's, with the address of `found`, which nothing else uses meanwhile; it does not unwind.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_diff_iterate2", unsafe {
            (self.rbd.rbd_diff_iterate2)(
                self.handle,
                named,
                offset,
                length,
                1,
                0,
                gather,
                (&raw mut found).cast(),
            )
        })?;
        Ok(found)
    }

    /// Whether this handle owns the image's lock, as far as it knows.
    pub(crate) fn owns_lock(&self) -> Result<bool, Failed> {
        let mut owns = 0;
        // SAFETY: the image is open; the answer is written during the call.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_is_exclusive_lock_owner", unsafe {
            (self.rbd.rbd_is_exclusive_lock_owner)(self.handle, &mut owns)
        })?;
        Ok(owns != 0)
    }

    /// Takes the image's lock, and keeps it: whoever else writes is refused (`EROFS`) until the image is closed.
    pub(crate) fn lock(&self) -> Result<(), Failed> {
        // SAFETY: the image is open.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_lock_acquire", unsafe { (self.rbd.rbd_lock_acquire)(self.handle, EXCLUSIVE) })?;
        Ok(())
    }

    /// Gives the image's lock back: from now on others may write.
    pub(crate) fn unlock(&self) -> Result<(), Failed> {
        // SAFETY: the image is open.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_lock_release", unsafe { (self.rbd.rbd_lock_release)(self.handle) })?;
        Ok(())
    }

    /// Who owns the image's lock: its address, as [`Image::watchers`] has it.
    pub(crate) fn lock_owner(&self) -> Result<Option<String>, Failed> {
        let mut owners: [*mut c_char; LISTED_MAX] = [ptr::null_mut(); LISTED_MAX];
        let (mut mode, mut count) = (0, LISTED_MAX);
        // SAFETY: there is room for `count` of them, which it does not exceed; it says how many it wrote.
        #[allow(unsafe_code, reason = "a call of librbd")]
        let listed = unsafe {
            (self.rbd.rbd_lock_get_owners)(self.handle, &mut mode, owners.as_mut_ptr(), &mut count)
        };
        match check("rbd_lock_get_owners", listed) {
            Err(Failed { errno: ABSENT, .. }) => return Ok(None),
            listed => listed?,
        };
        // SAFETY: so many were written; they end with zero, and are librbd's until they are given back to it here.
        #[allow(unsafe_code, reason = "what librbd wrote is read and given back")]
        let owner = unsafe {
            let count = count.min(LISTED_MAX);
            let first = owners[..count].first();
            let owner = first.map(|owner| CStr::from_ptr(*owner).to_string_lossy().into_owned());
            (self.rbd.rbd_lock_get_owners_cleanup)(owners.as_mut_ptr(), count);
            owner
        };
        Ok(owner)
    }

    /// Takes the lock away from its owner, and puts that on the cluster's blocklist first: nothing that it has under way, or does from then
    /// on, changes anything.
    pub(crate) fn break_lock(&self, owner: &str) -> Result<(), Failed> {
        let owner: CString = text("rbd_lock_break", owner)?;
        // SAFETY: the image is open, the text ends with zero.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_lock_break", unsafe {
            (self.rbd.rbd_lock_break)(self.handle, EXCLUSIVE, owner.as_ptr())
        })?;
        Ok(())
    }

    /// Number and address of the clients that have the image open to write, or had it until some thirty seconds ago; this one among them,
    /// if it has.
    pub(crate) fn watchers(&self) -> Result<Vec<(u64, String)>, Failed> {
        let mut room = LISTED_MAX;
        loop {
            let mut found: Vec<Watcher> = Vec::with_capacity(room);
            let mut count = room;
            // SAFETY: there is room for `count` of them, which it does not exceed; it says how many it wrote.
            #[allow(unsafe_code, reason = "a call of librbd")]
            let listed = unsafe { (self.rbd.rbd_watchers_list)(self.handle, found.as_mut_ptr(), &mut count) };
            match check("rbd_watchers_list", listed) {
                Err(Failed { errno: RANGE, .. }) => {
                    room = count.max(room * 2);
                    continue;
                }
                listed => listed?,
            };
            // SAFETY: so many were written; their texts end with zero, and are librbd's until they are given back to it here.
            #[allow(unsafe_code, reason = "what librbd wrote is read and given back")]
            let watchers = unsafe {
                found.set_len(count.min(room));
                let of = |watcher: &Watcher| {
                    let address = CStr::from_ptr(watcher.address).to_string_lossy().into_owned();
                    Some((u64::try_from(watcher.id).ok()?, address))
                };
                let watchers = found.iter().filter_map(of).collect();
                (self.rbd.rbd_watchers_list_cleanup)(found.as_mut_ptr(), found.len());
                watchers
            };
            return Ok(watchers);
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: whoever has operations under way borrows the image; nobody uses the handle after this.
        #[allow(unsafe_code, reason = "a call of librbd")]
        unsafe {
            (self.rbd.rbd_close)(self.handle);
        }
    }
}

/// Puts an extent behind those before it. A failed allocation ends the process; nothing else here can fail.
extern "C" fn gather(offset: u64, length: usize, has_data: c_int, found: *mut c_void) -> c_int {
    // SAFETY: `difference` gives the address of its list, and looks at it again only after the walk.
    #[allow(unsafe_code, reason = "librbd hands back what it was given")]
    let found = unsafe { &mut *found.cast::<Vec<DiffExtent>>() };
    let (length, has_data) = (length as u64, has_data != 0);
    match found.last_mut() {
        Some(last) if last.has_data == has_data && last.offset.wrapping_add(last.length) == offset => {
            last.length = last.length.wrapping_add(length);
        }
        _ => found.push(DiffExtent { offset, length, has_data }),
    }
    0
}
