//! Dials a peer whenever it has no session, for as long as it is pinned.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use farside_link::limits::REDIAL_MIN;
use farside_link::{Backoff, PathSpec, Reach, SocketOptions};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::inner::Inner;
use super::status::PeerState;
use crate::error::SessionError;
use crate::hello::Role;
use crate::limits::{DIAL_NEXT_PATH_AFTER, SESSION_PROVEN_AFTER};
use crate::registry::PeerRecord;
use crate::session::{PacketLimits, Session, SessionInfo};

/// A peer that was pinned so lately has just been paired.
const JUST_PAIRED_SECONDS: f64 = 1.0;
/// How long the inviting site leaves it to the other one to dial first.
const FIRST_DIAL_AFTER: Duration = Duration::from_millis(300);
/// How long the hello may take where there is somewhere else to dial: eight round trips by satellite.
const GREETED_WITHIN: Duration = Duration::from_secs(5);

/// Where a peer is dialled, in order.
pub(super) fn dialled_at(reach: &Reach) -> Vec<PathSpec> {
    let mut all = reach.paths();
    all.extend(reach.elsewhere());
    all
}

impl Inner {
    /// Starts the task; cancelling the token stops it.
    pub(super) fn keep_dialled(
        self: &Arc<Self>,
        record: &PeerRecord,
        reach: (watch::Receiver<Reach>, Arc<PacketLimits>),
        state: watch::Receiver<PeerState>,
        wanted: Arc<Notify>,
    ) -> CancellationToken {
        let token = self.stop.child_token();
        if !self.isolated && !dialled_at(&reach.0.borrow()).is_empty() {
            let (node, record) = (Arc::clone(self), record.clone());
            let stop = token.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = node.dial_for_ever(&record, &reach, state, &wanted) => {}
                }
            });
        }
        token
    }

    async fn dial_for_ever(
        self: &Arc<Self>,
        record: &PeerRecord,
        reach: &(watch::Receiver<Reach>, Arc<PacketLimits>),
        mut state: watch::Receiver<PeerState>,
        wanted: &Notify,
    ) {
        let mut backoff = Backoff::new();
        let mut told = None;
        // Where another daemon of the peer's site was found: it goes before the others once.
        let mut found = None;
        // Of the two sites of a pairing the one that joined dials. This one would come before it is known there, and both logs would
        // say that the other is a stranger.
        if self.clock.now().seconds_since(record.added_at).abs() < JUST_PAIRED_SECONDS {
            tokio::select! {
                () = sleep(FIRST_DIAL_AFTER) => {}
                () = wanted.notified() => {}
                _ = state.wait_for(|s| s.connected) => {}
            }
        }
        // Ends with the peer's entry, which holds the sender.
        while state.wait_for(|s| !s.connected).await.is_ok() {
            match self.dial(record, reach, found.take()).await {
                Ok(session) => {
                    let since = Instant::now();
                    session.lost_token().cancelled().await;
                    if since.elapsed() >= SESSION_PROVEN_AFTER {
                        backoff = Backoff::new();
                        told = None;
                    }
                    found = session.answers_elsewhere();
                    if found.is_some() {
                        continue;
                    }
                }
                // The peer's own session is there or about to be.
                Err(SessionError::AlreadyConnected) => {}
                Err(e) => {
                    if matches!(e, SessionError::KeyInUse(_)) {
                        self.count_key_in_use(record.id);
                    }
                    let error = e.to_string();
                    self.note_error(record.id, &error);
                    if told.as_ref() != Some(&error) {
                        tracing::warn!(peer = %record.name, id = ?record.id, "cannot connect to the peer; trying \
                             again until it works. Mirrors with this peer wait, replicas are unchanged: {error}");
                        told = Some(error);
                    }
                }
            }
            let pause = backoff.next_delay(&*self.random);
            let failed = Instant::now();
            tokio::select! {
                () = sleep(pause) => {}
                // However many ask, and however often: the peer is not flooded.
                () = wanted.notified() => sleep_until(failed + pause.min(REDIAL_MIN)).await,
            }
        }
    }

    /// Makes a session over the first path that brings one. Each is dialled [`DIAL_NEXT_PATH_AFTER`] after the one before, or as
    /// soon as that has failed: a path that swallows everything holds up the others no longer than that. `first` goes before all.
    async fn dial(
        self: &Arc<Self>,
        record: &PeerRecord,
        (reach, packets): &(watch::Receiver<Reach>, Arc<PacketLimits>),
        first: Option<PathSpec>,
    ) -> Result<Arc<Session>, SessionError> {
        let reach = reach.borrow().clone();
        let mut failed = SessionError::Unreachable {
            address: "the peer".to_owned(),
            reason: "this site knows no address of it".to_owned(),
        };
        let mut untried = VecDeque::from(dialled_at(&reach));
        if let Some(first) = first {
            // One that hangs still takes connections, and would be waited for.
            untried.retain(|path| *path != first);
            untried.push_front(first);
        }
        let mut connecting = JoinSet::new();
        let mut next_at = Instant::now();
        loop {
            if connecting.is_empty() || Instant::now() >= next_at {
                if let Some(path) = untried.pop_front() {
                    let socket = SocketOptions { mss: packets.mss(&path), ..reach.socket(&path) };
                    let dialler = self.dialler.clone();
                    connecting.spawn(async move { (dialler.connect(&path, &socket).await, path) });
                    next_at = Instant::now() + DIAL_NEXT_PATH_AFTER;
                } else if connecting.is_empty() {
                    return Err(failed);
                }
            }
            let ended = tokio::select! {
                ended = connecting.join_next() => ended,
                () = sleep_until(next_at), if !untried.is_empty() => continue,
            };
            let Some(Ok((connected, path))) = ended else { continue };
            next_at = Instant::now();
            let id = self.random.uuid_bytes();
            // Only one at a time says hello: the other side makes a session of each that does.
            let greeted = match connected {
                Ok(connection) => {
                    let greet = self.dialler.greet(connection, &path, record.id, Role::Control, id, &[]);
                    // One that hangs answers nothing, and another daemon of its site may have its work.
                    match untried.is_empty() && connecting.is_empty() {
                        true => greet.await,
                        false => timeout(GREETED_WITHIN, greet).await.unwrap_or_else(|_| {
                            Err(SessionError::Unreachable {
                                address: path.remote.clone(),
                                reason: format!("no hello within {} s", GREETED_WITHIN.as_secs()),
                            })
                        }),
                    }
                }
                Err(e) => Err(e),
            };
            let (control, welcome) = match greeted {
                Ok(greeted) => greeted,
                // Another path may do.
                Err(e @ SessionError::Unreachable { .. }) => {
                    failed = e;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let info = SessionInfo {
                peer: record.id,
                peer_name: record.name.clone(),
                id,
                instance: welcome.instance,
                version: welcome.version,
                dialled: Some(path.clone()),
                first: path,
            };
            // It may be another site than the one that has dialled meanwhile, or that was followed until now.
            let replaces = self.judge(&info).await.map_err(|e| e.into_error(&info.first.remote))?;
            return self.install(info, control, replaces);
        }
    }
}
