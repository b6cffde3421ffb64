//! A client of a cluster, and a pool (or a namespace of one) that it has open.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use super::failed::{Failed, check, text};
use super::library::{Handle, ImageSpec, Rados, Rbd, libraries};

/// `ECANCELED`: a comparison that was part of a write did not hold, and nothing was written.
pub(crate) const CANCELED: i32 = 125;
/// `ERANGE`: the buffer is too small.
const RANGE: i32 = 34;
/// Most bytes of one object that are read at once.
const OBJECT_BYTES_MAX: usize = 64 << 20;

/// A client of a cluster. Whoever puts it on the blocklist ends all that it does.
pub(crate) struct Connection {
    pub(super) rados: &'static Rados,
    pub(super) rbd: &'static Rbd,
    client: Handle,
}

// SAFETY: librados is made to be used by several threads at a time; a client's handle may be given to any of its calls from any.
#[allow(unsafe_code, reason = "a handle of librados goes from thread to thread")]
unsafe impl Send for Connection {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a handle of librados is used by several threads")]
unsafe impl Sync for Connection {}

impl Connection {
    /// Connects as `client.USER` by what `conf` says, each call of Ceph ending after `timeout_seconds` at the latest. `Err` is a text where
    /// the libraries cannot be used.
    pub(crate) fn open(
        conf: &str,
        user: &str,
        timeout_seconds: u32,
    ) -> Result<Result<Connection, Failed>, String> {
        let (rados, rbd) = libraries()?;
        Ok(Connection::connect(rados, rbd, conf, user, timeout_seconds))
    }

    fn connect(
        rados: &'static Rados,
        rbd: &'static Rbd,
        conf: &str,
        user: &str,
        timeout_seconds: u32,
    ) -> Result<Connection, Failed> {
        let name = text("rados_create2", &format!("client.{user}"))?;
        let mut client: Handle = ptr::null_mut();
        // SAFETY: both texts end with zero and live through the call; the handle is written before it is used.
        #[allow(unsafe_code, reason = "a call of librados")]
        let made = unsafe { (rados.rados_create2)(&mut client, c"ceph".as_ptr(), name.as_ptr(), 0) };
        check("rados_create2", made)?;
        // From here on it is shut down whatever happens.
        let connection = Connection { rados, rbd, client };
        let conf = text("rados_conf_read_file", conf)?;
        // SAFETY: the client was made just now; the text ends with zero.
        #[allow(unsafe_code, reason = "a call of librados")]
        check("rados_conf_read_file", unsafe { (rados.rados_conf_read_file)(client, conf.as_ptr()) })?;
        let seconds = timeout_seconds.to_string();
        for (option, value) in [
            ("rados_mon_op_timeout", &*seconds),
            ("rados_osd_op_timeout", &*seconds),
            ("client_mount_timeout", &*seconds),
            // What is answered is on the medium: nothing waits in a cache of this process.
            ("rbd_cache", "false"),
            // The daemon's log is its own.
            ("log_file", ""),
            ("log_to_stderr", "false"),
            ("err_to_stderr", "false"),
            ("admin_socket", ""),
        ] {
            let (option, value) = (text("rados_conf_set", option)?, text("rados_conf_set", value)?);
            // SAFETY: as above.
            #[allow(unsafe_code, reason = "a call of librados")]
            check("rados_conf_set", unsafe {
                (rados.rados_conf_set)(client, option.as_ptr(), value.as_ptr())
            })?;
        }
        // SAFETY: as above.
        #[allow(unsafe_code, reason = "a call of librados")]
        check("rados_connect", unsafe { (rados.rados_connect)(client) })?;
        Ok(connection)
    }

    /// The number by which the cluster knows this client: it is `client.NUMBER` in what `rbd status` says.
    pub(crate) fn number(&self) -> u64 {
        // SAFETY: the client lives as long as this.
        #[allow(unsafe_code, reason = "a call of librados")]
        unsafe {
            (self.rados.rados_get_instance_id)(self.client)
        }
    }

    /// The address by which the cluster knows this client: what its blocklist takes.
    pub(crate) fn address(&self) -> Result<String, Failed> {
        let mut found: *mut c_char = ptr::null_mut();
        // SAFETY: the client lives as long as this; the text is written before it is used.
        #[allow(unsafe_code, reason = "a call of librados")]
        check("rados_getaddrs", unsafe { (self.rados.rados_getaddrs)(self.client, &mut found) })?;
        if found.is_null() {
            return Err(Failed { call: "rados_getaddrs", errno: 2 });
        }
        // SAFETY: a text that ends with zero was written, which is this function's to give back.
        #[allow(unsafe_code, reason = "what librados wrote is read and given back")]
        let text = unsafe {
            let text = CStr::from_ptr(found).to_string_lossy().into_owned();
            (self.rados.rados_buffer_free)(found);
            text
        };
        // One that listens has several, in brackets. A client has one.
        let first = text.trim_matches(['[', ']']).split(',').next().unwrap_or_default();
        let bare = first.split_once(':').filter(|(kind, _)| ["v1", "v2", "any"].contains(kind));
        Ok(bare.map_or(first, |(_, address)| address).to_owned())
    }

