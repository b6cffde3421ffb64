//! Where peers come in: streams that carry requests become connections of a listener, with the manners of any other.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use axum::body::Bytes;
use axum::serve::Listener;
use farside_peer::{DataStream, PeerId, PeerLink, PeerService, Refusal};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::STREAM_HEADER;
use super::shares::{Place, Shares};
use crate::daemons::announce::{self, Told};
use crate::listen::{FromSomewhere, Origin};

/// Streams that wait to be accepted. One more is closed, and its peer tries again.
const WAITING_MAX: usize = 16;

/// What this site does for its peers: requests to the API go to the door, everything else to the mirrors.
pub(crate) struct SiteService {
    mirrors: Arc<dyn PeerService>,
    shares: Shares,
    arrivals: mpsc::Sender<Arrival>,
    told: mpsc::Sender<Told>,
    /// The start has looked for the clusters: what it knows of no volume before that says nothing.
    ready: CancellationToken,
}

/// How long a peer's question may wait for that.
const READY_WITHIN: Duration = Duration::from_secs(3);

impl SiteService {
    async fn ready(&self) {
        let _ = tokio::time::timeout(READY_WITHIN, self.ready.cancelled()).await;
    }
}

/// The listener of the door.
pub(crate) struct PeerDoor {
    arrivals: mpsc::Receiver<Arrival>,
    told: Option<mpsc::Receiver<Told>>,
}

impl PeerDoor {
    /// What peers tell of their daemons. There once.
    pub(crate) fn told(&mut self) -> Option<mpsc::Receiver<Told>> {
        self.told.take()
    }
}

/// A stream of a peer.
pub(crate) struct Arrival {
    peer: PeerId,
    stream: DataStream,
    _place: Place,
}

/// The service of a site with these mirrors, and the door where its API is to be served.
pub(crate) fn peer_door(mirrors: Arc<dyn PeerService>, ready: CancellationToken) -> (SiteService, PeerDoor) {
    let (sender, arrivals) = mpsc::channel(WAITING_MAX);
    let (tell, told) = mpsc::channel(WAITING_MAX);
    let service = SiteService { mirrors, shares: Shares::default(), arrivals: sender, told: tell, ready };
    (service, PeerDoor { arrivals, told: Some(told) })
}

#[async_trait]
impl PeerService for SiteService {
    async fn call(&self, link: &Arc<dyn PeerLink>, request: Bytes) -> Result<Bytes, Refusal> {
        if let Some(addresses) = announce::parse(&request) {
            // Who tells more than is listened to tells it again with its next session.
            let _ = self.told.try_send((link.peer(), addresses));
            return Ok(Bytes::new());
        }
        self.ready().await;
        self.mirrors.call(link, request).await
    }

    async fn stream(&self, link: &Arc<dyn PeerLink>, header: Bytes, stream: DataStream) {
        if header != STREAM_HEADER {
            self.ready().await;
            return self.mirrors.stream(link, header, stream).await;
        }
        // Dropped, it is closed: whoever floods the door finds it shut.
        let peer = link.peer();
        if let Some(place) = self.shares.take(peer) {
            let _ = self.arrivals.try_send(Arrival { peer, stream, _place: place });
        }
    }
}

impl Listener for PeerDoor {
    type Io = Arrival;
    type Addr = PeerId;

    async fn accept(&mut self) -> (Arrival, PeerId) {
        match self.arrivals.recv().await {
            Some(arrival) => {
                let peer = arrival.peer;
                (arrival, peer)
            }
            // Nobody comes any more.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<PeerId> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl FromSomewhere for Arrival {
    fn origin(&self) -> Origin {
        Origin::Peer(self.peer)
    }
}

impl AsyncRead for Arrival {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Arrival {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_of_the_mirrors_begins_as_a_request_does() {
        // A field's number and how it is written: of the six ways there are, 6 and 7 are none.
        assert!(STREAM_HEADER[0] & 7 > 5);
    }
}
