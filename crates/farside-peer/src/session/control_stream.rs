//! The control stream: frames read and written, pings, and the silence that ends a session.
//!
//! Whoever reads it never waits for a service, so that pings are answered while services are slow. A session is lost when
//! nothing at all has arrived for [`SILENCE_MAX`].

use std::sync::Arc;

use bytes::Bytes;
use farside_link::limits::CLOSE_TIMEOUT;
use farside_link::{BundleStream, printable};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, timeout};

use super::calls::{deliver, serve_call};
use super::entry::CONTROL;
use super::state::Session;
use super::streams::{bundle_id, more_lanes, open_for_peer};
use crate::control::{self, Body, RefusedCall, RefusedStream, bounded};
use crate::error::{Refusal, SessionError};
use crate::limits::{PING_EVERY, REFUSAL_TEXT_MAX, SILENCE_MAX, SUSPECT_SILENCE_MAX};

pub(super) async fn read_frames(session: Arc<Session>, mut reader: ReadHalf<BundleStream>) {
    let reason = loop {
        let frame = tokio::select! {
            () = session.lost.cancelled() => return,
            frame = control::read(&mut reader) => frame,
        };
        match frame {
            Ok(Some((Body::Close(reason), _))) => {
                break format!("the peer closed it: {}", printable(&reason, REFUSAL_TEXT_MAX));
            }
            Ok(Some((body, wire))) => {
                if let Err(e) = take(&session, body, wire) {
                    break e.to_string();
                }
            }
            Ok(None) => break "the peer closed the connection".to_owned(),
            Err(SessionError::Lost(reason)) => break reason,
            Err(e) => break e.to_string(),
        }
    };
    session.close(&reason);
}

/// Takes one frame without ever waiting.
fn take(session: &Arc<Session>, body: Body, wire: u64) -> Result<(), SessionError> {
    match body {
        Body::Call(call) => serve_call(session, call),
        Body::Answer(answer) => deliver(session, answer.id, Ok(answer.body), wire)?,
        Body::Refused(RefusedCall { id, code, message }) => {
            let refusal = bounded(&Refusal { code, message });
            deliver(session, id, Err(SessionError::Refused(refusal)), wire)?;
        }
        // A full queue means that plenty is under way to the peer: no pong is needed to show life.
        Body::Ping(nonce) => drop(session.urgent.try_send(control::encode(Body::Pong(nonce)))),
        Body::Pong(nonce) => {
            let sent = session.pings.lock().take_if(|(expected, _)| *expected == nonce);
            if let Some((_, at)) = sent {
                session.rtt.send_replace(Some(at.elapsed().as_secs_f64()));
            }
        }
        Body::StreamRefused(RefusedStream { bundle, reason }) => {
            if let Some(entry) = bundle_id(&bundle).and_then(|id| session.lanes.bundle(&id)) {
                entry
                    .refuse(&format!("the peer could not open it: {}", printable(&reason, REFUSAL_TEXT_MAX)));
            }
        }
        Body::OpenBundle(open) => open_for_peer(session, open)?,
        Body::MoreLanes(more) => more_lanes(session, &more)?,
        Body::Close(_) => {}
    }
    Ok(())
}

pub(super) async fn write_frames(
    session: Arc<Session>,
    mut writer: WriteHalf<BundleStream>,
    mut urgent: mpsc::Receiver<Bytes>,
    mut calls: mpsc::Receiver<Bytes>,
) {
    let broken = loop {
        let frame = tokio::select! {
            biased;
            () = session.lost.cancelled() => break None,
            Some(frame) = urgent.recv() => frame,
            Some(frame) = calls.recv() => frame,
        };
        // Each frame is flushed on its own: its records are what `wire_cost` counts.
        let written = tokio::select! {
            () = session.lost.cancelled() => break None,
            written = async { writer.write_all(&frame).await?; writer.flush().await } => written,
        };
        if let Err(e) = written {
            break Some(e);
        }
    };
    match broken {
        Some(e) => session.close(&e.to_string()),
        None => {
            // A frame may be cut off half: then the peer sees a broken frame instead of the reason.
            let close = control::encode(Body::Close(session.reason()));
            let part = async {
                writer.write_all(&close).await?;
                writer.shutdown().await
            };
            let _ = timeout(CLOSE_TIMEOUT, part).await;
        }
    }
}

/// Pings, and closes the session when nothing has come for too long.
pub(super) async fn watch_for_silence(session: Arc<Session>) {
    let mut ticks = tokio::time::interval(PING_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_received = (session.wire.received(), Instant::now());
    let mut limit = SILENCE_MAX;
    loop {
        tokio::select! {
            () = session.lost.cancelled() => return,
            _ = ticks.tick() => {}
            () = session.suspected.notified() => {
                limit = SUSPECT_SILENCE_MAX;
                last_received = (session.wire.received(), Instant::now());
                *session.pings.lock() = None;
            }
        }
        let received = session.wire.received();
        if received != last_received.0 {
            last_received = (received, Instant::now());
            limit = SILENCE_MAX;
        }
        if last_received.1.elapsed() >= limit {
            session.close(&format!("nothing was heard of the peer for {} s", limit.as_secs()));
            return;
        }
        // Every tick sends one, answered or not: a pong may be stuck behind a large answer, and the pings
        // themselves are what the peer hears of us. Only one at a time is measured.
        let nonce = session.context.random.next_u64();
        let measured = session.pings.lock().get_or_insert((nonce, Instant::now())).0 == nonce;
        let queued = session.urgent.try_send(control::encode(Body::Ping(nonce)));
        if queued.is_err() && measured {
            *session.pings.lock() = None;
        }
        // That ping takes the first path; those that stand by are to be known to work, too.
        if let Some(control) = session.lanes.bundle(&CONTROL) {
            control.bundle.ask_lanes();
        }
    }
}
