//! Clients that send nonsense, leave in the middle, do not listen, or ask for what they may not have. After each,
//! the server serves the next client.
#![allow(clippy::unwrap_used)] // a failure here is a failed test

mod support;

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use farside_nbd::{Limits, Server};
use parking_lot::Mutex;
use support::memory::{MemoryExport, MemorySource};
use support::raw::*;
use support::serve::{PATIENCE, TestServer, ended, serve_pair, server_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;

fn export() -> Arc<MemoryExport> {
    Arc::new(MemoryExport::new(MIB))
}

/// The server answers a well-behaved client.
async fn assert_serves(server: &TestServer) {
    let mut client = RawClient::open(&server.socket, "pool/volume", true).await;
    assert_eq!(client.write(0, 8, b"still here").await.error, 0);
    let answer = client.command(0, READ, 8, 10).await;
    assert_eq!(answer.chunks[0].1[8..], *b"still here");
}

/// All that this process logged.
fn log() -> &'static Mutex<Vec<u8>> {
    static LOG: OnceLock<&'static Mutex<Vec<u8>>> = OnceLock::new();
    struct Lines(&'static Mutex<Vec<u8>>);
    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    LOG.get_or_init(|| {
        let log: &'static Mutex<Vec<u8>> = Box::leak(Box::default());
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || Lines(log)).init();
        log
    })
}

/// Serves one stream on which `bytes` arrive and then the end, and returns the lines logged about it.
async fn lines_about(peer: &str, bytes: &[u8]) -> Vec<String> {
    let log = log();
    let source = MemorySource::default().with("pool/volume", &export());
    let server = Server::new(Arc::new(source), Limits::default()).unwrap();
    let (mut client, stream) = tokio::io::duplex(1 << 20);
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let (reader, writer) = tokio::io::split(stream);
    let shutdown = CancellationToken::new();
    let served = server.serve_stream(reader, writer, peer, &shutdown);
    tokio::time::timeout(PATIENCE, served).await.expect("the connection ends");
    let text = String::from_utf8(log.lock().clone()).unwrap();
    text.lines().filter(|line| line.contains(peer)).map(str::to_owned).collect()
}

fn handshake(export: &str) -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(option(OPT_STRUCTURED_REPLY, &[]));
    bytes.extend(option(OPT_GO, &go(export)));
    bytes
}

