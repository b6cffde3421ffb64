//! Accepting, until told to stop.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::limits::ACCEPT_RETRY;

/// Where clients come from.
pub(crate) trait Accept {
    /// A client, and where it comes from.
    type Client;
    fn next_client(&self) -> impl Future<Output = io::Result<Self::Client>> + Send;
}

impl Accept for UnixListener {
    type Client = UnixStream;
    async fn next_client(&self) -> io::Result<UnixStream> {
        Ok(self.accept().await?.0)
    }
}

impl Accept for TcpListener {
    type Client = (TcpStream, SocketAddr);
    async fn next_client(&self) -> io::Result<Self::Client> {
        self.accept().await
    }
}

/// Serves each client of `listener` as a task of its own until `stop`; then returns, and the tasks go on in
/// `connections`.
pub(crate) async fn accept_until<L: Accept, S>(
    listener: &L,
    stop: &CancellationToken,
    connections: &TaskTracker,
    mut serve: impl FnMut(L::Client) -> S,
) where
    S: Future<Output = ()> + Send + 'static,
{
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.next_client() => accepted,
        };
        match accepted {
            Ok(client) => drop(connections.spawn(serve(client))),
            Err(error) => {
                tracing::error!(%error, "cannot accept an NBD client; trying again");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(ACCEPT_RETRY) => {}
                }
            }
        }
    }
}
