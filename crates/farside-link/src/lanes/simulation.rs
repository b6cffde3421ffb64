//! The number of lanes on links that behave as congestion control makes them: connections with a window each, a queue of one
//! product of rate and round trip, random loss. One step is one round trip.

use std::time::Duration;

use farside_platform::{Randomness, SeededRandomness};

use super::count::{LaneCount, Seen, least};

const SEGMENT: f64 = 1448.0;
const LANES_MAX: usize = 32;
/// Bytes that a socket has in flight at most: 4 MiB of kernel memory hold half of that in segments.
const BUFFER: f64 = 2_097_152.0;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Control {
    /// A loss takes 30 %, a round trip adds a segment: what cubic does where it is not faster than Reno. That is at least what
    /// `1.2 / root of loss` segments in a round trip say.
    Cubic,
    /// Doubles until it is the link that limits, and heeds no loss.
    Bbr,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    control: Control,
    /// Bytes per second.
    rate: f64,
    rtt: f64,
    loss: f64,
}

struct Connection {
    /// Segments.
    window: f64,
    in_slow_start: bool,
}

/// A link and the connections over it.
struct Link {
    cell: Cell,
    connections: Vec<Connection>,
    random: SeededRandomness,
    now: f64,
    delivered: f64,
}

impl Link {
    fn new(cell: Cell) -> Link {
        Link { cell, connections: Vec::new(), random: SeededRandomness::new(7), now: 0.0, delivered: 0.0 }
    }

    fn draw(&self) -> f64 {
        self.random.next_u64() as f64 / u64::MAX as f64
    }

    fn set_lanes(&mut self, lanes: usize) {
        self.connections.truncate(lanes);
        while self.connections.len() < lanes {
            self.connections.push(Connection { window: 10.0, in_slow_start: true });
        }
    }

    /// One round trip; its length, and the share of the connections whose buffer was what limited them.
    fn round(&mut self) -> (f64, f64) {
        let Cell { control, rate, rtt, loss } = self.cell;
        let product = rate * rtt.max(0.001);
        let queue = product.max(64_000.0);
        let of_buffer = BUFFER / SEGMENT;
        let asked: f64 = self.connections.iter().map(|c| c.window.min(of_buffer) * SEGMENT).sum();
        let carried = asked.min(product + queue);
        let length = rtt.max(0.001).max(carried / rate);
        let overflows = asked > product + queue;
        let full = self.connections.iter().filter(|c| c.window >= of_buffer).count();
        let share = full as f64 / self.connections.len() as f64;
        for at in 0..self.connections.len() {
            let sent = self.connections[at].window.min(of_buffer);
            let lost_at_random = self.draw() > (1.0 - loss).powf(sent);
            // A queue that runs over hits some of them.
            let lost_in_queue = overflows && self.draw() < 0.7;
            let fills = asked >= product;
            let connection = &mut self.connections[at];
            match control {
                Control::Bbr if connection.in_slow_start && !fills => connection.window *= 2.0,
                Control::Bbr => {
                    connection.in_slow_start = false;
                    let fair = 2.0 * product / SEGMENT / self.connections.len() as f64;
                    self.connections[at].window = fair.max(4.0);
                }
                Control::Cubic if lost_at_random || lost_in_queue => {
                    connection.in_slow_start = false;
                    connection.window = (connection.window * 0.7).max(2.0);
                }
                Control::Cubic if connection.in_slow_start => connection.window *= 2.0,
                Control::Cubic => connection.window += 1.0,
            }
            let connection = &mut self.connections[at];
            connection.window = connection.window.min(of_buffer);
        }
        self.now += length;
        self.delivered += carried * (1.0 - loss);
        (length, share)
    }

    /// Share of the link from `warm` to `until` seconds with a number of lanes that does not change.
    fn share_with(cell: Cell, lanes: usize, warm: f64, until: f64) -> f64 {
        let mut link = Link::new(cell);
        link.set_lanes(lanes);
        let mut early = 0.0;
        while link.now < until {
            link.round();
            if link.now < warm {
                early = link.delivered;
            }
        }
        ((link.delivered - early) / (until - warm) / cell.rate).min(1.0)
    }
}

