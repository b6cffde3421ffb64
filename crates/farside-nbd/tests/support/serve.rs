//! A server on a Unix socket in a directory of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farside_nbd::{bind_unix, ExportSource, Limits, Server};
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
        tokio::time::timeout(PATIENCE, self.running).await.expect("the server ends").expect("without panic");
    }

    /// Waits until the server has ended by itself after a shutdown that the test caused.
    pub async fn ended(&mut self) {
        tokio::time::timeout(PATIENCE, &mut self.running).await.expect("the server ends").expect("no panic");
    }
}
