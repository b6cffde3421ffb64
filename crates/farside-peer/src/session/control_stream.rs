//! The control stream: frames read and written, pings, and the silence that ends a session.
//!
//! Whoever reads it never waits for a service, so that pings are answered while services are slow. A session is lost when
//! nothing at all has arrived for [`SILENCE_MAX`], unless it is idle and may be quiet for longer.

use std::sync::Arc;

use bytes::Bytes;
use farside_link::limits::CLOSE_TIMEOUT;
use farside_link::{BundleStream, printable};
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::calls::{deliver, serve_call};
use super::clocks::measure;
use super::entry::{CONTROL, bundle_id};
use super::packets::on_told;
use super::questions::answered;
use super::state::Session;
use super::streams::{more_lanes, open_for_peer};
use crate::control::{self, Beside, Body, RefusedCall, RefusedStream, bounded};
use crate::error::{Refusal, SessionError};
use crate::limits::{PING_EVERY, REFUSAL_TEXT_MAX, SILENCE_MAX, STREAMS_SERVED_MAX, SUSPECT_SILENCE_MAX};

pub(super) async fn read_frames(session: Arc<Session>, mut reader: ReadHalf<BundleStream>) {
    let reason = loop {
        let frame = tokio::select! {
            () = session.lost.cancelled() => return,
            frame = control::read(&mut reader) => frame,
        };
        if let Ok(Some(_)) = frame {
            session.note_heard();
        }
        match frame {
            Ok(Some((Body::Close(reason), ..))) => {
                break format!("the peer closed it: {}", printable(&reason, REFUSAL_TEXT_MAX));
            }
            Ok(Some((body, beside, wire))) => {
                let clock = beside.clock;
                take_beside(&session, beside);
                if let Err(e) = take(&session, body, clock, wire) {
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

/// Takes what a frame says beside its body.
fn take_beside(session: &Session, beside: Beside) {
    if beside.keepalive > 0 {
        session.note_keepalive(Duration::from_millis(beside.keepalive.into()));
    }
    // No more streams are open than that.
    for hold in beside.holds.into_iter().take(STREAMS_SERVED_MAX) {
        // The stream may have ended meanwhile.
        if let Some(entry) = bundle_id(&hold.bundle).and_then(|id| session.lanes.bundle(&id)) {
            entry.bundle.hold(hold.rate, hold.until);
        }
    }
    for packets in beside.packets.into_iter().take(STREAMS_SERVED_MAX) {
        on_told(session, &packets);
    }
}

/// Takes one frame without ever waiting. `clock`: the peer's, as the frame says it.
fn take(session: &Arc<Session>, body: Body, clock: u64, wire: u64) -> Result<(), SessionError> {
    match body {
        Body::Call(call) => serve_call(session, call),
        Body::Answer(answer) => deliver(session, answer.id, Ok(answer.body), wire)?,
        Body::Refused(RefusedCall { id, code, message }) => {
            let refusal = bounded(&Refusal { code, message });
            deliver(session, id, Err(SessionError::Refused(refusal)), wire)?;
        }
        // A full queue means that plenty is under way to the peer: no pong is needed to show life.
        Body::Ping(nonce) => {
            let clock = session.context.clock.now().0 / 1_000_000;
            let pong = control::encode_with(Body::Pong(nonce), Beside { clock, ..Beside::default() });
            drop(session.urgent.try_send(pong));
        }
        Body::Pong(nonce) => {
            answered(session, nonce);
            let sent = session.pings.lock().take_if(|(expected, _)| *expected == nonce);
            if let Some((_, at)) = sent {
                let now = session.context.clock.now();
                session.measured.send_replace(Some(measure(at.elapsed(), clock, now)));
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

/// Asks for signs of life, and closes the session when nothing has come for too long.
///
/// A session that is busy, or that has the shortest pause, is asked every [`PING_EVERY`] and given up after [`SILENCE_MAX`].
/// One that is idle may have a longer pause. What it is asked then makes it busy until the answer is there, so a peer that is
/// gone is noticed a pause and [`SILENCE_MAX`] later at most. The side that was dialled answers, and asks by itself only when
/// nothing has come for longer than the pause: one question and its answer show both that the other is there.
pub(super) async fn watch_for_silence(session: Arc<Session>) {
    let mut last_received = (session.wire.received(), Instant::now());
    let mut limit = SILENCE_MAX;
    // While it was idle nobody owed anything.
    let mut idle_until = Instant::now();
    // `None`: at once.
    let mut asked: Option<Instant> = None;
    let mut told = PING_EVERY;
    loop {
        let every = session.keepalive();
        let now = Instant::now();
        let received = session.wire.received();
        if received != last_received.0 {
            last_received = (received, now);
            limit = SILENCE_MAX;
        }
        let is_slow = every > PING_EVERY && limit == SILENCE_MAX && !session.is_busy();
        if is_slow {
            idle_until = now;
        }
        let silent_since = last_received.1.max(idle_until);
        *session.silent_since.lock() = (!is_slow).then_some(silent_since);
        if now - silent_since >= limit {
            session.close(&format!("nothing was heard of the peer for {} s", limit.as_secs()));
            return;
        }
        let is_due = match asked {
            Some(at) if is_slow && session.info.dialled.is_some() => now >= at + every,
            Some(at) if is_slow => now >= at.max(last_received.1) + every + every / 4,
            _ => true,
        };
        if is_due {
            asked = Some(now);
            ping(&session, is_slow, &mut told);
        }
        tokio::select! {
            () = session.lost.cancelled() => return,
            // It becomes busy without a word.
            () = sleep(PING_EVERY) => {}
            // The other side learns at once what this one wants.
            () = session.keepalive_changed.notified() => asked = None,
            () = session.suspected.notified() => {
                limit = SUSPECT_SILENCE_MAX;
                last_received = (session.wire.received(), Instant::now());
                *session.pings.lock() = None;
            }
        }
    }
}

/// Sends a ping, answered or not was the one before: a pong may be stuck behind a large answer, and the pings themselves are what
/// the peer hears of us. Only one at a time is measured.
fn ping(session: &Session, is_slow: bool, told: &mut Duration) {
    let nonce = session.context.random.next_u64();
    let measured = session.pings.lock().get_or_insert((nonce, Instant::now())).0 == nonce;
    let ours = session.our_keepalive();
    let is_news = ours != PING_EVERY || *told != ours;
    let keepalive = if is_news { u32::try_from(ours.as_millis()).unwrap_or(u32::MAX) } else { 0 };
    let beside = Beside { keepalive, ..Beside::default() };
    let queued = session.urgent.try_send(control::encode_with(Body::Ping(nonce), beside));
    if queued.is_ok() {
        *told = ours;
    } else if measured {
        *session.pings.lock() = None;
    }
    // That ping takes the first path; those that stand by are to be known to work, too.
    if let Some(control) = session.lanes.bundle(&CONTROL) {
        if is_slow {
            control.bundle.ask_standby_lanes();
        } else {
            control.bundle.ask_lanes();
        }
    }
}
