//! What the rooms above see of a session: a [`PeerLink`] to call through, and the [`PeerService`] they offer.
//!
//! Roles do not depend on who dialled: both ends of a link can call and can open data streams.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use farside_link::{ByteStream, SocketStats, StreamOptions, WireCounters};

use crate::error::{Refusal, SessionError};
use crate::id::PeerId;

/// A data stream of a session: ordered, authenticated, encrypted. Closing one side's writer is seen by the other
/// as end of file; a lost link is an error, never an end of file.
pub struct DataStream {
    /// The bytes.
    pub io: Box<dyn ByteStream>,
    /// What this stream alone has cost on the wire.
    pub wire: Arc<WireCounters>,
    /// How the connections that carry it go, taken together.
    pub stats: Arc<dyn SocketStats>,
}

/// One live session with an authenticated peer.
#[async_trait]
pub trait PeerLink: Send + Sync {
    /// Who is at the other end: proved by TLS.
    fn peer(&self) -> PeerId;
    /// Sends a request (at most [`CALL_BYTES_MAX`](crate::CALL_BYTES_MAX)) over the control stream and waits for its answer. Many may be
    /// under way at once. `wire`, if given, is charged with what request and answer cost on the wire: their bytes,
    /// their framing, and 22 bytes for each TLS record of up to 16 KiB. There is no time limit but the life of the
    /// link: a service that is slow is waited for.
    async fn call(&self, request: Bytes, wire: Option<&WireCounters>) -> Result<Bytes, SessionError>;
    /// Opens a data stream; `header` (at most [`HEADER_BYTES_MAX`](crate::HEADER_BYTES_MAX)) tells the other side's [`PeerService::stream`]
    /// what it is for. Works whichever side dialled the session.
    async fn open_stream(&self, header: Bytes, options: StreamOptions) -> Result<DataStream, SessionError>;
    /// A stream with much to come ([`StreamOptions::bulk`]) is about to be opened by either side. A hint: where the peer is far its
    /// connections are made meanwhile.
    fn expect_bulk(&self);
    /// Resolves once the session is lost or closed.
    async fn closed(&self);
    /// Round-trip time as last measured on the control stream, seconds.
    fn rtt_seconds(&self) -> Option<f64>;
    /// Everything the session's sockets have carried.
    fn wire(&self) -> Arc<WireCounters>;
}

/// What this site does for its peers. Rights are re-checked by the service at every call and stream.
#[async_trait]
pub trait PeerService: Send + Sync + 'static {
    /// Answers a call.
    async fn call(&self, link: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal>;
    /// Serves a data stream until it ends.
    async fn stream(&self, link: &Arc<dyn PeerLink>, header: Bytes, stream: DataStream);
}
