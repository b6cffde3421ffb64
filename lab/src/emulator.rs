//! Moves IP packets between two TUN devices as a link says.
//!
//! ```text
//!   site a ── TUN a ──▶ [ forward: Line ] ──▶ TUN b ── site b
//!                   ◀── [ back:    Line ] ◀──
//! ```
//!
//! Each direction has one thread, its own [`Line`](crate::link::Line) and its own counters; the directions share no lock. A thread reads
//! packets as soon as they are there, asks the line when each comes out, keeps it, and writes it to the other device at
//! that moment. It runs at real-time priority where the system allows that and says so in its counters.
//!
//! What it guarantees: a packet comes out unchanged or is counted as lost or dropped, with the reason; bytes and packets
//! are exact. What it cannot: come out on time when the machine is busy. So every packet's lateness is in the counters, and
//! what the kernel dropped before or after the emulator is too.
//!
//! Memory is bounded: by what the link can hold ([`Shape::held_bytes`](crate::link::Shape::held_bytes)), in buffers of a
//! few sizes (`pool.rs`).

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::link::{Change, Direction, Link};
use crate::record::DirectionCounters;

mod count;
mod direction;
mod error;
mod pending;
mod pool;
mod tun;

use direction::{Carrier, Command, Wake};
pub use error::EmulatorError;
use tun::DeviceDrops;
pub use tun::Tun;

/// Commands that may wait for a direction's thread. Each caller waits for its answer, so there are as many as callers at once.
const COMMANDS_MAX: usize = 16;

/// Counters of both directions of a link, since it came up or since the last mark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// From a to b.
    pub forward: DirectionCounters,
    /// From b to a.
    pub back: DirectionCounters,
}

/// A running link. Dropping it stops its threads.
#[derive(Debug)]
pub struct Emulator {
    forward: Thread,
    back: Thread,
    a: Arc<Tun>,
    b: Arc<Tun>,
    /// What the devices had dropped at the last mark: of a, of b.
    drops_at_mark: Mutex<(DeviceDrops, DeviceDrops)>,
}

/// One direction's thread as seen from outside.
#[derive(Debug)]
struct Thread {
    direction: Direction,
    commands: SyncSender<Command>,
    wake: Arc<Wake>,
    /// Why it ended by itself.
    failure: Arc<OnceLock<String>>,
    handle: Option<JoinHandle<()>>,
}

impl Emulator {
    /// Starts to carry packets between `a` and `b`; the link comes up, and its script begins, now. All chance in it follows
    /// from `seed`.
    ///
    /// # Errors
    /// [`EmulatorError::Limit`] if the link is outside its limits, [`EmulatorError::Thread`] if the system gives no thread.
    pub fn start(a: Tun, b: Tun, link: &Link, seed: u64) -> Result<Self, EmulatorError> {
        link.check()?;
        let drops_at_mark = Mutex::new((a.drops()?, b.drops()?));
        let (a, b) = (Arc::new(a), Arc::new(b));
        let start = Instant::now();
        let forward = Thread::start(Direction::Forward, link, seed, start, (Arc::clone(&a), Arc::clone(&b)))?;
        // Another sequence for the way back, not the same losses at the same packets.
        let seed_back = seed ^ 0x9e37_79b9_7f4a_7c15;
        let back = Thread::start(Direction::Back, link, seed_back, start, (Arc::clone(&b), Arc::clone(&a)))?;
        Ok(Self { forward, back, a, b, drops_at_mark })
    }

    /// What the link did since the last mark, or since it came up.
    ///
    /// # Errors
    /// [`EmulatorError::Ended`] if a direction has failed: what ran over the link does not count.
    pub fn counters(&self) -> Result<LinkCounters, EmulatorError> {
        let mut counters = LinkCounters { forward: self.forward.counters()?, back: self.back.counters()? };
        let (a, b) = (self.a.drops()?, self.b.drops()?);
        let (a_before, b_before) = *self.drops_at_mark.lock().unwrap_or_else(PoisonError::into_inner);
        let drops = |from: DeviceDrops, from_before: DeviceDrops, to: DeviceDrops, to_before: DeviceDrops| {
            from.from_host.saturating_sub(from_before.from_host)
                + to.to_host.saturating_sub(to_before.to_host)
        };
        counters.forward.device_drops += drops(a, a_before, b, b_before);
        counters.back.device_drops += drops(b, b_before, a, a_before);
        Ok(counters)
    }

