//! The data directory: made if need be, and held by one daemon.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::DaemonError;

/// The state database.
pub(crate) const STATE_FILE: &str = "farside.db";
/// The control socket.
pub(crate) const CONTROL_SOCKET: &str = "farside.sock";
/// The NBD socket.
pub(crate) const NBD_SOCKET: &str = "nbd.sock";
/// Holds the address that is really listened on, whatever port was asked for.
pub(crate) const PEER_ADDRESS_FILE: &str = "peer.addr";
/// The same for hosts over TCP.
pub(crate) const NBD_ADDRESS_FILE: &str = "nbd.addr";
/// The same for the API over HTTPS.
pub(crate) const API_ADDRESS_FILE: &str = "api.addr";
/// The same for `/metrics`.
pub(crate) const HTTP_ADDRESS_FILE: &str = "http.addr";

/// A data directory that is this daemon's until dropped.
#[derive(Debug)]
pub(crate) struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory (0750: the group may reach the sockets) and locks it.
    pub(crate) fn acquire(path: &Path) -> Result<DataDir, DaemonError> {
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |source| DaemonError::DataDir { path, source }
        };
        DirBuilder::new().recursive(true).mode(0o750).create(path).map_err(failed(path))?;
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(failed(&lock_path))?;
        // Before a database that cannot be written is taken for one that is damaged.
        let directory = path;
        for path in [path.to_path_buf(), path.join(STATE_FILE)] {
            if path.exists() {
                rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).map_err(|error| {
                    let user = rustix::process::geteuid().as_raw();
                    let why = format!(
                        "the daemon's user may not write it: {error}. Nothing was changed. To give the directory to that user: chown -R \
                         {user} {}",
                        directory.display()
                    );
                    failed(&path)(io::Error::new(io::ErrorKind::PermissionDenied, why))
                })?;
            }
        }
        match lock.try_lock() {
            Ok(()) => {
                leave_pid(&lock);
                Ok(DataDir { path: path.to_path_buf(), _lock: lock })
            }
            Err(TryLockError::WouldBlock) => {
                let pid = std::fs::read_to_string(&lock_path).ok().and_then(|text| text.trim().parse().ok());
                Err(DaemonError::Locked { path: path.to_path_buf(), pid })
            }
            Err(TryLockError::Error(source)) => Err(failed(&lock_path)(source)),
        }
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a small file that others read while it changes: whole or not at all. It is a convenience: a full disk keeps no daemon
    /// from its start, and leaves no file that says what is no more.
    pub(crate) fn publish(&self, name: &str, text: &str) {
        let path = self.join(name);
        let temporary = format!(".{name}.new");
        let write = || -> io::Result<()> {
            std::fs::write(self.join(&temporary), text)?;
            std::fs::rename(self.join(&temporary), &path)
        };
        if let Err(error) = write() {
            tracing::warn!(file = %path.display(), %error, "cannot write a file that says where this daemon is reached; it serves \
                 all the same");
            self.withdraw(&temporary);
            self.withdraw(name);
        }
    }

    /// Removes a published file; one that is not there is no matter.
    pub(crate) fn withdraw(&self, name: &str) {
        if let Err(error) = std::fs::remove_file(self.join(name))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %self.join(name).display(), %error, "cannot remove");
        }
    }
}

/// For whoever finds the directory in use. A full disk keeps no daemon from its start.
fn leave_pid(mut lock: &File) {
    let left = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
    if let Err(error) = left {
        tracing::debug!(%error, "the lock file does not say which process holds it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        let first = DataDir::acquire(&path).unwrap();
        let second = DataDir::acquire(&path).unwrap_err();
        assert!(matches!(second, DaemonError::Locked { pid: Some(pid), .. } if pid == std::process::id()));
        assert!(second.to_string().contains(&format!("(process {})", std::process::id())), "{second}");
        assert_eq!(second.exit_code(), 4);
        drop(first);
        DataDir::acquire(&path).unwrap();
    }
}
