//! Work that keeps a core busy.

use std::io;
use std::sync::Arc;

use crate::store::PeerStore;

/// Does what keeps a core busy where it holds up no other flow.
pub(super) async fn on_a_core<T: Send + 'static>(
    store: &PeerStore,
    bytes: usize,
    here: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if bytes < here {
        return Ok(work());
    }
    let core = Arc::clone(&store.cores).acquire_owned().await.map_err(io::Error::other)?;
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(core);
        done
    });
    done.await.map_err(io::Error::other)
}
