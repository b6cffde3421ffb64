//! A real listener, and clients that take their time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Router, middleware};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

use super::{Guests, Manners, Visit, attend};

const PATIENCE: Duration = Duration::from_secs(60);
/// How long clients may be silent, where that is what is looked at.
const SHORT: Duration = Duration::from_millis(600);
/// Answers that take longer than that.
const LONG: Duration = Duration::from_millis(1500);

type Begun = Arc<AtomicUsize>;

async fn long(State(begun): State<Begun>) -> &'static str {
    begun.fetch_add(1, Ordering::Relaxed);
    tokio::time::sleep(LONG).await;
    "at last"
}

/// An answer whose pieces are as far apart as that.
async fn pieces() -> Body {
    let (mut to, from) = tokio::io::duplex(64);
    tokio::spawn(async move {
        for _ in 0..3 {
            tokio::time::sleep(LONG / 3).await;
            let _ = to.write_all(b"piece").await;
        }
    });
    Body::from_stream(tokio_util::io::ReaderStream::new(from))
}

async fn length(body: Bytes) -> String {
    body.len().to_string()
}

struct Server {
    socket: std::path::PathBuf,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<std::io::Result<()>>,
    begun: Begun,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start(places: usize, silence_max: Duration) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("door");
        let stop = CancellationToken::new();
        let manners = Manners {
            places,
            places_each: places,
            header: silence_max,
            idle: silence_max,
            stall: silence_max,
            life: None,
            header_bytes: 64 << 10,
        };
        let begun = Begun::default();
        let guests = Guests::new(UnixListener::bind(&socket).unwrap(), manners, stop.clone());
        let routes = Router::new()
            .route("/long", get(long))
            .route("/pieces", get(pieces))
            .route("/much", get(async || Body::from(vec![b'x'; 64 << 20])))
            .route("/length", post(length));
        let routes = routes.with_state(Arc::clone(&begun)).layer(middleware::from_fn(attend));
        let server = axum::serve(guests, routes.into_make_service_with_connect_info::<Visit>())
            .with_graceful_shutdown(stop.clone().cancelled_owned());
        let running = tokio::spawn(server.into_future());
        Server { socket, stop, running, begun, _directory: directory }
    }

    /// Waits until so many long answers have begun.
    async fn answers(&self, count: usize) {
        let begun = async {
            while self.begun.load(Ordering::Relaxed) < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(PATIENCE, begun).await.expect("the request has begun");
    }

    async fn says(&self, words: &str) -> UnixStream {
        let mut stream = UnixStream::connect(&self.socket).await.unwrap();
        stream.write_all(words.as_bytes()).await.unwrap();
        stream
    }
}

fn request(method: &str, path: &str, more: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nhost: x\r\n{more}\r\n")
}

