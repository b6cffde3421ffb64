//! The bundles of a session: made, seen to their end, and supplied with lanes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use farside_link::{
    Bundle, BundleOptions, BundleStream, LaneWatch, Limits, Priority, StreamLimits, StreamOptions,
    lanes_of_bulk,
};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{Notify, watch};

use super::entry::{BundleEntry, CONTROL, Given};
use super::holds::Told;
use super::lanes::shortest_round_trip;
use super::state::Session;
use super::supervisor::supervise_lanes;
use crate::control::{self, Body, MoreLanes, Opening};
use crate::limits::{BUNDLES_REMEMBERED, LANES_LOOKED_AT_EVERY};

/// Makes a bundle of this session and sets its tasks to work. If this side opens it, `opening` is told what it takes from the
/// start.
pub(super) fn carry(
    session: &Arc<Session>,
    id: [u8; 16],
    options: &StreamOptions,
    opening: Option<&mut Opening>,
) -> (Arc<BundleEntry>, BundleStream) {
    let lanes = &session.lanes;
    let is_control = id == CONTROL;
    let window_start = Some(lanes.last_window.load(Ordering::Relaxed)).filter(|w| *w > 0 && !is_control);
    // Calls do not wait for throttles; what they cost is charged by their sockets.
    let limits = if is_control {
        StreamLimits { sent: Limits::unlimited(), received: Limits::unlimited() }
    } else {
        session.context.throttles.limits(session.info.peer, options.throttle.clone())
    };
    let last_lanes = Some(lanes.last_lanes.load(Ordering::Relaxed)).filter(|lanes| *lanes > 0);
    let is_bulk = options.bulk && options.priority == Priority::Normal;
    let at_once = if is_bulk { lanes_of_bulk(shortest_round_trip(session)) } else { 1 };
    let (bundle, stream) = Bundle::new(BundleOptions {
        window: options.window,
        window_start,
        priority: options.priority,
        limits_out: limits.sent,
        limits_in: limits.received,
        budget: Arc::clone(&session.context.budget),
        tasks: session.context.tasks.clone(),
    });
    let opening = opening.map(|opening| {
        opening.window = bundle.granted();
        Bytes::from(opening.encode_to_vec())
    });
    // The side that was dialled says it in a call.
    let opening = opening.filter(|_| session.info.dialled.is_some()).unwrap_or_default();
    let entry = Arc::new(BundleEntry {
        id,
        bundle,
        paths: options.paths.clone(),
        opening,
        asked: AtomicUsize::new(at_once),
        watch: Mutex::new(LaneWatch::new(last_lanes, at_once)),
        given: watch::Sender::new(Given::Nothing),
        trouble: Mutex::default(),
        look: Notify::new(),
    });
    lanes.bundles.lock().insert(id, Arc::clone(&entry));
    session.context.tasks.spawn(see_to_end(Arc::clone(session), Arc::clone(&entry)));
    if session.info.dialled.is_some() {
        session.context.tasks.spawn(supervise_lanes(Arc::clone(session), Arc::clone(&entry)));
    } else if !is_control {
        session.context.tasks.spawn(ask_for_lanes(Arc::clone(session), Arc::clone(&entry)));
    }
    if !is_control {
        lanes.paced.look();
    }
    (entry, stream)
}

/// Sees a bundle to its end and takes its lanes back.
async fn see_to_end(session: Arc<Session>, entry: Arc<BundleEntry>) {
    let left = entry.bundle.ended().await;
    let lanes = &session.lanes;
    // Remembered first: a late lane that finds it in neither would open it again.
    {
        let mut ended = lanes.ended.lock();
        ended.push_back(entry.id);
        if ended.len() > BUNDLES_REMEMBERED {
            ended.pop_front();
        }
    }
    lanes.bundles.lock().remove(&entry.id);
    entry.refuse("the stream has ended");
    let stats = entry.bundle.stats();
    tracing::debug!(peer = %session.info.peer_name, ?stats.blocked, stats.window, stats.sent_bytes, stats.received_bytes, "a stream has ended");
    lanes.retransmitted.fetch_add(stats.retransmitted_bytes, Ordering::Relaxed);
    if let Some(needed) = entry.watch.lock().needed() {
        lanes.last_lanes.store(needed, Ordering::Relaxed);
    }
    let Some(left) = left else { return };
    lanes.last_window.store(stats.window, Ordering::Relaxed);
    for lane in left {
        if session.info.dialled.is_none() {
            // There is room for all lanes that a session may have.
            drop(session.lanes.returned.try_send(lane));
        } else if !session.is_closed() {
            let path = lanes.numbers.lock().get(lane.options.path).map(|numbered| numbered.path.clone());
            if let Some(path) = path {
                drop(lanes.idle.lock().put(path, lane, lanes.now()));
                lanes.idle_changed.notify_one();
            }
        }
    }
}

/// The side that is dialled: asks for lanes when this side's sending could use more than there are.
async fn ask_for_lanes(session: Arc<Session>, entry: Arc<BundleEntry>) {
    let mut given = entry.given.subscribe();
    let mut asked = 1;
    let mut told = Told::default();
    loop {
        tokio::select! {
            () = session.lost.cancelled() => return,
            ended = given.wait_for(|given| matches!(given, Given::Refused(_))) => { drop(ended); return }
            () = entry.look.notified() => {}
            _ = entry.bundle.lanes_wanted() => {}
            () = tokio::time::sleep(LANES_LOOKED_AT_EVERY) => {}
        }
        if session.lanes.bundle(&entry.id).is_none() {
            return;
        }
        told.follow(&session, &entry);
        let stats = entry.bundle.stats();
        // This side knows no order of paths: it sends over whatever there is.
        let paths: BTreeSet<usize> = stats.lanes.iter().map(|lane| lane.path).collect();
        let wanted = entry.use_lanes(&stats, &Vec::from_iter(paths));
        if wanted > asked {
            asked = wanted;
            let bundle = Bytes::copy_from_slice(&entry.id);
            let frame = control::encode(Body::MoreLanes(MoreLanes { bundle, lanes: wanted as u32 }));
            // Lost with a full queue: then it gets on with what it has.
            let _ = session.urgent.try_send(frame);
        }
    }
}
