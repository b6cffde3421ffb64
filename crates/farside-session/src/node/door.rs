//! Whoever dials in: TLS, hello, and what becomes of it.
//!
//! Until a key is known to be pinned, a connection counts among the strangers (`strangers.rs`), whose number and time are bounded. A
//! stranger learns the versions spoken here and that it is not known; nothing else.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::Inner;
use super::strangers::{Place, origin_of};
use crate::hello::{
    Answer, HELLO_BYTES, Hello, HelloError, Role, Verdict, common_version, parse_hello, versions_differ,
};
use crate::limits::{FAREWELL_TIMEOUT, HANDSHAKE_TIMEOUT, SESSION_LANES_MAX};
use crate::link::PeerId;
use crate::session::Terms;
use crate::terms::PathTerms;
use crate::tls::{self, Secured};
use crate::transport::{Connection, Counted, Listener, split_address};

/// Pause after a failed accept: most often descriptors are short, and trying harder does not help.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Accepts connections until the node stops.
pub(super) async fn keep_open(node: Arc<Inner>, mut door: Box<dyn Listener>) {
    tracing::info!(address = door.address(), id = %node.identity.id(), "listening for peers");
    loop {
        let accepted = tokio::select! {
            () = node.stop.cancelled() => return,
            accepted = door.accept() => accepted,
        };
        let connection = match accepted {
            Ok(accepted) => accepted,
            Err(e) => {
                tracing::warn!("cannot accept a connection: {e}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let from = connection.remote.clone();
        let Some(place) = node.strangers.admit(&origin_of(&from)) else {
            node.strangers.log(&from, None, "too many connections have not yet shown who they are");
            continue;
        };
        let node = Arc::clone(&node);
        node.tasks.clone().spawn(async move {
            let (stop, displaced) = (node.stop.clone(), place.displaced());
            tokio::select! {
                () = stop.cancelled() => {}
                () = displaced.cancelled() => {
                    node.strangers.log(&from, None, "it showed nothing, and others wait for its place");
                }
                () = greet(Arc::clone(&node), connection, place) => {}
            }
        });
    }
}

/// TLS and the hello's bytes.
async fn hear(node: &Inner, connection: Connection) -> io::Result<(Secured, PeerId, [u8; HELLO_BYTES])> {
    let (mut io, key) = tls::secure_accepted(&node.acceptor, Counted::new(connection)).await?;
    let mut bytes = [0; HELLO_BYTES];
    io.read_exact(&mut bytes).await?;
    Ok((io, key, bytes))
}

async fn greet(node: Arc<Inner>, connection: Connection, place: Place) {
    let from = connection.remote.clone();
    let path = path_of(&connection);
    let (io, key, bytes) = match timeout(HANDSHAKE_TIMEOUT, hear(&node, connection)).await {
        Ok(Ok(heard)) => heard,
        Ok(Err(e)) => return node.strangers.log(&from, None, &format!("no TLS and hello: {e}")),
        Err(_) => {
            let why = format!("no TLS and hello within {} s", HANDSHAKE_TIMEOUT.as_secs());
            return node.strangers.log(&from, None, &why);
        }
    };
    let hello = match parse_hello(&bytes, &node.dialler.versions) {
        Ok(hello) => hello,
        Err(HelloError::OtherVersions(low, high)) => {
            let why = versions_differ(&node.dialler.versions, (low, high));
            node.strangers.log(&from, Some(key), &why.to_string());
            return node.turn_away(io, Verdict::Version).await;
        }
        Err(e) => return node.strangers.log(&from, Some(key), &e.to_string()),
    };
    if hello.role == Role::Pairing {
        return node.receive_guest(io, key, &hello, &from).await;
    }
    let Some(peer_name) = node.name_of(key) else {
        let why = format!("its key is not pinned here; it calls itself {}", hello.site_name);
        node.strangers.log(&from, Some(key), &why);
        return node.turn_away(io, Verdict::UnknownKey).await;
    };
    place.becomes_known();
    match hello.role {
        Role::Data { asked_for } => node.receive_stream(io, key, &peer_name, &hello, asked_for).await,
        Role::Lane => node.receive_lane(io, key, &peer_name, &hello, path).await,
        Role::Control | Role::Pairing => node.receive_session(io, key, peer_name, &hello, path).await,
    }
}

/// The pair of addresses of a connection that came in. Of the other side only the host: it dials from any port.
fn path_of(connection: &Connection) -> PathTerms {
    let host = |address: &str| split_address(address).map_or(address, |(host, _)| host).to_owned();
    PathTerms { local: host(&connection.local).parse().ok(), remote: host(&connection.remote) }
}

impl Inner {
    /// Refuses after the hello.
    pub(super) async fn turn_away(&self, mut io: Secured, verdict: Verdict) {
        let versions = &self.dialler.versions;
        let answer = Answer {
            versions: (*versions.start(), *versions.end()),
            verdict,
            version: 0,
            instance: self.dialler.instance,
            site_name: String::new(),
        };
        let part = async {
            io.write_all(&answer.encode()).await?;
            io.shutdown().await?;
            // Closing with unread bytes resets the connection, which may overtake the answer: wait for the other side to close.
            tokio::io::copy(&mut (&mut io).take(HELLO_BYTES as u64), &mut tokio::io::sink()).await
        };
        // Whether it heard is its own matter.
        let _ = timeout(FAREWELL_TIMEOUT, part).await;
    }

    /// Says welcome; the version both speak.
    pub(super) async fn welcome(&self, io: &mut Secured, hello: &Hello) -> io::Result<u16> {
        let versions = &self.dialler.versions;
        let version = common_version(versions, hello.versions)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no common version"))?;
        let answer = Answer {
            versions: (*versions.start(), *versions.end()),
            verdict: Verdict::Welcome,
            version,
            instance: self.dialler.instance,
            site_name: self.dialler.site_name.clone(),
        };
        let part = async {
            io.write_all(&answer.encode()).await?;
            io.flush().await
        };
        timeout(HANDSHAKE_TIMEOUT, part).await??;
        Ok(version)
    }

    async fn receive_session(
        self: &Arc<Self>,
        mut io: Secured,
        peer: PeerId,
        peer_name: String,
        hello: &Hello,
        first: PathTerms,
    ) {
        let mut terms = Terms {
            peer,
            peer_name,
            id: hello.session,
            instance: hello.instance,
            version: 0,
            dialled: None,
            first,
        };
        if !self.would_take(&terms) {
            return self.turn_away(io, Verdict::AlreadyConnected).await;
        }
        match self.welcome(&mut io, hello).await {
            Ok(version) => terms.version = version,
            Err(e) => {
                tracing::info!(peer = %terms.peer_name, "the peer dialled and left: {e}");
                return;
            }
        }
        let peer_name = terms.peer_name.clone();
        if let Err(e) = self.install(terms, io) {
            tracing::debug!(peer = %peer_name, "did not take a session: {e}");
        }
    }

    async fn receive_stream(
        self: &Arc<Self>,
        mut io: Secured,
        peer: PeerId,
        peer_name: &str,
        hello: &Hello,
        asked_for: bool,
    ) {
        let session = self.live(peer).filter(|s| s.terms.id == hello.session);
        let Some(session) = session else {
            tracing::info!(peer = peer_name, "refused a data stream of a session that is not there");
            return self.turn_away(io, Verdict::NoSuchSession).await;
        };
        let Some(admitted) = session.admit_stream(asked_for, &hello.ticket) else {
            tracing::warn!(peer = peer_name, "refused a data stream: too many, or nobody waits for it");
            let verdict = if asked_for { Verdict::NoSuchSession } else { Verdict::Busy };
            return self.turn_away(io, verdict).await;
        };
        match self.welcome(&mut io, hello).await {
            Ok(_) => session.accept_stream(io, admitted).await,
            Err(e) => tracing::info!(peer = peer_name, "a data stream ended in its hello: {e}"),
        }
    }

    async fn receive_lane(
        self: &Arc<Self>,
        mut io: Secured,
        peer: PeerId,
        peer_name: &str,
        hello: &Hello,
        path: PathTerms,
    ) {
        let session = self.live(peer).filter(|s| s.terms.id == hello.session && s.takes_lanes());
        let Some(session) = session else {
            tracing::info!(peer = peer_name, "refused a lane of a session that is not there");
            return self.turn_away(io, Verdict::NoSuchSession).await;
        };
        let Some(place) = session.lane_place() else {
            tracing::warn!(peer = peer_name, "refused a lane: the session has {SESSION_LANES_MAX} already");
            return self.turn_away(io, Verdict::Busy).await;
        };
        match self.welcome(&mut io, hello).await {
            Ok(_) => session.accept_lane(io, &path, place).await,
            Err(e) => tracing::info!(peer = peer_name, "a lane ended in its hello: {e}"),
        }
    }
}
