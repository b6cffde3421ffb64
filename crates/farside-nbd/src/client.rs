//! Who is at the other end.

use std::any::Any;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;

use crate::export::ExportSource;

/// A connection's slot among those that are allowed. Calls into the source hold it too: a handshake that times
/// out in one must not make room for a next client, or calls would pile up behind a source that hangs.
pub(crate) type Slot = Arc<dyn Any + Send + Sync>;

/// Who is connected, and to what.
pub(crate) struct Client<'a> {
    /// For the log.
    pub(crate) peer: &'a str,
    /// What it may open.
    pub(crate) source: Arc<dyn ExportSource>,
    /// Cancelled when it must go.
    pub(crate) revoked: &'a CancellationToken,
    /// Its place.
    pub(crate) slot: Slot,
}

/// A client on the socket, as the log names it: process, program and user.
pub(crate) fn unix_peer(stream: &UnixStream) -> String {
    match stream.peer_cred() {
        Ok(credentials) => {
            let pid = credentials.pid().map_or_else(|| "?".into(), |pid| pid.to_string());
            // A daemon that may not look at others' processes does without.
            let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let program = program.trim().replace(|c: char| c.is_control(), "?");
            let program = if program.is_empty() { program } else { format!(" ({program})") };
            format!("pid {pid}{program} uid {}", credentials.uid())
        }
        Err(_) => "unknown".into(),
    }
}