    /// Counts anew from now on. Packets that are on their way now come out after the mark without having gone in.
    ///
    /// # Errors
    /// [`EmulatorError::Ended`] if a direction has failed.
    pub fn mark(&self) -> Result<(), EmulatorError> {
        *self.drops_at_mark.lock().unwrap_or_else(PoisonError::into_inner) =
            (self.a.drops()?, self.b.drops()?);
        self.forward.mark()?;
        self.back.mark()
    }

    /// Changes one direction, or both, now.
    ///
    /// # Errors
    /// [`EmulatorError::Limit`] if the link would be outside its limits; nothing has changed then.
    /// [`EmulatorError::Ended`] if a direction has failed.
    pub fn change(&self, direction: Option<Direction>, change: &Change) -> Result<(), EmulatorError> {
        let threads = match direction {
            Some(Direction::Forward) => vec![&self.forward],
            Some(Direction::Back) => vec![&self.back],
            None => vec![&self.forward, &self.back],
        };
        for thread in &threads {
            thread.shape()?.changed(change).check()?;
        }
        for thread in threads {
            thread.change(change.clone())?;
        }
        Ok(())
    }

    /// Stops. Packets on their way do not come out. Returns what the link did since the last mark.
    ///
    /// # Errors
    /// [`EmulatorError::Ended`] if a direction had failed; both have stopped all the same.
    pub fn stop(mut self) -> Result<LinkCounters, EmulatorError> {
        let counters = self.counters();
        self.forward.stop();
        self.back.stop();
        counters
    }
}

impl Thread {
    fn start(
        direction: Direction,
        link: &Link,
        seed: u64,
        start: Instant,
        (from, to): (Arc<Tun>, Arc<Tun>),
    ) -> Result<Self, EmulatorError> {
        let (commands, inbox) = sync_channel(COMMANDS_MAX);
        let wake = Arc::new(Wake::new().map_err(EmulatorError::Thread)?);
        let failure = Arc::new(OnceLock::new());
        let carrier = Carrier::new(direction, link, seed, start, (from, to), inbox, Arc::clone(&wake));
        let told = Arc::clone(&failure);
        let handle = std::thread::Builder::new()
            .name(
                match direction {
                    Direction::Forward => "wan-forward",
                    Direction::Back => "wan-back",
                }
                .to_owned(),
            )
            .spawn(move || {
                // The inbox lives until the reason is written down, so that whoever sees it closed finds the reason.
                let mut carrier = carrier;
                if let Err(error) = carrier.run() {
                    let _ = told.set(error.to_string());
                }
            })
            .map_err(EmulatorError::Thread)?;
        Ok(Self { direction, commands, wake, failure, handle: Some(handle) })
    }

    fn counters(&self) -> Result<DirectionCounters, EmulatorError> {
        let (answer, answered) = sync_channel(1);
        self.ask(Command::Report(answer), &answered)
    }

    fn mark(&self) -> Result<(), EmulatorError> {
        let (answer, answered) = sync_channel(1);
        self.ask(Command::Mark(answer), &answered)
    }

    fn shape(&self) -> Result<crate::link::Shape, EmulatorError> {
        let (answer, answered) = sync_channel(1);
        self.ask(Command::Shape(answer), &answered)
    }

    fn change(&self, change: Change) -> Result<(), EmulatorError> {
        let (answer, answered) = sync_channel(1);
        self.ask(Command::Change(change, answer), &answered)
    }

    /// Sends a command and waits for its answer: microseconds, as the thread looks after each batch of packets.
    fn ask<T>(&self, command: Command, answered: &Receiver<T>) -> Result<T, EmulatorError> {
        let sent = self.commands.send(command).is_ok();
        self.wake.signal();
        if sent && let Ok(answer) = answered.recv() {
            return Ok(answer);
        }
        Err(EmulatorError::Ended {
            direction: self.direction,
            why: self.failure.get().cloned().unwrap_or_else(|| "its thread panicked".to_owned()),
        })
    }

    fn stop(&mut self) {
        // A closed inbox means that it has stopped already.
        let _ = self.commands.send(Command::Stop);
        self.wake.signal();
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        if self.handle.is_some() {
            self.stop();
        }
    }
}
