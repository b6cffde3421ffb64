//! One direction of a running link: the thread that reads from one device, keeps packets until they are due, and writes them to
//! the other.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::time::TimeSpec;
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use crate::link::{Change, Direction, Line, LineTime, Link, Shape, Verdict};
use crate::record::DirectionCounters;

use super::Tun;
use super::count::Counts;
use super::pending::Kept;
use super::pool::Pool;

/// Packets read in a row before looking at what is due: reading one takes a microsecond or two, so a due packet waits for
/// 50 µs at most, and a flood of arrivals cannot keep packets in.
const READS_MAX: usize = 32;

/// Packets written in a row before reading again: what arrives meanwhile is taken to arrive when it is read, and the kernel
/// keeps only so many.
const WRITES_MAX: usize = 64;

/// Below this the thread does not sleep: going to sleep and waking up takes longer.
const SLEEP_MIN: Duration = Duration::from_micros(10);

/// While packets stream, the thread looks only so often: at 1 Gb/s four packets at a time. Waking up for each would take
/// the processor from the hosts, and they are what is measured. It makes a packet of a stream at most about this late; a
/// packet after a silence is met at once.
const PAUSE: Duration = Duration::from_micros(50);

/// Real-time priority, 1 to 99. Any is above all other work; a low one leaves the machine's own above.
const PRIORITY: u8 = 10;

/// What a direction's thread is told.
#[derive(Debug)]
pub(super) enum Command {
    /// Answers with the counters.
    Report(SyncSender<DirectionCounters>),
    /// Counts anew.
    Mark(SyncSender<()>),
    /// Answers with the shape as it is now.
    Shape(SyncSender<Shape>),
    /// Changes the line.
    Change(Change, SyncSender<()>),
    /// Ends.
    Stop,
}

/// Wakes a direction's thread that waits for packets.
#[derive(Debug)]
pub(super) struct Wake(EventFd);

impl Wake {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?))
    }

    pub(super) fn signal(&self) {
        // It fails only if it has been signalled 2^64 times and never cleared.
        let _ = self.0.write(1);
    }

    fn clear(&self) {
        // Not signalled is no error here.
        let _ = self.0.read();
    }
}

/// What one direction's thread works on.
#[derive(Debug)]
pub(super) struct Carrier {
    from: Arc<Tun>,
    to: Arc<Tun>,
    start: Instant,
    line: Line,
    script: VecDeque<(LineTime, Change)>,
    inbox: Receiver<Command>,
    wake: Arc<Wake>,
    kept: Kept,
    pool: Pool,
    scratch: Box<[u8]>,
    counts: Counts,
}

impl Carrier {
    pub(super) fn new(
        direction: Direction,
        link: &Link,
        seed: u64,
        start: Instant,
        (from, to): (Arc<Tun>, Arc<Tun>),
        inbox: Receiver<Command>,
        wake: Arc<Wake>,
    ) -> Self {
        let shape = match direction {
            Direction::Forward => &link.forward,
            Direction::Back => &link.back,
        };
        let mut pool = Pool::new(shape.mtu);
        pool.allow(shape.held_bytes());
        Self {
            from,
            to,
            start,
            line: Line::new(shape, seed),
            script: link
                .script
                .iter()
                .filter(|event| event.direction.is_none_or(|only| only == direction))
                .map(|event| (LineTime::after(event.at), event.change.clone()))
                .collect(),
            inbox,
            wake,
            kept: Kept::default(),
            scratch: pool.scratch(),
            pool,
            counts: Counts::new(),
        }
    }

    /// Carries packets until it is told to stop.
    ///
    /// # Errors
    /// A device is gone.
    pub(super) fn run(&mut self) -> io::Result<()> {
        // Without real-time priority the kernel may let a sleeping thread lie up to 50 µs longer than it asked for.
        let _ = nix::sys::prctl::set_timerslack(1);
        self.counts.runs_in_real_time(become_real_time());
        let mut streams = false;
        loop {
            if self.obey() {
                return Ok(());
            }
            // What was due before a change comes out before it.
            let out = self.let_out()?;
            self.follow_script();
            let taken = self.take_in()?;
            if out == WRITES_MAX || taken == READS_MAX {
                continue;
            }
            let moved = out + taken > 0;
            if moved && streams {
                std::thread::sleep(PAUSE);
            } else {
                self.sleep()?;
            }
            streams = moved;
        }
    }