    /// Puts the client of this address on the cluster's blocklist: nothing that it has under way, or does from then on, changes anything.
    pub(crate) fn fence(&self, address: &str, seconds: u32) -> Result<(), Failed> {
        let address = text("rados_blocklist_add", address)?;
        // SAFETY: the text ends with zero and lives through the call, which does not change it.
        #[allow(unsafe_code, reason = "a call of librados")]
        check("rados_blocklist_add", unsafe {
            (self.rados.rados_blocklist_add)(self.client, address.as_ptr().cast_mut(), seconds)
        })?;
        Ok(())
    }

    /// What the monitors answer to a command, which is JSON, as `ceph` sends them.
    pub(crate) fn ask_monitors(&self, command: &str) -> Result<Vec<u8>, Failed> {
        let command = text("rados_mon_command", command)?;
        let mut commands = [command.as_ptr()];
        let (mut answer, mut answer_bytes): (*mut c_char, usize) = (ptr::null_mut(), 0);
        let (mut words, mut words_bytes): (*mut c_char, usize) = (ptr::null_mut(), 0);
        // SAFETY: the command ends with zero and lives through the call; where it writes addresses and lengths, these live here.
        #[allow(unsafe_code, reason = "a call of librados")]
        let asked = unsafe {
            (self.rados.rados_mon_command)(
                self.client,
                commands.as_mut_ptr(),
                commands.len(),
                ptr::null(),
                0,
                &mut answer,
                &mut answer_bytes,
                &mut words,
                &mut words_bytes,
            )
        };
        let mut told = Vec::new();
        // SAFETY: whatever came of it, an address that was written is of so many bytes, and this function's to give back.
        #[allow(unsafe_code, reason = "what librados wrote is read and given back")]
        unsafe {
            if !answer.is_null() {
                told.extend_from_slice(std::slice::from_raw_parts(answer.cast::<u8>(), answer_bytes));
                (self.rados.rados_buffer_free)(answer);
            }
            if !words.is_null() {
                (self.rados.rados_buffer_free)(words);
            }
        }
        check("rados_mon_command", asked)?;
        Ok(told)
    }

    /// The cluster's identity.
    pub(crate) fn fsid(&self) -> Result<String, Failed> {
        let mut buffer = [0_u8; 64];
        // SAFETY: it writes at most what it is told the buffer has.
        #[allow(unsafe_code, reason = "a call of librados")]
        let length = check("rados_cluster_fsid", unsafe {
            (self.rados.rados_cluster_fsid)(self.client, buffer.as_mut_ptr().cast(), buffer.len())
        })?;
        Ok(String::from_utf8_lossy(&buffer[..(length as usize).min(buffer.len())]).into_owned())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: pools hold what they are of, so nothing of it is open any more; nobody uses the handle after this.
        #[allow(unsafe_code, reason = "a call of librados")]
        unsafe {
            (self.rados.rados_shutdown)(self.client);
        }
    }
}

/// A pool of the cluster, or one namespace in it.
pub(crate) struct Pool {
    pub(crate) connection: Arc<Connection>,
    pub(super) io: Handle,
}

// SAFETY: an I/O context may be used by several threads, as long as none changes its settings: only `open` does, before there are
// others.
#[allow(unsafe_code, reason = "a handle of librados goes from thread to thread")]
unsafe impl Send for Pool {}
// SAFETY: as above.
#[allow(unsafe_code, reason = "a handle of librados is used by several threads")]
unsafe impl Sync for Pool {}

impl Pool {
    /// Opens a pool, in it a namespace if `namespace` is not empty; that must be there.
    pub(crate) fn open(connection: Arc<Connection>, pool: &str, namespace: &str) -> Result<Pool, Failed> {
        let rados = connection.rados;
        let name = text("rados_ioctx_create", pool)?;
        let mut io: Handle = ptr::null_mut();
        // SAFETY: the client lives as long as the connection, which the answer holds; the handle is written before it is used.
        #[allow(unsafe_code, reason = "a call of librados")]
        let opened = unsafe { (rados.rados_ioctx_create)(connection.client, name.as_ptr(), &mut io) };
        check("rados_ioctx_create", opened)?;
        let opened = Pool { connection, io };
        if !namespace.is_empty() {
            let name = text("rbd_namespace_exists", namespace)?;
            let mut exists = false;
            // SAFETY: the context is open; the flag is written during the call.
            #[allow(unsafe_code, reason = "a call of librbd")]
            check("rbd_namespace_exists", unsafe {
                (opened.connection.rbd.rbd_namespace_exists)(io, name.as_ptr(), &mut exists)
            })?;
            if !exists {
                return Err(Failed { call: "rbd_namespace_exists", errno: 2 });
            }
            // SAFETY: as above; nobody else has the context yet.
            #[allow(unsafe_code, reason = "a call of librados")]
            unsafe {
                (rados.rados_ioctx_set_namespace)(io, name.as_ptr());
            }
        }
        Ok(opened)
    }

