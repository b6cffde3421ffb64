//! A session made of a connection that is past its hello, its tasks, and what the rooms above see of it.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use farside_link::{Paths, StreamOptions, WireCounters};
use tokio::sync::mpsc;

use super::bundles::carry;
use super::context::{SessionContext, SessionInfo};
use super::control_stream::{read_frames, watch_for_silence, write_frames};
use super::elsewhere::watch_elsewhere;
use super::entry::CONTROL;
use super::lane_table::Lanes;
use super::lanes::{expire_idle_lanes, follow_reach, give, lane, pace_lanes};
use super::packets::watch_packets;
use super::state::Session;
use super::streams::{await_attach_on_returned, expect_bulk, open_stream};
use crate::error::SessionError;
use crate::id::PeerId;
use crate::limits::{CONTROL_QUEUE, CONTROL_URGENT_QUEUE, SESSION_LANES_MAX};
use crate::service::{DataStream, PeerLink};
use crate::tls::Secured;

impl Session {
    /// Makes a session of a connection that is past its hello, and sets it to work.
    pub(crate) fn start(info: SessionInfo, context: SessionContext, control: Secured) -> Arc<Session> {
        control.get_ref().0.limit(context.throttles.limits(info.peer, None));
        let (returned, returned_lanes) = mpsc::channel(SESSION_LANES_MAX);
        let lanes = Lanes::new(Paths::new(&context.reach.borrow(), &info.first), returned);
        let (calls, calls_out) = mpsc::channel(CONTROL_QUEUE);
        let (urgent, urgent_out) = mpsc::channel(CONTROL_URGENT_QUEUE);
        let tasks = context.tasks.clone();
        let session = Arc::new_cyclic(|me: &Weak<Session>| {
            Session::new(info, context, lanes, calls, urgent, me.clone(), me.clone())
        });
        let (entry, stream) = carry(&session, CONTROL, &StreamOptions::default(), None);
        let first = lane(&session, control, &session.info.first, None);
        give(&entry, first);
        let (reader, writer) = tokio::io::split(stream);
        tasks.spawn(expire_idle_lanes(Arc::clone(&session)));
        tasks.spawn(pace_lanes(Arc::clone(&session)));
        tasks.spawn(follow_reach(Arc::clone(&session)));
        tasks.spawn(read_frames(Arc::clone(&session), reader));
        tasks.spawn(write_frames(Arc::clone(&session), writer, urgent_out, calls_out));
        tasks.spawn(watch_for_silence(Arc::clone(&session)));
        tasks.spawn(watch_packets(Arc::clone(&session)));
        if session.info.dialled.is_none() {
            tasks.spawn(await_attach_on_returned(Arc::clone(&session), returned_lanes));
        } else {
            tasks.spawn(watch_elsewhere(Arc::clone(&session)));
        }
        session
    }
}

#[async_trait]
impl PeerLink for Session {
    fn peer(&self) -> PeerId {
        self.info.peer
    }

    async fn call(&self, request: Bytes, wire: Option<&WireCounters>) -> Result<Bytes, SessionError> {
        super::calls::call(self, request, wire).await
    }

    async fn open_stream(&self, header: Bytes, options: StreamOptions) -> Result<DataStream, SessionError> {
        let session = self.me.upgrade().ok_or_else(|| self.loss())?;
        open_stream(&session, header, &options).await
    }

    fn expect_bulk(&self) {
        if let Some(session) = self.me.upgrade() {
            expect_bulk(&session);
        }
    }

    async fn closed(&self) {
        self.lost.cancelled().await;
    }

    fn rtt_seconds(&self) -> Option<f64> {
        self.measured.borrow().map(|measured| measured.rtt_seconds)
    }

    fn wire(&self) -> Arc<WireCounters> {
        Arc::clone(&self.wire)
    }
}
