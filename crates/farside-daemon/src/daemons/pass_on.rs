//! What a daemon that stands by is asked goes on to the one that leads, and its answer back, as they come.
//!
//! The one that leads is known by the fingerprint of its certificate, which the database has, and knows this one by a pass from there.
//! Who asks is not decided here: of a request from the network the one that leads looks at the token, of one from the control socket it
//! is told the user.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Uri, header};
use axum::response::Response;
use farside_api::{ErrorBody, ErrorCode};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{FROM_HEADER, PASS_HEADER};
use crate::listen::Origin;
use crate::state::Leader;

/// How long the connection to the daemon that leads may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(3);
/// How long its answer may take to begin: some requests wait for a transfer.
const ANSWERED_WITHIN: Duration = Duration::from_secs(900);
/// Headers of one connection alone.
const OF_THE_CONNECTION: [HeaderName; 4] =
    [header::CONNECTION, header::TE, header::UPGRADE, HeaderName::from_static("keep-alive")];

/// Whom this daemon stands by for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    Nobody,
    Leader(Leader),
}

/// Passes a request on.
///
/// # Errors
/// Nobody leads, or the one that does is not reached.
pub(crate) async fn pass_on(
    follows: &Follows,
    request: Request,
    origin: Origin,
) -> Result<Response, ErrorBody> {
    let Follows::Leader(leader) = follows else {
        return Err(ErrorBody::new(
            ErrorCode::DaemonUnreachable,
            "no daemon of this site leads just now, or its database is away: this daemon stands by and does not know. Nothing was done",
        )
        .hint("another one leads within 15 s of its end. If that lasts, look at PostgreSQL"));
    };
    let name = &leader.name;
    let cannot = |why: String| {
        ErrorBody::new(
            ErrorCode::DaemonUnreachable,
            format!("this daemon stands by for {name}, which leads the site, and cannot pass the request on: {why}. Nothing was done"),
        )
        .hint(format!("ask at {name} itself, or try again: if it is dead, another one leads within 15 s"))
    };
    let (Some(address), Some(fingerprint)) = (&leader.api_address, &leader.api_fingerprint) else {
        return Err(cannot(String::from(
            "it has just begun to lead, and serves in a moment (if that lasts: it has no --api-listen, so no other daemon reaches it)",
        )));
    };
    let connected = tokio::time::timeout(CONNECTED_WITHIN, connect(address, fingerprint)).await;
    let stream = connected
        .unwrap_or_else(|_| {
            Err(format!("no connection to {address} within {} s", CONNECTED_WITHIN.as_secs()))
        })
        .map_err(cannot)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| cannot(error.to_string()))?;
    // It lives as long as its request, and as the answer's body.
    tokio::spawn(async move {
        let _ = connection.await;
    });
    let request = prepared(request, leader, origin).map_err(cannot)?;
    let lost = |why: String| {
        ErrorBody::new(
            ErrorCode::DaemonUnreachable,
            format!("the answer of {name}, which leads the site, was lost: {why}. What was asked for may have been done"),
        )
        .hint("look at what it was about before you ask again")
    };
    let answered = tokio::time::timeout(ANSWERED_WITHIN, sender.send_request(request)).await;
    let mut response = answered
        .map_err(|_| lost(format!("none came within {} s", ANSWERED_WITHIN.as_secs())))?
        .map_err(|error| lost(error.to_string()))?;
    for of_the_connection in OF_THE_CONNECTION {
        response.headers_mut().remove(of_the_connection);
    }
    Ok(response.map(Body::new))
}

fn prepared(mut request: Request, leader: &Leader, origin: Origin) -> Result<Request, String> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>().map_err(|error| error.to_string())?;
    let from = match origin {
        Origin::Socket { uid: Some(uid) } => format!("socket {uid}"),
        Origin::Socket { uid: None } => String::from("socket"),
        Origin::Network(_) | Origin::Peer(_) | Origin::Unknown => String::from("network"),
    };
    let headers = request.headers_mut();
    for of_the_connection in OF_THE_CONNECTION {
        headers.remove(of_the_connection);
    }
    let mut pass = HeaderValue::from_str(&leader.pass).map_err(|error| error.to_string())?;
    pass.set_sensitive(true);
    headers.insert(PASS_HEADER, pass);
    headers.insert(FROM_HEADER, HeaderValue::from_str(&from).map_err(|error| error.to_string())?);
    headers.entry(header::HOST).or_insert(HeaderValue::from_static("farside"));
    Ok(request)
}

async fn connect(
    address: &str,
    fingerprint: &str,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let failed = |error: std::io::Error| format!("{address}: {error}");
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    let _ = stream.set_nodelay(true);
    let connector = TlsConnector::from(Arc::new(pinned(fingerprint.to_owned())?));
    // The certificate is known by itself, whatever names it has.
    let name = ServerName::try_from("farside").map_err(|error| error.to_string())?;
    connector.connect(name, stream).await.map_err(failed)
}

fn pinned(fingerprint: String) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| format!("cannot set up TLS: {error}"))?;
    let verifier = Arc::new(Pinned { fingerprint, provider });
    Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

/// Believes one certificate.
#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown: String =
            digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        if shown == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General("another certificate than the database says".into()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.3 alone is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
