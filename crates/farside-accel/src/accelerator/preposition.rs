//! What is put into a peer's chunk store ahead of time, so that the first connection that needs it finds it there.
//!
//! It is a flow like any other, with nobody at its far end: the same chunks, the same references to what the far side has
//! already, the same asking for what is missing. It gives way to connections ([`Trunk::gives_way`](crate::trunk::Trunk)).
//!
//! This process opens no file. What it sends comes in over a socket that whoever started it has handed to it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::state::{Accelerator, PATIENCE_OF_FORWARDS};
use super::under_way::{UnderWay, came_to};
use crate::carry::{self, End};
use crate::connections::Record;
use crate::control::PrepositionEnd;
use crate::policy::{Action, Ends};
use crate::protocol::{Open, OpenTarget, Refused};
use crate::trunk::{Connected, Outcome};

/// What such flows are called where applications are.
pub(crate) const APPLICATION: &str = "preposition";

/// A socket of this machine as those that carry a connection see it. What is asked of it (read, write, shut down one side)
/// any stream socket does; what is special to TCP fails there without harm.
fn as_connection(socket: OwnedFd) -> io::Result<TcpStream> {
    let socket = std::net::TcpStream::from(socket);
    socket.set_nonblocking(true)?;
    TcpStream::from_std(socket)
}

/// Ends where there are none.
fn no_ends() -> Ends {
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    Ends { client: nowhere, server: nowhere }
}

impl Accelerator {
    /// Sends what comes over `feed` to the store of the peer's box, to its end. Returns once all of it is there.
    pub async fn preposition(&self, id: u64, peer: &str, feed: OwnedFd) -> PrepositionEnd {
        use PrepositionEnd::{PeerLost, Refused};
        if self.store.is_none() {
            return Refused("there is no chunk store here".to_owned());
        }
        let socket = match as_connection(feed) {
            Ok(socket) => socket,
            Err(error) => return Refused(format!("what is sent cannot be read: {error}")),
        };
        let Some(trunk) = self.trunk_named(peer) else {
            return PeerLost(format!("the accelerator of {peer} cannot be reached"));
        };
        let open = Open {
            target: OpenTarget::Keep,
            dscp: None,
            action: Action::Full,
            application: APPLICATION.to_owned(),
            window: 0,
        };
        let (flow, opened) = match trunk.open_flow(open, PATIENCE_OF_FORWARDS).await {
            Outcome::Opened(flow, opened) => (flow, opened),
            Outcome::Refused(refused) => {
                return Refused(format!("the accelerator of {peer} refuses: {}", refused.text));
            }
            Outcome::Silence => return PeerLost(format!("the accelerator of {peer} does not answer")),
            Outcome::Unusable => return PeerLost(format!("the accelerator of {peer} was lost")),
        };
        trunk.gives_way(flow.id);
        let listed = self.connections.list(Record {
            ends: no_ends(),
            peer: trunk.peer_name.clone(),
            is_near: true,
            application: APPLICATION.to_owned(),
            configured: Action::Full,
            peer_policy: opened.policy,
            opened: Instant::now(),
            original_bytes: 0.into(),
            wire_bytes: 0.into(),
            sent: Default::default(),
            content: Default::default(),
            demotion: trunk.demotion(),
            is_preposition: true,
            reset: CancellationToken::new(),
        });
        let record = Arc::clone(listed.record());
        let _under_way = UnderWay::new(&self.prepositions, id, Arc::clone(&record));
        match carry::run(Arc::clone(&trunk), flow, socket, Arc::clone(&record)).await {
            End::Closed => PrepositionEnd::Sent(came_to(&record)),
            End::ResetThere => PeerLost(format!("the accelerator of {peer} was lost")),
            End::ResetHere | End::ResetAfterAll => {
                Refused("what was to be sent could not be read to its end".to_owned())
            }
        }
    }

    /// Takes what a peer puts into the store here. Who is paired may fill its share of the store by any connection as well.
    pub(super) fn keep(&self) -> Result<Connected, Refused> {
        use crate::protocol::Refusal::{NotAllowed, Overload};
        let refused = |refusal, text: String| Refused { refusal, text };
        if self.store.is_none() {
            return Err(refused(NotAllowed, "it has no chunk store".to_owned()));
        }
        let pair = || {
            let (ours, end) = StdUnixStream::pair()?;
            end.set_nonblocking(true)?;
            Ok::<_, io::Error>((as_connection(ours.into())?, UnixStream::from_std(end)?))
        };
        let (socket, end) = pair().map_err(|error| refused(Overload, error.to_string()))?;
        tokio::spawn(async move {
            if let Err(error) = throw_away(end).await {
                tracing::debug!(%error, "what a peer put into the store was cut");
            }
        });
        let policy = Action::Full;
        Ok(Connected { socket, ends: no_ends(), application: APPLICATION.to_owned(), policy, kept: None })
    }
}

/// Reads to the end and answers nothing. It is in the store by then.
async fn throw_away(mut from: UnixStream) -> io::Result<()> {
    from.shutdown().await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await.map(|_| ())
}