struct Outcome {
    share: f64,
    lanes: f64,
    best: f64,
}

fn run(cell: Cell) -> Outcome {
    let rtt = cell.rtt.max(0.001);
    let (warm, until) = ((600.0 * rtt).max(20.0), (2400.0 * rtt).max(60.0));
    let mut link = Link::new(cell);
    let mut count = LaneCount::new(None, LANES_MAX);
    link.set_lanes(1);
    let (mut early, mut lanes, mut looks) = (0.0, 0.0, 0.0);
    while link.now < until {
        let before = link.delivered;
        let (length, buffer_limited) = link.round();
        let wanted = count.see(&Seen {
            now: Duration::from_secs_f64(link.now),
            lanes: link.connections.len(),
            delivered_bytes: link.delivered as u64,
            rtt: Duration::from_secs_f64(length),
            is_paced: cell.control == Control::Bbr,
            was_backlogged: true,
            min_rtt: Duration::ZERO,
            is_full: false,
            held_bytes: ((link.delivered - before) / length * cell.rtt) as u64,
            buffer_limited,
        });
        assert!((1..=LANES_MAX).contains(&wanted), "{wanted} lanes in {cell:?}");
        link.set_lanes(wanted);
        if link.now < warm {
            early = link.delivered;
        } else {
            lanes += wanted as f64 * length;
            looks += length;
        }
    }
    let share = ((link.delivered - early) / (until - warm) / cell.rate).min(1.0);
    let best = [1, 2, 4, 8, 16, 32].map(|n| Link::share_with(cell, n, warm, until));
    Outcome { share, lanes: lanes / looks, best: best.into_iter().fold(0.0, f64::max) }
}

const RATES: [(&str, f64); 6] = [
    ("256 kb/s", 32e3),
    ("T1", 193e3),
    ("10 Mb/s", 1.25e6),
    ("T3", 5.592e6),
    ("OC-3", 19.44e6),
    ("1 Gb/s", 125e6),
];

fn cells(control: Control) -> impl Iterator<Item = (&'static str, Cell)> {
    RATES.into_iter().flat_map(move |(name, rate)| {
        [0.0, 0.02, 0.1, 0.3].into_iter().flat_map(move |rtt| {
            [0.0, 0.001, 0.01].map(move |loss| (name, Cell { control, rate, rtt, loss }))
        })
    })
}

#[test]
fn under_bbr_one_lane_does_unless_a_buffer_limits() {
    for (name, cell) in cells(Control::Bbr) {
        let outcome = run(cell);
        let needs = cell.rate * cell.rtt / BUFFER;
        println!(
            "bbr {name:>8} {:>3.0} ms {:>4.1} %: {:.3} of the link, best {:.3}, {:.1} lanes",
            1e3 * cell.rtt,
            1e2 * cell.loss,
            outcome.share,
            outcome.best,
            outcome.lanes
        );
        assert!(outcome.share >= 0.97 * outcome.best, "{name} {cell:?}: {:.3}", outcome.share);
        if needs <= 0.5 {
            let long = least((cell.rate * cell.rtt) as u64) as f64;
            assert!(outcome.lanes <= long + 0.5, "{name} {cell:?}: {:.1} lanes", outcome.lanes);
        }
    }
}

#[test]
fn under_cubic_as_many_as_loss_and_distance_take() {
    for (name, cell) in cells(Control::Cubic) {
        let outcome = run(cell);
        println!(
            "cubic {name:>8} {:>3.0} ms {:>4.1} %: {:.3} of the link, best {:.3}, {:.1} lanes",
            1e3 * cell.rtt,
            1e2 * cell.loss,
            outcome.share,
            outcome.best,
            outcome.lanes
        );
        assert!(outcome.share >= 0.9 * outcome.best, "{name} {cell:?}: {:.3}", outcome.share);
        let product = cell.rate * cell.rtt.max(0.001);
        let one = SEGMENT * 1.2 / cell.loss.sqrt();
        if one > 2.0 * product && BUFFER > 2.0 * product {
            assert!(outcome.lanes <= 8.0, "{name} {cell:?}: {:.1} lanes", outcome.lanes);
        }
    }
}