    /// Makes a namespace in this pool.
    #[cfg(feature = "conformance")]
    pub(crate) fn create_namespace(&self, namespace: &str) -> Result<(), Failed> {
        let name = text("rbd_namespace_create", namespace)?;
        // SAFETY: the context is open, the text ends with zero.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_namespace_create", unsafe {
            (self.connection.rbd.rbd_namespace_create)(self.io, name.as_ptr())
        })?;
        Ok(())
    }

    /// All images, (id, name) each.
    pub(crate) fn images(&self) -> Result<Vec<(String, String)>, Failed> {
        let rbd = self.connection.rbd;
        let mut room: usize = 64;
        loop {
            let mut found: Vec<ImageSpec> = Vec::with_capacity(room);
            let mut count = room;
            // SAFETY: there is room for `count` of them, which it does not exceed; it says how many it wrote.
            #[allow(unsafe_code, reason = "a call of librbd")]
            let listed = unsafe { (rbd.rbd_list2)(self.io, found.as_mut_ptr(), &mut count) };
            match check("rbd_list2", listed) {
                Err(Failed { errno: RANGE, .. }) => {
                    room = count.max(room * 2);
                    continue;
                }
                done => done?,
            };
            // SAFETY: so many were written; their texts end with zero, and are librbd's until they are given back to it below.
            #[allow(unsafe_code, reason = "what librbd wrote is read and given back")]
            let images = unsafe {
                found.set_len(count.min(room));
                let of = |text: *const _| CStr::from_ptr(text).to_string_lossy().into_owned();
                let images = found.iter().map(|spec| (of(spec.id), of(spec.name))).collect();
                (rbd.rbd_image_spec_list_cleanup)(found.as_mut_ptr(), found.len());
                images
            };
            return Ok(images);
        }
    }

    /// Makes an image of `size_bytes` bytes with these features, in objects of 4 MiB.
    pub(crate) fn create_image(&self, name: &str, size_bytes: u64, features: u64) -> Result<(), Failed> {
        let name = text("rbd_create2", name)?;
        let mut order: c_int = 22;
        // SAFETY: the context is open, the text ends with zero, the order is read and written during the call.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_create2", unsafe {
            (self.connection.rbd.rbd_create2)(self.io, name.as_ptr(), size_bytes, features, &mut order)
        })?;
        Ok(())
    }

    /// Removes an image that has no snapshots and that nobody has open.
    pub(crate) fn remove_image(&self, name: &str) -> Result<(), Failed> {
        let name = text("rbd_remove", name)?;
        // SAFETY: the context is open, the text ends with zero.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_remove", unsafe { (self.connection.rbd.rbd_remove)(self.io, name.as_ptr()) })?;
        Ok(())
    }

    /// Gives an image another name.
    pub(crate) fn rename_image(&self, from: &str, to: &str) -> Result<(), Failed> {
        let (from, to) = (text("rbd_rename", from)?, text("rbd_rename", to)?);
        // SAFETY: the context is open, the texts end with zero.
        #[allow(unsafe_code, reason = "a call of librbd")]
        check("rbd_rename", unsafe {
            (self.connection.rbd.rbd_rename)(self.io, from.as_ptr(), to.as_ptr())
        })?;
        Ok(())
    }

    /// All of an object, up to 64 MiB.
    pub(crate) fn read_object(&self, name: &str) -> Result<Vec<u8>, Failed> {
        let name = text("rados_read", name)?;
        let mut found: Vec<u8> = Vec::new();
        let mut piece = 64 << 10;
        loop {
            let at = found.len();
            found.resize(at + piece, 0);
            // SAFETY: it writes at most `piece` bytes, which lie behind `at`.
            #[allow(unsafe_code, reason = "a call of librados")]
            let read = check("rados_read", unsafe {
                (self.connection.rados.rados_read)(
                    self.io,
                    name.as_ptr(),
                    found[at..].as_mut_ptr().cast(),
                    piece,
                    at as u64,
                )
            })? as usize;
            found.truncate(at + read.min(piece));
            if read < piece || found.len() >= OBJECT_BYTES_MAX {
                return Ok(found);
            }
            piece = 4 << 20;
        }
    }

    /// Writes an object whole.
    pub(crate) fn write_object(&self, name: &str, bytes: &[u8]) -> Result<(), Failed> {
        let name = text("rados_write_full", name)?;
        // SAFETY: it reads just these bytes, during the call.
        #[allow(unsafe_code, reason = "a call of librados")]
        check("rados_write_full", unsafe {
            (self.connection.rados.rados_write_full)(
                self.io,
                name.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len(),
            )
        })?;
        Ok(())
    }

    /// Removes an object.
    pub(crate) fn remove_object(&self, name: &str) -> Result<(), Failed> {
        let name = text("rados_remove", name)?;
        // SAFETY: the context is open, the text ends with zero.
        #[allow(unsafe_code, reason = "a call of librados")]
        check("rados_remove", unsafe { (self.connection.rados.rados_remove)(self.io, name.as_ptr()) })?;
        Ok(())
    }

    /// Asks the object's class `rbd` for something: what it answers to `method`.
    pub(crate) fn ask(&self, object: &str, method: &str, argument: &[u8]) -> Result<Vec<u8>, Failed> {
        let (name, method) = (text("rados_exec", object)?, text("rados_exec", method)?);
        let mut room = 64 << 10;
        loop {
            let mut answer = vec![0_u8; room];
            // SAFETY: it reads the argument and writes at most what it is told the answer has room for, both during the call.
            #[allow(unsafe_code, reason = "a call of librados")]
            let answered = unsafe {
                (self.connection.rados.rados_exec)(
                    self.io,
                    name.as_ptr(),
                    c"rbd".as_ptr(),
                    method.as_ptr(),
                    argument.as_ptr().cast(),
                    argument.len(),
                    answer.as_mut_ptr().cast(),
                    room,
                )
            };
            match check("rados_exec", answered) {
                Err(Failed { errno: RANGE, .. }) if room < OBJECT_BYTES_MAX => room *= 16,
                Err(failed) => return Err(failed),
                Ok(length) => {
                    answer.truncate((length as usize).min(room));
                    return Ok(answer);
                }
            }
        }
    }

    /// In one write of an object that is there: if its omap has `value` under `key` (empty: or has nothing there), its class `rbd` is
    /// given `argument` for `method`. [`CANCELED`] if it has something else, and then nothing was done.
    pub(crate) fn tell_if(
        &self,
        object: &str,
        (key, value): (&str, &[u8]),
        method: &str,
        argument: &[u8],
    ) -> Result<(), Failed> {
        const EQUAL: u8 = 1;
        let rados = self.connection.rados;
        let (object, key) = (text("rados_write_op_operate", object)?, text("rados_write_op_operate", key)?);
        let method = text("rados_write_op_operate", method)?;
        let (mut compared, mut told): (c_int, c_int) = (0, 0);
        // SAFETY: the operation is made, carried out and released here. What it is told of (texts, bytes, places for answers) outlives
        // it: all of that lives to the end of this function.
        #[allow(unsafe_code, reason = "calls of librados")]
        let done = unsafe {
            let operation = (rados.rados_create_write_op)();
            (rados.rados_write_op_assert_exists)(operation);
            (rados.rados_write_op_omap_cmp2)(
                operation,
                key.as_ptr(),
                EQUAL,
                value.as_ptr().cast(),
                key.as_bytes().len(),
                value.len(),
                &mut compared,
            );
            (rados.rados_write_op_exec)(
                operation,
                c"rbd".as_ptr(),
                method.as_ptr(),
                argument.as_ptr().cast(),
                argument.len(),
                &mut told,
            );
            let done =
                (rados.rados_write_op_operate)(operation, self.io, object.as_ptr(), ptr::null_mut(), 0);
            (rados.rados_release_write_op)(operation);
            done
        };
        check("rados_write_op_operate", done)?;
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: images hold the pool that they are of, so none is open any more; nobody uses the handle after this.
        #[allow(unsafe_code, reason = "a call of librados")]
        unsafe {
            (self.connection.rados.rados_ioctx_destroy)(self.io);
        }
    }
}
