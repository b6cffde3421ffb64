//! The data streams of a session: dialled by the side that dialled the session, asked for by the other.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;
use tracing::Instrument;

use super::Session;
use crate::control::{self, Body, FailedDial, printable};
use crate::error::SessionError;
use crate::hello::Role;
use crate::limits::{HANDSHAKE_TIMEOUT, REFUSAL_TEXT_MAX};
use crate::link::DataStream;
use crate::stream::{BoundStream, read_header};
use crate::throttle::Bucket;
use crate::tls::Secured;
use crate::transport::SocketLimits;

/// Waits for the data stream it has asked for.
pub(super) type Asker = oneshot::Sender<Result<Secured, SessionError>>;

impl Session {
    /// Ties a connection to this session and its limits; what is received is also under `throttle`. `None` when the session is gone.
    pub(super) fn bind(
        &self,
        io: Secured,
        place: OwnedSemaphorePermit,
        throttle: Option<Arc<Bucket>>,
    ) -> Option<DataStream> {
        let session = self.me.upgrade()?;
        let limits = self.around.throttles.limits(self.terms.peer, throttle);
        io.get_ref().0.limit(SocketLimits::Waits(limits));
        let (wire, figures) = (io.get_ref().0.wire(), io.get_ref().0.figures());
        Some(DataStream { io: Box::new(BoundStream::new(io, session, place)), wire, figures })
    }

    /// Dials a data stream of this session.
    pub(super) async fn dial_stream(
        &self,
        asked_for: bool,
        ticket: [u8; 16],
        header: &[u8],
    ) -> Result<Secured, SessionError> {
        let Some(path) = &self.terms.dialled else {
            return Err(SessionError::Protocol(
                "asks this side to dial a session that it did not dial".to_owned(),
            ));
        };
        let role = Role::Data { asked_for };
        let socket = self.around.reach.borrow().socket(path);
        let dialler = &self.around.dialler;
        let dial = dialler.dial_path(path, &socket, self.terms.peer, role, self.terms.id, ticket, header);
        let (io, _) = tokio::select! {
            () = self.lost.cancelled() => return Err(self.loss()),
            dialled = dial => dialled?,
        };
        self.adopt(&io, None);
        Ok(io)
    }

    /// The peer asks for a data stream.
    pub(super) fn dial_back(self: &Arc<Self>, ticket: &Bytes) -> Result<(), SessionError> {
        let ticket = ticket_of(ticket)
            .filter(|_| self.terms.dialled.is_some() && !self.has_bundles())
            .ok_or_else(|| SessionError::Protocol("a malformed request for a data stream".to_owned()))?;
        let session = Arc::clone(self);
        let Ok(place) = Arc::clone(&self.streams_served).try_acquire_owned() else {
            self.refuse_dial_back(ticket, "too many data streams are open");
            return Ok(());
        };
        self.around.tasks.spawn(async move {
            match session.dial_stream(true, ticket, &[]).await {
                Ok(io) => session.serve_stream(io, place).await,
                Err(e) => session.refuse_dial_back(ticket, &e.to_string()),
            }
        });
        Ok(())
    }

    pub(super) fn refuse_dial_back(&self, ticket: [u8; 16], reason: &str) {
        tracing::warn!(peer = %self.terms.peer_name, "could not open the data stream that the peer asked for: {reason}");
        let failed = FailedDial {
            ticket: Bytes::copy_from_slice(&ticket),
            reason: printable(reason, REFUSAL_TEXT_MAX),
        };
        // If it does not get through, the peer's own time limit ends its wait.
        let _ = self.urgent.try_send(control::encode(Body::DialBackFailed(failed)));
    }

    /// Whether an incoming data stream has a place here. Its holder then calls one of the two functions below.
    pub(crate) fn admit_stream(&self, asked_for: bool, ticket: &[u8; 16]) -> Option<Admitted> {
        if self.is_closed() || self.terms.dialled.is_some() || self.has_bundles() {
            return None;
        }
        if asked_for {
            return self.tickets.lock().remove(ticket).map(Admitted::AskedFor);
        }
        Arc::clone(&self.streams_served).try_acquire_owned().ok().map(Admitted::ToServe)
    }

    /// Carries on with an admitted stream after it was welcomed.
    pub(crate) async fn accept_stream(self: &Arc<Self>, io: Secured, admitted: Admitted) {
        self.adopt(&io, None);
        match admitted {
            // Whoever asked may have given up; then the stream is closed.
            Admitted::AskedFor(waiting) => drop(waiting.send(Ok(io))),
            Admitted::ToServe(place) => self.serve_stream(io, place).await,
        }
    }

    async fn serve_stream(self: &Arc<Self>, mut io: Secured, place: OwnedSemaphorePermit) {
        let header = tokio::select! {
            () = self.lost.cancelled() => return,
            header = timeout(HANDSHAKE_TIMEOUT, read_header(&mut io)) => header,
        };
        let header = match header {
            Ok(Ok(header)) => header,
            Ok(Err(e)) => {
                tracing::warn!(peer = %self.terms.peer_name, "a data stream ended before its header: {e}");
                return;
            }
            Err(_) => {
                tracing::warn!(peer = %self.terms.peer_name, "a data stream sent no header in time");
                return;
            }
        };
        if let Some(stream) = self.bind(io, place, None) {
            self.around.service.stream(&self.link(), header, stream).instrument(self.in_log()).await;
        }
    }
}

/// A data stream that may come in.
pub(crate) enum Admitted {
    /// This side asked for it.
    AskedFor(Asker),
    /// The service gets it.
    ToServe(OwnedSemaphorePermit),
}

pub(super) fn ticket_of(bytes: &Bytes) -> Option<[u8; 16]> {
    bytes.as_ref().try_into().ok()
}

impl Session {
    /// Asks the side that dialled for a data stream and waits for it.
    pub(super) async fn ask_for_stream(&self) -> Result<Secured, SessionError> {
        let ticket = self.around.random.uuid_bytes();
        let (arrived, arrival) = oneshot::channel();
        self.tickets.lock().insert(ticket, arrived);
        let _withdraw = Withdraw { session: self, ticket };
        let frame = control::encode(Body::DialBack(Bytes::copy_from_slice(&ticket)));
        self.urgent.send(frame).await.map_err(|_| self.loss())?;
        arrival.await.map_err(|_| self.loss())?
    }
}

/// Takes a ticket back when its asker stops waiting, by whatever way.
struct Withdraw<'a> {
    session: &'a Session,
    ticket: [u8; 16],
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        self.session.tickets.lock().remove(&self.ticket);
    }
}
