//! Alarms posted to a webhook: one after the other, in order, signed, tried again until they arrive or are too old.
//!
//! The queue is in memory and in the state database, so what was not delivered is after a restart. A database that takes nothing
//! costs that, no alarm. Who is posted to may see a notice twice (the answer was lost): its `notice_id` is the same then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use axum::http::{Request, StatusCode};
use farside_api::AlarmNotice;
use farside_platform::{Clock, Timestamp};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::secret::secret_of;
use super::settings::STORED_WITHIN;
use super::settings::WebhookConfig;
use crate::convert;
use crate::state::State;

/// Header with the signature: `sha256=` and 64 hexadecimal digits, HMAC-SHA256 over the body.
pub(crate) const SIGNATURE: &str = "farside-signature";
/// Header with the event.
const EVENT: &str = "farside-event";
/// Longest file of authorities, bytes.
const CA_BYTES_MAX: u64 = 16 << 20;
/// How long one attempt may take until the head of its answer is there.
const ATTEMPT_MAX: Duration = Duration::from_secs(15);
/// How much of an answer is read after its head, for the log, and for how long: what waits is kept waiting by it.
const ANSWER_BYTES_MAX: usize = 4096;
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Notices that wait, at most: beyond that the oldest go.
pub(super) const WAITING_MAX: usize = 1000;
/// A notice that is older is not news any more.
const TOO_OLD: Duration = Duration::from_secs(24 * 3600);
/// The first pause after an attempt that failed; each doubles, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// A server that refuses a notice so often (4xx, but for *too many requests* and a timeout) will not take it: the next ones go on.
const REFUSALS_MAX: u32 = 8;
/// Where systems keep the authorities that they believe.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A webhook and what waits to be posted there.
pub(super) struct Webhook {
    config: WebhookConfig,
    state: State,
    clock: Arc<dyn Clock>,
    waiting: Mutex<VecDeque<Waiting>>,
    added: Notify,
}

#[derive(Clone, Debug)]
struct Waiting {
    /// Its row, if the database took it.
    sequence: Option<i64>,
    queued_at: Timestamp,
    document: Arc<str>,
}

/// Why a notice was not taken.
#[derive(Debug)]
struct Refused {
    why: String,
    /// The server has read it, and does not want it.
    is_final: bool,
}

impl Webhook {
    /// With what was not delivered before.
    pub(super) async fn load(config: WebhookConfig, state: State, clock: Arc<dyn Clock>) -> Webhook {
        let rows = state.notices().await.unwrap_or_else(|error| {
            tracing::error!("alarms that were not posted before the restart are not: {error}");
            Vec::new()
        });
        let waiting = rows.into_iter().map(|row| Waiting {
            sequence: Some(row.sequence),
            queued_at: Timestamp(u64::try_from(row.queued_at).unwrap_or(0)),
            document: row.document.into(),
        });
        Webhook { config, state, clock, waiting: Mutex::new(waiting.collect()), added: Notify::new() }
    }

    /// As it may be shown.
    pub(super) fn shown(&self) -> String {
        self.config.shown()
    }

    /// Adds a notice to those that wait. Never waits for the server.
    pub(super) async fn add(&self, notice: &AlarmNotice) {
        let document: Arc<str> = document(notice).into();
        let queued_at = self.clock.now();
        let stored = tokio::time::timeout(STORED_WITHIN, self.state.add_notice(queued_at, &document)).await;
        let sequence = match stored {
            Ok(Ok(sequence)) => Some(sequence),
            Ok(Err(error)) => {
                tracing::error!("an alarm that is to be posted would not survive a restart: {error}");
                None
            }
            Err(_) => None,
        };
        let dropped = {
            let mut waiting = self.waiting.lock();
            waiting.push_back(Waiting { sequence, queued_at, document });
            // The first may be on its way.
            if waiting.len() > WAITING_MAX { waiting.remove(1) } else { None }
        };
        self.added.notify_one();
        if let Some(dropped) = dropped {
            tracing::error!("more than {WAITING_MAX} alarms wait to be posted; the oldest is dropped");
            self.forget(&dropped).await;
        }
    }

