//! Many connections: short ones, and idle ones.

use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bed::{Bed, End, PATIENCE, SERVER};
use crate::support::eventually;
use crate::traffic::{Request, Transfer, fetch, transfer};
use crate::watch::{Seen, report};

/// Threads that begin connections.
const CLIENTS: u32 = 8;

/// Each end of each connection is a descriptor of this process. Root may have more than it was given. How many there are now.
pub(crate) fn raise_descriptors() -> u64 {
    const WANTED: u64 = 65_536;
    let limit = getrlimit(Resource::Nofile);
    let more = |maximum| Rlimit { current: maximum, maximum };
    if limit.maximum.is_some_and(|maximum| maximum < WANTED)
        && setrlimit(Resource::Nofile, more(Some(WANTED))).is_ok()
    {
        return WANTED;
    }
    setrlimit(Resource::Nofile, more(limit.maximum)).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}

/// Begins so many connections a second, as far as the machine can. Connections, and the time that all took.
fn short_connections(bed: &Bed, per_second: u32, seconds: u32) -> (usize, f64, Seen) {
    let (began, to) = (Instant::now(), SERVER.parse().unwrap());
    let ended: Vec<_> = bed.client.inside(|| {
        let clients = (0..CLIENTS).map(|_| {
            thread::spawn(move || {
                let mut all = Vec::new();
                for number in 0..per_second * seconds / CLIENTS {
                    let due = began + Duration::from_secs(1) * (number * CLIENTS) / per_second;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    all.push(transfer(to, fetch(1, 500), PATIENCE, &AtomicU64::new(0)));
                }
                all
            })
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let failed: Vec<_> = ended.iter().filter(|ended| ended.result.is_err()).collect();
    assert!(failed.is_empty(), "{} of {} failed, such as {:?}", failed.len(), ended.len(), failed[0]);
    let slowest = ended.iter().map(|ended| ended.set_up.as_secs_f64()).fold(0.0, f64::max);
    (ended.len(), seconds, Seen { slowest, ..Seen::default() })
}

/// Resident memory of an accelerator's process.
fn memory_kb(bed: &Bed, at: End) -> u64 {
    memory_kb_of(bed.at(at).process().unwrap())
}

/// The same of any process.
pub(crate) fn memory_kb_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_box_is_told_to_give_large_blocks_back_at_once() {
    let Some(bed) = Bed::new() else { return };
    for at in [End::Near, End::Far] {
        let pid = bed.at(at).process().unwrap();
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let is_told =
            environment.split(|byte| *byte == 0).any(|variable| variable == b"MALLOC_MMAP_THRESHOLD_=524288");
        assert!(is_told, "{}", String::from_utf8_lossy(&environment));
    }
}

#[test]
fn a_thousand_short_connections_a_second() {
    let Some(bed) = Bed::new() else { return };
    let (connections, seconds, seen) = short_connections(&bed, 1000, 3);
    let plain = bed.plain_ports().len();
    let note = format!("{connections} connections in {seconds:.1} s, {plain} of them plainly, none failed");
    report("1,000 short connections a second", 0, &seen, &note);
    eventually("no connection is left", || bed.open(End::Near) + bed.open(End::Far) == 0);
}

#[test]
#[ignore = "keeps 2,000 connections open beside those of other tests"]
fn two_thousand_idle_connections() {
    raise_descriptors();
    let Some(bed) = Bed::new() else { return };
    // Each says a byte, rests, and says another one.
    let idle = Request { up: 2, down: 1, piece: 1, pause: 20_000_000, ..Request::default() };
    let (began, mut open) = (Instant::now(), Vec::new());
    for _ in 0..2000 {
        open.push(Transfer::start(&bed.client, idle));
    }
    eventually("all are open", || bed.serving.open() == 2000);
    let (connections, seconds, seen) = short_connections(&bed, 300, 5);
    assert_eq!(bed.serving.open(), 2000);
    let kept = bed.open(End::Near);
    assert!(kept > 1900, "{kept} of 2,000 are optimised");
    // Each has said something, and rests.
    for at in [End::Near, End::Far] {
        eventually("a connection that rests holds little", || memory_kb(&bed, at) < 60_000 + 2000 * 30);
    }
    for transfer in open {
        bed.whole(transfer);
    }
    let note = format!(
        "kept for {:.0} s, {kept} optimised; beside them {connections} short ones in {seconds:.1} s, none failed",
        began.elapsed().as_secs_f64()
    );
    report("2,000 idle connections", bed.resets(), &seen, &note);
}
