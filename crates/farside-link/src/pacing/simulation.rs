//! Lanes under BBR on a line with a queue, as fluids: its fast start, its drain, and the probes of its steady state, without and
//! with what [`PathRate`] holds them to. One step is a millisecond.

use std::collections::VecDeque;
use std::time::Duration;

use super::rate::{LaneSeen, PathRate};

const STEP: f64 = 0.001;
const SEGMENT: f64 = 1448.0;
/// Pacing gain of BBR's start.
const START: f64 = 2.885;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Mode {
    Start,
    Drain,
    Probe,
}

struct Lane {
    mode: Mode,
    /// Most bytes per second of the last ten rounds.
    rounds: VecDeque<f64>,
    full: f64,
    rounds_without_growth: u32,
    round_until: f64,
    round_began: (f64, f64),
    phase: usize,
    in_flight: f64,
    waiting: f64,
    acked: f64,
    rtt: f64,
    cap: f64,
}

impl Lane {
    fn new(at: f64, phase: usize, rtt: f64) -> Lane {
        Lane {
            mode: Mode::Start,
            rounds: VecDeque::new(),
            full: 0.0,
            rounds_without_growth: 0,
            round_until: at + rtt,
            round_began: (at, 0.0),
            phase,
            in_flight: 0.0,
            waiting: 0.0,
            acked: 0.0,
            rtt,
            cap: f64::INFINITY,
        }
    }

    fn bandwidth(&self, rtt: f64) -> f64 {
        self.rounds.iter().copied().fold(10.0 * SEGMENT / rtt / START, f64::max)
    }

    /// Bytes that it sends in a step.
    fn sends(&self, rtt: f64) -> f64 {
        let gains = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        let (pacing, window) = match self.mode {
            Mode::Start => (START, START),
            Mode::Drain => (1.0 / START, START),
            Mode::Probe => (gains[self.phase % gains.len()], 2.0),
        };
        let room = window * self.bandwidth(rtt) * rtt - self.in_flight;
        ((pacing * self.bandwidth(rtt)).min(self.cap) * STEP).min(room.max(0.0))
    }

    fn turn_round(&mut self, now: f64, rtt: f64) {
        let (began, acked) = self.round_began;
        self.rounds.push_back((self.acked - acked) / (now - began));
        if self.rounds.len() > 10 {
            self.rounds.pop_front();
        }
        self.round_began = (now, self.acked);
        self.round_until = now + self.rtt;
        self.phase += 1;
        let bandwidth = self.bandwidth(rtt);
        if self.mode == Mode::Start {
            if bandwidth >= 1.25 * self.full {
                (self.full, self.rounds_without_growth) = (bandwidth, 0);
            } else {
                self.rounds_without_growth += 1;
            }
            if self.rounds_without_growth >= 3 {
                self.mode = Mode::Drain;
            }
        }
        if self.mode == Mode::Drain && self.in_flight <= bandwidth * rtt {
            self.mode = Mode::Probe;
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Bytes per second and seconds.
    rate: f64,
    rtt: f64,
    /// When each lane begins, round trips.
    lanes: &'static [f64],
    /// Of what the line holds.
    queue: f64,
    is_held: bool,
    /// What the line carries from then on, round trips and bytes per second.
    then: Option<(f64, f64)>,
}

/// In units of what the line holds.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    arrived: f64,
    dropped: f64,
    /// What arrived in the last tenth of the time, of what the line could carry.
    late: f64,
}

/// What comes of it in so many round trips.
fn run(cell: Cell, rtts: f64) -> Outcome {
    let Cell { rtt, .. } = cell;
    let mut rate = cell.rate;
    let buffer = (cell.queue * rate * rtt).max(20.0 * SEGMENT);
    let mut path = PathRate::new();
    let mut lanes: Vec<Lane> = Vec::new();
    // When it is heard of, whose, how much left the line, and how much was dropped before it.
    let mut on_their_way: VecDeque<(f64, usize, f64, f64)> = VecDeque::new();
    let (mut queue, mut dropped, mut arrived, mut late, mut look_at) = (0.0, 0.0, 0.0, 0.0, 0.0);
    let steps = (rtts * rtt / STEP) as usize;
    for step in 0..steps {
        let now = step as f64 * STEP;
        if let Some((at, then)) = cell.then
            && now >= at * rtt
        {
            rate = then;
        }
        while lanes.len() < cell.lanes.len() && now >= cell.lanes[lanes.len()] * rtt {
            lanes.push(Lane::new(now, 3 * lanes.len(), rtt));
        }
        while on_their_way.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, lane, bytes, lost) = on_their_way.pop_front().unwrap();
            lanes[lane].acked += bytes;
            lanes[lane].in_flight -= bytes + lost;
        }
        let wait = queue / rate;
        for (number, lane) in lanes.iter_mut().enumerate() {
            // The kernel's smoothing, over some part of a round trip.
            lane.rtt += (rtt + wait - lane.rtt) * (4.0 * STEP / rtt).min(1.0);
            let sent = lane.sends(rtt);
            let taken = sent.min(buffer - queue);
            dropped += sent - taken;
            queue += taken;
            lane.waiting += taken;
            lane.in_flight += sent;
            if sent > taken {
                on_their_way.push_back((now + rtt, number, 0.0, sent - taken));
            }
        }
        let out = queue.min(rate * STEP);
        let share = if queue > 0.0 { out / queue } else { 0.0 };
        for (at, lane) in lanes.iter_mut().enumerate() {
            let bytes = lane.waiting * share;
            lane.waiting -= bytes;
            on_their_way.push_back((now + rtt, at, bytes, 0.0));
        }
        queue -= out;
        arrived += out;
        if step >= steps - steps / 10 {
            late += out;
        }
        for lane in lanes.iter_mut().filter(|lane| now >= lane.round_until) {
            lane.turn_round(now, rtt);
        }
        if cell.is_held && now >= look_at {
            let seen: Vec<LaneSeen> = lanes
                .iter()
                .enumerate()
                .map(|(id, lane)| LaneSeen {
                    id: id as u64,
                    rtt: Duration::from_secs_f64(lane.rtt),
                    min_rtt: Duration::from_secs_f64(rtt),
                    delivered_bytes: lane.acked as u64,
                    is_busy: true,
                    app_limited: false,
                    buffer_limited: Duration::ZERO,
                    mss: SEGMENT as u32,
                })
                .collect();
            let at = Duration::from_secs_f64(now + 1.0);
            for (lane, cap) in lanes.iter_mut().zip(path.see(at, &seen)) {
                lane.cap = cap.map_or(f64::INFINITY, |cap| cap as f64);
            }
            look_at = now + path.look_again(at, &seen).as_secs_f64();
        }
    }
    let line = rate * rtt;
    Outcome { arrived: arrived / line, dropped: dropped / line, late: late / (line * rtts / 10.0) }
}

