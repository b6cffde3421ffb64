//! TLS 1.3 both ways with pinned keys.
//!
//! There is no authority and no name to check: a peer is its key. Whoever dials compares the key hash with the one
//! it expects inside the handshake. Whoever is dialled takes any key that proves itself there, because a joiner with
//! an invitation is not known yet, and compares the hash with the pinned peers before it reads more than the hello.
//! Both verifiers check the handshake signature: without that a copied certificate would be enough.
//!
//! No resumption, no tickets, no early data: a removed peer must not come back by an old secret.

use std::io;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    AlertDescription, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureScheme,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::error::SessionError;
use crate::id::PeerId;
use crate::identity::{Identity, peer_id_of, provider};
use farside_link::Counted;

/// The application protocol. The number is the generation of the hello, which negotiates the rest.
pub(crate) const ALPN: &[u8] = b"farside/1";

/// A connection under TLS whose socket bytes are counted.
pub(crate) type Secured = TlsStream<Counted>;

/// Says what the key of whoever dialled must have proved; the hash is compared by the caller.
#[derive(Debug)]
struct AnyProvenKey(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyProvenKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        peer_id_of(end_entity)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts one key only.
#[derive(Debug)]
struct PinnedKey {
    expected: PeerId,
    provider: Arc<CryptoProvider>,
}

/// What follows the key that was found.
const ANSWERS: &str = " answers at this address";

/// Whether an error says that the site with this key answered where another was expected.
pub(crate) fn is_answered_by(error: &str, key: PeerId) -> bool {
    error.contains(&format!("{key}{ANSWERS}"))
}

/// What a dialler found where it expected another key; travels inside the TLS error.
#[derive(Debug, thiserror::Error)]
#[error("expected the site with key {expected}, but {found}{ANSWERS}")]
struct WrongKey {
    expected: PeerId,
    found: PeerId,
}

/// What is said of a key that answers where another was expected.
pub(crate) fn wrong_key(expected: PeerId, found: PeerId) -> String {
    WrongKey { expected, found }.to_string()
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = peer_id_of(end_entity)?;
        if found == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        let wrong = WrongKey { expected: self.expected, found };
        Err(rustls::CertificateError::Other(rustls::OtherError(Arc::new(wrong))).into())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The side that is dialled.
pub(crate) fn acceptor(identity: &Identity) -> Result<TlsAcceptor, SessionError> {
    let provider = provider();
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| SessionError::Local(format!("cannot set up TLS: {e}")))?
        .with_client_cert_verifier(Arc::new(AnyProvenKey(provider)))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The side that dials `expected`.
pub(crate) fn connector(identity: &Identity, expected: PeerId) -> Result<TlsConnector, SessionError> {
    let provider = provider();
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|e| SessionError::Local(format!("cannot set up TLS: {e}")))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedKey { expected, provider }))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity.certified())));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Dials through TLS; the far key is `expected` when this returns.
pub(crate) async fn secure_dialled(
    connector: &TlsConnector,
    io: Counted,
    address: &str,
) -> Result<Secured, SessionError> {
    let name = ServerName::try_from("farside.invalid").expect("a valid name");
    let stream = connector.connect(name, io).await.map_err(|e| handshake_failed(&e, address))?;
    if stream.get_ref().1.alpn_protocol() != Some(ALPN) {
        return Err(SessionError::NotAuthenticated(format!("{address} does not speak farside")));
    }
    Ok(TlsStream::Client(stream))
}

/// Accepts through TLS; returns the key that the far side has proved.
pub(crate) async fn secure_accepted(acceptor: &TlsAcceptor, io: Counted) -> io::Result<(Secured, PeerId)> {
    let stream = acceptor.accept(io).await?;
    let (_, connection) = stream.get_ref();
    if connection.alpn_protocol() != Some(ALPN) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "does not ask for the protocol farside/1"));
    }
    let certificate = connection
        .peer_certificates()
        .and_then(|chain| chain.first())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "showed no certificate"))?;
    let id = peer_id_of(certificate).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    Ok((TlsStream::Server(stream), id))
}

/// What is where, for whoever has named the wrong one.
const PORTS: &str = "Peers meet on the port of --peer-listen, 7440 as a rule; 7441 is for metrics, 7442 for accelerators, 7443 for the API, \
                     10809 for NBD";

/// What was met instead of a site, as far as TLS tells; none if it may well be one.
fn wrong_port(error: &Error) -> Option<&'static str> {
    match error {
        Error::InvalidMessage(_) => Some("it does not speak TLS"),
        Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            Some("it speaks TLS for something else, as the API and accelerators do")
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) | Error::PeerIncompatible(_) => {
            Some("it does not speak TLS 1.3")
        }
        _ => None,
    }
}

/// A wrong key must read as such; anything else is a matter of reaching the site.
fn handshake_failed(error: &io::Error, address: &str) -> SessionError {
    let tls = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidCertificate(rustls::CertificateError::Other(other))) => {
            let why = match other.0.downcast_ref::<WrongKey>() {
                Some(wrong) => wrong.to_string(),
                None => other.0.to_string(),
            };
            SessionError::NotAuthenticated(format!(
                "{address} is not the site it should be: {why}; nothing was sent to it. Check the address, and whether somebody sits in between"
            ))
        }
        Some(tls) => SessionError::NotAuthenticated(match wrong_port(tls) {
            Some(found) => format!("what answers at {address} is no farside for peers: {found}. {PORTS}"),
            None => format!("no TLS session with {address}: {tls}"),
        }),
        None => SessionError::Unreachable { address: address.to_owned(), reason: format!("TLS: {error}") },
    }
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn a_port_of_something_else_is_said_to_be_one() {
        let said = |tls: Error| {
            let error = io::Error::new(io::ErrorKind::InvalidData, tls);
            handshake_failed(&error, "north:7441").to_string()
        };
        let plain = said(Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(
            plain.contains("what answers at north:7441 is no farside for peers: it does not speak TLS"),
            "{plain}"
        );
        assert!(plain.contains("7440 as a rule") && !plain.contains("InvalidContentType"), "{plain}");
        let other = said(Error::AlertReceived(AlertDescription::NoApplicationProtocol));
        assert!(other.contains("for something else"), "{other}");
        // What else TLS says is passed on: it may be a site.
        assert!(said(Error::DecryptError).contains("no TLS session with north:7441"));
    }
}
