//! Two bundles and the links between them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::bundle::{Bundle, BundleOptions, BundleStream, LaneOptions, WindowBudget};
use crate::options::{Priority, Window};
use crate::throttle::Limits;
use crate::transport::{Counted, LinkSettings, NoStats, SimulatedNetwork, SocketOptions, Transport};
use crate::wire::{ByteStream, WireCounters};

pub(super) const KIB: usize = 1 << 10;
pub(super) const MIB: usize = 1 << 20;
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn options() -> BundleOptions {
    BundleOptions {
        window: Window::Auto,
        window_start: None,
        priority: Priority::Normal,
        limits_out: Limits::unlimited(),
        limits_in: Limits::unlimited(),
        budget: Arc::new(WindowBudget::default()),
        tasks: TaskTracker::new(),
    }
}

pub(super) fn lane(path: usize) -> LaneOptions {
    LaneOptions { path, standby: false, stats: Arc::new(NoStats), wire: Arc::new(WireCounters::default()) }
}

/// What byte `n` of a stream is.
pub(super) fn byte(n: u64) -> u8 {
    ((n / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * (n % 8))) as u8
}

pub(super) fn pattern(from: u64, bytes: usize) -> Vec<u8> {
    (from..from + bytes as u64).map(byte).collect()
}

/// Two bundles that are one stream each way, and the network between them: path `n` is the link of hosts `a{n}`, `b{n}`.
pub(super) struct Pair {
    pub(super) network: SimulatedNetwork,
    pub(super) a: Arc<Bundle>,
    pub(super) b: Arc<Bundle>,
}

impl Pair {
    /// The bundles with `lanes` lanes, each over a path of its own, and their streams.
    pub(super) async fn new(settings: LinkSettings, lanes: usize) -> (Pair, BundleStream, BundleStream) {
        Pair::with(settings, lanes, options(), options()).await
    }

    pub(super) async fn with(
        settings: LinkSettings,
        lanes: usize,
        terms_a: BundleOptions,
        terms_b: BundleOptions,
    ) -> (Pair, BundleStream, BundleStream) {
        let network = SimulatedNetwork::new(7, settings);
        let (a, near) = Bundle::new(terms_a);
        let (b, far) = Bundle::new(terms_b);
        let pair = Pair { network, a, b };
        for path in 0..lanes {
            pair.add_lane(path).await;
        }
        (pair, near, far)
    }

    /// One more lane over `path`.
    pub(super) async fn add_lane(&self, path: usize) {
        let (near, far) = self.connect(path).await;
        self.a.add_lane(near.0, near.1).unwrap();
        self.b.add_lane(far.0, far.1).unwrap();
    }

    /// A connection over `path`, both ends of it.
    pub(super) async fn connect(
        &self,
        path: usize,
    ) -> ((Box<dyn ByteStream>, LaneOptions), (Box<dyn ByteStream>, LaneOptions)) {
        let (from, to) = (host('a', path), host('b', path));
        let mut listener =
            self.network.host(&to).listen(&format!("{to}:0"), &SocketOptions::default()).await.unwrap();
        let dialling = self.network.host(&from);
        let address = listener.address();
        let (near, far) = tokio::join!(
            async { dialling.dial(&address, &SocketOptions::default()).await.unwrap() },
            async { listener.accept().await.unwrap() }
        );
        let end = |connection| {
            let io = Counted::new(connection);
            let options = LaneOptions { stats: io.stats(), wire: io.wire(), ..lane(path) };
            (Box::new(io) as Box<dyn ByteStream>, options)
        };
        (end(near), end(far))
    }

    pub(super) fn reset(&self, path: usize) {
        self.network.reset(&host('a', path), &host('b', path));
    }

    pub(super) fn black_hole(&self, path: usize) {
        self.network.black_hole(&host('a', path), &host('b', path));
    }

    pub(super) fn heal(&self, path: usize) {
        self.network.heal(&host('a', path), &host('b', path));
    }

    pub(super) fn set_link(&self, path: usize, settings: LinkSettings) {
        self.network.set_link(&host('a', path), &host('b', path), settings);
    }
}

fn host(side: char, path: usize) -> String {
    format!("{side}{path}")
}

pub(super) fn link(latency_ms: u64, bytes_per_second: u64) -> LinkSettings {
    LinkSettings {
        latency: Duration::from_millis(latency_ms),
        bytes_per_second: Some(bytes_per_second),
        ..LinkSettings::default()
    }
}

/// Writes the pattern and shuts down; the stream is kept for what comes back.
pub(super) fn write_pattern(mut stream: BundleStream, bytes: usize) -> JoinHandle<BundleStream> {
    tokio::spawn(async move {
        let block = Bytes::from(pattern(0, 512 * KIB));
        let mut left = bytes;
        let mut at = 0;
        while left > 0 {
            // The pattern repeats in the blocks that are written: `read_pattern` knows.
            let now = left.min(block.len() - at);
            stream.write_all(&block[at..at + now]).await.unwrap();
            left -= now;
            at = (at + now) % block.len();
        }
        stream.shutdown().await.unwrap();
        stream
    })
}

/// Reads what [`write_pattern`] writes, to the end.
pub(super) async fn read_pattern(stream: &mut BundleStream, bytes: usize) {
    let block = pattern(0, 512 * KIB);
    let mut buffer = vec![0; 256 * KIB];
    let mut got = 0;
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        if read == 0 {
            break;
        }
        let mut at = 0;
        while at < read {
            let from = got % block.len();
            let now = (read - at).min(block.len() - from);
            assert!(buffer[at..at + now] == block[from..from + now], "wrong bytes at {got}");
            at += now;
            got += now;
        }
    }
    assert_eq!(got, bytes, "the stream ended early");
}

/// Waits for a condition, a minute of tokio's clock at most.
pub(super) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "in vain: {what}");
}
