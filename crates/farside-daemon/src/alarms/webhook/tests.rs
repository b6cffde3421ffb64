use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use farside_api::{Alarm, AlarmEvent, AlarmSeverity};
use farside_platform::{ManualClock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::settings::AlarmsTable;
use super::*;

fn notice(id: u64) -> AlarmNotice {
    AlarmNotice {
        event: AlarmEvent::Raised,
        site: "south".into(),
        notice_id: uuid::Uuid::from_u128(u128::from(id)),
        alarm: Alarm {
            id: id.to_string(),
            kind: "peer-gone".into(),
            subject: "north".into(),
            severity: AlarmSeverity::Warning,
            raised_at: farside_api::Timestamp::UNIX_EPOCH,
            cleared_at: None,
            acknowledged: false,
            message: "m".into(),
            hint: "h".into(),
        },
    }
}

/// A server that answers its requests with these statuses, one connection each, and then with 200. The answer with an
/// `endless` status does not end, and `nothing` is none.
struct Server {
    url: String,
    requests: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Server {
    async fn start(statuses: &[&'static str]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?a=b", listener.local_addr().unwrap());
        let (sent, requests) = tokio::sync::mpsc::unbounded_channel();
        let mut statuses: VecDeque<&'static str> = statuses.iter().copied().collect();
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                let status = statuses.pop_front().unwrap_or("200 OK");
                if let Some(status) = status.strip_prefix("endless ") {
                    let answer = format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n");
                    let _ = stream.write_all(answer.as_bytes()).await;
                    open.push(stream);
                } else if status != "nothing" {
                    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 4\r\n\r\nsaid");
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
                if sent.send(request).is_err() {
                    return;
                }
            }
        });
        Server { url, requests }
    }

    async fn next(&mut self) -> String {
        tokio::time::timeout(Duration::from_secs(60), self.requests.recv()).await.expect("a request").unwrap()
    }
}

/// One request, head and body.
async fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        let mut part = [0; 4096];
        match stream.read(&mut part).await.unwrap() {
            0 => return text,
            n => bytes.extend_from_slice(&part[..n]),
        }
    }
}

fn body(request: &str) -> &str {
    request.split_once("\r\n\r\n").unwrap().1
}

fn config(url: &str, secret: Option<&Path>) -> WebhookConfig {
    let secret = secret.map_or_else(String::new, |path| format!("webhook_secret_file = {path:?}\n"));
    let table: AlarmsTable = toml::from_str(&format!("webhook = {url:?}\n{secret}")).unwrap();
    table.resolve().unwrap().webhook.unwrap()
}

async fn state(directory: &Path) -> State {
    State::open(&directory.join("farside.db")).await.unwrap()
}

#[test]
fn the_signature_is_that_of_rfc_4231() {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
    assert_eq!(
        signature(&key, b"what do ya want for nothing?"),
        "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    );
}

#[tokio::test]
async fn notices_arrive_in_order_signed_and_again_until_they_are_taken() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "sesame\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let state = state(directory.path()).await;
    let mut server = Server::start(&["503 Service Unavailable", "nothing"]).await;
    let clock = Arc::new(SystemClock::default());
    let webhook = Arc::new(Webhook::load(config(&server.url, Some(&secret)), state.clone(), clock).await);
    webhook.add(&notice(1)).await;
    webhook.add(&notice(2)).await;
    let posting = Arc::clone(&webhook);
    let posting = tokio::spawn(async move { posting.keep_posting().await });
    let mut seen = Vec::new();
    for _ in 0..4 {
        let request = server.next().await;
        assert!(request.starts_with("POST /hook?a=b HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("farside-event: raised\r\n"), "{request}");
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"sesame");
        let header = format!("{SIGNATURE}: {}\r\n", signature(&key, body(&request).as_bytes()));
        assert!(request.contains(&header), "{request}");
        seen.push(serde_json::from_str::<AlarmNotice>(body(&request)).unwrap());
    }
    assert_eq!(seen, [notice(1), notice(1), notice(1), notice(2)]);
    let forgotten = async {
        while !state.notices().await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), forgotten).await.expect("what was taken is forgotten");
    posting.abort();
}

#[tokio::test]
async fn the_head_of_an_answer_decides_also_if_it_does_not_end() {
    let directory = tempfile::tempdir().unwrap();
    let state = state(directory.path()).await;
    let mut server =
        Server::start(&["endless 403 Forbidden", "endless 200 OK", "endless 202 Accepted"]).await;
    let clock = Arc::new(SystemClock::default());
    let webhook = Arc::new(Webhook::load(config(&server.url, None), state.clone(), clock).await);
    let document = document(&notice(1));
    let refused = tokio::time::timeout(ATTEMPT_MAX, webhook.post(&document)).await;
    let refused = refused.expect("the end of an answer is not waited for").unwrap_err();
    assert!(refused.is_final && refused.why.ends_with("answered 403 Forbidden"), "{}", refused.why);
    server.next().await;
    for id in 1..=3 {
        webhook.add(&notice(id)).await;
    }
    let posting = Arc::clone(&webhook);
    let posting = tokio::spawn(async move { posting.keep_posting().await });
    for id in 1..=3 {
        let request = server.next().await;
        assert_eq!(serde_json::from_str::<AlarmNotice>(body(&request)).unwrap(), notice(id));
    }
    posting.abort();
}

