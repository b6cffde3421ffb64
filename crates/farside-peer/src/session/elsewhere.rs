//! A peer that several daemons are: while nothing is heard of the one that the session is with, the others are tried. One that proves the
//! peer's key where the peer has said that its daemons are has its work: a daemon meets peers only while it leads its site. Then the
//! session is given up at once, and the next one is with that daemon.
//!
//! A session over a bad link does not end by this: it is silent for longer than any retry of a kernel takes on a link that carries
//! anything, or has no connection left, and another daemon has answered over the same link meanwhile. Nothing is said to that
//! daemon but TLS, so none makes a session of the question.

use std::sync::Arc;

use farside_link::{PathSpec, SocketOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::state::Session;
use crate::limits::{ELSEWHERE_AFTER, ELSEWHERE_AFTER_LANELESS, ELSEWHERE_EVERY, PING_EVERY};

/// Looks elsewhere, for as long as the session lives, whenever there is a reason.
pub(super) async fn watch_elsewhere(session: Arc<Session>) {
    let mut heard = (session.wire.received(), Instant::now());
    let mut laneless_since: Option<Instant> = None;
    loop {
        tokio::select! {
            () = session.lost.cancelled() => return,
            () = sleep(ELSEWHERE_EVERY) => {}
        }
        let now = Instant::now();
        let received = session.wire.received();
        // One that is idle owes nobody a word until it is asked.
        let is_quiet = session.keepalive() > PING_EVERY && !session.is_busy();
        if received != heard.0 || is_quiet {
            heard = (received, now);
        }
        laneless_since = session.trouble().map(|_| laneless_since.unwrap_or(now));
        let is_laneless = laneless_since.is_some_and(|since| now - since >= ELSEWHERE_AFTER_LANELESS);
        if !is_laneless && now - heard.1 < ELSEWHERE_AFTER {
            continue;
        }
        let elsewhere = session.context.reach.borrow().elsewhere();
        if elsewhere.is_empty() {
            continue;
        }
        let mut tries = JoinSet::new();
        for path in elsewhere {
            tries.spawn(until_it_answers(Arc::clone(&session), path));
        }
        tokio::select! {
            () = session.lost.cancelled() => return,
            () = heard_again(&session, received) => {}
            Some(Ok(path)) = tries.join_next() => {
                let reason = format!("another daemon of the peer's site answers at {path}, and this one does not");
                // The first that answers, whoever else gives the session up just now.
                let _ = session.answers_elsewhere.set(path);
                session.close(&reason);
                return;
            }
        }
    }
}

/// Ends when the peer proves its key there.
async fn until_it_answers(session: Arc<Session>, path: PathSpec) -> PathSpec {
    let socket = SocketOptions::default();
    while !session.context.dialler.is_there(&path, &socket, session.info.peer).await {
        sleep(ELSEWHERE_EVERY).await;
    }
    path
}

async fn heard_again(session: &Session, received: u64) {
    while session.wire.received() == received {
        sleep(ELSEWHERE_EVERY).await;
    }
}
