//! How a session's link goes, path by path.

use std::time::Duration;

use farside_link::limits::LANE_STALL_MIN;
use farside_link::{LaneStats, LinkStats, PathSpec};

use super::entry::CONTROL;
use super::lane_table::Numbered;
use super::state::Session;
use crate::limits::SILENCE_TOLD_AFTER;

/// One path of a session.
#[derive(Clone, Debug)]
pub struct PathStats {
    /// Its addresses. At the side that was dialled: this side's and the host that the peer comes from.
    pub path: PathSpec,
    /// It works: what is asked over it is answered.
    pub up: bool,
    /// For how long it has not; unknown at the side that was dialled, where nothing is left of it.
    pub down_for: Option<Duration>,
    /// Why it does not; or what does not pass on it though it works.
    pub trouble: Option<String>,
    /// Connections on it, idle ones not counted.
    pub lanes: usize,
    /// Of these, those that do not move.
    pub stalled: usize,
    /// All its connections together.
    pub socket: Option<LinkStats>,
    /// Bytes sent over it in this session, TLS included.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// How the link to a peer goes.
#[derive(Clone, Debug, Default)]
pub struct SessionStats {
    /// In the order of the peer's record; former ones last.
    pub paths: Vec<PathStats>,
    /// Data streams that are open now.
    pub streams: usize,
    /// Lanes that wait for the next stream.
    pub idle_lanes: usize,
    /// Streams that began on an idle lane, in this session.
    pub reused_lanes: u64,
    /// Bytes of streams that were sent again because a lane died or did not move, in this session.
    pub retransmitted_bytes: u64,
}

impl Session {
    /// How it goes now. Asks the kernel about each connection: for status, not for each segment.
    pub(crate) fn stats(&self) -> SessionStats {
        let lanes = &self.lanes;
        if self.info.dialled.is_some() {
            // Those that were never reached are shown, too.
            let known: Vec<PathSpec> = lanes.paths.lock().all().cloned().collect();
            for path in &known {
                lanes.number(path);
            }
        }
        let bundles: Vec<_> = lanes.bundles().iter().map(|entry| entry.bundle.stats()).collect();
        let all = || bundles.iter().flat_map(|bundle| &bundle.lanes);
        let control = lanes.bundle(&CONTROL).map(|control| control.bundle.stats().lanes).unwrap_or_default();
        let mut paths: Vec<PathStats> = Vec::new();
        for (number, numbered) in lanes.numbered().into_iter().enumerate() {
            let here = || all().filter(|lane| lane.path == number);
            let stalled = here().filter(|lane| lane.stalled).count();
            let asked = || control.iter().filter(|lane| lane.path == number);
            // A lane that only receives owes nothing, so it never seems stalled: what is asked over the path decides.
            let (up, down_for) = match lanes.paths.lock() {
                known if self.info.dialled.is_some() => {
                    let down_since = known.down_since(&numbered.path);
                    (known.is_up(&numbered.path), down_since.map(|at| lanes.now().saturating_sub(at)))
                }
                _ => {
                    // Behind seconds of data in a queue a ping comes late; what carries data says so by itself.
                    let moves = |lane: &LaneStats| {
                        !lane.stalled && lane.delivered_bytes > 0 && lane.quiet < LANE_STALL_MIN
                    };
                    let up = asked().any(|lane| !lane.stalled) || here().any(moves);
                    (up, asked().map(|lane| lane.quiet).min().filter(|_| !up))
                }
            };
            let silent = || match here().count() {
                0 => "it has no connection".to_owned(),
                _ => "nothing is heard on it".to_owned(),
            };
            paths.push(PathStats {
                up,
                down_for,
                trouble: if up {
                    self.context.packets.why(&numbered.path)
                } else {
                    Some(numbered.trouble.clone().unwrap_or_else(silent))
                },
                lanes: here().count(),
                stalled,
                socket: LinkStats::together(
                    here().filter_map(|lane| lane.socket.clone().map(LinkStats::for_people)),
                ),
                sent_bytes: numbered.wire.sent(),
                received_bytes: numbered.wire.received(),
                path: numbered.path,
            });
        }
        let order = lanes.paths.lock();
        paths.sort_by_key(|stats| order.number(&stats.path).unwrap_or(usize::MAX));
        drop(order);
        SessionStats {
            paths,
            streams: bundles.len().saturating_sub(1),
            idle_lanes: lanes.idle.lock().count(),
            reused_lanes: lanes.reused_lanes(),
            retransmitted_bytes: lanes.retransmitted(),
        }
    }

    /// Paths that could not be dialled at the last attempt, and why.
    pub(crate) fn dial_troubles(&self) -> Vec<(PathSpec, String)> {
        let trouble = |numbered: Numbered| Some((numbered.path, numbered.trouble?));
        self.lanes.numbered().into_iter().filter_map(trouble).collect()
    }

    /// What keeps data from passing as it could, on the first path where that is so.
    pub(crate) fn hindrance(&self) -> Option<String> {
        let why = |numbered: Numbered| {
            Some(format!("{}: {}", numbered.path, self.context.packets.why(&numbered.path)?))
        };
        self.lanes.numbered().into_iter().find_map(why)
    }

    /// For how long nothing has come of a peer that owes an answer; none if that is no longer than an answer may take.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        let since = (*self.silent_since.lock())?;
        Some(since.elapsed()).filter(|silent| *silent >= SILENCE_TOLD_AFTER)
    }

    /// Why nothing reaches the peer at the moment: no connection of the control stream is left.
    pub(crate) fn trouble(&self) -> Option<String> {
        let control = self.lanes.bundle(&CONTROL)?;
        if control.bundle.has_lanes() {
            return None;
        }
        let trouble = control.trouble.lock().clone();
        Some(trouble.unwrap_or_else(|| {
            let dials = if self.info.dialled.is_some() {
                "it is dialled again"
            } else {
                "it may dial again, and is dialled if it does not"
            };
            format!("all connections have ended; {dials}")
        }))
    }
}
