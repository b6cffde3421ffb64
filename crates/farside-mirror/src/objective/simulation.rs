//! Thousands of mirrors with objectives on one link, in simulation: pace, queue and link as they are, time by hand.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use farside_peer::PeerId;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

use super::*;
use crate::queue::line::{Claim, Line, Ticket};

/// What an update takes whatever it brings: a round trip or two, a snapshot, a commit.
const FIXED: f64 = 0.2;
/// Transfers at once.
const SIZE: usize = 16;

struct Mirror {
    objective: f64,
    /// Bytes on the wire for each second of its period.
    rate: f64,
    pace: Pace,
    taken: f64,
    asked: f64,
}

struct Transfer {
    mirror: usize,
    ticket: Ticket,
    begun: f64,
    /// Seconds until its bytes flow, then bytes that are left.
    waits: f64,
    left: f64,
}

/// What came of a simulated time.
struct Outcome {
    /// Updates that were published.
    updates: usize,
    /// Of these, those whose data was older than the objective before.
    late: usize,
    /// Late ones of mirrors that had not said before that they would be.
    unforetold: usize,
    /// The longest lag, as a part of the objective.
    worst: f64,
}

/// Mirrors whose objectives are drawn from `objectives` seconds, whose changes together are `load` of the link.
fn simulate(
    random: &mut SmallRng,
    count: usize,
    objectives: std::ops::Range<f64>,
    load: f64,
    hours: f64,
) -> Outcome {
    // A T3, bytes a second.
    let link = 5.6e6;
    let shares: Vec<f64> = (0..count).map(|_| random.random_range(0.1..1.0)).collect();
    let all: f64 = shares.iter().sum();
    let mut mirrors: Vec<Mirror> = shares
        .iter()
        .map(|share| {
            let objective = random.random_range(objectives.clone());
            let taken = -random.random_range(0.0..objective * 0.5);
            Mirror { objective, rate: load * link * share / all, pace: Pace::default(), taken, asked: 0.0 }
        })
        .collect();
    let seconds = |time: f64| Duration::from_secs_f64(time.max(0.0));
    let begins = |m: &Mirror| m.taken + m.pace.forecast(seconds(m.objective)).period.as_secs_f64();
    let millis = |time: f64| (time * 1000.0) as u64;
    let mut due: BinaryHeap<Reverse<(u64, usize)>> =
        mirrors.iter().enumerate().map(|(at, m)| Reverse((millis(begins(m)), at))).collect();
    let (mut line, mut running): (Line, Vec<Transfer>) = (Line::new(SIZE), Vec::new());
    let mut outcome = Outcome { updates: 0, late: 0, unforetold: 0, worst: 0.0 };
    let (mut now, end) = (0.0_f64, hours * 3600.0);
    // What happens before every mirror has learnt how long its updates take does not count.
    let learnt = 2.0 * objectives.end;
    while now < end {
        while let Some(Reverse((at, mirror))) =
            due.peek().copied().filter(|Reverse((at, _))| *at <= millis(now))
        {
            due.pop();
            let m = &mut mirrors[mirror];
            m.asked = at as f64 / 1000.0;
            let left = (m.taken + m.objective - now).min(600.0);
            line.come(Claim {
                peer: PeerId([1; 32]),
                mirror: Uuid::from_u128(mirror as u128),
                is_first_copy: false,
                is_for_person: false,
                due: ((now + left) * 1000.0) as i64,
            });
        }
        while let Some((ticket, claim)) = line.begin_next_claim(seconds(now)) {
            let mirror = usize::try_from(claim.mirror.as_u128()).unwrap();
            let bytes = mirrors[mirror].rate * (now - mirrors[mirror].taken);
            running.push(Transfer { mirror, ticket, begun: now, waits: FIXED, left: bytes });
        }
        // Until the next thing happens: one begins to flow or ends, or one is due.
        let flowing = running.iter().filter(|t| t.waits <= 0.0).count().max(1) as f64;
        let each = link / flowing;
        let next = |t: &Transfer| if t.waits > 0.0 { t.waits } else { t.left / each };
        let soonest = running.iter().map(next).fold(f64::INFINITY, f64::min);
        let until_due =
            due.peek().map_or(f64::INFINITY, |Reverse((at, _))| (*at as f64 / 1000.0 - now).max(0.001));
        let step = soonest.min(until_due).max(1e-6);
        now += step;
        for t in &mut running {
            if t.waits > 0.0 { t.waits -= step } else { t.left -= step * each }
        }
        let (over, on): (Vec<Transfer>, Vec<Transfer>) =
            running.into_iter().partition(|t| t.waits <= 1e-9 && t.left <= 1e-3);
        running = on;
        for t in over {
            line.leave(t.ticket);
            let m = &mut mirrors[t.mirror];
            let lag = now - m.taken;
            if now > learnt {
                outcome.updates += 1;
                outcome.worst = outcome.worst.max(lag / m.objective);
                if lag > m.objective {
                    outcome.late += 1;
                    outcome.unforetold += usize::from(shortfall(seconds(m.objective), &m.pace).is_none());
                }
            }
            m.pace.note(Update {
                period: seconds(t.begun - m.taken),
                waited: seconds(t.begun - m.asked),
                took: seconds(now - t.begun),
            });
            m.taken = t.begun;
            due.push(Reverse((millis(begins(m).max(now)), t.mirror)));
        }
    }
    outcome
}

fn random() -> SmallRng {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    SmallRng::seed_from_u64(seed)
}

#[test]
fn as_long_as_the_link_allows_everybody_is_within_its_objective() {
    let mut random = random();
    for (count, objectives, load) in
        [(256, 30.0..300.0, 0.5), (256, 60.0..61.0, 0.7), (10_000, 600.0..7200.0, 0.6)]
    {
        let hours = if count > 1000 { 6.0 } else { 1.0 };
        let Outcome { updates, late, worst, .. } = simulate(&mut random, count, objectives, load, hours);
        println!(
            "{count} mirrors, load {load}: {updates} updates, {late} late, at worst {worst:.2} of the objective"
        );
        assert!(updates > count, "{updates}");
        assert!(late * 1000 <= updates, "{late} of {updates} were late");
    }
}

#[test]
fn when_it_does_not_that_is_said_before() {
    let mut random = random();
    let Outcome { updates, late, unforetold, worst } = simulate(&mut random, 256, 30.0..300.0, 1.3, 1.5);
    println!(
        "{updates} updates, {late} late, {unforetold} of these unforetold, at worst {worst:.1} objectives"
    );
    assert!(late * 2 > updates, "too much for the link, and {late} of {updates} were late");
    assert!(unforetold * 5 <= late, "{unforetold} of {late} were not foretold");
}
