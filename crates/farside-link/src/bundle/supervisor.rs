//! The task that watches a bundle's time: stalls, throttles, pings, and ends that do not come.
//!
//! It sleeps without a limit while nothing is owed by anybody.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::handle::{Handle, PING, SEND_ACK};
use super::options::{LaneId, LostLane};
use super::state::{Bundle, Loss, Phase, Want};
use crate::limits::{
    CREDIT_PIECE, CREDIT_TIME, LANE_LOOK_EVERY, LANE_QUIET_MAX, LANELESS_MAX, LINGER_MAX,
    LOW_PRIORITY_LOOK_EVERY, WINDOW_PROBE_EVERY,
};
use crate::low_priority::{Flow, LowPriority, PathSeen};
use crate::options::Priority;
use crate::transport::LinkStats;

/// Watches until the bundle is over.
pub(super) async fn tend(bundle: Arc<Bundle>) {
    let is_low_priority = bundle.options.priority == Priority::Low;
    let low_priority = is_low_priority.then(LowPriority::new);
    let mut supervisor = Supervisor { bundle, acked: BTreeMap::new(), low_priority, sampled: None };
    while let Some(next) = supervisor.look(Instant::now()) {
        tokio::select! {
            () = supervisor.bundle.wakeup.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

struct Supervisor {
    bundle: Arc<Bundle>,
    /// What lanes' kernels have acknowledged of their bytes, when they were looked at last.
    acked: BTreeMap<LaneId, u64>,
    /// Of a low priority.
    low_priority: Option<LowPriority>,
    /// When its lanes were last looked at.
    sampled: Option<Instant>,
}

/// The earlier of two moments, if any.
fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl Supervisor {
    /// Does what is due; when to look again, if ever. `None`: the bundle is over.
    fn look(&mut self, now: Instant) -> Option<Option<Instant>> {
        let handles = {
            let lanes = self.bundle.lanes.lock();
            if lanes.phase != Phase::Open {
                return None;
            }
            if lanes.none_since.is_some_and(|since| now >= since + LANELESS_MAX) {
                drop(lanes);
                self.lose(io::ErrorKind::ConnectionReset, || {
                    format!("no connection to the peer for {} s", LANELESS_MAX.as_secs())
                });
                return None;
            }
            lanes.handles.values().cloned().collect::<Vec<_>>()
        };
        self.acked.retain(|id, _| handles.iter().any(|handle| handle.id == *id));
        let without_lanes = self.bundle.lanes.lock().none_since.map(|since| since + LANELESS_MAX);
        let next = sooner(without_lanes, self.look_at_lanes(&handles, now));
        let next = sooner(next, self.look_at_throttles(now));
        let next = sooner(next, self.look_at_priority(&handles, now));
        match self.look_at_lingering(now) {
            Ok(lingering) => Some(sooner(next, lingering)),
            Err(reason) => {
                self.lose(io::ErrorKind::ConnectionAborted, || reason);
                None
            }
        }
    }

    fn lose(&self, kind: io::ErrorKind, reason: impl FnOnce() -> String) {
        self.bundle.lose(Loss { kind, reason: reason(), after_reading: false, notify: true });
    }

    /// Lanes that owe a sign of life: asked by a ping, looked at in the kernel, and in the end taken for stalled.
    fn look_at_lanes(&mut self, handles: &[Arc<Handle>], now: Instant) -> Option<Instant> {
        let life = now - self.bundle.started;
        let (late, is_owed, is_out_of_credit) = {
            let sender = &self.bundle.outward.lock().sender;
            (sender.late(life), sender.is_owed(), sender.has_waiting() && sender.credit() == 0)
        };
        let mut is_watched = is_owed;
        for handle in handles {
            let quiet = life.saturating_sub(handle.last_received());
            // A late lane is stalled only if another one moves: so have the others show that they do. Whoever waits for
            // credit asks, since the ack that granted it may have been lost with a lane.
            let is_to_be_pinged = handle.is_owed() && quiet >= LANE_QUIET_MAX
                || !late.is_empty() && quiet >= LANE_LOOK_EVERY
                || is_out_of_credit && quiet >= WINDOW_PROBE_EVERY;
            if is_to_be_pinged && !self.bundle.outward.lock().sender.is_pinged(handle.id) {
                handle.order(PING);
            }
            is_watched |= handle.is_owed() || is_out_of_credit;
        }
        for handle in handles.iter().filter(|handle| late.contains(&handle.id)) {
            if let Some(stats) = handle.options.stats.stats() {
                // Not what is counted in segments: those that wait on a dead path are small, and the kernel joins them when it
                // sends them again, which looks as if some had arrived.
                let acked = stats.acknowledged_bytes;
                let before = self.acked.insert(handle.id, acked);
                if before.is_some_and(|before| acked > before) {
                    self.bundle.outward.lock().sender.on_moved(handle.id, life);
                }
            }
        }
        self.stall(handles, life);
        is_watched.then(|| now + LANE_LOOK_EVERY)
    }

    fn stall(&self, handles: &[Arc<Handle>], life: Duration) {
        let (overdue, writer) = {
            let mut outward = self.bundle.outward.lock();
            let overdue = outward.sender.overdue(life);
            if outward.sender.send_edge_again(life) {
                outward.wake_lanes();
            }
            overdue.iter().for_each(|lane| outward.sender.stall(*lane));
            if !overdue.is_empty() {
                // What its connection does not take goes over others: a flush or a shutdown waits for those.
                let stalled = handles.iter().filter(|handle| overdue.contains(&handle.id));
                stalled.for_each(|handle| outward.release(handle));
                outward.wake_lanes();
            }
            let writer = outward.writer_to_wake();
            (overdue, writer)
        };
        writer.into_iter().for_each(Waker::wake);
        if overdue.is_empty() {
            return;
        }
        let lost = handles.iter().filter(|handle| overdue.contains(&handle.id)).map(|handle| LostLane {
            id: handle.id,
            path: handle.options.path,
            ended: false,
            reason: format!(
                "nothing arrived for {} ms",
                (life.saturating_sub(handle.last_received())).as_millis()
            ),
        });
        self.bundle.lanes.lock().lost.extend(lost);
        // What it was to acknowledge, the others acknowledge.
        handles
            .iter()
            .filter(|handle| !overdue.contains(&handle.id))
            .for_each(|handle| handle.order(SEND_ACK));
        self.bundle.wanted.notify_one();
    }

    /// Those who wait for a throttle, when it may have more.
    fn look_at_throttles(&self, now: Instant) -> Option<Instant> {
        let out = {
            let mut outward = self.bundle.outward.lock();
            outward.throttled_until = outward.throttled_until.filter(|until| *until > now);
            if outward.throttled_until.is_none() {
                let is_throttled = |(_, want): &&(Arc<Handle>, Want)| *want == Want::Throttle;
                outward.starved.iter().filter(is_throttled).for_each(|(handle, _)| handle.wake());
            }
            outward.throttled_until
        };
        let round_trip = self.bundle.outward.lock().sender.latency();
        let mut inward = self.bundle.inward.lock();
        inward.round_trip = round_trip.unwrap_or_default();
        if inward.throttled_until.is_some_and(|until| until <= now) {
            self.bundle.grant(&mut inward);
            let rate = self.bundle.options.limits_in.rate().unwrap_or(u64::MAX);
            let piece = CREDIT_PIECE.max((rate as f64 * CREDIT_TIME.as_secs_f64()) as u64);
            if !inward.ack_due && (inward.receiver.unannounced() >= piece || inward.receiver.is_ack_due()) {
                inward.ack_due = true;
                let again = inward.throttled_until;
                drop(inward);
                self.bundle.ack_soon();
                return sooner(out, again);
            }
        }
        sooner(out, inward.throttled_until)
    }

    /// A low priority: what may be in flight, and what may go now, by the queues that the lanes' sockets and their pings see. Where
    /// sockets see nothing, nothing is bounded.
    fn look_at_priority(&mut self, handles: &[Arc<Handle>], now: Instant) -> Option<Instant> {
        let low_priority = self.low_priority.as_mut()?;
        let in_flight_bytes = {
            let sender = &self.bundle.outward.lock().sender;
            if !sender.has_waiting() && sender.in_flight() == 0 {
                return None;
            }
            sender.in_flight()
        };
        let due = self.sampled.map(|at| at + LOW_PRIORITY_LOOK_EVERY).filter(|due| *due > now);
        if due.is_some() {
            return due;
        }
        self.sampled = Some(now);
        let mut paths: Vec<PathSeen> = Vec::new();
        let mut lanes = Vec::new();
        for handle in handles {
            let (is_used, ping, is_pinged) = {
                let sender = &mut self.bundle.outward.lock().sender;
                let is_used = !sender.is_standby(handle.id) && !sender.is_stalled(handle.id);
                (is_used, sender.take_round_trip(handle.id), sender.is_pinged(handle.id))
            };
            // The round trip of a socket that carries nothing is an old one.
            let stats = handle.options.stats.stats();
            let Some(stats) = stats.filter(|stats| is_used && !stats.rtt.is_zero()) else { continue };
            if !is_pinged {
                // What is allowed below goes after it, so that it finds the queue that was there before.
                handle.order(PING);
            }
            let lane = PathSeen { path: handle.options.path, socket: stats.rtt, ping };
            match paths.iter_mut().find(|seen| seen.path == lane.path) {
                Some(seen) => seen.join(lane),
                None => paths.push(lane),
            }
            lanes.push(stats);
        }
        let allowed = LinkStats::together(lanes).map(|together| {
            low_priority.see(&Flow {
                now: now - self.bundle.started,
                paths: &paths,
                in_flight_bytes,
                mss: together.mss,
                delivery_rate: together.delivery_rate,
            })
        });
        let mut outward = self.bundle.outward.lock();
        outward.sender.allow(allowed);
        outward.wake_lanes();
        Some(now + LOW_PRIORITY_LOOK_EVERY)
    }

    /// A stream whose application is gone is delivered as long as that goes on; then the peer is told that nobody reads.
    fn look_at_lingering(&self, now: Instant) -> Result<Option<Instant>, String> {
        let mut outward = self.bundle.outward.lock();
        let undelivered = outward.sender.undelivered();
        let is_delivered = outward.sender.is_delivered();
        let Some((since, before)) = &mut outward.lingering else { return Ok(None) };
        if is_delivered {
            return Err("its application closed it".to_owned());
        }
        if undelivered < *before {
            (*since, *before) = (now, undelivered);
        }
        let until = *since + LINGER_MAX;
        if now >= until {
            return Err(format!("its application is gone, and nothing moved for {} s", LINGER_MAX.as_secs()));
        }
        Ok(Some(until))
    }
}
