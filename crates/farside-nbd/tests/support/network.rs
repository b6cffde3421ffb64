//! A server over TCP with one authority, and hosts it knows.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use farside_nbd::{Admitted, ExportSource, Hosts, Limits, Server};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::raw::{OPT_STARTTLS, REP_ACK, RawClient};
use super::serve::{PATIENCE, ended};

/// Whoever signs.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: CertificateDer<'static>,
}

/// A certificate and its key.
pub struct Credentials {
    pub certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Clone for Credentials {
    fn clone(&self) -> Self {
        Credentials { certificate: self.certificate.clone(), key: self.key.clone_key() }
    }
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = parameters.self_signed(&key).unwrap().der().clone();
        Authority { issuer: Issuer::new(parameters, key), certificate }
    }

    pub fn issue(&self) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().der().clone();
        Credentials { certificate, key: PrivateKeyDer::Pkcs8(key.serialize_der().into()) }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }
}

/// Lets in whom it was told of.
struct Known {
    config: Arc<ServerConfig>,
    known: Mutex<HashSet<Vec<u8>>>,
    source: Arc<dyn ExportSource>,
    revoked: CancellationToken,
}

impl Hosts for Known {
    fn tls(&self, _: IpAddr) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    fn admit(&self, certificate: &CertificateDer<'_>) -> Result<Admitted, String> {
        if !self.known.lock().contains(certificate.as_ref()) {
            return Err("it is not known".into());
        }
        let name = format!("{:02x?}", &certificate[certificate.len() - 4..]);
        Ok(Admitted { name, source: Arc::clone(&self.source), revoked: self.revoked.clone() })
    }
}

pub struct NetworkServer {
    pub authority: Authority,
    pub address: SocketAddr,
    /// Ends the connections of all hosts.
    pub revoked: CancellationToken,
    hosts: Arc<Known>,
    shutdown: CancellationToken,
    running: tokio::task::JoinHandle<()>,
}

impl NetworkServer {
    pub async fn start(source: impl ExportSource, limits: Limits) -> Self {
        let authority = Authority::new();
        let own = authority.issue();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(authority.roots()), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![own.certificate], own.key)
            .unwrap();
        let source: Arc<dyn ExportSource> = Arc::new(source);
        let (revoked, shutdown) = (CancellationToken::new(), CancellationToken::new());
        let hosts = Arc::new(Known {
            config: Arc::new(config),
            known: Mutex::default(),
            source: Arc::clone(&source),
            revoked: revoked.clone(),
        });
        let server = Server::new(source, limits).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let running = tokio::spawn({
            let (shutdown, hosts) = (shutdown.clone(), Arc::clone(&hosts));
            async move { server.serve_hosts(listener, hosts, shutdown).await }
        });
        NetworkServer { authority, address, revoked, hosts, shutdown, running }
    }

    /// A host that is let in.
    pub fn host(&self) -> Credentials {
        let host = self.authority.issue();
        self.hosts.known.lock().insert(host.certificate.to_vec());
        host
    }

    pub async fn connect(&self) -> TcpStream {
        let connect = tokio::time::timeout(PATIENCE, TcpStream::connect(self.address));
        connect.await.expect("somebody listens").unwrap()
    }

    /// A client that has said its flags, and nothing else.
    pub async fn greeted(&self) -> RawClient<TcpStream> {
        let mut client = RawClient::greeted(self.connect().await).await;
        client.send(&3_u32.to_be_bytes()).await;
        client
    }

    /// One that has come under TLS, with these credentials or none. Whether it is let in shows at its first option.
    pub async fn secured(
        &self,
        as_host: Option<&Credentials>,
    ) -> std::io::Result<RawClient<TlsStream<TcpStream>>> {
        let mut client = self.greeted().await;
        assert_eq!(client.option(OPT_STARTTLS, &[]).await, [(REP_ACK, vec![])]);
        let stream = self.connector(as_host).connect(self.name(), client.stream).await?;
        Ok(RawClient { stream, structured: false })
    }

    pub fn name(&self) -> ServerName<'static> {
        ServerName::from(self.address.ip())
    }

    pub fn connector(&self, as_host: Option<&Credentials>) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.authority.roots());
        let config = match as_host {
            Some(host) => {
                config.with_client_auth_cert(vec![host.certificate.clone()], host.key.clone_key()).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        TlsConnector::from(Arc::new(config))
    }

    /// A host opens `pool/volume` and reads: the server serves.
    pub async fn assert_serves(&self, host: &Credentials) {
        let client = self.secured(Some(host)).await.expect("TLS");
        let mut client = client.chosen("pool/volume", true).await;
        assert_eq!(client.write(0, 8, b"still here").await.error, 0);
        let answer = client.command(0, super::raw::READ, 8, 10).await;
        assert_eq!(answer.chunks[0].1[8..], *b"still here");
    }

    pub async fn stop(self) {
        self.shutdown.cancel();
        ended(self.running).await;
    }
}
