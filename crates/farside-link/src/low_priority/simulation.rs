//! Low priority on a link with a queue: alone, beside flows that take what they get, and beside one that is small and wants
//! answers at once. One step is one round trip; windows share link and queue in proportion.

use std::time::Duration;

use super::cap::{Flow, LowPriority, PathSeen};

const SEGMENT: f64 = 1448.0;
/// How soon after a rival it has the link: seconds, and round trips.
const RECOVERY: (f64, f64) = (5.0, 100.0);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Rival {
    None,
    /// Fills the queue until it runs over, then gives back 30 %.
    Cubic,
    /// Has twice the product of rate and round trip in flight, and lets the queue drain every ten seconds.
    Bbr,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Bytes per second.
    rate: f64,
    rtt: f64,
    rival: Rival,
    /// The rival was there before.
    is_late: bool,
    /// When the rival goes, and what is measured begins some time later; seconds.
    rival_goes: Option<f64>,
}

#[derive(Debug)]
struct Outcome {
    /// Of the link, and of its time in which it carried anything at all.
    share: f64,
    used: f64,
    /// Of the queue, seconds: mean and 95 in 100.
    queue: (f64, f64),
}

fn seen(socket: f64, ping: f64) -> PathSeen {
    PathSeen { path: 0, socket: Duration::from_secs_f64(socket), ping: Some(Duration::from_secs_f64(ping)) }
}

fn run(cell: Cell) -> Outcome {
    let Cell { rate, rtt, rival, is_late, rival_goes } = cell;
    let product = rate * rtt;
    let buffer = product.max(rate * 0.05).max(20_000.0);
    let mut low_priority = LowPriority::new();
    let (mut rival_window, mut now, mut rival_drained) = (10.0 * SEGMENT, 0.0, 0.0);
    // What the cap allows, and what congestion control beneath it does.
    let mut own_cubic = 10.0 * SEGMENT;
    let mut own_window = if is_late { 0.0 } else { own_cubic };
    let (warm, until) = match rival_goes {
        None => (120.0_f64.max(300.0 * rtt), 400.0_f64.max(1000.0 * rtt)),
        Some(goes) => {
            (goes + RECOVERY.0.max(RECOVERY.1 * rtt), goes + 2.0 * RECOVERY.0.max(RECOVERY.1 * rtt))
        }
    };
    let (mut own, mut all, mut queues, mut seconds) = (0.0, 0.0, Vec::new(), 0.0);
    let mut smoothed = 0.0;
    if !is_late {
        // The session was there before: its handshakes have seen the path empty.
        low_priority.see(&Flow {
            now: Duration::ZERO,
            paths: &[seen(rtt, rtt)],
            in_flight_bytes: 0,
            mss: SEGMENT as u32,
            delivery_rate: None,
        });
    }
    while now < until {
        let is_gone = rival == Rival::None || rival_goes.is_some_and(|goes| now >= goes);
        let rival_now = if is_gone { 0.0 } else { rival_window };
        let sum = own_window + rival_now;
        let waiting = (sum - product).max(0.0);
        let overflows = waiting > buffer;
        let queue = waiting.min(buffer) / rate;
        let length = rtt + queue;
        let carried = sum.min(rate * length);
        if now >= warm {
            own += carried * own_window / sum.max(1.0);
            all += carried;
            queues.push(queue);
            seconds += length;
        }
        now += length;
        match rival {
            Rival::None => {}
            Rival::Cubic if overflows => rival_window *= 0.7,
            // A twentieth in a round trip: what cubic does in the long run on fast links, and Reno on slow ones.
            Rival::Cubic => rival_window += SEGMENT.max(0.05 * rival_window),
            Rival::Bbr if now - rival_drained > 10.0 => {
                rival_drained = now;
                rival_window = 4.0 * SEGMENT;
            }
            Rival::Bbr => rival_window = (2.0 * product).max(4.0 * SEGMENT),
        }
        if is_late && now < 20.0 {
            continue;
        }
        // The kernel's smoothing, and a round trip until it shows.
        smoothed = if smoothed == 0.0 { length } else { 0.5 * smoothed + 0.5 * length };
        let allowed = low_priority.see(&Flow {
            now: Duration::from_secs_f64(now),
            paths: &[seen(smoothed, length)],
            in_flight_bytes: own_window as u64,
            mss: SEGMENT as u32,
            delivery_rate: Some((own_window / length) as u64),
        });
        let cap = allowed.in_flight_bytes as f64;
        own_cubic = match overflows {
            true => own_cubic * 0.7,
            false if own_window < own_cubic => own_cubic,
            false => own_cubic * 2.0,
        }
        .max(2.0 * SEGMENT);
        own_window = cap.min(own_cubic);
    }
    queues.sort_by(f64::total_cmp);
    let mean = queues.iter().sum::<f64>() / queues.len() as f64;
    Outcome {
        share: own / seconds / rate,
        used: all / seconds / rate,
        queue: (mean, queues[queues.len() * 95 / 100]),
    }
}

fn cells(rival: Rival, is_late: bool) -> impl Iterator<Item = Cell> {
    [193e3, 1.25e6, 5.592e6, 19.44e6, 125e6].into_iter().flat_map(move |rate| {
        [0.01, 0.02, 0.05, 0.1, 0.3].map(move |rtt| Cell { rate, rtt, rival, is_late, rival_goes: None })
    })
}

#[test]
fn alone_it_takes_the_link_and_adds_less_than_its_target() {
    for cell in cells(Rival::None, false) {
        let outcome = run(cell);
        println!("{cell:?} {outcome:?}");
        assert!(outcome.share > 0.9, "{cell:?} {outcome:?}");
        let target = (cell.rtt / 8.0).max(0.005).max(3.0 * SEGMENT / cell.rate);
        // A segment in flight is a queue where the path holds less.
        let target = target + (SEGMENT / cell.rate - cell.rtt).max(0.0);
        assert!(outcome.queue.0 < target, "{cell:?} {outcome:?}");
        assert!(outcome.queue.1 < 1.5 * target, "{cell:?} {outcome:?}");
    }
}

#[test]
fn beside_a_greedy_flow_it_takes_little_and_the_link_stays_full() {
    for cell in cells(Rival::Cubic, false).chain(cells(Rival::Bbr, false)).chain(cells(Rival::Bbr, true)) {
        let outcome = run(cell);
        println!("{cell:?} {outcome:?}");
        // Where a path holds less than BBR's four segments, one is a fifth, and the queue never drains.
        let holds_little = cell.rate * cell.rtt < 4.0 * SEGMENT;
        assert!(outcome.share < 0.15 || holds_little, "{cell:?} {outcome:?}");
        assert!(outcome.used > 0.85, "{cell:?} {outcome:?}");
    }
}

#[test]
fn beside_a_queue_that_never_drains_it_takes_no_more_than_its_rival() {
    for cell in cells(Rival::Cubic, true) {
        let outcome = run(cell);
        println!("{cell:?} {outcome:?}");
        assert!(outcome.share < 0.55, "{cell:?} {outcome:?}");
    }
}

#[test]
fn what_a_rival_leaves_is_taken_soon() {
    for cell in cells(Rival::Cubic, false).chain(cells(Rival::Bbr, false)) {
        let cell = Cell { rival_goes: Some(120.0_f64.max(300.0 * cell.rtt)), ..cell };
        let outcome = run(cell);
        println!("{cell:?} {outcome:?}");
        assert!(outcome.share > 0.85, "{cell:?} {outcome:?}");
    }
}
