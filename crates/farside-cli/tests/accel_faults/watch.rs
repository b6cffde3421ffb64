//! A client that begins a connection every few milliseconds, before a fault and after it: which of them come about, how soon, and
//! by which way.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::bed::SERVER;
use crate::space::Space;
use crate::traffic::{Ended, fetch, transfer};

/// Between the begins of two connections.
const EVERY: Duration = Duration::from_millis(20);
/// Of a connection: a client that tries for longer has found nobody.
const PATIENCE: Duration = Duration::from_secs(20);
/// A connection that took longer to come about has lost its SYN, or somebody held it: a client tries again after a second.
pub(crate) const PROMPT: Duration = Duration::from_millis(900);
/// Where a fault is not to be noticed no connection takes longer to come about, seconds: twice as long as [`PROMPT`] on a busy machine.
pub(crate) const UNNOTICED: f64 = 1.8;
/// A client whose first packet was lost tries again after 1, 2 and 3 s. One that meets what is left of its first try at the server,
/// as where a box has died, needs the third.
pub(crate) const THIRD_TRY: f64 = 2.0;
/// On a busy machine.
pub(crate) const MARGIN: f64 = 0.4;
/// A file that nobody else asks for.
const FILE: u32 = 9999;
const BYTES: u32 = 3000;

struct Attempt {
    began: Instant,
    ended: Instant,
    how: Ended,
}

pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<JoinHandle<Attempt>>>,
}

impl Watch {
    pub(crate) fn start(client: &Space) -> Watch {
        let stop = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&stop);
        let to = SERVER.parse().unwrap();
        let thread = client.inside(|| {
            thread::spawn(move || {
                let mut attempts = Vec::new();
                let mut next = Instant::now();
                while !is_over.load(Ordering::Relaxed) {
                    attempts.push(thread::spawn(move || {
                        let began = Instant::now();
                        let how = transfer(to, fetch(FILE, BYTES), PATIENCE, &AtomicU64::new(0));
                        Attempt { began, ended: Instant::now(), how }
                    }));
                    next = (next + EVERY).max(Instant::now());
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
                attempts
            })
        });
        Watch { stop, thread }
    }

    /// What became of the connections, seen from a fault at `fault`. `plain`: ports of those that went their plain way.
    pub(crate) fn end(self, fault: Instant, plain: impl FnOnce() -> HashSet<u16>) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let attempts = self.thread.join().unwrap();
        let attempts: Vec<Attempt> = attempts.into_iter().map(|thread| thread.join().unwrap()).collect();
        Seen::of(&attempts, fault, &plain())
    }
}

/// What became of connections after a fault. Seconds since the fault.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Connections that were reset.
    pub(crate) resets: u32,
    /// The first connection that began after the fault was over, with all its bytes.
    pub(crate) flow: f64,
    /// Every connection that began from then on came about at once.
    pub(crate) all_flow: f64,
    /// The longest that any connection took to come about.
    pub(crate) slowest: f64,
    /// After some that went plainly, the begin of the first of three in a row that were optimised.
    pub(crate) again: Option<f64>,
    /// Connections that began after the fault, all, and those that went their plain way.
    pub(crate) begun: usize,
    pub(crate) plain: usize,
}

impl Seen {
    /// A peer that is slow for a moment, as all are on a busy machine, is passed by.
    pub(crate) fn is_mostly_optimised(&self) -> bool {
        self.plain * 5 <= self.begun
    }

    fn of(attempts: &[Attempt], fault: Instant, plain: &HashSet<u16>) -> Seen {
        let since = |moment: Instant| moment.saturating_duration_since(fault).as_secs_f64();
        let mut seen = Seen { flow: f64::INFINITY, ..Seen::default() };
        let (mut was_plain, mut in_a_row) = (false, Vec::new());
        for Attempt { began, ended, how } in attempts {
            let is_reset = how.result.as_ref().is_err_and(|broken| broken.is_reset());
            assert!(how.result.is_ok() || is_reset, "{:.3} s after the fault: {:?}", since(*began), how);
            seen.resets += u32::from(is_reset);
            let is_after = *began >= fault;
            assert!(is_after || how.set_up <= PROMPT || *ended >= fault, "slow before the fault: {how:?}");
            if *ended >= fault {
                seen.slowest = seen.slowest.max(how.set_up.as_secs_f64());
            }
            if !is_after {
                continue;
            }
            seen.begun += 1;
            if is_reset || how.set_up > PROMPT {
                seen.all_flow = since(*began) + 0.001;
                continue;
            }
            seen.flow = seen.flow.min(since(*ended));
            if plain.contains(&how.port) {
                seen.plain += 1;
                was_plain = true;
                in_a_row.clear();
            } else if was_plain {
                in_a_row.push(since(*began));
            }
            if in_a_row.len() == 3 && seen.again.is_none() {
                seen.again = Some(in_a_row[0]);
            }
        }
        seen
    }
}

/// Prints a cell's line of the table.
pub(crate) fn report(cell: &str, resets: u32, seen: &Seen, note: &str) {
    let again = seen.again.map_or("-".to_owned(), |again| format!("{again:.2}"));
    println!(
        "accel-fault cell={cell:?} resets={resets} flow={:.2} all-flow={:.2} slowest={:.2} again={again} note={note:?}",
        seen.flow, seen.all_flow, seen.slowest
    );
}
