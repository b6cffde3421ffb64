//! Connections made while two sites still agree upon a first copy: where a round trip is long, its lanes are there one sooner.
//!
//! Nothing is said over them until a lane takes one. What nobody takes is closed before the other side's patience with a
//! connection that says nothing ends.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::Session;
use crate::error::SessionError;
use crate::lanes::lanes_of_bulk;
use crate::limits::CONNECTIONS_READY_FOR;
use crate::terms::PathTerms;
use crate::transport::Connection;

type Making = JoinHandle<Result<Connection, SessionError>>;

struct Ready {
    path: PathTerms,
    since: Instant,
    making: Making,
}

/// What a session has of them.
#[derive(Default)]
pub(super) struct ReadyConnections(Mutex<Vec<Ready>>);

impl ReadyConnections {
    fn number(&self, path: &PathTerms) -> usize {
        self.0.lock().iter().filter(|ready| ready.path == *path).count()
    }

    fn take(&self, path: &PathTerms) -> Option<Making> {
        let mut all = self.0.lock();
        let at = all.iter().position(|ready| ready.path == *path)?;
        Some(all.swap_remove(at).making)
    }

    fn expire(&self, now: Instant) {
        self.0.lock().retain(|ready| {
            let is_young = now < ready.since + CONNECTIONS_READY_FOR;
            if !is_young {
                ready.making.abort();
            }
            is_young
        });
    }
}

impl Session {
    /// Much is to be sent soon: as many connections as a bulk stream begins with, where these are several.
    pub(super) fn make_ready(self: &Arc<Self>) {
        let lanes = lanes_of_bulk(self.min_rtt());
        if self.terms.dialled.is_none() || !self.has_bundles() || self.is_closed() || lanes < 2 {
            return;
        }
        let paths = self.lanes.paths.lock().for_data(self.lanes.now());
        for path in paths {
            let here = self.ready.number(&path) + self.lanes.warm.lock().number(&path);
            for _ in here..lanes {
                let (session, to) = (Arc::clone(self), path.clone());
                let making = self.around.tasks.spawn(async move {
                    let socket = session.around.reach.borrow().socket(&to);
                    session.around.dialler.connect(&to, &socket).await
                });
                self.ready.0.lock().push(Ready { path: path.clone(), since: Instant::now(), making });
            }
        }
        let session = Arc::clone(self);
        self.around.tasks.spawn(async move {
            tokio::select! {
                () = session.lost.cancelled() => {}
                () = sleep(CONNECTIONS_READY_FOR) => {}
            }
            session.ready.expire(Instant::now());
            if session.is_closed() {
                session.ready.0.lock().drain(..).for_each(|ready| ready.making.abort());
            }
        });
    }

    /// A connection on a path, one that was made before if there is any.
    ///
    /// # Errors
    /// [`SessionError::Unreachable`].
    pub(super) async fn connection(&self, path: &PathTerms) -> Result<Connection, SessionError> {
        self.ready.expire(Instant::now());
        if let Some(making) = self.ready.take(path)
            && let Ok(made) = making.await
        {
            return made;
        }
        let socket = self.around.reach.borrow().socket(path);
        self.around.dialler.connect(path, &socket).await
    }
}
