//! Whom TLS lets in: whoever proves a certificate that a known authority signed *and* that is a known host's now.

use std::net::IpAddr;
use std::sync::Arc;

use farside_nbd::{Admitted, Refused};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, ServerConfig,
    SignatureScheme,
};

use super::authority::ServerCertificates;
use super::book::{Admission, Hosts, Trust};
use super::connection::HostConnection;
use super::own::OwnFiles;
use crate::certificate_end;
use crate::metrics;

/// The way in for hosts.
pub(crate) struct Door {
    hosts: Arc<Hosts>,
    provider: Arc<CryptoProvider>,
    verifier: Arc<KnownHosts>,
    server: Server,
}

/// What this server shows.
enum Server {
    Site(ServerCertificates),
    Own(Arc<SingleCertAndKey>),
}

impl Door {
    /// Opens it; `names` are put into the server's certificate besides those that are known.
    ///
    /// # Errors
    /// Which file or name is wrong.
    pub(crate) fn new(hosts: Arc<Hosts>, names: &[String]) -> Result<Door, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (clients, server) = match &hosts.trust {
            Trust::Site { .. } => {
                let authority = hosts.authority()?;
                let mut clients = RootCertStore::empty();
                clients.add(authority.certificate().clone()).map_err(|error| {
                    format!("the certificate of this site's authority for hosts cannot be used: {error}")
                })?;
                (clients, Server::Site(ServerCertificates::new(authority, names, &provider)?))
            }
            Trust::Own(files) => {
                let own = OwnFiles::load(files, &provider)?;
                hosts.note_server_end(own.server.cert.first().and_then(|der| certificate_end::of(der)));
                (own.clients, Server::Own(Arc::new(SingleCertAndKey::from(own.server))))
            }
        };
        let signed = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider))
            .build()
            .map_err(|error| format!("cannot check the certificates of hosts: {error}"))?;
        let verifier = Arc::new(KnownHosts { signed, hosts: Arc::clone(&hosts) });
        let door = Door { hosts, provider, verifier, server };
        // What cannot be set up fails here, not at the first client.
        door.configuration(IpAddr::from([127, 0, 0, 1]))?;
        Ok(door)
    }

    fn configuration(&self, local: IpAddr) -> Result<Arc<ServerConfig>, String> {
        let shown: Arc<dyn ResolvesServerCert> = match &self.server {
            Server::Site(certificates) => certificates.at(local),
            Server::Own(certificate) => Arc::clone(certificate) as _,
        };
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| format!("cannot set up TLS: {error}"))?
            .with_client_cert_verifier(Arc::clone(&self.verifier) as _)
            .with_cert_resolver(shown);
        // No tickets, no resumption, no early data: a removed host must not come back by an old secret.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(Arc::new(config))
    }
}

impl farside_nbd::Hosts for Door {
    fn tls(&self, local: IpAddr) -> Arc<ServerConfig> {
        self.configuration(local).expect("what was set up once can be set up again")
    }

    fn admit(&self, certificate: &CertificateDer<'_>) -> Result<Admitted, String> {
        let Admission { host, number, name, cut } = self.hosts.admit(certificate)?;
        let source = Arc::new(HostConnection { hosts: Arc::clone(&self.hosts), host, number });
        Ok(Admitted { name, source, revoked: cut })
    }

    fn refused(&self, why: Refused) {
        metrics::host_refused(match why {
            Refused::Displaced => "displaced",
            Refused::TooSlow => "time",
            Refused::NoTls => "no-tls",
            Refused::Certificate => "certificate",
            Refused::Tls => "tls",
            Refused::UnknownHost => "unknown-host",
            Refused::NoPlace => "no-place",
            Refused::Broke => "broke-off",
        });
    }
}

/// Takes a certificate that is well signed, of a host that is known.
#[derive(Debug)]
struct KnownHosts {
    signed: Arc<dyn ClientCertVerifier>,
    hosts: Arc<Hosts>,
}

impl ClientCertVerifier for KnownHosts {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        match self.hosts.knows(end_entity) {
            true => Ok(verified),
            // So the client's own message says it.
            false => Err(Error::InvalidCertificate(CertificateError::Revoked)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}
