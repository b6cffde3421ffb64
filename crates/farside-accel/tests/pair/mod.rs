//! Two boxes in one process, over loopback, with explicit forwards between them.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use farside_accel::accelerator::Running;
use farside_accel::control::{Forward, Peer, Secret, Settings, StorePlace};
use farside_accel::policy::Action;
use farside_peer::Identity;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Printed, so that a failure can be seen again.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("FARSIDE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_124);
    eprintln!("FARSIDE_SEED={seed}");
    seed
}

struct Identified {
    pem: String,
    id: String,
}

fn identified(directory: &tempfile::TempDir, name: &str) -> Identified {
    let home = directory.path().join(name);
    std::fs::create_dir(&home).unwrap();
    let identity = Identity::load_or_create(&home).unwrap();
    let pem = std::fs::read_to_string(home.join("identity.pem")).unwrap();
    Identified { pem, id: identity.id().to_string() }
}

fn settings(who: &Identified, name: &str, peer: &Identified, address: Option<String>) -> Settings {
    Settings {
        release: env!("CARGO_PKG_VERSION").to_owned(),
        site_name: name.to_owned(),
        identity: Secret::new(who.pem.clone()),
        listen: "127.0.0.1:0".to_owned(),
        interception: None,
        store: None,
        forward_to: Vec::new(),
        policies: Vec::new(),
        otherwise: Action::Full,
        peers: vec![Peer { id: peer.id.clone(), name: "peer".to_owned(), address, subnets: Vec::new() }],
        forwards: Vec::new(),
    }
}

pub(crate) struct Pair {
    pub(crate) near: Running,
    pub(crate) far: Running,
    /// Connect here to get to the server.
    pub(crate) port: SocketAddr,
    /// To a destination that the far side does not allow.
    pub(crate) closed: SocketAddr,
    pub(crate) _directory: tempfile::TempDir,
}

pub(crate) async fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

impl Pair {
    /// Without chunk stores.
    pub(crate) async fn start(server: SocketAddr) -> Pair {
        Pair::start_in(server, false, Duration::ZERO).await
    }

    /// With a chunk store at each side.
    pub(crate) async fn start_with_stores(server: SocketAddr) -> Pair {
        Pair::start_in(server, true, Duration::ZERO).await
    }

    /// `delay`: of what one box sends to the other, each way.
    pub(crate) async fn start_in(server: SocketAddr, has_stores: bool, delay: Duration) -> Pair {
        Pair::start_at(server, tempfile::tempdir().unwrap(), has_stores, delay, None).await
    }

    /// `near_store`: where the near side's store is, if it is somewhere else.
    pub(crate) async fn start_at(
        server: SocketAddr,
        directory: tempfile::TempDir,
        has_stores: bool,
        delay: Duration,
        near_store: Option<&Path>,
    ) -> Pair {
        let (north, south) = (identified(&directory, "north"), identified(&directory, "south"));
        let mut far_settings = settings(&south, "south", &north, None);
        far_settings.forward_to = vec![server.to_string()];
        let store = |name: &str| {
            let path = directory.path().join(name).join("chunks").display().to_string();
            has_stores.then_some(StorePlace { path, bytes: 256 << 20 })
        };
        far_settings.store = store("south");
        let far = Running::start(far_settings).await.unwrap();
        let mut address = far.accelerator.status().listen.unwrap();
        if !delay.is_zero() {
            address = delayed(address, delay).await.to_string();
        }
        let mut near_settings = settings(&north, "north", &south, Some(address));
        let (port, closed) = (free_port().await, free_port().await);
        let forward = |listen, destination: String| Forward { listen, destination, peer: "peer".to_owned() };
        near_settings.store = store("north").map(|place| match near_store {
            Some(path) => StorePlace { path: path.display().to_string(), ..place },
            None => place,
        });
        near_settings.forwards =
            vec![forward(port, server.to_string()), forward(closed, "127.0.0.1:1".to_owned())];
        let near = Running::start(near_settings).await.unwrap();
        let pair = Pair { near, far, port, closed, _directory: directory };
        pair.meet().await;
        pair
    }

    pub(crate) async fn meet(&self) {
        let is_met = || self.near.accelerator.status().bypass.is_none();
        until("the boxes meet", is_met).await;
    }
}

/// A place from where everything takes so long to get to `to`, and back.
async fn delayed(to: String, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(&to).await else { continue };
            near.set_nodelay(true).unwrap();
            far.set_nodelay(true).unwrap();
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(late(near_in, far_out, delay));
            tokio::spawn(late(far_in, near_out, delay));
        }
    });
    address
}

async fn late(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) {
    let (sender, mut queue) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some((due, bytes)) = queue.recv().await {
            let bytes: Vec<u8> = bytes;
            tokio::time::sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buffer = vec![0; 65_536];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        let _ = sender.send((tokio::time::Instant::now() + delay, buffer[..bytes].to_vec()));
    }
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    StdRng::seed_from_u64(seed).fill_bytes(&mut noise);
    noise
}
