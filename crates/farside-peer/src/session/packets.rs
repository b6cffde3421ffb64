//! Paths on which full packets do not pass: found out, told, and gone round with connections of smaller segments.
//!
//! Whoever has data on its way sees it ([`PacketWatch`]), and tells the other side. Only the side that dials can make other
//! connections; the segment size that it asks for in the handshake holds for both directions.
//! What is known of a path is in `packet_limits`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use farside_link::limits::{LANE_STALL_ALONE, LARGE_PACKETS_PROVEN_BY, PACKETS_LOOK_EVERY, SEGMENT_SIZES};
use farside_link::{BundleStats, LaneId, LaneStats, LaneWithData, PacketWatch, PathSpec, smaller_segment};
use tokio::time::MissedTickBehavior;

use super::entry::{BundleEntry, CONTROL, bundle_id};
use super::state::Session;
use crate::control::{self, Beside, Body, Packets};

/// A lane of a session.
type LaneKey = ([u8; 16], LaneId);

/// Whether a lane uses larger segments than may be used on its path now.
pub(super) fn is_too_large(session: &Session, path: &PathSpec, lane: &LaneStats) -> bool {
    let Some(mss) = session.context.packets.mss(path) else { return false };
    lane.socket.as_ref().is_some_and(|socket| socket.mss > mss)
}

/// At the side that dials: closes lanes whose segments are too large for their path. Those of the control stream once another is
/// there, so that nobody takes the peer for gone.
pub(super) fn close_too_large(session: &Session, entry: &BundleEntry, path: &PathSpec, stats: &BundleStats) {
    if session.context.packets.mss(path).is_none() {
        return;
    }
    let number = session.lanes.number(path);
    let here = || stats.lanes.iter().filter(|lane| lane.path == number);
    let (large, fit): (Vec<_>, Vec<_>) = here().partition(|lane| is_too_large(session, path, lane));
    let has_answered = |lane: &&LaneStats| lane.answered.is_some();
    if large.is_empty() || entry.is_control() && !fit.iter().any(has_answered) {
        return;
    }
    entry.bundle.close_lanes(|id| large.iter().any(|lane| lane.id == id));
}

/// The other side says that full packets do not pass, on the path of a stream of which nothing has been heard for a while.
pub(super) fn on_told(session: &Session, told: &Packets) {
    let mss = told.mss.clamp(SEGMENT_SIZES[SEGMENT_SIZES.len() - 1], SEGMENT_SIZES[0]);
    let lanes_of =
        |id: &[u8; 16]| session.lanes.bundle(id).map(|entry| entry.bundle.stats().lanes).unwrap_or_default();
    let of_stream = bundle_id(&told.bundle).map(|id| lanes_of(&id)).unwrap_or_default();
    let silent = |lane: &&LaneStats| lane.heard >= LANE_STALL_ALONE;
    let mut paths: Vec<usize> = of_stream.iter().filter(silent).map(|lane| lane.path).collect();
    if paths.is_empty() {
        // The other side has closed those that stood.
        paths = of_stream.iter().chain(&lanes_of(&CONTROL)).map(|lane| lane.path).collect();
    }
    for (number, numbered) in session.lanes.numbered().into_iter().enumerate() {
        if paths.contains(&number) && told.stuck > mss {
            use_smaller(session, &numbered.path, mss, told.stuck);
        }
    }
}

fn use_smaller(session: &Session, path: &PathSpec, mss: u32, stuck: u32) {
    if session.context.packets.set(path, mss, stuck)
        && let Some(why) = session.context.packets.why(path)
    {
        tracing::warn!(peer = %session.info.peer_name, %path, "{why}");
    }
    session.preopened.abort();
    session.lanes.look_everywhere();
}

/// Looks, while data is on its way, whether full packets pass.
pub(super) async fn watch_packets(session: Arc<Session>) {
    let mut watches: HashMap<usize, PacketWatch<LaneKey>> = HashMap::new();
    let mut ticks = tokio::time::interval(PACKETS_LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = session.lost.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let bundles = session.lanes.bundles();
        let is_idle = !bundles.iter().any(|entry| entry.bundle.has_data_on_its_way());
        if is_idle && session.context.packets.is_empty() {
            watches.clear();
            continue;
        }
        let seen: Vec<([u8; 16], BundleStats)> =
            bundles.iter().map(|entry| (entry.id, entry.bundle.stats())).collect();
        for (number, numbered) in session.lanes.numbered().into_iter().enumerate() {
            let lanes = || {
                let of = |(id, stats): &([u8; 16], BundleStats)| {
                    let here = stats.lanes.iter().filter(|lane| lane.path == number).cloned();
                    here.map(|lane| (*id, lane)).collect::<Vec<_>>()
                };
                seen.iter().flat_map(of)
            };
            look_whether_over(&session, &numbered.path, lanes());
            let with_data: Vec<_> = lanes().filter_map(|(id, lane)| with_data(id, &lane)).collect();
            if with_data.iter().any(|lane| lane.timeouts > 1)
                && let Some(control) = session.lanes.bundle(&CONTROL)
            {
                // However seldom it is asked otherwise.
                control.bundle.ask_lanes();
            }
            let answered = lanes().filter_map(|(_, lane)| lane.answered).min();
            let stuck = watches.entry(number).or_default().look(answered, &with_data, session.lanes.now());
            if let Some((stuck, mss)) = stuck.and_then(|stuck| Some((stuck, smaller_segment(stuck)?))) {
                use_smaller(&session, &numbered.path, mss, stuck);
                let affected = with_data.iter().map(|lane| lane.lane.0);
                tell(&session, affected.collect(), mss, stuck);
            }
        }
    }
}

fn with_data(bundle: [u8; 16], lane: &LaneStats) -> Option<LaneWithData<LaneKey>> {
    let socket = lane.socket.as_ref().filter(|_| lane.has_data)?;
    Some(LaneWithData {
        lane: (bundle, lane.id),
        acknowledged_bytes: socket.acknowledged_bytes,
        timeouts: socket.timeouts,
        mss: socket.mss,
    })
}

/// Tells the other side: it may be the one that dials, and its people look there.
fn tell(session: &Session, mut bundles: Vec<[u8; 16]>, mss: u32, stuck: u32) {
    bundles.dedup();
    let of = |id: &[u8; 16]| Packets { bundle: Bytes::copy_from_slice(id), mss, stuck };
    let beside = Beside { packets: bundles.iter().map(of).collect(), ..Beside::default() };
    // Its answer is that of a ping which nobody measures. Lost with a full queue, it is said again while data stands.
    let ping = Body::Ping(session.context.random.next_u64());
    let _ = session.urgent.try_send(control::encode_with(ping, beside));
}

/// Once full packets are tried again: they pass if a connection that uses them has carried enough.
fn look_whether_over(session: &Session, path: &PathSpec, lanes: impl Iterator<Item = ([u8; 16], LaneStats)>) {
    let packets = &session.context.packets;
    if !packets.is_tried_again(path) {
        return;
    }
    let proves = |(_, lane): ([u8; 16], LaneStats)| {
        let is_large = lane.socket.is_some_and(|socket| socket.mss > SEGMENT_SIZES[0]);
        is_large && lane.delivered_bytes.max(lane.received_bytes) >= LARGE_PACKETS_PROVEN_BY
    };
    if lanes.into_iter().any(proves) && packets.clear(path) {
        tracing::info!(peer = %session.info.peer_name, %path, "large packets pass again on this path");
    }
}
