//! How the daemon is reached: by its control socket, or over HTTPS.
//!
//! Over HTTPS the daemon is known by its certificate's fingerprint, or by the authority that signed it; there is no way that
//! believes anybody. A token comes from a file or from the environment, never from the arguments, which other users can see.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use farside_api::{ErrorBody, ErrorCode};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{ClientBuilder, Url};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, WantsVerifier,
};

/// The token itself, where no file is named.
const TOKEN_VARIABLE: &str = "FARSIDE_TOKEN";
/// A token has some 70 bytes; what is longer is another file.
const TOKEN_BYTES_MAX: u64 = 4096;
/// An authority's certificates: what systems trust has some hundred KiB.
const CA_BYTES_MAX: u64 = 4 << 20;

/// How the daemon is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Way {
    /// By the control socket.
    Socket(PathBuf),
    /// Over HTTPS.
    Network(Network),
}

/// A daemon over HTTPS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// `https://HOST:PORT`.
    pub url: String,
    /// Where the token is; none: in the environment.
    pub token_file: Option<PathBuf>,
    /// What the certificate is known by.
    pub fingerprint: Option<String>,
    /// Or who has signed it.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Socket(path) => path.display().fmt(f),
            Way::Network(network) => f.write_str(&network.url),
        }
    }
}

impl Way {
    /// What to look at when the daemon does not answer.
    pub(super) fn advice(&self, is_forbidden: bool) -> &'static str {
        match self {
            Way::Socket(_) if is_forbidden => {
                "the socket is for root, and where farsided runs by its unit for the group farside: is your user in it (id)? usermod -aG \
                 farside USER, then log in anew. A farsided that was started by hand answers who started it"
            }
            Way::Socket(_) => {
                "is farsided running? name its directory with --data-dir DIR, or its socket with --socket PATH or FARSIDE_SOCKET"
            }
            Way::Network(_) => {
                "is farsided running with --api-listen, and is this its address (7443 as a rule; 7440 is for peers) and certificate? \
                 farside config show at the site itself has both"
            }
        }
    }

    /// The address that every request begins with.
    pub(super) fn base(&self) -> Result<Url, ErrorBody> {
        let wrong = |text: &str| {
            ErrorBody::new(ErrorCode::WrongUsage, format!("{text:?} is not https://HOST:PORT"))
                .hint("farside config show at the site itself has the address")
        };
        match self {
            // The name does not matter: the socket is what is connected to.
            Way::Socket(_) => Url::parse("http://farside").map_err(|_| wrong("http://farside")),
            Way::Network(Network { url, .. }) => {
                let parsed = Url::parse(url).map_err(|_| wrong(url))?;
                let is_bare = parsed.path() == "/"
                    && parsed.query().is_none()
                    && parsed.username().is_empty()
                    && parsed.password().is_none();
                if parsed.scheme() == "https" && is_bare { Ok(parsed) } else { Err(wrong(url)) }
            }
        }
    }

    /// A client that goes this way.
    pub(super) fn prepare(&self, builder: ClientBuilder) -> Result<ClientBuilder, ErrorBody> {
        match self {
            // A client without any would read all that the system trusts, for each command.
            Way::Socket(path) => Ok(builder
                .unix_socket(path.clone())
                .tls_backend_preconfigured(trusting(RootCertStore::empty())?)),
            Way::Network(network) => {
                let mut headers = HeaderMap::new();
                headers.insert(AUTHORIZATION, network.authorization()?);
                Ok(builder
                    .https_only(true)
                    .redirect(reqwest::redirect::Policy::none())
                    .default_headers(headers)
                    .tls_backend_preconfigured(network.tls()?))
            }
        }
    }
}

impl Network {
    fn authorization(&self) -> Result<HeaderValue, ErrorBody> {
        let (token, origin) = match &self.token_file {
            Some(path) => (token_in(path)?, path.display().to_string()),
            None => match std::env::var(TOKEN_VARIABLE) {
                Ok(token) => (token, TOKEN_VARIABLE.to_owned()),
                Err(_) => {
                    return Err(ErrorBody::new(ErrorCode::WrongUsage, "no token: over HTTPS one says who asks")
                        .hint("name its file with --token-file FILE or FARSIDE_TOKEN_FILE, or put it into FARSIDE_TOKEN"));
                }
            },
        };
        let wrong = || ErrorBody::new(ErrorCode::WrongUsage, format!("{origin} holds no token"));
        let token = token.trim();
        if token.is_empty() {
            return Err(wrong());
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| wrong())?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn tls(&self) -> Result<ClientConfig, ErrorBody> {
        let usage = |message: String| ErrorBody::new(ErrorCode::WrongUsage, message);
        match (&self.fingerprint, &self.ca_file) {
            (Some(fingerprint), _) => {
                let fingerprint = parse_fingerprint(fingerprint).ok_or_else(|| {
                    usage(format!("{fingerprint:?} is no fingerprint")).hint("it is SHA-256, 64 hexadecimal digits")
                })?;
                let (builder, provider) = tls()?;
                let pinned = Arc::new(Pinned { fingerprint, provider });
                Ok(builder.dangerous().with_custom_certificate_verifier(pinned).with_no_client_auth())
            }
            (None, Some(path)) => trusting(authorities(path)?),
            (None, None) => Err(usage(String::from("nothing says which certificate the daemon has")).hint(
                "name its fingerprint with --fingerprint or FARSIDE_API_FINGERPRINT (farside config show at the site itself has \
                 it), or who has signed it with --ca-file",
            )),
        }
    }
}

type TlsBuilder = ConfigBuilder<ClientConfig, WantsVerifier>;

fn tls() -> Result<(TlsBuilder, Arc<CryptoProvider>), ErrorBody> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| ErrorBody::new(ErrorCode::Failed, format!("cannot set up TLS: {error}")))?;
    Ok((builder, provider))
}

