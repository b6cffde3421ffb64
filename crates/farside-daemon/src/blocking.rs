//! Calls that block (the store, offline files), kept off the async runtime and bounded in number.

use std::sync::Arc;

use farside_api::{ErrorBody, ErrorCode};
use tokio::sync::Semaphore;

use crate::failure::Failure;

/// Blocking calls of the API at the same time. Each may read metadata from the same disks, so more would only queue
/// there; host I/O has threads of its own and is not counted here.
const CALLS_MAX: usize = 8;

/// Where blocking calls run.
#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    permits: Arc<Semaphore>,
}

impl Default for Blocking {
    fn default() -> Self {
        Blocking { permits: Arc::new(Semaphore::new(CALLS_MAX)) }
    }
}

impl Blocking {
    /// Runs `work` on a blocking thread, after waiting for a place. Once begun it runs to its end, whether or not
    /// the caller still waits.
    pub(crate) async fn run<T, E>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, ErrorBody>
    where
        T: Send + 'static,
        E: Failure + Send + 'static,
    {
        let lost = |what: String| ErrorBody::new(ErrorCode::Failed, what).hint("the daemon's log says more");
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| lost(String::from("the daemon is stopping")))?;
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        });
        match task.await {
            Ok(result) => result.map_err(Failure::into_error_body),
            Err(error) => {
                tracing::error!(
                    "internal error (bug) while working on a pool: {error}. Flushed data is safe. If the pool \
                     refuses changes, farside pool reopen opens it again; please report this with farside support-bundle"
                );
                Err(lost(String::from(
                    "internal error (bug): the request ended unexpectedly and may be half done",
                )))
            }
        }
    }
}
