//! The server: listeners and the lives of connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::accept::accept_until;
use crate::buffer_pool::BufferPool;
use crate::call_pool::CallPool;
use crate::client::{Client, unix_peer};
use crate::connection::{Common, Connection};
use crate::conversation::{ConnectionError, Ending};
use crate::export::ExportSource;
use crate::host_places::HostPlaces;
use crate::limits::{Limits, SOCKET_BUFFER_BYTES};
use crate::negotiation::{Negotiation, Opening};
use crate::room::{Room, ServerRoom};

/// Serves the exports of one source. Clones are the same server and share its limits.
#[derive(Clone)]
pub struct Server {
    source: Arc<dyn ExportSource>,
    common: Arc<Common>,
    connections: Arc<Semaphore>,
    host_places: Arc<HostPlaces>,
    next_connection: Arc<AtomicU64>,
}

impl Server {
    /// A server for `source`. Limits too small to serve any single request are raised.
    ///
    /// # Errors
    /// The kernel gave no thread.
    pub fn new(source: Arc<dyn ExportSource>, limits: Limits) -> io::Result<Self> {
        let limits = limits.at_least_usable();
        let common = Common {
            calls: CallPool::new(limits.threads_max)?,
            buffers: Arc::new(BufferPool::default()),
            room: ServerRoom::new(&limits),
            limits,
        };
        Ok(Server {
            source,
            host_places: HostPlaces::new(&common.limits),
            connections: Arc::new(Semaphore::new(common.limits.connections_max)),
            common: Arc::new(common),
            next_connection: Arc::new(AtomicU64::new(1)),
        })
    }

    /// Accepts and serves clients of `listener` until `shutdown` is cancelled; then removes the socket's file, and
    /// returns when every connection has finished its commands under way and ended.
    pub async fn serve_unix(&self, listener: UnixListener, shutdown: CancellationToken) {
        let connections = TaskTracker::new();
        let serve = |stream: UnixStream| {
            let (server, shutdown) = (self.clone(), shutdown.clone());
            async move {
                let peer = unix_peer(&stream);
                let (reader, writer) = stream.into_split();
                server.serve_stream(reader, writer, &peer, &shutdown).await;
            }
        };
        accept_until(&listener, &shutdown, &connections, serve).await;
        if let Ok(address) = listener.local_addr()
            && let Some(path) = address.as_pathname()
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::debug!(%error, path = %path.display(), "NBD socket was not removed");
        }
        drop(listener);
        connections.close();
        connections.wait().await;
    }

    /// Serves one client over any stream, given as its two halves; `peer` names it in the log. It may open whatever the
    /// server has. Returns when the connection has ended, after its commands under way.
    pub async fn serve_stream<R, W>(&self, reader: R, writer: W, peer: &str, shutdown: &CancellationToken)
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let Ok(slot) = Arc::clone(&self.connections).try_acquire_owned() else {
            let limit = self.common.limits.connections_max;
            tracing::warn!(peer, limit, "NBD client turned away: too many connections");
            return;
        };
        let client = Client {
            peer,
            source: Arc::clone(&self.source),
            revoked: &CancellationToken::new(),
            slot: Arc::new(slot),
        };
        self.serve_client(reader, writer, client, Opening::Greeting, shutdown).await;
    }

    /// The same for `client`, from `opening` on.
    pub(crate) async fn serve_client<R, W>(
        &self,
        reader: R,
        writer: W,
        client: Client<'_>,
        opening: Opening,
        shutdown: &CancellationToken,
    ) where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let connection = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let span = tracing::info_span!("nbd", connection, peer = client.peer);
        let conversation = self.converse(reader, writer, connection, client, opening, shutdown);
        match conversation.instrument(span.clone()).await {
            Ok(ending) => span.in_scope(|| tracing::debug!(%ending, "NBD connection ended")),
            Err(error) => span.in_scope(|| tracing::warn!(%error, "NBD connection closed")),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.common.limits
    }

    pub(crate) fn host_places(&self) -> &Arc<HostPlaces> {
        &self.host_places
    }

    async fn converse<R, W>(
        &self,
        reader: R,
        mut writer: W,
        connection: u64,
        client: Client<'_>,
        opening: Opening,
        shutdown: &CancellationToken,
    ) -> Result<Ending, ConnectionError>
    where
        R: AsyncRead + Unpin + Send,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let mut reader = BufReader::with_capacity(SOCKET_BUFFER_BYTES, reader);
        let handshake_max = self.common.limits.handshake_max;
        let calls = &self.common.calls;
        let negotiation = Negotiation::new(&mut reader, &mut writer, &client, calls);
        let agreed = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(Ending::Shutdown),
            () = client.revoked.cancelled() => return Ok(Ending::Revoked),
            agreed = tokio::time::timeout(handshake_max, negotiation.run(opening)) => agreed,
        };
        let Some(agreed) = agreed.map_err(|_| ConnectionError::HandshakeTime(handshake_max))?? else {
            return Ok(Ending::HungUp);
        };
        let (export, read_only) = (agreed.name.clone(), agreed.parameters.read_only);
        tracing::info!(export, read_only, "NBD client connected");
        let who = format!("client {connection} ({}) of {export}", client.peer);
        let has_own_share = matches!(opening, Opening::UnderTls { .. });
        let room = Room::new(&self.common.limits, &self.common.room, connection, who, has_own_share);
        let common = Arc::clone(&self.common);
        let ended =
            Connection::run(&mut reader, writer, agreed, room, common, shutdown, client.revoked).await;
        if let Ok(ending) = &ended {
            tracing::info!(export, %ending, "NBD client gone");
        }
        ended
    }
}
