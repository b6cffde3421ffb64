//! How busy the machine's processors are.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// Cores that nobody uses.
pub trait Cores: Send + Sync + 'static {
    /// How many of late: between none and all there are.
    fn idle(&self) -> f64;
}

/// How often the machine is asked: the kernel counts in hundredths of a second, so that a shorter time says little.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Where the kernel counts.
const COUNTERS: &str = "/proc/stat";
/// Bytes read of it: the first line, of at most ten numbers of 20 digits.
const LINE_BYTES_MAX: u64 = 256;

/// The machine's processors, as Linux counts them. Where that cannot be read, all of them count as idle.
pub struct SystemCores {
    counters: PathBuf,
    cores: f64,
    clock: Arc<dyn Clock>,
    latest: Mutex<Latest>,
}

#[derive(Clone, Copy, Default)]
struct Latest {
    at: Option<Duration>,
    ticks: Option<Ticks>,
    idle: Option<f64>,
}

/// Hundredths of a second since the machine was started, over all cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticks {
    idle: u64,
    all: u64,
}

impl SystemCores {
    /// Of this machine, as far as this process may use them.
    pub fn new(clock: Arc<dyn Clock>) -> SystemCores {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        SystemCores { counters: COUNTERS.into(), cores: cores as f64, clock, latest: Mutex::default() }
    }

    fn ticks(&self) -> Option<Ticks> {
        let mut text = Vec::new();
        File::open(&self.counters).ok()?.take(LINE_BYTES_MAX).read_to_end(&mut text).ok()?;
        parse(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for SystemCores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemCores").field("cores", &self.cores).finish_non_exhaustive()
    }
}

impl Cores for SystemCores {
    fn idle(&self) -> f64 {
        let now = self.clock.monotonic();
        // What is kept is replaced as a whole.
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.at.is_none_or(|at| now.saturating_sub(at) >= LOOK_EVERY) {
            let ticks = self.ticks();
            let share = latest.ticks.zip(ticks).and_then(|(before, now)| share(before, now));
            *latest = Latest { at: Some(now), ticks, idle: share.map(|share| share * self.cores) };
        }
        latest.idle.unwrap_or(self.cores)
    }
}

/// The first line of the counters: `cpu`, then user, nice, system, idle, waiting for a disk, interrupts (two), stolen by
/// the host. What guests use is in the first two already.
fn parse(text: &str) -> Option<Ticks> {
    let mut words = text.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let numbers: Vec<u64> = words.take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    let (idle, waiting) = (numbers.get(3)?, numbers.get(4)?);
    let all = numbers.iter().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
    Some(Ticks { idle: idle.saturating_add(*waiting), all })
}

/// What was idle of the time between; none if none has passed.
fn share(before: Ticks, now: Ticks) -> Option<f64> {
    let all = now.all.checked_sub(before.all).filter(|ticks| *ticks > 0)?;
    Some((now.idle.saturating_sub(before.idle) as f64 / all as f64).min(1.0))
}

/// Cores of a simulation.
#[derive(Debug)]
pub struct ManualCores(AtomicU64);

impl ManualCores {
    /// So many are idle.
    pub fn new(idle: f64) -> ManualCores {
        ManualCores(AtomicU64::new(idle.to_bits()))
    }

    /// From now on so many are.
    pub fn set(&self, idle: f64) {
        self.0.store(idle.to_bits(), Ordering::Relaxed);
    }
}

impl Cores for ManualCores {
    fn idle(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, Timestamp};

    #[test]
    fn the_kernels_line_is_read_and_nonsense_is_none() {
        let ticks = parse("cpu  10 20 30 400 50 6 7 8 99 99\ncpu0 1 2 3").unwrap();
        assert_eq!(ticks, Ticks { idle: 450, all: 531 });
        assert_eq!(share(Ticks { idle: 400, all: 431 }, ticks), Some(0.5));
        assert_eq!(share(ticks, ticks), None);
        assert_eq!(share(ticks, Ticks { idle: 0, all: 0 }), None);
        for text in ["", "cpu", "cpu 1 2 3", "cpu 1 2 3 4 x", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn it_looks_once_a_second_and_believes_idle_what_it_cannot_see() {
        let directory = tempfile::tempdir().unwrap();
        let counters = directory.path().join("stat");
        let clock = Arc::new(ManualClock::new(Timestamp(0)));
        let mut cores = SystemCores::new(clock.clone());
        (cores.counters, cores.cores) = (counters.clone(), 4.0);
        assert_eq!(cores.idle(), 4.0);
        std::fs::write(&counters, "cpu 100 0 0 100 0 0 0 0\n").unwrap();
        clock.advance(LOOK_EVERY);
        assert_eq!(cores.idle(), 4.0);
        std::fs::write(&counters, "cpu 175 0 0 125 0 0 0 0\n").unwrap();
        clock.advance(LOOK_EVERY / 2);
        assert_eq!(cores.idle(), 4.0, "too soon");
        clock.advance(LOOK_EVERY / 2);
        assert_eq!(cores.idle(), 1.0);
    }
}