fn trusting(authorities: RootCertStore) -> Result<ClientConfig, ErrorBody> {
    Ok(tls()?.0.with_root_certificates(authorities).with_no_client_auth())
}

fn token_in(path: &Path) -> Result<String, ErrorBody> {
    let failed = |error: std::io::Error| {
        ErrorBody::new(ErrorCode::WrongUsage, format!("cannot read the token in {}: {error}", path.display()))
    };
    let file = std::fs::File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.is_file() && metadata.mode() & 0o077 != 0 {
        return Err(ErrorBody::new(
            ErrorCode::WrongUsage,
            format!("others may read the token in {} (mode {:o})", path.display(), metadata.mode() & 0o777),
        )
        .hint(format!(
            "chmod 600 {}; if somebody may have read it, revoke it and make another",
            path.display()
        )));
    }
    let mut text = String::new();
    file.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    Ok(text)
}

fn authorities(path: &Path) -> Result<RootCertStore, ErrorBody> {
    let usage = |message: String| ErrorBody::new(ErrorCode::WrongUsage, message);
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(CA_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?;
    let mut authorities = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&bytes) {
        let certificate =
            certificate.map_err(|error| usage(format!("{} is damaged: {error}", path.display())))?;
        // What systems trust has one or another that no library reads: those that are read are enough.
        let _ = authorities.add(certificate);
    }
    if authorities.is_empty() {
        return Err(usage(format!("{} holds no certificate in PEM", path.display())));
    }
    Ok(authorities)
}

/// 64 hexadecimal digits, with or without colons, as `openssl x509 -fingerprint -sha256` prints them.
fn parse_fingerprint(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u32> =
        text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect();
    (digits.len() == 64).then(|| bytes.try_into().ok())?
}

/// Takes the one certificate that has this fingerprint, whatever names and dates are in it.
#[derive(Debug)]
struct Pinned {
    fingerprint: [u8; 32],
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let shown = digest(&SHA256, end_entity);
        if shown.as_ref() == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let shown: String = shown.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Err(Error::General(format!(
            "it shows another certificate than the one that was named (its fingerprint is {shown}); nothing was sent to it"
        )))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General(String::from("the daemon speaks TLS 1.3")))
    }

    /// Without this whoever has seen the certificate could show it.
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn network(url: &str) -> Way {
        Way::Network(Network { url: url.into(), token_file: None, fingerprint: None, ca_file: None })
    }

    #[test]
    fn addresses() {
        assert!(network("https://site:7443").base().is_ok() && network("https://[::1]:7443/").base().is_ok());
        for wrong in
            ["http://site:7443", "site:7443", "", "https://u:p@site", "https://site/x", "https://site/?q"]
        {
            assert_eq!(network(wrong).base().unwrap_err().code, ErrorCode::WrongUsage, "{wrong}");
        }
    }

    #[test]
    fn fingerprints() {
        let plain = "0f".repeat(32);
        assert_eq!(parse_fingerprint(&plain), Some([0x0f; 32]));
        assert_eq!(parse_fingerprint(&vec!["0F"; 32].join(":")), Some([0x0f; 32]));
        for wrong in ["", "0f", &plain[1..], &format!("{plain}0"), &"zz".repeat(32)] {
            assert_eq!(parse_fingerprint(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_token_that_others_can_read_is_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "farside_00ff\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(token_in(&path).unwrap_err().hint.unwrap().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let network =
            Network { url: String::new(), token_file: Some(path.clone()), fingerprint: None, ca_file: None };
        let value = network.authorization().unwrap();
        assert_eq!((value.to_str().unwrap(), value.is_sensitive()), ("Bearer farside_00ff", true));
        assert!(!format!("{value:?}").contains("00ff"));
        std::fs::write(&path, "\n").unwrap();
        assert!(network.authorization().unwrap_err().message.contains("holds no token"));
        assert!(network.tls().unwrap_err().message.contains("which certificate"));
    }
}