    fn now(&self) -> LineTime {
        LineTime::after(self.start.elapsed())
    }

    /// Does what it has been told; true if that is to stop.
    fn obey(&mut self) -> bool {
        while let Ok(command) = self.inbox.try_recv() {
            // Who no longer waits for an answer needs none.
            match command {
                Command::Report(answer) => drop(answer.send(self.counts.report())),
                Command::Mark(answer) => {
                    self.counts.mark();
                    let _ = answer.send(());
                }
                Command::Shape(answer) => drop(answer.send(self.line.shape().clone())),
                Command::Change(change, answer) => {
                    self.change(&change);
                    let _ = answer.send(());
                }
                Command::Stop => return true,
            }
        }
        false
    }

    fn follow_script(&mut self) {
        while let Some((at, _)) = self.script.front()
            && *at <= self.now()
            && let Some((_, change)) = self.script.pop_front()
        {
            self.change(&change);
        }
    }

    fn change(&mut self, change: &Change) {
        let now = self.now();
        self.kept.retimed(|passages| self.line.change(now, change, passages));
        if *change == Change::Down {
            while let Some(out) = self.kept.pop() {
                self.counts.cut_off();
                self.pool.give_back(out.packet);
            }
        }
        self.pool.allow(self.line.shape().held_bytes());
    }

    /// Writes what is due; returns how many packets, [`WRITES_MAX`] at most.
    fn let_out(&mut self) -> io::Result<usize> {
        for count in 0..WRITES_MAX {
            let now = self.now();
            if self.kept.next_due().is_none_or(|due| due > now) {
                return Ok(count);
            }
            let Some(out) = self.kept.pop() else { return Ok(count) };
            match self.to.write(out.packet.bytes()) {
                Ok(_) => self.counts.came_out(&out, now),
                Err(error) if is_device_gone(&error) => return Err(error),
                // Out of memory, or the device is down: the kernel does not take this one.
                Err(_) => self.counts.machine_dropped(),
            }
            self.pool.give_back(out.packet);
        }
        Ok(WRITES_MAX)
    }

    /// Reads what has arrived; returns how many packets, [`READS_MAX`] at most.
    fn take_in(&mut self) -> io::Result<usize> {
        for count in 0..READS_MAX {
            let length = match self.from.read(&mut self.scratch) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let verdict = self.line.arrive(self.now(), u32::try_from(length).unwrap_or(u32::MAX));
            self.counts.went_in(length, &verdict);
            if let Verdict::Passes(passage) = verdict {
                match self.pool.keep(&mut self.scratch, length) {
                    Some(packet) => self.kept.push(passage, packet),
                    None => self.counts.machine_dropped(),
                }
            }
        }
        Ok(READS_MAX)
    }

    /// Waits for a packet, a command, or the moment when something is due.
    fn sleep(&mut self) -> io::Result<()> {
        let next = match (self.kept.next_due(), self.script.front()) {
            (Some(due), Some((at, _))) => Some(due.min(*at)),
            (Some(due), None) => Some(due),
            (None, Some((at, _))) => Some(*at),
            (None, None) => None,
        };
        let time = next.map(|moment| moment.since(self.now()));
        if time.is_some_and(|time| time < SLEEP_MIN) {
            return Ok(());
        }
        let mut fds = [
            PollFd::new(self.from.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.wake.0.as_fd(), PollFlags::POLLIN),
        ];
        match ppoll(&mut fds, time.map(TimeSpec::from), None) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if fds[1].any() == Some(true) {
            self.wake.clear();
        }
        Ok(())
    }
}

/// Whether the error means that the device no longer exists, not that one packet was refused.
fn is_device_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EBADFD as i32)
}

/// Real-time priority for this thread; false if the system does not allow it.
fn become_real_time() -> bool {
    let Ok(priority) = ThreadPriorityValue::try_from(PRIORITY) else {
        return false;
    };
    set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::Crossplatform(priority),
        ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo),
    )
    .is_ok()
}