#[tokio::test]
async fn what_was_not_delivered_is_after_a_restart_unless_it_is_too_old() {
    let directory = tempfile::tempdir().unwrap();
    let state = state(directory.path()).await;
    let clock = Arc::new(ManualClock::new(Timestamp(1_000_000_000_000_000_000)));
    let mut server = Server::start(&[]).await;
    let config = config(&server.url, None);
    let before = Webhook::load(config.clone(), state.clone(), Arc::clone(&clock) as _).await;
    before.add(&notice(1)).await;
    clock.advance(TOO_OLD);
    before.add(&notice(2)).await;
    drop(before);
    clock.advance(Duration::from_secs(1));
    let after = Arc::new(Webhook::load(config, state.clone(), clock as _).await);
    let posting = Arc::clone(&after);
    let posting = tokio::spawn(async move { posting.keep_posting().await });
    let request = server.next().await;
    assert_eq!(serde_json::from_str::<AlarmNotice>(body(&request)).unwrap(), notice(2));
    assert!(!request.contains(SIGNATURE), "{request}");
    posting.abort();
}

#[tokio::test]
async fn the_queue_is_bounded_and_the_oldest_that_is_not_on_its_way_goes() {
    let directory = tempfile::tempdir().unwrap();
    let state = state(directory.path()).await;
    let clock = Arc::new(SystemClock::default());
    let webhook = Webhook::load(config("http://127.0.0.1:9", None), state.clone(), clock).await;
    {
        let mut waiting = webhook.waiting.lock();
        for id in 0..WAITING_MAX as u64 {
            let document = document(&notice(id)).into();
            waiting.push_back(Waiting { sequence: None, queued_at: webhook.clock.now(), document });
        }
    }
    webhook.add(&notice(5000)).await;
    let waiting = webhook.waiting.lock().clone();
    assert_eq!(waiting.len(), WAITING_MAX);
    let id = |waiting: &Waiting| serde_json::from_str::<AlarmNotice>(&waiting.document).unwrap().alarm.id;
    assert_eq!(
        (id(&waiting[0]), id(&waiting[1]), id(&waiting[WAITING_MAX - 1])),
        ("0".into(), "2".into(), "5000".into())
    );
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let state = state(directory.path()).await;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let secret = directory.path().join("secret");
    let server = Server::start(&["403 Forbidden"]).await;
    let load = async |secret: Option<&Path>| {
        Webhook::load(config(&server.url, secret), state.clone(), Arc::clone(&clock)).await
    };
    let said = load(None).await.try_once(&notice(1)).await.unwrap_err();
    assert!(said.contains("403 Forbidden: said"), "{said}");
    let said = load(Some(&secret)).await.try_once(&notice(1)).await.unwrap_err();
    assert!(said.contains("is not there"), "{said}");
    std::fs::write(&secret, "sesame").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o640)).unwrap();
    let said = load(Some(&secret)).await.try_once(&notice(1)).await.unwrap_err();
    assert!(said.contains("chmod 600"), "{said}");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    load(Some(&secret)).await.try_once(&notice(1)).await.unwrap();
    let gone = Webhook::load(config("http://127.0.0.1:1", None), state.clone(), Arc::clone(&clock)).await;
    let said = gone.try_once(&notice(1)).await.unwrap_err();
    assert!(said.contains("cannot connect to http://127.0.0.1:1"), "{said}");
}

/// A server with a certificate of an authority that `webhook_ca_file` names, and the same without that.
#[tokio::test]
async fn over_tls_the_server_must_be_believed() {
    let directory = tempfile::tempdir().unwrap();
    let state = state(directory.path()).await;
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, certificate.pem()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let private = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut part = [0; 8192];
            let _ = stream.read(&mut part).await;
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    });
    let text = format!("webhook = \"https://localhost:{port}/\"\nwebhook_ca_file = {ca:?}\n");
    let table: AlarmsTable = toml::from_str(&text).unwrap();
    let mut config = table.resolve().unwrap().webhook.unwrap();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let webhook = Webhook::load(config.clone(), state.clone(), Arc::clone(&clock)).await;
    webhook.try_once(&notice(1)).await.unwrap();
    // Another authority.
    let other = rcgen::CertificateParams::new(vec!["localhost".into()])
        .unwrap()
        .self_signed(&rcgen::KeyPair::generate().unwrap());
    std::fs::write(&ca, other.unwrap().pem()).unwrap();
    let said = webhook.try_once(&notice(1)).await.unwrap_err();
    assert!(said.contains("no TLS with https://localhost"), "{said}");
    config.ca_file = Some(directory.path().join("absent.pem"));
    let webhook = Webhook::load(config, state, clock).await;
    assert!(webhook.try_once(&notice(1)).await.unwrap_err().contains("absent.pem"));
}
