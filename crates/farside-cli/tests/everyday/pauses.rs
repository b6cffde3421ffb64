//! What a host feels of a snapshot: the longest that any operation took which was under way while the snapshot was taken, beside
//! the same of moments in which none was. For figures build with `--release`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::figures::{now, quantile, text};
use crate::support::mounted::has_tool;
use crate::support::{Pair, Site, seed};

const MIB: u64 = 1 << 20;
const VOLUME: u64 = 256 * MIB;
/// Between snapshots, and half of it between a snapshot and a moment without one.
const APART: Duration = Duration::from_millis(400);

/// From when to when, seconds since the Unix epoch.
type Window = (f64, f64);

/// 8 KiB at random, 70 % reads, at so many operations a second (none: as many as there can be). Each operation's end and length
/// are written to `into`.
fn hosts(site: &Site, into: &Path, rate: Option<u64>, seconds: u64) -> std::process::Child {
    let uri = format!("nbd+unix:///p/load?socket={}", site.nbd_socket().display());
    let mut fio = Command::new("fio");
    fio.args(["--name=load", "--ioengine=nbd", "--rw=randrw", "--rwmixread=70", "--bs=8k", "--iodepth=30"])
        .args(["--time_based", "--log_unix_epoch=1", "--log_max_value=0", "--output-format=json"])
        .arg(format!("--runtime={seconds}"))
        .arg(format!("--uri={uri}"))
        .arg(format!("--size={VOLUME}"))
        .arg(format!("--write_lat_log={}", into.display()))
        .arg(format!("--output={}.json", into.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(rate) = rate {
        fio.arg(format!("--rate_iops={},{}", rate * 7 / 10, rate * 3 / 10)).arg("--rate_process=poisson");
    }
    fio.spawn().unwrap()
}

/// Of each operation: when it began and ended, seconds since the Unix epoch, in the order in which they ended.
fn operations(from: &Path) -> Vec<Window> {
    let log = std::fs::read_to_string(format!("{}_clat.1.log", from.display())).unwrap();
    let one = |line: &str| {
        let mut fields = line.split(',').map(|field| field.trim().parse::<f64>().unwrap());
        let (ended, took) = (fields.next().unwrap() / 1e3, fields.next().unwrap() / 1e9);
        (ended - took, ended)
    };
    let mut all: Vec<Window> = log.lines().map(one).collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    all
}

/// The longest that an operation took which was under way at any time in the window, milliseconds. The log has whole milliseconds.
fn longest(operations: &[Window], window: Window) -> f64 {
    let first = operations.partition_point(|operation| operation.1 < window.0 - 0.001);
    let under_way = operations[first..].iter().take_while(|operation| operation.1 < window.1 + 2.0);
    let among = under_way.filter(|operation| operation.0 <= window.1 + 0.001);
    among.map(|operation| (operation.1 - operation.0) * 1e3).fold(0.0, f64::max)
}

#[test]
#[ignore = "minutes: two for each load; FARSIDE_SNAPSHOTS says how many snapshots"]
fn hosts_do_not_feel_a_snapshot() {
    let mut random = StdRng::seed_from_u64(seed());
    if !has_tool("fio") {
        assert!(std::env::var_os("FARSIDE_REQUIRE_TOOLS").is_none(), "fio is missing");
        eprintln!("**** SKIPPED: fio is missing");
        return;
    }
    let count: u32 = std::env::var("FARSIDE_SNAPSHOTS").map_or(250, |count| count.parse().unwrap());
    let pair = Pair::with_pools(8 << 30, 1 << 30);
    let site = &pair.a;
    site.ok(&format!("volume create p/load --size {VOLUME}"));
    let mut load = site.nbd("p/load");
    for at in 0..VOLUME / MIB {
        load.write(at * MIB, &text(&mut random, MIB as usize)).unwrap();
    }
    load.flush().unwrap();
    drop(load);
    let mut number = 0_u32;
    for (what, part) in [("half", Some(0.5)), ("three quarters", Some(0.75)), ("all that there can be", None)]
    {
        let capacity = {
            let into = pair.root.path().join("capacity");
            assert!(hosts(site, &into, None, 8).wait().unwrap().success());
            operations(&into).len() as f64 / 8.0
        };
        let rate = part.map(|part| (capacity * part) as u64);
        let into = pair.root.path().join(format!("load-{number}"));
        let mut fio = hosts(site, &into, rate, 3600);
        std::thread::sleep(Duration::from_secs(2));
        let (mut taken, mut beside, mut said) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (began, whole) = (now(), Instant::now());
            site.ok(&format!("snapshot create p/load@s{number}"));
            let ended = now();
            taken.push((began, ended));
            said.push((ended - began) * 1e3);
            // As long a moment, at which nothing is done, some time before the next one.
            let at = ended + random.random_range(0.1..0.2);
            beside.push((at, at + (ended - began)));
            // Away from both of them, so that neither shows what deleting costs.
            std::thread::sleep((APART * 3 / 4).saturating_sub(whole.elapsed()));
            if number >= 2 {
                site.ok(&format!("snapshot delete p/load@s{} --yes", number - 2));
            }
            number += 1;
            std::thread::sleep(APART.saturating_sub(whole.elapsed()));
        }
        // It writes down what it has seen when it is told to end.
        let pid = rustix::process::Pid::from_raw(fio.id() as i32).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let _ = fio.wait();
        let operations = operations(&into);
        let of =
            |windows: &[Window]| -> Vec<f64> { windows.iter().map(|w| longest(&operations, *w)).collect() };
        let (taken, beside) = (of(&taken), of(&beside));
        let figures = |all: &[f64]| {
            let at = |part| quantile(all, part);
            format!("{:.2}, {:.2}, {:.2} ms", at(0.5), at(0.99), at(1.0))
        };
        println!(
            "{what} of {capacity:.0} operations a second, {count} snapshots: the longest operation under way, median, 99 in 100, most: \
             while one is taken {}, while none is {}; the command itself {}",
            figures(&taken),
            figures(&beside),
            figures(&said)
        );
        assert!(quantile(&taken, 0.5) > 0.0, "no operation was under way");
    }
}
