//! The pure cores against a plain queue: random writes, lanes that die, stall, come back and reorder, credit that is small
//! or late. Whatever happens, what is read is what was written, and what is bounded stays bounded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use farside_platform::{Randomness, SeededRandomness};

use super::site::pattern;
use crate::bundle::budget::WindowBudget;
use crate::bundle::options::LaneId;
use crate::bundle::receiver::{Read, Receiver};
use crate::bundle::segment::{Ack, HEADER_BYTES};
use crate::bundle::sender::{Next, Sender, Wait};
use crate::limits::{LANES_MAX, WINDOW_BUDGET, WINDOW_MAX, WINDOW_START};
use crate::options::Window;

const SEEDS: u64 = 2000;
const STEPS: u64 = 300;
const PERIOD: u64 = 65_521;

enum OnWire {
    Data { offset: u64, bytes: Bytes, crowded: bool },
    End(u64),
}

#[derive(Default)]
struct Link {
    there: VecDeque<OnWire>,
    back: VecDeque<(u64, Ack)>,
    /// What has arrived on it.
    position: u64,
    /// Nothing moves on it for now.
    is_frozen: bool,
}

struct World {
    random: SeededRandomness,
    now: Duration,
    sender: Sender,
    receiver: Receiver,
    links: BTreeMap<LaneId, Link>,
    next_lane: u32,
    /// Written and not read: the oracle.
    queue: VecDeque<u8>,
    /// What is written, again and again: its period is no multiple of any size that matters.
    block: Arc<Vec<u8>>,
    written: u64,
    to_write: u64,
    read: u64,
    has_read_end: bool,
}

