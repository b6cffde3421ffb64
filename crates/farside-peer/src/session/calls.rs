//! Calls: multiplexed over the control stream by id, at most [`CALLS_OUTSTANDING_MAX`] under way in each direction.
//!
//! A call on a lost session fails, and nothing is known about what the peer did with it. A service that has begun to
//! answer a call is not interrupted when the session is lost; only its answer has nowhere to go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use farside_link::{WireCounters, wire_cost};
use tokio::sync::oneshot;
use tracing::Instrument;

use super::state::{Session, Waiting};
use crate::control::{self, Body, Payload, RefusedCall, bounded};
use crate::error::{Refusal, SessionError};
use crate::limits::{CALL_BYTES_MAX, CALLS_OUTSTANDING_MAX};

pub(super) async fn call(
    session: &Session,
    request: Bytes,
    wire: Option<&WireCounters>,
) -> Result<Bytes, SessionError> {
    if request.len() > CALL_BYTES_MAX {
        return Err(SessionError::TooLarge { bytes: request.len(), limit: CALL_BYTES_MAX });
    }
    let slot = tokio::select! {
        () = session.lost.cancelled() => return Err(session.loss()),
        slot = Arc::clone(&session.slots).acquire_owned() => slot.map_err(|_| session.loss())?,
    };
    // The queue's slot first: from the entry in `waiting` on nothing may wait, or a caller that gives up there
    // would leave an entry for a call that was never made.
    let queue = tokio::select! {
        () = session.lost.cancelled() => return Err(session.loss()),
        queue = session.calls.reserve() => queue.map_err(|_| session.loss())?,
    };
    let id = session.next_call.fetch_add(1, Ordering::Relaxed);
    let frame = control::encode(Body::Call(Payload { id, body: request }));
    let sent = wire_cost(frame.len());
    let (answer, answered) = oneshot::channel();
    session.waiting.lock().insert(id, Waiting { answer, _slot: slot });
    if session.is_closed() {
        // `close` may have emptied the list just before this call joined it.
        session.waiting.lock().remove(&id);
        return Err(session.loss());
    }
    queue.send(frame);
    if let Some(wire) = wire {
        wire.add_sent(sent);
    }
    let (answer, received) = answered.await.map_err(|_| session.loss())?;
    if let Some(wire) = wire {
        wire.add_received(received);
    }
    answer
}

pub(super) fn deliver(
    session: &Session,
    id: u64,
    answer: Result<Bytes, SessionError>,
    wire: u64,
) -> Result<(), SessionError> {
    let waiting = session.waiting.lock().remove(&id);
    match waiting {
        // Whoever called may have given up.
        Some(waiting) => drop(waiting.answer.send((answer, wire))),
        None if session.is_closed() => {}
        None => return Err(SessionError::Protocol(format!("an answer to call {id}, which was not made"))),
    }
    Ok(())
}

pub(super) fn serve_call(session: &Arc<Session>, call: Payload) {
    let Ok(slot) = Arc::clone(&session.context.peer_calls).try_acquire_owned() else {
        let message = format!("more than {CALLS_OUTSTANDING_MAX} calls are under way; try again");
        let busy = RefusedCall { id: call.id, code: "busy".to_owned(), message };
        // The calls queue is full only if the peer does not read its answers; then silence ends the session.
        if session.calls.try_send(control::encode(Body::Refused(busy))).is_err() {
            session.close("the peer makes calls and does not read the answers");
        }
        return;
    };
    let session = Arc::clone(session);
    session.context.tasks.clone().spawn(async move {
        let answer = ask_service(&session, call.body).await;
        let frame = match answer {
            Ok(body) => Body::Answer(Payload { id: call.id, body }),
            Err(refusal) => {
                let Refusal { code, message } = bounded(&refusal);
                Body::Refused(RefusedCall { id: call.id, code, message })
            }
        };
        // Free before the answer is out: the peer may call again as soon as it has it.
        drop(slot);
        tokio::select! {
            () = session.lost.cancelled() => {}
            _ = session.calls.send(control::encode(frame)) => {}
        }
    });
}

/// Answers even if the service panics: whoever called waits without a time limit.
async fn ask_service(session: &Arc<Session>, request: Bytes) -> Result<Bytes, Refusal> {
    let failed = |message: String| Refusal { code: "failed".to_owned(), message };
    let Some(link) = session.link.upgrade() else { return Err(failed("the session has ended".to_owned())) };
    let service = Arc::clone(&session.context.service);
    let called = async move { service.call(&link, request).await };
    let answer = tokio::spawn(called.instrument(session.in_log())).await;
    match answer {
        Ok(Ok(body)) if body.len() > CALL_BYTES_MAX => {
            tracing::error!(peer = %session.info.peer_name, bytes = body.len(), "an answer to the peer is larger \
                 than the protocol allows and was not sent");
            Err(failed(format!("the answer has {} bytes; the limit is {CALL_BYTES_MAX}", body.len())))
        }
        Ok(answer) => answer,
        Err(e) => {
            tracing::error!(peer = %session.info.peer_name, "internal error (bug) while answering a call of the \
                 peer: {e}. Please report this with farside support-bundle");
            Err(failed("internal error at the answering site; its log has the reason".to_owned()))
        }
    }
}
