//! Bundles made, and lanes given to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::handle::Handle;
use super::lane::Lane;
use super::options::{BundleOptions, LaneId, LaneOptions};
use super::pace::Pace;
use super::receiver::Receiver;
use super::sender::Sender;
use super::state::{Bundle, Inward, Lanes, Outward, Phase};
use super::stream::BundleStream;
use super::supervisor;
use crate::limits::LANES_MAX;
use crate::wire::ByteStream;

impl Bundle {
    /// A bundle without lanes, and the stream over it. Call within a tokio runtime.
    pub fn new(options: BundleOptions) -> (Arc<Bundle>, BundleStream) {
        let started = Instant::now();
        let outward = Outward {
            sender: Sender::new(Arc::clone(&options.budget)),
            starved: Vec::new(),
            woken: Vec::new(),
            in_hand: 0,
            writer: None,
            throttled_until: None,
            hold: None,
            pace: Pace::new(Duration::ZERO),
            lanes: 0,
            loss: None,
            lingering: None,
        };
        let inward = Inward {
            receiver: Receiver::new(options.window, options.window_start, Arc::clone(&options.budget)),
            reader: None,
            loss: None,
            ack_due: false,
            throttled_until: None,
            round_trip: Duration::ZERO,
            charged: 0,
        };
        let lanes = Lanes {
            phase: Phase::Open,
            handles: BTreeMap::new(),
            next: 0,
            none_since: Some(started),
            lost: Vec::new(),
            idle: Vec::new(),
        };
        let bundle = Arc::new(Bundle {
            options,
            started,
            outward: Mutex::new(outward),
            inward: Mutex::new(inward),
            lanes: Mutex::new(lanes),
            wire: Arc::default(),
            wakeup: Notify::new(),
            wanted: Notify::new(),
            over: Notify::new(),
        });
        bundle.grant(&mut bundle.inward.lock());
        bundle.options.tasks.spawn(supervisor::tend(Arc::clone(&bundle)));
        let stream = BundleStream::new(Arc::clone(&bundle));
        (bundle, stream)
    }

    /// Takes a connection as a further lane. `None`, and the connection closed, if the bundle is over or has [`LANES_MAX`].
    pub fn add_lane(self: &Arc<Self>, io: Box<dyn ByteStream>, options: LaneOptions) -> Option<LaneId> {
        let mut lanes = self.lanes.lock();
        if lanes.phase != Phase::Open || lanes.handles.len() >= LANES_MAX {
            return None;
        }
        let id = LaneId(lanes.next);
        lanes.next += 1;
        lanes.none_since = None;
        {
            let mut outward = self.outward.lock();
            let handshake = options.stats.stats().map(|socket| socket.rtt).filter(|rtt| !rtt.is_zero());
            outward.sender.add_lane(id, options.standby, handshake, self.now());
            outward.lanes += 1;
        }
        let handle = Handle::new(id, options, self.now());
        lanes.handles.insert(id, Arc::clone(&handle));
        drop(lanes);
        self.options.tasks.spawn(Lane::new(Arc::clone(self), handle, io).run());
        self.wakeup.notify_one();
        Some(id)
    }
}
