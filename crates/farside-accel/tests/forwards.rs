//! Two boxes in one process, over loopback, with explicit forwards: what a taken connection promises, without privilege.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod pair;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farside_accel::policy::{Action, Demotion};
use pair::{PATIENCE, Pair, free_port, noise, seed, until};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

/// A server that gives back what it gets, after the client has said all.
async fn echo() -> SocketAddr {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // With the usual 128 a burst of clients is reset by the kernel.
    let listener = socket.listen(4096).unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut all = Vec::new();
                if socket.read_to_end(&mut all).await.is_ok() {
                    let _ = socket.write_all(&all).await;
                    let _ = socket.shutdown().await;
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_half_closed_brings_everything_back() {
    let pair = Pair::start(echo().await).await;
    let sent = noise(5_000_000, seed());
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    client.write_all(&sent).await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(PATIENCE, client.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == sent);
    drop(client);
    until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
    until("there neither", || pair.far.accelerator.connections.open() == 0).await;
    let (original, wire) = pair.near.accelerator.connections.bytes();
    assert_eq!(original, 10_000_000);
    // F20: no more than 0.5 % larger. What the streams of the session add is not in it.
    assert!(wire <= original + original / 200, "{wire}");
}

/// Sends all, and gets it back.
async fn round_trip(port: SocketAddr, sent: &[u8]) {
    let mut client = TcpStream::connect(port).await.unwrap();
    client.write_all(sent).await.unwrap();
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    timeout(2 * PATIENCE, client.read_to_end(&mut got)).await.unwrap().unwrap();
    assert!(got == sent, "{} of {} bytes came back", got.len(), sent.len());
}

/// What the connections of a pair have cost since.
fn cost(pair: &Pair, since: (u64, u64)) -> (u64, u64) {
    let (original, wire) = pair.near.accelerator.connections.bytes();
    (original - since.0, wire - since.1)
}

/// Text of many words: it gets smaller, and does not repeat by much.
fn words(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut text = Vec::with_capacity(bytes + 10);
    while text.len() < bytes {
        text.extend_from_slice(format!("{} ", random.next_u32() % 50_000).as_bytes());
    }
    text.truncate(bytes);
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_passed_before_passes_as_references() {
    let pair = Pair::start_with_stores(echo().await).await;
    let noise = noise(8_000_000, seed());
    let none = (0, 0);
    round_trip(pair.port, &noise).await;
    let (original, cold) = cost(&pair, none);
    assert_eq!(original, 16_000_000);
    // There as noise, and back as references to what has just been there.
    assert!(cold < 8_500_000, "{cold}");
    let before = pair.near.accelerator.connections.bytes();
    // The far side says what it holds within a twentieth of a second.
    sleep(Duration::from_millis(300)).await;
    round_trip(pair.port, &noise).await;
    let (_, warm) = cost(&pair, before);
    assert!(warm < 100_000, "{warm} bytes for what both have");
}

#[tokio::test(flavor = "multi_thread")]
async fn text_gets_smaller_and_stays_right() {
    let pair = Pair::start_with_stores(echo().await).await;
    let text = words(6_000_000, seed());
    round_trip(pair.port, &text).await;
    let (original, wire) = cost(&pair, (0, 0));
    assert!(wire < original / 3, "{wire} of {original}");
    for size in [0, 1, 2, 511, 512, 513, 4095, 65_535, 65_536, 65_537, 1_048_577] {
        round_trip(pair.port, &text[..size]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_cleared_store_lacks_is_asked_for() {
    let pair = Pair::start_with_stores(echo().await).await;
    let noise = noise(6_000_000, seed());
    round_trip(pair.port, &noise).await;
    sleep(Duration::from_millis(300)).await;
    // The near side still believes that the far side has it: it is asked for at once, before the news arrives.
    pair.far.accelerator.clear_store(None).unwrap();
    round_trip(pair.port, &noise).await;
    pair.near.accelerator.clear_store(Some("peer")).unwrap();
    round_trip(pair.port, &noise).await;
    assert!(pair.near.accelerator.clear_store(Some("nobody")).is_err());
    sleep(Duration::from_millis(300)).await;
    let before = pair.near.accelerator.connections.bytes();
    round_trip(pair.port, &noise).await;
    let (_, warm) = cost(&pair, before);
    assert!(warm < 200_000, "{warm}: it is warm again");
}

/// A connection through a pair, and its other end.
async fn connected(pair: &Pair, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(pair.port).await.unwrap();
    let (server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    (client, server)
}

/// Sends all one way.
async fn one_way(from: &mut TcpStream, to: &mut TcpStream, sent: &[u8]) {
    let mut got = vec![0; sent.len()];
    let both = async { tokio::try_join!(from.write_all(sent), to.read_exact(&mut got)) };
    timeout(PATIENCE, both).await.unwrap().unwrap();
    assert!(got == sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_encrypted_goes_as_it_is_and_leaves_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start_with_stores(listener.local_addr().unwrap()).await;
    // A ClientHello, as far as it is looked at.
    let mut hello = vec![22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    hello.resize(205, 7);
    let (mut client, mut server) = connected(&pair, &listener).await;
    one_way(&mut client, &mut server, &hello).await;
    // Even text that follows: nobody looks at it any more.
    one_way(&mut client, &mut server, &words(1_000_000, seed())).await;
    for accelerator in [&pair.near.accelerator, &pair.far.accelerator] {
        let shown = &accelerator.connections.shown()[0];
        assert_eq!((shown.applied, shown.reason), (Action::Transport, Some(Demotion::Encrypted)));
        assert!(shown.wire_bytes >= 1_000_000, "{}", shown.wire_bytes);
        sleep(Duration::from_millis(500)).await;
        let store = accelerator.status().store.unwrap();
        assert_eq!((store.chunks, store.lookups), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gets_no_smaller_is_still_found_again_and_text_after_it_gets_smaller() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start_with_stores(listener.local_addr().unwrap()).await;
    let (noise, text) = (noise(3_000_000, seed()), words(1_000_000, seed()));
    let (mut client, mut server) = connected(&pair, &listener).await;
    one_way(&mut client, &mut server, &noise).await;
    for accelerator in [&pair.near.accelerator, &pair.far.accelerator] {
        let shown = &accelerator.connections.shown()[0];
        assert_eq!((shown.applied, shown.reason), (Action::Dre, Some(Demotion::Incompressible)));
    }
    // The next file on the same connection, after a pause.
    let before = pair.near.accelerator.connections.bytes();
    sleep(Duration::from_millis(300)).await;
    one_way(&mut client, &mut server, &text).await;
    let (_, wire) = cost(&pair, before);
    assert!(wire < 500_000, "{wire} bytes for text after noise");
    assert_eq!(pair.near.accelerator.connections.shown()[0].reason, None);
    // And the noise once more, on another one.
    let (mut client, mut server) = connected(&pair, &listener).await;
    let before = pair.near.accelerator.connections.bytes();
    one_way(&mut client, &mut server, &noise).await;
    let (_, wire) = cost(&pair, before);
    assert!(wire < 50_000, "{wire} bytes for noise that both have");
}

/// An archive of pictures and their descriptions.
#[tokio::test(flavor = "multi_thread")]
async fn text_between_what_gets_no_smaller_gets_smaller() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start_with_stores(listener.local_addr().unwrap()).await;
    let seed = seed();
    let (noise_each, text_each, pieces) = (600_000, 300_000, 6);
    let mixed: Vec<u8> = (0..pieces)
        .flat_map(|n| [noise(noise_each, seed + n), words(text_each, seed + n)].concat())
        .collect();
    let (mut client, mut server) = connected(&pair, &listener).await;
    one_way(&mut client, &mut server, &mixed).await;
    let (_, wire) = cost(&pair, (0, 0));
    // Words take less than a half; of each text the first part or two may pass with the noise before them.
    let most = pieces * (noise_each as u64 * 101 / 100 + text_each as u64 * 3 / 4);
    assert!(wire < most, "{wire} bytes, of {most} at most, for {}", mixed.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn many_flows_share_what_passes_and_all_arrive() {
    let pair = Arc::new(Pair::start_with_stores(echo().await).await);
    let seed = seed();
    let common = Arc::new(words(2_000_000, seed));
    let flows: Vec<_> = (0..200u64)
        .map(|n| {
            let (pair, common) = (Arc::clone(&pair), Arc::clone(&common));
            tokio::spawn(async move {
                let own = noise((n as usize * 977) % 20_000, seed + n);
                let from = (n as usize * 31_337) % 1_500_000;
                let sent = [&own, &common[from..from + 200_000], &own].concat();
                round_trip(pair.port, &sent).await;
            })
        })
        .collect();
    for flow in flows {
        timeout(4 * PATIENCE, flow).await.unwrap().unwrap();
    }
    until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
    until("there neither", || pair.far.accelerator.connections.open() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_resets_the_client() {
    let nobody = free_port().await;
    let pair = Pair::start(nobody).await;
    for port in [pair.port, pair.closed] {
        // The reset may come before the connection was seen to stand.
        let read = async { TcpStream::connect(port).await?.read(&mut [0; 1]).await };
        let read = timeout(PATIENCE, read).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert_eq!(pair.far.accelerator.connections.open(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_on_either_side_is_one_on_the_other() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    for by_client in [true, false] {
        let client = TcpStream::connect(pair.port).await.unwrap();
        let (server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        let (leaver, mut stayer) = if by_client { (client, server) } else { (server, client) };
        SockRef::from(&leaver).set_linger(Some(Duration::ZERO)).unwrap();
        drop(leaver);
        let read = timeout(PATIENCE, stayer.read(&mut [0; 1])).await.unwrap();
        assert_eq!(
            read.unwrap_err().kind(),
            std::io::ErrorKind::ConnectionReset,
            "by the client: {by_client}"
        );
    }
    until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
}

/// Whether all that was written has been acknowledged, as the kernel shows it (ss -tn; bytes in the send queue).
fn is_acknowledged(socket: &TcpStream) -> bool {
    let of = |address: SocketAddr| {
        let SocketAddr::V4(v4) = address else { panic!("IPv4") };
        // As the kernel prints it where the least byte comes first.
        format!("{:08X}:{:04X}", u32::from_le_bytes(v4.ip().octets()), v4.port())
    };
    let ends = (of(socket.local_addr().unwrap()), of(socket.peer_addr().unwrap()));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let line = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let queue = line.filter(|words| (words[1], words[2]) == (&ends.0, &ends.1)).map(|words| words[4]).next();
    queue.unwrap().starts_with("00000000:")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_does_not_overtake_what_was_acknowledged() {
    let sent = [words(300_000, seed()), noise(300_000, seed())].concat();
    for has_stores in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // What is sent last is on the slower way.
        let delay = Duration::from_millis(40);
        let pair = Pair::start_in(listener.local_addr().unwrap(), has_stores, delay).await;
        for by_client in [true, false] {
            let (client, server) = connected(&pair, &listener).await;
            let (mut leaver, mut stayer) = if by_client { (client, server) } else { (server, client) };
            timeout(PATIENCE, leaver.write_all(&sent)).await.unwrap().unwrap();
            while !is_acknowledged(&leaver) {
                sleep(Duration::from_millis(1)).await;
            }
            SockRef::from(&leaver).set_linger(Some(Duration::ZERO)).unwrap();
            drop(leaver);
            // A host that takes its time.
            sleep(Duration::from_millis(500)).await;
            let mut got = vec![0; sent.len()];
            timeout(PATIENCE, stayer.read_exact(&mut got)).await.unwrap().unwrap();
            assert!(got == sent);
            let read = timeout(PATIENCE, stayer.read(&mut [0; 1])).await.unwrap();
            let reset = std::io::ErrorKind::ConnectionReset;
            assert_eq!(read.unwrap_err().kind(), reset, "by the client: {by_client}, stores: {has_stores}");
        }
        // One that had said all before, and is gone when it is answered.
        let (mut client, mut server) = connected(&pair, &listener).await;
        timeout(PATIENCE, client.write_all(&sent)).await.unwrap().unwrap();
        client.shutdown().await.unwrap();
        let mut got = Vec::new();
        timeout(PATIENCE, server.read_to_end(&mut got)).await.unwrap().unwrap();
        assert!(got == sent);
        drop(client);
        let answer = async { while server.write_all(&sent).await.is_ok() {} };
        timeout(PATIENCE, answer).await.unwrap();
        until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
        until("there neither", || pair.far.accelerator.connections.open() == 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_asked_for_in_one_round_trip() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start_in(listener.local_addr().unwrap(), true, Duration::from_millis(150)).await;
    let noise = noise(900_000, seed());
    // The far side may have told that it was cleared before the first block is sent; then nothing is asked for.
    for _ in 0..5 {
        let mut took = Vec::new();
        for is_cleared in [false, false, true] {
            sleep(Duration::from_millis(600)).await;
            let (mut client, mut server) = connected(&pair, &listener).await;
            if is_cleared {
                pair.far.accelerator.clear_store(None).unwrap();
            }
            let began = Instant::now();
            one_way(&mut client, &mut server, &noise).await;
            took.push(began.elapsed());
        }
        // One round trip more, of 300 ms, and not one for each of its four or five blocks.
        assert!(took[2] < took[1] + Duration::from_millis(550), "{took:?}");
        if took[2] > took[1] + Duration::from_millis(200) {
            return;
        }
    }
    panic!("nothing was missing");
}

/// A file system of its own, which can be frozen: whoever writes to it waits, as for a disk that does not answer.
struct Frozen(tempfile::TempDir);

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let status =
        Command::new(program).args(arguments).status().map_err(|error| format!("{program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{program} {arguments:?}: {status}")) }
}

impl Frozen {
    /// None without root or loop devices.
    fn new() -> Option<Frozen> {
        let directory = tempfile::tempdir().unwrap();
        let (image, at) = (directory.path().join("image"), directory.path().join("at"));
        std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
        std::fs::create_dir(&at).unwrap();
        let (image, at) = (image.display().to_string(), at.display().to_string());
        let mounted =
            run("mkfs.ext4", &["-q", &image]).and_then(|()| run("mount", &["-o", "loop", &image, &at]));
        if let Err(why) = mounted {
            assert!(std::env::var_os("FARSIDE_REQUIRE_LAB").is_none(), "no file system to freeze: {why}");
            eprintln!("skipped: no file system to freeze (root and loop devices are needed): {why}");
            return None;
        }
        Some(Frozen(directory))
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("at")
    }

    fn freezes(&self, is_frozen: bool) {
        let how = if is_frozen { "-f" } else { "-u" };
        let at = self.path().display().to_string();
        run("fsfreeze", &[how, &at]).unwrap();
        if is_frozen {
            // If all threads of the runtime wait for it, nobody else would thaw it.
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(20));
                Command::new("fsfreeze").args(["-u", &at]).output()
            });
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let at = self.path().display().to_string();
        let _ = run("fsfreeze", &["-u", &at]);
        let _ = run("umount", &["-l", &at]);
    }
}

/// The longest time for which the threads of the runtime did nothing else.
fn watch() -> Arc<parking_lot::Mutex<Duration>> {
    let longest = Arc::new(parking_lot::Mutex::new(Duration::ZERO));
    let seen = Arc::clone(&longest);
    tokio::spawn(async move {
        loop {
            let began = Instant::now();
            sleep(Duration::from_millis(10)).await;
            let mut seen = seen.lock();
            *seen = (*seen).max(began.elapsed());
        }
    });
    longest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_does_not_answer_stops_neither_the_process_nor_what_is_sent() {
    let Some(disk) = Frozen::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let pair = Pair::start_at(
        server,
        tempfile::tempdir().unwrap(),
        true,
        Duration::ZERO,
        Some(&disk.path().join("chunks")),
    )
    .await;
    let (mut client, mut server) = connected(&pair, &listener).await;
    one_way(&mut client, &mut server, &noise(1_000_000, seed())).await;
    // Of all sizes: what is small is encoded with as little ado as can be.
    let mut small = Vec::new();
    for _ in 0..8 {
        small.push(connected(&pair, &listener).await);
    }
    disk.freezes(true);
    let longest = watch();
    let began = Instant::now();
    let flows = small.iter_mut().enumerate().map(|(n, (client, server))| async move {
        one_way(client, server, &words(3_000, seed() + 1 + n as u64)).await;
    });
    let sent = noise(5_000_000, seed() + 100);
    let large = one_way(&mut client, &mut server, &sent);
    tokio::join!(futures_of(flows.collect()), large);
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    // What comes from the far side has to be decoded, and waits.
    let answer = words(300_000, seed() + 200);
    server.write_all(&answer).await.unwrap();
    let mut got = vec![0; answer.len()];
    {
        let mut read = std::pin::pin!(client.read_exact(&mut got));
        assert!(timeout(Duration::from_secs(1), &mut read).await.is_err(), "it was not frozen");
        let longest = *longest.lock();
        assert!(longest < Duration::from_millis(1000), "the runtime's threads stood still for {longest:?}");
        disk.freezes(false);
        timeout(PATIENCE, read).await.unwrap().unwrap();
    }
    assert!(got == answer);
    // And with its store again.
    let (mut client, mut server) = connected(&pair, &listener).await;
    let again = noise(1_000_000, seed() + 300);
    one_way(&mut client, &mut server, &again).await;
    sleep(Duration::from_millis(300)).await;
    let before = pair.near.accelerator.connections.bytes();
    one_way(&mut client, &mut server, &again).await;
    let (_, wire) = cost(&pair, before);
    assert!(wire < 100_000, "{wire}");
}

async fn futures_of<F: Future<Output = ()>>(futures: Vec<F>) {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

/// What this process has in memory, bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    4096 * text.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
}

/// Both boxes, all clients and servers are in this process. `FARSIDE_FLOWS` says how many connections.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures the whole process: alone, with --ignored"]
async fn many_idle_connections_take_little_memory_and_leave_room_for_busy_ones() {
    let flows = std::env::var("FARSIDE_FLOWS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let listener = tokio::net::TcpSocket::new_v4().unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(4096).unwrap();
    let pair = Pair::start_with_stores(listener.local_addr().unwrap()).await;
    let (before, seed) = (resident(), seed());
    let mut open = Vec::new();
    for n in 0..flows {
        let (mut client, mut server) = connected(&pair, &listener).await;
        // Each has said something, and got an answer.
        one_way(&mut client, &mut server, &words(2_000 + n % 50_000, seed + n as u64)).await;
        one_way(&mut server, &mut client, &words(5_000, seed + n as u64)).await;
        open.push((client, server));
    }
    let talked = resident() - before;
    sleep(Duration::from_secs(4)).await;
    let idle = resident() - before;
    // The budget of windows is free again: these are not held up by a window of the least size.
    let mut busy = Vec::new();
    for n in 0..16 {
        busy.push(connected(&pair, &listener).await);
        let (client, server) = &mut busy[n];
        one_way(client, server, &noise(4_000_000, seed + n as u64)).await;
    }
    let all = resident() - before;
    eprintln!(
        "{flows} connections: {} KiB each after they talked, {} KiB at rest; with 16 busy ones {} MiB in all",
        talked / 1024 / flows as u64,
        idle / 1024 / flows as u64,
        all >> 20
    );
    // Sockets of four ends, and tasks of two boxes.
    assert!(idle < (128 << 20) + flows as u64 * (64 << 10), "{idle} bytes at rest");
    let (client, server) = &mut open[0];
    one_way(client, server, b"still there").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures: alone, in a release build, with --ignored --nocapture"]
async fn throughput_of_a_pair_in_one_process() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start_with_stores(listener.local_addr().unwrap()).await;
    let (noise, text) = (noise(100_000_000, seed()), words(100_000_000, seed()));
    let mut hello = vec![22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    hello.resize(205, 7);
    for (what, bytes) in [
        ("encrypted", &[&hello[..], &noise].concat()),
        ("noise, cold", &noise),
        ("noise, warm", &noise),
        ("text, cold", &text),
        ("text, warm", &text),
    ] {
        sleep(Duration::from_millis(500)).await;
        let (mut client, mut server) = connected(&pair, &listener).await;
        let (began, before) = (Instant::now(), pair.near.accelerator.connections.bytes());
        one_way(&mut client, &mut server, bytes).await;
        let seconds = began.elapsed().as_secs_f64();
        let (_, wire) = cost(&pair, before);
        eprintln!("{what}: {:.0} MB/s, {wire} bytes on the wire", bytes.len() as f64 / 1e6 / seconds);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn single_bytes_come_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    client.set_nodelay(true).unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    server.set_nodelay(true).unwrap();
    for byte in 0..=255u8 {
        client.write_all(&[byte]).await.unwrap();
        assert_eq!(timeout(PATIENCE, server.read_u8()).await.unwrap().unwrap(), byte);
        server.write_all(&[byte]).await.unwrap();
        assert_eq!(timeout(PATIENCE, client.read_u8()).await.unwrap().unwrap(), byte);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_holds_up_nobody_and_fills_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    let mut stuck = TcpStream::connect(pair.port).await.unwrap();
    let (_kept, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    // As much as is taken: the sockets' buffers and the window.
    let block = vec![7; 1 << 20];
    let mut taken = 0u64;
    while let Ok(written) = timeout(Duration::from_secs(1), stuck.write(&block)).await {
        taken += written.unwrap() as u64;
        assert!(taken < 256 << 20, "nothing holds it back");
    }
    // Another one goes on meanwhile.
    let mut quick = TcpStream::connect(pair.port).await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let sent = noise(3_000_000, seed());
    let write = async {
        quick.write_all(&sent).await.unwrap();
        quick.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    timeout(PATIENCE, async { tokio::join!(write, server.read_to_end(&mut got)).1 }).await.unwrap().unwrap();
    assert!(got == sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_dies_resets_what_is_open_and_comes_back() {
    let server = echo().await;
    let Pair { near, far, port, _directory, .. } = Pair::start(server).await;
    let mut client = TcpStream::connect(port).await.unwrap();
    client.write_all(b"half a question").await.unwrap();
    until("it is open", || far.accelerator.connections.open() == 1).await;
    let began = Instant::now();
    far.stop().await;
    let read = timeout(PATIENCE, client.read(&mut [0; 1])).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(near.accelerator.status().bypass.is_some());
    // A forward has no plain way: it is reset at once, and nothing hangs.
    let late = async { TcpStream::connect(port).await?.read(&mut [0; 1]).await };
    let read = timeout(Duration::from_secs(3), late).await.unwrap();
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_box_that_stops_resets_its_own_hosts() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let Pair { near, far, port, _directory, .. } = Pair::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(port).await.unwrap();
    client.write_all(b"half a file").await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    let mut got = [0; 11];
    timeout(PATIENCE, server.read_exact(&mut got)).await.unwrap().unwrap();
    near.stop().await;
    // An end would say that the half is all.
    for end in [&mut client, &mut server] {
        let read = timeout(PATIENCE, end.read(&mut [0; 1])).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
    drop(far);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_removed_takes_its_connections_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    pair.near.set_peers(Vec::new()).await.unwrap();
    for end in [&mut client, &mut server] {
        let read = timeout(PATIENCE, end.read(&mut [0; 1])).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_reset_by_command() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pair = Pair::start(listener.local_addr().unwrap()).await;
    let mut client = TcpStream::connect(pair.port).await.unwrap();
    let (mut server, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    until("it is listed", || pair.near.accelerator.connections.open() == 1).await;
    let shown = pair.near.accelerator.connections.shown();
    assert_eq!((shown[0].applied, shown[0].configured), (Action::Transport, Action::Full));
    assert!(pair.near.accelerator.connections.reset(shown[0].client, shown[0].server));
    for end in [&mut client, &mut server] {
        let read = timeout(PATIENCE, end.read(&mut [0; 1])).await.unwrap();
        assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_at_once_all_arrive() {
    let pair = Arc::new(Pair::start(echo().await).await);
    let seed = seed();
    let clients: Vec<_> = (0..500u64)
        .map(|n| {
            let pair = Arc::clone(&pair);
            tokio::spawn(async move {
                let sent = noise(1 + (n as usize * 7919) % 50_000, seed + n);
                let mut client = TcpStream::connect(pair.port).await.unwrap();
                client.write_all(&sent).await.unwrap();
                client.shutdown().await.unwrap();
                let mut got = Vec::new();
                client.read_to_end(&mut got).await.unwrap();
                assert!(got == sent, "connection {n}");
            })
        })
        .collect();
    for client in clients {
        timeout(2 * PATIENCE, client).await.unwrap().unwrap();
    }
    until("nothing is open", || pair.near.accelerator.connections.open() == 0).await;
}
