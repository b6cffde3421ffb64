//! Whoever dials in: TLS, hello, and what becomes of it.
//!
//! Until its key is found among the pinned ones a connection is unauthenticated (`unauthenticated.rs`): the number and the time of
//! such connections are bounded. The other side learns which versions are spoken here and that it is not known; nothing else. Whoever
//! comes with an invitation to a port where nobody is paired is told so.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use farside_link::{Connection, Counted, Listener, PathSpec, split_address};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, sleep, timeout};

use super::inner::Inner;
use super::newcomers::NotTaken;
use super::unauthenticated::{Slot, origin_of};
use crate::hello::{HELLO_BYTES, Hello, HelloError, Role, Verdict, parse_hello, versions_differ};
use crate::id::PeerId;
use crate::limits::{HANDSHAKE_TIMEOUT, LANE_BEFORE_SESSION_MAX, SESSION_LANES_MAX};
use crate::session::{SessionInfo, accept_lane};
use crate::tls::{self, Secured};

/// Pause after a failed accept: most often descriptors are short, and trying harder does not help.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Accepts connections until the node stops.
pub(super) async fn accept_connections(node: Arc<Inner>, mut listener: Box<dyn Listener>) {
    tracing::info!(address = listener.address(), id = %node.identity.id(), "listening for peers");
    loop {
        let accepted = tokio::select! {
            () = node.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
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
        let Some(slot) = node.unauthenticated.admit(&origin_of(&from)) else {
            node.unauthenticated.log(&from, None, "all slots for unauthenticated connections are in use");
            continue;
        };
        let node = Arc::clone(&node);
        node.tasks.clone().spawn(async move {
            let (stop, displaced) = (node.stop.clone(), slot.displaced());
            tokio::select! {
                () = stop.cancelled() => {}
                () = displaced.cancelled() => {
                    node.unauthenticated.log(&from, None, "closed before authentication to make room for another \
                         address");
                }
                () = greet(Arc::clone(&node), connection, slot) => {}
            }
        });
    }
}

/// TLS and the hello's bytes.
async fn read_hello(
    node: &Inner,
    connection: Connection,
) -> io::Result<(Secured, PeerId, [u8; HELLO_BYTES])> {
    let (mut io, key) = tls::secure_accepted(&node.acceptor, Counted::new(connection)).await?;
    let mut bytes = [0; HELLO_BYTES];
    io.read_exact(&mut bytes).await?;
    Ok((io, key, bytes))
}

async fn greet(node: Arc<Inner>, connection: Connection, slot: Slot) {
    let from = connection.remote.clone();
    let path = path_of(&connection);
    let (io, key, bytes) = match timeout(HANDSHAKE_TIMEOUT, read_hello(&node, connection)).await {
        Ok(Ok(read)) => read,
        Ok(Err(e)) => return node.unauthenticated.log(&from, None, &format!("no TLS and hello: {e}")),
        Err(_) => {
            let why = format!("no TLS and hello within {} s", HANDSHAKE_TIMEOUT.as_secs());
            return node.unauthenticated.log(&from, None, &why);
        }
    };
    let hello = match parse_hello(&bytes, &node.dialler.versions) {
        Ok(hello) => hello,
        Err(HelloError::OtherVersions(low, high)) => {
            let why = versions_differ(&node.dialler.versions, (low, high));
            node.unauthenticated.log(&from, Some(key), &why.to_string());
            return node.refuse(io, Verdict::Version).await;
        }
        Err(e) => return node.unauthenticated.log(&from, Some(key), &e.to_string()),
    };
    let is_other_service = hello.service != node.dialler.service;
    if hello.role == Role::Pairing {
        // No secret: whoever was told the wrong port with an invitation has to know.
        if is_other_service {
            return node.refuse_other_service(io, key, &hello, &from).await;
        }
        return node.receive_pairing_request(io, key, &hello, &from).await;
    }
    let Some(peer_name) = node.name_of(key) else {
        let why = format!("its key is not pinned here; it calls itself {}", hello.site_name);
        node.unauthenticated.log(&from, Some(key), &why);
        return node.refuse(io, Verdict::UnknownKey).await;
    };
    if is_other_service {
        return node.refuse_other_service(io, key, &hello, &from).await;
    }
    slot.becomes_known();
    match hello.role {
        Role::Lane => node.receive_lane(io, key, &peer_name, &hello, path).await,
        Role::Control | Role::Pairing => node.receive_session(io, key, peer_name, &hello, path).await,
    }
}

/// The pair of addresses of a connection that came in. Of the other side only the host: it dials from any port.
fn path_of(connection: &Connection) -> PathSpec {
    let host = |address: &str| split_address(address).map_or(address, |(host, _)| host).to_owned();
    PathSpec { local: host(&connection.local).parse().ok(), remote: host(&connection.remote) }
}

impl Inner {
    async fn refuse_other_service(&self, io: Secured, key: PeerId, hello: &Hello, from: &str) {
        self.unauthenticated.log(from, Some(key), hello.service.wrong_port());
        self.refuse(io, Verdict::OtherService).await;
    }

    async fn receive_session(
        self: &Arc<Self>,
        mut io: Secured,
        peer: PeerId,
        peer_name: String,
        hello: &Hello,
        first: PathSpec,
    ) {
        let mut info = SessionInfo {
            peer,
            peer_name,
            id: hello.session,
            instance: hello.instance,
            version: 0,
            dialled: None,
            first,
        };
        let replaces = match self.judge(&info).await {
            Ok(replaces) => replaces,
            Err(NotTaken::AlreadyConnected) => return self.refuse(io, Verdict::AlreadyConnected).await,
            Err(NotTaken::KeyInUse { followed_from }) => {
                return self.refuse_saying(io, Verdict::KeyInUse, &followed_from).await;
            }
        };
        match self.welcome(&mut io, hello).await {
            Ok(version) => info.version = version,
            Err(e) => {
                tracing::info!(peer = %info.peer_name, "the peer dialled and left: {e}");
                return;
            }
        }
        let peer_name = info.peer_name.clone();
        if let Err(e) = self.install(info, io, replaces) {
            tracing::debug!(peer = %peer_name, "did not take a session: {e}");
        }
    }

    async fn receive_lane(
        self: &Arc<Self>,
        mut io: Secured,
        peer: PeerId,
        peer_name: &str,
        hello: &Hello,
        path: PathSpec,
    ) {
        let find = || self.live(peer).filter(|s| s.info.id == hello.session && s.takes_lanes());
        let mut session = find();
        // The dialler has the welcome a moment before the session is installed here.
        let until = Instant::now() + LANE_BEFORE_SESSION_MAX;
        while session.is_none() && Instant::now() < until {
            sleep(LANE_BEFORE_SESSION_MAX / 20).await;
            session = find();
        }
        let Some(session) = session else {
            tracing::info!(peer = peer_name, "refused a lane of a session that is not there");
            return self.refuse(io, Verdict::NoSuchSession).await;
        };
        let Some(slot) = session.lane_slot() else {
            tracing::warn!(peer = peer_name, "refused a lane: the session has {SESSION_LANES_MAX} already");
            return self.refuse(io, Verdict::Busy).await;
        };
        match self.welcome(&mut io, hello).await {
            Ok(_) => accept_lane(&session, io, &path, slot).await,
            Err(e) => tracing::info!(peer = peer_name, "a lane ended in its hello: {e}"),
        }
    }
}
