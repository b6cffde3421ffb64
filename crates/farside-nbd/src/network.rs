//! Clients over TCP: TLS first, then who it is, then what that host may have.
//!
//! ```text
//! accept        doorstep.rs     a place among those that nobody knows yet
//! STARTTLS      starttls.rs     anything else is answered "TLS required"
//! TLS           Hosts::tls      the certificate is checked in the handshake
//! who it is     Hosts::admit    its exports, and what ends it
//! a place       host_places.rs  among those of known hosts; the first one is free again
//! ```

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::accept_until;
use crate::client::Client;
use crate::conversation::ConnectionError;
use crate::doorstep::Doorstep;
use crate::export::ExportSource;
use crate::limits::{KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, UNACKNOWLEDGED_MAX};
use crate::negotiation::{ClientFlags, Opening};
use crate::server::Server;
use crate::starttls::until_starttls;

/// Who may come over the network: the seam to whoever knows the hosts. No call may block.
pub trait Hosts: Send + Sync + 'static {
    /// TLS for a client that has come to this address. It must demand a certificate, and refuse those it does not know.
    fn tls(&self, local: IpAddr) -> Arc<ServerConfig>;

    /// What the host with this certificate, whose key it has proved, may have from now on.
    ///
    /// # Errors
    /// Why it may not come in: it is logged, the client is not told.
    fn admit(&self, certificate: &CertificateDer<'_>) -> Result<Admitted, String>;

    /// Told of each client that was not let in.
    fn refused(&self, _why: Refused) {}
}

/// Why a client over the network was not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It had not proved who it is when newer ones needed its place.
    Displaced,
    /// It took too long.
    TooSlow,
    /// What it said before TLS is no NBD, or did not ask for TLS.
    NoTls,
    /// It showed no certificate, or one that is not (or no longer) believed.
    Certificate,
    /// TLS failed otherwise.
    Tls,
    /// Nobody knows a host of this certificate.
    UnknownHost,
    /// The host, or all hosts together, have as many connections as they may.
    NoPlace,
    /// It broke off.
    Broke,
}

impl Refused {
    fn of(error: &ConnectionError) -> Refused {
        match error {
            ConnectionError::HandshakeTime(_) => Refused::TooSlow,
            ConnectionError::Broke { .. } => Refused::Broke,
            ConnectionError::Tls(error) => {
                let of_tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
                match of_tls {
                    Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) => {
                        Refused::Certificate
                    }
                    Some(_) => Refused::Tls,
                    None => Refused::Broke,
                }
            }
            _ => Refused::NoTls,
        }
    }
}

/// A host that is let in.
pub struct Admitted {
    /// What it is called, for the log and for the places of one host.
    pub name: String,
    /// What it may open. Held until the connection has ended.
    pub source: Arc<dyn ExportSource>,
    /// Cancelled when this connection must end: nothing more is read from it, commands under way finish.
    pub revoked: CancellationToken,
}

impl Server {
    /// Accepts and serves known hosts, over TLS only, until `shutdown`; returns when every connection has finished its
    /// commands under way and ended.
    pub async fn serve_hosts(
        &self,
        listener: TcpListener,
        hosts: Arc<dyn Hosts>,
        shutdown: CancellationToken,
    ) {
        let connections = TaskTracker::new();
        let doorstep = Doorstep::new(self.limits().unauthenticated_max);
        let serve = |(stream, from): (TcpStream, SocketAddr)| {
            let (server, hosts, shutdown) = (self.clone(), Arc::clone(&hosts), shutdown.clone());
            let doorstep = Arc::clone(&doorstep);
            async move { server.receive(stream, from, &*hosts, &doorstep, &shutdown).await }
        };
        accept_until(&listener, &shutdown, &connections, serve).await;
        drop(listener);
        connections.close();
        connections.wait().await;
    }

