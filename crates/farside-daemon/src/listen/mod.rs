//! Addresses to listen on, and who may be connected for how long.
//!
//! A door must open for whoever asks something, whoever else stands there: a client that connects and says nothing, says
//! half a request, or does not fetch its answer has a place until somebody else needs it, and for a limited time.

mod course;
mod guests;
mod host;
mod origin;
#[cfg(test)]
mod tests;
mod tls;

pub(crate) use course::Manners;
pub(crate) use guests::{Guests, Visit, attend};
pub(crate) use host::is_called;
pub(crate) use origin::{FromSomewhere, Origin};
pub(crate) use tls::TlsListener;

use tokio::net::TcpListener;

use crate::error::DaemonError;

/// Who may open the daemon's Unix sockets: its user and group.
pub(crate) const SOCKET_MODE: u32 = 0o660;

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
