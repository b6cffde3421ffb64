//! The Unix socket that a server listens on.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

/// Clients that have connected and wait to be accepted.
const BACKLOG: i32 = 128;

/// Why there is no socket to listen on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A server answers there already.
    #[error("another server is listening on {path}; stop it first, or choose another path")]
    InUse {
        /// The socket's path.
        path: PathBuf,
    },
    /// Something that is not a socket has the name; it is left alone.
    #[error("{path} exists and is not a socket; move it away, or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("cannot listen on {path}: {source}")]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Listens on a Unix socket at `path` that is accessible as `mode` says (for example `0o660`) from its first moment.
/// A socket that a dead server left behind is replaced. To be called on an async runtime.
pub fn bind_unix(path: &Path, mode: u32) -> Result<UnixListener, BindError> {
    remove_abandoned(path)?;
    listen(path, mode).map_err(|source| BindError::Io { path: path.to_owned(), source })
}

fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = stream_socket()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Before listen nobody can connect, so there is no moment at which the umask decides who may.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

fn remove_abandoned(path: &Path) -> Result<(), BindError> {
    let io_error = |source| BindError::Io { path: path.to_owned(), source };
    let kind = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error(error)),
    };
    if !kind.is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match connect(path) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(io_error),
        // Its queue of clients is full, so somebody has it.
        Ok(()) | Err(Errno::AGAIN) => Err(BindError::InUse { path: path.to_owned() }),
        Err(error) => Err(io_error(error.into())),
    }
}

/// Connects and hangs up, without waiting for anyone.
fn connect(path: &Path) -> Result<(), Errno> {
    let socket = stream_socket()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

fn stream_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}