    /// Accepts and serves whoever comes over TCP, without TLS and without asking who it is, as on a Unix socket: for an
    /// address that only this machine can reach.
    pub async fn serve_plain(&self, listener: TcpListener, shutdown: CancellationToken) {
        let connections = TaskTracker::new();
        let serve = |(stream, from): (TcpStream, SocketAddr)| {
            let (server, shutdown) = (self.clone(), shutdown.clone());
            async move {
                tune(&stream);
                let (reader, writer) = stream.into_split();
                server.serve_stream(reader, writer, &from.to_string(), &shutdown).await;
            }
        };
        accept_until(&listener, &shutdown, &connections, serve).await;
        drop(listener);
        connections.close();
        connections.wait().await;
    }

    async fn receive(
        &self,
        stream: TcpStream,
        from: SocketAddr,
        hosts: &dyn Hosts,
        doorstep: &Arc<Doorstep>,
        shutdown: &CancellationToken,
    ) {
        let place = doorstep.admit(from.ip());
        let from = from.to_string();
        tune(&stream);
        let refuse = |from: &str, reason: Refused, why: &dyn std::fmt::Display| {
            hosts.refused(reason);
            doorstep.log(from, why);
        };
        let patience = self.limits().tls_handshake_max;
        let secured = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = place.displaced().cancelled() => {
                let why = "it had not proved who it is when newer ones needed its place";
                return refuse(&from, Refused::Displaced, &why);
            }
            secured = tokio::time::timeout(patience, secure(stream, hosts)) => secured,
        };
        let secured = secured.unwrap_or(Err(ConnectionError::HandshakeTime(patience)));
        let (stream, flags) = match secured {
            Ok(Some(secured)) => secured,
            // Whoever only looks whether somebody listens is no line's worth.
            Ok(None) => return,
            Err(error) => return refuse(&from, Refused::of(&error), &error),
        };
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let Some(certificate) = certificate else {
            return refuse(&from, Refused::Certificate, &"it showed no certificate");
        };
        let admitted = match hosts.admit(certificate) {
            Ok(admitted) => admitted,
            Err(why) => return refuse(&from, Refused::UnknownHost, &why),
        };
        drop(place);
        let slot = match self.host_places().enter(&admitted.name) {
            Ok(slot) => slot,
            Err(why) => {
                return refuse(&format!("{from}, host {}", admitted.name), Refused::NoPlace, &why);
            }
        };
        let peer = format!("host {} at {from}", admitted.name);
        let (reader, writer) = tokio::io::split(stream);
        let client =
            Client { peer: &peer, source: admitted.source, revoked: &admitted.revoked, slot: Arc::new(slot) };
        self.serve_client(reader, writer, client, Opening::UnderTls { flags }, shutdown).await;
    }
}

/// STARTTLS and TLS. `None`: the client left before.
async fn secure(
    mut stream: TcpStream,
    hosts: &dyn Hosts,
) -> Result<Option<(TlsStream<TcpStream>, ClientFlags)>, ConnectionError> {
    let local = stream.local_addr().map_err(ConnectionError::broke("the connection"))?;
    let Some(flags) = until_starttls(&mut stream).await? else { return Ok(None) };
    let acceptor = TlsAcceptor::from(hosts.tls(local.ip()));
    let stream = acceptor.accept(stream).await.map_err(ConnectionError::Tls)?;
    Ok(Some((stream, flags)))
}

/// Answers go out at once, and a host that is gone without a word is noticed.
fn tune(stream: &TcpStream) {
    use rustix::net::sockopt::{
        set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl, set_tcp_nodelay,
        set_tcp_user_timeout,
    };
    let unacknowledged = u32::try_from(UNACKNOWLEDGED_MAX.as_millis()).unwrap_or(u32::MAX);
    let tuned = set_tcp_nodelay(stream, true)
        .and_then(|()| set_socket_keepalive(stream, true))
        .and_then(|()| set_tcp_keepidle(stream, KEEPALIVE_IDLE))
        .and_then(|()| set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL))
        .and_then(|()| set_tcp_keepcnt(stream, KEEPALIVE_PROBES))
        .and_then(|()| set_tcp_user_timeout(stream, unacknowledged));
    if let Err(error) = tuned {
        tracing::debug!(%error, "an NBD connection's socket keeps the kernel's settings");
    }
}
