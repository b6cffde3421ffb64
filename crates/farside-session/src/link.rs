//! What the rooms above see of a session: a [`PeerLink`] to call through, and the [`PeerService`] they offer.
//!
//! Roles do not depend on who dialled: both ends of a link can call and can open data streams.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::error::SessionError;
use crate::terms::StreamTerms;
use crate::transport::SocketFigures;

/// A peer's identity: SHA-256 of its certificate's subject public key info.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub [u8; 32]);

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for PeerId {
    /// The first eight bytes: enough for a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..8].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// Bytes on the wire (TLS records included), both ways; shared, only ever growing.
#[derive(Debug, Default)]
pub struct WireCounters {
    sent: AtomicU64,
    received: AtomicU64,
}

impl WireCounters {
    /// Bytes this side has sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
    /// Bytes this side has received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
    /// Counts sent bytes.
    pub fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Counts received bytes.
    pub fn add_received(&self, bytes: u64) {
        self.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A byte stream that can be read and written.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A data stream of a session: ordered, authenticated, encrypted. Closing one side's writer is seen by the other
/// as end of file; a lost link is an error, never an end of file.
pub struct DataStream {
    /// The bytes.
    pub io: Box<dyn ByteStream>,
    /// What this stream alone has cost on the wire.
    pub wire: Arc<WireCounters>,
    /// How the connections that carry it go, taken together.
    pub figures: Arc<dyn SocketFigures>,
}

/// One live session with an authenticated peer.
#[async_trait]
pub trait PeerLink: Send + Sync {
    /// Who is at the other end: proved by TLS.
    fn peer(&self) -> PeerId;
    /// Sends a request (at most [`CALL_BYTES_MAX`]) over the control stream and waits for its answer. Many may be
    /// under way at once. `wire`, if given, is charged with what request and answer cost on the wire: their bytes,
    /// their framing, and 22 bytes for each TLS record of up to 16 KiB. There is no time limit but the life of the
    /// link: a service that is slow is waited for.
    async fn call(&self, request: Bytes, wire: Option<&WireCounters>) -> Result<Bytes, SessionError>;
    /// Opens a data stream; `header` (at most [`HEADER_BYTES_MAX`]) tells the other side's [`PeerService::stream`]
    /// what it is for. Works whichever side dialled the session.
    async fn open_stream(&self, header: Bytes, terms: StreamTerms) -> Result<DataStream, SessionError>;
    /// A stream with much to come ([`StreamTerms::bulk`]) is about to be opened by either side. A hint: where the peer is far its
    /// connections are made meanwhile.
    fn expect_bulk(&self);
    /// Resolves once the session is lost or closed.
    async fn closed(&self);
    /// Round-trip time as last measured on the control stream, seconds.
    fn rtt_seconds(&self) -> Option<f64>;
    /// Everything the session's sockets have carried.
    fn wire(&self) -> Arc<WireCounters>;
}

/// Largest request or answer of a call, bytes.
pub const CALL_BYTES_MAX: usize = 1 << 20;
/// Largest header of a data stream, bytes.
pub const HEADER_BYTES_MAX: usize = 4096;

/// A refusal that the service sends back instead of an answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// A stable word: `forbidden`, `not-found`, `state`, `version`, `no-space`, `corrupt`, `budget`, `failed`;
    /// from the session itself: `busy` (too many calls under way; try again).
    pub code: String,
    /// A sentence for the operator.
    pub message: String,
}

/// What this site does for its peers. Rights are re-checked by the service at every call and stream.
#[async_trait]
pub trait PeerService: Send + Sync + 'static {
    /// Answers a call.
    async fn call(&self, link: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal>;
    /// Serves a data stream until it ends.
    async fn stream(&self, link: &Arc<dyn PeerLink>, header: Bytes, stream: DataStream);
}
