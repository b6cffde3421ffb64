//! Very many connections at once: what each of them takes of the boxes' memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::bed::{Bed, End, PATIENCE};
use crate::load::{memory_kb_of, raise_descriptors};
use crate::support::eventually;
use crate::watch::{Seen, report};

/// Answers every message with the same bytes.
const ECHO: &str = "10.2.0.3:8001";
/// Connections that say something at the same time.
const AT_ONCE: usize = 64;
/// Bytes of a connection's first message, and of the later ones.
const FIRST: usize = 2000;
const LATER: usize = 100;
/// Later messages of each connection.
const ROUNDS: u64 = 3;
/// What a connection may take of a box while it rests, and while it says a little now and then, KiB.
const AT_REST: u64 = 40;
const ACTIVE: u64 = 64;
/// What a box may take beside that: its store's index, its queues, the histories of those that have one. KiB.
const BESIDE: u64 = 64 << 10;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn serve(bed: &Bed) {
    bed.server.inside(|| {
        let listener = std::net::TcpListener::bind(ECHO).unwrap();
        listener.set_nonblocking(true).unwrap();
        thread::spawn(move || {
            runtime().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                loop {
                    let Ok((mut socket, _)) = listener.accept().await else { continue };
                    tokio::spawn(async move {
                        let mut bytes = vec![0; FIRST];
                        while let Ok(got @ 1..) = socket.read(&mut bytes).await {
                            if socket.write_all(&bytes[..got]).await.is_err() {
                                return;
                            }
                        }
                    });
                }
            });
        });
    });
}

/// Says something that nobody has said before, and gets it back.
async fn talk(socket: &mut TcpStream, number: usize, round: u64, bytes: usize) {
    let mut random = StdRng::seed_from_u64(20_261_125 + (round << 32) + number as u64);
    let said: Vec<u8> = (0..bytes).map(|_| b"0123456789 abcdef"[random.random_range(0..17)]).collect();
    let mut heard = vec![0; bytes];
    let talked = async {
        socket.write_all(&said).await?;
        socket.read_exact(&mut heard).await
    };
    timeout(PATIENCE, talked).await.expect("an answer").unwrap();
    assert!(heard == said, "connection {number} hears something else in round {round}");
}

/// A part of the connections, with their numbers.
type Part = Vec<(usize, TcpStream)>;

async fn open(connections: usize) -> Vec<Part> {
    let mut opening = JoinSet::new();
    for first in 0..AT_ONCE {
        opening.spawn(async move {
            let mut part = Part::new();
            for number in (first..connections).step_by(AT_ONCE) {
                let connected = timeout(PATIENCE, TcpStream::connect(ECHO)).await.expect("a connection");
                let mut socket = connected.unwrap();
                talk(&mut socket, number, 0, FIRST).await;
                part.push((number, socket));
            }
            part
        });
    }
    opening.join_all().await
}

async fn round(parts: Vec<Part>, round: u64) -> Vec<Part> {
    let mut talking = JoinSet::new();
    for mut part in parts {
        talking.spawn(async move {
            for (number, socket) in &mut part {
                talk(socket, *number, round, LATER).await;
            }
            part
        });
    }
    talking.join_all().await
}

/// The most that two processes had in memory while something went on, KiB.
fn most_while<T>(pids: [u32; 2], work: impl FnOnce() -> T) -> ([u64; 2], T) {
    let (is_over, most) = (AtomicBool::default(), [AtomicU64::new(0), AtomicU64::new(0)]);
    let done = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for (pid, most) in pids.iter().zip(&most) {
                    most.fetch_max(memory_kb_of(*pid), Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(50));
            }
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    });
    (most.map(AtomicU64::into_inner), done)
}

/// So many connections, each of which says something once, rests, and then says a little again and again.
fn connections_take_little_memory(connections: usize) {
    // Both ends of each are here: as many as this machine allows.
    let connections = connections.min(usize::try_from(raise_descriptors() / 2).unwrap().saturating_sub(500));
    let Some(bed) = Bed::new() else { return };
    serve(&bed);
    let pids = [End::Near, End::Far].map(|end| bed.at(end).process().unwrap());
    let before = pids.map(memory_kb_of);
    let (at_rest, active) = bed.client.inside(|| {
        let runtime = runtime();
        let parts = runtime.block_on(open(connections));
        eventually("all are optimised", || bed.open(End::Near) + 10 >= connections as u64);
        // What a connection keeps for what may follow goes after two seconds.
        thread::sleep(Duration::from_secs(4));
        let at_rest = pids.map(memory_kb_of);
        let (active, parts) = most_while(pids, || {
            (1..=ROUNDS).fold(parts, |parts, number| runtime.block_on(round(parts, number)))
        });
        drop(parts);
        (at_rest, active)
    });
    let each = |most: [u64; 2]| [0, 1].map(|at| most[at].saturating_sub(before[at]) / connections as u64);
    let (rest_each, active_each) = (each(at_rest), each(active));
    let note = format!(
        "a box had {} and {} MiB without them; near and far, KiB each: {rest_each:?} at rest, {active_each:?} at most while \
         they talk",
        before[0] >> 10,
        before[1] >> 10
    );
    report(&format!("{connections} connections"), 0, &Seen::default(), &note);
    for at in 0..2 {
        let most = |each: u64| before[at] + BESIDE + each * connections as u64;
        assert!(at_rest[at] <= most(AT_REST), "{at_rest:?} KiB at rest, {before:?} without them");
        assert!(active[at] <= most(ACTIVE), "{active:?} KiB at most, {before:?} without them");
    }
    eventually("no connection is left", || bed.open(End::Near) + bed.open(End::Far) == 0);
}

#[test]
#[ignore = "counts memory: alone, on a machine that has nothing else to do"]
fn a_thousand_connections_take_little_memory() {
    connections_take_little_memory(1000);
}

#[test]
#[ignore = "keeps 10,000 connections open beside those of other tests"]
fn ten_thousand_connections_take_little_memory() {
    connections_take_little_memory(10_000);
}
