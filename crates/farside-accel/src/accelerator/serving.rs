//! What this box does for the boxes of its peers.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use farside_peer::PeerId;
use ipnet::IpNet;

use super::state::Accelerator;
use crate::kernel::{Kept, transparent};
use crate::policy::Ends;
use crate::protocol::{Open, OpenTarget, Refusal, Refused};
use crate::rules::Place;
use crate::trunk::{Connected, Serving, Trunk, may_connect};

/// The accelerator as its trunks see it: there once it has started.
#[derive(Default)]
pub(super) struct Server(pub(super) OnceLock<Weak<Accelerator>>);

impl Server {
    fn accelerator(&self) -> Option<Arc<Accelerator>> {
        self.0.get()?.upgrade()
    }
}

fn refused(refusal: Refusal, text: impl Into<String>) -> Refused {
    Refused { refusal, text: text.into() }
}

#[async_trait]
impl Serving for Server {
    async fn connect(&self, peer: PeerId, open: &Open) -> Result<Connected, Refused> {
        let accelerator =
            self.accelerator().ok_or_else(|| refused(Refusal::Overload, "it is just starting"))?;
        match &open.target {
            OpenTarget::Transparent { client, server } => {
                accelerator.connect_as(peer, open, Ends { client: *client, server: *server }).await
            }
            OpenTarget::Named(name) => accelerator.connect_to(open, name).await,
            OpenTarget::Keep => accelerator.keep(),
        }
    }

    fn name_of(&self, peer: PeerId) -> String {
        let name = |accelerator: Arc<Accelerator>| Some(accelerator.peers.lock().get(&peer)?.name.clone());
        self.accelerator().and_then(name).unwrap_or_else(|| format!("{peer:?}"))
    }

    fn subnets(&self) -> Vec<IpNet> {
        self.accelerator().map(|accelerator| accelerator.surroundings.lock().lan.clone()).unwrap_or_default()
    }

    fn trunk(&self, trunk: &Arc<Trunk>, is_there: bool) {
        let Some(accelerator) = self.accelerator() else { return };
        let mut trunks = accelerator.served.trunks.lock();
        trunks.retain(|known| !Arc::ptr_eq(known, trunk));
        if is_there {
            trunks.push(Arc::clone(trunk));
        }
    }
}

impl Accelerator {
    /// Connects to a server as the client.
    async fn connect_as(&self, peer: PeerId, open: &Open, ends: Ends) -> Result<Connected, Refused> {
        if self.interception.is_none() {
            let text = "this box intercepts nothing, so it cannot connect as a client; see farside accel up --lan --wan";
            return Err(refused(Refusal::NotAllowed, text));
        }
        let around = self.surroundings.lock().clone();
        let is_probed = self.served.is_probed(peer, ends.server.ip(), self.now());
        may_connect(ends.client, ends.server, &around.lan, &around.own, is_probed)
            .map_err(|text| refused(Refusal::NotAllowed, text))?;
        let place =
            self.placement.as_ref().map_or(Ok(()), |placement| placement.must_be_at_wan(ends.client.ip()));
        place.map_err(|text| {
            tracing::warn!(client = %ends.client, server = %ends.server, why = text, "a peer's box may not connect as this client");
            refused(Refusal::NotAllowed, text)
        })?;
        let is_here = around.own.contains(&ends.server.ip().to_canonical());
        let policies = self.policies();
        let (application, policy) = if is_here { policies.of_box(&ends) } else { policies.of(&ends) };
        if !policy.and(open.action).is_optimized() {
            let text = format!("its policy for {application} is {policy}");
            return Err(refused(Refusal::ByPolicy, text));
        }
        // What the server answers must not go to the client itself: by the wire from a program on this box, or through the bridge.
        let place = if is_here { Some(Place::Inet) } else { self.bridge.is_some().then_some(Place::Bridge) };
        let kept = place.map(|place| self.carried.keep(place, ends.server, ends.client)).transpose();
        let kept = kept.map_err(|error| refused(Refusal::Overload, error.to_string()))?;
        let socket =
            transparent::connect(Some(ends.client), ends.server, open.dscp).await.map_err(not_connected)?;
        self.served.connected(peer, ends.server.ip(), self.now());
        let kept = kept.map(Kept::made);
        Ok(Connected { socket, ends, application: application.to_owned(), policy, kept })
    }

    /// Connects to where an explicit forward of a peer ends, if this site allows it.
    async fn connect_to(&self, open: &Open, name: &str) -> Result<Connected, Refused> {
        if !self.forward_to.iter().any(|allowed| allowed == name) {
            let text = format!(
                "forwards may not end at {name} here; whoever runs that site allows it with: farside accel up \
                 --forward-to {name}"
            );
            return Err(refused(Refusal::NotAllowed, text));
        }
        let found = tokio::net::lookup_host(name).await;
        let addresses: Vec<SocketAddr> = found
            .map_err(|error| refused(Refusal::NoAnswer, format!("{name} is not known there: {error}")))?
            .collect();
        let mut last = refused(Refusal::NoAnswer, format!("{name} has no address"));
        for server in addresses {
            match transparent::connect(None, server, open.dscp).await {
                Ok(socket) => {
                    let client = socket.local_addr().map_err(not_connected)?;
                    let ends = Ends { client, server };
                    let policies = self.policies();
                    let (application, policy) = policies.of(&ends);
                    // It was asked for by name: no policy lets it pass.
                    let policy =
                        if policy.is_optimized() { policy } else { crate::policy::Action::Transport };
                    return Ok(Connected {
                        socket,
                        ends,
                        application: application.to_owned(),
                        policy,
                        kept: None,
                    });
                }
                Err(error) => last = not_connected(error),
            }
        }
        Err(last)
    }
}

/// What this box lacks for a moment says nothing of the server.
fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lacks = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    error.raw_os_error().is_some_and(|code| lacks.iter().any(|lack| lack.raw_os_error() == code))
}

fn not_connected(error: io::Error) -> Refused {
    if is_ours(&error) {
        return refused(Refusal::Overload, error.to_string());
    }
    let refusal = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Refusal::ByServer,
        io::ErrorKind::PermissionDenied => Refusal::NotAllowed,
        // The client's own address and port are in use here: a connection on the same ports that ended less than a minute ago.
        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable => Refusal::Overload,
        _ => Refusal::NoAnswer,
    };
    refused(refusal, error.to_string())
}
