//! librados and librbd, loaded when the first pool that needs them is added, and never unloaded: one binary, no Ceph to build it.
//!
//! The declarations are those of `rados/librados.h` and `rbd/librbd.h` of Ceph 16 (Pacific), the oldest release that has all of
//! them. Both libraries keep what they export from release to release.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

/// What librados and librbd hand out: addresses of their own objects.
pub(super) type Handle = *mut c_void;
/// Told of each extent that differs: offset, length, whether it has data, the argument. Not 0 ends the walk.
pub(super) type DiffCallback = extern "C" fn(u64, usize, c_int, *mut c_void) -> c_int;

/// An image in a listing: `rbd_image_spec_t`.
#[repr(C)]
pub(super) struct ImageSpec {
    pub(super) id: *mut c_char,
    pub(super) name: *mut c_char,
}

/// A snapshot in a listing: `rbd_snap_info_t`.
#[repr(C)]
pub(super) struct SnapInfo {
    pub(super) id: u64,
    pub(super) size: u64,
    pub(super) name: *const c_char,
}

/// Who watches an image: `rbd_image_watcher_t`.
#[repr(C)]
pub(super) struct Watcher {
    pub(super) address: *mut c_char,
    pub(super) id: i64,
    pub(super) cookie: u64,
}

macro_rules! library {
    ($(#[$doc:meta])* $table:ident: $file:literal of $package:literal {
        $($(#[$for:meta])* fn $function:ident($($argument:ty),*) $(-> $answer:ty)?;)+
    }) => {
        $(#[$doc])*
        pub(super) struct $table {
            $($(#[$for])* pub(super) $function: unsafe extern "C" fn($($argument),*) $(-> $answer)?,)+
        }

        impl $table {
            fn load() -> Result<$table, String> {
                // SAFETY: loading runs the library's initialisers. It is the distribution's own, found where the system's linker
                // finds libraries, and any program that is linked to it runs the same at its start.
                #[allow(unsafe_code, reason = "a library is loaded")]
                let library = unsafe { Library::new($file) };
                let library = library.map_err(|error| {
                    format!(
                        "{} cannot be loaded ({error}). Pools of Ceph RBD need it; nothing else does. To install it: \
                         apt-get install {}",
                        $file, $package
                    )
                })?;
                let table = $table {
                    $($(#[$for])* $function: {
                        // SAFETY: the type is that of the declaration in the library's header, of this name.
                        #[allow(unsafe_code, reason = "a function is looked up")]
                        let found = unsafe { library.get(concat!(stringify!($function), "\0").as_bytes()) };
                        *found.map_err(|_| too_old(stringify!($function), $file, $package))?
                    },)+
                };
                // What was looked up is good for as long as it is loaded: for ever.
                std::mem::forget(library);
                Ok(table)
            }
        }
    };
}

fn too_old(function: &str, file: &str, package: &str) -> String {
    format!(
        "{file} has no {function}: it is older than Ceph 16 (Pacific). Pools of Ceph RBD need a newer one; nothing else does. To \
         install it: apt-get install {package}"
    )
}

library! {
    /// What of librados is used.
    Rados: "librados.so.2" of "librados2" {
        fn rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
        fn rados_conf_read_file(Handle, *const c_char) -> c_int;
        fn rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
        fn rados_connect(Handle) -> c_int;
        fn rados_shutdown(Handle);
        fn rados_get_instance_id(Handle) -> u64;
        fn rados_cluster_fsid(Handle, *mut c_char, usize) -> c_int;
        fn rados_getaddrs(Handle, *mut *mut c_char) -> c_int;
        fn rados_buffer_free(*mut c_char);
        fn rados_blocklist_add(Handle, *mut c_char, u32) -> c_int;
        fn rados_mon_command(
            Handle, *mut *const c_char, usize, *const c_char, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize
        ) -> c_int;
        fn rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
        fn rados_ioctx_destroy(Handle);
        fn rados_ioctx_set_namespace(Handle, *const c_char);
        fn rados_read(Handle, *const c_char, *mut c_char, usize, u64) -> c_int;
        fn rados_write_full(Handle, *const c_char, *const c_char, usize) -> c_int;
        fn rados_remove(Handle, *const c_char) -> c_int;
        fn rados_exec(Handle, *const c_char, *const c_char, *const c_char, *const c_char, usize, *mut c_char, usize) -> c_int;
        fn rados_create_write_op() -> Handle;
        fn rados_release_write_op(Handle);
        fn rados_write_op_assert_exists(Handle);
        fn rados_write_op_omap_cmp2(Handle, *const c_char, u8, *const c_char, usize, usize, *mut c_int);
        fn rados_write_op_exec(Handle, *const c_char, *const c_char, *const c_char, usize, *mut c_int);
        fn rados_write_op_operate(Handle, Handle, *const c_char, *mut i64, c_int) -> c_int;
    }
}

library! {
    /// What of librbd is used.
    Rbd: "librbd.so.1" of "librbd1" {
        #[cfg(feature = "conformance")]
        fn rbd_namespace_create(Handle, *const c_char) -> c_int;
        fn rbd_namespace_exists(Handle, *const c_char, *mut bool) -> c_int;
        fn rbd_list2(Handle, *mut ImageSpec, *mut usize) -> c_int;
        fn rbd_image_spec_list_cleanup(*mut ImageSpec, usize);
        fn rbd_create2(Handle, *const c_char, u64, u64, *mut c_int) -> c_int;
        fn rbd_remove(Handle, *const c_char) -> c_int;
        fn rbd_rename(Handle, *const c_char, *const c_char) -> c_int;
        fn rbd_open_by_id(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_open_by_id_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        fn rbd_close(Handle) -> c_int;
        fn rbd_get_size(Handle, *mut u64) -> c_int;
        fn rbd_get_features(Handle, *mut u64) -> c_int;
        fn rbd_resize(Handle, u64) -> c_int;
        fn rbd_flush(Handle) -> c_int;
        fn rbd_snap_create(Handle, *const c_char) -> c_int;
        fn rbd_snap_remove(Handle, *const c_char) -> c_int;
        fn rbd_snap_rollback(Handle, *const c_char) -> c_int;
        fn rbd_snap_list(Handle, *mut SnapInfo, *mut c_int) -> c_int;
        fn rbd_snap_list_end(*mut SnapInfo);
        fn rbd_is_exclusive_lock_owner(Handle, *mut c_int) -> c_int;
        fn rbd_lock_acquire(Handle, c_int) -> c_int;
        fn rbd_lock_release(Handle) -> c_int;
        fn rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        fn rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
        fn rbd_lock_break(Handle, c_int, *const c_char) -> c_int;
        fn rbd_watchers_list(Handle, *mut Watcher, *mut usize) -> c_int;
        fn rbd_watchers_list_cleanup(*mut Watcher, usize);
        fn rbd_diff_iterate2(Handle, *const c_char, u64, u64, u8, u8, DiffCallback, *mut c_void) -> c_int;
        fn rbd_aio_create_completion(*mut c_void, *const c_void, *mut Handle) -> c_int;
        fn rbd_aio_read(Handle, u64, usize, *mut c_char, Handle) -> c_int;
        fn rbd_aio_write(Handle, u64, usize, *const c_char, Handle) -> c_int;
        fn rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
        fn rbd_aio_wait_for_complete(Handle) -> c_int;
        fn rbd_aio_get_return_value(Handle) -> isize;
        fn rbd_aio_release(Handle);
    }
}

/// Both, or why they cannot be used.
pub(super) fn libraries() -> Result<(&'static Rados, &'static Rbd), String> {
    static LOADED: OnceLock<Result<(Rados, Rbd), String>> = OnceLock::new();
    let loaded = LOADED.get_or_init(|| Ok((Rados::load()?, Rbd::load()?)));
    loaded.as_ref().map(|(rados, rbd)| (rados, rbd)).map_err(Clone::clone)
}