const CELLS: [(f64, f64); 6] =
    [(1.25e6, 0.05), (5.592e6, 0.02), (5.592e6, 0.1), (19.44e6, 0.1), (19.44e6, 0.3), (77.76e6, 0.05)];

#[test]
fn a_start_drops_less_and_brings_as_much() {
    for (rate, rtt) in CELLS {
        for queue in [0.7, 1.0] {
            let cell = Cell { rate, rtt, lanes: &[0.0], queue, is_held: false, then: None };
            let (free, held) = (run(cell, 40.0), run(Cell { is_held: true, ..cell }, 40.0));
            assert!(held.dropped < 1.0 && held.dropped < free.dropped / 5.0, "{cell:?} {free:?} {held:?}");
            assert!(held.arrived >= 0.99 * free.arrived, "{cell:?} {free:?} {held:?}");
        }
    }
}

#[test]
fn lanes_that_begin_on_a_full_line_drop_little() {
    for (rate, rtt) in CELLS {
        let lanes = &[0.0, 20.0, 20.0, 20.0];
        let cell = Cell { rate, rtt, lanes, queue: 1.0, is_held: false, then: None };
        let (free, held) = (run(cell, 60.0), run(Cell { is_held: true, ..cell }, 60.0));
        assert!(held.dropped < free.dropped / 3.0, "{cell:?} {free:?} {held:?}");
        assert!(held.arrived >= 0.985 * free.arrived && held.late > 0.97, "{cell:?} {free:?} {held:?}");
    }
}

#[test]
fn a_line_that_becomes_faster_or_slower_is_followed() {
    for (rate, rtt) in CELLS {
        for times in [0.25, 4.0] {
            let then = Some((40.0, times * rate));
            let cell = Cell { rate, rtt, lanes: &[0.0, 2.0], queue: 1.0, is_held: false, then };
            let (free, held) = (run(cell, 200.0), run(Cell { is_held: true, ..cell }, 200.0));
            assert!(held.arrived >= 0.93 * free.arrived && held.late > 0.99, "{cell:?} {free:?} {held:?}");
            assert!(held.dropped < free.dropped, "{cell:?} {free:?} {held:?}");
        }
    }
}