/// All that comes until the server closes; a reset is an end.
async fn all(mut stream: UnixStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it is closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn who_keeps_silent_is_closed_and_who_is_answered_is_not() {
    let server = Server::start(8, SHORT);
    // Each ends: says nothing, half a header, half a body, has been answered, does not read its answer.
    let silent = [
        String::new(),
        "GET /long HT".into(),
        request("POST", "/length", "content-length: 9\r\n") + "half",
        request("POST", "/length", "content-length: 4\r\n") + "full",
    ];
    let mut waiting = Vec::new();
    for words in silent {
        waiting.push((all(server.says(&words).await), words));
    }
    for (answer, words) in waiting {
        let answer = answer.await;
        assert_eq!(answer.contains("200 OK"), words.ends_with("full"), "{words}: {answer}");
    }
    let stuck = server.says(&request("GET", "/much", "")).await;
    tokio::time::sleep(2 * SHORT).await;
    let answer = all(stuck).await;
    assert!(answer.len() < 64 << 20, "cut off after {}", answer.len());

    let long = server.says(&request("GET", "/long", &"x: y\r\n".repeat(16 << 10))).await;
    assert!(!all(long).await.contains("200 OK"), "a header without end");

    let close = "connection: close\r\n";
    assert!(all(server.says(&request("GET", "/long", close)).await).await.ends_with("at last"));
    assert!(all(server.says(&request("GET", "/pieces", close)).await).await.contains("piece"));
    // A body that comes slowly, but comes.
    let mut slow =
        server.says(&request("POST", "/length", "connection: close\r\ncontent-length: 8\r\n")).await;
    for _ in 0..8 {
        tokio::time::sleep(SHORT / 6).await;
        slow.write_all(b"x").await.unwrap();
    }
    assert!(all(slow).await.ends_with("\r\n8"));
}

#[tokio::test]
async fn a_newcomer_gets_the_place_of_who_has_been_silent_longest() {
    let server = Server::start(2, PATIENCE);
    let busy = server.says(&request("GET", "/long", "connection: close\r\n")).await;
    server.answers(1).await;
    let first = server.says("GET /lo").await;
    let mut second =
        server.says(&request("POST", "/length", "connection: close\r\ncontent-length: 1\r\n")).await;
    assert_eq!(all(first).await, "");
    second.write_all(b"x").await.unwrap();
    assert!(all(second).await.ends_with("\r\n1"));
    assert!(all(busy).await.ends_with("at last"), "it was being answered, and kept its place");
}

#[tokio::test]
async fn a_stop_waits_for_who_is_being_answered_alone() {
    let server = Server::start(8, PATIENCE);
    let _silent = [server.says("").await, server.says("GET /lo").await];
    let _half = server.says(&(request("POST", "/length", "content-length: 9\r\n") + "half")).await;
    let busy = server.says(&request("GET", "/long", "")).await;
    server.answers(1).await;
    server.stop.cancel();
    assert!(all(busy).await.ends_with("at last"));
    tokio::time::timeout(PATIENCE / 2, server.running).await.expect("it stops").unwrap().unwrap();
}

/// Of one address several connections, of another one.
#[tokio::test]
async fn an_address_has_its_own_places_and_no_others() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let manners = Manners {
        places: 3,
        places_each: 2,
        header: PATIENCE,
        idle: PATIENCE,
        stall: PATIENCE,
        life: None,
        header_bytes: 64 << 10,
    };
    let begun = Begun::default();
    let routes = Router::new().route("/long", get(long)).route("/length", post(length));
    let routes = routes.with_state(Arc::clone(&begun)).layer(middleware::from_fn(attend));
    let guests = Guests::new(listener, manners, CancellationToken::new());
    tokio::spawn(axum::serve(guests, routes.into_make_service_with_connect_info::<Visit>()).into_future());
    let says = async |from: [u8; 4], words: &str| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(at).await.unwrap();
        let _ = stream.write_all(words.as_bytes()).await;
        stream
    };
    let all = async |mut stream: TcpStream| {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(PATIENCE / 2, stream.read_to_end(&mut bytes));
        let _ = read.await.expect("it is closed");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (near, far) = ([127, 0, 0, 2], [127, 0, 0, 3]);
    let other = says(far, &request("POST", "/length", "connection: close\r\ncontent-length: 1\r\n")).await;
    let silent = says(near, "GET /lo").await;
    let close = "connection: close\r\n";
    let mut answered = Vec::new();
    for count in 1..=2 {
        answered.push(says(near, &request("GET", "/long", close)).await);
        while begun.load(Ordering::Relaxed) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert_eq!(
        all(silent).await,
        "",
        "its own connection made room, though the other address was silent for longer"
    );
    assert_eq!(
        all(says(near, &request("GET", "/long", close)).await).await,
        "",
        "both of its places are in use"
    );
    let mut other = other;
    other.write_all(b"x").await.unwrap();
    assert!(all(other).await.ends_with("\r\n1"));
    for answer in answered {
        assert!(all(answer).await.ends_with("at last"));
    }
}
