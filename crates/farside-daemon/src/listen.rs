//! Sockets to listen on.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::net::{TcpListener, UnixListener};

use crate::error::DaemonError;

/// Who may open the daemon's Unix sockets: its user and group.
pub(crate) const SOCKET_MODE: u32 = 0o660;

/// Binds a Unix socket at `path` with mode 0660. The data directory's lock is held, so that a file of that name is
/// left over from a daemon that is gone; it is replaced in one step, once the new one has its mode.
pub(crate) fn unix(what: &'static str, path: &Path) -> Result<UnixListener, DaemonError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = Path::new(&temporary);
    let bind = || -> io::Result<UnixListener> {
        match std::fs::remove_file(temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(temporary)?;
        std::fs::set_permissions(temporary, std::fs::Permissions::from_mode(SOCKET_MODE))?;
        std::fs::rename(temporary, path)?;
        Ok(listener)
    };
    bind().map_err(|source| DaemonError::Listen {
        what,
        option: "--data-dir",
        address: path.display().to_string(),
        source,
    })
}

/// Binds a TCP address.
pub(crate) async fn tcp(
    what: &'static str,
    option: &'static str,
    address: &str,
) -> Result<TcpListener, DaemonError> {
    TcpListener::bind(address).await.map_err(|source| DaemonError::Listen {
        what,
        option,
        address: address.to_owned(),
        source,
    })
}
