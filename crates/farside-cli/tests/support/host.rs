//! A host: a machine that opens volumes over TLS, with the files that `host add` wrote.

use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::nbd::{self, Client, Stream};
use super::{Site, text};

pub const OPT_EXPORT_NAME: u32 = 1;
pub const OPT_ABORT: u32 = 2;
pub const OPT_LIST: u32 = 3;
pub const OPT_STARTTLS: u32 = 5;
pub const REP_ACK: u32 = 1;
pub const REP_ERR_TLS_REQD: u32 = (1 << 31) | 5;

/// A host that a site knows.
pub struct Host {
    pub name: String,
    pub directory: PathBuf,
    pub address: String,
}

impl Host {
    /// Adds it at a site that serves over TCP.
    #[track_caller]
    pub fn add(site: &Site, root: &Path, name: &str) -> Host {
        let directory = root.join(format!("host-{name}"));
        site.ok(&format!("host add {name} --directory {}", directory.display()));
        Host { name: name.into(), directory, address: site.published("nbd.addr") }
    }

    /// TLS as this host does it.
    pub fn config(&self) -> Arc<ClientConfig> {
        let read = |name: &str| std::fs::read(self.directory.join(name)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&read("ca-cert.pem")).unwrap()).unwrap();
        let certificate = CertificateDer::from_pem_slice(&read("client-cert.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_slice(&read("client-key.pem")).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)
            .unwrap();
        Arc::new(config)
    }

    /// A connection under TLS that has been greeted. Whether it was let in shows at the first answer.
    pub fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let mut stream = connected(&self.address)?;
        nbd::greeted(&mut stream)?;
        assert_eq!(nbd::option(&mut stream, OPT_STARTTLS, &[])?, REP_ACK);
        self.secured(stream)
    }

    /// TLS on a stream on which the server waits for it.
    pub fn secured(&self, mut stream: TcpStream) -> io::Result<Box<dyn Stream>> {
        let name = ServerName::from(stream.peer_addr()?.ip());
        let mut connection = ClientConnection::new(self.config(), name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Box::new(StreamOwned::new(connection, stream)))
    }

    /// Opens an export.
    pub fn open(&self, export: &str) -> io::Result<Client> {
        Client::go(self.connect()?, export)
    }

    /// An address for libnbd's programs.
    pub fn uri(&self, export: &str) -> String {
        format!("nbds://{}/{export}?tls-certificates={}", self.address, self.directory.display())
    }

    /// What QEMU's programs need to know before the image.
    pub fn qemu(&self) -> [String; 2] {
        let directory = self.directory.display();
        ["--object".into(), format!("tls-creds-x509,id=tls0,endpoint=client,dir={directory}")]
    }

    /// And the image.
    pub fn qemu_image(&self, export: &str) -> String {
        let (host, port) = self.address.rsplit_once(':').unwrap();
        format!("driver=nbd,host={host},port={port},export={export},tls-creds=tls0")
    }
}

/// A connection that waits for answers, but not for ever.
pub fn connected(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Runs a program of somebody else's; none, loudly, where it is not installed.
pub fn run<S: AsRef<std::ffi::OsStr>>(program: &str, arguments: &[S]) -> Option<Output> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            assert!(std::env::var_os("FARSIDE_REQUIRE_TOOLS").is_none(), "{program} is not installed");
            eprintln!("**** skipped: {program} is not installed");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

/// The same, which must succeed; its stdout.
#[track_caller]
pub fn run_ok<S: AsRef<std::ffi::OsStr>>(program: &str, arguments: &[S]) -> Option<String> {
    let output = run(program, arguments)?;
    assert!(output.status.success(), "{program}: {}{}", text(&output.stdout), text(&output.stderr));
    Some(text(&output.stdout))
}

/// The same, which must fail; what it says.
#[track_caller]
pub fn run_fails<S: AsRef<std::ffi::OsStr>>(program: &str, arguments: &[S]) -> Option<String> {
    let output = run(program, arguments)?;
    assert!(!output.status.success(), "{program} succeeded: {}", text(&output.stdout));
    Some(text(&output.stderr))
}

/// A site that serves hosts over TCP, with the pool `p`.
pub fn serving(root: &Path) -> Site {
    serving_with(root, "")
}

/// The same with more lines under `[nbd]`.
pub fn serving_with(root: &Path, lines: &str) -> Site {
    let directory = root.join("a");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("farside.toml"), format!("[nbd]\nlisten = \"127.0.0.1:0\"\n{lines}"))
        .unwrap();
    let site = Site::start(root, "a");
    site.ok(&format!("pool create p --path {} --size 256M", root.join("p.pool").display()));
    site
}