#[tokio::test]
async fn garbage_is_named_in_the_log() {
    let web = lines_about("a web browser", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(web.len(), 1, "{web:#?}");
    assert!(web[0].contains("WARN") && web[0].contains("does not speak NBD"), "{}", web[0]);

    let mut bytes = handshake("pool/volume");
    bytes.extend(request(0, READ, 1, 0, 512));
    bytes.extend([0x5a; 28]);
    let lost = lines_about("a lost client", &bytes).await;
    let warning = lost.iter().find(|line| line.contains("WARN")).expect("a warning");
    assert!(warning.contains("expected request magic 0x25609513, found 0x5a5a5a5a"), "{warning}");

    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend([0xff; 16]);
    let warned = lines_about("an odd client", &bytes).await;
    assert!(warned[0].contains("expected option magic"), "{warned:#?}");

    // A client that only looks whether the socket is there is no warning's worth.
    let probe = lines_about("a probe", b"").await;
    assert!(!probe.iter().any(|line| line.contains("WARN")), "{probe:#?}");
}

#[tokio::test]
async fn a_client_may_leave_after_any_byte() {
    let mut bytes = handshake("pool/volume");
    bytes.extend(request(0, WRITE, 1, 0, 16));
    bytes.extend([7; 16]);
    bytes.extend(request(0, FLUSH, 2, 0, 0));
    let whole = bytes.len();
    for cut in 0..=whole {
        let export = export();
        let source = MemorySource::default().with("pool/volume", &export);
        let server = Server::new(Arc::new(source), Limits::default()).unwrap();
        let (mut client, stream) = tokio::io::duplex(1 << 16);
        client.write_all(&bytes[..cut]).await.unwrap();
        client.shutdown().await.unwrap();
        let (reader, writer) = tokio::io::split(stream);
        let shutdown = CancellationToken::new();
        let served = server.serve_stream(reader, writer, "a leaver", &shutdown);
        tokio::time::timeout(PATIENCE, served).await.unwrap_or_else(|_| panic!("hangs when cut at {cut}"));
        let whole_write = cut >= whole - 28;
        let writes = export.count(|call| call.name == "write");
        assert_eq!(writes, usize::from(whole_write), "only a write that came whole is done, cut at {cut}");
        assert_eq!(export.bytes(0, 16) == [7; 16], whole_write);
        assert_eq!(export.count(|call| call.name == "flush"), usize::from(cut == whole));
    }
}

#[tokio::test]
async fn a_silent_client_does_not_keep_its_place() {
    let limits = Limits { handshake_max: Duration::from_millis(50), ..Limits::default() };
    let server = TestServer::start(MemorySource::default().with("pool/volume", &export()), limits);
    let mut client = RawClient::connect(&server.socket).await;
    assert_eq!(client.take_to_end().await, b"");
    server.stop().await;
}

#[tokio::test]
async fn options_are_bounded_in_length_and_number() {
    let server = TestServer::of(&export());
    let mut client = RawClient::connect(&server.socket).await;
    client.send(&3_u32.to_be_bytes()).await;
    client.send(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff").await;
    assert_eq!(client.take_to_end().await, b"");

    let mut client = RawClient::connect(&server.socket).await;
    client.send(&3_u32.to_be_bytes()).await;
    let mut answered = 0;
    let closed = async {
        while client.stream.write_all(&option(99, b"?")).await.is_ok() {
            let mut header = [0; 20];
            if client.stream.read_exact(&mut header).await.is_err() {
                break;
            }
            let length = u32::from_be_bytes(header[16..].try_into().unwrap()) as usize;
            client.take(length).await;
            answered += 1;
        }
    };
    tokio::time::timeout(PATIENCE, closed).await.expect("closed at last");
    assert_eq!(answered, 1 << 16);
    assert_serves(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn options_unknown_or_malformed_are_refused_and_the_handshake_goes_on() {
    let server = TestServer::of(&export());
    let mut client = RawClient::connect(&server.socket).await;
    client.send(&3_u32.to_be_bytes()).await;
    for starttls_extended_headers_nonsense in [5, 11, 4711] {
        assert_eq!(client.option(starttls_extended_headers_nonsense, &[]).await[0].0, REP_ERR_UNSUP);
    }
    assert_eq!(client.option(OPT_GO, &[0, 0, 0, 200, b'x']).await[0].0, REP_ERR_INVALID);
    assert_eq!(client.option(OPT_STRUCTURED_REPLY, b"data").await[0].0, REP_ERR_INVALID);
    assert_eq!(client.option(OPT_GO, &go("pool/other")).await[0].0, REP_ERR_UNKNOWN);
    let mut contexts = string("pool/volume");
    contexts.extend([0; 4]);
    let early = client.option(OPT_SET_META_CONTEXT, &contexts).await;
    assert_eq!(early[0].0, REP_ERR_INVALID, "contexts before structured replies");
    let answers = client.option(OPT_GO, &go("pool/volume")).await;
    assert_eq!(answers.last().unwrap().0, REP_ACK);
    server.stop().await;
}

#[tokio::test]
async fn an_export_name_that_is_refused_ends_the_connection() {
    let server = TestServer::of(&export());
    let mut client = RawClient::connect(&server.socket).await;
    client.send(&1_u32.to_be_bytes()).await;
    client.send(&option(OPT_EXPORT_NAME, b"pool/other")).await;
    assert_eq!(client.take_to_end().await, b"");

    let mut client = RawClient::connect(&server.socket).await;
    client.send(&3_u32.to_be_bytes()).await;
    assert_eq!(client.option(OPT_ABORT, &[]).await, [(REP_ACK, vec![])]);
    assert_eq!(client.take_to_end().await, b"");
    server.stop().await;
}

#[tokio::test]
async fn commands_out_of_range_are_refused_and_the_stream_stays_in_step() {
    let export = export();
    let server = TestServer::of(&export);
    for structured in [false, true] {
        let mut client = RawClient::open(&server.socket, "pool/volume", structured).await;
        assert_eq!(client.command(0, READ, MIB - 1, 2).await.error, EINVAL);
        assert_eq!(client.command(0, READ, u64::MAX, 1).await.error, EINVAL);
        assert_eq!(client.command(0, READ, 0, 0).await.error, EINVAL);
        assert_eq!(client.command(0, READ, 0, u32::MAX).await.error, EINVAL);
        assert_eq!(client.write(0, MIB - 1, b"ab").await.error, ENOSPC);
        assert_eq!(client.command(0, WRITE_ZEROES, 1, MIB as u32).await.error, ENOSPC);
        assert_eq!(client.command(0, TRIM, MIB, 1).await.error, EINVAL);
        assert_eq!(client.command(0, 8, 0, 1).await.error, EINVAL, "RESIZE was not offered");
        assert_eq!(client.command(1 << 9, READ, 0, 1).await.error, EINVAL, "an unknown flag");
        assert_eq!(client.command(0, READ, MIB - 1, 1).await.error, 0);
    }
    assert_eq!(export.count(|call| call.name != "read"), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_write_beyond_the_limit_is_refused_and_ends_the_connection() {
    let export = Arc::new(MemoryExport::new(1 << 40));
    let server = TestServer::of(&export);
    let mut client = RawClient::open(&server.socket, "pool/volume", false).await;
    client.send(&request(0, WRITE, 5, 0, u32::MAX)).await;
    assert_eq!(client.answer(0).await.error, EINVAL);
    assert_eq!(client.take_to_end().await, b"");
    assert_eq!(export.calls(), []);
    assert_serves(&server).await;
    server.stop().await;
}

#[tokio::test]
async fn changes_to_a_read_only_export_are_refused() {
    let export = Arc::new(MemoryExport::new(MIB).read_only());
    let server = TestServer::of(&export);
    for structured in [false, true] {
        let mut client = RawClient::open(&server.socket, "pool/volume", structured).await;
        assert_eq!(client.write(0, 0, &[1; 9000]).await.error, EPERM);
        assert_eq!(client.command(0, TRIM, 0, 4096).await.error, EPERM);
        assert_eq!(client.command(0, WRITE_ZEROES, 0, 4096).await.error, EPERM);
        assert_eq!(client.command(0, FLUSH, 0, 0).await.error, 0);
        assert_eq!(client.command(0, READ, 0, 4).await.error, 0);
    }
    assert_eq!(export.count(|call| !["read", "flush"].contains(&call.name)), 0);
    server.stop().await;
}

#[tokio::test]
async fn a_half_closed_client_gets_all_its_answers() {
    let export = export();
    export.fill(0, &[9; 4096]);
    let server = TestServer::of(&export);
    let mut client = RawClient::open(&server.socket, "pool/volume", false).await;
    for cookie in 0..40 {
        client.send(&request(0, READ, cookie, 0, 4096)).await;
    }
    client.stream.shutdown().await.unwrap();
    let mut cookies = Vec::new();
    for _ in 0..40 {
        let answer = client.answer(4096).await;
        assert_eq!(answer.chunks[0].1, [9; 4096]);
        cookies.push(answer.cookie);
    }
    cookies.sort_unstable();
    assert_eq!(cookies, (0..40).collect::<Vec<_>>());
    assert_eq!(client.take_to_end().await, b"");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_no_replies_is_given_up_and_harms_no_other() {
    let limits = Limits { reply_stall_max: Duration::from_millis(200), ..Limits::default() };
    let export = Arc::new(MemoryExport::new(64 * MIB));
    let server = server_of(&export, limits);
    let shutdown = CancellationToken::new();
    let (deaf, given_up) = serve_pair(&server, &shutdown);
    let mut deaf = RawClient::opened(deaf, "pool/volume", false).await;
    for cookie in 0..8 {
        deaf.send(&request(0, READ, cookie, 0, 16 << 20)).await;
    }
    let (other, _) = serve_pair(&server, &shutdown);
    let mut other = RawClient::opened(other, "pool/volume", true).await;
    assert_eq!(other.command(0, READ, 0, 512).await.error, 0);
    ended(given_up).await;
    let reads = export.count(|call| call.name == "read" && call.length == 16 << 20);
    assert_eq!(reads, 2, "two fill what one connection may have in flight");
    assert!(deaf.take_to_end().await.len() < 16 << 20, "the kernel's share of the first");
    assert_eq!(other.command(0, READ, 0, 512).await.error, 0);
}

/// Clients that send the header of a write of 32 MiB each, and nothing of its payload: all that the server has for everybody.
async fn frozen_writers(server: &TestServer) -> Vec<RawClient> {
    let mut frozen = Vec::new();
    for _ in 0..16 {
        let mut client = RawClient::open(&server.socket, "pool/volume", false).await;
        client.send(&request(0, WRITE, 1, 0, 32 << 20)).await;
        frozen.push(client);
    }
    frozen
}

#[tokio::test]
async fn half_sent_writes_leave_everybody_else_a_share() {
    let log = log();
    let limits = Limits { wait_logged_after: Duration::from_millis(50), shares_max: 1, ..Limits::default() };
    let export = Arc::new(MemoryExport::new(64 * MIB));
    let server = TestServer::start(MemorySource::default().with("pool/volume", &export), limits);
    let mut other = RawClient::open(&server.socket, "pool/volume", true).await;
    let frozen = frozen_writers(&server).await;
    // Who comes when all large shares are taken has a small one.
    let mut late = RawClient::open(&server.socket, "pool/volume", true).await;
    for _ in 0..200 {
        assert_eq!(late.command(0, READ, 0, 4096).await.error, 0);
    }
    for _ in 0..200 {
        assert_eq!(other.command(0, READ, 0, 4096).await.error, 0);
        assert_eq!(other.write(0, 4096, &[1; 512]).await.error, 0);
    }
    // More than a share waits, and the log says for whom.
    other.send(&request(0, READ, 9, 0, 8 << 20)).await;
    let told = async {
        loop {
            let text = String::from_utf8(log.lock().clone()).unwrap();
            if let Some(line) =
                text.lines().find(|line| line.contains("for room to serve a command of 8192 KiB"))
            {
                return line.to_owned();
            }
            tokio::task::yield_now().await;
        }
    };
    let line = tokio::time::timeout(PATIENCE, told).await.expect("the log says who waits");
    assert!(line.contains("WARN") && line.contains("of pool/volume holds 32768 KiB"), "{line}");
    assert!(line.contains("has sent nothing of a write for") && line.contains("12 others"), "{line}");
    drop(frozen);
    assert_eq!(other.answer(8 << 20).await.error, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_half_a_write_is_given_up() {
    let limits = Limits { payload_stall_max: Duration::from_millis(200), ..Limits::default() };
    let export = Arc::new(MemoryExport::new(64 * MIB));
    let server = TestServer::start(MemorySource::default().with("pool/volume", &export), limits);
    for mut frozen in frozen_writers(&server).await {
        assert_eq!(frozen.take_to_end().await, b"");
    }
    // The payload of a write that was refused is as long on its way.
    let mut refused = RawClient::open(&server.socket, "pool/volume", false).await;
    refused.send(&request(0, WRITE, 5, 64 * MIB, 4096)).await;
    assert_eq!(refused.answer(0).await.error, ENOSPC);
    assert_eq!(refused.take_to_end().await, b"");
    assert_eq!(export.count(|call| call.name == "write"), 0);
    assert_serves(&server).await;
    server.stop().await;
}

/// Of pools of connections, and of clients that forget theirs.
#[tokio::test]
async fn thousands_of_idle_connections_keep_nobody_out() {
    farside_platform::raise_open_files().unwrap();
    // Both ends of each are here.
    let idle = farside_platform::open_files_max().map_or(2000, |files| (files as usize / 2 - 200).min(2000));
    let export = Arc::new(MemoryExport::new(64 * MIB));
    let server = TestServer::start(MemorySource::default().with("pool/volume", &export), Limits::default());
    let mut clients = Vec::new();
    for _ in 0..idle {
        clients.push(RawClient::open(&server.socket, "pool/volume", true).await);
    }
    clients.push(RawClient::open(&server.socket, "pool/volume", true).await);
    for at in [0, idle - 1, idle] {
        assert_eq!(clients[at].command(0, READ, 0, 4096).await.error, 0);
        // Longer than a share: from the budget.
        assert_eq!(clients[at].command(0, READ, 0, 1 << 20).await.error, 0);
    }
    server.stop().await;
}

#[tokio::test]
async fn connections_are_limited() {
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let server = TestServer::start(MemorySource::default().with("pool/volume", &export()), limits);
    let mut first = RawClient::open(&server.socket, "pool/volume", true).await;
    let mut second = RawClient {
        stream: tokio::net::UnixStream::connect(&server.socket).await.unwrap(),
        structured: false,
    };
    assert_eq!(second.take_to_end().await, b"");
    first.send(&request(0, DISC, 0, 0, 0)).await;
    assert_eq!(first.take_to_end().await, b"");
    // The place is free when the server has noticed that its client is gone, which is after the client knows.
    let free = async {
        loop {
            let mut third = tokio::net::UnixStream::connect(&server.socket).await.unwrap();
            if third.read_exact(&mut [0; 18]).await.is_ok() {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, free).await.expect("the place becomes free");
    server.stop().await;
}
