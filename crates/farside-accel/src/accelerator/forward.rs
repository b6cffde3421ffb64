//! Explicit forwards: a port of this box whose connections end at a destination at the peer's side. They need no privilege, and
//! nothing of what is transparent: the server sees the peer's box. A connection is accepted before the server has accepted
//! it; if the server does not, it is reset.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::state::{Accelerator, OpenForward, PATIENCE_OF_FORWARDS, Taken};
use crate::carry;
use crate::control::Forward;
use crate::policy::{Action, Ends};
use crate::protocol::{Open, OpenTarget};
use crate::trunk::{Outcome, Trunk};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 4096;

impl Accelerator {
    /// These are the forwards now. Those that stay are not touched; connections of those that go stay, and nobody listens at their
    /// ports any more when this returns.
    ///
    /// # Errors
    /// Sentences about ports that cannot be listened at; all others are open.
    pub async fn set_forwards(self: &Arc<Self>, wanted: Vec<Forward>) -> Result<(), String> {
        let gone: Vec<_> =
            self.forwards.lock().extract_if(|_, open| !wanted.contains(&open.forward)).collect();
        for (_, open) in gone {
            open.stop.cancel();
            // The listener goes with it.
            let _ = open.accepting.await;
        }
        let mut errors = Vec::new();
        for forward in wanted {
            if self.forwards.lock().contains_key(&forward.listen) {
                continue;
            }
            match listen(forward.listen).await {
                Ok(listener) => {
                    let stop = self.stop.child_token();
                    let accept = accept(Arc::downgrade(self), listener, forward.clone());
                    let accepting = self.tasks.spawn(stop.clone().run_until_cancelled_owned(accept));
                    self.forwards.lock().insert(forward.listen, OpenForward { forward, stop, accepting });
                }
                Err(error) => errors.push(format!("cannot listen at {}: {error}", forward.listen)),
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

/// A port that was just closed by this very process may take a moment.
async fn listen(at: SocketAddr) -> io::Result<TcpListener> {
    let mut tries = 0;
    loop {
        match listen_once(at) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < 10 => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            result => return result,
        }
    }
}

fn listen_once(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    // With the usual 128 a burst of clients gets SYN cookies, and some of them a reset.
    socket.listen(BACKLOG)
}

async fn accept(accelerator: Weak<Accelerator>, listener: TcpListener, forward: Forward) {
    loop {
        let accepted = listener.accept().await;
        let Some(accelerator) = accelerator.upgrade() else { return };
        match accepted {
            Ok((socket, client)) => {
                let forward = forward.clone();
                let tasks = accelerator.tasks.clone();
                tasks.spawn(async move { serve(&accelerator, socket, client, &forward).await });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

async fn serve(accelerator: &Accelerator, socket: TcpStream, client: SocketAddr, forward: &Forward) {
    let trunk = accelerator.trunk_named(&forward.peer);
    let ends = Ends { client, server: forward.listen };
    let policies = accelerator.policies();
    let (application, configured) = policies.of(&ends);
    // It was asked for by name: no policy lets it pass.
    let configured = if configured.is_optimized() { configured } else { Action::Transport };
    let why = match trunk {
        None => format!("the box of {} cannot be reached", forward.peer),
        Some(trunk) => {
            let _ = SockRef::from(&socket).set_tcp_nodelay(true);
            let open = Open {
                target: OpenTarget::Named(forward.destination.clone()),
                dscp: None,
                action: configured,
                application: application.to_owned(),
                window: 0,
            };
            match trunk.open_flow(open, PATIENCE_OF_FORWARDS).await {
                Outcome::Opened(flow, opened) => {
                    let application = application.to_owned();
                    let taken = Taken { trunk, flow, opened, application, configured, kept: None };
                    return accelerator.carry(taken, ends, socket).await;
                }
                Outcome::Refused(refused) => refused.text,
                Outcome::Silence => format!("the box of {} does not answer", forward.peer),
                Outcome::Unusable => format!("the box of {} was lost", forward.peer),
            }
        }
    };
    tracing::info!(%client, listen = %forward.listen, destination = forward.destination, why, "a connection is reset");
    carry::reset(socket);
}

impl Accelerator {
    pub(super) fn trunk_named(&self, name: &str) -> Option<Arc<Trunk>> {
        self.peers.lock().values().find(|known| known.name == name)?.trunk.clone()
    }
}
