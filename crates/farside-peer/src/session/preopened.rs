//! Connections made while two sites still agree upon a first copy: where a round trip is long, its lanes are there one sooner.
//!
//! Nothing is said over them until a lane takes one. What nobody takes is closed before the other side's patience with a
//! connection that says nothing ends.

use farside_link::{Connection, PathSpec};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::SessionError;
use crate::limits::PREOPENED_FOR;

/// The connection, or why there is none.
pub(super) type Making = JoinHandle<Result<Connection, SessionError>>;

struct Preopened {
    path: PathSpec,
    since: Instant,
    making: Making,
}

/// What a session has of them.
#[derive(Default)]
pub(super) struct PreopenedConnections(Mutex<Vec<Preopened>>);

impl PreopenedConnections {
    pub(super) fn number(&self, path: &PathSpec) -> usize {
        self.0.lock().iter().filter(|one| one.path == *path).count()
    }

    pub(super) fn put(&self, path: PathSpec, making: Making) {
        self.0.lock().push(Preopened { path, since: Instant::now(), making });
    }

    pub(super) fn take(&self, path: &PathSpec) -> Option<Making> {
        let mut all = self.0.lock();
        let at = all.iter().position(|one| one.path == *path)?;
        Some(all.swap_remove(at).making)
    }

    pub(super) fn expire(&self, now: Instant) {
        self.0.lock().retain(|one| {
            let is_young = now < one.since + PREOPENED_FOR;
            if !is_young {
                one.making.abort();
            }
            is_young
        });
    }

    /// Closes them all.
    pub(super) fn abort(&self) {
        self.0.lock().drain(..).for_each(|one| one.making.abort());
    }
}
