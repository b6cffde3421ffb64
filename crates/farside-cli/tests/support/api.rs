//! The API over HTTPS, asked by a client that says what it likes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::Site;

/// What answers at all answers in milliseconds; a busy machine gets more.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the daemon has answered.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The code of the failure.
    #[track_caller]
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// A daemon's API over HTTPS.
#[derive(Clone)]
pub struct Api {
    pub address: String,
    trust: Arc<ClientConfig>,
}

impl Api {
    /// Configures a site that has not been started.
    pub fn configure(site: &Site, more: &str) {
        std::fs::create_dir_all(&site.dir).unwrap();
        std::fs::write(site.dir.join("farside.toml"), format!("[api]\nlisten = \"127.0.0.1:0\"\n{more}"))
            .unwrap();
    }

    /// That of a site that runs, which shows the certificate in this file of its directory.
    pub fn of(site: &Site, certificate: &str) -> Api {
        let pem = std::fs::read(site.dir.join(certificate)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let trust = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Api { address: site.published("api.addr"), trust: Arc::new(trust) }
    }

    /// A connection after its handshake.
    pub fn connect(&self) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let socket = TcpStream::connect(&self.address)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        // As every client does: a request goes out behind the handshake's last message, and would wait for its acknowledgement.
        socket.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").unwrap();
        let mut connection = ClientConnection::new(Arc::clone(&self.trust), name).unwrap();
        let mut io = socket;
        connection.complete_io(&mut io)?;
        Ok(StreamOwned::new(connection, io))
    }

    /// Sends bytes, and reads what comes until the daemon closes.
    pub fn say(&self, words: &[u8]) -> std::io::Result<String> {
        let mut stream = self.connect()?;
        stream.write_all(words)?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            // Closed without a goodbye.
            Err(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => return Err(error),
            _ => {}
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// One request with these headers besides those that every one has.
    #[track_caller]
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<&str>) -> Answer {
        let mut words = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            words += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            words += &format!("{name}: {value}\r\n");
        }
        if let Some(body) = body {
            words += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        words += "\r\n";
        words += body.unwrap_or_default();
        read(&self.say(words.as_bytes()).unwrap_or_else(|error| panic!("{method} {path}: {error}")))
    }

    /// The same with a token.
    #[track_caller]
    pub fn with(&self, token: &str, method: &str, path: &str, body: Option<&str>) -> Answer {
        self.ask(method, path, &[("Authorization", &format!("Bearer {token}"))], body)
    }
}

#[track_caller]
fn read(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if chunked { unchunked(body) } else { body.to_owned() };
    Answer { status, headers, body }
}

fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole += &rest[..length];
        text = rest[length..].trim_start_matches("\r\n");
        if length == 0 {
            break;
        }
    }
    whole
}
