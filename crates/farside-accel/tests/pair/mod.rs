//! Two boxes in one process, over loopback, with explicit forwards between them.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farside_accel::accelerator::Running;
use farside_accel::control::{Forward, Peer, Secret, Settings, StorePlace};
use farside_accel::policy::Action;
use farside_peer::Identity;
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::net::TcpListener;
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
        Pair::start_in(server, tempfile::tempdir().unwrap(), false).await
    }

    /// With a chunk store at each side.
    pub(crate) async fn start_with_stores(server: SocketAddr) -> Pair {
        Pair::start_in(server, tempfile::tempdir().unwrap(), true).await
    }

    pub(crate) async fn start_in(server: SocketAddr, directory: tempfile::TempDir, has_stores: bool) -> Pair {
        let (north, south) = (identified(&directory, "north"), identified(&directory, "south"));
        let mut far_settings = settings(&south, "south", &north, None);
        far_settings.forward_to = vec![server.to_string()];
        let store = |name: &str| {
            let path = directory.path().join(name).join("chunks").display().to_string();
            has_stores.then_some(StorePlace { path, bytes: 256 << 20 })
        };
        far_settings.store = store("south");
        let far = Running::start(far_settings).await.unwrap();
        let address = far.accelerator.status().listen.unwrap();
        let mut near_settings = settings(&north, "north", &south, Some(address));
        let (port, closed) = (free_port().await, free_port().await);
        let forward = |listen, destination: String| Forward { listen, destination, peer: "peer".to_owned() };
        near_settings.store = store("north");
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
