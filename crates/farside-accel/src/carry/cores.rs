//! Work that keeps a core busy, or waits for the disk of the chunk store: never on a thread that others need. A process whose disk
//! does not answer must still say that it lives, and let connections through.

use std::io;
use std::sync::Arc;

use crate::store::PeerStore;

/// Work for fewer bytes does not wait behind work for more.
const SMALL: usize = 16 << 10;
/// Blocks of fewer bytes have no chunk: neither end looks at its store for them.
const NO_CHUNK_BELOW: usize = farside_chunks::stream::CHUNK_KEPT_MIN;

/// Does the work that a block of so many bytes takes.
pub(super) async fn on_a_core<T: Send + 'static>(
    store: &PeerStore,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    if bytes < NO_CHUNK_BELOW {
        return Ok(work());
    }
    let places = if bytes < SMALL { &store.small } else { &store.cores };
    let core = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let running = store.pace.begin();
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop((core, running));
        done
    });
    done.await.map_err(io::Error::other)
}

/// The same, unless the store is slow, or is found to be so meanwhile: then the work is left to itself, and what it was given is
/// lost.
pub(super) async fn unless_slow<T: Send + 'static>(
    store: &PeerStore,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    tokio::select! {
        biased;
        done = on_a_core(store, bytes, work) => done.map(Some),
        () = store.pace.slow() => Ok(None),
    }
}
