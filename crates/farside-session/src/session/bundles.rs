//! Data streams as bundles, since version 2 of the session: opened by either side, carried by lanes that the side which
//! dialled the session makes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use super::Session;
use super::lanes::{CONTROL, Carried, Given};
use super::streams::ticket_of;
use crate::bundle::{Bundle, BundleStream};
use crate::control::{self, Body, MoreLanes, OpenBundle, Opening};
use crate::error::SessionError;
use crate::link::{DataStream, HEADER_BYTES_MAX};
use crate::terms::{Priority, StreamTerms};
use crate::transport::{LinkFigures, SocketFigures, SocketTerms};

/// See [`Opening::format`].
const OPENING_FORMAT: u32 = 1;

/// A data stream and its place among those of the session.
struct PlacedStream {
    io: BundleStream,
    _place: OwnedSemaphorePermit,
}

impl AsyncRead for PlacedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for PlacedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// All lanes of a bundle as one connection.
struct Together(Arc<Bundle>);

impl SocketFigures for Together {
    fn figures(&self) -> Option<LinkFigures> {
        LinkFigures::together(self.0.figures().lanes.into_iter().filter_map(|lane| lane.socket))
    }

    fn apply(&self, _: &SocketTerms) {}

    fn pace(&self, _: Option<u64>) {}
}

/// Ends a bundle whose opener stops waiting, by whatever way.
struct Abandon<'a>(Option<&'a Carried>);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        if let Some(carried) = self.0.take() {
            carried.refuse("its opener has given up waiting for a lane");
        }
    }
}

impl Session {
    /// Opens a data stream and waits for its first lane.
    pub(super) async fn open_bundle(
        self: &Arc<Self>,
        header: Bytes,
        terms: &StreamTerms,
        place: OwnedSemaphorePermit,
    ) -> Result<DataStream, SessionError> {
        let id = self.around.random.uuid_bytes();
        let low_priority = terms.priority == Priority::Low;
        let mut opening =
            Opening { format: OPENING_FORMAT, header, low_priority, bulk: terms.bulk, window: 0 };
        let (carried, stream) = self.carry(id, terms, Some(&mut opening));
        let mut abandon = Abandon(Some(&carried));
        let mut given = carried.given.subscribe();
        if self.terms.dialled.is_none() {
            let open = OpenBundle { bundle: Bytes::copy_from_slice(&id), opening };
            self.urgent.send(control::encode(Body::OpenBundle(open))).await.map_err(|_| self.loss())?;
        }
        let first = given.wait_for(|given| *given != Given::Nothing).await.map_err(|_| self.loss())?.clone();
        // One that had a lane and is over by now was answered: what has arrived is there to be read, and then why it ended.
        if let Given::Refused(reason) = first
            && (self.is_closed() || !carried.bundle.has_had_lanes())
        {
            return Err(if self.is_closed() { self.loss() } else { SessionError::Lost(reason) });
        }
        abandon.0 = None;
        Ok(self.data_stream(&carried, stream, place))
    }

    fn data_stream(&self, carried: &Carried, io: BundleStream, place: OwnedSemaphorePermit) -> DataStream {
        DataStream {
            io: Box::new(PlacedStream { io, _place: place }),
            wire: carried.bundle.wire(),
            figures: Arc::new(Together(Arc::clone(&carried.bundle))),
        }
    }

    /// The peer opens a bundle: a service task gets it.
    ///
    /// # Errors
    /// Why it cannot be taken, for the peer.
    pub(super) fn opened_by_peer(
        self: &Arc<Self>,
        id: [u8; 16],
        opening: Opening,
    ) -> Result<Arc<Carried>, String> {
        if opening.format != OPENING_FORMAT || opening.header.len() > HEADER_BYTES_MAX || id == CONTROL {
            return Err("its opening is malformed".to_owned());
        }
        if self.is_closed() {
            return Err("the session has ended".to_owned());
        }
        let place = Arc::clone(&self.streams_served)
            .try_acquire_owned()
            .map_err(|_| "too many data streams are open".to_owned())?;
        let priority = if opening.low_priority { Priority::Low } else { Priority::Normal };
        let terms = StreamTerms { priority, bulk: opening.bulk, ..StreamTerms::default() };
        let (carried, stream) = self.carry(id, &terms, None);
        carried.bundle.may_send(opening.window);
        let stream = self.data_stream(&carried, stream, place);
        let session = Arc::clone(self);
        self.around.tasks.spawn(async move {
            session.around.service.stream(&session.link(), opening.header, stream).await;
        });
        Ok(carried)
    }

    /// The side that was dialled opens a bundle.
    pub(super) fn open_for_peer(self: &Arc<Self>, open: OpenBundle) -> Result<(), SessionError> {
        let id = ticket_of(&open.bundle)
            .filter(|_| self.terms.dialled.is_some() && self.has_bundles())
            .ok_or_else(|| SessionError::Protocol("a malformed request for a data stream".to_owned()))?;
        if self.lanes.bundle(&id).is_some() {
            return Err(SessionError::Protocol("opens a data stream that is open".to_owned()));
        }
        if let Err(reason) = self.opened_by_peer(id, open.opening) {
            self.refuse_dial_back(id, &reason);
        }
        Ok(())
    }

    /// The other side could use more lanes.
    pub(super) fn more_lanes(&self, more: &MoreLanes) -> Result<(), SessionError> {
        let id = ticket_of(&more.bundle)
            .filter(|_| self.terms.dialled.is_some())
            .ok_or_else(|| SessionError::Protocol("a malformed request for lanes".to_owned()))?;
        // The stream may have ended meanwhile.
        if let Some(carried) = self.lanes.bundle(&id) {
            carried.ask(more.lanes);
        }
        Ok(())
    }
}