impl World {
    fn new(seed: u64, budget: &Arc<WindowBudget>, block: &Arc<Vec<u8>>) -> World {
        let random = SeededRandomness::new(seed);
        let window = match random.next_u64() % 4 {
            0 => Window::Auto,
            n => Window::Bytes(n * 50_000 + 20_000),
        };
        let receiver = Receiver::new(window, None, Arc::clone(budget));
        let to_write = random.next_u64() % 400_000;
        let mut world = World {
            random,
            now: Duration::ZERO,
            sender: Sender::new(Arc::clone(budget)),
            receiver,
            links: BTreeMap::new(),
            next_lane: 0,
            queue: VecDeque::new(),
            block: Arc::clone(block),
            written: 0,
            to_write,
            read: 0,
            has_read_end: false,
        };
        for _ in 0..=world.below(4) {
            world.add_lane();
        }
        world
    }

    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n
    }

    fn add_lane(&mut self) {
        if self.links.len() < LANES_MAX {
            let lane = LaneId(self.next_lane);
            self.next_lane += 1;
            let standby = self.below(8) == 0;
            self.sender.add_lane(lane, standby, None, self.now);
            self.links.insert(lane, Link::default());
        }
    }

    fn some_lane(&self) -> Option<LaneId> {
        let number = self.below(self.links.len().max(1) as u64) as usize;
        self.links.keys().nth(number).copied()
    }

    fn write(&mut self, most: u64) {
        let bytes = self.below(most + 1).min(self.to_write - self.written) as usize;
        let from = (self.written % PERIOD) as usize;
        let bytes = &self.block[from..from + bytes];
        let taken = self.sender.write(bytes);
        self.queue.extend(&bytes[..taken]);
        self.written += taken as u64;
        if self.written == self.to_write {
            self.sender.finish();
        }
    }

    /// A lane takes what there is, less if a throttle says so.
    fn take(&mut self, lane: LaneId) -> bool {
        let segment = match self.sender.next(lane) {
            Next::Nothing(_) => return false,
            Next::End => OnWire::End(self.sender.take_end(lane, self.now).unwrap()),
            Next::Data(bytes) => {
                let granted = if self.below(3) == 0 { 1 + self.below(bytes) } else { bytes };
                let segment = self.sender.take(lane, granted, self.now).unwrap();
                assert!((1..=granted).contains(&(segment.bytes.len() as u64)));
                OnWire::Data { offset: segment.offset, bytes: segment.bytes, crowded: segment.crowded }
            }
        };
        self.links.get_mut(&lane).unwrap().there.push_back(segment);
        true
    }

    /// The oldest segment on a lane arrives, with or without an ack.
    fn deliver(&mut self, lane: LaneId, ack: bool) -> bool {
        let link = self.links.get_mut(&lane).unwrap();
        if link.is_frozen {
            return false;
        }
        let segment = link.there.pop_front();
        let is_progress = segment.is_some();
        match segment {
            Some(OnWire::Data { offset, bytes, crowded }) => {
                link.position += (HEADER_BYTES + bytes.len()) as u64;
                self.receiver.admits(offset, bytes.len()).unwrap();
                self.receiver.on_data(offset, bytes, crowded).unwrap();
            }
            Some(OnWire::End(offset)) => {
                link.position += HEADER_BYTES as u64;
                self.receiver.on_end(offset).unwrap();
            }
            None => {}
        }
        if ack {
            self.receiver.grant(self.receiver.grantable());
            let (contiguous, limit) = self.receiver.send_ack();
            link.back.push_back((contiguous, Ack { limit, position: link.position }));
        }
        is_progress
    }

    fn deliver_ack(&mut self, lane: LaneId) {
        let link = self.links.get_mut(&lane).unwrap();
        if !link.is_frozen
            && let Some((contiguous, ack)) = link.back.pop_front()
        {
            self.sender.on_ack(lane, contiguous, ack, self.now).unwrap();
        }
    }

    fn read(&mut self) {
        match self.receiver.read() {
            Read::Piece(piece) => {
                self.read += piece.len() as u64;
                let expected = &self.queue.make_contiguous()[..piece.len()];
                assert!(piece == expected, "other bytes than were written, before {}", self.read);
                self.queue.drain(..piece.len());
            }
            Read::End => {
                assert_eq!((self.queue.len(), self.written), (0, self.to_write), "an end too early");
                self.has_read_end = true;
            }
            Read::Nothing => {}
        }
    }

    fn kill(&mut self, lane: LaneId) {
        self.sender.remove_lane(lane);
        self.links.remove(&lane);
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
        for lane in self.sender.overdue(self.now) {
            self.sender.stall(lane);
            assert!(self.sender.is_stalled(lane));
            assert_eq!(self.sender.next(lane), Next::Nothing(Wait::Lane));
        }
    }

    fn step(&mut self) {
        let Some(lane) = self.some_lane() else { return self.add_lane() };
        match self.below(100) {
            0..15 => self.write(40_000),
            15..20 => self.write(20),
            20..45 => drop(self.take(lane)),
            45..65 => {
                let ack = self.below(2) == 0;
                self.deliver(lane, ack);
            }
            65..80 => self.deliver_ack(lane),
            80..90 => self.read(),
            90 => self.kill(lane),
            91 => self.add_lane(),
            92..94 => self.links.get_mut(&lane).unwrap().is_frozen = true,
            94..97 => self.links.get_mut(&lane).unwrap().is_frozen = false,
            _ => self.pass(1 + self.below(1500)),
        }
    }

    fn check_bounds(&self) {
        let window = self.receiver.window();
        assert!(window <= WINDOW_MAX);
        // All that is kept is between what was read and the limit, which is at most a window past it.
        assert!(self.receiver.limit() <= self.read + window);
        assert!(self.sender.in_flight() <= window.max(WINDOW_START));
        assert!(self.sender.given() - self.sender.retransmitted() <= self.written);
    }

    /// Everything works from now on: then everything arrives.
    fn run_out(&mut self) {
        if self.links.is_empty() {
            self.add_lane();
        }
        let mut rounds = 0;
        while !self.has_read_end || !self.sender.is_delivered() {
            rounds += 1;
            assert!(rounds < 10_000, "stuck: {:?}", self.sender);
            self.write(400_000);
            for lane in self.links.keys().copied().collect::<Vec<_>>() {
                self.links.get_mut(&lane).unwrap().is_frozen = false;
                while self.take(lane) {}
                while self.deliver(lane, false) {}
                self.deliver(lane, true);
                while !self.links[&lane].back.is_empty() {
                    self.deliver_ack(lane);
                }
            }
            (0..100).for_each(|_| self.read());
            self.pass(100);
        }
        assert_eq!(self.read, self.to_write);
        assert_eq!((self.sender.in_flight(), self.sender.undelivered()), (0, 0));
        assert!(self.receiver.is_complete() && !self.sender.has_waiting());
    }
}

