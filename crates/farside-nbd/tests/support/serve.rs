//! A server on a Unix socket in a directory of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farside_nbd::{ExportSource, Limits, Server, bind_unix};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::memory::{MemoryExport, MemorySource};

/// Longer than anything here takes on a busy machine; what takes longer hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct TestServer {
    pub directory: TempDir,
    pub socket: PathBuf,
    pub shutdown: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl TestServer {
    pub fn start(source: impl ExportSource, limits: Limits) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("nbd.sock");
        let listener = bind_unix(&socket, 0o660).expect("a socket");
        let server = Server::new(Arc::new(source), limits).expect("a server");
        let shutdown = CancellationToken::new();
        let running = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { server.serve_unix(listener, shutdown).await }
        });
        TestServer { directory, socket, shutdown, running }
    }

    /// Serves `export` as `pool/volume`.
    pub fn of(export: &Arc<MemoryExport>) -> Self {
        Self::start(MemorySource::default().with("pool/volume", export), Limits::default())
    }

    pub fn uri(&self, export: &str) -> String {
        format!("nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// Shuts down and waits until all connections have ended.
    pub async fn stop(self) {
        self.shutdown.cancel();
        ended(self.running).await;
    }
}

/// Serves one client on a pair of sockets; the task ends when the connection has.
pub fn serve_pair(
    server: &Server,
    shutdown: &CancellationToken,
) -> (tokio::net::UnixStream, tokio::task::JoinHandle<()>) {
    let (client, stream) = tokio::net::UnixStream::pair().expect("a pair of sockets");
    let (server, shutdown) = (server.clone(), shutdown.clone());
    let served = tokio::spawn(async move {
        let (reader, writer) = stream.into_split();
        server.serve_stream(reader, writer, "a pair of sockets", &shutdown).await;
    });
    (client, served)
}

/// A server of `export` as `pool/volume` that listens nowhere.
pub fn server_of(export: &Arc<MemoryExport>, limits: Limits) -> Server {
    Server::new(Arc::new(MemorySource::default().with("pool/volume", export)), limits).expect("a server")
}

/// Waits for the end of a task that must come.
pub async fn ended(task: tokio::task::JoinHandle<()>) {
    tokio::time::timeout(PATIENCE, task).await.expect("it ends").expect("without panic");
}