    /// Posts what waits, for as long as the site lives.
    pub(super) async fn keep_posting(&self) {
        let mut pause = PAUSE_FIRST;
        let mut refusals = 0;
        let mut is_troubled = false;
        loop {
            let first = self.waiting.lock().front().cloned();
            let Some(first) = first else {
                self.added.notified().await;
                continue;
            };
            let age = self.clock.now().seconds_since(first.queued_at);
            if age > TOO_OLD.as_secs_f64() {
                tracing::error!(
                    "an alarm was not posted within {}, and is not any more",
                    convert::roughly(age)
                );
                self.done(&first).await;
                continue;
            }
            match self.post(&first.document).await {
                Ok(()) => {
                    if std::mem::take(&mut is_troubled) {
                        tracing::info!(webhook = self.shown(), "alarms are posted again");
                    }
                    self.done(&first).await;
                    (pause, refusals) = (PAUSE_FIRST, 0);
                }
                Err(refused) => {
                    refusals += u32::from(refused.is_final);
                    if refusals >= REFUSALS_MAX {
                        tracing::error!(
                            webhook = self.shown(),
                            "an alarm was refused {refusals} times and is dropped: {}",
                            refused.why
                        );
                        self.done(&first).await;
                        (pause, refusals) = (PAUSE_FIRST, 0);
                        continue;
                    }
                    if !std::mem::replace(&mut is_troubled, true) {
                        tracing::warn!(
                            webhook = self.shown(),
                            "an alarm could not be posted; it is tried again for a day: {}",
                            refused.why
                        );
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Takes the first away.
    async fn done(&self, first: &Waiting) {
        self.waiting.lock().pop_front();
        self.forget(first).await;
    }

    async fn forget(&self, waiting: &Waiting) {
        let Some(sequence) = waiting.sequence else { return };
        if let Err(error) = self.state.remove_notice(sequence).await {
            tracing::error!("an alarm may be posted once more after a restart: {error}");
        }
    }

    /// Posts one notice now, once.
    ///
    /// # Errors
    /// What came of it.
    pub(super) async fn try_once(&self, notice: &AlarmNotice) -> Result<(), String> {
        self.post(&document(notice)).await.map_err(|refused| refused.why)
    }

    async fn post(&self, document: &str) -> Result<(), Refused> {
        let failed = |why: String| Refused { why, is_final: false };
        let request = self.request(document).map_err(failed)?;
        let answer = tokio::time::timeout(ATTEMPT_MAX, self.exchange(request)).await;
        let answer = answer.map_err(|_| failed(format!("no answer within {} s", ATTEMPT_MAX.as_secs())))?;
        let answer = answer.map_err(failed)?;
        let status = answer.status;
        // Its head alone decides; whatever becomes of the rest is nothing but words for the log.
        let said = answer.said().await;
        if status.is_success() {
            return Ok(());
        }
        let is_final = status.is_client_error()
            && status != StatusCode::TOO_MANY_REQUESTS
            && status != StatusCode::REQUEST_TIMEOUT;
        let said = if said.is_empty() { String::new() } else { format!(": {said}") };
        Err(Refused { why: format!("{} answered {status}{said}", self.shown()), is_final })
    }

    fn request(&self, document: &str) -> Result<Request<Body>, String> {
        let mut request = Request::post(&self.config.path)
            .header(HOST, self.config.authority())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("farside/", env!("CARGO_PKG_VERSION")))
            .header(EVENT, event(document));
        if let Some(secret) = self.secret()? {
            request = request.header(SIGNATURE, signature(&secret, document.as_bytes()));
        }
        request
            .body(Body::from(document.to_owned()))
            .map_err(|error| format!("cannot make the request: {error}"))
    }

    /// What requests are signed with, read each time: it may be replaced while the daemon runs. A newline at its end is no part of it.
    fn secret(&self) -> Result<Option<hmac::Key>, String> {
        let Some(path) = &self.config.secret_file else { return Ok(None) };
        secret_of(path).map(|secret| Some(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Answer, String> {
        let WebhookConfig { host, port, is_tls, .. } = &self.config;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((bare, *port)).await;
        let stream = stream.map_err(|error| format!("cannot connect to {}: {error}", self.shown()))?;
        if !is_tls {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| format!("{bare}: {error}"))?;
        let connector = TlsConnector::from(Arc::new(self.tls()?));
        let stream = connector.connect(name, stream).await;
        exchange(stream.map_err(|error| format!("no TLS with {}: {error}", self.shown()))?, request).await
    }

    fn tls(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        let path = match &self.config.ca_file {
            Some(path) => path.clone(),
            None => {
                SYSTEM_AUTHORITIES.iter().map(std::path::PathBuf::from).find(|path| path.exists()).ok_or(
                    "this system has no list of authorities (ca-certificates); name one with webhook_ca_file",
                )?
            }
        };
        let failed = |why: String| format!("cannot read authorities from {}: {why}", path.display());
        let size = std::fs::metadata(&path).map_err(|error| failed(error.to_string()))?.len();
        if size > CA_BYTES_MAX {
            return Err(failed(format!("it has more than {CA_BYTES_MAX} bytes")));
        }
        let certificates = CertificateDer::pem_file_iter(&path).map_err(|error| failed(error.to_string()))?;
        let (taken, _) = roots.add_parsable_certificates(certificates.filter_map(Result::ok));
        if taken == 0 {
            return Err(failed(String::from("it holds no certificate")));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?;
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    }
}

/// An answer of which the head is there.
struct Answer {
    status: StatusCode,
    rest: Incoming,
    _connection: AbortOnDropHandle<hyper::Result<()>>,
}

impl Answer {
    /// What it says, for the log only: of what is too long, or does not end in time, nothing.
    async fn said(self) -> String {
        let read = axum::body::to_bytes(Body::new(self.rest), ANSWER_BYTES_MAX);
        let said = tokio::time::timeout(ANSWER_WITHIN, read).await;
        let said = said.ok().and_then(Result::ok).unwrap_or_default();
        String::from_utf8_lossy(&said).trim().chars().take(200).collect()
    }
}

/// One request on a connection of its own.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> Result<Answer, String> {
    let failed = |error: hyper::Error| format!("no answer: {error}");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(failed)?;
    Ok(Answer { status: response.status(), rest: response.into_body(), _connection: connection })
}

/// A notice as it is posted.
pub(super) fn document(notice: &AlarmNotice) -> String {
    // Only maps with keys that are no strings fail, and a notice has none.
    serde_json::to_string(notice).unwrap_or_default()
}

/// The event of a notice, from its document: what waited over a restart is nothing but that.
fn event(document: &str) -> String {
    let notice = serde_json::from_str::<AlarmNotice>(document);
    notice.map_or_else(|_| String::from("unknown"), |notice| notice.event.name().to_owned())
}

/// As the header has it.
fn signature(key: &hmac::Key, body: &[u8]) -> String {
    let tag = hmac::sign(key, body);
    tag.as_ref().iter().fold(String::from("sha256="), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests;