#[test]
fn whatever_lanes_do_what_is_read_is_what_was_written() {
    let budget = Arc::new(WindowBudget::default());
    let block = Arc::new([pattern(0, PERIOD as usize), pattern(0, 400_000)].concat());
    let (mut twice, mut duplicates) = (0, 0);
    for seed in 0..SEEDS {
        let outcome = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, &budget, &block);
            for _ in 0..STEPS {
                world.step();
                world.check_bounds();
            }
            world.run_out();
            (world.sender.retransmitted(), world.receiver.duplicates())
        });
        match outcome {
            Ok((again, received)) => {
                twice += again;
                duplicates += received;
                assert!(received <= again, "seed {seed}: more came twice than was retransmitted");
            }
            Err(panic) => {
                println!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // The schedules do what they are for, and nothing is kept of the budget.
    assert!(twice > 0 && duplicates > 0);
    assert!(budget.take(WINDOW_BUDGET));
}

/// A sender and lanes over which nothing is lost.
fn sender_with_lanes(lanes: u32) -> Sender {
    let mut sender = Sender::new(Arc::default());
    (0..lanes).for_each(|n| sender.add_lane(LaneId(n), false, None, Duration::ZERO));
    sender
}

const A: LaneId = LaneId(0);
const B: LaneId = LaneId(1);
const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn a_lane_that_does_not_move_is_stalled_sooner_while_another_does() {
    for (other_moves, patience) in [(true, 1000), (false, 3000)] {
        let mut sender = sender_with_lanes(2);
        sender.write(&[1; 1000]);
        sender.take(A, 500, MS(0)).unwrap();
        let second = sender.take(B, 500, MS(0)).unwrap();
        if other_moves {
            let position = (HEADER_BYTES + second.bytes.len()) as u64;
            sender.on_ack(B, 0, Ack { limit: 1 << 20, position }, MS(50)).unwrap();
        }
        assert_eq!(sender.overdue(MS(patience - 1)), []);
        assert!(sender.overdue(MS(patience)).contains(&A));
        sender.stall(A);
        // What it had is first in line, and counted once it goes again.
        assert_eq!((sender.next(A), sender.retransmitted()), (Next::Nothing(Wait::Lane), 0));
        if other_moves {
            let again = sender.take(B, 500, MS(patience)).unwrap();
            assert_eq!((again.offset, again.bytes.len(), sender.retransmitted()), (0, 500, 500));
            // It had arrived on the first after all, late.
            sender.on_ack(A, 1000, Ack { limit: 1 << 20, position: 516 }, MS(5000)).unwrap();
            assert!(!sender.is_stalled(A) && sender.in_flight() == 0);
        }
    }
}

/// Two lanes with a round trip of 50 ms that take and deliver turn by turn, `until` a moment; one of `outages` delivers nothing until it
/// is over, and then all at once.
fn run(sender: &mut Sender, positions: &mut [u64; 2], from: u64, until: u64, outages: &[(u64, u64)]) {
    let mut on_their_way: Vec<(LaneId, u64, u64)> = Vec::new();
    for now in (from..until).step_by(25) {
        sender.write(&[1; 2000]);
        for lane in [A, B] {
            if on_their_way.iter().filter(|(id, ..)| *id == lane).count() < 20
                && let Some(segment) = sender.take(lane, 500, MS(now))
            {
                let at = &mut positions[lane.0 as usize];
                *at += (HEADER_BYTES + segment.bytes.len()) as u64;
                on_their_way.push((lane, *at, now));
            }
        }
        let is_out = |at: u64| outages.iter().any(|(from, to)| (*from..*to).contains(&at));
        while let Some(&(lane, position, _)) =
            on_their_way.first().filter(|(.., at)| now >= at + 50 && !is_out(now))
        {
            on_their_way.remove(0);
            sender.on_ack(lane, 0, Ack { limit: 1 << 20, position }, MS(now)).unwrap();
        }
    }
    for (lane, position, _) in on_their_way {
        sender.on_ack(lane, 0, Ack { limit: 1 << 20, position }, MS(until + 50)).unwrap();
    }
}

#[test]
fn an_outage_does_not_teach_patience_with_lanes_that_stand() {
    let mut sender = Sender::new(Arc::default());
    for lane in [A, B] {
        sender.add_lane(lane, false, Some(MS(50)), MS(0));
    }
    sender.may_send(1 << 20);
    let outages: Vec<(u64, u64)> = (1..=10).map(|n| (6000 * n, 6000 * n + 2900)).collect();
    let mut positions = [0, 0];
    // To the moment in which what was on its way in the last of them has arrived.
    run(&mut sender, &mut positions, 0, 62_950, &outages);
    for lane in [A, B] {
        let latency = sender.lane(lane).0.unwrap();
        assert!(latency < MS(200), "{latency:?} of a lane of 50 ms");
    }
    // One stands from now on and the other moves: that is known after a second.
    sender.write(&[1; 1000]);
    sender.take(A, 500, MS(64_000)).unwrap();
    let second = sender.take(B, 500, MS(64_000)).unwrap();
    let position = positions[1] + (HEADER_BYTES + second.bytes.len()) as u64;
    sender.on_ack(B, 0, Ack { limit: 1 << 20, position }, MS(64_050)).unwrap();
    assert_eq!(sender.overdue(MS(65_000)), [A]);
}

#[test]
fn a_line_that_has_become_longer_is_learned_all_the_same() {
    let mut sender = Sender::new(Arc::default());
    sender.add_lane(A, false, Some(MS(50)), MS(0));
    sender.may_send(1 << 20);
    let (mut position, mut now) = (0, 0);
    for _ in 0..8 {
        sender.write(&[1; 500]);
        let segment = sender.take(A, 500, MS(now)).unwrap();
        position += (HEADER_BYTES + segment.bytes.len()) as u64;
        now += 3000;
        sender.on_ack(A, 0, Ack { limit: 1 << 20, position }, MS(now)).unwrap();
    }
    assert!(sender.lane(A).0.unwrap() > MS(1000), "{:?}", sender.lane(A).0);
}

#[test]
fn the_segment_that_is_waited_for_goes_over_a_lane_that_moves() {
    let mut sender = Sender::new(Arc::default());
    // Seconds of queue: patience is twelve.
    for lane in [A, B] {
        sender.add_lane(lane, false, Some(MS(3000)), MS(0));
    }
    sender.may_send(1 << 20);
    sender.write(&[1; 5000]);
    let edge = sender.take(A, 500, MS(0)).unwrap();
    sender.take(A, 500, MS(0)).unwrap();
    let mut position = 0;
    for second in 0..6 {
        let segment = sender.take(B, 500, MS(1000 * second)).unwrap();
        position += (HEADER_BYTES + segment.bytes.len()) as u64;
        let is_due = sender.send_edge_again(MS(1000 * second + 3000));
        assert!(!is_due, "what was sent a round trip later has not arrived by {} s", second + 3);
        if second < 3 {
            sender.on_ack(B, 0, Ack { limit: 1 << 20, position }, MS(1000 * second + 3000)).unwrap();
        }
    }
    sender.on_ack(B, 0, Ack { limit: 1 << 20, position }, MS(8100)).unwrap();
    assert_eq!(sender.overdue(MS(8200)), [], "it is not given up");
    assert!(sender.send_edge_again(MS(8200)));
    let again = sender.take(B, 500, MS(8200)).unwrap();
    assert_eq!((again.offset, sender.retransmitted()), (edge.offset, 500));
    assert!(!sender.send_edge_again(MS(8300)), "once, and nothing else of that lane");
}

#[test]
fn a_peer_that_acknowledges_what_it_cannot_have_is_refused() {
    let ack = |position| Ack { limit: 1 << 20, position };
    let mut sender = sender_with_lanes(1);
    sender.write(&[1; 100]);
    sender.take(A, 100, MS(0)).unwrap();
    assert!(sender.on_ack(A, 101, ack(0), MS(1)).is_err());
    assert!(sender.on_ack(A, 0, ack(117), MS(1)).is_err());
    sender.on_ack(A, 50, ack(60), MS(1)).unwrap();
    // Another lane's ack may be older, the lane's own position may not.
    sender.on_ack(A, 40, ack(60), MS(1)).unwrap();
    assert!(sender.on_ack(A, 50, ack(59), MS(1)).is_err());
    assert!(sender.on_leave().is_err());
}

#[test]
fn an_automatic_window_doubles_while_it_is_what_limits() {
    let budget = Arc::new(WindowBudget::new(6 * WINDOW_START));
    let piece = Bytes::from(vec![0; 64 * 1024]);
    // The sender uses up what was announced to it; what is granted meanwhile is for the next time.
    let fill = |receiver: &mut Receiver, crowded: bool, reads: bool| {
        receiver.grant(receiver.grantable());
        let announced = receiver.limit();
        while announced - receiver.contiguous() >= piece.len() as u64 {
            let is_crowded = crowded && (announced - receiver.contiguous()) * 2 < receiver.window();
            receiver.on_data(receiver.contiguous(), piece.clone(), is_crowded).unwrap();
            while reads && matches!(receiver.read(), Read::Piece(_)) {
                receiver.grant(receiver.grantable());
            }
        }
    };
    let mut receiver = Receiver::new(Window::Auto, None, Arc::clone(&budget));
    // Not while the sender has credit to spare, and not while nobody reads.
    fill(&mut receiver, false, true);
    assert_eq!(receiver.window(), WINDOW_START);
    fill(&mut receiver, true, false);
    assert_eq!(receiver.window(), WINDOW_START);
    while matches!(receiver.read(), Read::Piece(_)) {}
    // Once for each window: the first crowded segments may be of credit granted before.
    fill(&mut receiver, true, true);
    assert_eq!(receiver.window(), 2 * WINDOW_START);
    fill(&mut receiver, true, true);
    assert_eq!(receiver.window(), 4 * WINDOW_START);
    // The budget has no eight more.
    fill(&mut receiver, true, true);
    assert_eq!(receiver.window(), 4 * WINDOW_START);
    drop(receiver);
    assert!(budget.take(6 * WINDOW_START));
    let mut fixed = Receiver::new(Window::Bytes(100_000), None, budget);
    (0..5).for_each(|_| fill(&mut fixed, true, true));
    assert_eq!(fixed.window(), 100_000);
}
