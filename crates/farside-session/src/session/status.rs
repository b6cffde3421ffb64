//! How a session's link goes, path by path.

use std::sync::Weak;

use super::Session;
use super::lanes::CONTROL;
use crate::terms::PathTerms;
use crate::transport::LinkFigures;

/// One path of a session.
#[derive(Clone, Debug)]
pub struct PathFigures {
    /// Its addresses. At the side that was dialled: this side's and the host that the peer comes from.
    pub path: PathTerms,
    /// It has a live connection.
    pub up: bool,
    /// Connections on it, warm ones not counted.
    pub lanes: usize,
    /// Of these, those that do not move.
    pub stalled: usize,
    /// All its connections together.
    pub socket: Option<LinkFigures>,
    /// Bytes sent over it in this session, TLS included.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// How the link to a peer goes.
#[derive(Clone, Debug, Default)]
pub struct SessionFigures {
    /// In the order of the peer's record; former ones last.
    pub paths: Vec<PathFigures>,
    /// Data streams that are open now.
    pub streams: usize,
    /// Lanes that wait for the next stream.
    pub warm_lanes: usize,
    /// Streams that began on a warm lane, in this session.
    pub warm_starts: u64,
    /// Bytes of streams that were sent again because a lane died or did not move, in this session.
    pub sent_twice_bytes: u64,
}

impl Session {
    /// How it goes now. Asks the kernel about each connection: for status, not for each segment.
    pub(crate) fn figures(&self) -> SessionFigures {
        if !self.has_bundles() {
            return self.figures_of_connections();
        }
        let lanes = &self.lanes;
        if self.terms.dialled.is_some() {
            // Those that were never reached are shown, too.
            let known: Vec<PathTerms> = lanes.paths.lock().all().cloned().collect();
            for path in &known {
                lanes.number(path);
            }
        }
        let bundles: Vec<_> = lanes.bundles().iter().map(|carried| carried.bundle.figures()).collect();
        let all = || bundles.iter().flat_map(|bundle| &bundle.lanes);
        let mut paths: Vec<PathFigures> = Vec::new();
        for (number, numbered) in lanes.numbered().into_iter().enumerate() {
            let here = || all().filter(|lane| lane.path == number);
            let stalled = here().filter(|lane| lane.stalled).count();
            paths.push(PathFigures {
                up: here().count() > stalled,
                lanes: here().count(),
                stalled,
                socket: LinkFigures::together(here().filter_map(|lane| lane.socket.clone())),
                sent_bytes: numbered.wire.sent(),
                received_bytes: numbered.wire.received(),
                path: numbered.path,
            });
        }
        let order = lanes.paths.lock();
        paths.sort_by_key(|figures| order.number(&figures.path).unwrap_or(usize::MAX));
        drop(order);
        SessionFigures {
            paths,
            streams: bundles.len().saturating_sub(1),
            warm_lanes: lanes.warm.lock().len(),
            warm_starts: lanes.warm_starts(),
            sent_twice_bytes: lanes.sent_twice(),
        }
    }

    /// Why nothing reaches the peer at the moment: no connection of the control stream is left. None before version 2, where that is
    /// the end of the session.
    pub(crate) fn trouble(&self) -> Option<String> {
        let control = self.lanes.bundle(&CONTROL)?;
        if control.bundle.has_lanes() {
            return None;
        }
        let trouble = control.trouble.lock().clone();
        Some(trouble.unwrap_or_else(|| {
            let dials = if self.terms.dialled.is_some() { "it is dialled" } else { "the peer has to dial" };
            format!("all connections have ended; {dials} again")
        }))
    }

    /// Before version 2: every stream has a connection of its own, all on one path.
    fn figures_of_connections(&self) -> SessionFigures {
        let sockets: Vec<_> = self.sockets.lock().iter().filter_map(Weak::upgrade).collect();
        let path = PathFigures {
            path: self.terms.first.clone(),
            up: !self.is_closed(),
            lanes: sockets.len(),
            stalled: 0,
            socket: LinkFigures::together(sockets.iter().filter_map(|socket| socket.figures())),
            sent_bytes: self.wire.sent(),
            received_bytes: self.wire.received(),
        };
        SessionFigures {
            paths: vec![path],
            streams: sockets.len().saturating_sub(1),
            ..SessionFigures::default()
        }
    }
}
